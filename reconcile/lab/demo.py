"""The demo: a world is brought up, filled, damaged in every way we know, shown, and taken down."""

from __future__ import annotations

import logging
import random
import shutil
from contextlib import ExitStack
from pathlib import Path

from reconcile.lab import faults, seed, truth, world
from reconcile.lab.faults.stage import Stage
from reconcile.lab.folder import Lab, Ports
from reconcile.lab.services.copies import SERVICES

_LOG = logging.getLogger(__name__)

FOLDER = Path(".lab-demo") / "world"
RUNS = FOLDER.parent / "runs"
# Beside the lab's own, so that a demo and a lab can run side by side.
PORTS = Ports(postgres=15442, kafka=19192, controller=19193)
AGGREGATES = 10_000
SEED = 2026


def damaged_world() -> Lab:
    """Bring up a new world with every fault planted."""
    end()
    lab = Lab(FOLDER)
    world.up(lab, PORTS)
    _LOG.info(f"seeding {AGGREGATES:,} aggregates")
    seeded = seed.seed(lab, AGGREGATES, SEED)
    _LOG.info(f"seeded {seeded.events:,} events in {seeded.seconds:.1f} s")
    _LOG.info(f"planting {len(faults.FAULTS)} faults")
    planted = faults.plant(lab, faults.FAULTS, count=3)
    _LOG.info(f"{planted} aggregates now differ, or will; {len(truth.read(lab.truth))} lines of truth")
    return lab


def end() -> None:
    """Take the world down and leave nothing of it, and nothing of its runs."""
    world.down(Lab(FOLDER), wipe=True)
    shutil.rmtree(RUNS, ignore_errors=True)


def consume(lab: Lab) -> None:
    """Let the services consume what is there, as they do all day."""
    with lab.alone("consume"), ExitStack() as stack:
        stage = Stage(lab, random.Random(SEED), stack)  # noqa: S311
        for service in SERVICES:
            stage.consume(service)
