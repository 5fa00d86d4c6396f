"""A world of sums: tills whose events say what is added, and whose consumer keeps a ledger and a route of its own."""

from __future__ import annotations

from typing import Any

from tests.integration.foreign_worlds.world import Record, Row, Table, Topic, World, text

TILLS = """
version: 1
aggregate: tills
source: {store: origin, table: tills.till, id: id, version: version}
topic:
  cluster: main
  name: foreign.tills
  state: patch
  version: $.version
  event_id: header:event-id
  type: header:kind
  value: {id: id, version: version, tariff: tariff}
consumers:
  - name: desk
    group: tills.desk
    isolation: read_committed
    store: copies
    table: tills.desk
    id: till
    fields:
      - {name: balance, source: balance, consumer: balance, event: 'cast($.amount as decimal(12,2))', apply: add}
      - {name: tariff, source: tariff, consumer: tariff, event: $.tariff}
    failure:
      policy: retry-then-dead-letter
      dead_letter: foreign.tills.dlq
      ledger: {table: tills.desk_ledger, event_id: event, at: noted}
    settle: {timeout: 0s, confirm_after: 0s}
    repair: {route: {topic: foreign.tills.repair}, max_ratio: 1, min_confidence: possible, compensate: true}
"""
ROUTE = "foreign.tills.repair"
SKIPPED, DOUBLED, EDITED, PARKED, FLYING, UNHEARD = (f"till-{number}" for number in range(6))
COMPENSATED = {SKIPPED: "10.25", DOUBLED: "-7.5", EDITED: "3"}


def fold(row: Row | None, record: Record) -> Row | None:
    """Add the amount, or set the tariff."""
    said = record.said or {}
    kept = row or {"till": said["id"], "balance": 0, "tariff": None}
    return {**kept, "balance": kept["balance"] + said.get("amount", 0), "tariff": said.get("tariff", kept["tariff"])}


def tills() -> World:
    """Sums that are wrong in every way, of which three lack something that can be said."""
    world = World(
        "tills",
        TILLS,
        Table("till", "id text primary key, version int, balance numeric(12,2), tariff text"),
        Topic("foreign.tills", 3),
        headers=lambda row, event_id: [("event-id", text(event_id)), ("kind", text(row["kind"]))],
        value=lambda row: {name: value for name, value in row.items() if name != "kind"},
    )
    desk = world.copy(
        "desk",
        "till text primary key, balance numeric(12,2), tariff text",
        fold,
        "event text primary key, noted timestamptz",
        entry=lambda record, at: {"event": record.event_id, "noted": at},
    )
    world.parking["dead letters"] = letters = Topic("foreign.tills.dlq", 1)

    def changed(name: str, *, hear: bool = True, apply: int = 1, **change: Any) -> Record | None:
        former = world.source.rows.get(name, {"balance": 0, "tariff": None})
        fields = {"balance": former["balance"] + change.get("amount", 0)} | {
            "tariff": change.get("tariff", former["tariff"])
        }
        row = world.write(name, **fields)
        if not hear:
            return None
        kind = "added" if "amount" in change else "set"
        record = world.publish(name, {"id": name, "version": row["version"], "kind": kind, **change})
        for _ in range(apply):
            desk.table.rows[name] = fold(desk.table.rows.get(name), record) or {}
        if apply:
            assert desk.ledger is not None
            desk.ledger.loose.append(desk.entry(record, record.at))
        return record

    names = [f"till-{number}" for number in range(40)]
    for name in names:
        changed(name, tariff="basic")
        changed(name, amount=100)
        changed(name, amount=20.5)
    changed(SKIPPED, amount=10.25, apply=0)
    changed(DOUBLED, amount=7.5, apply=2)
    changed(EDITED, amount=3, apply=0)
    desk.table.rows[EDITED]["tariff"] = "gold"
    parked = changed(PARKED, amount=4, apply=0)
    assert parked is not None
    headers = {
        "topic": b"foreign.tills",
        "partition": parked.partition.to_bytes(4),
        "offset": parked.offset.to_bytes(8),
    }
    origin = [(f"kafka_dlt-original-{name}", value) for name, value in headers.items()]
    world.put(parked.key, parked.value, [*parked.headers, *origin], letters, partition=0)
    changed(UNHEARD, amount=5, hear=False)
    for name in names[6:]:
        changed(name, amount=1)
    flying = changed(FLYING, amount=2, apply=0)
    assert flying is not None
    desk.committed = {flying.partition: flying.offset}
    return world
