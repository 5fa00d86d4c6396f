"""The way from the source into the log: whether the log brings what the source says, and if not, why."""

from __future__ import annotations

from reconcile.domain.case import Event, FieldRule, Row
from reconcile.domain.confidence import Ground
from reconcile.domain.evidence_notes import (
    Verdict,
    absence_notes,
    event_note,
    event_notes,
    outbox_note,
    retention_notes,
)
from reconcile.domain.finding import Evidence
from reconcile.domain.folding import Fit
from reconcile.domain.inquiry import Inquiry
from reconcile.domain.true_order import since_deletion


def fault_of_log(inquiry: Inquiry) -> Verdict | None:
    """Name what keeps the log from bringing the source's state; None if it does, or what it lacks is on its way."""
    case = inquiry.case
    if not inquiry.log and not inquiry.broken:
        return _without_events(inquiry)
    fault = _gone(inquiry) if case.source is None else _there(inquiry, case.source)
    if fault is None:
        # A sum that is folded from the source backwards cannot show that a record is missing from it.
        backwards = inquiry.link.changes and not inquiry.whole and not inquiry.moving
        return _unreadable(inquiry, due=True) if backwards else None
    if fault.ground in _AHEAD:
        return fault
    if fault.ground in _ABSENT and _newest_gone(inquiry):
        notes = retention_notes(case, [inquiry.truth[-1].partition])
        return Verdict(Ground.NEWEST_GONE, notes=(*fault.notes, *notes))
    return _unreadable(inquiry) or fault


_AHEAD = (Ground.LOG_NEWER, Ground.DELETED_IN_LOG)
_ABSENT = (Ground.VERSION_ABSENT, Ground.STATE_ABSENT, Ground.DELETION_ABSENT, Ground.RETURN_ABSENT)


def _newest_gone(inquiry: Inquiry) -> bool:
    """Whether records that stood behind the newest event are gone: what we know of it we kept from before."""
    return bool(inquiry.truth) and inquiry.is_before_gap(inquiry.truth[-1])


def _without_events(inquiry: Inquiry) -> Verdict | None:
    case, link = inquiry.case, inquiry.link
    partitions = case.homes or tuple(link.places)
    begins = [link.places[each].begin == 0 for each in partitions if each in link.places]
    gone = retention_notes(case, partitions)
    if inquiry.moving:
        return None
    if case.source is None:
        if all(begins) and not link.compacted and not case.events_cut:
            return Verdict(Ground.NEVER_KNOWN, notes=tuple(absence_notes(case, partitions)))
        kept = all(begins) or (any(begins) and not case.homes)
        return Verdict(Ground.PERHAPS_NEVER_KNOWN if kept else Ground.PERHAPS_EXPIRED, notes=tuple(gone))
    if case.outbox_pending:
        return Verdict(Ground.OUTBOX_PENDING, notes=(outbox_note(case),))
    if all(begins) and not case.events_cut:
        return Verdict(Ground.NO_EVENT, notes=tuple(absence_notes(case, partitions)))
    if not case.homes and case.copy is None and sum(begins) * 2 >= len(begins):
        return Verdict(Ground.NO_EVENT_IN_PART, notes=tuple(gone))
    return Verdict(Ground.NOTHING_LEFT, notes=tuple(gone))


def _gone(inquiry: Inquiry) -> Verdict | None:
    """The source has no row: the newest event that it can know of should delete."""
    truth = inquiry.truth
    settled = [event for event in truth if inquiry.is_settled(event)]
    known = [*settled[-1:], *(event for event in truth if not inquiry.is_settled(event))]
    if truth and (not settled or any(event.deletes for event in known)):
        return None
    if inquiry.link.compacted and len(known) > 1:
        return None  # a deletion between them may have been taken away
    if inquiry.moving:
        return None
    return _unpublished(inquiry, Ground.DELETION_ABSENT, "the newest event; it does not delete")


def _there(inquiry: Inquiry, source: Row) -> Verdict | None:
    newest = inquiry.truth[-1] if inquiry.truth else None
    if newest is not None and newest.deletes:
        return _there_again(inquiry, source, newest)
    if any(event.deletes and not inquiry.is_settled(event) for event in inquiry.truth):
        return None  # the source was read before it
    if not inquiry.concerned and not (inquiry.versioned and inquiry.fields):
        return None
    if inquiry.concerned and newest is not None and _brought(inquiry):
        return None
    if inquiry.versioned and source.version is not None and inquiry.newest_version is not None:
        return _by_version(inquiry, source, source.version, inquiry.newest_version)
    if newest is None:
        return None if inquiry.moving else _unpublished(inquiry, Ground.STATE_ABSENT, "")
    return _by_state(inquiry)


def _there_again(inquiry: Inquiry, source: Row, deletion: Event) -> Verdict | None:
    if not inquiry.is_settled(deletion) or inquiry.moving:
        return None
    note = event_note(inquiry.case, deletion, "deletes what the source has")
    for event, state in zip(inquiry.truth, inquiry.true_states[1:], strict=True):
        if state is not None and inquiry.brings(state, inquiry.source):
            if not inquiry.versioned:
                return Verdict(Ground.EARLIER_STATE, deletion.at, (note,))
            if event.version == source.version:
                return Verdict(Ground.DELETED_IN_LOG, deletion.at, (note,))
    return _unpublished(inquiry, Ground.RETURN_ABSENT, "the newest event; it deletes")


def _by_version(inquiry: Inquiry, source: Row, version: int, newest: int) -> Verdict | None:
    if newest < version:
        return None if inquiry.moving else _unpublished(inquiry, Ground.VERSION_ABSENT, "the newest version in the log")
    if inquiry.anew:
        return None
    newer = [event for event in inquiry.life if event.version is not None and event.version > version]
    settled = [event for event in newer if inquiry.is_settled(event)]
    if settled:
        notes = event_notes(inquiry.case, settled, f"newer than the source, which is at version {version}")
        return Verdict(Ground.LOG_NEWER, settled[0].at, tuple(notes))
    same = next((event for event in reversed(inquiry.truth) if event.version == version), None)
    if same is not None and inquiry.fields:
        names = [rule.name for rule in inquiry.concerned if not rule.add and not _says(inquiry, same, rule)]
        if names:
            note = event_note(inquiry.case, same, f"the source's version, and says something else: {', '.join(names)}")
            return Verdict(Ground.SAME_VERSION, same.at, (note,))
    return _fold_differs(inquiry, source) if inquiry.link.changes and not inquiry.link.compacted else None


def _fold_differs(inquiry: Inquiry, source: Row) -> Verdict | None:
    """Compare the changes up to the source's version, folded, with the source; as far as the log reaches back."""
    known = inquiry.known(source)
    if not known:
        return None
    life = since_deletion(known)
    gaps = inquiry.missing_versions(life)
    state = inquiry.folding.final(known)
    if inquiry.brings(state, inquiry.source):
        first = inquiry.truth[0]
        late = inquiry.link.dense_versions and inquiry.reaches_back and (first.version or 0) > 1
        # Versions before the first one: either the topic is younger than the aggregate, or they were lost.
        if not late or inquiry.whole or not _follows_what_is_there(inquiry):
            return None
        note = event_note(inquiry.case, first, "the first event; the versions before it are not in the log")
        return Verdict(Ground.VERSION_GAP, first.at, (note,))
    if gaps:
        return version_gap(inquiry, *gaps[0])
    own = [event for event in known if event.version == source.version]
    if own and all(inquiry.corrects(event) for event in own) and all(rule.add for rule in inquiry.concerned):
        return _unpublished(
            inquiry, Ground.VERSION_ABSENT, "a correction, which adds nothing, has the source's version"
        )
    note = event_note(inquiry.case, known[-1], "the source's version; all changes up to it give another state")
    return Verdict(Ground.SAME_VERSION_FOLD, known[-1].at, (note,))


def version_gap(inquiry: Inquiry, former: Event, later: Event, ground: Ground = Ground.VERSION_GAP) -> Verdict:
    """Tell of a version that was never published."""
    notes = (
        event_note(inquiry.case, former, "the last version before a gap"),
        event_note(inquiry.case, later, "the next version in the log"),
    )
    return Verdict(ground, later.at, notes)


def _follows_what_is_there(inquiry: Inquiry) -> bool:
    """Whether the copy is what the events in the log give, added up from nothing."""
    folding = inquiry.from_nothing
    return folding.fit(folding.final(inquiry.order), inquiry.copy, inquiry.concerned) is Fit.EXACT


def _by_state(inquiry: Inquiry) -> Verdict | None:
    row, truth = inquiry.source, inquiry.truth
    states = inquiry.true_states
    settled = max((place for place, event in enumerate(truth, 1) if inquiry.is_settled(event)), default=0)
    if not settled or (inquiry.link.compacted and settled < len(truth)):
        return None  # what the source had then may have been taken away
    if any(inquiry.brings(state, row) for state in states[settled:]):
        return None
    if inquiry.moving:
        return None
    for place in range(settled - 1, 0, -1):
        if inquiry.brings(states[place], row):
            later = event_notes(inquiry.case, truth[place:settled], "newer than what the source says")
            at = event_note(inquiry.case, truth[place - 1], "the source is as this event says")
            ground = Ground.OUTBOX_PENDING if inquiry.case.outbox_pending else Ground.EARLIER_STATE
            return Verdict(ground, truth[place].at, (*_outbox(inquiry), at, *later))
    return _unpublished(inquiry, Ground.STATE_ABSENT, "the newest event; the source says something else")


def _unreadable(inquiry: Inquiry, due: bool = False) -> Verdict | None:
    """The record that should carry what the log lacks, if it cannot be read."""
    case, link = inquiry.case, inquiry.link
    names = {each.name for each in inquiry.fields}
    newest = inquiry.truth[-1] if inquiry.truth else None
    places = {event.place: number for number, event in enumerate(case.events)}
    for event in reversed(inquiry.broken):
        overtaken = newest is not None and places[newest.place] > places[event.place]
        if event.version is not None and newest is not None and newest.version is not None:
            overtaken = event.version <= newest.version
        if (link.changes or not overtaken) and (not due or inquiry.is_due(event)):
            note = event_note(case, event, f"cannot be read: {event.problem}")
            return Verdict(Ground.UNREADABLE, event.at, (note,))
    suspects = inquiry.log if link.changes else [event for event in inquiry.log if event is newest]
    for event in reversed(suspects):
        bad = [name for name in event.bad_fields if name in names or not names]
        if bad and (not due or inquiry.is_due(event)):
            note = event_note(case, event, f"cannot be read in {', '.join(bad)}")
            return Verdict(Ground.UNREADABLE_FIELD, event.at, (note,))
    return None


def _unpublished(inquiry: Inquiry, ground: Ground, note: str) -> Verdict:
    if inquiry.case.outbox_pending:
        ground = Ground.OUTBOX_PENDING
    newest = [event_note(inquiry.case, inquiry.truth[-1], note)] if inquiry.truth else []
    return Verdict(ground, notes=(*_outbox(inquiry), *newest))


def _outbox(inquiry: Inquiry) -> list[Evidence]:
    return [outbox_note(inquiry.case)] if inquiry.case.outbox_pending else []


def _brought(inquiry: Inquiry) -> bool:
    """Whether the newest event brings what the source says, whatever the versions are."""
    if inquiry.link.changes and (not inquiry.whole or any(r.name not in inquiry.told for r in inquiry.concerned)):
        return False
    return inquiry.brings(inquiry.true_states[-1], inquiry.source) and not _bad(inquiry, inquiry.truth[-1])


def _says(inquiry: Inquiry, event: Event, rule: FieldRule) -> bool:
    fit = inquiry.folding.fit(event.fields, inquiry.source, (rule,))
    return fit is not Fit.NO and rule.name not in event.bad_fields


def _bad(inquiry: Inquiry, event: Event) -> bool:
    return any(rule.name in event.bad_fields for rule in inquiry.concerned)
