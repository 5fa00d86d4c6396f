"""What waits in a source's outbox: events that it has written and nobody has published."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconcile.domain.finding import time_text


@dataclass(frozen=True)
class WaitingEvents:
    """Events of one aggregate that are not published yet."""

    count: int
    since: datetime | None = None
    """When the oldest was written; None where the outbox does not say it."""
    seen_at: datetime | None = None
    """When the outbox was read."""

    @property
    def age(self) -> str:
        """Say since when they wait, as far as that is known."""
        if self.since is not None:
            return f" since {time_text(self.since)}"
        return f", seen at {time_text(self.seen_at)}" if self.seen_at is not None else ""
