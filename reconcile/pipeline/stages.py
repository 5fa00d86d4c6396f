"""The stages, as the command line, the DAGs and the tests call them; each reads and leaves files in a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconcile.pipeline.job import Job
from reconcile.workspace.run import Run

if TYPE_CHECKING:
    from reconcile.contract.model import Contract
    from reconcile.domain.plan import Plan
    from reconcile.report.model import Report
    from reconcile.settings.settings import Settings
    from reconcile.workspace.workspace import Workspace

STAGES = ("gather", "audit", "quality", "plan", "apply", "verify", "report")
REQUEST = "request"
SUMMARY = "summary"


def gather(job: Job) -> None:
    """Read the world of a contract into the run."""
    from reconcile.pipeline import gather as stage
    from reconcile.pipeline import record as registry

    registry.require_own(job)
    registry.begin(job, "gather")
    _remember(job)
    stage.gather(job)


def audit(job: Job) -> dict[str, Any]:
    """Turn what was gathered into findings; give the run's summary, with what was known of them before."""
    from reconcile.pipeline import audit as stage
    from reconcile.pipeline import record as registry
    from reconcile.repair import planning

    terms = {each.name: planning.terms(job.contract, each) for each in job.links}
    stage.audit(job, terms, registry.corrections(job))
    told = summary(job.run)
    over_time = registry.audited(job, told)
    return {**told, "links": [{**each, "over_time": over_time.get(each["link"])} for each in told["links"]]}


def quality(job: Job) -> dict[str, Any]:
    """Hold what was read and found against the expectation suites; give how each expectation went."""
    from reconcile.pipeline import quality as quality_stage

    return quality_stage.quality(job)


def plan(job: Job) -> Plan:
    """Say what is to be done about each finding, and what cannot be; give the plan."""
    from reconcile.pipeline import plan as stage_plan
    from reconcile.pipeline import record as registry

    made = stage_plan.plan(job)
    registry.begin(job, "plan")
    return made


def apply(job: Job, *, approved: bool) -> dict[str, Any]:
    """Emit what was planned; give what was emitted and what was dropped."""
    from reconcile.pipeline import apply as stage_apply
    from reconcile.pipeline import record as registry

    applied = stage_apply.apply(job, approved=approved)
    registry.begin(job, "apply")
    return applied


def verify(job: Job) -> dict[str, Any]:
    """Wait for the groups and look at what was corrected; give what became of it, and the exit code."""
    from reconcile.pipeline import record as registry
    from reconcile.pipeline import verify as stage_verify

    verified = stage_verify.verify(job)
    registry.verified(job, summary(job.run), verified["exit_code"])
    return verified


def report(run: Run, place: Workspace, settings: Settings, contract: Contract | None) -> Report:
    """Write what a run found for people and machines, beside its artifacts; give the result model.

    It needs no Spark where the workspace does not. `contract` is None where it cannot be read any more.
    """
    from reconcile.pipeline import report as stage

    return stage.publish(run, place, settings, contract)


def summary(run: Run) -> dict[str, Any]:
    """Give what the audit of a run found, in figures; raise MissingArtifactError if it was not audited."""
    found: dict[str, Any] = run.json(SUMMARY)
    return found


def requested(run: Run) -> dict[str, Any]:
    """Give what a run was asked for: contract, consumers, ids, mode."""
    found: dict[str, Any] = run.json(REQUEST)
    return found


def _remember(job: Job) -> None:
    inputs = job.inputs()
    if job.run.done(REQUEST, inputs):
        return
    asked = {
        "contract": str(job.file.absolute()),
        "aggregate": job.contract.aggregate,
        "consumers": list(job.consumers),
        "ids": None if job.ids is None else list(job.ids),
        "mode": job.mode,
    }
    job.run.publish_json(REQUEST, asked, inputs, stage="request")
