"""A run's record in the control store: its stages, what it found, and what of that had been found before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, get_args

from reconcile.control.findings import Sighting
from reconcile.control.run_record import LinkFigures, RunRecord, link_figures
from reconcile.control.store import ControlStore, open_control
from reconcile.domain.correction import content_digest
from reconcile.domain.finding import Status
from reconcile.errors import ReconcileError, RefusedError, UnreachableError
from reconcile.pipeline import tables
from reconcile.pipeline.handoffs import Gathered, NotRecorded, Summary, Verified
from reconcile.pipeline.job import Job
from reconcile.workspace.manifest import Stage

AnyResult = TypeVar("AnyResult", Summary, Verified)

_STAGES: tuple[Stage, ...] = get_args(Stage)


def require_own(job: Job) -> None:
    """Raise RefusedError if a run is new in its workspace, and the control store has corrections of another so named.

    Those would be taken for this run's own, and nothing would be emitted.
    """
    if job.run.manifests():
        return
    with control_of(job) as control:
        links = [job.contract.link(each) for each in job.contract.consumers]
        if control is not None and any(control.corrections.of_run(link, job.run.id) for link in links):
            raise RefusedError(
                f"the control store has corrections of another run {job.run.id}, whose files are not in"
                f" {job.run.folder}: start a run with another id"
            )


def reach(job: Job, stage: Stage) -> None:
    """Record that a run has come to a stage."""
    with control_of(job) as control:
        if control is not None:
            write_stage(control, job, stage)


def places(job: Job) -> frozenset[tuple[str, int, int]]:
    """Query where corrections of earlier runs stand in the contract's topic: id, partition, offset."""
    links = [job.contract.link(each) for each in job.contract.consumers if each.repair.route == "main"]
    with control_of(job) as control:
        return frozenset() if control is None else control.corrections.places(links)


def open_findings(job: Job, links: Sequence[str]) -> list[str]:
    """Query the ids of the findings that are open on some links; nothing where there is no control store."""
    with control_of(job) as control:
        return [] if control is None else control.findings.open_ids(links)


def audited(job: Job, summary: Summary) -> Summary:
    """Record what a run found; return its figures with what is new on each link, came back, and is gone.

    What is on record already stays as it is: later runs may have found other things since. Where the control store does
    not take it, `not_recorded` says so: the audit's result holds all the same.
    """
    links, gathered = [], job.run.read(Gathered)
    try:
        with control_of(job) as control:
            if control is None:
                return summary
            write_stage(control, job, "audit")
            before = control.runs.find(job.run.id)
            if before.complete and before.ended_at is not None:
                drift_then = control.runs.drift(job.run.id)
                links = [each.model_copy(update={"over_time": drift_then.get(each.link)}) for each in summary.links]
                return summary.model_copy(update={"links": tuple(links)})
            past = {job.contract.link(each) for each in job.consumers if job.contract.past_snapshots(each)}
            for each in summary.links:
                if each.link in past:  # what a past snapshot shows says nothing of what is open now
                    links.append(each)
                    continue
                found = _sightings(job, each.link)
                scope = job.scope.listed(job.spark_session)
                drift = control.findings.record(job.run.id, each.link, found, complete=True, scope=scope)
                if (sides := gathered.link(each.consumer).distributions) is not None:
                    control.distributions.record(job.run.id, each.link, sides)
                links.append(each.model_copy(update={"over_time": drift}))
            _end(control, job, summary, summary.exit_code)
    except ReconcileError as error:
        return not_recorded(summary, error)
    return summary.model_copy(update={"links": tuple(links)})


def verified(job: Job, result: Verified) -> Verified:
    """Record how a run ended that was repaired; `not_recorded` says where the control store does not take it."""
    try:
        with control_of(job) as control:
            if control is not None:
                write_stage(control, job, "verify")
                _end(control, job, job.run.read(Summary), result.exit_code)
    except ReconcileError as error:
        return not_recorded(result, error)
    return result


def require_recorded(result: Summary | Verified) -> None:
    """Raise UnreachableError where the same stage may record its result later, RefusedError where it cannot."""
    if (problem := result.not_recorded) is not None:
        raise (UnreachableError if problem.may_pass else RefusedError)(problem.message)


@contextmanager
def control_of(job: Job) -> Iterator[ControlStore | None]:
    """Open the control store; there is None where none is set and the workspace cannot hold one."""
    if job.settings.control_address() is None:
        yield None
        return
    with open_control(job.settings) as control:
        yield control


def begin(control: ControlStore, job: Job) -> RunRecord:
    """Write down in an open control store that a run begins, unless it has; return what is kept of it."""
    return control.runs.begin(job.run.id, job.contract.aggregate, job.contract.digest, job.requester)


def write_stage(control: ControlStore, job: Job, stage: Stage) -> None:
    """Write down in an open control store that a run has come to a stage."""
    begin(control, job)
    control.runs.reach(job.run.id, stage, _STAGES[: _STAGES.index(stage)])


def _end(control: ControlStore, job: Job, summary: Summary, exit_code: int) -> None:
    figures: list[LinkFigures] = [link_figures({**dict(each), "asked": job.scope.count}) for each in summary.links]
    control.runs.end(job.run.id, complete=summary.complete, exit_code=exit_code, links=figures)


def not_recorded(result: AnyResult, error: ReconcileError, where: str = "the control store") -> AnyResult:
    """Build a result that says which place did not take it, and whether it may later."""
    message = f"the result stands in the run, and {where} did not take it: {error}"
    problem = NotRecorded(message=message, may_pass=isinstance(error, UnreachableError))
    return result.model_copy(update={"not_recorded": problem})


def _sightings(job: Job, link: str) -> Iterator[Sighting]:
    for each in tables.findings(job.run, links=[link], spark=job.spark_session):
        if each.aggregate_id is not None and each.status != Status.IN_FLIGHT:
            fields = sorted(field.name for field in each.fields)
            yield Sighting(each.aggregate_id, each.difference.value, each.cause.value, content_digest(fields))
