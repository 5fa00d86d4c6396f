"""The workspace: the folder in which runs keep what their stages publish."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import quoted
from reconcile.errors import RefusedError
from reconcile.settings.settings import needs_spark
from reconcile.workspace.filesystem import FileSystem, LocalFileSystem, beside
from reconcile.workspace.hadoop_filesystem import HadoopFileSystem
from reconcile.workspace.run import Run
from reconcile.workspace.run_id import InvalidRunIdError, valid_run_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RETIRED = re.compile(r"\.(.+)\.[0-9a-f]{12}")


class UnknownRunError(RefusedError):
    """Raised when there is no run of this id in the workspace: `reconcile runs` lists those that there are."""


class Workspace:
    """The folder in which runs are kept: a local path, or a URI that Spark's Hadoop knows."""

    def __init__(self, root: str | Path, spark: SparkSession | None = None) -> None:
        text = str(root)
        self.spark = spark
        if not needs_spark(text):
            self.root = str(Path(text).absolute())
            self.files: FileSystem = LocalFileSystem()
            return
        if not text.lower().startswith("file:") and "://" not in text:
            raise RefusedError(f"{quoted(text)} is neither a path nor a URI: write scheme://host/path")
        if spark is None:
            raise RefusedError(f"the workspace {quoted(text)} is reached through Spark: give a session")
        self.root = text.rstrip("/")
        self.files = HadoopFileSystem(self.root, spark)

    def run(self, run_id: str) -> Run:
        """Build the access to a run, which may yet have to publish its first artifact."""
        return Run(self.files, f"{self.root}/{valid_run_id(run_id)}", run_id)

    def existing_run(self, run_id: str) -> Run:
        """Find a run that is there; raise UnknownRunError with the nearest id if it is not."""
        run = self.run(run_id)
        if not self.files.exists(run.folder):
            raise UnknownRunError(f"no run {quoted(run_id)} in {self.root}{suggestion(run_id, self.runs())}")
        return run

    def remove(self, run_id: str) -> None:
        """Remove a run: as soon as that begins, there is none of this id."""
        folder = self.run(run_id).folder
        if self.files.renames_atomically:
            retired = f"{self.root}/{beside(run_id)}"
            self.files.rename(folder, retired)
            folder = retired
        self.files.delete(folder)

    def remove_leftovers(self) -> None:
        """Remove what is left of runs whose removal was cut off."""
        with suppress(FileNotFoundError):
            for entry in self.files.list(self.root):
                if entry.folder and (match := _RETIRED.fullmatch(entry.name)) and _is_run_id(match[1]):
                    self.files.delete(f"{self.root}/{entry.name}")

    def runs(self) -> list[str]:
        """List the ids of all runs, by name."""
        try:
            entries = self.files.list(self.root)
        except FileNotFoundError:
            return []
        return [entry.name for entry in entries if entry.folder and _is_run_id(entry.name)]


def _is_run_id(text: str) -> bool:
    try:
        return valid_run_id(text) == text
    except InvalidRunIdError:
        return False
