"""What can go wrong, one class per thing that the caller can do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


class ReconcileError(Exception):
    """Raised where a person has to act: the message says what was tried, what was found and what to do."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a file, at a path such as `consumers[0].fields[2].consumer`."""

    path: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidFileError(ReconcileError):
    """Raised when a contract or a settings file is wrong: edit the file; every problem is listed."""

    def __init__(self, file: Path | str, problems: Sequence[Problem]) -> None:
        self.file = str(file)
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{self.file}: {problem}" for problem in self.problems))


class SecretError(ReconcileError):
    """Raised when a reference to a secret leads nowhere: set the variable, write the file, add the connection."""


class RefusedError(ReconcileError):
    """Raised when what was asked is refused as things stand: the message says what would allow it."""


class UnreachableError(ReconcileError):
    """Raised when a store, a cluster or a server does not answer: the same call may succeed later."""
