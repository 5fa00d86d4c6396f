"""Airflow on the lab's world: one command up, a night to look at, one command down."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reconcile.errors import RefusedError, UnreachableError
from reconcile.files import committed
from reconcile.lab import faults, process, seed, world
from reconcile.lab.airflow.standalone import Standalone
from reconcile.lab.folder import Lab, Ports, write_atomically
from reconcile.pipeline.requests import TOPIC

_LOG = logging.getLogger(__name__)

WAITING = ("on_demand", "on_request")
"""The DAGs that run when somebody asks."""
AGGREGATES, SEED = 1000, 42
FAULTS = ("zoey-race", "swallowed-exception", "hand-edit", "relay-lost-rows")

REQUEST_TOPIC = {TOPIC: 3}

_TO_PARSE = 120.0

Wiring = Callable[[Path, Path, Path, str, str], dict[str, Any]]
"""Builds what Airflow is provided with, of its settings, workspace, contracts, bootstrap and Spark master."""


def up(lab: Lab, airflow: Standalone, wiring: Wiring, master: str = "local[2]", ports: Ports | None = None) -> str:
    """Bring up the world if it is not, its services, and an Airflow with everything wired.

    Starts a night, and returns the id of its run.
    """
    if airflow.processes():
        raise RefusedError(f"the Airflow in {airflow.home} runs already: see {airflow.url}, or take it down first")
    airflow.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not world.status(lab)["running"]:
        write_atomically(_started(airflow), str(lab.root.resolve()))
    try:
        world.up(lab, ports)
        if lab.state().seeded != "yes":
            _LOG.info(f"seeding {AGGREGATES:,} aggregates and planting {', '.join(FAULTS)}")
            seed.seed(lab, AGGREGATES, SEED)
            faults.plant(lab, faults.named(FAULTS), 3)
        world.provide_topics(lab, REQUEST_TOPIC)
        _LOG.info("providing Airflow's database")
        runs = world.settings_file(lab).resolve().parent / "runs"
        airflow.provide(wiring(_settings(lab, airflow), runs, committed("contracts"), lab.bootstrap, master))
        start_services(lab, airflow)
        return begun(airflow)
    except BaseException:
        down(airflow)
        raise


def down(airflow: Standalone) -> None:
    """End Airflow, the lab's services, and the world if it was brought up for this Airflow; its data stay."""
    airflow.stop()
    if (file := _started(airflow)).exists():
        world.down(Lab(Path(file.read_text("utf-8"))))
        file.unlink()


def begun(airflow: Standalone) -> str:
    """Start an Airflow that is provided, let its DAGs run, and start a night; return the id of its run."""
    _LOG.info("starting Airflow, which takes a minute")
    airflow.start()
    token = airflow.token()
    for each in WAITING:
        _unpause(airflow, token, each)
    return _night(airflow, token)


def awaited(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for a condition on Airflow's API, which a busy machine may not answer for a moment."""

    def holds() -> bool:
        try:
            return condition()
        except UnreachableError:
            return False

    process.wait_until(holds, what, seconds, every=1)


def _night(airflow: Standalone, token: str) -> str:
    """Find the night to look at: at first the missed one, which begins by itself, later a new one."""
    path = "/api/v2/dags/nightly/dagRuns"

    def runs() -> list[str]:
        return [str(each["dag_run_id"]) for each in airflow.ask("GET", path, token=token)["dag_runs"]]

    awaited(
        lambda: bool(airflow.ask("GET", "/api/v2/dags/nightly", token=token)),
        "Airflow did not find the DAG nightly",
        _TO_PARSE,
    )
    known = runs()
    _unpause(airflow, token, "nightly")
    if known:
        return str(airflow.ask("POST", path, {"logical_date": None}, token)["dag_run_id"])
    awaited(lambda: bool(runs()), "no night began", _TO_PARSE)
    return runs()[0]


def _unpause(airflow: Standalone, token: str, dag_id: str) -> None:
    path = f"/api/v2/dags/{dag_id}?update_mask=is_paused"
    awaited(
        lambda: bool(airflow.ask("PATCH", path, {"is_paused": False}, token)),
        f"Airflow did not find the DAG {dag_id}",
        _TO_PARSE,
    )


def start_services(lab: Lab, airflow: Standalone) -> None:
    """Let the lab's services consume until Airflow goes down."""
    airflow.spawn(airflow.home / "services.log", "-m", "reconcile.lab.airflow.services", str(lab.root.resolve()))


def _started(airflow: Standalone) -> Path:
    """Where it is remembered which lab was brought up for an Airflow."""
    return airflow.home / "lab"


def _settings(lab: Lab, airflow: Standalone) -> Path:
    """Copy the lab's settings for Airflow: what is set there for Airflow alone stays out of the team's own."""
    file = airflow.home.resolve() / "reconcile.yaml"
    write_atomically(file, world.settings_file(lab).read_text("utf-8"))
    return file
