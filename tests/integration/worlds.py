"""Worlds for tests: real servers on ports of their own, started by the code that the lab uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconcile.lab import world
from reconcile.lab.folder import Lab, Ports
from reconcile.lab.seed import seed

PORTS = Ports(postgres=15452, kafka=19292, controller=19293)


@contextmanager
def seeded_world(folder: Path, aggregates: int, number: int = 7) -> Iterator[Lab]:
    """Bring a world up, fill it, and leave nothing of it."""
    lab = Lab(folder)
    world.up(lab, PORTS)
    try:
        seed(lab, aggregates, number)
        yield lab
    finally:
        world.down(lab, wipe=True)
