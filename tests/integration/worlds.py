"""Worlds for tests: real servers on ports of their own, started by the code that the lab uses."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from reconcile.kafka.client import ClusterClient
from reconcile.lab import world
from reconcile.lab.folder import Lab, Ports
from reconcile.lab.postgres import PostgresServer
from reconcile.lab.process import remove_tree
from reconcile.lab.seed import seed
from tests.ports import ports_of

PORTS = ports_of("worlds")


def until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def until_decided(bootstrap: str, topic: str) -> None:
    """Wait until the log shows how a topic's last transaction ended: its producer hears of it before."""
    with closing(ClusterClient("main", {"bootstrap.servers": bootstrap})) as cluster:
        partitions = cluster.topic(topic).partitions
        until(lambda: cluster.ends(topic, partitions) == cluster.high_watermarks(topic, partitions))


@contextmanager
def postgres_alone(ports: Ports) -> Iterator[Lab]:
    """Start a Postgres with nothing in it, and leave nothing of it, nor what a killed run left."""
    lab = Lab(_folder(ports))
    postgres = PostgresServer(lab)
    postgres.down()
    postgres.wipe()
    lab.root.mkdir(parents=True, exist_ok=True)
    lab.remember(ports=ports)
    try:
        postgres.up()
        yield lab
    finally:
        postgres.down()
        postgres.wipe()
        remove_tree(lab.root.parent)


@contextmanager
def seeded_world(aggregates: int, number: int = 7, ports: Ports = PORTS, *, secure: bool = False) -> Iterator[Lab]:
    """Bring a world up, fill it, and leave nothing of it.

    Its folder follows from its ports, so that the next run finds and ends the servers that a killed one left.
    """
    lab = Lab(_folder(ports))
    world.down(lab, wipe=True)
    lab.root.parent.mkdir(exist_ok=True)
    world.up(lab, ports, secure=secure)
    try:
        seed(lab, aggregates, number)
        yield lab
    finally:
        world.down(lab, wipe=True)
        remove_tree(lab.root.parent)


def _folder(ports: Ports) -> Path:
    return Path(tempfile.gettempdir()) / f"reconcile-test-{ports.postgres}" / "lab"
