"""Ports on which tests start their servers: each owner has three of its own, and each worker of a run."""

from __future__ import annotations

import os

from reconcile.lab.folder import Ports

OWNERS = (
    "worlds",
    "audit",
    "canonical",
    "control",
    "doctor",
    "emission",
    "fence",
    "foreign worlds",
    "gather",
    "history",
    "partitions",
    "repair",
    "web",
    "airflow",
    "lab",
    "second lab",
    "readme",
    "airflow up",
    "long application",
    "open transactions",
    "proxy",
    "consumer",
    "consumer proxy",
    "library tables",
    "redis",
    "redis server",
    "debezium",
    "outbox router",
    "lakes",
    "mariadb",
    "mariadb server",
    "politeness",
    "copying",
    "changed rows",
    "changed only",
    "at rest",
    "secure lab",
    "second secure lab",
    "sql fence",
    "servers gone",
    "full disk",
    "first contract",
)
ROOM = 60
"""How many owners a worker has room for."""
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def ports_of(owner: str) -> Ports:
    """Give the three ports of an owner in this worker."""
    number = _WORKER * ROOM + OWNERS.index(owner)
    return Ports(postgres=15500 + number, kafka=19200 + 2 * number, controller=19201 + 2 * number)


def connect_port_of(owner: str) -> int:
    """Give the port of an owner's worker of Kafka Connect."""
    return 18200 + _WORKER * ROOM + OWNERS.index(owner)
