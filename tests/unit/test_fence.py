"""The fence's decisions: how a group stands, when waiting ends, and that nothing idle counts as caught up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from psycopg2.sql import Composable

from reconcile.contract.model import Consumer, Source
from reconcile.domain.canonical import Layout
from reconcile.gather.fence import nature, settling
from reconcile.gather.fence.fence import (
    ConsumerFence,
    Fence,
    SourceFence,
    TopicFence,
    UnreadableLink,
    is_settled,
)
from reconcile.gather.fence.group_position import (
    GroupPosition,
    PartitionExtent,
    PositionState,
    choose_state,
    compute_lag,
    group_positions,
)
from reconcile.gather.fence.nature import SourceNature
from reconcile.gather.fence.settling import Settling
from reconcile.gather.stores.session import Collation, Snapshot, StoreSession
from reconcile.kafka.client import GroupDescription, GroupMember, GroupState, TopicDescription
from reconcile.workspace.handoff import parse, to_data

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
CONSUMER = Consumer.model_validate(
    {
        "name": "login",
        "group": "g",
        "store": "s",
        "table": "t",
        "id": "id",
        "fields": [{"name": "email", "source": "email", "consumer": "mail"}],
    }
)


class Planner:
    """A session that knows one plan, and what kind each relation is of."""

    def __init__(self, plan: dict[str, Any], kinds: list[tuple[str, str, bool, bool]]) -> None:
        self.plan, self.kinds = plan, kinds

    def rows(self, statement: object, _parameters: object = ()) -> list[tuple[Any, ...]]:
        return [([{"Plan": self.plan}],)] if isinstance(statement, Composable) else [*self.kinds]


def nature_of(plan: dict[str, Any], *kinds: tuple[str, str, bool, bool], replica: bool = False) -> SourceNature:
    """Give what a source is that is read as a plan says."""
    snapshot = Snapshot("0-1", AT, "18.4", replica, Collation("UTF8", "c", "C", None))
    session = cast("StoreSession", Planner(plan, [*kinds]))
    return nature.of_postgres(session, Source(store="user-db", table="rows", id=("id",)), snapshot)


SCAN = {"Node Type": "Seq Scan", "Schema": "public", "Relation Name": "rows"}


@pytest.mark.parametrize(("plan", "kinds", "replica", "limit"), [
    (SCAN, [("public.rows", "r", False, False)], False, None),
    (SCAN, [("public.rows", "r", False, False)], True, "user-db is a replica"),
    ({"Node Type": "Append", "Plans": [{**SCAN, "Node Type": "Foreign Scan"}]}, [("public.rows", "f", False, False)],
     False, "public.rows is a foreign table"),
    (SCAN, [("public.rows", "m", False, False)], False, "public.rows is a materialized view"),
    (SCAN, [("public.rows", "r", False, True)], False, "public.rows is filled by a subscription"),
    ({"Node Type": "Function Scan", "Function Name": "dblink"}, [], False, "user-db reads another server by dblink"),
    ({"Node Type": "Function Scan", "Schema": "public", "Function Name": "accounts"}, [], False,
     "user-db is read by the function public.accounts"),
    ({"Node Type": "Function Scan"}, [], False, "user-db is read by several functions at once"),
    ({"Node Type": "Function Scan", "Schema": "pg_catalog", "Function Name": "unnest"}, [], False, None),
])  # fmt: skip
def test_what_is_not_proven_to_be_the_primary_says_why(
    plan: dict[str, Any], kinds: list[tuple[str, str, bool, bool]], replica: bool, limit: str | None
) -> None:
    """Whatever the rows are read from, behind views and queries too."""
    found = nature_of(plan, *kinds, replica=replica)
    assert (limit is None) == found.proven_primary
    assert [limit] == [each.split(":")[0] for each in found.limits] or (limit is None and not found.limits)


def test_a_store_that_is_no_postgres_is_not_proven_to_be_the_primary() -> None:
    """Nothing tells a primary from a copy there."""
    assert not nature.of_other_store("lake").proven_primary


@pytest.mark.parametrize(
    ("committed", "begin", "end", "high", "probed", "expected"),
    [
        (10, 0, 10, 10, {}, PositionState.CAUGHT_UP),
        (12, 0, 10, 12, {}, PositionState.CAUGHT_UP),
        (9, 0, 10, 10, {}, PositionState.LAGGING),
        (9, 0, 10, 10, {0: 9}, PositionState.LAGGING),
        (9, 0, 10, 10, {0: None}, PositionState.CAUGHT_UP),
        (9, 0, 10, 11, {0: 10}, PositionState.CAUGHT_UP),
        (11, 0, 10, 10, {}, PositionState.PAST_END),
        (11, 0, 10, 11, {}, PositionState.CAUGHT_UP),
        (4, 5, 10, 10, {}, PositionState.BELOW_LOG_START),
        (4, 5, 5, 5, {}, PositionState.BELOW_LOG_START),
        (None, 0, 10, 10, {}, PositionState.NO_COMMIT),
        (None, 0, 10, 10, {0: 0}, PositionState.NO_COMMIT),
        (None, 5, 5, 5, {}, PositionState.NO_COMMIT),
        (None, 0, 0, 0, {}, PositionState.CAUGHT_UP),
        (None, 0, 1, 1, {0: None}, PositionState.CAUGHT_UP),
        (None, 3, 4, 4, {0: None}, PositionState.NO_COMMIT),
    ],
)
def test_a_place_has_a_state(
    committed: int | None, begin: int, end: int, high: int, probed: Mapping[int, int | None], expected: PositionState
) -> None:
    """Offsets decide, and what was found between the committed offset and the end."""
    assert expected is choose_state(committed, begin, end, high, probed.get(0), 0 in probed)


@pytest.mark.parametrize(
    ("committed", "state", "expected"),
    [
        (7, PositionState.LAGGING, 3),
        (9, PositionState.CAUGHT_UP, 0),
        (None, PositionState.NO_COMMIT, 5),
        (2, PositionState.BELOW_LOG_START, 5),
        (99, PositionState.PAST_END, 5),
    ],
)
def test_lag_counts_what_is_left_to_read(committed: int | None, state: PositionState, expected: int) -> None:
    """What expired does not count, and a group beyond the end has everything before it."""
    assert expected == compute_lag(committed, 5, 10, state)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (10, 12, PositionState.CAUGHT_UP),
        (10, 3, PositionState.REWOUND),
        (10, None, PositionState.REWOUND),
        (10, 99, PositionState.PAST_END),
        (None, 4, PositionState.NO_COMMIT),
    ],
)
def test_both_readings_count(before: int | None, after: int | None, expected: PositionState) -> None:
    """An offset that goes back, or beyond the end, between the readings is no settled one."""
    (place,) = group_positions([PartitionExtent(0, 0, 10, 12, 12)], {0: before}, {0: after}, {})
    assert (before, after, expected) == (place.committed_before, place.committed_after, place.state)


def test_a_partition_that_came_later_is_settled() -> None:
    """What the topic got after the source's instant nobody had to read."""
    places = group_positions([PartitionExtent(12, 0, 0, 5, 5)], {}, {}, {})
    assert is_settled(places)
    assert places[0].committed_before is None


def fence() -> Fence:
    """A fence with something in every place."""
    snapshot = Snapshot("0-1", AT, "18.4", False, Collation("UTF8", "c", "C", None))
    types = Layout(("uuid",), "bigint", ("numeric(10,2)", "text"))
    member = GroupMember("m-1", "client", "/10.0.0.1", "static-1", (0,))
    group = GroupDescription("g", GroupState.REBALANCING, "classic", "range", (member,))
    places = (
        GroupPosition(0, 9, 10, None, 0, PositionState.CAUGHT_UP),
        GroupPosition(1, None, None, 3, 7, PositionState.NO_COMMIT),
    )
    consumer = ConsumerFence("user/login", "login", "login-db", snapshot, types, 12, group, places, False, 1.5)
    return Fence(
        "digest",
        "user",
        AT,
        AT,
        SourceFence("user-db", snapshot, types, 10, 2),
        TopicFence("main", "user", "id-1", (PartitionExtent(0, 0, 10, 11, 12), PartitionExtent(1, 3, 10, 10, 10))),
        (consumer, replace(consumer, name="lake", store="lake", snapshot=None, types=None, rows=None)),
        (UnreadableLink("user/billing", "billing", "StoreUnreachableError", "down"),),
    )


def test_a_fence_survives_its_file() -> None:
    """What is written is read back the same."""
    assert fence() == parse(Fence, json.dumps(to_data(fence())))


@pytest.mark.parametrize("text", ["", "{}", "[]", json.dumps(to_data(fence())).replace('"caught_up"', '"fine"')])
def test_something_else_is_no_fence(text: str) -> None:
    """A file that holds no fence is refused with the place that is wrong."""
    with pytest.raises(ValueError, match=r"\w"):
        parse(Fence, text)


def test_a_fence_says_what_is_special() -> None:
    """States are named, the lag is summed, and an unread consumer makes it incomplete."""
    found = fence()
    assert ("no_commit", "rebalancing") == found.consumer("login").states
    assert 7 == found.consumer("login").lag
    assert not found.complete


class FakeCluster:
    """A cluster whose group commits one offset more each time it is asked, up to a limit."""

    def __init__(self, start: int, last: int, state: GroupState = GroupState.STABLE, record: int | None = 0) -> None:
        self.place, self.last, self.state, self.record = start, last, state, record
        self.probes: list[Mapping[int, int]] = []

    def committed(self, *_: object) -> dict[int, int | None]:
        self.place = min(self.place + 1, self.last)
        return {0: self.place}

    def high_watermarks(self, *_: object) -> dict[int, int]:
        return {0: 10}

    def group(self, name: str, _topic: str) -> GroupDescription:
        return GroupDescription(name, self.state, "classic", "", ())

    def next_records(self, _topic: str, places: Mapping[int, int], _isolation: str) -> dict[int, int | None]:
        if places:
            self.probes.append(places)
        return {partition: self.record and at for partition, at in places.items()}


def waiting(cluster: Any, timeout: float = 60) -> tuple[Settling, list[int]]:
    """A group that is to reach offset 10, and the lags that it reports."""
    lags: list[int] = []
    topic = TopicDescription("topic", "id", (0,))
    return Settling(cluster, CONSUMER, "a/b", topic, {0: 0}, {0: 10}, timeout, lambda _, lag: lags.append(lag)), lags


def test_waiting_ends_at_the_end() -> None:
    """A group that moves is asked until it has the last offset, and never looked at more closely."""
    cluster = FakeCluster(5, 10)
    one, lags = waiting(cluster)
    while not one.over():
        pass
    assert ([4, 3, 2, 1, 0], []) == (lags, cluster.probes)


def test_a_marker_at_the_end_is_nothing_to_wait_for() -> None:
    """A group that stands still before the end has settled if no record is left there; that is looked up once."""
    cluster = FakeCluster(8, 9, record=None)
    one, lags = waiting(cluster)
    assert [False, True] == [one.over(), one.over()]
    assert ([1, 0], [{0: 9}]) == (lags, cluster.probes)


def test_idle_is_not_caught_up() -> None:
    """A group that stands still before a record has not settled, however long it stands."""
    cluster = FakeCluster(8, 9, record=1)
    one, lags = waiting(cluster)
    assert [False] * 3 == [one.over() for _ in range(3)]
    assert ([1, 1, 1], [{0: 9}]) == (lags, cluster.probes)


def test_waiting_ends_when_its_time_is_over() -> None:
    """With no time at all a group is looked at once."""
    one, lags = waiting(FakeCluster(5, 5), timeout=0)
    assert one.over()
    assert [5] == lags


def test_a_deserted_group_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without members nothing will be committed; with members we wait on."""
    monkeypatch.setattr(settling, "NOBODY_FOR", 0.0)
    assert waiting(FakeCluster(5, 5, GroupState.EMPTY))[0].over()
    assert not waiting(FakeCluster(5, 5, GroupState.REBALANCING))[0].over()


def test_a_group_without_members_whose_commits_move_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some programs commit and never join."""
    clock = iter(range(0, 1000, 5))
    monkeypatch.setattr("reconcile.gather.fence.settling.time.monotonic", lambda: float(next(clock)))
    one, lags = waiting(FakeCluster(3, 9, GroupState.EMPTY, record=1), timeout=900)
    while not one.over():
        pass
    assert [6, 5, 4, 3, 2, 1] == lags[:6]


def test_an_offset_past_the_end_is_not_caught_up() -> None:
    """A topic that was made anew leaves an offset behind that looks like more than enough."""
    one, _ = waiting(FakeCluster(500, 500))
    assert not one.over()
