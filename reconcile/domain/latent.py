"""What will break a copy that still agrees."""

from __future__ import annotations

from collections.abc import Iterator

from reconcile.domain.attribution_copy import routing_notes
from reconcile.domain.attribution_log import version_gap
from reconcile.domain.case import Event, Parked, Routing
from reconcile.domain.confidence import Ground
from reconcile.domain.copy_inquiry import CopyInquiry
from reconcile.domain.evidence_notes import Verdict, event_note, event_notes, ledger_notes, offset_notes, parked_note
from reconcile.domain.inquiry import Inquiry
from reconcile.domain.parking import event_of

_GROUNDS = {"retry": Ground.RETRYING, "stash": Ground.STASHED, "dead_letter": Ground.DEAD_LETTERED}


def latent(copy: CopyInquiry) -> Verdict | None:
    """Name what lies ready, the most dangerous first; the others become evidence of it."""
    found = [verdict for verdict in _all(copy) if verdict is not None]
    if not found:
        return None
    first, *others = found
    return Verdict(first.ground, first.since, (*first.notes, *(note for each in others for note in each.notes[:2])))


def _all(copy: CopyInquiry) -> Iterator[Verdict | None]:
    case = copy.case
    if case.parked:
        yield _parked(copy)
    if case.source is None or case.copy is None:
        return
    yield _wrong_partition(copy.inquiry)
    if case.link.ledger:
        yield _ledger_gap(copy)
    yield _version_gap(copy.inquiry)


def _parked(copy: CopyInquiry) -> Verdict | None:
    """A parked record that was overtaken: were it processed now, it would overwrite what is newer."""
    inquiry, case = copy.inquiry, copy.case
    if case.link.records or case.link.guarded:
        return None
    waiting, strangers = copy.lying
    overtaken = [(event, waiting[event.place]) for event in inquiry.log if event.place in waiting]
    overtaken = [(event, parked) for event, parked in overtaken if _is_overtaken(inquiry, event)]
    if overtaken:
        event, parked = overtaken[0]
        notes = [event_note(case, event, "not applied, and overtaken by newer ones")]
        notes += [parked_note(each, "still lies here: it would overwrite newer state") for _, each in overtaken[:4]]
        return Verdict(_GROUNDS[parked.kind], event.at, tuple(notes))
    old = next((each for each in strangers if _is_old(inquiry, each)), None)
    if old is None:
        return None
    return Verdict(_GROUNDS[old.kind], old.at, (parked_note(old, "still lies here: it would overwrite newer state"),))


def _is_overtaken(inquiry: Inquiry, event: Event) -> bool:
    """Whether all that an event tells was told anew by later ones that the copy has."""
    rank = inquiry.rank[event.place]
    later = [each for each in inquiry.due if inquiry.rank[each.place] > rank]
    if inquiry.folding.whole or event.deletes:
        return bool(later)
    if any(each.deletes for each in later):
        return True
    told = {name for each in later for name in each.fields}
    return bool(event.fields) and all(name in told and name not in inquiry.folding.adds for name in event.fields)


def _is_old(inquiry: Inquiry, parked: Parked) -> bool:
    """Whether a parked record, whose event the log has no more, is older than the copy."""
    sides = inquiry.case.copy, inquiry.case.source  # which agree, so that the source's version is the copy's too
    version = next((row.version for row in sides if row is not None and row.version is not None), None)
    if inquiry.link.changes:
        return False
    return parked.version is not None and version is not None and parked.version < version


def _wrong_partition(inquiry: Inquiry) -> Verdict | None:
    newest = inquiry.truth[-1] if inquiry.truth else None
    if newest is None or newest.routing is not Routing.WRONG or not inquiry.is_due(newest):
        return None
    topic = inquiry.link.topic
    notes = (event_note(inquiry.case, newest, "the newest record"), *routing_notes(topic, (newest,)))
    return Verdict(Ground.NEWEST_IN_WRONG, newest.at, notes)


def _ledger_gap(copy: CopyInquiry) -> Verdict | None:
    """Events that were due, and that the ledger would show had they been applied."""
    inquiry, case = copy.inquiry, copy.case
    parked = {event.place for each in case.parked if (event := event_of(each, inquiry.log)) is not None}
    shown = {inquiry.rank[event.place] for event in inquiry.log if copy.ledger.shows(event)}
    versions = {event.version for event in inquiry.log if event.version is not None and copy.ledger.shows(event)}
    corrected = [inquiry.rank[event.place] for event in inquiry.due if inquiry.corrects(event)]
    until = max(corrected, default=-1) if inquiry.folding.whole else -1
    highest: int | None = None
    gaps: list[Event] = []
    for event in inquiry.due:
        ignored = case.link.guarded and None not in (event.version, highest) and event.version <= highest  # type: ignore[operator]
        if event.version is not None:
            highest = event.version if highest is None else max(highest, event.version)
        rank = inquiry.rank[event.place]
        told = rank in shown or rank <= until or event.version in versions  # by a corrective event, or its twin
        if not ignored and not told and event.place not in parked and copy.ledger.lacks(event):
            gaps.append(event)
    if not gaps:
        return None
    notes = (
        *event_notes(case, gaps, "committed past it; not in the ledger"),
        *offset_notes(case, gaps),
        *ledger_notes(case, copy.ledger, gaps),
    )
    return Verdict(Ground.NOT_IN_LEDGER, gaps[0].at, notes)


def _version_gap(inquiry: Inquiry) -> Verdict | None:
    return version_gap(inquiry, *inquiry.gaps[0]) if inquiry.gaps else None
