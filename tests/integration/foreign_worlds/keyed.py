"""Worlds whose keys are not text: big-endian numbers, and the bytes of a uuid."""

from __future__ import annotations

import json
import struct
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from tests.integration.foreign_worlds.world import Record, Row, Table, Topic, World

METERS = """
version: 1
aggregate: meters
source: {store: origin, table: meters.meter, id: id, version: v}
topic:
  cluster: main
  name: foreign.meters
  key: {type: int64}
  state: patch
  version: $.v
consumers:
  - name: bills
    group: meters.bills
    isolation: read_committed
    store: copies
    table: meters.bills
    id: meter
    fields:
      - {name: place, source: place, consumer: place, event: $.place}
      - name: total
        source: total
        consumer: total
        event: cast($.delta as decimal(12,4))
        apply: add
        tolerance: 0.01
      - {name: kind, source: kind, consumer: kind}
    failure:
      policy: stash
      stash:
        {table: meters.problems, id: meter, partition: part, offset: pos, resolved: done_at is not null, at: stashed_at}
      ledger: {table: meters.bills_ledger, partition: part, offset: pos, at: noted}
    settle: {timeout: 0s, confirm_after: 0s}
"""
PARTS = """
version: 1
aggregate: parts
source: {store: origin, table: parts.part, id: id}
topic:
  cluster: main
  name: foreign.parts
  key: {type: uuid-bytes}
consumers:
  - name: stock
    group: parts.stock
    isolation: read_committed
    store: copies
    table: parts.stock
    id: part
    fields:
      - {name: price, source: price, consumer: price_text::numeric, event: $.price}
      - {name: made, source: made, consumer: made, event: $.made}
      - {name: weight, source: weight, consumer: weight, event: $.weight, tolerance: 0.000001}
      - {name: active, source: active, consumer: active, event: $.active}
      - {name: specs, source: specs, consumer: specs, event: $.specs}
      - {name: maker, source: maker, consumer: maker_text, event: $.maker}
      - {name: due, source: due, consumer: due, event: $.due}
      - {name: tags, source: tags, consumer: tags}
      - {name: remark, source: remark, consumer: remark, event: $.remark}
    settle: {timeout: 0s, confirm_after: 0s}
"""


def meters() -> World:
    """Sums over a patch topic, numbers as keys, a ledger of offsets alone, a table of problems."""

    def fold(former: Row | None, record: Record) -> Row | None:
        said = record.said
        if said is None:
            return None
        row = dict(former or {"meter": said["id"], "place": None, "total": Decimal(0), "kind": "gas"})
        if "place" in said:
            row["place"] = said["place"]
        row["total"] += Decimal(said.get("delta", "0"))
        return row

    world = World(
        "meters",
        METERS,
        Table("meter", "id bigint, v int, place text, total numeric(12,4), kind text"),
        Topic("foreign.meters", 4, "fnv1a"),
        key=lambda name: struct.pack(">q", int(name)),
        identity=lambda name: {"id": int(name), "place": None, "total": Decimal(0), "kind": "gas"},
        value=lambda said: {name: each for name, each in said.items() if name != "id"},
        version="v",
    )
    copy = world.copy(
        "bills",
        "meter text, place text, total numeric, kind text",
        fold,
        "part int, pos bigint, noted timestamptz",
        entry=lambda record, at: {"part": record.partition, "pos": record.offset, "noted": at},
    )
    problems = Table("problems", "meter text, part int, pos bigint, stashed_at timestamptz, done_at timestamptz")
    world.extra.append(("copies", problems))

    def told(name: str, apply: bool = True, **said: Any) -> Record:
        row = world.source.rows.get(name) or world.identity(name)
        fields: Row = {"place": said["place"]} if "place" in said else {}
        fields["total"] = row["total"] + Decimal(said.get("delta", "0"))
        written = world.write(name, **fields)
        record = world.publish(name, {"id": written["id"], "v": written["v"], **said})
        return world.applied(record, name) if apply else record

    names = [str(n * 7919 - 400_000) for n in range(180)]
    for name in names:
        told(name, place=f"p{name}", delta="10.5000")
    for _ in range(2):
        for name in names:
            told(name, delta=f"{world.random.randrange(1, 999)}.{world.random.randrange(100, 9999):04d}")
    lost, doubled, stale, stashed, done, near, nulled, untold, both, lone = names[:10]
    told(lost, apply=False, delta="77.7700")
    world.expect("bills", lost, "changed", "skipped", ("total",), certain=True)
    copy.apply(told(doubled, delta="33.1000"), doubled, world.now + timedelta(seconds=3))
    world.expect("bills", doubled, "changed", "duplicate_applied", ("total",), certain=True)
    former = told(stale, apply=False, place="former")
    copy.apply(told(stale, place="latter"), stale)
    copy.apply(former, stale, world.now + timedelta(seconds=3))
    world.expect("bills", stale, "changed", "out_of_order", ("place",), certain=True)
    for name, finished in ((stashed, None), (done, world.now)):
        record = told(name, apply=finished is not None, place="stashed")
        place = {"part": record.partition, "pos": record.offset}
        problems.loose.append({"meter": name, **place, "stashed_at": record.at, "done_at": finished})
    world.expect("bills", stashed, "changed", "stashed", ("place",), certain=True)
    copy.table.rows[near]["total"] += Decimal("0.0100")
    told(nulled, place=None)
    copy.table.rows[untold]["kind"] = "water"
    world.expect("bills", untold, "changed", "foreign_write", ("kind",))
    told(both, apply=False, place="new", delta="5.0000")
    world.expect("bills", both, "changed", "skipped", ("place", "total"), certain=True)
    copy.table.rows[lone]["total"] += Decimal("1000.0000")
    world.expect("bills", lone, "changed", "foreign_write", ("total",), certain=True)
    for ghost in ("x17", "007"):
        copy.table.loose.append({"meter": ghost, "place": "ghost", "total": 1, "kind": "gas"})
        world.expect("bills", ghost, "orphan", "phantom", certain=True)
    world.put(b"short", {"v": 1, "place": "unreadable key"}, partition=2)
    world.put(None, {"v": 1, "place": "no key"}, partition=2)
    for record in world.topic.records[-2:]:
        assert copy.ledger is not None
        copy.ledger.loose.append({"part": record.partition, "pos": record.offset, "noted": record.at})
    return world


def parts() -> World:
    """Every type, without versions and without a ledger, under the bytes of uuids."""

    def fold(_: Row | None, record: Record) -> Row | None:
        row = record.said
        if row is None:
            return None
        kept = {name: row[name] for name in ("weight", "active", "specs", "due", "tags", "remark")}
        made = row["made"].replace("+02:00", "")
        at = datetime.fromisoformat(made) - timedelta(hours=2)
        return {"part": row["id"], "price_text": row["price"], "made": at, "maker_text": row["maker"], **kept}

    def value(row: Row) -> Any:
        told = {name: each for name, each in row.items() if name != "tags"}
        return {**told, "specs": json.loads(row["specs"])}

    world = World(
        "parts",
        PARTS,
        Table(
            "part",
            "id uuid, price numeric(12,4), made timestamptz, weight double precision, active boolean, specs jsonb,"
            " maker uuid, due date, tags text[], remark text",
        ),
        Topic("foreign.parts", 6),
        key=lambda name: UUID(name).bytes,
        value=value,
        version=None,
    )
    copy = world.copy(
        "stock",
        "part uuid, price_text text, made timestamp, weight double precision, active boolean, specs jsonb,"
        " maker_text text, due date, tags text[], remark text",
        fold,
    )
    draw = world.random

    def fields() -> Row:
        minute = draw.randrange(60)
        return {
            "price": f"{draw.randrange(10**6)}.5000",
            "made": f"2026-03-01T12:{minute:02d}:00.{draw.randrange(10**6):06d}+02:00",
            "weight": draw.random() * 10,
            "active": draw.random() < 0.5,
            "specs": json.dumps({"b": [1, 2.50, None], "a": draw.randrange(10**6)}),
            "maker": str(UUID(int=draw.getrandbits(128))),
            "due": f"2027-0{draw.randrange(1, 9)}-11",
            "tags": ["x", f"t{draw.randrange(10**6)}"],
            "remark": draw.choice(["", None, "fine"]),
        }

    names = [str(UUID(int=draw.getrandbits(128))) for _ in range(160)]
    for _ in range(2):
        for name in names:
            world.change(name, **fields())
    other: Row = {
        "price_text": "0.0001",
        "made": "2001-01-01 00:00:00.000001",
        "weight": 99.5,
        "specs": '{"a": -1}',
        "maker_text": str(UUID(int=5)),
        "due": "1999-12-31",
    }
    for number, (column, said) in enumerate(other.items()):
        copy.table.rows[names[number]][column] = said
        told = {"price_text": "price", "maker_text": "maker"}.get(column, column)
        world.expect("stock", names[number], "changed", "foreign_write", (told,), certain=True)
    flag, tags, empty, null, skipped, buried, again, kept, barely, upper = names[10:20]
    copy.table.rows[flag]["active"] = not copy.table.rows[flag]["active"]
    world.expect("stock", flag, "changed", "foreign_write", ("active",), certain=True)
    copy.table.rows[tags]["tags"] = ["x"]
    world.expect("stock", tags, "changed", "foreign_write", ("tags",))
    for name, said, wrong in ((empty, None, ""), (null, "", None)):
        world.change(name, price="7.7700", remark=said)
        copy.table.rows[name]["remark"] = wrong
        world.expect("stock", name, "changed", "foreign_write", ("remark",), certain=True)
    world.change(skipped, to=(), price="42.4200", due="2030-01-01")
    world.expect("stock", skipped, "changed", "skipped", ("price", "due"))
    world.bury(buried)
    world.bury(again)
    world.change(again, **fields())
    world.bury(kept, to=())
    world.expect("stock", kept, "orphan", "skipped")
    copy.table.rows[barely]["weight"] += 1e-9
    copy.table.rows[upper]["price_text"] = copy.table.rows[upper]["price_text"].removesuffix("00")
    copy.table.rows[upper]["maker_text"] = copy.table.rows[upper]["maker_text"].upper()
    world.expect("stock", upper, "changed", "foreign_write", ("maker",), certain=True)
    return world
