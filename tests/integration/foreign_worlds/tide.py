"""A world that never stands still: rows change, are published after that, and a consumer works in batches."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer
from psycopg2.extras import execute_batch

from reconcile.lab.process import wait_until
from reconcile.lab.services.database import connect
from tests.integration.foreign_worlds.servers import Servers
from tests.integration.foreign_worlds.world import Row, Table, Topic, World, taking

TIDE = """
version: 1
aggregate: tide
source: {store: origin, table: tide.buoy, id: id, version: version}
topic: {cluster: main, name: foreign.tide, version: $.version}
consumers:
  - name: chart
    group: tide.chart
    isolation: read_committed
    store: copies
    table: tide.chart
    id: buoy
    fields: [{name: level, source: level, consumer: level, event: $.level}]
    failure: {policy: ignore, ledger: {table: tide.chart_ledger, partition: part, offset: pos, at: noted}}
    settle: {timeout: 2s, confirm_after: 3s}
"""
POOL = """
version: 1
aggregate: pool
source: {store: origin, table: pool.basin, id: id}
topic: {cluster: main, name: foreign.pool, state: patch}
consumers:
  - name: sums
    group: pool.sums
    isolation: read_committed
    store: copies
    table: pool.sums
    id: basin
    fields: [{name: level, source: level, consumer: level, event: cast($.rise as bigint), apply: add}]
    settle: {timeout: 2s, confirm_after: 3s}
"""
_BATCH = 50
_EVERY = 0.05
_AT_ONCE = 10
"""So many changes every so many seconds: 200 in a second."""


def tide() -> World:
    """Whole states with versions, and a ledger."""
    world = World(
        "tide",
        TIDE,
        Table("buoy", "id text primary key, version int, level bigint"),
        Topic("foreign.tide", 4),
    )
    world.copy(
        "chart",
        "buoy text primary key, level bigint",
        taking(buoy=lambda row: row["id"], level=lambda row: row["level"]),
        "part int, pos bigint, noted timestamptz",
        entry=lambda record, at: {"part": record.partition, "pos": record.offset, "noted": at},
    )
    for number in range(200):
        world.change(f"buoy {number}", level=number)
    return world


def pool() -> World:
    """Sums over changes that carry neither a version nor an id."""
    world = World(
        "pool",
        POOL,
        Table("basin", "id text primary key, level bigint"),
        Topic("foreign.pool", 4),
        value=lambda row: {"rise": row["level"]},
        version=None,
    )
    fold = taking(basin=lambda row: row["id"], level=lambda row: row["level"])
    world.copy("sums", "basin text primary key, level bigint", fold)
    for number in range(200):
        world.change(f"basin {number}", level=number)
    return world


@contextmanager
def flowing(servers: Servers, *worlds: World) -> Iterator[list[int]]:
    """Let worlds change during the block; give how many changes each has seen."""
    done, stop = [0] * len(worlds), threading.Event()
    failed: list[BaseException] = []

    def guarded(work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            failed.append(error)
            raise

    writers, readers = [], []
    for number, world in enumerate(worlds):
        writers.append(threading.Thread(target=guarded, args=(_write, servers, world, stop, done, number)))
        readers.append(threading.Thread(target=guarded, args=(_consume, servers, world, stop)))
    for thread in (*readers, *writers):
        thread.start()
    try:
        wait_until(lambda: all(count > _BATCH for count in done) or bool(failed), "nothing flows", 60)
        yield done
    finally:
        stop.set()
        for thread in (*writers, *readers):
            thread.join()
    assert [] == failed


def _write(servers: Servers, world: World, stop: threading.Event, done: list[int], number: int) -> None:
    """Change rows one by one, and publish each change when it has been committed."""
    chance = random.Random(world.name)  # noqa: S311
    names = list(world.source.rows)
    producer = Producer({"bootstrap.servers": servers.lab.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    table = f"{world.name}.{world.source.name}"
    with closing(connect(servers.url("origin"))) as session, session.cursor() as cursor:
        while not stop.wait(_EVERY):
            for _ in range(_AT_ONCE):
                name, rise = chance.choice(names), chance.randrange(1, 1000)
                row = _raised(cursor, table, name, rise, versioned=world.version is not None)
                session.commit()
                key = world.key(name)
                producer.produce(
                    world.topic.name,
                    key=key,
                    value=json.dumps(row if world.version else {"rise": rise}),
                    partition=world.topic.home(key),
                )
                producer.poll(0)
                done[number] += 1
    assert not producer.flush(30)


def _raised(cursor: Any, table: str, name: str, rise: int, *, versioned: bool) -> Row:
    more = ", version = version + 1" if versioned else ""
    version = "version" if versioned else "0"
    cursor.execute(
        f"update {table} set level = level + %s{more} where id = %s returning level, {version}", (rise, name)
    )
    level, number = cursor.fetchone()
    return {"id": name, "level": level, "version": number}


def _consume(servers: Servers, world: World, stop: threading.Event) -> None:
    """Apply a batch in one transaction, and commit its offsets after that."""
    (copy,) = world.copies.values()
    table, name = f"{world.name}.{copy.table.name}", next(iter(copy.table.columns.split()))
    settings = {
        "bootstrap.servers": servers.lab.bootstrap,
        "group.id": copy.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }
    said = f"update {table} set level = {'' if world.version else 'level + '}%s where {name} = %s"
    noted = f"insert into {world.name}.{copy.name}_ledger values (%s, %s, now())"
    with ExitStack() as stack:
        session = stack.enter_context(closing(connect(servers.url("copies"))))
        cursor = stack.enter_context(session.cursor())
        consumer = stack.enter_context(closing(Consumer(settings)))
        consumer.subscribe([world.topic.name])
        while True:
            found = [record for record in consumer.consume(_BATCH, 0.2) if record.error() is None]
            if not found and stop.is_set():
                return
            events = [(json.loads(record.value() or b"{}"), record) for record in found]
            member = "level" if world.version else "rise"
            execute_batch(cursor, said, [(told[member], (record.key() or b"").decode()) for told, record in events])
            if copy.ledger is not None:
                places = [(record.partition(), record.offset()) for record in found]
                execute_batch(cursor, noted, places)
            session.commit()
            if found:
                consumer.commit(asynchronous=False)
