"""Worlds whose ids are text of every script, with copies that no key keeps in order, and one in which all is well."""

from __future__ import annotations

import unicodedata
from typing import Any
from uuid import UUID

from tests.integration.foreign_worlds.world import Copy, Row, Table, Topic, World, taking, text

PEOPLE = """
version: 1
aggregate: people
source: {store: origin, table: people.person, id: id, version: version}
topic: {cluster: main, name: foreign.people, partitioner: infer, version: $.version}
consumers:
  - name: cards
    group: people.cards
    isolation: read_committed
    store: copies
    table: people.cards
    id: person
    fields:
      - {name: name, source: name, consumer: name, event: $.name}
      - {name: nick, source: nick, consumer: nick, event: $.nick}
    settle: {timeout: 0s, confirm_after: 0s}
"""
QUIET = """
version: 1
aggregate: quiet
source: {store: origin, table: quiet.thing, id: id, version: version, deleted: state = 'gone'}
topic:
  cluster: main
  name: foreign.quiet
  version: $.version
  event_id: header:id
  type: header:type
  ignore_types: [touched, 'seen, twice']
consumers:
  - name: mirror
    group: quiet.mirror
    isolation: read_committed
    store: copies
    table: quiet.mirror
    id: thing
    version: version
    guard: newer
    fields:
      - {name: label, source: label, consumer: label, event: $.label}
      - {name: amount, source: amount, consumer: amount::numeric, event: $.amount}
    failure:
      policy: retry-topics
      retry: [{topic: foreign.quiet.retry, group: quiet.mirror.retry}, foreign.quiet.never-made]
      dead_letter: foreign.quiet.never-made-either
      ledger: {table: quiet.mirror_ledger, event_id: event, partition: part, offset: pos, at: noted}
    settle: {timeout: 0s, confirm_after: 0s}
  - name: shadow
    group: quiet.shadow
    isolation: read_committed
    store: copies
    query: select thing, label, version from quiet.shadow where label <> 'not ours'
    id: thing
    fields: [{name: label, source: label, consumer: label, event: $.label}]
    settle: {timeout: 0s, confirm_after: 0s}
"""
_ODD = (
    "ä",
    "\u00e9",
    "e\u0301",
    "Ωmega",
    "日本語",
    "👩‍👩‍👧",
    " in front",
    "behind ",
    "a'b",
    'a"b',
    "a\\b",
    "%s",
    "{0}",
    "$.x",
    "NULL",
)


def people() -> World:
    """Rows without an id, rows that stand twice, and names that only look the same."""
    world = World(
        "people",
        PEOPLE,
        Table("person", "id text, version int, name text, nick text"),
        Topic("foreign.people", 7),
    )
    copy = world.copy(
        "cards",
        "person text, name text, nick text",
        taking(person=lambda row: row["id"], name=lambda row: row["name"], nick=lambda row: row["nick"]),
    )
    names = [*_ODD, *(f"person {number}" for number in range(150))]
    for turn in range(2):
        for name in names:
            world.change(name, name=f"Zoë {turn}{world.random.randrange(10**6)}", nick=f"n{world.random.random()}")
    nfd, spaces, case, twice, told_twice, gone, source_twice = names[20:27]
    rows = copy.table.rows
    rows[nfd]["name"] = unicodedata.normalize("NFD", rows[nfd]["name"])
    world.expect("cards", nfd, "changed", "foreign_write", ("name",), status="tolerated")
    rows[spaces]["nick"] += "  "
    world.expect("cards", spaces, "changed", "foreign_write", ("nick",), status="tolerated")
    rows[case]["name"] = rows[case]["name"].upper()
    world.expect("cards", case, "changed", "foreign_write", ("name",), certain=True)
    copy.table.loose.append(dict(rows[twice]))
    world.expect("cards", twice, "duplicated", "duplicate_applied")
    world.publish(told_twice)
    copy.table.loose.append(dict(rows[told_twice]))
    world.expect("cards", told_twice, "duplicated", "duplicate_applied", certain=True)
    copy.table.loose += [{"person": None, "name": f"nobody {number}", "nick": None} for number in range(3)]
    world.expect("cards", None, "orphan", "phantom")
    rows.pop(gone)
    world.expect("cards", gone, "missing", "foreign_write")
    composed, decomposed = "\u00e9", "e\u0301"
    rows[composed]["nick"] = "mixed up"
    world.expect("cards", composed, "changed", "foreign_write", ("nick",), certain=True)
    world.change(decomposed, to=(), nick="not heard")
    world.expect("cards", decomposed, "changed", "skipped", ("nick",))
    world.change("brand new", to=(), name="new", nick="new")
    world.expect("cards", "brand new", "missing", "skipped")
    copy.table.loose.append({"person": "behind", "name": "without the space", "nick": None})
    world.expect("cards", "behind", "orphan", "phantom", certain=True)
    world.source.loose.append(dict(world.source.rows[source_twice]))
    world.expect("cards", source_twice, "duplicated", "undetermined")
    return world


def quiet() -> World:
    """Nothing is wrong, and much is odd."""

    def headers(row: Row, event_id: str) -> list[tuple[str, bytes]]:
        return [("id", text(event_id)), ("type", text(row.get("type", "told")))]

    world = World(
        "quiet",
        QUIET,
        Table("thing", "id text, version int, label text, amount numeric(14,6), state text"),
        Topic("foreign.quiet", 6),
        headers=headers,
        identity=lambda name: {"id": name, "state": "there"},
        exit_code=0,
    )
    world.copy(
        "mirror",
        "thing text primary key, version int, label text, amount text",
        taking(
            thing=lambda row: row["id"],
            version=lambda row: row["version"],
            label=lambda row: row["label"],
            amount=lambda row: row["amount"].rstrip("0"),
        ),
        "event text, part int, pos bigint, noted timestamptz",
        entry=lambda record, at: {
            "event": record.event_id, "part": record.partition, "pos": record.offset, "noted": at,
        },
    )  # fmt: skip
    world.copy(
        "shadow",
        "thing text primary key, version int, label text",
        taking(thing=lambda row: row["id"], version=lambda row: row["version"], label=lambda row: row["label"]),
    ).table.loose.append({"thing": "of another", "version": 1, "label": "not ours"})
    retry = Topic("foreign.quiet.retry", 2)
    world.parking[retry.name] = retry
    names = ["", *_ODD, *(f"thing-{number}" for number in range(160))]

    def change(name: str, to: list[Copy] | None = None) -> Any:
        amount = f"{world.random.randrange(10**6)}.5{world.random.randrange(10)}0000"
        return world.change(name, to, label=world.random.choice(["", "a", "ß", " "]), amount=amount)

    for _ in range(3):
        for name in names:
            change(name)
    for name in names[20:40]:
        world.bury(name)
    for name in names[30:40]:
        change(name)
    for name in names[40:50]:
        world.source.rows[name]["state"] = "gone"
        world.put(world.key(name), None, headers({}, f"gone {name}"), event_id=f"gone {name}")
        world.applied(world.topic.records[-1], name)
    for name in names[50:60]:
        world.publish(name, {"id": name, "type": "touched", "label": "of no account"})
        world.publish(name, {"id": name, "type": "seen, twice", "label": "of no account"})
    for number, name in enumerate(names[60:66]):
        world.put(world.key(name), (b"{broken", b"\xff\xfe", b"[1]", b'"text"', b"", b"12")[number], headers({}, "x"))
    for name in names[60:63]:
        change(name)
    for name in names[70:75]:  # told twice, applied once
        record = change(name)
        world.put(record.key, record.value, record.headers, event_id=record.event_id)
    for name in names[80:85]:  # came by a retry topic, which its group has read
        record = change(name)
        origin = [("kafka_original-topic", text(record.topic))]
        origin.append(("kafka_original-partition", record.partition.to_bytes(4, "big")))
        origin.append(("kafka_original-offset", record.offset.to_bytes(8, "big")))
        world.put(record.key, record.value, [*record.headers, *origin], retry)
    world.readers["quiet.mirror.retry", retry.name] = retry.ends()
    for number in range(4):
        world.put(None, {"version": 1, "label": "no key"}, [("id", text(UUID(int=number)))], partition=number)
        world.put(b"\xff\xfe\xfd", {"version": 1, "label": "unreadable key"}, partition=number)
    return world
