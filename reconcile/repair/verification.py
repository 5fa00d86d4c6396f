"""Verification: once the group has passed a correction, its row shows what became of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reconcile.control.corrections import CorrectionOutcome, CorrectionState, VerifiedState
from reconcile.domain.case import FieldRule, Row
from reconcile.domain.comparison import equal
from reconcile.domain.plan import Item
from reconcile.domain.plan_rules import Action


def last_places(places: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Choose the last offset in each partition."""
    return dict(sorted(places))


def passed(places: Mapping[int, int], committed: Mapping[int, int | None]) -> bool:
    """Decide whether a group has committed past each record of a correction, given by partition and offset."""
    return all((committed.get(partition) or 0) > offset for partition, offset in places.items())


def outcome_of(
    item: Item, source: Row | None, copy: Row | None, rules: Sequence[FieldRule], guard: str
) -> CorrectionOutcome:
    """Decide what became of a correction, by the rows that were read after its group had passed it."""
    assert item.correction_id is not None
    return CorrectionOutcome(item.correction_id, *_decided(item, source, copy, rules, guard))


def _decided(
    item: Item, source: Row | None, copy: Row | None, rules: Sequence[FieldRule], guard: str
) -> tuple[VerifiedState, str | None]:
    differing = [] if source is None or copy is None else _differing(rules, source, copy)
    agrees = (source is None) == (copy is None) and not differing
    deleting = item.action is Action.TOMBSTONE
    if deleting and source is not None:
        return _superseded("the source has it again", agrees=agrees)
    if not deleting and source is None:
        return _superseded("the source no longer has it", agrees=agrees)
    if source is not None and source.version != item.basis_version:
        return _superseded(f"the source has moved on to version {source.version}", agrees=agrees)
    if agrees:
        return CorrectionState.CONVERGED, None
    if deleting:
        return CorrectionState.REFUSED, "the copy still has the row"
    return CorrectionState.REFUSED, _why(copy, differing, item.basis_version, guard)


def _superseded(why: str, *, agrees: bool) -> tuple[VerifiedState, str]:
    if agrees:
        return CorrectionState.SUPERSEDED, f"{why}, and the copy follows"
    return CorrectionState.UNVERIFIED, f"{why}, and the copy has yet to follow"


def _why(copy: Row | None, differing: Sequence[str], basis: int | None, guard: str) -> str:
    seen = "the copy has no row" if copy is None else f"the copy still differs in {', '.join(differing)}"
    at = None if copy is None else copy.version
    if guard != "none" and copy is not None:
        versions = f": its copy is at version {at}, the correction at {basis}" if None not in (at, basis) else ""
        return f"{seen}; the consumer compares versions{versions}, and may have ignored it"
    return f"{seen}, although its group has passed the correction: see its log and its failure topics"


def _differing(rules: Sequence[FieldRule], source: Row, copy: Row) -> list[str]:
    return [rule.name for rule in rules if not equal(rule, source.fields.get(rule.name), copy.fields.get(rule.name))]
