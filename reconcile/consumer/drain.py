"""Draining the stash: aggregate by aggregate, the longest blocked first, also beside a consumer that runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from time import monotonic
from typing import TypeVar

from reconcile.consumer import decision, parking
from reconcile.consumer.alerts import Alerts
from reconcile.consumer.decision import Admission, FailureKind, Outcome
from reconcile.consumer.errors import DrainHeldError, NamelessMessageError
from reconcile.consumer.message import Message
from reconcile.consumer.policy import Stash, Terms
from reconcile.consumer.processor import At, Handler, HandlerFailed, nowhere
from reconcile.consumer.reading import Reading
from reconcile.consumer.recovery import Recovery, is_the_messages
from reconcile.consumer.store import Letter, Noted, Outgoing, Stashed, StashStore, Writes

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
_HELD_FOR = 300.0
"""Seconds for which a drain is held; it is renewed long before, and is free at once where its process has died."""


@dataclass
class Drained:
    """What a drain did."""

    applied: int = 0
    older: int = 0
    """Messages that the version guard dropped."""
    damaged: int = 0
    """Messages that were skipped, because they are registered as damaged."""
    seen: int = 0
    """Messages that had been applied before."""
    unblocked: list[str] = field(default_factory=list)
    """Aggregates that flow again."""
    blocked: list[str] = field(default_factory=list)
    """Aggregates whose first message failed again."""
    interrupted: bool = False


@dataclass
class Drain:
    """Drains the stash of one group."""

    stash: StashStore
    handler: Handler
    reading: Reading
    group: str
    terms: Terms
    recovery: Recovery = field(default_factory=Recovery)
    alerts: Alerts = field(default_factory=Alerts)
    wait: Callable[[float], object] = field(default_factory=lambda: threading.Event().wait)
    at: At = nowhere
    _epoch: int = 0
    _renewed: float = 0.0

    def run(self, ids: Sequence[str] | None = None, going: Callable[[], bool] = lambda: True) -> Drained:
        """Drain all aggregates, or some; raise DrainHeldError while another drain lives, or once it has taken over."""
        drained = Drained()
        self._epoch, self._renewed = self._until_answered(lambda: self.stash.hold(_HELD_FOR), going), monotonic()
        try:
            for aggregate in self._all(going) if ids is None else ids:
                if not going():
                    drained.interrupted = True
                    break
                self._drain(aggregate, drained, going)
        finally:
            self._give_back()
        return drained

    def _all(self, going: Callable[[], bool]) -> Iterator[str]:
        """Query one blocked aggregate after the other, each when it is its turn."""
        after: tuple[datetime, str] | None = None
        while (after := self._until_answered(partial(self.stash.blocked, after), going)) is not None:
            yield after[1]

    def _until_answered(self, query: Callable[[], T], going: Callable[[], bool]) -> T:
        """Query the store, again while it does not answer."""
        tries = 0
        while True:
            try:
                return query()
            except Exception as error:
                if self.recovery.kind(error) is FailureKind.NON_RECOVERABLE or not going():
                    raise
                tries += 1
                self._back_off(error, tries)

    def _give_back(self) -> None:
        try:
            self.stash.give_back(self._epoch)
        except Exception as error:
            if self.recovery.kind(error) is FailureKind.NON_RECOVERABLE:
                raise
            _LOG.info("the drain is free once its connection is gone: %s", type(error).__name__)

    def _drain(self, aggregate: str, drained: Drained, going: Callable[[], bool]) -> None:
        tries = 0
        while going():
            try:
                self._renew()
                if not self._attempt(aggregate, drained):
                    return
                tries = 0
            except Exception as error:
                if self.recovery.kind(error) is FailureKind.NON_RECOVERABLE:
                    raise
                tries += 1
                self._back_off(error, tries)
        drained.interrupted = True

    def _attempt(self, aggregate: str, drained: Drained) -> bool:
        """Do the next message of an aggregate, or put it back where it fails; return whether to go on with others."""
        try:
            return self._step(aggregate, drained)
        except HandlerFailed as failed:
            if self.recovery.kind(failed.error) is FailureKind.NON_RECOVERABLE:
                return self._put_back(aggregate, failed.error, drained)
            raise failed.error from failed.error.__cause__

    def _step(self, aggregate: str, drained: Drained) -> bool:
        """Do the next message of an aggregate; return whether there may be more."""
        with self.stash.transaction() as transaction:
            self.at("drain begun")
            head = transaction.head(aggregate)
            if head is None:
                flows = transaction.unblock(aggregate)
                if flows is False:
                    return True
                self.at("drain unblocked")
                drained.unblocked += [aggregate] if flows else []
                return False
            letter, facts = head
            message = self._message(letter)
            self.at("drain head read")
            if message.aggregate_id != aggregate:
                raise HandlerFailed(NamelessMessageError(f"the key of {message.place} is not read as it was stashed"))
            admission = decision.admit(message, facts, self._epoch, self.terms)
            if admission is Admission.FENCED:
                raise DrainHeldError(f"another drain of {self.group} has taken over: this one changes nothing more")
            if admission is Admission.APPLY:
                try:
                    self.handler([message], transaction.handle)
                except Exception as error:
                    raise HandlerFailed(error) from error
                self.at("drain handled")
                versions = decision.newest_versions([(message, facts)]) if self.terms.guard != "none" else {}
                writes = Writes([Noted(message, Outcome.APPLIED)], versions=versions)
            else:
                skipped = admission in (Admission.OLDER, Admission.DAMAGED)
                writes = Writes([Noted(message, Outcome(admission.value))] if skipped else [])
            try:
                transaction.take(letter, writes)
            except Exception as error:
                if is_the_messages(error):
                    raise HandlerFailed(error) from error
                raise
            self.at("drain taken")
        drained.applied += admission is Admission.APPLY
        drained.older += admission is Admission.OLDER
        drained.damaged += admission is Admission.DAMAGED
        drained.seen += admission is Admission.SEEN
        return True

    def _put_back(self, aggregate: str, error: Exception, drained: Drained) -> bool:
        """Leave the message where it is, with its error, so that the next aggregate goes on."""
        with self.stash.transaction() as transaction:
            head = transaction.head(aggregate)
            if head is None or head[1].epoch != self._epoch:
                return True
            letter, _ = head
            transaction.put_back(letter, type(error).__name__, str(error), self._shown(letter, error))
            self.at("drain put back")
        _LOG.warning("%s failed again: %s", letter.origin, type(error).__name__)
        self.alerts.put_aside(self._message(letter), "stashed again", error)
        drained.blocked.append(aggregate)
        return False

    def _back_off(self, error: Exception, tries: int) -> None:
        contended = self.recovery.kind(error) is FailureKind.CONTENDED and tries <= self.terms.retries_at_once
        if not contended:
            _LOG.warning("the drain waits: %s (try %d)", type(error).__name__, tries)
            self.wait(self.terms.backoff.delay(tries).total_seconds())

    def _renew(self) -> None:
        if monotonic() - self._renewed > _HELD_FOR / 10:
            self.stash.renew(self._epoch, _HELD_FOR)
            self._renewed = monotonic()

    def _message(self, letter: Letter) -> Message:
        place = letter.origin
        message = self.reading.read(place, place, letter.key, letter.value, letter.headers, letter.at)
        return replace(message, attempt=letter.drains)

    def _shown(self, letter: Letter, error: Exception) -> list[Outgoing]:
        policy = self.terms.policy
        topic = (policy.second_topic or policy.topic) if isinstance(policy, Stash) else None
        if topic is None:
            return []
        stashed = Stashed(self._message(letter), type(error).__name__, str(error))
        return [parking.shown(stashed, self.group, topic, None)]
