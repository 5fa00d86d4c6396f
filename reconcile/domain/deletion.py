"""Tests that say which events delete an aggregate, as far as a program can fulfil them: `$.deleted == true`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from reconcile.domain import mapping

HOW_TO_WRITE = "`$.path == value`, or `is null`"

_TEST = re.compile(
    r"\s*(?P<path>\$\S+?)\s*(?:(?:==?)\s*(?P<literal>true|false|-?\d+|'[^']*')|(?P<null>is\s+(?P<not>not\s+)?null))\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class DeletionTest:
    """A comparison of what stands at one path of an event."""

    path: tuple[str, ...]
    literal: str | None
    """What has to stand there, as the test has it; None for a test on null."""
    present: bool = False
    """Whether a test on null wants something to be there."""

    @property
    def value(self) -> Any:
        """What makes the test true, as JSON has it."""
        assert self.literal is not None
        return self.literal[1:-1] if self.literal[0] == "'" else json.loads(self.literal.lower())

    def holds(self, body: Any) -> bool:
        """Decide whether an event deletes its aggregate."""
        for step in self.path:
            body = body.get(step) if isinstance(body, Mapping) else None
        if self.literal is None:
            return (body is not None) is self.present
        return as_text(body) == (self.literal[1:-1] if self.literal[0] == "'" else self.literal.lower())


def parsed(test: str) -> DeletionTest | None:
    """Parse a test; None for one that only a database can evaluate."""
    match = _TEST.fullmatch(test)
    if match is None or not mapping.is_path(match["path"]):
        return None
    return DeletionTest(mapping.steps(match["path"]), match["literal"], bool(match["not"]))


def writable(test: str) -> DeletionTest | None:
    """Parse a test that an event can be written for; None where only a person can tell how."""
    found = parsed(test)
    return None if found is None or found.literal is None else found


def told_version(version: int | None, deletes: bool) -> int | None:
    """Choose the version that an event tells: of a row that is gone a connector may know its key alone.

    Such a deletion has 0 where the column takes no NULL, as Debezium fills it in under Postgres' default replica
    identity. It would stand before all that it deletes.
    """
    return None if deletes and version == 0 else version


def as_text(value: Any) -> str | None:
    """Write what stands in an event as text."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float, Decimal)):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
