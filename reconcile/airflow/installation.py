"""Where an installation keeps its settings, contracts and runs, as Airflow's variables say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import quoted
from reconcile.errors import RefusedError
from reconcile.settings.settings import Settings, load_settings

if TYPE_CHECKING:
    from reconcile.workspace.run import Run
    from reconcile.workspace.workspace import Workspace

CONFIG, CONTRACTS, WORKSPACE = "reconcile_config", "reconcile_contracts", "reconcile_workspace"
POOL = "reconcile"
"""The pool of the tasks that run Spark: as many slots as applications may run at once."""


def wiring(config: Path, workspace: Path, contracts: Path, bootstrap: str, master: str) -> dict[str, Any]:
    """Build the pools, variables and connections by which an Airflow knows an installation."""
    from reconcile.pipeline.requests import AIRFLOW_CONNECTION, GROUP

    kafka = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
    }
    host, _, port = master.rpartition(":") if "://" in master else (master, "", "")
    spark = {"conn_type": "spark", "host": host, **({"port": int(port)} if port else {})}
    return {
        "pools": {POOL: 1},
        "variables": {CONFIG: str(config), WORKSPACE: str(workspace), CONTRACTS: str(contracts)},
        "connections": {
            "spark_default": spark,
            AIRFLOW_CONNECTION: {"conn_type": "kafka", "extra": json.dumps(kafka)},
        },
    }


@dataclass(frozen=True)
class Installation:
    """What all DAGs share."""

    config: Path | None
    """The settings; None for those that `reconcile` finds by itself."""
    workspace: str | None
    """Where runs are kept; None for where the settings say."""
    contracts: Path
    """The folder of the contracts."""

    def settings(self) -> Settings:
        """Read the settings."""
        return load_settings(self.config, self.workspace)

    def contract_files(self) -> list[Path]:
        """List the files of all contracts; raise RefusedError if there are none."""
        found = sorted(self.contracts.glob("*.yaml"))
        if not found:
            raise RefusedError(
                f"no contracts in {self.contracts}: set the Airflow variable {CONTRACTS} to their folder"
            )
        return found

    def contract_file(self, name: str) -> Path:
        """Find the file of one contract; raise RefusedError with the nearest name if there is none."""
        files = {each.stem: each for each in self.contract_files()}
        if name not in files:
            hint = suggestion(name, files) or f"; there are {', '.join(files)}"
            raise RefusedError(f"no contract {quoted(name)} in {self.contracts}{hint}")
        return files[name]

    @contextmanager
    def run(self, run_id: str) -> Iterator[tuple[Workspace, Run, Settings]]:
        """Open a run to read from; starts Spark only if the workspace needs it."""
        from reconcile.pipeline.job import run_of

        settings = self.settings()
        with run_of(run_id, settings) as (place, run):
            yield place, run, settings


def installation() -> Installation:
    """Read where this Airflow's installation is."""
    from airflow.sdk import Variable

    config, workspace = Variable.get(CONFIG, default=None), Variable.get(WORKSPACE, default=None)
    contracts = Path(Variable.get(CONTRACTS, default="contracts"))
    return Installation(Path(config) if config else None, workspace or None, contracts)
