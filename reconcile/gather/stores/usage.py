"""What a reading takes of a database: counted where it is taken, and held below the most that may read at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, Lock


@dataclass(frozen=True)
class Taken:
    """What a reading has taken of one side's database."""

    store: str
    of: str
    """`source`, or the consumer whose copy it has."""
    readers: int
    """How many statements read rows at a time, at most."""
    statements: int
    rows: int
    bytes: int
    """Of what was read by COPY: drivers do not tell."""
    snapshot_seconds: float
    """How long its snapshot was held."""
    paused_seconds: float
    """How long readers waited, all together, because it was busy."""


class Readers:
    """How many read a database at a time: those that are too many wait."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.most = 0
        self._now = 0
        self._changed = Condition()

    @contextmanager
    def reading(self, wanted: int | None = 1) -> Iterator[None]:
        """Wait until so many may read, and let them during the block; None, or too many, are all that may."""
        count = self.limit if wanted is None else min(wanted, self.limit)
        with self._changed:
            self._changed.wait_for(lambda: self._now + count <= self.limit)
            self._now += count
            self.most = max(self.most, self._now)
        try:
            yield
        finally:
            with self._changed:
                self._now -= count
                self._changed.notify_all()


class Usage:
    """The count of what is taken of one side's database, by all sessions of this process."""

    def __init__(self, store: str, of: str, readers: Readers) -> None:
        self.store = store
        self.of = of
        self.readers = readers
        self._lock = Lock()
        self._statements = self._rows = self._bytes = 0
        self._paused = self._held = 0.0
        self._since: float | None = None

    def add(self, statements: int = 0, rows: int = 0, size: int = 0, paused: float = 0.0) -> None:
        """Count what was sent, read and waited for."""
        with self._lock:
            self._statements += statements
            self._rows += rows
            self._bytes += size
            self._paused += paused

    def snapshot_began(self) -> None:
        """Note that its snapshot is held from now on."""
        self._since = time.monotonic()

    def snapshot_ended(self) -> None:
        """Note that its snapshot is let go, if it is held."""
        if self._since is not None:
            self._held += time.monotonic() - self._since
            self._since = None

    def taken(self) -> Taken:
        """Build what was taken until now."""
        held = self._held + (0.0 if self._since is None else time.monotonic() - self._since)
        with self._lock:
            return Taken(
                store=self.store,
                of=self.of,
                readers=self.readers.most,
                statements=self._statements,
                rows=self._rows,
                bytes=self._bytes,
                snapshot_seconds=round(held, 3),
                paused_seconds=round(self._paused, 3),
            )
