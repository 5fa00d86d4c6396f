"""What a store has to do for the library: read facts and write what follows from them, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from reconcile.consumer.decision import Facts, Outcome
from reconcile.consumer.message import Headers, Message, RecordPlace
from reconcile.consumer.policy import Terms


class ContendedError(Exception):
    """Raised when two transactions met, and this one was given up: the same again succeeds."""


@dataclass(frozen=True)
class HeldPartition:
    """A partition that a member holds, and the epoch by which it does."""

    group: str
    topic: str
    partition: int
    epoch: int


@dataclass(frozen=True)
class Noted:
    """A message that is done with."""

    message: Message
    outcome: Outcome


@dataclass(frozen=True)
class Stashed:
    """A message that is put aside, and why; without an error it only waits behind others."""

    message: Message
    error_class: str | None = None
    error_message: str | None = None


@dataclass(frozen=True)
class Outgoing:
    """A record that is to be sent, once the transaction is kept."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True)
class Writes:
    """What a transaction leaves beside what the handler did."""

    noted: Sequence[Noted] = ()
    stashed: Sequence[Stashed] = ()
    outgoing: Sequence[Outgoing] = ()
    versions: Mapping[str, tuple[int, bool]] = field(default_factory=dict)
    """The newest version of each aggregate, and whether it is deleted."""


class StoreTransaction(Protocol):
    """One transaction of the consumer's store; it is rolled back unless it is committed."""

    handle: Any
    """What a handler gets to change the copy with."""

    def facts(self, messages: Sequence[Message], held: Sequence[HeldPartition]) -> list[Facts]:
        """Read what is known of each message, each under its partition, and lock it until the end.

        Versions are read for a guard that compares them, and the register of damaged messages for who skips them.
        """

    def stash_size(self) -> int:
        """Query how many messages of the group are stashed."""

    def is_stashed(self, origin: RecordPlace) -> bool:
        """Query whether a message is stashed already, so that it takes no room when it is read again."""

    def commit(self, writes: Writes) -> None:
        """Write, and keep all; raise what the database says against it, or what its driver raises where it is lost."""


class ConsumerStore(Protocol):
    """A consumer's store, as one group uses it; for one thread."""

    def register(self, terms: Terms, topic: str) -> None:
        """Say who consumes here and how; raise AnotherPolicyError where somebody does otherwise."""

    def claim(self, group: str, topic: str, partition: int) -> int:
        """Raise the epoch of a partition that was assigned, and return it: nobody else writes for it from now on."""

    def transaction(self) -> AbstractContextManager[StoreTransaction]:
        """Begin a transaction, over a new connection where the last one was lost."""

    def send(self, deliver: Callable[[Sequence[Outgoing]], None], most: int) -> int:
        """Deliver records of the outbox, the oldest first, and forget those delivered; return how many."""

    def close(self) -> None:
        """Close its connection."""


@dataclass(frozen=True)
class Letter:
    """A stashed message, as it waits."""

    aggregate_id: str
    origin: RecordPlace
    event_id: str | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    at: datetime | None
    stashed_at: datetime
    drains: int
    """How often a drain tried it in vain."""
    error_class: str | None
    error_message: str | None
    replayed: bool = False
    """Whether it is a dead letter that is replayed, so that later ones may have been applied before it."""


class DrainTransaction(Protocol):
    """One step of a drain, in one transaction of the consumer's store."""

    handle: Any
    """What a handler gets to change the copy with."""

    def head(self, aggregate_id: str) -> tuple[Letter, Facts] | None:
        """Read the oldest stashed message of an aggregate; None where none is left.

        Its facts' epoch says whose the drain is, and keeps others from taking it over until the end of the step. As
        noted they say that the message was applied, or how its event was done with at another place.
        """

    def take(self, letter: Letter, writes: Writes) -> None:
        """Take the message out of the stash, write, and keep all."""

    def put_back(self, letter: Letter, error_class: str, error_message: str, outgoing: Sequence[Outgoing]) -> None:
        """Leave the message where it is, with its new error, and keep that."""

    def unblock(self, aggregate_id: str) -> bool | None:
        """Let the aggregate flow, and keep that; False where a message has come to its stash, None if it flows."""


class StashStore(Protocol):
    """The stash of one group, as a drain works on it; for one thread."""

    def hold(self, seconds: float) -> int:
        """Hold the drain for so long, and return its epoch; raise DrainHeldError while another drain lives."""

    def renew(self, epoch: int, seconds: float) -> None:
        """Hold it longer; raise DrainHeldError where another drain has taken over."""

    def give_back(self, epoch: int) -> None:
        """Let the next drain begin."""

    def blocked(self, after: tuple[datetime, str] | None = None) -> tuple[datetime, str] | None:
        """Query the next blocked aggregate: the one that is blocked for longest after this one."""

    def transaction(self) -> AbstractContextManager[DrainTransaction]:
        """Begin one step; what it does not keep is rolled back."""
