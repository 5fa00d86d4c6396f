"""The log history holds what the topic holds, to the offset, whatever lies between its records."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from reconcile.gather.log import by_librdkafka
from tests.integration.history.log_world import WAYS, LogWorld, event, read_by
from tests.integration.worlds import until, until_decided


def test_holds_exactly_what_was_asked_for(world: LogWorld) -> None:
    """Records up to the offsets asked for are held, and none beyond."""
    world.create()
    world.produce(*((f"k{i}", event(i)) for i in range(20)), partition=0)
    world.produce(*((f"k{i}", event(i)) for i in range(5)), partition=1)
    history = world.extend({0: 7, 1: 5})
    assert world.consumed()[:7] + world.consumed()[20:] == world.held(history)
    assert ((0, 7),) == history.index.held(0)


def test_extends_by_what_is_new(world: LogWorld) -> None:
    """Each extension reads on where the last one ended."""
    world.create()
    for turn in range(3):
        world.produce(*((f"k{i}", event(turn)) for i in range(4)), partition=turn % 2)
        history = world.extend()
    assert world.consumed() == world.held(history)
    assert [4, 4, 4] == [segment.rows for segment in history.index.segments]
    assert ((0, 8),) == history.index.held(0)


def test_nothing_new_starts_no_spark_job(world: LogWorld) -> None:
    """An extension that finds nothing new touches neither Spark nor the history."""
    world.create()
    context, jobs = world.spark.sparkContext, []
    world.produce(("k", event(1)))
    for turn in ("something-new", "nothing-new"):
        context.setJobGroup(turn, "")
        history = world.extend()
        jobs.append((history.index.generation, len(context.statusTracker().getJobIdsForGroup(turn)) > 0))
    context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert [(1, True), (1, False)] == jobs


def test_an_empty_topic_has_an_empty_history(world: LogWorld) -> None:
    """Where nothing was ever written, the history says so and gives no records."""
    world.create()
    history = world.extend()
    assert ([], (), 2) == (world.held(history), history.index.segments, history.index.partitions[0].count)


def test_gaps_are_not_losses(world: LogWorld) -> None:
    """Aborted records and the markers of transactions leave gaps, also at the end of what is held."""
    world.create()
    world.produce(("a", event(1)))
    producer = world.transactional()
    for commit in (False, True, False):
        producer.begin_transaction()
        world.write(producer, ("a", event(2 + commit)), ("b", event(2 + commit)))
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)()
    until_decided(world.bootstrap, world.name)
    history = world.extend()
    assert world.consumed() == world.held(history)
    assert 3 == history.index.segments[0].rows
    assert ((0, world.ends()[0]),) == history.index.held(0)


def test_an_open_transaction_is_read_later(world: LogWorld) -> None:
    """What cannot be read yet is not held."""
    world.create()
    producer = world.transactional()
    world.produce(("a", event(1)))
    producer.begin_transaction()
    world.write(producer, ("a", event(2)))
    producer.flush()
    ends = world.ends()
    waiting = world.extend(ends)
    assert [0] == [offset for _, offset, _ in world.held(waiting)]
    producer.commit_transaction()
    until_decided(world.bootstrap, world.name)
    settled = world.extend(ends)
    assert world.consumed() == world.held(settled)


def test_only_aborted_records_are_held_as_nothing(world: LogWorld) -> None:
    """A range without any committed record counts as held, and is not read again."""
    world.create()
    producer = world.transactional()
    producer.begin_transaction()
    world.write(producer, ("a", event(1)))
    producer.flush()
    producer.abort_transaction()
    until_decided(world.bootstrap, world.name)
    first = world.extend()
    assert ([], ((0, 2),)) == (world.held(first), first.index.held(0))
    assert first.index == world.extend().index


def test_uncommitted_records_are_held_only_where_asked_for(world: LogWorld) -> None:
    """What a group of read_uncommitted sees, aborted and open transactions included, has a history of its own."""
    world.create()
    producer = world.transactional()
    for version, finish in enumerate((producer.abort_transaction, producer.commit_transaction, lambda: None)):
        producer.begin_transaction()
        world.write(producer, ("a", event(version)))
        producer.flush()
        finish()
    offsets = [
        [offset for _, offset, _ in world.held(world.extend(isolation=isolation))]
        for isolation in ("read_uncommitted", "read_committed", "read_uncommitted")
    ]
    producer.abort_transaction()
    assert [[0, 2, 4], [2], [0, 2, 4]] == offsets


def test_a_log_full_of_gaps_is_read_to_the_same_offsets(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ways to read give the same, which is what a consumer finds."""
    world.create()
    producer = world.transactional()
    for number in range(31):
        producer.begin_transaction()
        told = [("event-id", f"e-{number}")]
        world.write(producer, (f"k{number}", event(number)), (None, None), headers=told)
        producer.flush()  # what was not sent would leave no gap when it is aborted
        (producer.commit_transaction if number % 3 else producer.abort_transaction)()
    until_decided(world.bootstrap, world.name)
    looks = by_librdkafka.has_many_gaps
    assert not looks(world.cluster.resolve(), world.name, {0: (0, 90)}, "read_committed")
    monkeypatch.setattr(by_librdkafka, "_WORTH_A_LOOK", 10)
    assert looks(world.cluster.resolve(), world.name, {0: (0, 90)}, "read_committed")
    upto = {0: 61, 1: 0}
    found = []
    for way in WAYS:
        read_by(way, monkeypatch)
        history = world.extend(upto, all_headers=True)
        found.append(sorted(map(repr, world.rows(history))))
        assert [each for each in world.consumed() if each[1] < 61] == world.held(history)
        shutil.rmtree(history.home.folder)
    assert found[0] == found[1] == found[2]


def test_compaction_takes_nothing_that_is_held(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """What compaction removed later stays in a history; a later one holds what is left, in all ways to read."""
    world.create(1, **{"segment.ms": "50", "min.cleanable.dirty.ratio": "0.01"})
    world.produce(*((f"k{i % 5}", event(i)) for i in range(40)))
    world.produce(("k0", None))
    whole = world.consumed()
    earlier = world.extend()
    world.configure(cleanup_policy="compact")
    rolls = datetime.now(UTC) + timedelta(milliseconds=100)
    until(lambda: datetime.now(UTC) > rolls)
    world.produce(("last", event(0)))
    until(lambda: [*range(36, 42)] == [offset for _, offset, _ in world.consumed()])
    left = world.consumed()
    earlier = world.extend()
    assert (whole + left[-1:], ()) == (world.held(earlier), earlier.index.expired)
    for way, locator in zip(WAYS, ("$.id", "$.name", "$.version.id"), strict=True):
        read_by(way, monkeypatch)
        world.options = {"version": locator}
        later = world.extend()
        assert (left, ((0, 42),)) == (world.held(later), later.index.held(0))


def test_what_has_been_read_is_not_held(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers that Spark would keep hold megabytes each: of a topic with many partitions, a heap full."""
    read_by("by Spark's source", monkeypatch)
    world.create(partitions=24)
    for partition in range(24):
        world.produce(("k", event(1)), partition=partition)
    assert 24 == len(world.rows(world.extend()))
    (spark,) = [each for each in psutil.Process().children() if "SparkSubmit" in " ".join(each.cmdline())]
    broker = int(world.bootstrap.rpartition(":")[2])
    assert len([each for each in spark.net_connections() if broker in each.raddr]) <= 8
