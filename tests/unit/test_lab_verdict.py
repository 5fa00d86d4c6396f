"""What an audit found, held against the truth: only the cause itself counts as named."""

from __future__ import annotations

from typing import Any

import pytest

from reconcile.lab.verdict import FaultVerdict, verdicts

TRUTH = {
    "fault": "swallowed", "link": "l", "aggregate_id": "1", "difference": "changed", "cause": "skipped",
    "fields": ["email"],
}  # fmt: skip


def found(cause: str, confidence: str, *alternatives: str, fields: tuple[str, ...] = ("email",)) -> dict[str, Any]:
    """Give what was found of the same aggregate."""
    named = [{"name": each} for each in fields]
    said = {"cause": cause, "confidence": confidence, "alternatives": list(alternatives), "fields": named}
    return {**TRUTH, **said}


@pytest.mark.parametrize(("finding", "figures"), [
    (found("skipped", "certain"), (1, 1, 1)),
    (found("skipped", "probable", "out_of_order"), (1, 1, 0)),
    (found("out_of_order", "probable", "skipped"), (1, 0, 0)),
    (found("skipped", "certain", fields=("phone",)), (0, 1, 1)),
])  # fmt: skip
def test_a_cause_among_the_alternatives_is_not_named(finding: dict[str, Any], figures: tuple[int, int, int]) -> None:
    """Found, named, and named for certain."""
    (line,), surplus = verdicts([TRUTH], [finding])
    assert (FaultVerdict("swallowed", "skipped", 1, *figures), 0) == (line, surplus)
