"""What an audit found, held against the truth of what was done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FaultVerdict:
    """One fault: how often it was planted, and how often it was found and named."""

    fault: str
    cause: str
    planted: int
    found: int
    """As the difference that it is, in exactly the fields that differ."""
    named: int
    """By its cause."""
    certain: int
    """By its cause, and for certain."""


def verdicts(
    truth: Iterable[Mapping[str, Any]], findings: Iterable[Mapping[str, Any]]
) -> tuple[list[FaultVerdict], int]:
    """Build a verdict on each fault, and count the findings that no fault explains."""
    found = {(each["link"], each["aggregate_id"]): each for each in findings}
    counted: dict[tuple[str, str], list[int]] = {}
    known = set()
    for row in truth:
        key = (row["link"], row["aggregate_id"])
        known.add(key)
        numbers = counted.setdefault((row["fault"], row["cause"]), [0, 0, 0, 0])
        numbers[0] += 1
        finding = found.get(key)
        if finding is None:
            continue
        fields = sorted(field["name"] for field in finding["fields"])
        numbers[1] += (finding["difference"], fields) == (row["difference"], sorted(row["fields"]))
        named = row["cause"] == finding["cause"]
        numbers[2] += named
        numbers[3] += named and finding["confidence"] == "certain"
    lines = [FaultVerdict(fault, cause, *numbers) for (fault, cause), numbers in counted.items()]
    return lines, len(found.keys() - known)
