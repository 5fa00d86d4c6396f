"""The services' consumers: how records are read, applied and committed, and what a service does when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaException, Producer
from psycopg2.extensions import connection

from reconcile.errors import UnreachableError
from reconcile.kafka.reader import LogReader
from reconcile.lab.services import offsets, parking
from reconcile.lab.services.broker import client_options
from reconcile.lab.services.copies import LOGIN, Record, Service

Trouble = Callable[[Record], Exception | None]
OnFailure = Callable[[Record, Exception], None]

_BATCH = 500
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
class LoginStash:
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


def login_stash(database: connection, sender: Producer) -> LoginStash:
    """Build login's stash."""
    return LoginStash(database, Park(sender, "user-account.login.stash", LOGIN.group, parking.stash))


class Group:
    """A group's place in a topic, kept by the broker: what it has not committed yet, and how far it has read."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self._read: dict[int, int] = {}

    def poll(self, but: Sequence[int] = ()) -> list[Record]:
        """Read what the group has not committed, partition by partition, all but some, up to where they end now.

        A commit returns before its records can be read, so this waits for open transactions.
        """
        places = offsets.lag(self._bootstrap, self._group, self._topic)
        places = {number: place for number, place in places.items() if number not in but}
        self._read = {}
        options = {
            **client_options(self._bootstrap),
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
        }
        with closing(LogReader(options, self._topic, patience=_PATIENCE)) as log:
            log.start({number: start for number, (start, _) in places.items()})
            try:
                batches = log.read_to({number: end for number, (_, end) in places.items()}, size=_BATCH)
                found = [parking.received(message) for batch in batches for message in batch]
            except KafkaException as error:
                raise UnreachableError(
                    f"{self._topic} was not read to its end: {error.args[0].str()}; a transaction may be open in it:"
                    " try again once it has ended"
                ) from None
            self._read = log.positions
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def commit(self) -> None:
        """Commit what was read, and no more: what has arrived since is still to come."""
        if self._read:
            offsets.commit(self._bootstrap, self._group, self._topic, self._read)
