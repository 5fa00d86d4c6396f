"""A world of composite ids, whose consumer buries what it cannot apply under keys that are only days."""

from __future__ import annotations

import json
import struct
from datetime import datetime, timedelta
from typing import Any

from tests.integration.foreign_worlds.world import Record, Row, Table, Topic, World, compact, text

ORDERS = """
version: 1
aggregate: orders
source:
  store: origin
  query: |
    select h.tenant, h.number, h.version, h.name, h.city, h.gone, l.total, h.note
      from orders.head h left join orders.line l on l.tenant = h.tenant and l.number = h.number
  id: [tenant, number]
  version: version
  deleted: gone
topic:
  cluster: main
  name: foreign.orders
  key: {type: json}
  partitioner: crc32
  version: header:rev
  event_id: header:message-id
  type: $.meta.type
  ignore_types: [viewed]
  delete: $.meta['is-gone'] == true
consumers:
  - name: billing
    group: orders.billing
    isolation: read_committed
    store: copies
    table: orders.billing
    id: [org, order_no]
    version: rev
    fields:
      - {name: label, source: upper(name), consumer: label, event: upper($.order.name)}
      - name: city
        source: coalesce(nullif(city, ''), '?')
        consumer: city
        event: coalesce(nullif($.order['x-city'], ''), '?')
      - name: title
        source: concat(name, ' / ', city)
        consumer: title
        event: concat($.order.name, ' / ', $.order['x-city'])
      - {name: total, source: total, consumer: total::numeric, event: 'cast($.order.money.total as decimal(12,4))'}
    failure:
      policy: retry-then-dead-letter
      dead_letter: foreign.orders.dlq
      ledger: {table: orders.billing_ledger, event_id: message_id, at: noted}
    settle: {timeout: 0s, confirm_after: 0s}
"""


def orders() -> World:
    """Composite ids, a deletion by a test, a ledger of event ids alone, dead letters under keys that are only days."""
    lines = Table("line", "tenant text, number int, total numeric(12,4)")

    def named(name: str) -> Row:
        tenant, number = json.loads(name)
        return {"tenant": tenant, "number": number, "gone": False, "city": "", "note": None}

    def value(row: Row) -> Any:
        order = {"name": row["name"], "x-city": row["city"], "money": {"total": row["total"]}}
        return {"meta": {"type": row.get("type", "changed"), "is-gone": row["gone"]}, "order": order}

    world = World(
        "orders",
        ORDERS,
        Table(
            "head", "tenant text, number int, version int, name text, city text, gone boolean, note text, total text"
        ),
        Topic("foreign.orders", 5, "crc32"),
        key=lambda name: compact(json.loads(name)),
        identity=named,
        value=value,
        headers=lambda row, event_id: [("rev", text(row["version"])), ("message-id", text(event_id))],
    )
    world.extra.append(("origin", lines))

    def fold(_: Row | None, record: Record) -> Row | None:
        row = record.said
        if row is None or row["gone"]:
            return None
        kept = {"org": row["tenant"], "order_no": row["number"], "rev": row["version"], "label": row["name"].upper()}
        title = f"{row['name']} / {row['city']}"
        return {**kept, "city": row["city"] or "?", "title": title, "total": row["total"]}

    def entry(record: Record, at: datetime) -> Row:
        return {"message_id": record.event_id, "noted": at}

    copy = world.copy(
        "billing",
        "org text, order_no int, rev int, label text, city text, title text, total text",
        fold,
        "message_id uuid, noted timestamptz",
        entry=entry,
    )
    names = [compact([tenant, n]).decode() for tenant in ("acme", "Zoë & Söhne", 'qu"ote') for n in range(1, 71)]
    for _ in range(3):
        for name in names:
            fields: Row = {
                "name": f"n{world.random.randrange(10**6)}",
                "city": world.random.choice(["", "Köln", "Łódź"]),
            }
            world.change(name, **fields, total=f"{world.random.randrange(10**6)}.2500")
    dead = Topic("foreign.orders.dlq", 1)
    world.parking[dead.name] = dead

    def buried(record: Record) -> None:
        headers = [
            ("kafka_dlt-original-topic", text(record.topic)),
            ("kafka_dlt-original-partition", struct.pack(">i", record.partition)),
            ("kafka_dlt-original-offset", struct.pack(">q", record.offset)),
            ("kafka_dlt-original-consumer-group", text(copy.group)),
            ("kafka_dlt-exception-fqcn", b"org.acme.NoSuchTenant"),
        ]
        world.put(b"2026-11-18/" + text(record.offset), record.value, headers, dead)

    skipped, stale, late, dead_one, kept, never, foreign, missing, back, viewed, removed, gone_row = names[:12]
    world.change(skipped, to=(), name="lost on the way")
    world.expect("billing", skipped, "changed", "skipped", ("label", "title"), certain=True)
    world.write(stale, city="nobody heard")
    world.expect("billing", stale, "changed", "never_published", ("city", "title"), certain=True)
    first = world.change(late, to=(), name="first")
    second = world.change(late, name="second", city="Ulm")
    copy.apply(first, late, second.at + timedelta(seconds=5))
    world.expect("billing", late, "changed", "out_of_order", ("label", "city", "title"), certain=True)
    buried(world.change(dead_one, to=(), total="1.0000"))
    world.expect("billing", dead_one, "changed", "dead_lettered", ("total",), certain=True)
    world.source.rows[kept]["gone"] = True
    world.source.rows[kept]["version"] += 1
    world.publish(kept)
    world.expect("billing", kept, "orphan", "skipped", certain=True)
    world.write(never, name="never told")
    world.write(never, name="never told twice")
    world.expect("billing", never, "changed", "never_published", ("label", "title"), certain=True)
    copy.table.loose.append({"org": "acme", "order_no": 990, "rev": 1, "label": "GHOST"})
    world.expect("billing", '["acme",990]', "orphan", "phantom", certain=True)
    copy.table.rows[foreign]["city"] = "Nowhere"
    world.expect("billing", foreign, "changed", "foreign_write", ("city",), certain=True)
    newborn = '["acme",501]'
    world.change(newborn, to=(), name="born", city="", total="5.0000")
    world.expect("billing", newborn, "missing", "skipped", certain=True)
    for gone in (back, removed):
        world.change(gone, gone=True)
    world.change(back, gone=False, name="back again")
    world.publish(viewed, {**world.source.rows[viewed], "type": "viewed", "name": "of no account"})
    copy.table.rows[gone_row]["total"] = "0.0001"
    world.expect("billing", gone_row, "changed", "foreign_write", ("total",), certain=True)
    copy.table.rows.pop(missing)
    world.expect("billing", missing, "missing", "foreign_write", certain=True)
    for row in world.source.rows.values():
        lines.loose.append({"tenant": row["tenant"], "number": row["number"], "total": row["total"]})
    return world
