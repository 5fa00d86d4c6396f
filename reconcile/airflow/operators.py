"""The tasks that are more than a function: stages on Spark, the question to a person, the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from reconcile.airflow import submission
from reconcile.airflow.asked import Asked
from reconcile.airflow.installation import POOL, installation
from reconcile.airflow.link import ReportLink
from reconcile.airflow.review import APPROVE, not_applied
from reconcile.airflow.stages import reported

if TYPE_CHECKING:
    from airflow.sdk import Context

REFUSED = 2


class StageApplication(SparkSubmitOperator):
    """Runs stages of a run as one Spark application, wherever the connection says.

    `apply` among the stages is refused here too unless the plan needs no approval, or a person has given it.
    """

    template_fields = ("asked", "plan", "decision", *SparkSubmitOperator.template_fields)
    operator_extra_links = (ReportLink(),)

    def __init__(
        self,
        *,
        asked: Any,
        stages: Sequence[str],
        plan: Any = None,
        decision: Any = None,
        **kwargs: Any,
    ) -> None:
        # An attempt that was cut off is not looked for by its id at the cluster: the lease waits for it.
        super().__init__(application=submission.APPLICATION, **{"pool": POOL, "durable": False, **kwargs})
        self.asked, self.stages, self.plan, self.decision = asked, tuple(stages), plan, decision

    def execute(self, context: Context) -> None:
        """Submit the application and wait for it."""
        asked = Asked.of(self.asked)
        if "apply" in self.stages and (reason := not_applied(self.plan, self.decision)):
            raise AirflowSkipException(reason)
        place = installation()
        settings = place.settings()
        connection = self._get_hook()._connection
        approved = "apply" in self.stages and self.plan["needs_approval"]
        self.name = f"reconcile {asked.run_id}"
        self.conf = submission.configuration(settings, connection["master"], self.name, connection["deploy_mode"])
        self.jars = submission.jars(settings)
        try:
            with submission.surroundings(settings), submission.ids_file(asked.ids) as ids:
                self.application_args = submission.arguments(asked, self.stages, place, ids, approved=approved)
                if ids is not None and connection["deploy_mode"] == submission.CLUSTER:
                    self.files = submission.files(settings, ids)
                super().execute(context)
        except AirflowException as error:
            submitted = getattr(self._hook, "_submit_sp", None)
            if submitted is not None and submitted.returncode == REFUSED:
                raise AirflowFailException(f"{asked.run_id}: refused; its log says why") from error
            raise


class PlanApproval(ApprovalOperator):
    """Asks a person about a plan; where there is nothing to ask it answers at once."""

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


class Report(BaseOperator):
    """Writes the report of a run, gives its figures to the asset, and alerts people."""

    template_fields = ("asked",)
    operator_extra_links = (ReportLink(),)

    def __init__(self, *, asked: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.asked: Mapping[str, Any] = asked

    def execute(self, context: Context) -> dict[str, Any]:
        """Give the figures; skip where the run did not come so far."""
        from reconcile.airflow.notifier import AlertNotifier
        from reconcile.errors import RefusedError

        try:
            figures = reported(Asked.of(self.asked))
        except RefusedError as error:
            raise AirflowSkipException(f"there is nothing to report: {error}") from None
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = figures
        if figures["alerts"]:
            AlertNotifier(figures["alerts"])(context)
        return figures
