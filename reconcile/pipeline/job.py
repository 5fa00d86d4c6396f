"""What a stage works on: one contract, one run, and its scope; and how a command opens it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import quoted
from reconcile.contract.model import Consumer, Contract, load_contract
from reconcile.domain.approval import Actor
from reconcile.errors import RefusedError
from reconcile.gather.stores.digest import ComparisonMode
from reconcile.pipeline.approval import os_user
from reconcile.pipeline.handoffs import Request
from reconcile.pipeline.scope import LAST, All, Scope, scope_for, scope_of
from reconcile.settings.settings import Settings, load_settings, needs_spark
from reconcile.workspace.manifest import Inputs, Manifest
from reconcile.workspace.run import Run
from reconcile.workspace.run_id import new_run_id
from reconcile.workspace.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconcile.control.leases import HeldLease


@dataclass(frozen=True)
class Job:
    """One run of one contract."""

    contract: Contract
    file: Path
    """Where the contract was read from: errors name it, and schema files are looked for beside it."""
    settings: Settings
    workspace: Workspace
    run: Run
    consumer_names: tuple[str, ...] = ()
    """Only these; empty for all."""
    scope: Scope = field(default_factory=All)
    """Which aggregates."""
    mode: ComparisonMode = "auto"
    spark_session: SparkSession | None = None
    contract_lease: HeldLease | None = None
    """The contract's lease, where whoever made the job holds it for all of its stages."""
    requester: Actor | None = None
    """Who asks for the run; None where it has begun already."""

    @property
    def spark(self) -> SparkSession:
        """The session; raise RefusedError where the job was made without one."""
        if self.spark_session is None:
            raise RefusedError("this stage needs Spark, and was given no session")
        return self.spark_session

    @property
    def is_local(self) -> bool:
        """Whether this process and Spark's tasks write the same files."""
        return str(self.spark.sparkContext.master).startswith("local") and not needs_spark(self.settings.workspace)

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """The consumers that take part; raise RefusedError for a name that the contract does not have."""
        return _choose_consumers(self.contract, self.consumer_names)

    def inputs(self, made_of: Iterable[str | Manifest] = ()) -> Inputs:
        """Build what an artifact of this job is made of."""
        settings: dict[str, JsonValue] = {"mode": self.mode, "consumers": [each.name for each in self.consumers]}
        if self.scope.ids is not None:
            settings["ids"] = list(self.scope.ids)
        if self.scope.since is not None:
            settings["since"] = self.scope.since
        return self.run.inputs(self.contract.digest, settings, made_of)


@contextmanager
def new_job(
    file: Path,
    config: Path | None,
    workspace: str | None,
    *,
    run_id: str | None = None,
    consumers: Sequence[str] = (),
    ids: Sequence[str] | None = None,
    since: str | None = None,
    mode: ComparisonMode = "auto",
) -> Iterator[Job]:
    """Open the job of a new run, or of one that is to go on; all that can be checked is checked before Spark starts."""
    contract = load_contract(file)
    settings = load_settings(config, workspace)
    if run_id == LAST:
        raise RefusedError(f"{LAST} names the newest run, whichever that is: give another id")
    named = run_id or new_run_id(contract.aggregate, datetime.now(UTC), random.SystemRandom())
    if not needs_spark(settings.workspace):
        local = Workspace(settings.workspace)
        scope_for(local.run(named), ids, since)
        if since is not None and since != LAST:
            local.existing_run(since)
    _choose_consumers(contract, consumers)
    with _spark(settings.reading(contract.stores), named) as spark:
        place = Workspace(settings.workspace, spark)
        run = place.run(named)
        selection = (tuple(consumers), scope_for(run, ids, since), mode)
        yield Job(contract, file, settings, place, run, *selection, spark_session=spark, requester=os_user())


def reading_job(file: Path, config: Path | None, workspace: str | None) -> Job | None:
    """Build a job that reads without Spark; None where the workspace needs it."""
    contract = load_contract(file)
    settings = load_settings(config, workspace)
    if needs_spark(settings.workspace):
        return None
    place = Workspace(settings.workspace)
    run = place.run(new_run_id(contract.aggregate, datetime.now(UTC), random.SystemRandom()))
    return Job(contract, file, settings, place, run)


@contextmanager
def job_of(run_id: str, file: Path | None, config: Path | None, workspace: str | None) -> Iterator[Job]:
    """Open the job of a run that was begun, as it was begun; `file` is its contract's, if that has moved."""
    settings = load_settings(config, workspace)
    with run_of(run_id, settings) as (_, run):
        run_id, request = run.id, run.read(Request)
    path = file or Path(request.contract)
    contract = load_contract(path)
    with _spark(settings.reading(contract.stores), run_id) as spark:
        place = Workspace(settings.workspace, spark)
        run = place.existing_run(run_id)
        selection = (request.consumers, scope_of(run, request), request.mode)
        yield Job(contract, path, settings, place, run, *selection, spark_session=spark)


@contextmanager
def run_of(run_id: str, settings: Settings) -> Iterator[tuple[Workspace, Run]]:
    """Open a run to read from; starts Spark only if the workspace needs it."""
    with workspace_of(settings) as place:
        yield place, named_run(place, run_id)


def named_run(place: Workspace, run_id: str) -> Run:
    """Find a run by its id, or the newest as `last`; raise RefusedError if it is not there."""
    if run_id != LAST:
        return place.existing_run(run_id)
    from reconcile.pipeline.runs import newest

    found, _ = newest(place, 1)
    if not found:
        raise RefusedError(f"there is no run in {place.root} yet: `reconcile run CONTRACT` makes one")
    return place.run(found[0].run_id)


@contextmanager
def workspace_of(settings: Settings) -> Iterator[Workspace]:
    """Open the workspace to read from; starts Spark only if it needs it."""
    remote = needs_spark(settings.workspace)
    with _spark(settings, "reader") if remote else nullcontext() as spark:
        yield Workspace(settings.workspace, spark)


def ids_of(ids: Sequence[str], file: Path | None) -> tuple[str, ...] | None:
    """Read the wanted ids, given one by one and by a file with one in each line; None if none are given."""
    if file is None:
        return tuple(ids) or None
    listed = [line.strip() for line in file.read_text("utf-8").splitlines()]
    found = (*ids, *(line for line in listed if line))
    if not found:
        raise RefusedError(f"{file} holds no ids")
    return found


def _spark(settings: Settings, name: str) -> AbstractContextManager[SparkSession]:
    from reconcile.spark.session import session

    return session(settings, f"reconcile {name}")


def _choose_consumers(contract: Contract, wanted: Sequence[str]) -> tuple[Consumer, ...]:
    """Choose consumers by name, all without any; raise RefusedError for a name that the contract does not have."""
    names = [consumer.name for consumer in contract.consumers]
    for name in wanted:
        if name not in names:
            hint = suggestion(name, names) or f"; there are {', '.join(names)}"
            raise RefusedError(f"the contract has no consumer {quoted(name)}{hint}")
    return tuple(each for each in contract.consumers if not wanted or each.name in wanted)
