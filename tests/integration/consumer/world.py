"""Servers for consumers, and a scenario for each test: a topic, and a database with a copy."""

from __future__ import annotations

import json
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import psycopg2
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from reconcile.consumer.consumer import Consumer, Postgres
from reconcile.consumer.handling import AnyHandler
from reconcile.consumer.message import Message
from reconcile.consumer.policy import Backoff, Policy, Terms
from reconcile.consumer.postgres import Transaction, migrate
from reconcile.consumer.reading import Reading
from reconcile.lab import postgres, process
from reconcile.lab.folder import Lab
from reconcile.lab.kafka import Kafka, Proxied
from reconcile.lab.services import offsets
from reconcile.lab.services.offsets import admin_client
from reconcile.lab.statements import StatementProxy
from reconcile.settings import urls
from tests.ports import ports_of

PORTS = ports_of("consumer")
PROXIED = Proxied(port=ports_of("consumer proxy").kafka, proxy=ports_of("consumer proxy").controller)
DATABASE_PROXY = ports_of("consumer proxy").postgres
PATIENCE = 60.0
_SOON_GONE = {
    "group.min.session.timeout.ms": 1000,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 2000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 300,
}
"""A member that does not answer is out of its group in two seconds, by either protocol."""
PROTOCOLS: Mapping[str, Mapping[str, Any]] = {
    "classic": {"session.timeout.ms": 2000, "heartbeat.interval.ms": 300},
    "consumer": {"group.protocol": "consumer"},
}

_COPY = """
create table copy (id text primary key, version bigint not null, name text not null);
create table applied (number bigint generated always as identity, id text not null, version bigint, event_id text);
"""


class PoisonError(Exception):
    """A failure of this one message."""


def apply_copy(message: Message, tx: Transaction) -> None:
    """Keep the copy, and note in which order events were applied: what the oracle looks at."""
    if message.deletes:
        tx.execute("delete from copy where id = %s", (message.aggregate_id,))
    else:
        tx.execute(
            "insert into copy values (%s, %s, %s)"
            " on conflict (id) do update set version = excluded.version, name = excluded.name",
            (message.aggregate_id, message.version, message.json()["name"]),
        )
    tx.execute(
        "insert into applied (id, version, event_id) values (%s, %s, %s)",
        (message.aggregate_id, message.version, message.event_id),
    )


def reading_of(topic: str) -> Reading:
    """Build where the parts of a published message stand."""
    return Reading(topic, version="header:version", event_id="header:event-id")


def brief(backoff: Backoff) -> Backoff:
    """Choose delays that a test can wait for."""
    return replace(backoff, first=timedelta(milliseconds=20), limit=timedelta(milliseconds=500))


@dataclass
class Scenario:
    """One topic, one group, one database."""

    world: World
    topic: str
    group: str
    database: str
    partitions: int
    url: str
    _running: list[tuple[Consumer, threading.Thread, list[BaseException]]] = field(default_factory=list)

    @property
    def severable_url(self) -> str:
        """The database behind the proxy."""
        return self.url.replace(f":{PORTS.postgres}/", f":{DATABASE_PROXY}/")

    def partition(self, key: str) -> int:
        """Compute the partition in which a key's events stand."""
        return zlib.crc32(key.encode()) % self.partitions

    def publish(
        self,
        *events: tuple[str, int, str | None],
        headers: Mapping[str, bytes] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """Publish events of an id, a version and a name; without a name it is deleted."""
        producer = self.world.producer()
        for key, version, name in events:
            value = None if name is None else json.dumps({"id": key, "version": version, "name": name}).encode()
            own: dict[str, str | bytes | None] = {
                "event-id": f"{key}-{version}".encode(),
                "version": str(version).encode(),
                **(headers or {}),
            }
            producer.produce(self.topic, key=key, value=value, headers=own, partition=self.partition(key))
        assert 0 == producer.flush(patience)

    def consumer(
        self,
        policy: Policy,
        handler: AnyHandler = apply_copy,
        *,
        kafka: Mapping[str, Any] | None = None,
        terms: Mapping[str, Any] | None = None,
        url: str | None = None,
        **more: Any,
    ) -> Consumer:
        """Build a consumer of the topic."""
        return Consumer(
            topic=reading_of(self.topic),
            group=self.group,
            policy=policy,
            store=Postgres(url or self.url),
            handler=handler,
            kafka={**self.world.cluster, "fetch.wait.max.ms": 20, **(kafka or {})},
            terms=Terms(policy, **(terms or {})),
            **more,
        )

    @contextmanager
    def running(self, *consumers: Consumer) -> Iterator[None]:
        """Run consumers for a block, each in a thread; raise what one of them raised."""
        failures: list[BaseException] = []

        def run(consumer: Consumer) -> None:
            try:
                consumer.run()
            except BaseException as error:  # noqa: BLE001 - it is raised in the test's thread
                failures.append(error)

        threads = [threading.Thread(target=run, args=(each,), name=self.topic, daemon=True) for each in consumers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for consumer in consumers:
                consumer.stop()
            for thread in threads:
                thread.join(PATIENCE)
        if failures:
            raise failures[0]

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Query the database."""
        with closing(psycopg2.connect(self.url)) as connection, connection.cursor() as cursor:
            cursor.execute(query, parameters)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
            return rows

    def copy(self) -> dict[str, str]:
        """Query the copy: the name of each id."""
        return dict(self.rows("select id, name from copy"))

    def applied(self, key: str | None = None) -> list[Any]:
        """Query the versions that were applied, in their order."""
        rows = self.rows("select id, version from applied order by number")
        return [version for id_, version in rows if id_ == key] if key is not None else rows

    def stashed(self) -> list[tuple[str, str]]:
        """Query what is stashed: ids and events, in their order."""
        return self.rows("select aggregate_id, event_id from reconcile.stash order by aggregate_id, sequence")

    def lag(self) -> dict[int, Any]:
        """Query what the group has yet to commit, by partition."""
        return offsets.lag(self.world.lab.bootstrap, self.group, self.topic)

    def until_consumed(self, seconds: float = PATIENCE) -> None:
        """Wait until the group has committed all that the topic holds."""
        until(lambda: not self.lag(), "the group has not consumed all", seconds)

    def records(self, topic: str) -> list[Any]:
        """Read all records of a topic."""
        from reconcile.kafka import reader

        with closing(reader.LogReader({**self.world.cluster, "log_level": 0}, topic)) as log:
            partitions = range(len(admin_client(self.world.lab.bootstrap).list_topics(topic).topics[topic].partitions))
            log.start(dict.fromkeys(partitions, 0))
            ends = {number: log.extent(number)[1] for number in partitions}
            return [record for batch in log.read_to(ends, size=500) for record in batch]

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create one more topic."""
        self.world.create_topic(name, partitions)
        return name


@dataclass
class World:
    """A broker, and a database server."""

    lab: Lab
    kafka: Kafka
    postgres: postgres.PostgresServer
    _producer: list[Producer] = field(default_factory=list)

    @property
    def cluster(self) -> dict[str, str]:
        """The broker, in librdkafka's words."""
        return {"bootstrap.servers": self.lab.bootstrap}

    def producer(self) -> Producer:
        """Open one producer for all."""
        if not self._producer:
            self._producer.append(
                Producer(
                    {
                        **self.cluster,
                        "enable.idempotence": True,
                        "linger.ms": 1,
                        "message.max.bytes": 2_000_000,
                        "log_level": 0,
                    }
                )
            )
        return self._producer[0]

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic that answers."""
        admin = admin_client(self.lab.bootstrap)
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE)
        until(lambda: offsets.led(admin, name, partitions), f"{name} has no leaders")

    def severing(self) -> StatementProxy:
        """Build a proxy before the database server, at the `severable_url` of its scenarios."""
        return StatementProxy(DATABASE_PROXY, PORTS.postgres)

    def scenario(self, partitions: int = 3) -> Scenario:
        """Build a scenario of its own."""
        name = f"t{uuid4().hex[:10]}"
        self.create_topic(name, partitions)
        with closing(psycopg2.connect(self.lab.url("postgres"))) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            cursor.execute(f"create database {name}")
        url = self.lab.url("postgres").rsplit("/", 1)[0] + f"/{name}"
        migrate(urls.parse(url))
        scenario = Scenario(self, name, f"{name}-service", name, partitions, url)
        scenario.rows(_COPY)
        return scenario


@contextmanager
def consumer_world(settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[World]:
    """Start a broker and a database server, and leave nothing of them, nor what a killed run left.

    `settings` are those of the database that are to be otherwise than the lab's.
    """
    lab = Lab(Path(tempfile.gettempdir()) / f"reconcile-test-{PORTS.postgres}" / "lab")
    kafka, database = Kafka(lab, PROXIED, _SOON_GONE), postgres.PostgresServer(lab, settings)
    for server in (kafka, database):
        server.down()
        server.wipe()
    lab.root.mkdir(parents=True, exist_ok=True)
    lab.remember(ports=PORTS)
    try:
        database.up()
        kafka.up()
        yield World(lab, kafka, database)
    finally:
        for server in (kafka, database):
            server.down()
            server.wipe()
        process.remove_tree(lab.root.parent)


def until(holds: Callable[[], object], otherwise: str = "it did not come to pass", seconds: float = PATIENCE) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def sequence_oracle(scenario: Scenario, *, stashed: bool = False) -> list[str]:
    """Compare what was applied with the log, id by id: list what is lost, applied twice or out of its order.

    With `stashed`, what waits in the stash counts as if it had been applied after all that was.
    """
    log: dict[str, list[str]] = {}
    for record in sorted(scenario.records(scenario.topic), key=lambda each: (each.partition(), each.offset())):
        log.setdefault(record.key().decode(), []).append(dict(record.headers())["event-id"].decode())
    rows: Sequence[tuple[str, str]] = scenario.rows("select id, event_id from applied order by number")
    rows = [*rows, *(scenario.stashed() if stashed else [])]
    applied: dict[str, list[str]] = {}
    for id_, event_id in rows:
        applied.setdefault(id_, []).append(event_id)
    return [
        f"{id_}: the log has {log.get(id_)}, applied was {applied.get(id_)}"
        for id_ in log.keys() | applied.keys()
        if list(dict.fromkeys(log.get(id_, []))) != applied.get(id_, [])
    ]
