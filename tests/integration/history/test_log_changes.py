"""The log history stays true when its topic loses records, grows, or is made anew, also while it is read."""

from __future__ import annotations

from typing import Any

import pytest

from reconcile.gather.log import segment
from reconcile.gather.log.history import ReplacedTopicError
from reconcile.lab.services.offsets import led
from tests.integration.history.log_world import WAYS, LogWorld, event, read_by
from tests.integration.worlds import until


def test_what_the_log_lost_is_recorded(world: LogWorld) -> None:
    """Where the log start moves past what was read, the lost offsets are told, once."""
    world.create()
    world.produce(*(("k", event(i)) for i in range(10)))
    world.cut({0: 2})
    world.extend({0: 5, 1: 0})
    world.cut({0: 8})
    history = world.extend()
    assert [(0, 0, 2), (0, 5, 8)] == [(lost.partition, lost.start, lost.end) for lost in history.index.expired]
    assert ((2, 5), (8, 10)) == history.index.held(0)
    assert [2, 3, 4, 8, 9] == [offset for _, offset, _ in world.held(history)]
    world.cut({0: 10})
    assert history.index == world.extend().index


@pytest.mark.parametrize("way", WAYS)
def test_a_log_that_loses_records_while_they_are_read(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """What is lost between the look at the log and the reading of it is recorded as expired, in all ways to read."""
    read_by(way, monkeypatch)
    world.create()
    world.produce(*(("k", event(i)) for i in range(10)))
    write, cuts = segment.write_segment, [4]

    def late(*arguments: Any) -> Any:
        if cuts:
            world.cut({0: cuts.pop()})
        return write(*arguments)

    monkeypatch.setattr("reconcile.gather.log.history.write_segment", late)
    history = world.extend()
    assert [(0, 0, 4)] == [(lost.partition, lost.start, lost.end) for lost in history.index.expired]
    assert world.consumed() == world.held(history)


def test_added_partitions_are_remembered(world: LogWorld) -> None:
    """The index tells how many partitions there were, and where the log stood when that was seen."""
    from confluent_kafka.admin import NewPartitions

    world.create(2)
    world.produce(("a", event(1)), ("a", event(2)))
    world.extend()
    world.admin.create_partitions([NewPartitions(world.name, 3)])[world.name].result()
    until(lambda: led(world.admin, world.name, 3))
    world.produce(("a", event(3)), partition=2)
    history = world.extend()
    assert [(2, {}, {0: 2, 1: 0}), (3, {0: 2, 1: 0}, {0: 2, 1: 0, 2: 1})] == [
        (each.count, each.after, each.ends) for each in history.index.partitions
    ]
    assert world.consumed() == world.held(history)


def test_a_topic_made_anew_has_a_history_of_its_own(world: LogWorld) -> None:
    """Records of an earlier topic of the same name are set aside, and never mixed with the new ones."""
    world.create()
    world.produce(("old", event(1)), ("old", event(2)))
    old = world.extend()
    world.delete()
    world.create()
    world.produce(("new", event(7)))
    new = world.extend()
    assert world.consumed() == world.held(new)
    assert {old.home, new.home} == world.homes()
    assert 2 == len(world.held(old))


def test_a_topic_made_anew_while_it_is_read(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read of another topic than was looked at is kept in no history, though its offsets fit."""
    world.create()
    world.produce(("old", event(1)))
    ends, write = world.ends(), segment.write_segment

    def replaced(*arguments: Any) -> Any:
        world.delete()
        world.create()
        world.produce(("new", event(7)), ("new", event(8)))
        return write(*arguments)

    monkeypatch.setattr("reconcile.gather.log.history.write_segment", replaced)
    with pytest.raises(ReplacedTopicError, match="made anew while it was read"):
        world.extend(ends)
    monkeypatch.setattr("reconcile.gather.log.history.write_segment", write)
    history = world.extend()
    assert world.consumed() == world.held(history)
    assert [None] == [home.load() for home in world.homes() - {history.home}]


def test_a_changed_locator_makes_columns_anew(world: LogWorld) -> None:
    """Columns are never made by two contracts' rules: each has its own history, and finds it again."""
    world.create()
    world.produce(("k", {"version": 1, "revision": 10}))
    first = world.extend()
    world.options = {"version": "$.revision"}
    second = world.extend()
    assert ["1"] == [row["version"] for row in world.rows(first)]
    assert ["10"] == [row["version"] for row in world.rows(second)]
    world.options = {}
    assert first.index == world.extend().index
