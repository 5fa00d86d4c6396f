"""Counting findings as they stream by: causes by hop, ages, fields, partitions, and the most affected aggregates."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any

from reconcile.domain.finding import Finding, Hop, Rank, Status
from reconcile.report.model import Count, FieldCount, Flow, Heat, HeatRow

UNKNOWN_AGE = "not known"
AT_LEAST = 3
"""So many of each cause of each link are kept, however much more affected those of others are."""

_AGES = (
    ("under a minute", 60),
    ("under an hour", 3600),
    ("under a day", 86400),
    ("under a week", 7 * 86400),
    ("under a month", 30 * 86400),
    ("under a year", 365 * 86400),
    ("a year and more", float("inf")),
)
_AGE_LIMITS = [limit for _, limit in _AGES]
_MOST_COLUMNS = 16
_HOPS = (*Hop, None)


class FindingCounts:
    """The figures of findings, in constant memory."""

    def __init__(self, topic: str, partitions: int, at: datetime, limit: int) -> None:
        self._topic, self._partitions, self._at, self._limit = topic, partitions, at, limit
        self._width = max(-(-partitions // _MOST_COLUMNS), 1)
        self.total = 0
        self.oldest: dict[str, datetime] = {}
        """The time of the oldest confirmed drift of each link, where that is known."""
        self._most_affected = _Lowest(limit)
        self._of_each_cause: dict[tuple[str, str], _Lowest] = {}
        self._flows: Counter[tuple[Hop | None, str]] = Counter()
        self._ages: Counter[str] = Counter()
        self._fields: Counter[tuple[str, str]] = Counter()
        self._cells: Counter[tuple[str, int]] = Counter()
        self._elsewhere = 0

    def add_all(self, findings: Iterable[Finding]) -> FindingCounts:
        """Count findings; return itself. What is in flight is no drift: it may be shown, and counts nowhere else."""
        for each in findings:
            self.total += 1
            rank, kind = (*each.rank, self.total), (each.link, each.cause)
            self._most_affected.add(rank, each)
            if kind not in self._of_each_cause:
                self._of_each_cause[kind] = _Lowest(AT_LEAST)
            self._of_each_cause[kind].add(rank, each)
            if each.status is not Status.IN_FLIGHT:
                self._count(each)
        return self

    def most_affected(self) -> list[Finding]:
        """Choose the findings that matter most, with some of each cause among them."""
        chosen = {rank: each for lowest in self._of_each_cause.values() for rank, each in lowest.ordered}
        for rank, each in self._most_affected.ordered:
            if len(chosen) >= self._limit:
                break
            chosen.setdefault(rank, each)
        return [chosen[rank] for rank in sorted(chosen)]

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Causes by hop: hops in the order of the data's way, the most frequent cause first."""
        ordered = sorted(self._flows.items(), key=lambda each: (_HOPS.index(each[0][0]), -each[1], each[0][1]))
        return tuple(Flow(hop, cause, number) for (hop, cause), number in ordered)

    @property
    def causes(self) -> Counter[str]:
        """How many findings each cause has."""
        found: Counter[str] = Counter()
        for (_, cause), number in self._flows.items():
            found[cause] += number
        return found

    @property
    def ages(self) -> tuple[Count, ...]:
        """How old findings are, by class, youngest first."""
        return tuple(Count(name, self._ages[name]) for name in (*(name for name, _ in _AGES), UNKNOWN_AGE))

    @property
    def fields(self) -> tuple[FieldCount, ...]:
        """Which fields differ, the most frequent first."""
        return tuple(FieldCount(link, field, number) for (link, field), number in ordered(self._fields))

    @property
    def heat(self) -> Heat:
        """Causes by partition."""
        starts = range(0, self._partitions, self._width)
        ends = [min(start + self._width, self._partitions) - 1 for start in starts]
        columns = [str(start) if start == end else f"{start}–{end}" for start, end in zip(starts, ends, strict=True)]
        causes: Counter[str] = Counter()
        for (cause, _), number in self._cells.items():
            causes[cause] += number
        rows = [
            HeatRow(cause, tuple(self._cells[cause, column] for column in range(len(columns))))
            for cause, _ in ordered(causes)
        ]
        return Heat(tuple(columns), tuple(rows), self._elsewhere)

    def _count(self, finding: Finding) -> None:
        link, since = finding.link, finding.since
        self._flows[finding.hop, finding.cause] += 1
        age = None if since is None else bisect_right(_AGE_LIMITS, (self._at - since).total_seconds())
        self._ages[UNKNOWN_AGE if age is None else _AGES[age][0]] += 1
        for field in finding.fields:
            self._fields[link, field.name] += 1
        # What somebody wrote into the copy has to do with no partition, though its evidence names records.
        partition = None if finding.hop is Hop.CONSUMER else finding.partition_in(self._topic)
        if partition is None or partition >= self._partitions:
            self._elsewhere += 1
        else:
            self._cells[finding.cause, partition // self._width] += 1
        if since is not None and finding.drifts:
            self.oldest[link] = min(self.oldest.get(link, since), since)


class _Lowest:
    """The findings of the lowest ranks of all that were added."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.ordered: list[tuple[Rank, Finding]] = []

    def add(self, rank: Rank, finding: Finding) -> None:
        if len(self.ordered) < self._limit or rank < self.ordered[-1][0]:
            insort(self.ordered, (rank, finding), key=itemgetter(0))
            del self.ordered[self._limit :]


def ordered(counter: Mapping[Any, int]) -> list[tuple[Any, int]]:
    """List what was counted, the most frequent first."""
    return sorted(counter.items(), key=lambda each: (-each[1], each[0]))
