"""One pair of servers for all foreign worlds, and how worlds are made in it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import NewPartitions, NewTopic
from psycopg2 import sql
from psycopg2.extras import execute_values

from reconcile.lab.folder import Lab
from reconcile.lab.kafka import Kafka
from reconcile.lab.postgres import PostgresServer
from reconcile.lab.process import remove_tree, wait_until
from reconcile.lab.services import offsets
from reconcile.lab.services.consumer import Group
from reconcile.lab.services.database import connected
from reconcile.lab.services.offsets import admin_client
from tests.integration.foreign_worlds.world import Record, Table, Topic, World
from tests.ports import ports_of

PORTS = ports_of("foreign worlds")
DATABASES = ("origin", "copies")


@dataclass(frozen=True)
class Servers:
    """A Postgres with a database for sources and one for copies, and a broker."""

    lab: Lab

    @property
    def folder(self) -> Path:
        """Where contracts, settings and Parquet files are."""
        return self.lab.root.parent / "contracts"

    @property
    def settings(self) -> Path:
        """The settings' file."""
        return self.folder / "reconcile.yaml"

    def contract(self, world: World) -> Path:
        """The contract's file."""
        return self.folder / f"{world.name}.yaml"

    def url(self, database: str) -> str:
        """A database's URL."""
        return self.lab.url(database, "postgres")

    def make(self, worlds: Sequence[World]) -> None:
        """Make worlds of what was written down."""
        for database in DATABASES:
            with connected(self.url(database)) as cursor:
                for world in worlds:
                    cursor.execute(sql.SQL("create schema {}").format(sql.Identifier(world.name)))
                    for table in _tables(world, database):
                        _create(cursor, world.name, table)
        topics = [topic for world in worlds for topic in (world.topic, *world.parking.values())]
        self._write(topics)
        for world in worlds:
            self._commit(world)
            for name, write in world.files.items():
                write(self.folder / name)
            self.contract(world).write_text(world.contract)

    def _write(self, topics: Sequence[Topic]) -> None:
        admin = admin_client(self.lab.bootstrap)
        any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)}  # older brokers took any by default
        made = [NewTopic(each.name, each.partitions, 1, config=any_time) for each in topics]
        for future in admin.create_topics(made).values():
            future.result(60)
        for topic in topics:
            _await(topic.name, partial(offsets.led, admin, topic.name, topic.partitions))
        producer = Producer({"bootstrap.servers": self.lab.bootstrap, "enable.idempotence": True, "linger.ms": 20})
        for topic in topics:
            if topic.transactions is not None:
                self._write_transactions(topic, topic.transactions)
                continue
            first = topic.grown[0] if topic.grown else len(topic.records)
            _send(producer, topic.records[:first])
        assert not producer.flush(60)
        for topic in topics:
            if topic.grown:
                admin.create_partitions([NewPartitions(topic.name, topic.grown[1])])[topic.name].result(60)
                _await(topic.name, partial(offsets.led, admin, topic.name, topic.grown[1]))
        later = Producer({"bootstrap.servers": self.lab.bootstrap, "enable.idempotence": True, "linger.ms": 20})
        for topic in topics:
            if topic.grown:
                _send(later, topic.records[topic.grown[0] :])
        assert not later.flush(60)

    def _write_transactions(self, topic: Topic, transactions: Sequence[tuple[int, bool]]) -> None:
        producer = Producer({"bootstrap.servers": self.lab.bootstrap, "transactional.id": topic.name})
        producer.init_transactions(60)
        start = 0
        for end, commit in transactions:
            producer.begin_transaction()
            _send(producer, topic.records[start:end])
            assert not producer.flush(60)
            if commit:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
            start = end
        Group(self.lab.bootstrap, "nobody", topic.name).poll()  # which waits until all is decided

    def _commit(self, world: World) -> None:
        commits: dict[tuple[str, str], dict[int, int]] = dict(world.readers)
        for copy in world.copies.values():
            if copy.committed is not None:
                ends = offsets.ends(admin_client(self.lab.bootstrap), world.topic.name)
                commits[copy.group, world.topic.name] = {**ends, **copy.committed}
        for (group, topic), places in commits.items():
            offsets.commit(self.lab.bootstrap, group, topic, places)


@contextmanager
def foreign_servers() -> Iterator[Servers]:
    """Start both servers, and leave nothing of them; their folder follows from the ports, so that a killed run ends."""
    lab = Lab(Path(tempfile.gettempdir()) / f"reconcile-test-{PORTS.postgres}" / "lab")
    postgres, kafka = PostgresServer(lab), Kafka(lab)

    def clear() -> None:
        for server in (kafka, postgres):
            server.down()
            server.wipe()
        remove_tree(lab.root.parent)

    clear()
    lab.root.mkdir(parents=True)
    lab.remember(ports=PORTS)
    try:
        postgres.up()
        kafka.up()
        servers = Servers(lab)
        with connected(servers.url("postgres"), autocommit=True) as cursor:
            for name in DATABASES:
                cursor.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        servers.folder.mkdir()
        connections: dict[str, Any] = {"main": {"bootstrap": str(lab.bootstrap)}, "lake": {"path": str(servers.folder)}}
        for name in DATABASES:
            file = servers.folder / f"{name}.url"
            file.write_text(servers.url(name))
            connections[name] = {"url": f"file:{file}"}
        servers.settings.write_text(yaml.safe_dump({"connections": connections}))
        yield servers
    finally:
        clear()


def _tables(world: World, database: str) -> list[Table]:
    found = [table for place, table in world.extra if place == database]
    if database == "origin":
        return [world.source, *found]
    for copy in world.copies.values():
        if copy.table.columns:
            found.append(copy.table)
        if copy.ledger is not None and copy.ledger.columns:
            found.append(copy.ledger)
    return found


def _create(cursor: Any, schema: str, table: Table) -> None:
    name = sql.Identifier(schema, table.name)
    cursor.execute(sql.SQL("create table {} ({})").format(name, sql.SQL(table.columns)))
    by_columns: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for row in table.all():
        by_columns.setdefault(tuple(row), []).append(tuple(row.values()))
    for columns, rows in by_columns.items():
        named = sql.SQL(", ").join(map(sql.Identifier, columns))
        execute_values(cursor, sql.SQL("insert into {} ({}) values %s").format(name, named), rows)


def _await(topic: str, led: Callable[[], bool]) -> None:
    wait_until(led, f"{topic} has no leaders", 60)


def _delivered(error: KafkaError | None, _: Message) -> None:
    assert error is None, error


def _send(producer: Producer, records: Sequence[Record]) -> None:
    for record in records:
        producer.produce(
            record.topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            partition=record.partition,
            timestamp=int(record.at.timestamp() * 1000) if record.stamp is None else record.stamp,
            on_delivery=_delivered,
        )
        producer.poll(0)
