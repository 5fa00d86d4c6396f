"""The manifest of an artifact: what it holds, what it was made of, and whether it is complete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import Field, JsonValue

from reconcile.config.validation import Model
from reconcile.config.yamlfile import quoted
from reconcile.errors import RefusedError
from reconcile.workspace import handoff

Stage = Literal["request", "gather", "audit", "quality", "plan", "apply", "verify", "report"]


class MissingArtifactError(RefusedError):
    """Raised when a stage needs what no stage has published yet: run the stage before it."""


class DamagedArtifactError(RefusedError):
    """Raised when what stands is not what was published: delete the artifact's folder and run its stage again."""


class ChangedInputsError(RefusedError):
    """Raised when an artifact stands that was made of something else: start a new run, or go back to those inputs."""


class AlreadyPublishedError(RefusedError):
    """Raised when a complete artifact of the same name stands: another process of the same run was faster."""


class Inputs(Model):
    """What an artifact is made of. Two of them are equal if making it again would give the same."""

    contract: str
    """The contract's digest."""
    settings: dict[str, JsonValue] = Field(default_factory=dict)
    """The settings that matter to the result, such as the mode and the ids asked for."""
    artifacts: dict[str, str] = Field(default_factory=dict)
    """The digests of the artifacts that were read, by name."""
    incomplete: tuple[str, ...] = Field(default=(), exclude=True)
    """Those of them that are incomplete: what is made of them is incomplete too."""

    def changes(self, to: Inputs) -> list[str]:
        """Say what differs, as `name: old → new`."""
        pairs: list[tuple[str, object, object]] = [("contract", self.contract, to.contract)]
        pairs += [(name, *values) for name, values in _joined(self.settings, to.settings)]
        pairs += [(f"artifact {name}", *values) for name, values in _joined(self.artifacts, to.artifacts)]
        return [f"{name}: {_shown(old)} → {_shown(new)}" for name, old, new in pairs if not _same(old, new)]


class Manifest(Model):
    """What manifest.json says, beside the data that it tells of."""

    schema_version: Literal[1] = 1
    name: str
    stage: Stage
    run_id: str
    created_at: datetime
    kind: Literal["parquet", "json"]
    rows: int = Field(ge=0)
    """Rows of Parquet, elements of a JSON list, else 1."""
    digest: str
    """Of the content: equal for equal rows in any order and any number of files."""
    columns: dict[str, JsonValue] | None = None
    """The schema of Parquet, as Spark writes it in JSON."""
    inputs: Inputs
    complete: bool
    notes: tuple[str, ...] = ()
    """Why it is incomplete, and what else a reader should know."""
    files: dict[str, int]
    """Every data file, by its path below the artifact's folder, with its size in bytes."""

    def text(self) -> str:
        """Write it as the file's text."""
        return self.model_dump_json(indent=2) + "\n"


def parse_manifest(text: str) -> Manifest:
    """Read a manifest's text; raise ValueError that says what is wrong with it."""
    try:
        raw: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"manifest.json is not whole JSON: {error}") from None
    if isinstance(raw, Mapping) and raw.get("schema_version") != 1:
        version = quoted(str(raw.get("schema_version")))
        raise ValueError(f"manifest.json has schema_version {version}; this reconcile reads 1")
    try:
        return handoff.parse(Manifest, text)
    except ValueError as error:
        raise ValueError(f"manifest.json: {error}") from None


_ABSENT = object()


def _joined(old: Mapping[str, object], new: Mapping[str, object]) -> list[tuple[str, tuple[object, object]]]:
    return [(name, (old.get(name, _ABSENT), new.get(name, _ABSENT))) for name in sorted({*old, *new})]


def _same(old: object, new: object) -> bool:
    return type(old) is type(new) and old == new


def _shown(value: object) -> str:
    if value is _ABSENT:
        return "none"
    if isinstance(value, str) and len(value) == 64:
        return value[:12]
    return quoted(value) if isinstance(value, str) else json.dumps(value)[:60]
