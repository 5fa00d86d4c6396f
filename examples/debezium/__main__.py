"""`python -m examples.debezium`: pipelines of Debezium with the faults of life, audited and repaired."""

from __future__ import annotations

from pathlib import Path

from examples.connect.trial import Example, run_example
from examples.connect.world import World
from examples.debezium.faults import Orders
from examples.debezium.pipeline import HERE, VARIANTS
from reconcile.lab.folder import Ports

# Beside the lab's, the demo's and the other example's own ports, so that all can run side by side.
WORLD = World(
    folder=Path(".lab-debezium"),
    ports=Ports(postgres=15452, kafka=19182, controller=19183),
    connect_port=18083,
    databases=tuple(f"{part}_{variant}" for part in ("shop", "copy") for variant in VARIANTS),
)

if __name__ == "__main__":
    about = "Run pipelines of Debezium and its JDBC sink"
    run_example(Example(about, WORLD, VARIANTS, Orders, HERE / "reconcile.yaml"))
