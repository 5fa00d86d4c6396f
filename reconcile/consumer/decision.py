"""What is to be done with a message: pure decisions, from what the store knows and from how it failed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum

from reconcile.consumer.message import Message
from reconcile.consumer.policy import BreakerLimits, Ignore, RetryThenDeadLetter, RetryTopics, Stash, Terms
from reconcile.domain.event import spelled


class Outcome(StrEnum):
    """How a message was done with; the ledger keeps it."""

    APPLIED = "applied"
    OLDER = "older"
    """The version guard dropped it: the copy has what it says, or newer."""
    IGNORED = "ignored"
    DAMAGED = "damaged"
    """Skipped, because it is registered as damaged."""
    SENT_ON = "sent_on"
    """Copied to a retry topic."""
    DEAD_LETTERED = "dead_lettered"
    DISCARDED = "discarded"
    """Taken out of the stash unapplied, by a person."""


@dataclass(frozen=True)
class Facts:
    """What the store knows of a message, read and locked in its transaction."""

    epoch: int | None = None
    """The epoch of its partition: whose it is now."""
    noted: Outcome | None = None
    """What the ledger says of it, by its place or its event's id."""
    blocked: int | None = None
    """How many messages of its aggregate are stashed, if it is blocked."""
    version: int | None = None
    """The newest version of its aggregate that was applied."""
    damaged: bool = False
    overtaken: bool = False
    """Whether a later message of its aggregate was applied, as can be where a dead letter is replayed."""


class Admission(StrEnum):
    """What the facts say is to be done with a message."""

    APPLY = "apply"
    FENCED = "fenced"
    """Another member owns the partition now: change nothing."""
    SEEN = "seen"
    """It was done with before: nothing is left to do."""
    DAMAGED = "damaged"
    OLDER = "older"
    STASH = "stash"
    """Its aggregate is blocked: it waits behind what is stashed."""
    NAMELESS = "nameless"
    """It has no aggregate that could be looked up."""


def admit(message: Message, facts: Facts, held: int, terms: Terms) -> Admission:
    """Decide whether a message may be applied by a member that holds this epoch."""
    if facts.epoch != held:
        return Admission.FENCED
    if facts.noted is not None and not _comes_back(message, facts.noted):
        return Admission.SEEN
    if facts.damaged and terms.skip_damaged:
        return Admission.DAMAGED
    if message.aggregate_id is None:
        return Admission.NAMELESS
    if facts.blocked is not None:
        return Admission.STASH
    if facts.overtaken and terms.events == "full" and terms.semantics == "state":
        return Admission.OLDER
    return Admission.APPLY if accepts(terms.guard, message.version, facts.version) else Admission.OLDER


def accepts(guard: str, version: int | None, known: int | None) -> bool:
    """Whether a guard lets a version be applied over the one that is known; what has no version passes."""
    if guard == "none" or version is None or known is None:
        return True
    return version > known if guard == "newer" else version >= known


def admit_all(
    messages: Sequence[Message], facts: Sequence[Facts], held: Sequence[int], terms: Terms
) -> list[Admission]:
    """Decide for a batch, in which each message sees what those before it will have done."""
    seen: set[object] = set()
    versions: dict[str | None, int] = {}
    admissions = []
    for message, known, epoch in zip(messages, facts, held, strict=True):
        aggregate = message.aggregate_id
        if aggregate in versions:
            known = replace(known, version=versions[aggregate])
        admission = admit(message, known, epoch, terms)
        if terms.ledger and admission is not Admission.FENCED:
            names = _names(message)
            if seen & names:
                admission = Admission.SEEN
            if admission is not Admission.SEEN:  # what the ledger has is in the facts: it may come back from a retry
                seen |= names
        if admission is Admission.APPLY and aggregate is not None and message.version is not None:
            versions[aggregate] = message.version
        admissions.append(admission)
    return admissions


def _names(message: Message) -> set[object]:
    """Choose by what the ledger knows a message: its place, and its event's id within its aggregate."""
    event = None if message.event_id is None else (spelled(message.event_id), message.aggregate_id)
    return {message.origin, event or message.origin}


def _comes_back(message: Message, noted: Outcome) -> bool:
    """Whether a message that was sent on is now read from where it was sent to."""
    return noted is Outcome.SENT_ON and message.place != message.origin


class FailureKind(StrEnum):
    """Where an error comes from."""

    RECOVERABLE = "recoverable"
    """From outside of the message: it would strike any, and passes."""
    CONTENDED = "contended"
    """Two transactions met: the same one succeeds when it is tried again at once."""
    NON_RECOVERABLE = "non-recoverable"
    """From this message, as far as one can tell."""


@dataclass(frozen=True)
class TryAgain:
    """Try it again in place, after a delay; the partition waits and others flow."""

    after: timedelta
    alert: bool = False
    """Whether the delay has just reached its limit, so that people are to be told."""


@dataclass(frozen=True)
class PutAside:
    """Stash it, and block its aggregate."""


@dataclass(frozen=True)
class SendOn:
    """Copy it to a retry topic, where it waits."""

    topic: str
    delay: timedelta


@dataclass(frozen=True)
class GiveUp:
    """Copy it to the dead-letter topic."""

    topic: str
    nameless: bool = False


@dataclass(frozen=True)
class Skip:
    """Count it and go on."""


@dataclass(frozen=True)
class Break:
    """It is no message's fault: stash nothing more, wait, and try one message from time to time."""


@dataclass(frozen=True)
class Stop:
    """More is lost than may be: end the consumer."""

    why: str


Reaction = TryAgain | PutAside | SendOn | GiveUp | Skip | Break | Stop


@dataclass
class Breaker:
    """Counts failures that look like bad messages: those that strike many aggregates are an outage or a bad release."""

    limits: BreakerLimits
    is_open: bool = False
    probes: int = 0
    """How often it was tried since it opened."""
    _row: list[str] = field(default_factory=list)
    _recent: deque[str | None] = field(default_factory=deque)

    def succeeded(self) -> None:
        """Note a message that was applied; it closes the breaker."""
        self.is_open, self.probes = False, 0
        self._row.clear()
        self._remember(None)

    def failed(self, aggregate: str) -> bool:
        """Note one that failed as if by itself; return whether the breaker is open now."""
        if self.is_open:
            self.probes += 1
            return True
        if aggregate not in self._row:
            self._row.append(aggregate)
        self._remember(aggregate)
        struck = len({each for each in self._recent if each is not None})
        self.is_open = len(self._row) >= self.limits.in_a_row or struck >= self.limits.of_recent
        if self.is_open:
            self._recent.clear()
            self.probes = 1
        return self.is_open

    def _remember(self, failed: str | None) -> None:
        self._recent.append(failed)
        while len(self._recent) > self.limits.recent:
            self._recent.popleft()


@dataclass
class Losses:
    """Counts what `ignore` loses."""

    policy: Ignore
    in_a_row: int = 0
    _recent: deque[bool] = field(default_factory=deque)

    def note(self, lost: bool) -> str | None:
        """Note a message; return why to stop where too many are lost."""
        self.in_a_row = self.in_a_row + 1 if lost else 0
        self._recent.append(lost)
        while len(self._recent) > self.policy.window:
            self._recent.popleft()
        if self.in_a_row > self.policy.max_consecutive:
            return f"{self.in_a_row} messages in a row failed, and {self.policy.max_consecutive} may be lost"
        allowed = self.policy.max_ratio * self.policy.window
        if (failed := sum(self._recent)) > allowed:
            return f"{failed} of the last {len(self._recent)} messages failed, and {allowed:g} may be lost"
        return None


@dataclass
class Course:
    """What a member remembers of failures from one message to the next, and what it does about the next one."""

    terms: Terms
    breaker: Breaker = field(init=False)
    losses: Losses | None = field(init=False)

    def __post_init__(self) -> None:
        self.breaker = Breaker(self.terms.breaker)
        self.losses = Losses(self.terms.policy) if isinstance(self.terms.policy, Ignore) else None

    def succeeded(self) -> None:
        """Note a message that was applied."""
        self.breaker.succeeded()
        if self.losses is not None:
            self.losses.note(lost=False)

    def react(self, message: Message, kind: FailureKind, tries: int) -> Reaction:
        """Decide what to do with a message that failed so many times in place, this one included."""
        policy, backoff = self.terms.policy, self.terms.backoff
        if kind is FailureKind.CONTENDED and tries <= self.terms.retries_at_once:
            return TryAgain(timedelta(0))
        in_place = TryAgain(backoff.delay(tries), backoff.at_limit(tries))
        if kind is not FailureKind.NON_RECOVERABLE:
            return in_place
        if isinstance(policy, RetryThenDeadLetter) and tries < policy.tries:
            return in_place
        if isinstance(policy, (Stash, RetryThenDeadLetter, RetryTopics)) and self.breaker.failed(_struck(message)):
            return Break()
        if isinstance(policy, Stash):
            return PutAside()
        if isinstance(policy, RetryThenDeadLetter):
            return GiveUp(policy.dead_letter)
        if isinstance(policy, RetryTopics):
            return _sent_on(policy, message) or in_place
        if self.losses is not None:
            why = self.losses.note(lost=True)
            return Stop(why) if why else Skip()
        return in_place

    def react_to_nameless(self, tries: int) -> Reaction:
        """Decide what to do with a message of no aggregate."""
        if self.terms.dead_letter is not None:
            return GiveUp(self.terms.dead_letter, nameless=True)
        if self.losses is not None:
            why = self.losses.note(lost=True)
            return Stop(why) if why else Skip()
        return TryAgain(self.terms.backoff.delay(tries), self.terms.backoff.at_limit(tries))


def _struck(message: Message) -> str:
    return message.aggregate_id if message.aggregate_id is not None else str(message.origin)


def _sent_on(policy: RetryTopics, message: Message) -> Reaction | None:
    """Choose the next topic; None where there is none."""
    topics = list(policy.topics)
    passed = [index for index, each in enumerate(topics) if each.topic == message.place.topic]
    following = passed[-1] + 1 if passed else 0
    if following < len(topics):
        return SendOn(topics[following].topic, topics[following].delay)
    return GiveUp(policy.dead_letter) if policy.dead_letter is not None else None


def full(stash: Stash, of_aggregate: int, in_all: int) -> str | None:
    """Say which bound a stash would pass by one more message; None where there is room."""
    if of_aggregate >= stash.per_aggregate:
        return f"{of_aggregate} messages of one aggregate are stashed, and {stash.per_aggregate} may be"
    if in_all >= stash.in_all:
        return f"{in_all} messages are stashed, and {stash.in_all} may be"
    return None


def newest_versions(applied: Iterable[tuple[Message, Facts]]) -> dict[str, tuple[int, bool]]:
    """Compute the version that each aggregate has after these messages, and whether it is deleted."""
    found: dict[str, tuple[int, bool]] = {}
    for message, facts in applied:
        if message.aggregate_id is None:
            continue
        known = found.get(message.aggregate_id, (facts.version, False))[0]
        versions = [version for version in (message.version, known) if version is not None]
        if versions:
            # A deletion without a version has that of what it deletes, so that nothing as old comes back.
            found[message.aggregate_id] = (max(versions), message.deletes)
    return found
