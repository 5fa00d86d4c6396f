"""Where parts of a log's state are kept: beside its history, a file for each generation for which somebody asked."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from reconcile.errors import UnreachableError
from reconcile.gather.log.store import KEPT_GENERATIONS, Home
from reconcile.workspace import handoff

_LAYOUT = 1  # grows when the same records would give another state
_GENERATION = re.compile(r"\d{8}\.json")
_ROWS_FOLDER = re.compile(r"\d{8}-[0-9a-f]{12}")

AnyKept = TypeVar("AnyKept", bound=handoff.Versioned)


@dataclass(frozen=True)
class Shelf(Generic[AnyKept]):
    """Where one part is kept: a file for each generation of the history for which somebody asked for it.

    What two write at the same time says the same: it follows from the segments alone.
    """

    home: Home
    name: str
    rules: Any
    model: type[AnyKept]

    @cached_property
    def folder(self) -> str:
        """The folder of the part under its rules."""
        said = json.dumps([_LAYOUT, self.rules], sort_keys=True)
        return f"{self.home.folder}/state/{self.name}-{hashlib.sha256(said.encode()).hexdigest()[:12]}"

    def newest(self) -> AnyKept | None:
        """Read the newest; None if there is none that can be read, so that it has to be made anew."""
        for file in reversed(self._listed(self.folder, _GENERATION)):
            with suppress(FileNotFoundError, ValueError):
                return handoff.parse(self.model, self.home.files.read_text(f"{self.folder}/{file}"))
        return None

    def publish(self, generation: int, value: AnyKept) -> None:
        """Keep it, and remove what is older than anybody may still read."""
        files = self.home.files
        files.write_atomically(f"{self.folder}/{generation:08d}.json", [json.dumps(handoff.to_data(value))])
        *old, _ = self._listed(self.folder, _GENERATION)
        for file in old[: 1 - KEPT_GENERATIONS]:
            self._remove(file)
        oldest = self._listed(self.folder, _GENERATION)[0]
        with suppress(FileNotFoundError, ValueError):
            first = json.loads(files.read_text(f"{self.folder}/{oldest}")).get("folder", "")
            for each in self._listed(f"{self.folder}/rows", _ROWS_FOLDER):
                if f"rows/{each}" < first:
                    self._remove(f"rows/{each}")

    def files(self, folder: str) -> dict[str, int]:
        """List the data files of a folder of rows, with their sizes; none where it is gone."""
        with suppress(FileNotFoundError):
            listed = self.home.files.list(f"{self.folder}/{folder}")
            return {each.name: each.size for each in listed if each.name.endswith(".parquet")}
        return {}

    def _listed(self, folder: str, like: re.Pattern[str]) -> list[str]:
        with suppress(FileNotFoundError):
            return [each.name for each in self.home.files.list(folder) if like.fullmatch(each.name)]
        return []

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError, UnreachableError):
            self.home.files.delete(f"{self.folder}/{name}")
