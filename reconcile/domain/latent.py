"""What will break a copy that still agrees."""

from __future__ import annotations

from collections.abc import Iterator

from reconcile.domain.case import Parked, Routing
from reconcile.domain.evidence import (
    event_note,
    event_notes,
    gap_notes,
    ledger_notes,
    lost_words,
    offset_notes,
    parked_note,
    routing_notes,
)
from reconcile.domain.grounds import PARKED, Attribution, Ground
from reconcile.domain.inquiry import Inquiry
from reconcile.domain.parking import event_of

_OVERWRITES = "still lies here: it would overwrite newer state"


def latent(inquiry: Inquiry) -> Attribution | None:
    """Name what lies ready, the most dangerous first; the others become evidence of it."""
    found = [each for each in _all(inquiry) if each is not None]
    if not found:
        return None
    first, *others = found
    return Attribution(first.ground, first.since, (*first.notes, *(note for each in others for note in each.notes[:2])))


def _all(inquiry: Inquiry) -> Iterator[Attribution | None]:
    case = inquiry.case
    if case.parked:
        yield _parked(inquiry)
    if case.source is None or case.copy is None:
        return
    yield _wrong_partition(inquiry)
    if case.link.ledger:
        yield _ledger_gap(inquiry)
    yield _version_gap(inquiry)


def _parked(inquiry: Inquiry) -> Attribution | None:
    """A parked record that was overtaken: were it processed now, it would overwrite what is newer."""
    case, waiting = inquiry.case, inquiry.unresolved.by_event
    if case.link.records or case.link.guarded:
        return None
    overtaken = [
        each for each in inquiry.log.events if each.place in waiting and inquiry.is_overtaken(each, inquiry.log.due)
    ]
    if overtaken:
        event = overtaken[0]
        notes = (
            event_note(case, event, "not applied, and overtaken by newer ones"),
            *(parked_note(waiting[each.place], _OVERWRITES) for each in overtaken[:4]),
        )
        return Attribution(PARKED[waiting[event.place].kind][0], event.at, notes)
    old = next((each for each in inquiry.unresolved.strangers if _is_old(inquiry, each)), None)
    return None if old is None else Attribution(PARKED[old.kind][0], old.at, (parked_note(old, _OVERWRITES),))


def _is_old(inquiry: Inquiry, parked: Parked) -> bool:
    """Whether a parked record, whose event the log has no more, is older than the copy."""
    rows = inquiry.case.copy, inquiry.case.source  # which agree, so that the source's version is the copy's too
    version = next((row.version for row in rows if row is not None and row.version is not None), None)
    if inquiry.link.changes:
        return False
    return parked.version is not None and version is not None and parked.version < version


def _wrong_partition(inquiry: Inquiry) -> Attribution | None:
    newest = inquiry.log.truth[-1] if inquiry.log.truth else None
    if newest is None or newest.routing is not Routing.WRONG or not inquiry.log.is_due(newest):
        return None
    notes = event_note(inquiry.case, newest, "the newest record"), *routing_notes(inquiry.case, (newest,))
    return Attribution(Ground.NEWEST_IN_WRONG, newest.at, notes)


def _ledger_gap(inquiry: Inquiry) -> Attribution | None:
    """Events that were due, and that the ledger would show had they been applied."""
    case, log, ledger = inquiry.case, inquiry.log, inquiry.ledger
    parked = {event.place for each in case.parked if (event := event_of(each, log.events)) is not None}
    excused = parked | _superseded(inquiry) | _ignored_by_guard(inquiry) | _decided(inquiry)
    gaps = [event for event in log.due if event.place not in excused and ledger.lacks(event)]
    if not gaps:
        return None
    notes = (
        *event_notes(case, gaps, lost_words(ledger, gaps)),
        *offset_notes(case, gaps),
        *ledger_notes(case, ledger, gaps),
    )
    return Attribution(Ground.NOT_IN_LEDGER, gaps[0].at, notes)


def _superseded(inquiry: Inquiry) -> set[tuple[int, int]]:
    """Choose the events whose state came by a correction, or by their twin."""
    log = inquiry.log
    shown = [event for event in log.events if inquiry.ledger.shows(event)]
    ranks = {log.rank[event.place] for event in shown}
    versions = {event.version for event in shown if event.version is not None}
    corrected = [log.rank[event.place] for event in log.due if log.corrects(event)]
    until = max(corrected, default=-1) if inquiry.folding.whole else -1
    return {
        event.place
        for event in log.due
        if (rank := log.rank[event.place]) in ranks or rank <= until or event.version in versions
    }


def _ignored_by_guard(inquiry: Inquiry) -> set[tuple[int, int]]:
    """Choose the events that a consumer which compares versions ignores: a newer one came first."""
    found: set[tuple[int, int]] = set()
    highest: int | None = None
    for event in inquiry.log.due if inquiry.link.guarded else ():
        if event.version is None:
            continue
        if highest is not None and event.version <= highest:
            found.add(event.place)
        highest = event.version if highest is None else max(highest, event.version)
    return found


def _decided(inquiry: Inquiry) -> set[tuple[int, int]]:
    """Choose the events of which the ledger notes what became of them, but for those that were dropped."""
    return {place for place, entry in inquiry.ledger.unapplied.items() if entry.unapplied != "ignored"}


def _version_gap(inquiry: Inquiry) -> Attribution | None:
    """A version that never came into the log; none where each event carries the state, and the copy has the newest."""
    if not inquiry.link.changes or inquiry.partly or not inquiry.log.gaps:
        return None
    former, later = inquiry.log.gaps[0]
    return Attribution(Ground.VERSION_GAP, later.at, gap_notes(inquiry.case, former, later))
