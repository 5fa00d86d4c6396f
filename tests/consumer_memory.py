"""A consumer's store in memory: it keeps what the protocols promise, and breaks off where a test wants it to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeVar

from reconcile.consumer.decision import Facts, Outcome
from reconcile.consumer.errors import AnotherPolicyError, DrainHeldError
from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.policy import Stash, Terms
from reconcile.consumer.store import ContendedError, HeldPartition, Letter, Noted, Outgoing, Stashed, Writes

_T = TypeVar("_T", bound="_Open")
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class LostConnectionError(ConnectionError):
    """Raised where a connection was lost, or the database ended it."""


class LockedError(TimeoutError):
    """Raised where Postgres would wait for a transaction that, in one thread, cannot end."""


@dataclass
class Handle:
    """What a handler changes the copy with."""

    changes: list[tuple[str, str | None]] = field(default_factory=list)

    def put(self, id_: str, value: str | None) -> None:
        """Write a row of the copy; without a value, delete it."""
        self.changes.append((id_, value))


@dataclass
class Tables:
    """What is kept of one group, and its copy."""

    terms: tuple[str, Terms] | None = None
    ledger: dict[RecordPlace, Outcome] = field(default_factory=dict)
    events: dict[tuple[str, str | None], RecordPlace] = field(default_factory=dict)
    """The place by which the ledger knows an event of an aggregate."""
    versions: dict[str, tuple[int, bool]] = field(default_factory=dict)
    blocked: dict[str, tuple[datetime, int]] = field(default_factory=dict)
    stash: dict[RecordPlace, Letter] = field(default_factory=dict)
    """In the order in which it was filled."""
    outbox: tuple[Outgoing, ...] = ()
    damaged: frozenset[RecordPlace] = frozenset()
    copy: dict[str, str] = field(default_factory=dict)
    applied: tuple[tuple[str, str | None], ...] = ()
    """All changes of the copy, in their order."""

    def noted(self, message: Message) -> Outcome | None:
        """Find what the ledger says of a message, by its place or its event."""
        known = self.events.get(event) if (event := _event(message)) is not None else None
        return self.ledger.get(message.origin) or (self.ledger[known] if known is not None else None)

    def begin(self) -> Tables:
        """Copy all, so that a transaction that is given up leaves nothing."""
        return replace(self, **{name: copy(value) for name, value in vars(self).items()})


@dataclass
class Database:
    """What all connections share."""

    groups: dict[str, Tables] = field(default_factory=dict)
    fence: dict[tuple[str, str, int], int] = field(default_factory=dict)
    drains: dict[str, tuple[int, MemoryStash | None]] = field(default_factory=dict)
    """The epoch of each group's drain, and who holds it."""
    open: list[_Open] = field(default_factory=list)
    next_commit: Literal["kept", "lost"] | None = None
    """What becomes of the next commit, whose connection is lost in either case."""
    clock: datetime = EPOCH

    def tables(self, group: str) -> Tables:
        """Find the tables of one group."""
        return self.groups.setdefault(group, Tables())

    def now(self) -> datetime:
        """Tell the time; no two calls get the same."""
        self.clock += timedelta(milliseconds=1)
        return self.clock

    def end_others(self, lock: object) -> None:
        """End the transactions that hold a lock."""
        for each in self.open:
            if lock in each.locks:
                each.alive = False

    def check_free(self, by: _Open, *locks: object) -> None:
        """Raise where another transaction holds one of these locks."""
        if any(lock in each.locks for each in self.open if each is not by and each.alive for lock in locks):
            raise LockedError("another transaction is at it")


class _Open:
    """An open transaction: the locks that it holds, and how it ends."""

    def __init__(self, database: Database, group: str, ledger: bool) -> None:
        self.database = database
        self.group = group
        self.handle = Handle()
        self.locks: set[object] = set()
        self.alive = True
        self._ledger = ledger

    @property
    def tables(self) -> Tables:
        """What the group's committed state is now."""
        if not self.alive:
            raise LostConnectionError("the database ended this connection")
        return self.database.tables(self.group)

    def keep(self, after: Tables) -> None:
        """Make a state the committed one, unless the connection is lost first."""
        assert self.alive
        fault, self.database.next_commit = self.database.next_commit, None
        self.alive = fault is None
        if fault != "lost":
            self.database.groups[self.group] = after
        if fault is not None:
            raise LostConnectionError("the connection was lost in the commit")

    def written(self, writes: Writes) -> Tables:
        """Compute the state after a transaction's changes and writes."""
        after = self.tables.begin()
        for id_, value in self.handle.changes:
            after.applied += ((id_, value),)
            if value is None:
                after.copy.pop(id_, None)
            else:
                after.copy[id_] = value
        for noted in writes.noted if self._ledger else ():
            _note(after, noted)
        after.versions.update(
            (each, new) for each, new in writes.versions.items() if new >= after.versions.get(each, new)
        )
        after.outbox += tuple(writes.outgoing)
        for stashed in writes.stashed:
            self._stash(after, stashed)
        return after

    def _stash(self, after: Tables, stashed: Stashed) -> None:
        message = stashed.message
        aggregate = message.aggregate_id
        assert aggregate is not None
        if message.origin not in after.stash:
            now = self.database.now()
            after.stash[message.origin] = Letter(
                aggregate_id=aggregate,
                origin=message.origin,
                event_id=message.event_id,
                key=message.key,
                value=message.value,
                headers=message.headers,
                at=message.at,
                stashed_at=now,
                drains=0,
                error_class=stashed.error_class,
                error_message=stashed.error_message,
            )
            since, messages = after.blocked.get(aggregate, (now, 0))
            after.blocked[aggregate] = (since, messages + 1)
            if not self._ledger:
                # What is read again may have been applied before what is stashed: it goes where it stood.
                after.stash = dict(sorted(after.stash.items()))


def _event(message: Message) -> tuple[str, str | None] | None:
    return None if message.event_id is None else (message.event_id, message.aggregate_id)


def _note(after: Tables, noted: Noted) -> None:
    place, event = noted.message.origin, _event(noted.message)
    if after.ledger.get(place) is Outcome.APPLIED or (place not in after.ledger and event in after.events):
        raise ContendedError("another transaction noted the same message")
    if event is not None and place not in after.ledger:
        after.events[event] = place
    after.ledger[place] = noted.outcome


class MemoryTransaction(_Open):
    """One transaction of a MemoryStore."""

    def facts(self, messages: Sequence[Message], held: Sequence[HeldPartition]) -> list[Facts]:
        """Read what is known of each message, and lock it until the end."""
        return [self._facts(*each) for each in zip(messages, held, strict=True)]

    def _facts(self, message: Message, held: HeldPartition) -> Facts:
        tables = self.tables
        place = (held.group, held.topic, held.partition)
        self.locks.add(("fence", *place))
        aggregate = message.aggregate_id or ""
        blocked = tables.blocked.get(aggregate)
        if blocked is not None:
            self.locks.add(("blocked", self.group, aggregate))
        return Facts(
            self.database.fence.get(place),
            tables.noted(message),
            None if blocked is None else blocked[1],
            tables.versions.get(aggregate, (None, False))[0],
            message.origin in tables.damaged,
        )

    def stash_size(self) -> int:
        """Count what is stashed."""
        return len(self.tables.stash)

    def is_stashed(self, origin: RecordPlace) -> bool:
        """Tell whether a message is stashed already."""
        return origin in self.tables.stash

    def commit(self, writes: Writes) -> None:
        """Keep all, or nothing."""
        self.keep(self.written(writes))


class MemoryStep(_Open):
    """One step of a drain, in one transaction."""

    def head(self, aggregate_id: str) -> tuple[Letter, Facts] | None:
        """Read and lock the oldest stashed message of an aggregate."""
        tables = self.tables
        self.locks.add(("drain", self.group))
        letter = next((each for each in tables.stash.values() if each.aggregate_id == aggregate_id), None)
        if letter is None:
            return None
        event = tables.events.get((letter.event_id, aggregate_id)) if letter.event_id is not None else None
        noted = tables.ledger.get(letter.origin)
        elsewhere = tables.ledger[event] if event is not None and event != letter.origin else None
        return letter, Facts(
            self.database.drains.get(self.group, (None, None))[0],
            noted if noted is Outcome.APPLIED else elsewhere,
            None,
            tables.versions.get(aggregate_id, (None, False))[0],
            letter.origin in tables.damaged,
        )

    def take(self, letter: Letter, writes: Writes) -> None:
        """Take the message out of the stash, write, and keep all."""
        after = self.written(writes)
        if after.stash.pop(letter.origin, None) is not None and letter.aggregate_id in after.blocked:
            since, messages = after.blocked[letter.aggregate_id]
            after.blocked[letter.aggregate_id] = (since, messages - 1)
        self.keep(after)

    def put_back(self, letter: Letter, error_class: str, error_message: str, outgoing: Sequence[Outgoing]) -> None:
        """Leave the message where it is, with its new error."""
        after = self.written(Writes(outgoing=outgoing))
        failed = replace(letter, drains=letter.drains + 1, error_class=error_class, error_message=error_message)
        after.stash[letter.origin] = failed
        self.keep(after)

    def unblock(self, aggregate_id: str) -> bool | None:
        """Let the aggregate flow; False where a message has come to its stash, None if it flows."""
        self.database.check_free(self, ("blocked", self.group, aggregate_id))
        if aggregate_id not in self.tables.blocked:
            return None
        after = self.tables.begin()
        if any(each.aggregate_id == aggregate_id for each in after.stash.values()):
            return False
        after.blocked.pop(aggregate_id, None)
        self.keep(after)
        return True


class MemoryStore:
    """The store of one consumer."""

    begun: type[MemoryTransaction] = MemoryTransaction

    def __init__(self, database: Database, group: str) -> None:
        self.database = database
        self.group = group
        self.ledger = True
        self._terms: tuple[str, Terms] | None = None

    def register(self, terms: Terms, topic: str) -> None:
        """Say who consumes here and how."""
        tables = self.database.tables(self.group)
        self.ledger = terms.ledger
        if tables.blocked and not isinstance(terms.policy, Stash):
            raise AnotherPolicyError(f"the group {self.group} has a stash: drain it first")
        tables.terms = self._terms = (topic, terms)

    def claim(self, group: str, topic: str, partition: int) -> int:
        """Raise a partition's epoch, and end the transactions that hold it."""
        if self.database.tables(self.group).terms != self._terms:
            raise AnotherPolicyError(f"the group {self.group} was registered otherwise since")
        place = (group, topic, partition)
        self.database.end_others(("fence", *place))
        self.database.fence[place] = self.database.fence.get(place, 0) + 1
        return self.database.fence[place]

    @contextmanager
    def transaction(self) -> Iterator[MemoryTransaction]:
        """Begin a transaction."""
        with _opened(self.begun(self.database, self.group, self.ledger)) as begun:
            yield begun

    def send(self, deliver: Callable[[Sequence[Outgoing]], None], most: int) -> int:
        """Deliver the oldest records of the outbox, and forget them."""
        tables = self.database.tables(self.group)
        records = tables.outbox[:most]
        if records:
            deliver(list(records))
            tables.outbox = tables.outbox[len(records) :]
        return len(records)

    def close(self) -> None:
        """Close its connection."""


class MemoryStash:
    """The stash of one group."""

    begun: type[MemoryStep] = MemoryStep

    def __init__(self, store: MemoryStore) -> None:
        self.database = store.database
        self.group = store.group
        self.lives = True
        """Whether its process does; one that does not gives nothing back."""
        self.expired = False
        self._store = store

    def hold(self, _seconds: float) -> int:
        """Hold the drain; one whose process has died is free."""
        epoch, holder = self.database.drains.get(self.group, (0, None))
        if holder is not None and holder.lives and not holder.expired:
            raise DrainHeldError(f"somebody drains the stash of {self.group}")
        self.database.end_others(("drain", self.group))
        self.database.drains[self.group] = (epoch + 1, self)
        terms = self.database.tables(self.group).terms
        self._store.ledger = terms is None or terms[1].ledger
        return epoch + 1

    def renew(self, epoch: int, _seconds: float) -> None:
        """Hold it longer."""
        if self.database.drains[self.group][0] != epoch:
            raise DrainHeldError("another drain has taken over")

    def give_back(self, epoch: int) -> None:
        """Let the next drain begin."""
        if self.lives and self.database.drains[self.group][0] == epoch:
            self.database.drains[self.group] = (epoch, None)

    def blocked(self, after: tuple[datetime, str] | None = None) -> tuple[datetime, str] | None:
        """Find the aggregate that is blocked for longest after this one."""
        blocked = self.database.tables(self.group).blocked
        waiting = sorted((since, id_) for id_, (since, _) in blocked.items())
        return next((each for each in waiting if after is None or each > after), None)

    @contextmanager
    def transaction(self) -> Iterator[MemoryStep]:
        """Begin one step."""
        with _opened(self.begun(self.database, self.group, self._store.ledger)) as begun:
            yield begun


@contextmanager
def _opened(transaction: _T) -> Iterator[_T]:
    transaction.database.open.append(transaction)
    try:
        yield transaction
    finally:
        transaction.database.open.remove(transaction)
