"""A world whose consumer parks events as every framework does, each record with headers of its own."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import timedelta

from tests.integration.foreign_worlds.world import Headers, Record, Table, Topic, World, taking, text

SHIPS = """
version: 1
aggregate: ships
source: {store: origin, table: ships.ship, id: id, version: version}
topic: {cluster: main, name: foreign.ships, partitioner: murmur2, version: $.version, event_id: header:event-id}
consumers:
  - name: port
    group: ships.port
    isolation: read_committed
    store: copies
    table: ships.port
    id: ship
    fields:
      - {name: name, source: name, consumer: name, event: $.name}
      - {name: berth, source: berth, consumer: berth, event: $.berth}
    failure:
      policy: retry-then-dead-letter
      retry: [{topic: foreign.ships.retry, group: ships.port.retry}]
      dead_letter: foreign.ships.dlq
      stash: foreign.ships.stash
    settle: {timeout: 0s, confirm_after: 0s}
  - name: customs
    group: ships.customs
    isolation: read_committed
    store: copies
    table: ships.customs
    id: ship
    version: version
    fields:
      - {name: name, source: name, consumer: name, event: $.name}
    failure:
      policy: retry-then-dead-letter
      dead_letter: foreign.ships.customs-dlq
      dialect: karafka
    settle: {timeout: 0s, confirm_after: 0s}
"""
GROUP = "ships.port"
Write = Callable[[Record], Headers]


def _spring_dlt(record: Record) -> Headers:
    return [
        ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
        ("kafka_dlt-original-topic", text(record.topic)),
        ("kafka_dlt-original-partition", struct.pack(">i", record.partition)),
        ("kafka_dlt-original-offset", struct.pack(">q", record.offset)),
        ("kafka_dlt-original-consumer-group", text(GROUP)),
    ]


def _spring_retry(record: Record) -> Headers:
    return [
        ("kafka_original-topic", text(record.topic)),
        ("kafka_original-partition", struct.pack(">i", record.partition)),
        ("kafka_original-offset", struct.pack(">q", record.offset)),
        ("retry_topic-attempts", struct.pack(">i", 2)),
        ("retry_topic-backoff-timestamp", int(record.at.timestamp() * 1000).to_bytes(6, "big")),
    ]


def _texts(prefix: str, record: Record, **more: str) -> Headers:
    told = {"topic": record.topic, "partition": record.partition, "offset": record.offset, **more}
    return [(prefix + name, text(value)) for name, value in told.items()]


DIALECTS: dict[str, tuple[str, Write]] = {
    "spring-dlt": ("dead_lettered", _spring_dlt),
    "spring-retry": ("retrying", _spring_retry),
    "kafka-connect": ("dead_lettered", lambda record: _texts("__connect.errors.", record, stage="VALUE_CONVERTER")),
    "kafka-streams": ("dead_lettered", lambda record: _texts("__streams.errors.", record, exception="java.lang.Error")),
    "share-group": ("dead_lettered", lambda record: _texts("__dlq.errors.", record, group=GROUP)),
    "smallrye-dlq": ("dead_lettered", lambda record: _texts("dead-letter-", record, reason="too late")),
    "smallrye-retry": ("retrying", lambda record: _texts("delayed-retry-", record, count="3")),
    "greyhound": ("retrying", lambda record: [("GH_OriginalTopic", text(record.topic)), ("GH_RetryAttempt", b"1")]),
    "karafka": ("dead_lettered", lambda record: _texts("source_", record, consumer_group=GROUP, attempts="2")),
    "arroyo": (
        "dead_lettered",
        lambda record: [("original_partition", text(record.partition)), ("original_offset", text(record.offset))],
    ),
    "reconcile": ("stashed", lambda record: _texts("reconcile-origin-", record, group=GROUP)),
}
"""For each dialect in which of the topics its records lie, and how its headers are written."""
_TOPICS = {"dead_lettered": "foreign.ships.dlq", "retrying": "foreign.ships.retry", "stashed": "foreign.ships.stash"}
_BY_KEY = ("greyhound",)
"""Where the headers name no offset, only the record's own key and its event id tie it."""


def ships() -> World:
    """Of each dialect an event that is missing, one that was overtaken, and one that is done with."""
    world = World(
        "ships",
        SHIPS,
        Table("ship", "id text, version int, name text, berth text"),
        Topic("foreign.ships", 4),
        headers=lambda _, event_id: [("event-id", text(event_id))],
    )
    port = world.copy(
        "port",
        "ship text primary key, name text, berth text",
        taking(ship=lambda row: row["id"], name=lambda row: row["name"], berth=lambda row: row["berth"]),
    )
    customs = world.copy(
        "customs",
        "ship text primary key, name text, version int",
        taking(ship=lambda row: row["id"], name=lambda row: row["name"], version=lambda row: row["version"]),
    )
    world.parking = {name: Topic(name, 2) for name in (*_TOPICS.values(), "foreign.ships.customs-dlq")}
    names = [f"ship-{number}" for number in range(160)]
    for turn in range(2):
        for name in names:
            world.change(name, name=f"{name}.{turn}", berth=f"b{world.random.randrange(10**6)}")
    left = iter(names)

    def change(name: str, apply: bool) -> Record:
        to = [port, customs] if apply else [customs]
        return world.change(name, to, name=f"{name}.{world.random.randrange(10**6)}", berth="x")

    def parked(record: Record, dialect: str, headers: Headers | None = None) -> Record:
        cause, write = DIALECTS[dialect]
        day = dialect not in _BY_KEY and record.offset % 2
        key = text(f"2026-11-18/{record.partition}-{record.offset}") if day else record.key
        own = [] if dialect == "kafka-streams" else record.headers
        value = None if dialect == "share-group" else record.value
        return world.put(
            key, value, [*own, *(write(record) if headers is None else headers)], world.parking[_TOPICS[cause]]
        )

    for dialect, (cause, _) in DIALECTS.items():
        lacking, overtaken, done = (next(left) for _ in range(3))
        parked(change(lacking, apply=False), dialect)
        world.expect("port", lacking, "changed", cause, ("name", "berth"), certain=True)
        parked(change(overtaken, apply=False), dialect)
        change(overtaken, apply=True)
        world.expect("port", overtaken, "latent", cause, certain=True)
        lies = parked(change(done, apply=False), dialect)
        change(done, apply=True)
        world.put(lies.key, None, topic=world.parking[lies.topic], partition=lies.partition)
    # A dead letter that came by the retry topic, and names that as its origin.
    name = next(left)
    record = change(name, apply=False)
    again = parked(record, "spring-retry")
    parked(record, "kafka-streams", _texts("__streams.errors.", again, exception="java.lang.Error"))
    world.expect("port", name, "changed", "dead_lettered", ("name", "berth"), certain=True)
    # One that has gone on, and each time its headers name the place before.
    name = next(left)
    record = change(name, apply=False)
    first = parked(record, "spring-retry")
    second = parked(record, "reconcile", _texts("reconcile-origin-", first, group=GROUP))
    third = _texts("__streams.errors.", second, exception="java.lang.Error")
    world.put(b"2026-11-18/hops", record.value, third, world.parking[_TOPICS["dead_lettered"]])
    world.expect("port", name, "changed", "dead_lettered", ("name", "berth"), certain=True)
    # What the group that reads the retry topic has given up.
    name = next(left)
    record = change(name, apply=False)
    given_up = _texts("source_", record, consumer_group=f"{GROUP}.retry", attempts="9")
    world.put(b"2026-11-18/given-up", record.value, given_up, world.parking[_TOPICS["dead_lettered"]])
    world.expect("port", name, "changed", "dead_lettered", ("name", "berth"), certain=True)
    # What was parked of a topic that has been deleted since: another event stands at its place now.
    name = next(left)
    place = world.topic.home(text(name))
    former = Record(world.topic.name, place, world.topic.ends()[place], world.now, b"", b"{}", [], "", None)
    of_former = _texts("source_", former, consumer_group=GROUP, attempts="2")
    world.put(b"2026-11-18/former", b"{}", of_former, world.parking[_TOPICS["dead_lettered"]])
    world.now += timedelta(minutes=5)
    change(name, apply=False)
    world.expect("port", name, "changed", "skipped", ("name", "berth"))
    # What another group has parked here is not ours.
    name = next(left)
    other = _texts("source_", change(name, apply=True), consumer_group="ships.others", attempts="1")
    parked(world.topic.records[-1], "karafka", other)
    # What cannot be tied to anything.
    world.put(b"2026-11-18/1", b"?", topic=world.parking[_TOPICS["dead_lettered"]])
    world.put(None, None, topic=world.parking[_TOPICS["dead_lettered"]], partition=0)
    # The other consumer reads its headers in one dialect alone.
    name = next(left)
    world.write(name, name="customs lacks it")
    record = world.applied(world.publish(name), name, [port])
    headers = _texts("source_", record, consumer_group="ships.customs", attempts="2")
    world.put(b"2026-11-18/x", record.value, headers, world.parking["foreign.ships.customs-dlq"])
    world.expect("customs", name, "changed", "dead_lettered", ("name",), certain=True)
    return world
