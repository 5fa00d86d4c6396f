"""Verification: once the group has passed a correction, its row shows what became of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reconcile.control.corrections import CorrectionOutcome, CorrectionState, VerifiedState
from reconcile.domain.case import FieldRule, Row
from reconcile.domain.comparison import equivalent
from reconcile.domain.plan import Item
from reconcile.domain.plan_rules import Action


def last_places(places: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Choose the last offset in each partition."""
    return dict(sorted(places))


def passed(places: Mapping[int, int], committed: Mapping[int, int | None]) -> bool:
    """Decide whether a group has committed past each record of a correction, given by partition and offset."""
    return all((committed.get(partition) or 0) > offset for partition, offset in places.items())


@dataclass(frozen=True)
class Compared:
    """What is compared on a link, and what of it its corrections bring."""

    rules: Sequence[FieldRule]
    carried: frozenset[str]
    guard: str
    """Which versions the consumer accepts over the one that it has."""


def outcome_of(
    item: Item, source: Row | None, copy: Row | None, compared: Compared, *, twice: bool = False
) -> CorrectionOutcome:
    """Decide what became of a correction, by the rows that were read after its group had passed it.

    `twice` says that source or copy has more than one row of it.
    """
    assert item.correction_id is not None
    if twice:
        why = "source or copy has it more than once: a correction mends no such thing"
        return CorrectionOutcome(item.correction_id, CorrectionState.REFUSED, why)
    differing = () if source is None or copy is None else _differing(compared.rules, source, copy)
    state, reason = _decided(item, source, copy, differing, compared)
    named = differing if state in (CorrectionState.PARTIAL, CorrectionState.REFUSED) else ()
    return CorrectionOutcome(item.correction_id, state, reason, named)


def _decided(
    item: Item, source: Row | None, copy: Row | None, differing: tuple[str, ...], compared: Compared
) -> tuple[VerifiedState, str | None]:
    moved, alike = _moved_on(item, source), (source is None) == (copy is None)
    brought = frozenset(item.amounts) or compared.carried
    if alike and differing and brought.isdisjoint(differing):
        rest = f"the copy still differs in {', '.join(differing)}, which no correction brings"
        return CorrectionState.PARTIAL, rest if moved is None else f"{moved}; {rest}"
    agrees = alike and not differing
    if moved is not None:
        return _superseded(moved, agrees=agrees)
    if agrees:
        return CorrectionState.CONVERGED, None
    if item.action is Action.TOMBSTONE:
        return CorrectionState.REFUSED, "the copy still has the row"
    return CorrectionState.REFUSED, _why(copy, differing, item.basis_version, compared.guard)


def _moved_on(item: Item, source: Row | None) -> str | None:
    """Say how the source has moved on since the correction was made, if it has."""
    if item.action is Action.TOMBSTONE:
        return None if source is None else "the source has it again"
    if source is None:
        return "the source no longer has it"
    return None if source.version == item.basis_version else f"the source has moved on to version {source.version}"


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


def _differing(rules: Sequence[FieldRule], source: Row, copy: Row) -> tuple[str, ...]:
    return tuple(
        rule.name for rule in rules if not equivalent(rule, source.fields.get(rule.name), copy.fields.get(rule.name))
    )
