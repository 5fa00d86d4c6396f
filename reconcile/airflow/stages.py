"""What tasks read of a run between its applications; nothing is computed on Spark.

Where the workspace is no folder but a URI, it is reached through Spark all the same: on `spark.master` of the settings,
within the task.
"""

from __future__ import annotations

from typing import Any

from reconcile.airflow.alerts import alerts
from reconcile.airflow.asked import Asked
from reconcile.airflow.installation import installation
from reconcile.airflow.review import review


def failed_gate(asked: Asked) -> list[str]:
    """Say why a run may not go on: what could not be read, and which expectations failed that stop it."""
    from reconcile.report.expectations import against_repair

    with installation().run(asked.run_id) as (_, run, _settings):
        unread = [f"{each['link']} could not be read: {each['message']}" for each in run.json("summary")["unread"]]
        return [*unread, *against_repair(run.json("quality"))]


def reviewed(asked: Asked) -> dict[str, Any]:
    """Give what a run's plan comes to."""
    from reconcile.domain.plan import aggregates

    with installation().run(asked.run_id) as (_, run, _settings):
        rows = run.json("fence")["source"]["rows"]
        links = run.json("summary")["links"]
        numbers = {each["link"]: aggregates(each["compared"], rows, some=bool(asked.ids)) for each in links}
        return review(asked, run.json("plan"), numbers)


def verified(asked: Asked) -> dict[str, Any]:
    """Give what became of a run's corrections."""
    with installation().run(asked.run_id) as (_, run, _settings):
        found: dict[str, Any] = run.json("verified")
        return found


def told(asked: Asked) -> dict[str, Any]:
    """Write a run's report and give its figures, with what people have to be told.

    Raises RefusedError if there is no such run, or it was not audited.
    """
    from reconcile.pipeline import stages as pipeline
    from reconcile.pipeline.contracts import contract_of
    from reconcile.report.expectations import exit_code_with, unmet

    with installation().run(asked.run_id) as (place, run, settings):
        summary = run.json("summary")
        report = pipeline.report(run, place, settings, contract_of(run))
        quality, plan, verified = (run.json_if_there(name) for name in ("quality", "plan", "verified"))
        known = alerts(summary, quality, plan, verified)
        links = [
            {name: each[name] for name in ("link", "settled", "compared", "agreeing", "drifted", "latent", "in_flight")}
            for each in summary["links"]
        ]
        return {
            "run_id": run.id,
            "contract": summary["contract"],
            "verdict": report.verdict,
            "complete": summary["complete"],
            "exit_code": exit_code_with(summary["exit_code"], len(unmet(quality))),
            "links": links,
            "repair": _repair(verified),
            "alerts": [{"kind": each.kind, "message": each.message} for each in known],
        }


def _repair(verified: dict[str, Any] | None) -> dict[str, Any] | None:
    if verified is None:
        return None
    links = {each["link"]: {"outcomes": each["outcomes"], "left": each["left"]} for each in verified["links"]}
    return {"exit_code": verified["exit_code"], "links": links}
