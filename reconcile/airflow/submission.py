"""What spark-submit needs around it: its settings, and the secrets that the application may not ask Airflow for."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from reconcile.airflow.installation import Installation
from reconcile.airflow.scheduled_run import ScheduledRun
from reconcile.settings.references import Reference
from reconcile.settings.settings import Settings

APPLICATION = str(Path(__file__).parent / "submitted" / "run_stages.py")
CLUSTER = "cluster"
"""The mode in which the driver runs on another machine than the task."""

_GIVEN = ("spark.master", "spark.app.name", "spark.jars")


def arguments(scheduled_run: ScheduledRun, stages: Sequence[str], place: Installation, ids: Path | None) -> list[str]:
    """Build the arguments of the application; `ids` is the file with the ids, if the run takes only some."""
    given = ["--run", scheduled_run.run_id, "--contract", scheduled_run.contract, "--stages", ",".join(stages)]
    given += ["--mode", scheduled_run.mode]
    given += [part for name in scheduled_run.consumers for part in ("--consumer", name)]
    if ids is not None:
        given += ["--ids", str(ids)]
    if scheduled_run.incremental:
        given.append("--incremental")
    if place.config is not None:
        given += ["--config", str(place.config)]
    if place.workspace is not None:
        given += ["--workspace", place.workspace]
    if scheduled_run.requester is not None:
        given += ["--requester", json.dumps(asdict(scheduled_run.requester))]
    return given


@contextmanager
def ids_file(ids: Sequence[str]) -> Iterator[Path | None]:
    """Write the ids to a file for as long as the block lasts: they may not fit on a command line. None without ids."""
    if not ids:
        yield None
        return
    with tempfile.NamedTemporaryFile("w", prefix="reconcile-ids-", suffix=".json", encoding="utf-8") as file:
        json.dump(list(ids), file)
        file.flush()
        yield Path(file.name)


def configuration(settings: Settings, master: str, name: str, deploy_mode: str | None) -> dict[str, str]:
    """Build Spark's configuration on a master; secrets are set later, inside of the JVM."""
    from reconcile.spark.session import public_configuration

    there = settings.model_copy(update={"spark": settings.spark.model_copy(update={"master": master})})
    found = {key: value for key, value in public_configuration(there, name).items() if key not in _GIVEN}
    if deploy_mode != CLUSTER:
        found.setdefault("spark.pyspark.driver.python", sys.executable)
    if master.startswith("local"):
        found.setdefault("spark.pyspark.python", sys.executable)
    return found


def jars(settings: Settings) -> str:
    """Build the list of jars for spark-submit."""
    from reconcile.spark.session import jars as needed

    return needed(settings)


def files(settings: Settings, *more: Path) -> str:
    """Build the list of files that spark-submit copies to a driver on another machine."""
    return ",".join([*settings.spark.listed("spark.files"), *map(str, more)])


@contextmanager
def surroundings(settings: Settings) -> Iterator[None]:
    """Set the environment of child processes: our own spark-submit, and the Airflow connections of the settings."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    given = {"PATH": path, **_connections(settings)}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def references(value: Any) -> Iterator[Reference]:
    """Find every reference to an Airflow connection in settings."""
    if isinstance(value, Reference):
        if value.scheme == "airflow":
            yield value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from references(getattr(value, name))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from references(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from references(each)


def _connections(settings: Settings) -> dict[str, str]:
    from airflow.sdk import Connection

    ids = sorted({each.target for each in references(settings)})
    given = {f"AIRFLOW_CONN_{id_.upper()}": Connection.get(id_).as_json() for id_ in ids}
    # A task's children inherit an address with which Airflow cannot even be imported.
    return {**given, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite://"} if given else {}
