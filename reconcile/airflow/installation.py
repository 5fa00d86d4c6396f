"""Where an installation keeps its settings, contracts and runs, as Airflow's variables say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconcile.errors import RefusedError
from reconcile.settings import Settings, load_settings
from reconcile.validation import suggestion
from reconcile.yamlfile import quoted

if TYPE_CHECKING:
    from reconcile.run import Run
    from reconcile.workspace import Workspace

CONFIG, CONTRACTS, WORKSPACE = "reconcile_config", "reconcile_contracts", "reconcile_workspace"
POOL = "reconcile"
"""The pool of the tasks that run Spark: as many slots as applications may run at once."""


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
        """Give the files of all contracts; raise RefusedError if there are none."""
        found = sorted(self.contracts.glob("*.yaml"))
        if not found:
            raise RefusedError(
                f"no contracts in {self.contracts}: set the Airflow variable {CONTRACTS} to their folder"
            )
        return found

    def contract_file(self, name: str) -> Path:
        """Give the file of one contract; raise RefusedError with the nearest name if there is none."""
        files = {each.stem: each for each in self.contract_files()}
        if name not in files:
            hint = suggestion(name, files) or f"; there are {', '.join(files)}"
            raise RefusedError(f"no contract {quoted(name)} in {self.contracts}{hint}")
        return files[name]

    @contextmanager
    def run(self, run_id: str) -> Iterator[tuple[Workspace, Run, Settings]]:
        """Give a run to read from; starts Spark only where the workspace is reached through it."""
        from reconcile.cli.jobs import run_of

        settings = self.settings()
        with run_of(run_id, settings) as (place, run):
            yield place, run, settings


def installation() -> Installation:
    """Give the installation that this Airflow works for."""
    from airflow.sdk import Variable

    config, workspace = Variable.get(CONFIG, default=None), Variable.get(WORKSPACE, default=None)
    contracts = Path(Variable.get(CONTRACTS, default="contracts"))
    return Installation(Path(config) if config else None, workspace or None, contracts)
