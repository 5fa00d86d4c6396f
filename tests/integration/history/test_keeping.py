"""The log history keeps one truth, whoever extends it, is killed at it, or gives some of it up."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from reconcile.errors import UnreachableError
from reconcile.gather.log import segment
from reconcile.gather.log.history import History
from reconcile.kafka.errors import TopicMissingError
from tests.integration.history.log_world import LogWorld, event
from tests.integration.worlds import until

KILLED = """
import sys, time
from pyspark.sql import functions as f
from reconcile.settings.connections import ClusterConnection
from reconcile.contract.model import Topic
from reconcile.workspace.filesystem import LocalFileSystem
from reconcile.gather.log import history, records, store as home
from reconcile.settings.settings import Settings, Spark
from reconcile.spark.session import session

stage, bootstrap, root, name, ends = sys.argv[1:]
stored = records.Derivation.stored
if stage == "writing":
    stuck = lambda partition: time.sleep(600 * partition) or True
    records.Derivation.stored = lambda *given: stored(*given).where(f.udf(stuck, "boolean")("partition"))
if stage == "written":
    home.Home.publish = lambda *_: time.sleep(600)
topic = Topic.model_validate({"cluster": "main", "name": name, "version": "$.version", "event_id": "header:event-id"})
with session(Settings(spark=Spark(master="local[2]")), "killed") as spark:
    store = home.HistoryStore(LocalFileSystem(), root)
    until = dict(enumerate(map(int, ends.split(","))))
    history.extend(spark, topic, ClusterConnection.model_validate({"bootstrap": bootstrap}), until, store)
"""
REACHED = {"writing": "_temporary/**/*.parquet", "written": "_SUCCESS"}


def segments(history: History) -> list[str]:
    """The folders of segments that there are, whether the index names them or not."""
    return sorted(each.name for each in Path(history.home.path("")).iterdir())


@pytest.mark.parametrize("stage", list(REACHED))
def test_a_killed_extension_leaves_nothing_half_read(world: LogWorld, stage: str) -> None:
    """What an extension wrote, or half wrote, before it was killed is not seen, and the next one removes it."""
    world.create()
    world.produce(*(("k", event(i)) for i in range(6)))
    world.produce(("k", event(9)), partition=1)
    first = world.extend({0: 2, 1: 0})
    command = [sys.executable, "-c", KILLED, stage, world.bootstrap, world.store.root, world.name, "6,1"]
    (known,) = segments(first)
    found = Path(first.home.path("")).glob
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            until(lambda: any(known not in each.parts for each in found(f"*/{REACHED[stage]}")), seconds=180)
        finally:
            killed = psutil.Process(process.pid)
            for each in (*killed.children(recursive=True), killed):
                with suppress(psutil.NoSuchProcess):  # Spark's ends by itself once its parent is gone
                    each.kill()
    assert (2, first.index) == (len(segments(first)), first.home.load())
    history = world.extend()
    assert world.consumed() == world.held(history)
    assert sorted(segment.name for segment in history.index.segments) == segments(history)


def test_an_extension_that_comes_second_reads_what_is_left(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another extension was faster, what was read is dropped, and found there."""
    world.create()
    world.produce(*(("k", event(i)) for i in range(6)))
    write, others = segment.write_segment, [lambda: world.extend({0: 4, 1: 0})]

    def overtaken(*arguments: Any) -> Any:
        segment = write(*arguments)
        if others:
            others.pop()()
        return segment

    monkeypatch.setattr("reconcile.gather.log.history.write_segment", overtaken)
    history = world.extend()
    assert world.consumed() == world.held(history)
    assert [4, 2] == [segment.rows for segment in history.index.segments]
    assert sorted(segment.name for segment in history.index.segments) == segments(history)


def test_what_a_faster_extension_removed_is_read_again(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another extension came first and cleaned up before we looked at what we wrote, nothing fails."""
    world.create()
    world.produce(*(("k", event(i)) for i in range(6)))
    look, others = segment._segment, [lambda: world.extend({0: 4, 1: 0})]

    def overtaken(*arguments: Any) -> Any:
        if others:
            others.pop()()
        return look(*arguments)

    monkeypatch.setattr(segment, "_segment", overtaken)
    history = world.extend()
    assert world.consumed() == world.held(history)
    assert [4, 2] == [segment.rows for segment in history.index.segments]


def test_extensions_at_once_keep_one_truth(world: LogWorld) -> None:
    """However many extend a history at once, each sees every record once, and the same index."""
    world.create()
    world.produce(*(("k", event(i)) for i in range(200)))
    world.produce(*(("k", event(i)) for i in range(100)), partition=1)
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: world.extend(), range(3)))
    assert [world.consumed()] * 3 == [world.held(each) for each in found]
    assert [found[0].home.load()] * 3 == [each.index for each in found]


def test_old_segments_can_be_given_up(world: LogWorld) -> None:
    """Pruning leaves what is younger, says what it gave up, and does not read it again."""
    world.create()
    world.produce(("k", event(1)))
    world.extend()
    between = datetime.now(UTC) + timedelta(milliseconds=1)
    until(lambda: datetime.now(UTC) > between)
    world.produce(("k", event(2)))
    history = world.extend().prune(between)
    assert [(0, 0, 1)] == [(lost.partition, lost.start, lost.end) for lost in history.index.pruned if lost.end]
    assert [1] == [offset for _, offset, _ in world.held(history)]
    assert history.index == world.extend().index


def test_a_missing_topic_is_told_with_the_nearest_name(world: LogWorld) -> None:
    """Whoever mistypes a topic is told what it may have meant."""
    world.create()
    other = LogWorld(world.spark, world.bootstrap, world.store, world.name[:-1])
    with pytest.raises(TopicMissingError, match=f'did you mean "{world.name}"'):
        other.extend({0: 0})


def test_a_dead_broker_is_told_within_seconds(world: LogWorld) -> None:
    """A cluster that nobody serves is told before Spark is asked to read it."""
    dead = LogWorld(world.spark, "127.0.0.1:1", world.store, world.name)
    started = time.monotonic()
    with pytest.raises(UnreachableError):
        dead.extend({0: 0})
    assert 60 > time.monotonic() - started
