"""Airflow on the lab's world: one command up, a night to look at, one command down."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from reconcile.airflow.standalone import Standalone, lab_wiring
from reconcile.airflow.wakeup import TOPIC
from reconcile.errors import RefusedError, UnreachableError
from reconcile.files import committed
from reconcile.lab import faults, process, seed, world
from reconcile.lab.folder import Lab, write_atomically
from reconcile.lab.services.offsets import admin_client

WAITING = ("on_demand", "on_request")
"""The DAGs that run when somebody asks."""
AGGREGATES, SEED = 1000, 42
FAULTS = ("zoey-race", "swallowed-exception", "hand-edit", "relay-lost-rows")

_TO_PARSE = 120.0

Say = Callable[[str], None]


def up(lab: Lab, airflow: Standalone, say: Say, master: str = "local[2]") -> str:
    """Bring up the world if it is not, its services, and an Airflow with everything wired.

    Starts a night, and gives the id of its run.
    """
    if airflow.processes():
        raise RefusedError(f"the Airflow in {airflow.home} runs already: see {airflow.url}, or take it down first")
    airflow.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not world.status(lab)["running"]:
        write_atomically(_started(airflow), str(lab.root.resolve()))
    try:
        world.up(lab, say=say)
        if lab.state().seeded != "yes":
            say(f"seeding {AGGREGATES:,} aggregates and planting {', '.join(FAULTS)}")
            seed.seed(lab, AGGREGATES, SEED)
            faults.plant(lab, faults.named(FAULTS), 3)
        provide_topic(lab)
        say("providing Airflow's database")
        airflow.provide(lab_wiring(_settings(lab, airflow), _runs(lab), committed("contracts"), lab.bootstrap, master))
        start_services(lab, airflow)
        say("starting Airflow, which takes a minute")
        airflow.start()
        for each in WAITING:
            process.wait_until(partial(unpaused, airflow, each), f"Airflow did not find the DAG {each}", _TO_PARSE)
        return night(airflow)
    except BaseException:
        down(airflow)
        raise


def down(airflow: Standalone) -> None:
    """End Airflow, the lab's services, and the world if it was brought up for this Airflow; its data stay."""
    airflow.stop()
    if (file := _started(airflow)).exists():
        world.down(Lab(Path(file.read_text("utf-8"))))
        file.unlink()


def unpaused(airflow: Standalone, dag_id: str) -> bool:
    """Let a DAG run; tell whether Airflow knows it by now."""
    try:
        airflow.ask("PATCH", f"/api/v2/dags/{dag_id}?update_mask=is_paused", {"is_paused": False})
    except UnreachableError:
        return False
    return True


def night(airflow: Standalone) -> str:
    """Give the id of the night to look at: the missed one, which begins by itself at first, or else a new one."""
    path = "/api/v2/dags/nightly/dagRuns"
    process.wait_until(partial(_known, airflow, "nightly"), "Airflow did not find the DAG nightly", _TO_PARSE)
    known = dag_runs(airflow, "nightly")
    unpaused(airflow, "nightly")
    if known:
        return str(airflow.ask("POST", path, {"logical_date": None})["dag_run_id"])
    process.wait_until(lambda: bool(dag_runs(airflow, "nightly")), "no night began", _TO_PARSE)
    return dag_runs(airflow, "nightly")[0]


def dag_runs(airflow: Standalone, dag_id: str) -> list[str]:
    """Give the ids of a DAG's runs."""
    found = airflow.ask("GET", f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"]
    return [str(each["dag_run_id"]) for each in found]


def provide_topic(lab: Lab) -> None:
    """Make the request topic, unless it is there."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    for future in admin_client(lab.bootstrap).create_topics([NewTopic(TOPIC, 3, 1)]).values():
        try:
            future.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def start_services(lab: Lab, airflow: Standalone) -> None:
    """Let the lab's services consume until Airflow goes down."""
    airflow.spawn(airflow.home / "services.log", "-m", "reconcile.airflow.services", str(lab.root.resolve()))


def _known(airflow: Standalone, dag_id: str) -> bool:
    try:
        airflow.ask("GET", f"/api/v2/dags/{dag_id}")
    except UnreachableError:
        return False
    return True


def _started(airflow: Standalone) -> Path:
    """Where it is remembered which lab was brought up for an Airflow."""
    return airflow.home / "lab"


def _runs(lab: Lab) -> Path:
    return world.settings_file(lab).resolve().parent / "runs"


def _settings(lab: Lab, airflow: Standalone) -> Path:
    """Copy the lab's settings for Airflow: what is set there for Airflow alone stays out of the team's own."""
    file = airflow.home.resolve() / "reconcile.yaml"
    write_atomically(file, world.settings_file(lab).read_text("utf-8"))
    return file
