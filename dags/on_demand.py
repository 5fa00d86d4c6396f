"""Whenever somebody asks: one contract, for some consumers or aggregates, as a dry run or with its repair."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from reconcile.airflow.group import DEFAULTS, reconciliation

TEXTS: dict[str, Any] = {"type": ["array", "null"], "items": {"type": "string", "minLength": 1}}
PARAMS = {
    "contract": Param("user-account", type="string", minLength=1, description="The contract's name."),
    "consumers": Param([], **TEXTS, description="Only these consumers; empty for all."),
    "ids": Param([], **TEXTS, description="Only these aggregates; empty for all."),
    "mode": Param("auto", enum=["auto", "digest", "full"], description="How rows are compared."),
    "apply": Param(False, type="boolean", description="Emit corrections, once approved; otherwise a dry run."),
    "max_corrections": Param(None, type=["integer", "null"], minimum=0, description="At most so many on a link."),
    "max_ratio": Param(
        None, type=["number", "null"], minimum=0, maximum=1, description="At most this share of a link."
    ),
}


@dag(dag_id="on_demand", schedule=None, params=PARAMS, default_args=DEFAULTS, tags=["reconcile"], doc_md=__doc__)
def on_demand() -> None:
    """Audit one contract, and repair it if the parameters say so."""
    reconciliation(scheduled_run())


@task
def scheduled_run() -> dict[str, Any]:
    """Check the parameters of the form, the command line or the API."""
    from reconcile.airflow.installation import installation
    from reconcile.airflow.scheduled_run import ScheduledRun, requester_of, run_id_of
    from reconcile.errors import RefusedError

    context = get_current_context()
    run, params = context["dag_run"], context["params"]
    if unknown := sorted(set(run.conf or {}) - PARAMS.keys()):
        raise AirflowFailException(f"there is no parameter {', '.join(unknown)}; there are {', '.join(PARAMS)}")
    try:
        file = installation().contract_file(params["contract"])
    except RefusedError as error:
        raise AirflowFailException(str(error)) from None
    lists = {name: params[name] or [] for name in ("consumers", "ids")}
    given = {name: params[name] for name in ("mode", "apply", "max_corrections", "max_ratio")}
    run_id = run_id_of(file, run.dag_id, run.run_id, run.run_after)
    return ScheduledRun(str(file), run_id, **lists, **given, requester=requester_of(run)).data()


on_demand()
