"""How far a group has come in a topic, decided from offsets alone: idleness never counts as caught up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class PlaceState(StrEnum):
    """How a group stands in one partition, as to the end that it was to reach."""

    CAUGHT_UP = "caught_up"
    LAGGING = "lagging"
    NO_COMMIT = "no_commit"
    """The partition has, or had, records, and the group has committed nothing."""
    BELOW_LOG_START = "below_log_start"
    """Records expired before the group came to them: it will skip, or read again, as its settings say."""
    PAST_END = "past_end"
    """The group has committed an offset that the partition does not have: the topic was made anew, or cut off."""
    REWOUND = "rewound"
    """The committed offset went back while we looked: somebody has reset it."""


@dataclass(frozen=True)
class PartitionPlace:
    """Where one partition of the topic begins and ends."""

    partition: int
    begin: int
    """The first offset that the log still had when the fence closed."""
    end: int
    """The end right after the source's snapshot: what a group is to reach."""
    log_end: int
    """The end when the fence closed: the log is evidence up to here."""
    high_watermark: int
    """The end when the fence closed, open transactions included."""


@dataclass(frozen=True)
class GroupPlace:
    """Where a group stands in one partition, before and after the snapshot of its copy."""

    partition: int
    committed_before: int | None
    """The copy holds all that lies before this offset."""
    committed_after: int | None
    """The copy may hold what lies between the two; what lies at or after this one may not be there yet."""
    next_record: int | None
    """The first record that the group had not committed; None if there was none, or it was not asked."""
    lag: int
    """Offsets that the group has yet to pass."""
    state: PlaceState


def state_of(
    committed: int | None, begin: int, end: int, high_watermark: int, next_record: int | None, probed: bool
) -> PlaceState:
    """Tell how a group stands; `probed` says that `next_record` was looked up at its committed offset."""
    nothing_left = probed and (next_record is None or next_record >= end)
    if committed is None:
        untouched = begin == 0 and (end == 0 or nothing_left)
        return PlaceState.CAUGHT_UP if untouched else PlaceState.NO_COMMIT
    if committed > high_watermark:
        return PlaceState.PAST_END
    if committed < begin:
        return PlaceState.BELOW_LOG_START
    return PlaceState.CAUGHT_UP if committed >= end or nothing_left else PlaceState.LAGGING


def lag_of(committed: int | None, begin: int, end: int, state: PlaceState) -> int:
    """Give how many offsets the group has yet to pass; what expired or stands beyond the end does not count."""
    if state is PlaceState.CAUGHT_UP:
        return 0
    start = begin if committed is None or committed > end else max(begin, committed)
    return max(0, end - start)


def group_places(
    partitions: Iterable[PartitionPlace],
    before: Mapping[int, int | None],
    after: Mapping[int, int | None],
    next_records: Mapping[int, int | None],
) -> tuple[GroupPlace, ...]:
    """Give where a group stands in each partition; `next_records` has those that were looked up."""
    return tuple(_place(at, before.get(at.partition), after.get(at.partition), next_records) for at in partitions)


def _place(
    at: PartitionPlace, before: int | None, after: int | None, next_records: Mapping[int, int | None]
) -> GroupPlace:
    number, probed = at.partition, at.partition in next_records
    next_record = next_records.get(number)
    state = state_of(before, at.begin, at.end, at.high_watermark, next_record, probed)
    if state is not PlaceState.PAST_END and after is not None and after > at.high_watermark:
        state = PlaceState.PAST_END
    elif before is not None and (after is None or after < before):
        state = PlaceState.REWOUND
    return GroupPlace(number, before, after, next_record, lag_of(before, at.begin, at.end, state), state)
