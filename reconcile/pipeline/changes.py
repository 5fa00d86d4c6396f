"""Which aggregates may have changed since an earlier run, by all that leaves a trace; and what has escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING

from reconcile.audit.columns import ID
from reconcile.domain.finding import Difference, Status
from reconcile.gather.fence.fence import Fence
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.stores import row_columns
from reconcile.pipeline import record
from reconcile.pipeline.handoffs import (
    ACCOUNTED,
    CHANGED,
    CLOSELY,
    FINDINGS,
    OUTBOX,
    Gathered,
    Request,
    RunScope,
    Summary,
    parked_records,
)
from reconcile.pipeline.job import Job
from reconcile.pipeline.since import OVERLAP, FullInstead, PastRun, changed_only, choose_run
from reconcile.spark import local_frames
from reconcile.workspace.manifest import DamagedArtifactError
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Basis:
    """An earlier run, and what it left."""

    run: Run
    fence: Fence


@dataclass(frozen=True)
class Looking:
    """How a run looks at its aggregates, as far as that is known before the fence is open."""

    scope: RunScope
    basis: Basis | None = None
    """Since whose fence it looks for changes; None where it does not."""

    def full(self, reason: str) -> Looking:
        """Compare everything instead."""
        return Looking(self.scope.model_copy(update={"kind": "full", "since": None, "reason": reason}))


def looking(job: Job) -> Looking:
    """Decide how a run looks at its aggregates, by the runs before it in the workspace.

    Raises RefusedError where changes are to be told since a run that cannot be what was meant.
    """
    terms, names = job.contract.comparison_digest, [each.name for each in job.consumers]
    if job.scope.ids is not None:
        return Looking(RunScope(kind="ids", ids=job.scope.count, terms=terms))
    past = past_runs(job.workspace, job.contract.aggregate, job.run.id)
    earlier = changed_only(past, names)
    after = tuple(each.run_id for each in earlier)
    full = Looking(RunScope(kind="full", terms=terms, after=after))
    if earlier and earlier[-1].scope.terms == terms:
        left = [_basis(job.workspace, each) for each in earlier]
        full = replace(full, basis=None if None in left else left[-1])
    if job.scope.since is None:
        return full
    incremental = job.contract.incremental
    every = None if incremental is None else incremental.full_every
    chosen = choose_run(job.scope.since, past, terms, names, every)
    if any(job.contract.past_snapshots(each) for each in job.consumers):
        chosen = FullInstead("the contract compares a past snapshot, which does not change")
    if isinstance(chosen, FullInstead):
        return replace(full, scope=full.scope.model_copy(update={"reason": chosen.reason}))
    basis = _basis(job.workspace, chosen)
    if basis is None:
        return full.full(f"what {chosen.run_id} left is damaged")
    scope = RunScope(kind="changed", since=chosen.run_id, terms=terms, aggregates=chosen.scope.aggregates, after=after)
    return Looking(scope, basis)


def past_runs(place: Workspace, aggregate: str, but: str) -> list[PastRun]:
    """Read the runs of a contract in the workspace that were audited, but for one; damaged ones are left out."""
    found = []
    for run_id in place.runs():
        if run_id == but:
            continue
        run = place.run(run_id)
        try:
            summary = run.read_if_there(Summary)
            if summary is None or summary.contract != aggregate or summary.scope is None:
                continue
            request = run.read_if_there(Request)
        except DamagedArtifactError:
            continue
        if request is not None:
            opened_at, complete = summary.fence.opened_at, summary.complete
            found.append(PastRun(run_id, opened_at, complete, request.consumers, summary.scope))
    return found


def changed_ids(job: Job, basis: Basis, of_log: DataFrame, readers: Mapping[str, LinkReader]) -> DataFrame:
    """Build the ids that may have changed since the basis, each once, and which of them are looked at closely.

    `of_log` are those of the log's records since then. What is parked, or waits in the outbox, is in the run already.
    """
    from pyspark.sql import functions as f

    run, spark, since = job.run, job.spark, basis.fence.opened_at - OVERLAP
    found = [of_log]
    for name in readers:
        parked = run.parquet(parked_records(name), spark)
        found.append(parked.where(f.col("resolved").isNull() | (f.col("at") >= f.lit(since))).select(ID))
        if basis.run.find(parked_records(name)) is not None:
            before = basis.run.parquet(parked_records(name), spark)
            found.append(before.where("resolved is null").select(ID))
    if run.find(OUTBOX) is not None:
        found.append(run.parquet(OUTBOX, spark).select(ID))
    if (rows := next(iter(readers.values())).changed_since(_instant(basis.fence) - OVERLAP)) is not None:
        found.append(rows.select(f.col(row_columns.ID).alias(ID)))
    links = [job.contract.link(each) for each in job.consumers]
    findings = basis.run.parquet(FINDINGS, spark).where(f.col("link").isin(*links))
    still_open = local_frames.of_rows(spark, [(each,) for each in record.open_findings(job, links)], f"{ID} string")
    closely = [findings.select(f.col("aggregate_id").alias(ID)), still_open]
    marked = [_union(some).withColumn(CLOSELY, f.lit(mark)) for some, mark in ((found, False), (closely, True))]
    known = _union(marked).where(f.col(ID).isNotNull())
    return known.groupBy(ID).agg(f.max(CLOSELY).alias(CLOSELY))


def accounted(job: Job, after: Sequence[str], changed: DataFrame) -> DataFrame:
    """Build the ids that changed-only runs have looked at, or would look at now."""
    tables = [job.workspace.run(each).parquet(CHANGED, job.spark) for each in after]
    return _union(each.select(ID) for each in (changed, *tables)).distinct()


def with_scope(job: Job, figures: Summary, findings: DataFrame) -> Summary:
    """Build a run's figures with what it has looked at, and, of a full run, what escaped the changed-only ones."""
    scope = job.run.read(Gathered).scope
    if scope is None:
        return figures
    if scope.kind == "full":
        compared = max((each.compared for each in figures.links), default=0)
        scope = scope.model_copy(update={"aggregates": compared})
    links = figures.links
    if job.run.find(ACCOUNTED) is not None:
        escaped = _escaped(findings, job.run.parquet(ACCOUNTED, job.spark))
        links = tuple(each.model_copy(update={"escaped": escaped.get(each.link, 0)}) for each in links)
    return figures.model_copy(update={"scope": scope, "links": links})


def _escaped(findings: DataFrame, accounted: DataFrame) -> dict[str, int]:
    """Count by link the ids that differ and that no changed-only run could see."""
    from pyspark.sql import functions as f

    drifted = findings.where(
        (f.col("status") == Status.CONFIRMED.value)
        & (f.col("difference") != Difference.LATENT.value)
        & f.col("aggregate_id").isNotNull()
    )
    unseen = drifted.join(accounted, drifted["aggregate_id"] == accounted[ID], "left_anti")
    return {row["link"]: row["count"] for row in unseen.groupBy("link").count().collect()}


def _basis(place: Workspace, past: PastRun) -> Basis | None:
    """Read what an earlier run left; None where that is damaged."""
    run = place.run(past.run_id)
    needed = (FINDINGS, CHANGED) if past.scope.kind == "changed" else (FINDINGS,)
    try:
        fence = run.read_if_there(Fence)
        whole = all(run.find(each) is not None for each in needed)
    except DamagedArtifactError:
        return None
    return Basis(run, fence) if fence is not None and whole else None


def _instant(fence: Fence) -> datetime:
    """Choose the instant of a fence by the source's own clock, as its rows have it."""
    taken = fence.source.snapshot
    return fence.opened_at if taken is None else min(taken.taken_at, fence.opened_at)


def _union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)
