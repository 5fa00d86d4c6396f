"""Worlds whose log Debezium writes of a Postgres, and whose copy its JDBC sink keeps: as it is, and with rows alone.

The sink parks what its converter or its table does not take, and commits nothing behind the last record that it kept.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.integration.foreign_worlds.world import Record, Row, Table, Topic, World, compact, text

CAPTURED = """
version: 1
aggregate: {world}
source: {{store: origin, table: {world}.post, id: id}}
topic:
  cluster: main
  name: foreign.{world}
  format: {format}
  key: {{type: json}}
consumers:
  - name: sink
    group: connect-{world}
    store: copies
    table: {world}.sink
    id: id
    fields:
      - {{name: name, source: name, consumer: name, event: "$.{row}name"}}
      - name: price
        source: price
        consumer: price
        event: cast(conv(hex(unbase64($.{row}price)), 16, 10) as decimal(12,2)) / 100
      - {{name: born, source: born, consumer: born, event: "date_add(date'1970-01-01', cast($.{row}born as int))"}}
      - {{name: seen, source: seen, consumer: seen, event: "timestamp_micros(cast($.{row}seen as bigint))"}}
      - {{name: body, source: body, consumer: body, event: "$.{row}body"}}
      - {{name: data, source: data, consumer: data, event: "unbase64($.{row}data)"}}
      - {{name: code, source: code, consumer: code, event: "$.{row}code"}}
      - {{name: title, source: title, consumer: title, event: "$.{row}title"}}
    failure: {{policy: retry-then-dead-letter, dead_letter: foreign.{world}.dlq}}
    settle: {{timeout: 0s, confirm_after: 0s}}
"""
COLUMNS = "name text, price numeric(10,2), born date, seen timestamptz, body text, data bytea"
PLACEHOLDER = "__debezium_unavailable_value"
LARGE = ("body", "data")
UNHELD = "source and log agree, the copy cannot hold it"


def captured() -> World:
    """Debezium's envelope in the topic: a deletion is an event and a tombstone."""
    return _world("captured", envelope=True)


def flattened() -> World:
    """The row alone, as Debezium's unwrapping leaves it: a deletion is a tombstone."""
    return _world("flattened", envelope=False)


def _world(name: str, envelope: bool) -> World:
    world = World(
        name,
        CAPTURED.format(world=name, format="debezium-json" if envelope else "json", row="" if envelope else "payload."),
        Table("post", f"id bigint, {COLUMNS}, code text, title text"),
        Topic(f"foreign.{name}", 3),
        key=lambda post: compact({"schema": {"type": "struct"}, "payload": {"id": int(post)}}),
        identity=lambda post: {"id": int(post)},
        version=None,
    )
    sink = world.copy("sink", f"id bigint primary key, {COLUMNS}, code integer, title varchar(20)", _upserted)
    sink.group = f"connect-{name}"
    dead = world.parking[f"foreign.{name}.dlq"] = Topic(f"foreign.{name}.dlq", 1)
    draw, positions = world.random, iter(range(10**8, 10**9, 100))

    def told(post: str, op: str, apply: bool = True, literally: bool = False) -> Record:
        """Publish what the source says now; large values that did not change are left out."""
        row = world.source.rows.get(post)
        former = before.get(post)
        same = [each for each in LARGE if op == "u" and former and row and former[each] == row[each]]
        after = None if row is None else _logged(row, same)
        before[post] = dict(row) if row else {}
        said = None if row is None else {**{each: row[each] for each in row if literally or each not in same}}
        if literally and said is not None:
            said |= {each: PLACEHOLDER if each == "body" else PLACEHOLDER.encode() for each in same}
        value: Any = {"schema": {"type": "struct"}, "payload": after}
        if envelope:
            source = {"connector": "postgresql", "name": "app", "snapshot": "false", "lsn": next(positions), "txId": 1}
            value["payload"] = {"before": None, "after": after, "source": source, "op": op}
        record = world.put(world.key(post), value, said=said)
        return world.applied(record, post) if apply else record

    before: dict[str, Row] = {}

    def created(post: str, apply: bool = True) -> Record:
        world.write(post, **_fields(draw), body=f"{post} {'long ' * 50}", data=bytes(draw.randbytes(40)))
        return told(post, "c", apply)

    def changed(post: str, apply: bool = True, literally: bool = False, **fields: Any) -> Record:
        world.write(post, **(fields or {**_fields(draw)}))
        return told(post, "u", apply, literally)

    def deleted(post: str, apply: bool = True) -> tuple[Record, ...]:
        """Publish a deletion: the records that make it."""
        world.source.rows.pop(post)
        events = (told(post, "d", apply),) if envelope else ()
        tombstone = world.put(world.key(post), None)
        return (*events, world.applied(tombstone, post) if apply else tombstone)

    def parked(record: Record, stage: str, error: str) -> None:
        said = {"topic": record.topic, "partition": record.partition, "offset": record.offset, "stage": stage}
        said |= {"exception.class.name": error, "connector.name": "sink"}
        headers = [(f"__connect.errors.{each}", text(value)) for each, value in said.items()]
        world.put(record.key, record.value, headers, dead)

    posts = [str(1000 + number) for number in range(60)]
    for post in posts:
        created(post)
    for _ in range(3):
        for post in posts:
            changed(post)
    left = iter(posts)
    # What the group has committed past.
    lost, stale, took, behind, unheld, gone = (next(left) for _ in range(6))
    changed(lost, apply=False, name="never applied")
    world.expect("sink", lost, "changed", "skipped", ("name",))
    changed(stale, apply=False, body="a new body")
    world.expect("sink", stale, "changed", "skipped", ("body",))
    changed(took, literally=True)
    world.expect("sink", took, "changed", "payload_divergence", LARGE, certain=True)
    changed(behind, literally=True)
    changed(behind, apply=False, name="never applied")
    world.expect("sink", behind, "changed", "skipped", ("name", *LARGE))
    parked(changed(unheld, apply=False, code="n/a"), "TASK_PUT", "java.sql.SQLException")
    world.expect("sink", unheld, "changed", "dead_lettered", ("code",), certain=True)
    deleted(gone)
    for post in posts:
        if post in world.source.rows and post not in (lost, stale, took, behind, unheld):
            changed(post)
    # The tail, behind which nothing follows: what is parked here is not committed past.
    sink.committed = dict(world.topic.ends())
    late, again, dropped, number, long = (next(left) for _ in range(5))
    parked(
        changed(late, apply=False, name="parked"), "VALUE_CONVERTER", "org.apache.kafka.connect.errors.DataException"
    )
    world.expect("sink", late, "changed", "dead_lettered", ("name",), certain=True)
    for _ in range(2):
        parked(changed(again, apply=False, name=f"parked {draw.random()}"), "TRANSFORMATION", "java.lang.Error")
    world.expect("sink", again, "changed", "dead_lettered", ("name",), certain=True)
    new = "9000"
    parked(created(new, apply=False), "VALUE_CONVERTER", "org.apache.kafka.connect.errors.DataException")
    world.expect("sink", new, "missing", "dead_lettered", certain=True)
    parked(deleted(dropped, apply=False)[0], "TRANSFORMATION", "java.lang.Error")  # the tombstone behind it is dropped
    world.expect("sink", dropped, "orphan", "dead_lettered", certain=True)
    parked(changed(number, apply=False, code="n/a"), "TASK_PUT", "java.sql.SQLException")
    world.expect("sink", number, "changed", "dead_lettered", ("code",), certain=True)
    parked(changed(long, apply=False, title="t" * 21), "TASK_PUT", "java.sql.SQLException")
    world.expect("sink", long, "changed", "dead_lettered", ("title",), certain=True)
    coming = next(left)
    changed(coming, apply=False, name="not read yet")
    world.expect("sink", coming, "changed", "in_flight", ("name",), status="in_flight", certain=True)
    return world


def _fields(draw: Any) -> Row:
    return {
        "name": f"n{draw.randrange(10**6)}",
        "price": Decimal(draw.randrange(10**6)) / 100,
        "born": date(2000, 1, 1) + timedelta(draw.randrange(9000)),
        "seen": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw.randrange(10**12)),
        "code": str(draw.randrange(100)),
        "title": f"t{draw.randrange(10**6)}",
    }


def _logged(row: Row, left_out: list[str]) -> Row:
    """Give a row as Debezium writes it by default: decimals as bytes, days and microseconds since 1970."""
    unscaled = int(row["price"] * 100)
    written = {
        **row,
        "price": b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big")).decode(),
        "born": (row["born"] - date(1970, 1, 1)).days,
        "seen": (row["seen"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1),
        "data": b64encode(row["data"]).decode(),
    }
    coded = {"body": PLACEHOLDER, "data": b64encode(PLACEHOLDER.encode()).decode()}
    return {**written, **{each: coded[each] for each in left_out}}


def _upserted(former: Row | None, record: Record) -> Row | None:
    if record.said is None:
        return None
    return {**(former or {}), **record.said, "code": int(record.said["code"])}
