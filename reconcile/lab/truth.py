"""What the faults really did: the ground truth that an audit is measured against."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reconcile.errors import ReconcileError
from reconcile.workspace.filesystem import make_private_file


@dataclass(frozen=True)
class Truth:
    """One aggregate that one fault made differ, and how."""

    fault: str
    link: str
    aggregate_id: str
    difference: str
    cause: str
    hop: str | None
    status: str = "confirmed"
    fields: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()


def append(file: Path, rows: Iterable[Truth]) -> None:
    """Add to the truth."""
    lines = "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)
    make_private_file(file)
    with file.open("a", encoding="utf-8") as out:
        out.write(lines)


def read(file: Path) -> list[dict[str, Any]]:
    """Read the truth so far, in the order in which it was made."""
    if not file.exists():
        return []
    rows = []
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            raise ReconcileError(
                f"{file}:{number} is not a line of JSON: was a fault cut off while it wrote?"
            ) from None
    return rows
