"""From the arguments of a command to the job that a stage works on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from reconcile.contract.model import load_contract
from reconcile.errors import RefusedError
from reconcile.pipeline.handoffs import Request
from reconcile.pipeline.job import Job
from reconcile.pipeline.scope import All, Ids
from reconcile.settings.settings import Settings, load_settings, needs_spark
from reconcile.workspace.run import Run
from reconcile.workspace.run_id import new_run_id
from reconcile.workspace.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconcile.gather.stores.digest import ComparisonMode


@contextmanager
def new_job(
    file: Path,
    config: Path | None,
    workspace: str | None,
    *,
    run_id: str | None = None,
    consumers: Sequence[str] = (),
    ids: Sequence[str] | None = None,
    mode: ComparisonMode = "auto",
) -> Iterator[Job]:
    """Open the job of a new run, or of one that is to go on; all that can be checked is checked before Spark starts."""
    contract = load_contract(file)
    settings = load_settings(config, workspace)
    named = run_id or new_run_id(contract.aggregate, datetime.now(UTC), random.SystemRandom())
    if not needs_spark(settings.workspace):
        Workspace(settings.workspace).run(named)
    for name in consumers:
        _require_consumer(name, [each.name for each in contract.consumers])
    with _spark(settings, named) as spark:
        place = Workspace(settings.workspace, spark)
        scope = All() if ids is None else Ids.of(ids)
        run = place.run(named)
        yield Job(contract, file, settings, place, run, tuple(consumers), scope, mode, spark_session=spark)


@contextmanager
def job_of(run_id: str, file: Path | None, config: Path | None, workspace: str | None) -> Iterator[Job]:
    """Open the job of a run that was begun, with what was asked of it then; `file` where its contract has moved."""
    settings = load_settings(config, workspace)
    with run_of(run_id, settings) as (_, run):
        request = run.read(Request)
    path = file or Path(request.contract)
    contract = load_contract(path)
    with _spark(settings, run_id) as spark:
        place = Workspace(settings.workspace, spark)
        yield Job(
            contract,
            path,
            settings,
            place,
            place.existing_run(run_id),
            request.consumers,
            request.scope,
            request.mode,
            spark_session=spark,
        )


@contextmanager
def run_of(run_id: str, settings: Settings) -> Iterator[tuple[Workspace, Run]]:
    """Open a run to read from; starts Spark only where the workspace is reached through it."""
    with workspace_of(settings) as place:
        yield place, place.existing_run(run_id)


@contextmanager
def workspace_of(settings: Settings) -> Iterator[Workspace]:
    """Open the workspace to read from; starts Spark only where it is reached through it."""
    remote = needs_spark(settings.workspace)
    with _spark(settings, "reader") if remote else nullcontext() as spark:
        yield Workspace(settings.workspace, spark)


def ids_of(ids: Sequence[str], file: Path | None) -> tuple[str, ...] | None:
    """Read the ids that were asked for, one by one and by a file with one in each line; None if none were."""
    if file is None:
        return tuple(ids) or None
    listed = [line.strip() for line in file.read_text("utf-8").splitlines()]
    found = (*ids, *(line for line in listed if line))
    if not found:
        raise RefusedError(f"{file} holds no ids")
    return found


@contextmanager
def _spark(settings: Settings, name: str) -> Iterator[SparkSession]:
    from reconcile.spark.session import session

    with session(settings, f"reconcile {name}") as spark:
        yield spark


def _require_consumer(name: str, names: list[str]) -> None:
    from reconcile.config.validation import suggestion
    from reconcile.config.yamlfile import quoted

    if name not in names:
        hint = suggestion(name, names) or f"; there are {', '.join(names)}"
        raise RefusedError(f"the contract has no consumer {quoted(name)}{hint}")
