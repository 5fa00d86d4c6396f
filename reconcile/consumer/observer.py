"""What a consumer tells of its course to who measures it: classes and figures, and nothing of what a message holds."""

from __future__ import annotations

from typing import Protocol

from reconcile.consumer.decision import FailureKind
from reconcile.consumer.postgres_stash import StashSize


class Observer(Protocol):
    """Is told what happens; it is called in the consumer's threads, and returns at once."""

    every: float
    """Seconds between two looks at the backlog."""

    def done(self, group: str, topic: str, partition: int, how: str) -> None:
        """Note a message that is done with."""

    def failed(self, group: str, kind: FailureKind, error: BaseException) -> None:
        """Note a failure, of a message or of the store."""

    def waits(self, group: str, topic: str, partition: int, seconds: float, probing: bool) -> None:
        """Note that a partition waits; `probing`: because the breaker is open."""

    def lost(self, group: str, topic: str, partition: int) -> None:
        """Note that a partition is no longer this member's."""

    def backlog(self, group: str, stash: StashSize, lag: int) -> None:
        """Note what is stashed, and how many messages the group has yet to commit."""
