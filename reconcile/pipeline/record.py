"""What a run leaves in the control store: that it was, what it found, and what of that had been found before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reconcile.control.findings import Sighting
from reconcile.control.runs import LinkFigures, link_figures
from reconcile.control.store import ControlStore, open_control
from reconcile.domain.correction import content_digest
from reconcile.domain.finding import Status
from reconcile.errors import RefusedError
from reconcile.pipeline import tables
from reconcile.pipeline.handoffs import Summary
from reconcile.pipeline.job import Job
from reconcile.settings.settings import Settings
from reconcile.workspace.manifest import Stage
from reconcile.workspace.workspace import needs_spark


@contextmanager
def control_of(settings: Settings) -> Iterator[ControlStore | None]:
    """Open the control store; None where none is set and the workspace cannot hold one."""
    if settings.control_store is None and needs_spark(settings.workspace):
        yield None
        return
    with open_control(settings) as control:
        yield control


def require_own(job: Job) -> None:
    """Raise RefusedError if a run is new in its workspace, and the control store has corrections of another so named.

    Those would be taken for this run's own, and nothing would be emitted.
    """
    if job.run.manifests():
        return
    with control_of(job.settings) as control:
        links = [job.contract.link(each) for each in job.contract.consumers]
        if control is not None and any(control.corrections(link, job.run.id) for link in links):
            raise RefusedError(
                f"the control store has corrections of another run {job.run.id}, whose files are not in"
                f" {job.run.folder}: start a run with another id"
            )


def begin(job: Job, stage: Stage) -> None:
    """Write down that a run has come to a stage."""
    with control_of(job.settings) as control:
        if control is not None:
            control.begin_run(job.run.id, job.contract.aggregate, job.contract.digest)
            control.reach_stage(job.run.id, stage)


def corrections(job: Job) -> frozenset[tuple[str, int, int]]:
    """Query where corrections of earlier runs stand in the contract's topic: id, partition, offset."""
    ways = (each for each in job.contract.consumers if each.repair.route == "main")
    with control_of(job.settings) as control:
        return frozenset() if control is None else control.emitted([job.contract.link(each) for each in ways])


def audited(job: Job, summary: Summary) -> Summary:
    """Write down what a run found; return its figures with what is new on each link, came back, and is gone."""
    with control_of(job.settings) as control:
        if control is None:
            return summary
        control.begin_run(job.run.id, job.contract.aggregate, job.contract.digest)
        links = []
        for each in summary.links:
            found = _sightings(job, each.link)
            drift = control.record_findings(job.run.id, each.link, found, complete=True, scope=job.scope.ids)
            links.append(each.model_copy(update={"over_time": drift}))
        figures = _figures(job, summary)
        control.end_run(job.run.id, "audit", complete=summary.complete, exit_code=summary.exit_code, links=figures)
    return summary.model_copy(update={"links": tuple(links)})


def verified(job: Job, summary: Summary, exit_code: int) -> None:
    """Write down how a run ended that was repaired."""
    with control_of(job.settings) as control:
        if control is not None:
            figures = _figures(job, summary)
            control.begin_run(job.run.id, job.contract.aggregate, job.contract.digest)
            control.end_run(job.run.id, "verify", complete=summary.complete, exit_code=exit_code, links=figures)


def _figures(job: Job, summary: Summary) -> list[LinkFigures]:
    return [link_figures({**dict(each), "asked": job.scope.count}) for each in summary.links]


def _sightings(job: Job, link: str) -> Iterator[Sighting]:
    for each in tables.findings(job.run, links=[link], spark=job.spark):
        if each["aggregate_id"] is not None and each["status"] != Status.IN_FLIGHT:
            fields = sorted(field["name"] for field in each["fields"])
            yield Sighting(each["aggregate_id"], each["difference"], each["cause"], content_digest(fields))
