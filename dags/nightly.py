"""Every night: each contract is audited, and repaired where its contract or a person says so."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from reconcile.airflow.group import FIRST, reconciliation


@dag(
    dag_id="nightly",
    schedule="0 1 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args=FIRST,
    tags=["reconcile"],
    doc_md=__doc__,
)
def nightly() -> None:
    """Audit and repair every contract."""
    reconciliation.expand(scheduled_run=contracts())
    prune()


@task
def contracts() -> list[dict[str, Any]]:
    """List the contracts as their folder holds them now."""
    from reconcile.airflow.installation import installation
    from reconcile.airflow.scheduled_run import ScheduledRun, requester_of, run_id_of

    run = get_current_context()["dag_run"]
    if run.run_type == "backfill":
        raise AirflowFailException(
            "a run compares what stands in the stores now, and nothing of a past night is left to compare:"
            " trigger the DAG once in place of a backfill"
        )
    files = installation().contract_files()
    run_ids = {each: run_id_of(each, run.dag_id, run.run_id, run.run_after) for each in files}
    who = requester_of(run)
    return [ScheduledRun(str(file), run_id, incremental=True, requester=who).data() for file, run_id in run_ids.items()]


@task
def prune() -> dict[str, Any] | None:
    """Remove what is older than the settings keep; nothing where they do not say."""
    from reconcile.airflow.pruning import prune_by_settings

    return prune_by_settings()


nightly()
