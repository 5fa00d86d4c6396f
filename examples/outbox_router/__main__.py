"""`python -m examples.outbox_router`: Debezium's event router and a service, with the faults of life."""

from __future__ import annotations

from pathlib import Path

from examples.connect.trial import Example, run_example
from examples.outbox_router.faults import Orders
from examples.outbox_router.pipeline import SETTINGS, ServiceWorld
from reconcile.lab.folder import Ports

# Beside the lab's, the demo's and the other example's own ports, so that all can run side by side.
WORLD = ServiceWorld(
    folder=Path(".lab-outbox-router"),
    ports=Ports(postgres=15453, kafka=19184, controller=19185),
    connect_port=18084,
    databases=("shop", "copy"),
    roles=("connect", "service"),
)

if __name__ == "__main__":
    about = "Run Debezium's event router, and a service that copies what it publishes"
    run_example(Example(about, WORLD, ("orders",), Orders, SETTINGS))
