"""A database that Debezium publishes, and what happens to such a source in life."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from examples.connect.world import World
from reconcile.lab import process
from reconcile.lab.services import offsets
from reconcile.lab.services.database import connected

_PATIENCE = 120


@dataclass(frozen=True)
class Source:
    """A database, its replication slot, and the connector that reads it."""

    world: World
    connector: str
    database: str
    slot: str
    """The slot's name, which is also the prefix of the connector's topics."""
    topic: str
    """Where what it publishes goes."""

    @property
    def messages(self) -> str:
        """The topic of what the database's log says beside changes of tables."""
        return f"{self.slot}.message"

    @property
    def url(self) -> str:
        """The URL of the database, for who owns it."""
        return self.world.lab.url(self.database, "postgres")

    def change(self, statement: str, *values: Any) -> None:
        """Change the database, in one transaction."""
        with connected(self.url) as cursor:
            cursor.execute(statement, values or None)

    def ends(self) -> dict[int, int]:
        """Query where the topic ends."""
        return self._ends(self.topic)

    def await_published(self) -> dict[int, int]:
        """Wait until the topic has what the database has committed; give where it ends."""
        # A message in the database's log is published behind all changes before it, into a topic of its own.
        token = uuid.uuid4().hex
        begin = self._ends(self.messages)[0]
        self.change("select pg_logical_emit_message(true, %s, '')", token)
        place = TopicPartition(self.messages, 0, begin)
        with closing(Consumer({"bootstrap.servers": self.world.lab.bootstrap, "group.id": token})) as consumer:
            consumer.assign([place])

            def published() -> bool:
                # By its token: a source that was started anew publishes again what it had not noted as published.
                found = consumer.consume(100, 0.1)
                return any(token.encode() in (record.value() or b"") for record in found)

            process.wait_until(published, f"{self.connector} did not publish what the database has", _PATIENCE)
        return self.ends()

    @contextmanager
    def slot_dropped(self, config: Mapping[str, str]) -> Iterator[None]:
        """Drop the replication slot; at the end of the block it is made anew, and the source goes on from there."""
        connect = self.world.connect
        connect.stop(self.connector)
        with connected(self.url, autocommit=True) as cursor:

            def dropped() -> bool:
                query = "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
                cursor.execute(f"{query} where slot_name = %s and not active", (self.slot,))
                return cursor.rowcount == 1

            process.wait_until(dropped, "the replication slot stayed active", _PATIENCE)
            yield
            connect.forget(self.connector)
            connect.configure(self.connector, {**config, "snapshot.mode": "no_data"})

            def made_anew() -> bool:
                cursor.execute("select active from pg_replication_slots where slot_name = %s", (self.slot,))
                return cursor.fetchone() == (True,)

            process.wait_until(made_anew, "the replication slot did not come back", _PATIENCE)
        self.await_published()

    def _ends(self, topic: str) -> dict[int, int]:
        return offsets.ends(offsets.admin_client(self.world.lab.bootstrap), topic)
