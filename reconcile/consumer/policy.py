"""What a consumer does with a message that it cannot process: the contract's five policies, and their limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import ClassVar

from reconcile.consumer.errors import PolicyRefusedError
from reconcile.errors import RefusedError

_STEPS = 1000
"""Tries after which a delay grows no more, whatever the limit."""


@dataclass(frozen=True)
class Backoff:
    """How long to wait before the next try: longer each time, up to the limit, at which people are told."""

    first: timedelta = timedelta(milliseconds=100)
    factor: float = 2.0
    limit: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        if self.first <= timedelta(0) or self.limit <= timedelta(0) or self.factor < 1:
            raise RefusedError("a back-off has a delay above zero, a limit above zero, and a factor of at least 1")

    def delay(self, tries: int) -> timedelta:
        """Compute the time to wait after so many tries."""
        delay = self.first
        for _ in range(min(tries - 1, _STEPS)):
            if delay >= self.limit:
                break
            delay *= self.factor
        return min(delay, self.limit)

    def at_limit(self, tries: int) -> bool:
        """Whether the wait after so many tries has just reached the limit."""
        return self.delay(tries) >= self.limit and (tries <= 1 or self.delay(tries - 1) < self.limit)


@dataclass(frozen=True)
class BreakerLimits:
    """When failures that look like bad messages are an outage: so many aggregates in a row, or of the last messages."""

    in_a_row: int = 5
    of_recent: int = 10
    recent: int = 100


@dataclass(frozen=True)
class Ignore:
    """Count and skip what fails; stop where more is lost than may be."""

    name: ClassVar[str] = "ignore"
    max_ratio: float = 0.01
    window: int = 1000
    max_consecutive: int = 10


@dataclass(frozen=True)
class Block:
    """Try again in place, for ever: the partition waits, others flow."""

    name: ClassVar[str] = "block"
    dead_letter: str | None = None
    """The topic for messages that belong to no aggregate; without one they block their partition."""


@dataclass(frozen=True)
class RetryThenDeadLetter:
    """Try so often in place, then copy to the dead-letter topic."""

    name: ClassVar[str] = "retry-then-dead-letter"
    dead_letter: str
    tries: int = 3


@dataclass(frozen=True)
class RetryTopic:
    """A topic whose records wait before they are tried again."""

    topic: str
    delay: timedelta
    group: str | None = None
    """The group that reads it; left out, the consumer's own."""


@dataclass(frozen=True)
class RetryTopics:
    """Copy to topics with growing delay, then to the dead-letter topic: the order is lost, so for records alone."""

    name: ClassVar[str] = "retry-topics"
    topics: Sequence[RetryTopic]
    dead_letter: str | None = None
    """The topic for what fails in the last one too; without one it blocks its partition of that topic."""


@dataclass(frozen=True)
class Stash:
    """Put aside what fails and all that follows of the same aggregate, in order; other aggregates flow."""

    name: ClassVar[str] = "stash"
    topic: str | None = None
    """A topic that shows what is stashed; the stash itself is a table."""
    second_topic: str | None = None
    """A topic that shows what failed again when it was drained; left out, the same."""
    per_aggregate: int = 1024
    in_all: int = 100_000
    dead_letter: str | None = None
    """The topic for messages that belong to no aggregate; without one they block their partition."""


_WORDS = {
    "semantics": ("state", "records"),
    "events": ("full", "patch"),
    "guard": ("none", "newer", "newer-or-equal"),
}
Policy = Ignore | Block | RetryThenDeadLetter | RetryTopics | Stash


@dataclass(frozen=True)
class Terms:
    """All that decides what happens to a message."""

    policy: Policy
    semantics: str = "state"
    """`state`: one row per aggregate, updated in place. `records`: one row per event, never changed."""
    events: str = "full"
    """`full`: an event carries all fields, so that an older one adds nothing. `patch`: only what changed."""
    guard: str = "none"
    """`newer` or `newer-or-equal`: which versions are applied over the one that is known; `none`: all."""
    ledger: bool = True
    """Whether each message that is done with is noted, so that it is never applied again."""
    skip_damaged: bool = False
    """Whether messages that are registered as damaged are skipped."""
    backoff: Backoff = field(default_factory=Backoff)
    breaker: BreakerLimits = field(default_factory=BreakerLimits)
    retries_at_once: int = 3
    """How often a deadlock or a serialization failure is tried again before anything waits."""

    def __post_init__(self) -> None:
        for name, valid in _WORDS.items():
            if getattr(self, name) not in valid:
                raise RefusedError(f"{name}: {getattr(self, name)!r} is not valid: write {', '.join(valid)}")
        if isinstance(self.policy, RetryTopics) and self.semantics != "records":
            raise PolicyRefusedError(
                "retry topics lose the order of an aggregate's events, so a copy of state would end up wrong, silently:"
                " choose the policy stash or block; only a copy that keeps one immutable row per event"
                " (`semantics: records`) may use them"
            )

    @property
    def knows_what_was_overtaken(self) -> bool:
        """Whether a message that comes late does no harm, or is known to be older than what was applied since."""
        return self.ledger or self.guard != "none" or self.semantics == "records" or self.events == "patch"

    @property
    def dead_letter(self) -> str | None:
        """The dead-letter topic, where the policy has one."""
        return getattr(self.policy, "dead_letter", None)
