"""A world in which single records and rows hold what few programs can hold: the others are audited all the same."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from string import ascii_letters
from typing import Any

from tests.integration.foreign_worlds.world import Table, Topic, World

ODDITIES = """
version: 1
aggregate: oddities
source: {store: origin, table: oddities.item, id: id, version: version}
topic:
  cluster: main
  name: foreign.oddities
  version: $.version
  event_id: $.event
  value: {version: version, label: label, due: due, seen: seen, more: more}
consumers:
  - name: desk
    group: oddities.desk
    isolation: read_committed
    store: copies
    table: oddities.desk
    id: item
    version: version
    fields:
      - {name: label, source: label, consumer: label, event: $.label}
      - {name: due, source: due, consumer: due, event: cast($.due as date)}
      - {name: seen, source: seen, consumer: seen, event: cast($.seen as timestamp)}
      - {name: more, source: more, consumer: more, event: $.more}
    repair: {max_ratio: 1}
    failure: {policy: ignore, ledger: {table: oddities.desk_ledger, event_id: event, at: noted}}
    settle: {timeout: 0s, confirm_after: 0s}
"""
MICROSECONDS, NANOSECONDS = 1_790_000_000_000_000, 1_790_000_000_000_000_000
LONG = "".join(random.Random(7).choices(ascii_letters, k=8192))  # noqa: S311
NUL = "nul\0inside"
UNWRITTEN = ("item-0", "item-1")
"""What these say, a year before Christ and infinity, no expression of Spark's reads as Postgres writes it."""
NESTED = "item-2"
DEEP = '[{"a":' * 200 + "1" + "}]" * 200
_USUAL = {"due": "2026-03-01", "seen": "2026-03-01 10:00:00Z", "more": "[]"}
_LABEL = "item text, version int, label text, due date, seen timestamptz, more jsonb"


def oddities() -> World:
    """Times that no clock shows, an id of 8 kB, one with NUL, an object 400 deep; and of each kind one that differs."""
    world = World("oddities", ODDITIES, Table("item", _LABEL.replace("item", "id", 1)), Topic("foreign.oddities", 3))
    columns = ("version", "label", *_USUAL)
    desk = world.copy(
        "desk",
        _LABEL,
        lambda _, record: {"item": (record.said or {})["id"], **{each: (record.said or {})[each] for each in columns}},
        "event text, noted timestamptz",
        entry=lambda record, at: {"event": (record.said or {})["event"], "noted": at},
    )
    assert desk.ledger is not None

    def tell(name: str, *, apply: bool = True, stamp: int | None = None, **odd: str) -> None:
        world.write(name, **{**_USUAL, "label": f"l{world.random.randrange(10**6)}", **odd})
        event = {**world.source.rows[name], "event": f"e{world.random.getrandbits(64):x}"}
        value = {**event, "more": json.loads(event["more"])}
        record = replace(world.put(world.key(name), value, said=event), stamp=stamp)
        world.topic.records[-1] = record
        if apply:
            world.applied(record, name)

    names = [f"item-{number}" for number in range(60)]
    for _ in range(2):
        for name in names:
            tell(name)
    ancient, endless = UNWRITTEN
    micro, nano, far, ledger, plain = names[3:8]
    odd: dict[str, dict[str, Any]] = {
        plain: {},
        micro: {"stamp": MICROSECONDS},
        nano: {"stamp": NANOSECONDS},
        far: {"due": "50000-01-01", "seen": "50000-01-01 00:00:00Z"},
        ancient: {"due": "0044-03-15 BC", "seen": "0044-03-15 10:00:00+00 BC"},
        endless: {"due": "infinity", "seen": "infinity"},
        ledger: {},
        NESTED: {"more": DEEP},
        LONG: {},
    }
    for name, how in odd.items():
        tell(name, **how)
    for entry, at in zip(desk.ledger.loose[-3:], ("50000-01-01", "infinity", "0044-03-15 BC"), strict=True):
        entry["noted"] = at
    for name, how in odd.items():
        tell(name, apply=False, **how)
        world.expect("desk", name, "changed", "skipped", ("label",), certain=name not in UNWRITTEN)
    world.put(NUL.encode(), {"version": 1, "label": "?", "event": "nul"})
    return world
