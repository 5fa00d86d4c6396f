"""Worlds whose values are written otherwise: Avro, and the envelope of Debezium."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

from tests.integration.foreign_worlds.world import Record, Row, Table, Topic, World, taking

WAGONS = """
version: 1
aggregate: wagons
source: {store: origin, table: wagons.wagon, id: id, version: changed_at}
topic:
  cluster: main
  name: foreign.wagons
  format: avro
  schema: {file: wagon.avsc}
  version: $.rev
consumers:
  - name: yard
    group: wagons.yard
    isolation: read_committed
    store: copies
    table: wagons.yard
    id: wagon
    version: rev
    fields:
      - {name: load, source: load, consumer: load, event: $.load}
      - {name: owner, source: owner, consumer: owner, event: $.owner.name}
      - {name: due, source: due, consumer: due, event: $.due}
    settle: {timeout: 0s, confirm_after: 0s}
"""
WAGON = {
    "type": "record",
    "name": "Wagon",
    "fields": [
        {"name": "rev", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "load", "type": {"type": "bytes", "logicalType": "decimal", "precision": 14, "scale": 4}},
        {
            "name": "owner",
            "type": ["null", {"type": "record", "name": "Owner", "fields": [{"name": "name", "type": "string"}]}],
        },
        {"name": "due", "type": ["null", {"type": "int", "logicalType": "date"}]},
    ],
}
CARS = """
version: 1
aggregate: cars
source: {store: origin, table: cars.car, id: id, version: version}
topic:
  cluster: main
  name: foreign.cars
  format: debezium-json
  key: {type: json}
  version: $.version
  type: $.__op
consumers:
  - name: lot
    group: cars.lot
    isolation: read_committed
    store: copies
    table: cars.lot
    id: car
    fields:
      - {name: plate, source: plate, consumer: plate, event: $.plate}
      - {name: seats, source: seats, consumer: seats, event: cast($.seats as int)}
    failure: {policy: ignore, ledger: {table: cars.lot_ledger, event_id: event, at: noted}}
    settle: {timeout: 0s, confirm_after: 0s}
"""


def wagons() -> World:
    """Avro by a schema file, framed and bare; versions are instants."""
    from fastavro import parse_schema, schemaless_writer

    schema = parse_schema(WAGON)

    def value(row: Row) -> bytes:
        stream = BytesIO(b"\0\0\0\0\7" if row["id"].endswith("3") else b"")
        stream.seek(0, 2)
        told = {"rev": row["changed_at"], "load": row["load"], "owner": row["owner"] and {"name": row["owner"]}}
        schemaless_writer(stream, schema, {**told, "due": row["due"]})
        return stream.getvalue()

    world = World(
        "wagons",
        WAGONS,
        Table("wagon", "id text, changed_at timestamptz, load numeric(14,4), owner text, due date"),
        Topic("foreign.wagons", 4, "crc32"),
        value=value,
        version="changed_at",
        instants=True,
    )
    world.files["wagon.avsc"] = lambda path: Path(path).write_text(json.dumps(WAGON))
    yard = world.copy(
        "yard",
        "wagon text, rev timestamp, load numeric, owner text, due timestamp",
        taking(
            wagon=lambda row: row["id"],
            rev=lambda row: row["changed_at"].astimezone(UTC).replace(tzinfo=None),
            load=lambda row: row["load"],
            owner=lambda row: row["owner"],
            due=lambda row: row["due"],
        ),
    )
    names = [f"wagon {number}" for number in range(150)]

    def fields() -> Row:
        draw = world.random
        day = datetime(2026, 1, 1, tzinfo=UTC).date() + timedelta(days=draw.randrange(300))
        owner = draw.choice([None, "Öbb", "Sncf"])
        return {"load": Decimal(draw.randrange(10**8)) / 10000, "owner": owner, "due": draw.choice([None, day])}

    for _ in range(2):
        for name in names:
            world.change(name, **fields())
    skipped, never, broken, foreign = names[:4]
    world.change(skipped, to=(), load=Decimal("0.0001"))
    world.expect("yard", skipped, "changed", "skipped", ("load",))
    world.now += timedelta(minutes=1)
    world.write(never, load=Decimal("77.0000"))
    world.expect("yard", never, "changed", "never_published", ("load",), certain=True)
    world.now += timedelta(minutes=1)
    world.write(broken, load=Decimal("78.0000"))
    world.put(world.key(broken), b"\x02\x01no avro")
    world.expect("yard", broken, "changed", "schema_violation", ("load",), certain=True)
    yard.table.rows[foreign]["load"] += 1
    world.expect("yard", foreign, "changed", "foreign_write", ("load",), certain=True)
    world.put(world.key(names[5]), b"\0\0\0\0\7")
    world.bury(names[6])
    return world


def cars() -> World:
    """Debezium's envelope, with and without its schema; each deletion is told twice."""

    def value(row: Row) -> Any:
        told = {name: each for name, each in row.items() if not name.startswith("_")}
        after = None if row.get("_op") == "d" else told
        source = {"connector": "postgresql", "name": "cars", "lsn": row["_lsn"], "txId": 7, "snapshot": "false"}
        envelope = {"before": None, "after": after, "op": row.get("_op", "u"), "source": source}
        return {"schema": {"type": "struct"}, "payload": envelope} if int(row["id"]) % 2 else envelope

    world = World(
        "cars",
        CARS,
        Table("car", "id int, version int, plate text, seats int"),
        Topic("foreign.cars", 3),
        identity=lambda name: {"id": int(name)},
        value=value,
    )

    def fold(_: Row | None, record: Record) -> Row | None:
        row = record.said
        if row is None or row.get("_op") == "d":
            return None
        return {"car": row["id"], "plate": row["plate"], "seats": row["seats"]}

    def entry(record: Record, at: datetime) -> Row:
        return {"event": f"postgresql:cars:{(record.said or {})['_lsn']}:7", "noted": at}

    lot = world.copy(
        "lot", "car bigint, plate text, seats smallint", fold, "event text, noted timestamptz", entry=entry
    )
    lsn = iter(range(1_000_000, 9_000_000, 8))

    def change(name: str, apply: bool = True, **fields: Any) -> Record:
        row = world.write(name, **fields)
        record = world.publish(name, {**row, "_lsn": next(lsn)})
        return world.applied(record, name) if apply else record

    def remove(name: str, apply: bool = True) -> None:
        row = world.source.rows.pop(name)
        record = world.publish(name, {**row, "_op": "d", "_lsn": next(lsn)})
        world.put(world.key(name), None)
        if apply:
            lot.apply(record, name)

    names = [str(number) for number in range(1, 151)]
    for _ in range(2):
        for name in names:
            change(name, plate=f"P{world.random.randrange(10**6)}", seats=world.random.randrange(2, 9))
    skipped, kept, again, gone, foreign, unread, overtaken = names[:7]
    change(skipped, apply=False, plate="lost")
    world.expect("lot", skipped, "changed", "skipped", ("plate",), certain=True)
    remove(kept, apply=False)
    world.expect("lot", kept, "orphan", "skipped", certain=True)
    for name in (again, gone):
        remove(name)
    change(again, plate="again", seats=2)
    lot.table.rows[foreign]["seats"] = 1
    world.expect("lot", foreign, "changed", "foreign_write", ("seats",), certain=True)
    world.write(unread, seats=7, plate="unread")
    world.put(world.key(unread), {"payload": {"op": "u", "after": "gibberish"}})
    world.expect("lot", unread, "changed", "schema_violation", ("plate", "seats"), certain=True)
    change(overtaken, apply=False, plate="overtaken")
    change(overtaken, plate="newer")
    world.expect("lot", overtaken, "latent", "skipped", certain=True)
    return world
