"""The tasks that are more than a function: stages on Spark, the question to a person, the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseNotifier, BaseOperator, Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
)

from reconcile.airflow import spark_provider, submission
from reconcile.airflow.installation import POOL, installation
from reconcile.airflow.link import ReportLink
from reconcile.airflow.notifier import tell
from reconcile.airflow.review import (
    APPROVE,
    keep_approval,
    not_applied,
    read_failed_gate,
    read_review,
    read_unrepaired,
    write_report,
)
from reconcile.airflow.scheduled_run import ScheduledRun, other_holder, requester_of, run_id_of
from reconcile.contract.model import load_contract
from reconcile.errors import ReconcileError, RefusedError

REFUSED = 2
AUDITING, REPAIRING = ("gather", "audit", "quality", "plan"), ("apply", "verify")
"""The stages of the two Spark applications of a contract."""
_LOOK_AGAIN = timedelta(minutes=1)


class StageApplication(SparkSubmitOperator):
    """Runs stages of a run as one Spark application, wherever the connection says.

    While another run has the contract's lease it waits without a slot of the pool, which is for others then.
    Skips `apply` unless the plan needs no approval, or a person has approved it.
    """

    template_fields = ("scheduled_run", "plan", "decision", *SparkSubmitOperator.template_fields)
    operator_extra_links = (ReportLink(),)
    reschedule = True

    def __init__(
        self, *, scheduled_run: Any, stages: Sequence[str], plan: Any = None, decision: Any = None, **kwargs: Any
    ) -> None:
        # An attempt that was cut off is not looked for by its id at the cluster: the lease waits for it.
        super().__init__(application=submission.APPLICATION, **{"pool": POOL, "durable": False, **kwargs})
        self.scheduled_run, self.stages, self.plan, self.decision = scheduled_run, tuple(stages), plan, decision

    def execute(self, context: Context) -> None:
        """Submit the application and wait for it."""
        scheduled_run = ScheduledRun.of(self.scheduled_run)
        if "apply" in self.stages and (reason := not_applied(self.plan, self.decision)):
            raise AirflowSkipException(reason)
        place = installation()
        settings = place.settings()
        if (holder := other_holder(scheduled_run, settings)) is not None:
            self.log.info("%s has the lease of the contract: its slot is given back until it is free", holder)
            raise AirflowRescheduleException(datetime.now(UTC) + _LOOK_AGAIN)  # type: ignore[no-untyped-call]
        connection = spark_provider.resolved_connection(self)
        self.name = f"reconcile {scheduled_run.run_id}"
        self.conf = submission.configuration(settings, connection["master"], self.name, connection["deploy_mode"])
        self.jars = submission.jars(settings)
        try:
            with submission.surroundings(settings), submission.ids_file(scheduled_run.ids) as ids:
                self.application_args = submission.arguments(scheduled_run, self.stages, place, ids)
                if ids is not None and connection["deploy_mode"] == submission.CLUSTER:
                    self.files = submission.files(settings, ids)
                super().execute(context)
        except AirflowException as error:
            if spark_provider.exit_code(self) == REFUSED:
                raise AirflowFailException(f"{scheduled_run.run_id}: refused; its log says why") from error
            raise


class ReconcileOperator(StageApplication):
    """Reconciles one contract in one task, in any team's DAG, and returns the figures of its report.

    `contract` is a file, or the name of one in the installation's folder. With `apply` corrections are emitted and
    verified; a contract that wants a person's approval is refused then, as one task cannot ask: use the task group
    `reconcile.airflow.group.reconciliation`. With `fail_on_drift` the task fails where drift beyond tolerance is left,
    so that what comes behind it does not build on it.

    `notifiers` are told of each incident once: all that is wrong with the run, as `incident` in their templates.
    """

    template_fields = ("contract", "consumers", "ids", "mode", "apply", *StageApplication.template_fields)

    def __init__(
        self,
        *,
        contract: str,
        consumers: Sequence[str] = (),
        ids: Sequence[str] = (),
        mode: str = "auto",
        apply: bool = False,
        incremental: bool = False,
        max_corrections: int | None = None,
        max_ratio: float | None = None,
        fail_on_drift: bool = False,
        notifiers: Sequence[BaseNotifier] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(scheduled_run=None, stages=AUDITING, **kwargs)
        self.contract, self.consumers, self.ids, self.mode = contract, consumers, ids, mode
        self.apply, self.incremental, self.fail_on_drift = apply, incremental, fail_on_drift
        self.max_corrections, self.max_ratio, self.notifiers = max_corrections, max_ratio, notifiers

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Audit, repair where that is asked for, and report in any case; fail where the data cannot be trusted."""
        scheduled_run = self._scheduled(context)
        self.scheduled_run = scheduled_run.data()
        try:
            self._perform(AUDITING, context)
            failed = read_failed_gate(scheduled_run)
            if self.apply and not failed:
                failed = self._repair(scheduled_run, context)
        finally:
            figures = self._report(scheduled_run, context)
        if figures is None:
            raise AirflowFailException(f"{scheduled_run.run_id}: nothing was audited; its log says why")
        if self.fail_on_drift:
            failed += [each["message"] for each in figures["alerts"] if each["kind"] == "drift"]
        if failed:
            raise AirflowFailException("\n".join(failed))
        return figures

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002
        """Build what the run says of its tables, for OpenLineage; None where its provider is not installed."""
        from reconcile.airflow.lineage import lineage_of

        return lineage_of(ScheduledRun.of(self.scheduled_run))

    def _scheduled(self, context: Context) -> ScheduledRun:
        place, run, task = installation(), context["dag_run"], context["ti"]
        try:
            named = self.contract.endswith((".yaml", ".yml"))
            file = Path(self.contract) if named else place.contract_file(self.contract)
            contract = load_contract(file)
        except ReconcileError as error:
            raise AirflowFailException(str(error)) from None
        waiting = [each.name for each in contract.consumers if each.repair.approval != "none"]
        if self.apply and waiting:
            raise AirflowFailException(
                f"{file}: a person approves corrections of {', '.join(waiting)}, and one task cannot ask: use the task"
                " group reconcile.airflow.group.reconciliation, or say `approval: none`"
            )
        return ScheduledRun(
            str(file),
            run_id_of(file, run.dag_id, run.run_id, run.run_after, f"{task.task_id}[{task.map_index}]"),
            consumers=tuple(self.consumers),
            ids=tuple(self.ids),
            incremental=self.incremental,
            mode=self.mode,  # type: ignore[arg-type]
            apply=bool(self.apply),
            max_corrections=self.max_corrections,
            max_ratio=self.max_ratio,
            requester=requester_of(run),
        )

    def _perform(self, stages: Sequence[str], context: Context) -> None:
        self.stages = tuple(stages)
        super().execute(context)

    def _repair(self, scheduled_run: ScheduledRun, context: Context) -> list[str]:
        """Apply the plan and verify it, unless there is a reason not to; return what failed."""
        self.plan = read_review(scheduled_run)
        if self.plan["skipped"] is not None:
            self.log.info("nothing is applied: %s", self.plan["skipped"])
            return []
        self._perform(REPAIRING, context)
        return read_unrepaired(scheduled_run)

    def _report(self, scheduled_run: ScheduledRun, context: Context) -> dict[str, Any] | None:
        try:
            figures = write_report(scheduled_run)
        except RefusedError as error:
            self.log.warning("there is nothing to report: %s", error)
            return None
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = figures
        tell(figures, self.notifiers, context)
        return figures


class PlanApproval(ApprovalOperator):
    """Asks a person to approve a plan, and keeps who did; a plan that needs no approval is answered at once."""

    template_fields = ("plan", *ApprovalOperator.template_fields)

    def __init__(self, *, plan: Any, **kwargs: Any) -> None:
        super().__init__(subject="Corrections", **kwargs)
        self.plan = plan

    def execute(self, context: Context) -> Any:
        """Ask, and wait for the answer without keeping a worker."""
        if not self.plan["needs_approval"]:
            return {"chosen_options": [APPROVE], "responded_by_user": None}
        self.subject, self.body = self.plan["subject"], self.plan["body"]
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Keep the answer if it is a yes; fail where the plan may not be approved by who gave it."""
        answer = super().execute_complete(context, event)
        if list(answer["chosen_options"]) == [APPROVE]:
            try:
                keep_approval(self.plan, answer["responded_by_user"])
            except RefusedError as error:
                raise AirflowFailException(f"{error}; clear this task to ask again") from None
        return answer


class RunReport(BaseOperator):
    """Writes the report of a run, updates the asset with its figures, and sends its alerts."""

    template_fields = ("scheduled_run",)
    operator_extra_links = (ReportLink(),)

    def __init__(self, *, scheduled_run: Any, notifiers: Sequence[BaseNotifier] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scheduled_run: Mapping[str, Any] = scheduled_run
        self.notifiers = notifiers

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002
        """Build what the run says of its tables, for OpenLineage; None where its provider is not installed."""
        from reconcile.airflow.lineage import lineage_of

        return lineage_of(ScheduledRun.of(self.scheduled_run))

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the report and return its figures; skip a run that was not audited."""
        try:
            figures = write_report(ScheduledRun.of(self.scheduled_run))
        except RefusedError as error:
            raise AirflowSkipException(f"there is nothing to report: {error}") from None
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = figures
        tell(figures, self.notifiers, context)
        return figures
