"""Airflow on the lab's world: one command up, a night to look at, one command down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

from reconcile.airflow.standalone import Standalone, lab_wiring
from reconcile.airflow.wakeup import TOPIC
from reconcile.errors import RefusedError
from reconcile.files import committed
from reconcile.lab import faults, process, seed, world
from reconcile.lab.folder import Lab, write_atomically
from reconcile.lab.services.offsets import admin_client

DAGS = ("nightly", "on_demand", "on_request")
AGGREGATES, SEED = 1000, 42
FAULTS = ("zoey-race", "swallowed-exception", "hand-edit", "relay-lost-rows")

Say = Callable[[str], None]


def up(lab: Lab, airflow: Standalone, say: Say, master: str = "local[2]") -> None:
    """Bring up the world if it is not, its services, and an Airflow with everything wired; start a night."""
    if airflow.processes():
        raise RefusedError(f"the Airflow in {airflow.home} runs already: see {airflow.url}, or take it down first")
    world.up(lab, say=say)
    if lab.state().seeded != "yes":
        say(f"seeding {AGGREGATES:,} aggregates and planting {', '.join(FAULTS)}")
        seed.seed(lab, AGGREGATES, SEED)
        faults.plant(lab, faults.named(FAULTS), 3)
    provide_topic(lab)
    say("providing Airflow's database")
    airflow.provide(lab_wiring(_settings(lab, airflow), _runs(lab), committed("contracts"), lab.bootstrap, master))
    try:
        start_services(lab, airflow)
        say("starting Airflow, which takes a minute")
        airflow.start()
        for each in DAGS:
            process.wait_until(lambda each=each: unpaused(airflow, each), f"Airflow did not find the DAG {each}", 120)  # type: ignore[misc]
    except BaseException:
        down(airflow)
        raise


def down(airflow: Standalone) -> None:
    """End Airflow and the lab's services; the world stays up."""
    airflow.stop()


def unpaused(airflow: Standalone, dag_id: str) -> bool:
    """Let a DAG run; tell whether Airflow knows it by now."""
    from reconcile.errors import UnreachableError

    try:
        airflow.ask("PATCH", f"/api/v2/dags/{dag_id}?update_mask=is_paused", {"is_paused": False})
    except UnreachableError:
        return False
    return True


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


def _runs(lab: Lab) -> Path:
    return world.settings_file(lab).resolve().parent / "runs"


def _settings(lab: Lab, airflow: Standalone) -> Path:
    """Write the lab's settings for Airflow, with few partitions because its data are small."""
    said = yaml.safe_load(world.settings_file(lab).read_text("utf-8"))
    said["spark"] = {"conf": {"spark.sql.shuffle.partitions": "4"}}
    airflow.home.mkdir(parents=True, exist_ok=True)
    file = airflow.home.resolve() / "reconcile.yaml"
    write_atomically(file, yaml.safe_dump(said, sort_keys=False))
    return file
