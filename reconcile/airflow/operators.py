"""The tasks that are more than a function: stages on Spark, the question to a person, the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
)

from reconcile.airflow import spark_provider, submission
from reconcile.airflow.installation import POOL, installation
from reconcile.airflow.link import ReportLink
from reconcile.airflow.notifier import AlertNotifier
from reconcile.airflow.review import APPROVE, keep_approval, not_applied, write_report
from reconcile.airflow.scheduled_run import ScheduledRun, other_holder
from reconcile.errors import RefusedError

REFUSED = 2
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

    def __init__(self, *, scheduled_run: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scheduled_run: Mapping[str, Any] = scheduled_run

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the report and return its figures; skip a run that was not audited."""
        try:
            figures = write_report(ScheduledRun.of(self.scheduled_run))
        except RefusedError as error:
            raise AirflowSkipException(f"there is nothing to report: {error}") from None
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = figures
        if figures["alerts"]:
            AlertNotifier(figures["alerts"])(context)
        return figures
