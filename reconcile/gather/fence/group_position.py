"""How far a group has come in a topic, decided from offsets alone: idleness never counts as caught up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class PositionState(StrEnum):
    """How far a group has come in one partition, measured by the end that it was to reach."""

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
class PartitionExtent:
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
class GroupPosition:
    """How far a group has come in one partition, before and after the snapshot of its copy."""

    partition: int
    committed_before: int | None
    """The copy holds all that lies before this offset."""
    committed_after: int | None
    """The copy may hold what lies between the two; what lies at or after this one may not be there yet."""
    next_record: int | None
    """The first record that the group had not committed; None if there was none, or nobody looked."""
    lag: int
    """Offsets that the group has yet to pass."""
    state: PositionState


def choose_state(
    committed: int | None, begin: int, end: int, high_watermark: int, next_record: int | None, probed: bool
) -> PositionState:
    """Choose the state of a position; `probed` says that `next_record` was looked up at its committed offset."""
    all_read = probed and (next_record is None or next_record >= end)
    if committed is None:
        untouched = begin == 0 and (end == 0 or all_read)
        return PositionState.CAUGHT_UP if untouched else PositionState.NO_COMMIT
    if committed > high_watermark:
        return PositionState.PAST_END
    if committed < begin:
        return PositionState.BELOW_LOG_START
    return PositionState.CAUGHT_UP if committed >= end or all_read else PositionState.LAGGING


def compute_lag(committed: int | None, begin: int, end: int, state: PositionState) -> int:
    """Compute how many offsets the group has yet to pass; what expired or stands beyond the end does not count."""
    if state is PositionState.CAUGHT_UP:
        return 0
    start = begin if committed is None or committed > end else max(begin, committed)
    return max(0, end - start)


def group_positions(
    partitions: Iterable[PartitionExtent],
    before: Mapping[int, int | None],
    after: Mapping[int, int | None],
    next_records: Mapping[int, int | None],
) -> tuple[GroupPosition, ...]:
    """Compute how far a group has come in each partition; `next_records` has those that were looked up."""
    return tuple(_position(at, before.get(at.partition), after.get(at.partition), next_records) for at in partitions)


def _position(
    at: PartitionExtent, before: int | None, after: int | None, next_records: Mapping[int, int | None]
) -> GroupPosition:
    number, probed = at.partition, at.partition in next_records
    next_record = next_records.get(number)
    state = choose_state(before, at.begin, at.end, at.high_watermark, next_record, probed)
    if state is not PositionState.PAST_END and after is not None and after > at.high_watermark:
        state = PositionState.PAST_END
    elif before is not None and (after is None or after < before):
        state = PositionState.REWOUND
    return GroupPosition(number, before, after, next_record, compute_lag(before, at.begin, at.end, state), state)
