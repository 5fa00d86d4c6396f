"""Verification: once the group has passed a correction, its row tells what became of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconcile.control.corrections import CorrectionState, VerifiedState
from reconcile.domain.case import FieldRule, Row
from reconcile.domain.comparison import equal
from reconcile.domain.plan import Item
from reconcile.domain.plan_rules import Action


@dataclass(frozen=True)
class Sides:
    """Both sides' rows of one aggregate, as they were read after its group passed the correction."""

    source: Row | None
    copy: Row | None


@dataclass(frozen=True)
class Verdict:
    """What became of a correction, and why; never with the values of fields."""

    outcome: VerifiedState
    reason: str | None = None


def passed(places: Mapping[int, int], committed: Mapping[int, int | None]) -> bool:
    """Tell whether a group has committed past each record of a correction, given by partition and offset."""
    return all((committed.get(partition) or 0) > offset for partition, offset in places.items())


def verdict(item: Item, sides: Sides, rules: Sequence[FieldRule], guard: str) -> Verdict:
    """Say what became of a correction that its group has passed."""
    source, copy = sides.source, sides.copy
    if item.action is Action.TOMBSTONE:
        if source is not None:
            return _superseded(
                "the source has it again", agrees=copy is not None and not _differing(rules, source, copy)
            )
        return (
            Verdict(CorrectionState.CONVERGED)
            if copy is None
            else Verdict(CorrectionState.REFUSED, "the copy still has the row")
        )
    if source is None:
        return _superseded("the source no longer has it", agrees=copy is None)
    differing = [] if copy is None else _differing(rules, source, copy)
    agrees = copy is not None and not differing
    if source.version != item.basis_version:
        return _superseded(f"the source has moved on to version {source.version}", agrees=agrees)
    if agrees:
        return Verdict(CorrectionState.CONVERGED)
    return Verdict(CorrectionState.REFUSED, _why(copy, differing, item.basis_version, guard))


def _superseded(why: str, *, agrees: bool) -> Verdict:
    if agrees:
        return Verdict(CorrectionState.SUPERSEDED, f"{why}, and the copy follows")
    return Verdict(CorrectionState.UNVERIFIED, f"{why}, and the copy has yet to follow")


def _why(copy: Row | None, differing: Sequence[str], basis: int | None, guard: str) -> str:
    seen = "the copy has no row" if copy is None else f"the copy still differs in {', '.join(differing)}"
    at = None if copy is None else copy.version
    if guard != "none" and copy is not None:
        versions = f": its copy is at version {at}, the correction at {basis}" if None not in (at, basis) else ""
        return f"{seen}; the consumer compares versions{versions}, and may have ignored it"
    return f"{seen}, although its group has passed the correction: see its log and its failure topics"


def _differing(rules: Sequence[FieldRule], source: Row, copy: Row) -> list[str]:
    return [rule.name for rule in rules if not equal(rule, source.fields.get(rule.name), copy.fields.get(rule.name))]
