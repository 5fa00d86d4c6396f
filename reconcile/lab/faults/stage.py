"""The stage on which faults happen: the services as they are, people who have not been touched, and the truth."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reconcile.domain.partitioner import Partitioner, partition_of
from reconcile.errors import RefusedError
from reconcile.lab.folder import Lab
from reconcile.lab.names import DOMAINS, FIRST_NAMES, LAST_NAMES
from reconcile.lab.services import offsets
from reconcile.lab.services.consumer import Group, OnFailure, Trouble, apply_all, no_trouble, swallow
from reconcile.lab.services.copies import BILLING, SERVICES, Record, Service
from reconcile.lab.services.database import connect
from reconcile.lab.services.relay import OutboxRelay, producer
from reconcile.lab.services.user import ACCOUNT_TOPIC, BALANCE_TOPIC, OutboxEvent, UserService
from reconcile.lab.truth import Truth, read
from reconcile.lab.world import PARTITIONS

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from psycopg2.extensions import connection

# Two faults strike a whole partition: nobody else's victims may live there, or two faults would mix.
STRUCK = PARTITIONS - 1
_FROM_THE_FIRST = "00000000-0000-0000-0000-000000000000"
_NOBODY_TOUCHED = (
    "select a.id::text, a.first_name, e.address from user_account a"
    " join email_address e on e.user_id = a.id and e.position = 1 join user_balance b on b.user_id = a.id"
    " where a.deleted_at is null and a.id >= %s order by a.id"
)


@dataclass(frozen=True)
class Person:
    """A user whom no fault has touched yet."""

    user_id: str
    first_name: str
    email: str


@dataclass
class Stage:
    """What a fault acts with. Every choice on it follows from the world's seed and the number of the planting."""

    lab: Lab
    dice: random.Random
    stack: ExitStack
    rows: list[Truth] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._touched = {row["aggregate_id"] for row in read(self.lab.truth)}
        self._sessions: dict[str, connection] = {}
        self.user = UserService(self.database("user"), self.dice)
        self.renew_sender()

    def renew_sender(self) -> None:
        """Publish with a client that knows of the topics' partitions as they are now."""
        admin = offsets.admin_client(self.lab.bootstrap)
        self._partitions = {service.topic: len(offsets.partitions(admin, service.topic)) for service in SERVICES}
        self.sender: Producer = producer(self.lab.bootstrap)
        self.relay = OutboxRelay(self.database("user"), self.sender)

    def database(self, name: str) -> connection:
        """Open a service's own session with its database, once."""
        if name not in self._sessions:
            self._sessions[name] = self.stack.enter_context(closing(connect(self.lab.url(name))))
        return self._sessions[name]

    def execute(self, database: str, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Do, in one transaction, what somebody with a database console would do."""
        session = self.database(database)
        with session, session.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def people(self, count: int, where: Callable[[str], bool] | None = None) -> list[Person]:
        """Choose people whom no fault has touched, from a random id on."""
        suits = where or self.undisturbed
        found: list[Person] = []
        for start in (self.user.new_id(), _FROM_THE_FIRST):
            with self.database("user") as session, session.cursor("everybody") as cursor:
                cursor.execute(_NOBODY_TOUCHED, (start,))
                for user_id, first_name, email in cursor:
                    if len(found) == count:
                        return found
                    if user_id not in self._touched and suits(user_id):
                        self._touched.add(user_id)
                        found.append(Person(user_id, first_name, email))
        if len(found) < count:
            raise RefusedError(
                f"a fault needs {count} aggregates that none has touched yet, and found {len(found)}:"
                " seed a larger world, or lower --count"
            )
        return found

    def newcomers(self, count: int) -> list[Person]:
        """Register people; their events wait in the outbox."""
        found: list[Person] = []
        while len(found) < count:
            user_id = self.user.new_id()
            if not self.undisturbed(user_id):
                continue
            self._touched.add(user_id)
            person = Person(user_id, self.dice.choice(FIRST_NAMES), self.mail())
            self.user.register(user_id, person.first_name, self.dice.choice(LAST_NAMES), person.email)
            found.append(person)
        return found

    def changed_twice(self, count: int) -> tuple[list[Person], list[OutboxEvent], list[OutboxEvent]]:
        """Rename people, then change their e-mail addresses; return the people and the events of either change."""
        people = self.people(count)
        renamed = [self.user.rename(person.user_id, self.first_name(person.first_name)) for person in people]
        return people, renamed, [self.user.change_email(person.user_id, self.mail()) for person in people]

    def changed_and_new(self, count: int) -> tuple[list[Person], list[Person], list[OutboxEvent]]:
        """Change some people's e-mail addresses and register others; return both and all the events."""
        people, newcomers = self.people(count), self.newcomers(count)
        registered = [event for _, event in self.unpublished()]
        changed = [self.user.change_email(person.user_id, self.mail()) for person in people]
        return people, newcomers, registered + changed

    def mail(self) -> str:
        """Choose an e-mail address that nobody has."""
        return f"{self.user.new_id()[:13]}@{self.dice.choice(DOMAINS)}"

    def first_name(self, other_than: str) -> str:
        """Choose a name that differs from another even where accents do not count."""
        return self.dice.choice([name for name in FIRST_NAMES if name[0] != other_than[0]])

    def home(self, topic: str, aggregate_id: str, partitioner: Partitioner = Partitioner.MURMUR2) -> int:
        """Compute the partition that a producer with this partitioner chooses today."""
        return partition_of(aggregate_id.encode(), self._partitions[topic], partitioner)

    def undisturbed(self, user_id: str) -> bool:
        """Check whether a user lives outside of the partitions that are struck as a whole."""
        return STRUCK not in (self.home(ACCOUNT_TOPIC, user_id), self.home(BALANCE_TOPIC, user_id))

    def publish(self) -> None:
        """Let the relay publish what the commands put into the outbox."""
        self.relay.run()

    def unpublished(self) -> list[tuple[int, OutboxEvent]]:
        """Read what the relay would publish next."""
        return self.relay.pending()

    def consume(
        self,
        service: Service,
        trouble: Trouble = no_trouble,
        on_failure: OnFailure = swallow,
        arrange: Callable[[Record], int] = lambda _: 0,
        tries: int = 1,
    ) -> None:
        """Let a service consume all that is there; `arrange` lets some partitions run ahead of others."""
        group, records = self.polled(service)
        apply_all(service, self.database(service.name), sorted(records, key=arrange), trouble, on_failure, tries)
        group.commit()

    def polled(self, service: Service) -> tuple[Group, list[Record]]:
        """Let a service read all that is there; the caller applies the records and commits the group, or not."""
        group = Group(self.lab.bootstrap, service.group, service.topic)
        return group, group.poll(but=(STRUCK,) if service is BILLING else ())

    def settle(self) -> None:
        """Publish and consume everything, as on a good day."""
        self.publish()
        for service in SERVICES:
            self.consume(service)

    def tell(
        self,
        service: Service,
        aggregates: Iterable[str],
        difference: str,
        cause: str,
        hop: str | None,
        fields: Sequence[str] = (),
        status: str = "confirmed",
    ) -> None:
        """Add to the truth."""
        self.rows += [
            Truth("", service.link, aggregate_id, difference, cause, hop, status, tuple(fields))
            for aggregate_id in aggregates
        ]


def only(events: Iterable[OutboxEvent], failure: Callable[[], Exception]) -> Trouble:
    """Let these events, and no others, fail."""
    ids = {event.event_id for event in events}
    return lambda record: failure() if record.event_id in ids else None


def ids(people: Iterable[Person]) -> list[str]:
    """List their ids."""
    return [person.user_id for person in people]
