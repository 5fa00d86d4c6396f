"""Which earlier run changes are told from, and when a run has to compare everything instead. Only plain values here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reconcile.errors import RefusedError
from reconcile.gather.fence.fence import Fence
from reconcile.gather.log.index import Index
from reconcile.pipeline.handoffs import RunScope
from reconcile.pipeline.scope import LAST

OVERLAP = timedelta(minutes=10)
"""A transaction that was open so long when a fence was opened is still seen by its `updated_at`."""
SHARE = 0.1
"""Where more of all aggregates may have changed, digests of all are cheaper."""
MOST = 500_000
"""More ids than these are not handed to every task of a join."""


@dataclass(frozen=True)
class PastRun:
    """A run of the contract that was audited."""

    run_id: str
    opened_at: datetime
    """The instant of its fence."""
    complete: bool
    consumers: tuple[str, ...]
    """Those that it looked at; empty for all."""
    scope: RunScope


@dataclass(frozen=True)
class FullInstead:
    """That everything is compared, and why."""

    reason: str


def choose_run(
    since: str, past: Collection[PastRun], terms: str, consumers: Sequence[str], full_every: int | None
) -> PastRun | FullInstead:
    """Choose the run since whose fence changes are looked for.

    `terms` is the digest of what the contract compares now, `consumers` are those that are looked at, and `full_every`
    says which of the contract's changed-only runs is to be a full one. Raises RefusedError for a run that cannot be
    what was meant.
    """
    named = next((each for each in past if each.run_id == since), None)
    if since != LAST:
        if named is None:
            raise RefusedError(f"changes since {since} cannot be told: it is no run of this contract that was audited")
        if (problem := _unfit(named, consumers)) is not None:
            raise RefusedError(f"changes since {since} cannot be told: {problem}")
    fit = sorted((each for each in past if _unfit(each, consumers) is None), key=_age)
    chosen = named if since != LAST else fit[-1] if fit else None
    if chosen is None:
        return FullInstead("no complete run that looked at all copies is in the workspace")
    if chosen.scope.terms != terms:
        return FullInstead(f"the contract compares something else than when {chosen.run_id} ran")
    if full_every is not None and len(changed_only(past, consumers)) >= full_every - 1:
        return FullInstead(f"one run in {full_every} is a full one")
    return chosen


def changed_only(past: Collection[PastRun], consumers: Sequence[str]) -> list[PastRun]:
    """Choose the changed-only runs since the newest full one, oldest first."""
    fit = sorted((each for each in past if _unfit(each, consumers) is None), key=_age)
    full = [number for number, each in enumerate(fit) if each.scope.kind == "full"]
    return fit[full[-1] + 1 :] if full else fit


def begins(then: Fence, now: Fence, consumers: Collection[str]) -> dict[int, int]:
    """Compute from which offsets on the log tells what may have changed, by partition.

    What a group had not committed past at the earlier fence could not be judged by it; and a group that was set back
    since applies again what it had passed.
    """
    found = {place.partition: 0 for place in now.topic.partitions}
    found |= {place.partition: place.log_end for place in then.topic.partitions}
    for fence in (then, now):
        first = {place.partition: place.begin for place in fence.topic.partitions}
        for each in (each for each in fence.consumers if each.name in consumers):
            for place in each.places:
                for committed in (place.committed_before, place.committed_after):
                    passed = first[place.partition] if committed is None else committed
                    found[place.partition] = min(found[place.partition], passed)
    return found


def unusable(run_id: str, then: Fence, now: Fence, index: Index, begins: dict[int, int]) -> str | None:
    """Say why the changes since a run's fence cannot be told from the log's history; None where they can."""
    if then.topic.id != now.topic.id:
        return f"{now.topic.name} was deleted and made anew since {run_id}"
    if len(now.topic.partitions) < len(then.topic.partitions):
        return f"{now.topic.name} has fewer partitions than when {run_id} ran"
    for place in now.topic.partitions:
        for start, end in index.missing(place.partition):
            if start < place.log_end and end > begins[place.partition]:
                where = f"partition {place.partition} of {now.topic.name}"
                return f"records of {where} that are newer than {run_id} expired, or are pruned from its history"
    return None


def too_many(changed: int, aggregates: int | None) -> str | None:
    """Say why so many changed ids are not read one by one; None where they are."""
    if changed > MOST or (aggregates is not None and changed > SHARE * aggregates):
        of = "" if aggregates is None else f" of {aggregates:,}"
        return f"{changed:,}{of} aggregates may have changed, and comparing all is cheaper then"
    return None


def _unfit(run: PastRun, consumers: Sequence[str]) -> str | None:
    if run.scope.kind == "ids":
        return "it looked at some aggregates only"
    if not run.complete:
        return "it is incomplete"
    if run.consumers and not set(consumers) <= set(run.consumers):
        return "it did not look at all copies that this run looks at"
    return None


def _age(run: PastRun) -> tuple[datetime, str]:
    return run.opened_at, run.run_id
