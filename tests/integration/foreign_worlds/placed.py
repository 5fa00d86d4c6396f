"""Worlds about where records and groups stand: lost offsets, a topic that grew, transactions, a short ledger."""

from __future__ import annotations

from datetime import timedelta

from tests.integration.foreign_worlds.world import Copy, Record, Table, Topic, World, taking, text

ROOMS = """
version: 1
aggregate: rooms
source: {store: origin, table: rooms.room, id: id, version: version}
topic: {cluster: main, name: foreign.rooms, version: $.version}
consumers:
CONSUMERS
"""
_ROOMS_CONSUMER = """
  - name: NAME
    group: rooms.NAME
    isolation: read_committed
    store: copies
    table: rooms.NAME
    id: room
    fields: [{name: guest, source: guest, consumer: guest, event: $.guest}]
    settle: {timeout: 0s, confirm_after: 0s}
"""
GROWN = """
version: 1
aggregate: grown
source: {store: origin, table: grown.item, id: id, version: version}
topic: {cluster: main, name: foreign.grown, version: $.version}
consumers:
  - name: done
    group: grown.done
    isolation: read_committed
    store: copies
    table: grown.done
    id: item
    fields: [{name: label, source: label, consumer: label, event: $.label}]
    settle: {timeout: 0s, confirm_after: 0s}
  - name: behind
    group: grown.behind
    isolation: read_committed
    store: copies
    table: grown.behind
    id: item
    fields: [{name: label, source: label, consumer: label, event: $.label}]
    settle: {timeout: 0s, confirm_after: 0s}
"""
DEALS = """
version: 1
aggregate: deals
source: {store: origin, table: deals.deal, id: id, version: version}
topic: {cluster: main, name: foreign.deals, partitioner: murmur2, version: header:v}
consumers:
  - name: desk
    group: deals.desk
    isolation: read_committed
    store: copies
    table: deals.desk
    id: deal
    fields: [{name: price, source: price, consumer: price, event: 'cast($.price as decimal(10,2))'}]
    settle: {timeout: 0s, confirm_after: 0s}
"""
VISITS = """
version: 1
aggregate: visits
source: {store: origin, table: visits.visit, id: id, version: version}
topic: {cluster: main, name: foreign.visits, version: $.version, event_id: $.event}
consumers:
  - name: desk
    group: visits.desk
    isolation: read_committed
    store: copies
    table: visits.desk
    id: visit
    fields:
      - {name: who, source: who, consumer: who, event: $.who}
      - {name: why, source: why, consumer: why, event: $.why}
    failure: {policy: ignore, ledger: {table: visits.desk_ledger, event_id: event, at: noted}}
    settle: {timeout: 0s, confirm_after: 0s}
"""


def rooms() -> World:
    """A group that never was, one that lags, one whose offsets are past the end, one with a blocked partition.

    Of the first nothing can be told, which is said once.
    """
    names = ("never", "lags", "past", "blocked")
    consumers = "".join(_ROOMS_CONSUMER.replace("NAME", name) for name in names)
    world = World(
        "rooms",
        ROOMS.replace("CONSUMERS", consumers),
        Table("room", "id text, version int, guest text"),
        Topic("foreign.rooms", 4, "fnv1a"),
        exit_code=2,
    )
    fold = taking(room=lambda row: row["id"], guest=lambda row: row["guest"])
    never, lags, past, blocked = (world.copy(name, "room text, guest text", fold) for name in names)
    rooms = [f"room {number}" for number in range(120)]
    records: list[tuple[str, Record]] = []
    for _ in range(3):
        records += [(room, world.change(room, [past], guest=f"g{world.random.randrange(10**6)}")) for room in rooms]
    ends = world.topic.ends()
    never.committed = None
    lags.committed = {partition: end * 2 // 3 for partition, end in ends.items()}
    past.committed = {partition: end + 1000 for partition, end in ends.items()}
    blocked.committed = {1: ends[1] // 2}
    for copy in (lags, blocked):
        for room, record in records:
            if record.offset < (copy.committed or {}).get(record.partition, ends[record.partition]):
                copy.apply(record, room)
    for copy in (lags, blocked):
        for room in rooms:
            there, source = copy.table.rows.get(room), world.source.rows[room]
            if there is None:
                world.expect(copy.name, room, "missing", "in_flight", status="in_flight")
            elif there["guest"] != source["guest"]:
                world.expect(copy.name, room, "changed", "in_flight", ("guest",), status="in_flight")
    wrong = next(room for room, record in records if record.partition == 0)
    for copy in (past, blocked):
        copy.table.rows[wrong]["guest"] = "nobody"
        world.expect(copy.name, wrong, "changed", "foreign_write", ("guest",), certain=True)
    return world


def grown() -> World:
    """A topic that grew before anybody looked; the one group came to the end, the other not in the old partitions."""
    world = World("grown", GROWN, Table("item", "id text, version int, label text"), Topic("foreign.grown", 3))
    fold = taking(item=lambda row: row["id"], label=lambda row: row["label"])
    done, behind = (world.copy(name, "item text, label text", fold) for name in ("done", "behind"))
    names = [f"item-{number}" for number in range(240)]

    def change(name: str, to: list[Copy], partition: int | None = None) -> Record:
        world.write(name, label=f"l{world.random.randrange(10**9)}")
        return world.applied(world.publish(name, partition=partition), name, to)

    for name in names:
        change(name, [done, behind])
    consumed = world.topic.ends()
    later = {name: change(name, [done]) for name in names[:60]}
    world.topic.grow(5)
    behind.committed = consumed
    moved = [
        name for name in names if world.topic.home(world.key(name)) != later.get(name, world.topic.records[0]).partition
    ]
    moved = [name for name in moved if name in later]
    for name in names[30:200]:
        record = change(name, [done])
        if record.partition > 2:
            behind.apply(record, name)
    raced = moved[0] if moved[0] in names[30:60] else next(name for name in moved if name in names[30:60])
    done.apply(later[raced], raced)
    world.expect("done", raced, "changed", "misrouted", ("label",), certain=True)
    stray = next(name for name in names[200:] if world.topic.home(world.key(name)) < 3)
    change(stray, [done, behind], partition=4)
    for copy in (done, behind):
        world.expect(copy.name, stray, "latent", "misrouted", certain=True)
    for name in names:
        there = behind.table.rows[name]
        if there["label"] != world.source.rows[name]["label"]:
            world.expect("behind", name, "changed", "in_flight", ("label",), status="in_flight")
    return world


def deals() -> World:
    """Transactions, some of which were aborted: what they wrote was never said."""
    world = World(
        "deals",
        DEALS,
        Table("deal", "id text, version int, price numeric(10,2)"),
        Topic("foreign.deals", 3, transactions=[]),
        headers=lambda row, _: [("v", text(row["version"]))],
        value=lambda row: {"price": str(row["price"])},
    )
    world.copy("desk", "deal text, price numeric", taking(deal=lambda row: row["id"], price=lambda row: row["price"]))
    names = [f"deal-{number}" for number in range(150)]
    for _ in range(3):
        for start in range(0, len(names), 10):
            for name in names[start : start + 10]:
                world.change(name, price=f"{world.random.randrange(10**5)}.25")
            world.topic.end_transaction()
        for name in names[:20]:
            world.publish(
                name, {**world.source.rows[name], "version": world.source.rows[name]["version"] + 1, "price": 1}
            )
        world.topic.end_transaction(commit=False)
    skipped, unheard = names[30:32]
    world.change(skipped, to=(), price="3.50")
    world.expect("desk", skipped, "changed", "skipped", ("price",))
    world.topic.end_transaction()
    world.change(unheard, to=(), price="4.50")
    world.expect("desk", unheard, "changed", "never_published", ("price",), certain=True)
    world.topic.end_transaction(commit=False)
    return world


def visits() -> World:
    """A ledger that holds the last hours alone."""

    world = World(
        "visits",
        VISITS,
        Table("visit", "id text, version int, who text, why text"),
        Topic("foreign.visits", 3),
    )
    desk = world.copy(
        "desk",
        "visit text, who text, why text",
        taking(visit=lambda row: row["id"], who=lambda row: row["who"], why=lambda row: row["why"]),
        "event text, noted timestamptz",
        entry=lambda record, at: {"event": (record.said or {})["event"], "noted": at},
    )
    names = [f"visit-{number}" for number in range(150)]

    def told(name: str, apply: bool = True) -> Record:
        world.write(name, who=f"w{world.random.randrange(10**6)}", why="?")
        event = {**world.source.rows[name], "event": f"e{world.random.getrandbits(64):x}"}
        record = world.publish(name, event)
        return world.applied(record, name) if apply else record

    for name in names:
        told(name)
    old_lost, old_gap, lost, gap, late, early, retried = names[:7]
    told(old_lost, apply=False)
    world.expect("desk", old_lost, "changed", "skipped", ("who",))
    told(old_gap, apply=False)
    told(old_gap)
    back = told(retried, apply=False)
    world.now += timedelta(hours=4)
    pruned = world.now - timedelta(hours=1)
    for name in names[2:]:
        told(name)
    told(lost, apply=False)
    world.expect("desk", lost, "changed", "skipped", ("who",), certain=True)
    told(gap, apply=False)
    told(gap)
    world.expect("desk", gap, "latent", "skipped", certain=True)
    desk.apply(back, retried, world.now)
    world.expect("desk", retried, "changed", "out_of_order", ("who",), certain=True)
    first, second = told(late, apply=False), told(late)
    desk.apply(first, late, second.at + timedelta(seconds=9))
    world.expect("desk", late, "changed", "out_of_order", ("who",), certain=True)
    assert desk.ledger is not None
    desk.ledger.loose = [entry for entry in desk.ledger.loose if entry["noted"] > pruned]
    desk.table.rows[early]["why"] = "!"
    world.expect("desk", early, "changed", "foreign_write", ("why",), certain=True)
    return world
