"""What a log history holds of its topic, in offsets: a plain value, and the arithmetic of extending it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import Field

from reconcile.config.validation import Model
from reconcile.errors import RefusedError

Range = tuple[int, int]
"""Offsets from the first up to, but not including, the last."""


class DamagedIndexError(RefusedError):
    """Raised when the index of a history is not what this program wrote: delete the history's folder."""


class Lost(Model):
    """Offsets that the history does not hold any more, or never could."""

    partition: int
    start: int
    end: int
    noticed_at: datetime


class Growth(Model):
    """How many partitions the topic had, and where its log stood when that was first seen."""

    count: int
    seen_at: datetime
    after: dict[int, int]
    """Where the history ended before: records below were written to fewer partitions."""
    ends: dict[int, int]
    """Where the log ended when it was seen: records from here on are spread over so many partitions."""


class Held(Model):
    """What a segment holds of one partition: all records that the topic has in these offsets."""

    start: int
    end: int
    rows: int = Field(ge=0)
    first: int | None
    """The offset of the first record, None if there is none: markers, aborted and compacted records leave gaps."""
    last: int | None


class Segment(Model):
    """One Parquet folder, written by one extension and never changed."""

    name: str
    partitions: dict[int, Held]
    latest: datetime | None
    """The time of its latest record."""
    null_keys: int
    unreadable_keys: int
    unreadable_values: int
    odd_times: int = 0
    """Records whose times lie beyond what can be held."""
    digest: str
    """Of where its records stand."""
    files: dict[str, int]
    """Its data files, with their sizes in bytes."""

    @property
    def rows(self) -> int:
        """Count its records."""
        return sum(held.rows for held in self.partitions.values())


class Index(Model):
    """What the history holds; a new one with the next generation replaces it whenever that changes."""

    schema_version: Literal[1] = 1
    generation: int
    cluster: str
    topic: str
    topic_id: str
    derivation: str
    """The digest of all that decides which records it holds, and which columns are made of them."""
    segments: tuple[Segment, ...] = ()
    expired: tuple[Lost, ...] = ()
    """What the log no longer had when it was to be read."""
    pruned: tuple[Lost, ...] = ()
    """What was held, and was given up because of its age."""
    partitions: tuple[Growth, ...] = ()
    """The topic's partition counts, in the order of time."""

    def held(self, partition: int) -> tuple[Range, ...]:
        """Compute the offsets that are held of a partition."""
        ranges = (
            (held.start, held.end)
            for segment in self.segments
            if (held := segment.partitions.get(partition)) is not None
        )
        return merged(ranges)

    def end(self, partition: int) -> int | None:
        """Compute the offset up to which a partition has been dealt with, None if it never was."""
        known = [end for _, end in self.held(partition)]
        known += [lost.end for lost in (*self.expired, *self.pruned) if lost.partition == partition]
        return max(known, default=None)

    def missing(self, partition: int) -> tuple[Range, ...]:
        """Compute the offsets below the end that are not held: expired, or pruned."""
        lost = ((lost.start, lost.end) for lost in (*self.expired, *self.pruned) if lost.partition == partition)
        return merged(lost)

    def text(self) -> str:
        """Write it as the file's text."""
        return self.model_dump_json(indent=1) + "\n"


@dataclass(frozen=True)
class LogState:
    """Where a topic's log stands."""

    topic_id: str
    begins: Mapping[int, int]
    """The log start of each partition."""
    stable: Mapping[int, int]
    """Up to where each partition can be read: its end, or the first transaction that is still open if that matters."""
    ends: Mapping[int, int]
    """The end of each partition."""
    newest: int = -1
    """The largest time of a record, in milliseconds; -1 where there is none, or the cluster does not know."""


@dataclass(frozen=True)
class Extension:
    """What an extension has to do."""

    ranges: Mapping[int, Range]
    expired: Mapping[int, Range]
    grown: bool

    @property
    def changes(self) -> bool:
        """Whether the index has to change."""
        return bool(self.ranges or self.expired or self.grown)


class CutLogError(RefusedError):
    """Raised when the log ends below what was read of it: the history tells of another log, delete its folder."""


def plan_extension(index: Index, log: LogState, until: Mapping[int, int]) -> Extension:
    """Compute what to read so that the history reaches `until`, as far as the log can be read, and what is lost.

    Raises RefusedError for offsets that the log does not have, and CutLogError if it ends below what is held.
    """
    ranges: dict[int, Range] = {}
    expired: dict[int, Range] = {}
    for partition, wanted in sorted(until.items()):
        if partition not in log.ends:
            raise RefusedError(f"{index.topic} has {len(log.ends)} partitions, and no partition {partition}")
        known, end = index.end(partition) or 0, log.ends[partition]
        if known > end:
            raise CutLogError(
                f"partition {partition} of {index.topic} ends at offset {end}, and was read up to {known} before:"
                " the log was cut, as by an unclean leader election"
            )
        if wanted > end:
            raise RefusedError(
                f"partition {partition} of {index.topic} ends at offset {end}; it cannot be read up to {wanted}"
            )
        start = max(known, log.begins[partition])
        if start > known:
            expired[partition] = (known, start)
        if (stop := min(wanted, log.stable[partition])) > start:
            ranges[partition] = (start, stop)
    return Extension(ranges, expired, grown=not index.partitions or index.partitions[-1].count != len(log.ends))


def extended(index: Index, extension: Extension, log: LogState, segment: Segment | None, now: datetime) -> Index:
    """Build the next index, with what was read and what was found lost."""
    expired = tuple(
        Lost(partition=partition, start=start, end=end, noticed_at=now)
        for partition, (start, end) in sorted(extension.expired.items())
    )
    growth: tuple[Growth, ...] = ()
    if extension.grown:
        known = index.partitions[-1].ends if index.partitions else ()
        before = {partition: index.end(partition) or 0 for partition in known}
        growth = (Growth(count=len(log.ends), seen_at=now, after=before, ends=dict(log.ends)),)
    return index.model_copy(
        update={
            "generation": index.generation + 1,
            "segments": (*index.segments, segment) if segment else index.segments,
            "expired": (*index.expired, *expired),
            "partitions": (*index.partitions, *growth),
        }
    )


def pruned(index: Index, older_than: datetime, now: datetime) -> Index | None:
    """Build the next index, without the oldest segments that hold nothing younger; None if there is none to give up.

    Only segments from the oldest on are given up, so that what is held of a partition stays in one piece.
    """
    kept = list(index.segments)
    lost: list[Lost] = []
    while kept and (kept[0].latest is None or kept[0].latest < older_than):
        lost += [
            Lost(partition=partition, start=held.start, end=held.end, noticed_at=now)
            for partition, held in sorted(kept.pop(0).partitions.items())
        ]
    if not lost:
        return None
    update = {"generation": index.generation + 1, "segments": tuple(kept), "pruned": (*index.pruned, *lost)}
    return index.model_copy(update=update)


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Compute the same offsets in as few ranges as there can be, in order."""
    result: list[Range] = []
    for start, end in sorted(each for each in ranges if each[0] < each[1]):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)
