"""How busy a database is, and waiting before a heavy statement until it is less so."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from reconcile.config import durations
from reconcile.gather.stores.errors import StoreBusyError
from reconcile.settings.connections import Pause

LOOK_EVERY = timedelta(seconds=1)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Load:
    """What a database has to do, as its own views tell."""

    connections: int
    """Sessions, ours included."""
    running: int
    """Statements that others are running."""
    replication_lag: timedelta = timedelta(0)
    """How far the replica that is furthest behind is behind."""


def excess(load: Load, pause: Pause) -> list[str]:
    """List what a database has more of than `pause` allows, in words."""
    found = []
    if pause.replication_lag is not None and load.replication_lag > pause.replication_lag:
        lag = f"a replica is {load.replication_lag.total_seconds():.1f} s behind"
        found.append(f"{lag}, more than `pause.replication_lag` ({durations.text(pause.replication_lag)})")
    if pause.connections is not None and load.connections > pause.connections:
        found.append(f"{load.connections} sessions are open, more than `pause.connections` ({pause.connections})")
    if pause.running is not None and load.running > pause.running:
        found.append(f"{load.running} statements are running, more than `pause.running` ({pause.running})")
    return found


def wait_while_busy(
    store: str, look: Callable[[], Load], pause: Pause, sleep: Callable[[float], None] = time.sleep
) -> float:
    """Wait while a database is busier than `pause` allows, and return the seconds that took.

    Raises StoreBusyError if it stays so for longer than `pause.at_most`.
    """
    if pause.replication_lag is None and pause.connections is None and pause.running is None:
        return 0.0
    waited, every = 0.0, LOOK_EVERY.total_seconds()
    while why := "; ".join(excess(look(), pause)):
        if not waited:
            _LOG.info(f"the store {store} is busy, and we wait: {why}")
        if waited + every > pause.at_most.total_seconds():
            raise StoreBusyError(
                f"the store {store} was busy for longer than `pause.at_most` ({durations.text(pause.at_most)}): {why};"
                " run at a quieter time, or let its connection wait longer or allow more"
            )
        sleep(every)
        waited += every
    if waited:
        _LOG.info(f"the store {store} is less busy; we waited {waited:.0f} s")
    return waited
