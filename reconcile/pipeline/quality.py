"""The stage `quality`: the committed suites, and a team's own, on what a run has read and found."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reconcile.config.yamlfile import quoted
from reconcile.contract.model import Consumer
from reconcile.errors import InvalidFileError, Problem, RefusedError
from reconcile.files import committed
from reconcile.pipeline import distributions, record
from reconcile.pipeline import gather as gathering
from reconcile.pipeline.handoffs import Fence, Gathered, LinkSummary, Quality, Summary, copy_rows, source_rows
from reconcile.pipeline.job import Job
from reconcile.pipeline.logs import about
from reconcile.quality import frames as quality_frames
from reconcile.quality.suites import Checked, check, load_suite, quality_context

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuite
    from great_expectations.data_context import EphemeralDataContext
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)

COMMITTED = ("source", "copy", "findings")
LOG = "log"
FRAMES = ("copy", "source", "rates", LOG)
"""What a suite of a consumer may be about."""


def quality(job: Job) -> Quality:
    """Check what a run has read and found, unless that was done by the same suites."""
    inputs, suites = job.inputs([Gathered.ARTIFACT, Summary.ARTIFACT]), _digests(job)
    inputs = inputs.model_copy(update={"settings": {**inputs.settings, "suites": suites}})
    published = job.run.find(Quality.ARTIFACT)
    by_others = published is not None and published.inputs.settings.get("suites") != suites
    if by_others or not job.run.done(Quality.ARTIFACT, inputs):
        with quality_context() as context:
            checked = _all(job, context)
            checked += _distributions(job)
        job.run.discard("quality")  # only now: what stopped a repair stops it until something else is known
        job.run.publish(Quality(success=not any(each.stops for each in checked), results=tuple(checked)), inputs)
    return job.run.read(Quality)


def require_suites(job: Job) -> None:
    """Read the suites that the contract names; raise InvalidFileError for one that is none."""
    with quality_context():
        for consumer in job.consumers:
            _own(job, consumer)


def _all(job: Job, context: EphemeralDataContext) -> list[Checked]:
    summary, gathered = job.run.read(Summary), job.run.read(Gathered)
    links = {each.consumer: each for each in summary.links}
    records = quality_frames.log(gathering.kept_history(job), job.run.read(Fence).closed_at)
    log, frame = load_suite(committed("expectations", f"{LOG}.json"))
    assert frame == LOG
    checked = check(context, log, records, {}, None)
    read = [each for each in job.consumers if each.name in links]
    for number, consumer in enumerate(read, 1):
        link = links[consumer.name]
        with about(link=link.link, part=f"{number} of {len(read)}"):
            _LOG.info(f"{link.link}: checking expectations")
            kinds = [each.kind for each in gathered.link(consumer.name).form]
            frames = {LOG: records, **_frames(job, consumer, link, kinds, complete=summary.complete)}
            checked += _of_link(job, context, consumer, link, frames)
    return checked


def _distributions(job: Job) -> list[Checked]:
    """Hold the distributions of the run's values against those of the runs before."""
    if not any(each.distributions for each in job.consumers):
        return []
    with record.control_of(job) as control:
        if control is None:
            return []
        return [
            each
            for consumer in job.consumers
            for each in distributions.checked(control, job.contract, consumer, job.run.id)
        ]


def _frames(
    job: Job, consumer: Consumer, link: LinkSummary, kinds: Sequence[str], *, complete: bool
) -> dict[str, DataFrame]:
    """Build the frames of one link by their names."""
    names = {"source": source_rows(consumer.name), "copy": copy_rows(consumer.name)}
    if any(job.run.find(each) is None for each in names.values()):
        raise RefusedError(
            f"the rows that {job.run.id} compared were dropped with its report: start a new run with --quality, or set"
            " `keep: snapshots`"
        )
    found = {
        side: quality_frames.rows(job.run.parquet(name, job.spark), consumer, kinds) for side, name in names.items()
    }
    figures = (link.link, link.compared, link.drifted, link.by_cause)
    return {**found, "rates": quality_frames.rates(job.spark, *figures, settled=link.settled, complete=complete)}


def _of_link(
    job: Job,
    context: EphemeralDataContext,
    consumer: Consumer,
    summary: LinkSummary,
    frames: Mapping[str, DataFrame],
) -> list[Checked]:
    compared = max(summary.compared, 1)
    tolerated = max(consumer.tolerance.ratio, consumer.tolerance.rows / compared)
    known = {
        "tolerated": tolerated,
        # Of some ids that were asked for any share may be wrong.
        "frequent": max(tolerated, consumer.repair.max_ratio) if job.scope.whole else 1.0,
        "columns": quality_frames.columns(consumer),
    }
    shown = [field.name for field in consumer.fields if not field.sensitive]
    versions = {"source": job.contract.source.version_column, "copy": consumer.version}
    suites = [load_suite(committed("expectations", f"{name}.json")) for name in COMMITTED]
    checked = []
    for suite, frame in [*suites, *_own(job, consumer)]:
        parameters = {**known, "versioned": 1.0 if versions.get(frame) else 0.0}
        may_show = shown if frame in ("copy", "source") else ()
        checked += check(context, suite, frames[frame], parameters, summary.link, may_show)
    return checked


def _digests(job: Job) -> dict[str, str]:
    """Compute the digest of each suite's file."""
    files = {name: committed("expectations", f"{name}.json") for name in (*COMMITTED, LOG)}
    files |= {f"{each.name}: {name}": job.file.parent / name for each in job.consumers for name in each.quality}
    return {name: hashlib.sha256(_bytes(file)).hexdigest() for name, file in files.items()}


def _bytes(file: Path) -> bytes:
    """Read what a suite's file holds; for one that cannot be read nothing, as reading the suite will say why."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _own(job: Job, consumer: Consumer) -> list[tuple[ExpectationSuite, str]]:
    """Read a consumer's suites, each with the frame that it is about."""
    found = []
    for name in consumer.quality:
        file = job.file.parent / name
        suite, about = load_suite(file)
        if suite.name in (*COMMITTED, LOG, distributions.SUITE):
            raise InvalidFileError(
                file, [Problem("name", f"{quoted(suite.name)} is the name of a suite that is run anyway")]
            )
        if about not in FRAMES:
            raise InvalidFileError(file, [Problem("meta.frame", f"{quoted(about)} is none of {', '.join(FRAMES)}")])
        found.append((suite, about))
    return found
