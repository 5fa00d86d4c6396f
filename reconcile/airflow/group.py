"""One contract's tasks in a DAG: audit, gate, plan, approval, apply, verify, report."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, BaseNotifier, task, task_group
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from reconcile.airflow.installation import installation
from reconcile.airflow.notifier import AlertNotifier
from reconcile.airflow.operators import AUDITING, REPAIRING, PlanApproval, RunReport, StageApplication
from reconcile.airflow.review import read_failed_gate, read_review, unrepaired
from reconcile.airflow.scheduled_run import ScheduledRun
from reconcile.errors import RefusedError

REPORT = Asset("reconcile_report")
"""Updated by every report, with the figures of its run."""

DEFAULTS = {
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    "on_failure_callback": [AlertNotifier()],
}
"""Every task of these DAGs may be tried again, because a stage that is done does nothing."""

FIRST = {**DEFAULTS, "priority_weight": 100, "weight_rule": "absolute"}
"""For tasks that get the pool's next slot, however many requests wait for it."""

ANSWER_WITHIN = timedelta(hours=20)


@task_group
def reconciliation(scheduled_run: Any, notifiers: Sequence[BaseNotifier] = ()) -> None:
    """Audit one contract, and repair it once a person approves; `notifiers` are told of each incident once."""
    audited = StageApplication(task_id="audit", scheduled_run=scheduled_run, stages=AUDITING)
    gated, planned, checked = quality(scheduled_run), plan(scheduled_run), verify(scheduled_run)
    decision = PlanApproval(task_id="approve", plan=planned, defaults="Reject", response_timeout=ANSWER_WITHIN)
    applied = StageApplication(
        task_id="apply",
        scheduled_run=scheduled_run,
        stages=REPAIRING,
        plan=planned,
        decision=decision.output,
    )
    # A teardown: a report that succeeds does not turn the failure before it into a success.
    report = RunReport(
        task_id="report", scheduled_run=scheduled_run, notifiers=notifiers, outlets=[REPORT]
    ).as_teardown()
    audited >> gated >> planned >> decision >> applied >> checked >> report


@task
def quality(scheduled_run: dict[str, Any]) -> None:
    """Stop a run that is incomplete, or whose data fail an expectation that is critical."""
    if failed := read_failed_gate(ScheduledRun.of(scheduled_run)):
        raise AirflowFailException("\n".join(failed))


@task
def plan(scheduled_run: dict[str, Any]) -> dict[str, Any]:
    """Read the review of the plan."""
    return read_review(ScheduledRun.of(scheduled_run))


@task
def verify(scheduled_run: dict[str, Any]) -> dict[str, Any]:
    """Fail where corrections were emitted and a copy does not agree."""
    from reconcile.pipeline.handoffs import Verified

    try:
        with installation().run(scheduled_run["run_id"]) as (_, run, _settings):
            found = run.read(Verified)
    except RefusedError as error:
        raise AirflowSkipException(f"nothing was applied: {error}") from None
    if failed := unrepaired(found):
        raise AirflowFailException("\n".join(failed))
    return {each.link: each.outcomes for each in found.links}
