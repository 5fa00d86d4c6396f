"""What tasks read of a run between its applications; nothing is computed on Spark.

Where the workspace is no folder but a URI, it is reached through Spark all the same: on `spark.master` of the settings,
within the task.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from reconcile.airflow.alerts import alerts
from reconcile.airflow.asked import Asked
from reconcile.airflow.installation import installation
from reconcile.airflow.review import review

if TYPE_CHECKING:
    from reconcile.pipeline.handoffs import Verified


def failed_gate(asked: Asked) -> list[str]:
    """Say why a run may not go on: what could not be read, and which expectations failed that stop it."""
    from reconcile.pipeline.handoffs import Quality, Summary
    from reconcile.quality.gate import against_repair

    with installation().run(asked.run_id) as (_, run, _settings):
        unread = [f"{each.link} could not be read: {each.message}" for each in run.read(Summary).unread]
        return [*unread, *against_repair(run.read(Quality).results)]


def reviewed(asked: Asked) -> dict[str, Any]:
    """Read what a run's plan comes to."""
    from reconcile.domain.plan import aggregates
    from reconcile.pipeline.handoffs import Fence, Plan, Summary

    with installation().run(asked.run_id) as (_, run, _settings):
        rows, links = run.read(Fence).source.rows, run.read(Summary).links
        numbers = {each.link: aggregates(each.compared, rows, some=bool(asked.ids)) for each in links}
        return review(asked, run.read(Plan), numbers)


def verified(asked: Asked) -> Verified:
    """Read what became of a run's corrections."""
    from reconcile.pipeline.handoffs import Verified

    with installation().run(asked.run_id) as (_, run, _settings):
        return run.read(Verified)


def reported(asked: Asked) -> dict[str, Any]:
    """Write a run's report and return its figures, with what people have to be told.

    Raises RefusedError if there is no such run, or it was not audited.
    """
    from reconcile.pipeline import stages as pipeline
    from reconcile.pipeline.handoffs import Plan, Summary, Verified, results_of
    from reconcile.pipeline.runs import contract_of
    from reconcile.quality.gate import unmet
    from reconcile.report.verdict import exit_code_with

    with installation().run(asked.run_id) as (place, run, settings):
        summary, verified = run.read(Summary), run.read_if_there(Verified)
        report = pipeline.report(run, place, settings, contract_of(run))
        results, plan = results_of(run), run.read_if_there(Plan)
        names = ("link", "settled", "compared", "agreeing", "drifted", "latent", "in_flight")
        return {
            "run_id": run.id,
            "contract": summary.contract,
            "verdict": report.verdict,
            "complete": summary.complete,
            "exit_code": exit_code_with(summary.exit_code, len(unmet(results))),
            "links": [{name: getattr(each, name) for name in names} for each in summary.links],
            "repair": _repair(verified),
            "alerts": [asdict(each) for each in alerts(summary, results, plan, verified)],
        }


def _repair(verified: Verified | None) -> dict[str, Any] | None:
    if verified is None:
        return None
    links = {each.link: {"outcomes": each.outcomes, "left": each.still_different} for each in verified.links}
    return {"exit_code": verified.exit_code, "links": links}
