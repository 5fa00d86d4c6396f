"""The stages and their order, as the command line, the DAGs and the tests call them.

Each reads and leaves hand-offs in a run, and is written down in the run's record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

from reconcile.contract.model import Contract
from reconcile.domain.plan import Plan
from reconcile.errors import ReconcileError, UnreachableError
from reconcile.pipeline.handoffs import Applied, Gathered, Quality, Request, Summary, Verified
from reconcile.pipeline.job import Job
from reconcile.pipeline.logs import at_stage, timed
from reconcile.pipeline.stopping import recorded, stop_noted
from reconcile.settings.settings import Settings
from reconcile.workspace.full_disk import full_disk_named
from reconcile.workspace.manifest import Stage
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace

if TYPE_CHECKING:
    from reconcile.report.model import Report

_LOG = logging.getLogger(__name__)
_More = ParamSpec("_More")
_Left = TypeVar("_Left")


class IncompleteError(UnreachableError):
    """Raised when a store or a cluster did not answer when a link was read: gather again later."""


class UnverifiedError(UnreachableError):
    """Raised when a copy does not show its corrections yet: verify again later."""


def _staged(stage: Callable[Concatenate[Job, _More], _Left]) -> Callable[Concatenate[Job, _More], _Left]:
    """Say in each line of the log which run and which stage it is about, and how long the stage took."""
    name = cast(Stage, stage.__name__)

    @wraps(stage)
    def staged(job: Job, /, *args: _More.args, **more: _More.kwargs) -> _Left:
        with (
            at_stage(name, run_id=job.run.id, contract=job.contract.aggregate),
            timed(_LOG, name),
            stop_noted(job, name),
            full_disk_named(name),
        ):
            return stage(job, *args, **more)

    return staged


@_staged
def gather(job: Job) -> Gathered:
    """Read the world of a contract into the run."""
    from reconcile.pipeline import gather as stage
    from reconcile.pipeline import record

    record.require_own(job)
    record.reach(job, "gather")
    _publish_request(job)
    stage.gather(job)
    return job.run.read(Gathered)


@_staged
def audit(job: Job, *, require_known: bool = False) -> Summary:
    """Turn what was gathered into findings; return their figures, with what was known of them before.

    With `require_known` ids that nobody has are refused: a person has misspelt them. What a program asks for is done.
    """
    from reconcile.pipeline import audit as stage
    from reconcile.pipeline import findings_table, record
    from reconcile.repair import planning

    terms = {each.name: planning.terms(job.contract, each) for each in job.consumers}
    stage.audit(job, terms, record.places(job), require_known=require_known)
    summary = record.audited(job, job.run.read(Summary))
    try:
        findings_table.append(job)
    except ReconcileError as error:
        summary = record.not_recorded(summary, error, "the table of findings")
    return recorded(job, "audit", summary)


@_staged
def quality(job: Job) -> Quality:
    """Check what was read and found against the expectation suites."""
    from reconcile.pipeline import quality as stage

    return stage.quality(job)


@_staged
def plan(job: Job) -> Plan:
    """Decide what is to be done about each finding, and what cannot be done."""
    from reconcile.pipeline import plan as stage

    return stage.plan(job)


@_staged
def apply(job: Job) -> Applied:
    """Emit what was planned and approved."""
    from reconcile.pipeline import apply as stage

    return stage.apply(job)


@_staged
def verify(job: Job) -> Verified:
    """Wait for the groups, and read what became of the corrections."""
    from reconcile.pipeline import record
    from reconcile.pipeline import verify as stage

    return recorded(job, "verify", record.verified(job, stage.verify(job)))


def report(run: Run, place: Workspace, settings: Settings, contract: Contract | None) -> Report:
    """Write what a run found for people and machines, beside its artifacts; return the result model.

    It needs no Spark where the workspace does not. `contract` is None where it cannot be read any more.
    """
    from reconcile.pipeline import report as stage

    with full_disk_named("report"):
        return stage.publish(run, place, settings, contract)


def perform(job: Job, names: Iterable[str]) -> None:
    """Run stages one after the other, as a task of a DAG does, until one says that no other may follow.

    Raises IncompleteError after an audit, and UnverifiedError after a verification, where the same may succeed later.
    """
    from reconcile.pipeline.record import require_recorded

    steps: dict[str, Callable[[Job], object]] = {"gather": gather, "plan": plan, "apply": apply}
    wanted = list(names)
    for name in wanted:
        if job.contract_lease is not None:
            job.contract_lease.require()
        _LOG.info(f"{job.run.id}: {name}")
        if name == "quality":
            from reconcile.quality.gate import unmet

            if failed := unmet(quality(job).results):
                _LOG.info(f"nothing is planned, for an expectation failed: {'; '.join(failed)}")
                break
        elif name == "verify":
            verified = verify(job)
            require_recorded(verified)
            if waiting := verified.unverified:
                raise UnverifiedError(f"{waiting:,} corrections are not verified yet: see that the groups consume")
        elif name == "audit":
            require_recorded(audit(job))
        else:
            steps[name](job)
    if "audit" in wanted:
        require_read(job.run)


def require_read(run: Run) -> None:
    """Raise IncompleteError where what could not be read may be read later; the other links are audited by then."""
    if lost := [each for each in run.read(Summary).unread if each.may_pass]:
        raise IncompleteError("; ".join(f"{each.link} could not be read: {each.message}" for each in lost))


def _publish_request(job: Job) -> None:
    inputs = job.inputs()
    if not job.run.done(Request.ARTIFACT, inputs):
        job.run.publish(
            Request(
                contract=str(job.file.absolute()),
                aggregate=job.contract.aggregate,
                consumers=job.consumer_names,
                ids=job.scope.ids,
                since=job.scope.since,
                mode=job.mode,
            ),
            inputs,
        )
