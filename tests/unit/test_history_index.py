"""The arithmetic of a log history: what is held, what is to be read, what is lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.errors import RefusedError
from reconcile.gather.log.index import (
    CutLogError,
    Held,
    Index,
    LogState,
    Range,
    Segment,
    extended,
    merged,
    plan_extension,
    pruned,
)
from reconcile.workspace.handoff import parse

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), max(pair))))


def index(*segments: Segment) -> Index:
    """An index as it stands on disk."""
    return Index(generation=3, cluster="main", topic="t", topic_id="id", derivation="d", segments=segments)


def segment(held: dict[int, Range], latest: datetime = NOW) -> Segment:
    """A segment that holds every offset of some ranges."""
    partitions = {
        partition: Held(start=start, end=end, rows=end - start, first=start, last=end - 1)
        for partition, (start, end) in held.items()
    }
    return Segment(
        name="s",
        partitions=partitions,
        latest=latest,
        null_keys=0,
        unreadable_keys=0,
        unreadable_values=0,
        digest="d",
        files={},
    )


def log(*partitions: tuple[int, int, int]) -> LogState:
    """A log by the begin, the stable end and the end of each partition."""
    return LogState(
        "id",
        {partition: each[0] for partition, each in enumerate(partitions)},
        {partition: each[1] for partition, each in enumerate(partitions)},
        {partition: each[2] for partition, each in enumerate(partitions)},
    )


def offsets(found: tuple[Range, ...] | list[Range]) -> set[int]:
    """All offsets in ranges."""
    return {offset for start, end in found for offset in range(start, end)}


@given(ranges)
def test_merged_ranges_hold_the_same_offsets_and_do_not_touch(given_ranges: list[Range]) -> None:
    """Merging changes no offset, and leaves a gap between any two ranges."""
    found = merged(given_ranges)
    assert offsets(given_ranges) == offsets(found)
    assert all(end < start for (_, end), (start, _) in pairwise(found))


def test_reads_on_where_it_ended() -> None:
    """What is held is not read again; what was never seen is read from the log start."""
    found = plan_extension(index(segment({0: (0, 5)})), log((0, 9, 9), (2, 4, 4)), {0: 8, 1: 4})
    assert {0: (5, 8), 1: (2, 4)} == found.ranges
    assert {1: (0, 2)} == found.expired


def test_nothing_new_changes_nothing() -> None:
    """An index that is up to date stays."""
    first = index(segment({0: (0, 5)}))
    state = log((0, 5, 5))
    known = extended(first, plan_extension(first, state, {0: 5}), state, None, NOW)
    assert not plan_extension(known, state, {0: 5}).changes
    assert not plan_extension(known, state, {0: 3}).changes


def test_an_open_transaction_is_not_read_past() -> None:
    """Reading ends where the first open transaction begins."""
    assert {0: (0, 4)} == plan_extension(index(), log((0, 4, 9)), {0: 9}).ranges


def test_a_log_start_behind_all_that_is_held_and_asked_for() -> None:
    """Offsets asked for that the log has lost are expired, not read."""
    found = plan_extension(index(segment({0: (0, 5)})), log((9, 9, 9)), {0: 8})
    assert ({}, {0: (5, 9)}) == (found.ranges, found.expired)


def test_expired_offsets_are_told_once_and_count_as_dealt_with() -> None:
    """After the loss is recorded the next reading begins at the log start."""
    state = log((7, 9, 9))
    first = index(segment({0: (0, 5)}))
    wanted = plan_extension(first, state, {0: 9})
    after = extended(first, wanted, state, segment(dict(wanted.ranges)), NOW)
    assert (((0, 5), (7, 9)), ((5, 7),)) == (after.held(0), after.missing(0))
    assert not plan_extension(after, state, {0: 9}).changes


def test_growth_is_remembered_with_both_ends() -> None:
    """Records below `after` were written before, records from `ends` on after the growth."""
    first, before = index(segment({0: (0, 5)})), log((0, 5, 5))
    known = extended(first, plan_extension(first, before, {0: 5}), before, None, NOW)
    grown = log((0, 8, 8), (0, 2, 2))
    after = extended(known, plan_extension(known, grown, {0: 8, 1: 2}), grown, None, NOW)
    assert [1, 2] == [each.count for each in after.partitions]
    assert ({0: 5}, {0: 8, 1: 2}) == (after.partitions[1].after, after.partitions[1].ends)
    assert known.generation + 1 == after.generation


def test_a_log_that_ends_below_what_is_held_is_refused() -> None:
    """A cut log is another log."""
    with pytest.raises(CutLogError, match="read up to 5 before"):
        plan_extension(index(segment({0: (0, 5)})), log((0, 4, 4)), {0: 4})


@pytest.mark.parametrize("until", [{0: 6}, {1: 0}])
def test_offsets_and_partitions_that_are_not_there_are_refused(until: dict[int, int]) -> None:
    """Nobody waits for records that may never come."""
    with pytest.raises(RefusedError):
        plan_extension(index(), log((0, 5, 5)), until)


def test_pruning_gives_up_the_oldest_segments_only() -> None:
    """An old segment behind a younger one stays, so that what is held stays in one piece."""
    day = timedelta(days=1)
    segments = [segment({0: (start, start + 2)}, NOW + age * day) for start, age in ((0, 0), (2, 1), (4, 3), (6, 0))]
    smaller = pruned(index(*segments), NOW + 2 * day, NOW)
    assert smaller is not None
    assert (((4, 8),), ((0, 4),), 8) == (smaller.held(0), smaller.missing(0), smaller.end(0))
    assert pruned(smaller, NOW + 2 * day, NOW) is None


def test_an_index_is_what_was_written() -> None:
    """Its text gives the same index again; what is none is refused."""
    state = log((1, 5, 5))
    first = index()
    whole = extended(first, plan_extension(first, state, {0: 5}), state, segment({0: (1, 5)}), NOW)
    assert whole == parse(Index, whole.text())
    with pytest.raises(ValueError, match="JSON"):
        parse(Index, whole.text()[:-20])
