"""Worlds for tests: real servers on ports of their own, started by the code that the lab uses."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconcile.lab import world
from reconcile.lab.folder import Lab, Ports
from reconcile.lab.process import remove_tree
from reconcile.lab.seed import seed
from tests.ports import ports_of

PORTS = ports_of("worlds")


@contextmanager
def seeded_world(aggregates: int, number: int = 7, ports: Ports = PORTS) -> Iterator[Lab]:
    """Bring a world up, fill it, and leave nothing of it.

    Its folder follows from its ports, so that the next run finds and ends the servers that a killed one left.
    """
    lab = Lab(Path(tempfile.gettempdir()) / f"reconcile-test-{ports.postgres}" / "lab")
    world.down(lab, wipe=True)
    lab.root.parent.mkdir(exist_ok=True)
    world.up(lab, ports)
    try:
        seed(lab, aggregates, number)
        yield lab
    finally:
        world.down(lab, wipe=True)
        remove_tree(lab.root.parent)
