"""The way of one contract through a DAG: audit, gate, plan, a person's yes, apply, verify, report."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, task, task_group
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from reconcile.airflow.asked import Asked
from reconcile.airflow.notifier import AlertNotifier
from reconcile.airflow.operators import PlanApproval, Report, StageApplication

REPORT = Asset("reconcile_report")
"""Updated by every report, with the figures of its run."""

DEFAULTS = {
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    "on_failure_callback": [AlertNotifier()],
}
"""What every task of these DAGs is given: each may be tried again, because a stage that is done does nothing."""

ANSWER_WITHIN = timedelta(hours=20)


@task_group
def reconciliation(asked: Any) -> None:
    """Take one contract all the way."""
    audited = StageApplication(task_id="audit", asked=asked, stages=("gather", "audit", "quality", "plan"))
    gated = quality(asked)
    planned = plan(asked)
    decision = PlanApproval(task_id="approve", plan=planned, defaults="Reject", response_timeout=ANSWER_WITHIN)
    applied = StageApplication(
        task_id="apply", asked=asked, stages=("apply", "verify"), plan=planned, decision=decision.output
    )
    checked = verify(asked)
    # Nothing of what stands before it is changed by a report that succeeds after a failure.
    told = Report(task_id="report", asked=asked, outlets=[REPORT]).as_teardown()
    audited >> gated >> planned >> decision >> applied >> checked >> told


@task
def quality(asked: dict[str, Any]) -> None:
    """Stop a run that is incomplete, or whose data fail an expectation that is critical."""
    from reconcile.airflow.stages import failed_gate

    if failed := failed_gate(Asked.of(asked)):
        raise AirflowFailException("\n".join(failed))


@task
def plan(asked: dict[str, Any]) -> dict[str, Any]:
    """Give what the plan comes to."""
    from reconcile.airflow.stages import reviewed

    return reviewed(Asked.of(asked))


@task
def verify(asked: dict[str, Any]) -> dict[str, Any]:
    """Fail where corrections were emitted and a copy does not agree."""
    from reconcile.airflow.alerts import unrepaired
    from reconcile.airflow.stages import verified
    from reconcile.errors import RefusedError

    try:
        found = verified(Asked.of(asked))
    except RefusedError as error:
        raise AirflowSkipException(f"nothing was applied: {error}") from None
    if failed := unrepaired(found):
        raise AirflowFailException("\n".join(failed))
    return {each.link: each.outcomes for each in found.links}
