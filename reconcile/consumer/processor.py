"""One message, or one batch, in one transaction: what the store knows decides, and how it failed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from reconcile.consumer import decision, parking
from reconcile.consumer.alerts import Alerts
from reconcile.consumer.decision import Admission, Course, Facts, FailureKind, Outcome
from reconcile.consumer.errors import LossLimitError, NamelessMessageError, StashFullError
from reconcile.consumer.message import Message
from reconcile.consumer.policy import Stash, Terms
from reconcile.consumer.recovery import Recovery, is_the_messages
from reconcile.consumer.store import ConsumerStore, HeldPartition, Noted, Outgoing, Stashed, StoreTransaction, Writes

_LOG = logging.getLogger(__name__)
Handler = Callable[[Sequence[Message], Any], None]
"""Is called with the messages of a transaction that are to be applied, in their order."""
At = Callable[[str], None]
"""Is called at each named step, so that a test can end or hold a process just there."""


@dataclass(frozen=True)
class Done:
    """It is done with: the offset after it may be committed."""

    how: str


@dataclass(frozen=True)
class Waits:
    """It is to be tried again after so many seconds; nothing after it in its partition may be."""

    seconds: float
    probing: bool = False
    """Whether the breaker is open, so that all partitions wait."""


@dataclass(frozen=True)
class Fenced:
    """Its partition belongs to another member: nothing was changed."""


Result = Done | Waits | Fenced
_DONE = {Admission.APPLY: "applied", Admission.STASH: "stashed"}


class HandlerFailed(Exception):  # noqa: N818 - it carries an error, and is none
    """Carries what a message failed with out of its transaction."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class _NoRoom(Exception):  # noqa: N818 - it may be none: what is read again takes no room
    """Raised for a batch that the stash has no room for, as far as one can count."""


def nowhere(_step: str) -> None:
    """Do nothing at a step."""


@dataclass
class Processor:
    """Processes the messages of one member."""

    store: ConsumerStore
    handler: Handler
    group: str
    terms: Terms
    recovery: Recovery = field(default_factory=Recovery)
    alerts: Alerts = field(default_factory=Alerts)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    at: At = nowhere
    on_outgoing: Callable[[], None] = lambda: None
    """Is called when something was left to send."""
    course: Course = field(init=False)
    _tries: dict[tuple[str, int], tuple[int, Counter[FailureKind]]] = field(default_factory=dict)
    """By partition: the offset that fails, and how often it did in each way."""

    def __post_init__(self) -> None:
        self.course = Course(self.terms)

    def process(self, message: Message, held: HeldPartition) -> Result:
        """Process one message by a member that holds its partition."""
        try:
            admission = self._apply([message], [held])[0]
        except HandlerFailed as failed:
            return self._failed(message, held, failed.error)
        except Exception as error:
            kind = self.recovery.kind(error)
            if kind is FailureKind.NON_RECOVERABLE:
                raise
            return self._waits(message, kind, error)
        return self._admitted(message, held, admission)

    def process_all(self, messages: Sequence[Message], held: Sequence[HeldPartition]) -> list[Result] | None:
        """Process a batch in one transaction; None where it has to be unrolled, and nothing of it was kept."""
        if self.course.breaker.is_open:
            return None
        try:
            admissions = self._apply(messages, held)
        except HandlerFailed as failed:
            error = type(failed.error).__name__
            _LOG.warning("a batch of %d failed, and is done one by one: %s", len(messages), error)
            return None
        except _NoRoom:
            return None
        except Exception as error:
            if self.recovery.kind(error) is FailureKind.NON_RECOVERABLE:
                raise
            return None
        if Admission.NAMELESS in admissions:
            return None
        return [self._admitted(*each) for each in zip(messages, held, admissions, strict=True)]

    def forget(self, topic: str, partition: int) -> None:
        """Forget what was tried of a partition that is no longer this member's."""
        self._tries.pop((topic, partition), None)

    def _apply(self, messages: Sequence[Message], held: Sequence[HeldPartition]) -> list[Admission]:
        with self.store.transaction() as transaction:
            self.at("begun")
            facts = transaction.facts(messages, held)
            self.at("facts read")
            admissions = decision.admit_all(messages, facts, [each.epoch for each in held], self.terms)
            if len(messages) > 1 and Admission.NAMELESS in admissions:
                return admissions
            applied: list[tuple[Message, Facts]] = []
            noted: list[Noted] = []
            stashed: list[Stashed] = []
            for message, known, admission in zip(messages, facts, admissions, strict=True):
                if admission is Admission.APPLY:
                    applied.append((message, known))
                    noted.append(Noted(message, Outcome.APPLIED))
                elif admission in (Admission.OLDER, Admission.DAMAGED):
                    noted.append(Noted(message, Outcome(admission.value)))
                elif admission is Admission.STASH:
                    before = sum(each.message.aggregate_id == message.aggregate_id for each in stashed)
                    if len(messages) == 1:
                        self._check_room(message, known, transaction)
                    elif self._full((known.blocked or 0) + before, transaction.stash_size() + len(stashed)):
                        raise _NoRoom
                    stashed.append(Stashed(message))
            if applied:
                self._handle([message for message, _ in applied], transaction)
            versions = decision.newest_versions(applied) if self.terms.guard != "none" else {}
            shown = self._shown(stashed)
            if noted or stashed:
                self._commit(transaction, Writes(noted, stashed, shown, versions))
        return admissions

    def _handle(self, messages: Sequence[Message], transaction: StoreTransaction) -> None:
        try:
            self.handler(messages, transaction.handle)
        except Exception as error:
            raise HandlerFailed(error) from error
        self.at("handled")

    def _commit(self, transaction: StoreTransaction, writes: Writes) -> None:
        self.at("committing")
        try:
            transaction.commit(writes)
        except Exception as error:
            # What the database has against the copy at the very end is the message's fault, as before.
            if is_the_messages(error):
                raise HandlerFailed(error) from error
            raise
        self.at("committed")
        if writes.outgoing:
            self.on_outgoing()

    def _admitted(self, message: Message, held: HeldPartition, admission: Admission) -> Result:
        if admission is Admission.FENCED:
            return Fenced()
        if admission is Admission.NAMELESS:
            error = NamelessMessageError(f"the key of {message.place} is null or cannot be read")
            return self._carry_out(
                message, held, self.course.react_to_nameless(self._tried(message, FailureKind.NON_RECOVERABLE)), error
            )
        if admission is Admission.APPLY:
            self.course.succeeded()
        self.forget(message.place.topic, message.place.partition)
        return Done(_DONE.get(admission, admission.value))

    def _failed(self, message: Message, held: HeldPartition, error: BaseException) -> Result:
        kind = self.recovery.kind(error)
        tries = self._tried(message, kind)
        _LOG.info("%s failed, %s: %s (try %d)", message.place, kind.value, type(error).__name__, tries)
        self.alerts.failed(kind, error)
        return self._carry_out(message, held, self.course.react(message, kind, tries), error)

    def _waits(self, message: Message, kind: FailureKind, error: BaseException) -> Result:
        tries = self._tried(message, kind)
        reaction = self.course.react(message, kind, tries)
        assert isinstance(reaction, decision.TryAgain)
        _LOG.warning("%s waits for the store: %s (try %d)", message.place, type(error).__name__, tries)
        self.alerts.failed(kind, error)
        if reaction.alert:
            self.alerts.backoff_limit(message, error)
        return Waits(reaction.after.total_seconds())

    def _carry_out(
        self, message: Message, held: HeldPartition, reaction: decision.Reaction, error: BaseException
    ) -> Result:
        if isinstance(reaction, decision.TryAgain):
            if reaction.alert:
                self.alerts.backoff_limit(message, error)
            return Waits(reaction.after.total_seconds())
        if isinstance(reaction, decision.Break):
            probes = self.course.breaker.probes
            if probes == 1:
                self.alerts.breaker(message, error)
            return Waits(self.terms.backoff.delay(probes).total_seconds(), probing=True)
        if isinstance(reaction, decision.Stop):
            self.alerts.bound(reaction.why)
            raise LossLimitError(f"{self.group}: {reaction.why}; the last one is {message.place}") from error
        writes, how = self._written(message, reaction, error)
        return self._put_aside(message, held, writes, how, error)

    def _written(self, message: Message, reaction: decision.Reaction, error: BaseException) -> tuple[Writes, str]:
        name, said, now = type(error).__name__, str(error), self.now()
        if isinstance(reaction, decision.PutAside):
            stashed = [Stashed(message, name, said)]
            return Writes(stashed=stashed, outgoing=self._shown(stashed)), "stashed"
        if isinstance(reaction, decision.SendOn):
            sent = parking.retried(message, self.group, error, reaction.topic, reaction.delay, now)
            return Writes([Noted(message, Outcome.SENT_ON)], outgoing=[sent]), "sent_on"
        if isinstance(reaction, decision.GiveUp):
            sent = parking.dead_letter(message, self.group, name, said, reaction.topic, now, reaction.nameless)
            return Writes([Noted(message, Outcome.DEAD_LETTERED)], outgoing=[sent]), "dead_lettered"
        return Writes([Noted(message, Outcome.IGNORED)]), "ignored"

    def _put_aside(
        self, message: Message, held: HeldPartition, writes: Writes, how: str, error: BaseException
    ) -> Result:
        """Write what is to be done with a message that failed, in a transaction of its own, by the same fence."""
        try:
            with self.store.transaction() as transaction:
                self.at("putting aside")
                facts = transaction.facts([message], [held])[0]
                if facts.epoch != held.epoch:
                    return Fenced()
                if writes.stashed:
                    self._check_room(message, facts, transaction)
                self._commit(transaction, writes)
        except Exception as failure:
            kind = self.recovery.kind(failure)
            if kind is FailureKind.NON_RECOVERABLE:
                raise
            return self._waits(message, kind, failure)
        self.forget(message.place.topic, message.place.partition)
        self.alerts.put_aside(message, how, error)
        return Done(how)

    def _full(self, of_aggregate: int, in_all: int) -> str | None:
        return decision.full(
            self.terms.policy if isinstance(self.terms.policy, Stash) else Stash(), of_aggregate, in_all
        )

    def _check_room(self, message: Message, facts: Facts, transaction: StoreTransaction) -> None:
        why = self._full(facts.blocked or 0, transaction.stash_size())
        if why is not None and not transaction.is_stashed(message.origin):
            self.alerts.bound(why)
            raise StashFullError(
                f"the stash of {self.group} is full: {why}. Nothing was dropped: repair what is stashed, drain it with"
                " `reconcile stash drain`, and start the consumer again"
            )

    def _shown(self, stashed: Sequence[Stashed]) -> list[Outgoing]:
        topic = self.terms.policy.topic if isinstance(self.terms.policy, Stash) else None
        if topic is None:
            return []
        return [
            parking.shown(each, self.group, topic, None if each.error_class else str(each.message.aggregate_id))
            for each in stashed
        ]

    def _tried(self, message: Message, kind: FailureKind) -> int:
        """Count a failure; an outage takes no try from a message that fails by itself afterwards."""
        place, offset = (message.place.topic, message.place.partition), message.place.offset
        if self._tries.get(place, (None,))[0] != offset:
            self._tries[place] = (offset, Counter())
        counted = self._tries[place][1]
        counted[kind] += 1
        return counted[kind]
