"""What a stage works on: one contract, one run, and its scope."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import quoted
from reconcile.contract.model import Consumer, Contract
from reconcile.errors import RefusedError
from reconcile.pipeline.scope import All, Scope
from reconcile.settings.settings import Settings
from reconcile.workspace.manifest import Inputs, Manifest
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconcile.control.leases import HeldLease
    from reconcile.gather.stores.digest import ComparisonMode


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

    @property
    def spark(self) -> SparkSession:
        """The session; raise RefusedError where the job was made without one."""
        if self.spark_session is None:
            raise RefusedError("this stage needs Spark, and was given no session")
        return self.spark_session

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """The consumers that take part; raise RefusedError for a name that the contract does not have."""
        names = [consumer.name for consumer in self.contract.consumers]
        for name in self.consumer_names:
            if name not in names:
                hint = suggestion(name, names) or f"; there are {', '.join(names)}"
                raise RefusedError(f"the contract has no consumer {quoted(name)}{hint}")
        chosen = self.consumer_names or names
        return tuple(each for each in self.contract.consumers if each.name in chosen)

    def inputs(self, made_of: Iterable[str | Manifest] = ()) -> Inputs:
        """Build what an artifact of this job is made of."""
        settings: dict[str, JsonValue] = {"mode": self.mode, "consumers": [each.name for each in self.consumers]}
        if self.scope.ids is not None:
            settings["ids"] = list(self.scope.ids)
        return self.run.inputs(self.contract.digest, settings, made_of)
