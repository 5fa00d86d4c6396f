"""The services' consumers: how records are read, applied and committed, and what a service does when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconcile.errors import UnreachableError
from reconcile.lab.services import offsets, parking
from reconcile.lab.services.copies import LOGIN, Record, Service

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from psycopg2.extensions import connection

Trouble = Callable[[Record], Exception | None]
OnFailure = Callable[[Record, Exception], None]

_PATIENCE = 90.0
"""Longer than the cluster lets a transaction stand open of which it hears nothing more."""


class DatabaseTimeoutError(Exception):
    """A failure that passes: the same message would be processed a moment later."""


class UnreadableError(Exception):
    """A failure of this one message: it will never be processed by this release."""


def no_trouble(_record: Record) -> Exception | None:
    """Nothing fails from outside."""
    return None


def swallow(_record: Record, _error: Exception) -> None:
    """Log and go on: the offset is committed with the next message, and this one is never seen again."""


@dataclass(frozen=True)
class Park:
    """Copy a record that failed to another topic of the group, and go on."""

    sender: Producer
    topic: str
    group: str
    dialect: parking.Dialect

    def __call__(self, record: Record, error: Exception) -> None:
        self.sender.produce(
            self.topic,
            key=record.key,
            value=record.value,
            headers=parking.original_headers(record) + self.dialect(record, self.group, error),
        )
        if self.sender.flush(30):
            raise RuntimeError(f"{self.topic} did not take a record")


def apply_once(service: Service, database: connection, record: Record, trouble: Trouble = no_trouble) -> None:
    """Apply one record in one transaction."""
    with database, database.cursor() as cursor:
        if (failure := trouble(record)) is not None:
            raise failure
        service.apply(cursor, record)


def apply_all(
    service: Service,
    database: connection,
    records: Iterable[Record],
    trouble: Trouble = no_trouble,
    on_failure: OnFailure = swallow,
    tries: int = 1,
) -> None:
    """Apply records one by one; what fails, as often as it is tried in place, goes to the service's failure policy."""
    for record in records:
        for attempt in range(1, tries + 1):
            try:
                apply_once(service, database, record, trouble)
                break
            except Exception as error:  # noqa: BLE001 - this is the policy's place: whatever failed, it decides
                if attempt == tries:
                    on_failure(record, error)


@dataclass(frozen=True)
class Stash:
    """Login's policy: what cannot be processed is stashed, and so is all that follows for the same account."""

    database: connection
    park: Park

    def __call__(self, record: Record, error: Exception) -> None:
        self.park(record, error)
        with self.database, self.database.cursor() as cursor:
            cursor.execute(
                "insert into stashed_account values (%s, clock_timestamp()) on conflict do nothing",
                (record.aggregate_id,),
            )

    def trouble(self, record: Record) -> Exception | None:
        """Refuse a record whose account has a stashed message."""
        with self.database.cursor() as cursor:
            cursor.execute("select 1 from stashed_account where user_id = %s", (record.aggregate_id,))
            return UnreadableError("an earlier message of this account is stashed") if cursor.fetchone() else None


def login_stash(database: connection, sender: Producer) -> Stash:
    """Give login's stash."""
    return Stash(database, Park(sender, "user-account.login.stash", LOGIN.group, parking.stash))


class Group:
    """A group's place in a topic, kept by the broker: what it has not committed yet, and how far it has read."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self._read: dict[int, int] = {}

    def unread(self, but: Sequence[int] = ()) -> list[Record]:
        """Read what the group has not committed, partition by partition, all but some, up to where they end now.

        A commit returns before what it decided can be read: what stands in a transaction is waited for.
        """
        from confluent_kafka import KafkaError, TopicPartition

        places = offsets.unread(offsets.admin_client(self._bootstrap), self._group, self._topic)
        going = {number for number in places if number not in but}
        found: list[Record] = []
        read: dict[int, int] = {}
        self._read = {}
        if not going:
            return found
        with closing(self._consumer()) as consumer:
            consumer.assign([TopicPartition(self._topic, number, places[number][0]) for number in going])
            while going:
                message = consumer.poll(_PATIENCE)
                if message is None:
                    raise UnreachableError(
                        f"{self._topic} gave nothing for {_PATIENCE:.0f} s; partitions not read to their end:"
                        f" {sorted(going)}; a transaction may be open in them: try again once it has ended"
                    )
                partition, error = message.partition() or 0, message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise RuntimeError(str(error))
                if partition not in going:
                    continue
                if error is None:
                    found.append(parking.received(message))
                    continue
                # Where readers of committed records stop for now: past all markers, and perhaps before the end.
                read[partition] = message.offset() or 0
                if read[partition] >= places[partition][1]:
                    going.discard(partition)
        self._read = read
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def commit(self) -> None:
        """Commit what was read, and no more: what has arrived since is still to come."""
        if self._read:
            offsets.commit(self._bootstrap, self._group, self._topic, self._read)

    def _consumer(self) -> Consumer:
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "log_level": 0,
            }
        )
