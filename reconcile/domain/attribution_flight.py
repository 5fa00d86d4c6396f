"""What is no drift: the copy is where the log, or the source, has just been or is about to be."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

from reconcile.domain.case import Event
from reconcile.domain.confidence import Ground
from reconcile.domain.evidence_notes import Verdict, event_note, event_notes, offset_notes
from reconcile.domain.folding import UNKNOWN, Folding
from reconcile.domain.inquiry import Inquiry

_TRIED = 64


def in_flight(inquiry: Inquiry) -> Verdict | None:
    """Tell that a difference will pass; asked only where the log brings the source's state, or will."""
    if not inquiry.log:
        return Verdict(Ground.ON_ITS_WAY) if inquiry.moving else None
    due, end = len(inquiry.due), len(inquiry.order)
    if _heals(inquiry):
        for place in range(end, due - 1, -1):
            if inquiry.fits(place) and (verdict := _at(inquiry, place)):
                return verdict
        if (verdict := _elsewhere(inquiry)) is not None:
            return verdict
    if inquiry.pending and not inquiry.whole and (not inquiry.due or inquiry.link.compacted):
        pending = inquiry.pending
        notes = (
            *event_notes(inquiry.case, pending, "at or past the committed offset"),
            *offset_notes(inquiry.case, pending),
        )
        return Verdict(Ground.PENDING_ALL, pending[0].at, notes)
    if inquiry.moving and inquiry.link.changes and not inquiry.whole and not inquiry.versioned:
        return Verdict(Ground.ON_ITS_WAY)  # nothing tells how much of a sum the log already has
    return None


def _at(inquiry: Inquiry, place: int) -> Verdict | None:
    """The copy is where the log is after so many events."""
    case, left = inquiry.case, inquiry.order[place:]
    at = inquiry.order[place - 1] if place else None
    if at is not None and not inquiry.is_settled(at):
        note = event_note(case, at, "the copy is at this event, which came after the source was read")
        return Verdict(Ground.AHEAD, at.at, (note,))
    here = () if at is None else (event_note(case, at, "the copy is at this event"),)
    if left:
        ground = Ground.PENDING_ALL if inquiry.states[place] is UNKNOWN else Ground.PENDING
        notes = (*here, *event_notes(case, left, "at or past the committed offset"), *offset_notes(case, left))
        return Verdict(ground, left[0].at, notes)
    return Verdict(Ground.ON_ITS_WAY, notes=here) if inquiry.moving else None


def _heals(inquiry: Inquiry) -> bool:
    """Whether the log, once it is consumed, gives the right state, although something in it stands twice."""
    if len(inquiry.truth) == len(inquiry.order) or inquiry.folding.whole:
        return True
    final = inquiry.true_states[-1]
    return final is not UNKNOWN and bool(inquiry.folding.fit(inquiry.states[-1], final))


def _elsewhere(inquiry: Inquiry) -> Verdict | None:
    """Several partitions are ahead of each other, or the source was read between two events."""
    pending = inquiry.pending
    for folding, events in _ways(inquiry):
        if folding.fit(folding.final(events), inquiry.copy):
            notes = (
                *event_notes(inquiry.case, pending, "at or past the committed offset"),
                *offset_notes(inquiry.case, pending),
            )
            return Verdict(Ground.PENDING, pending[0].at if pending else None, notes)
    return None


def _ways(inquiry: Inquiry) -> Iterator[tuple[Folding, list[Event]]]:
    by_partition: dict[int, list[Event]] = {}
    for event in inquiry.pending:
        by_partition.setdefault(event.partition, []).append(event)
    if len(by_partition) > 1:
        for lengths in islice(product(*(range(len(events) + 1) for events in by_partition.values())), _TRIED):
            taken = {e.place for events, n in zip(by_partition.values(), lengths, strict=True) for e in events[:n]}
            yield inquiry.folding, [*inquiry.due, *(e for e in inquiry.pending if e.place in taken)]
    if inquiry.link.changes and not inquiry.whole and not inquiry.versioned:
        truth = inquiry.truth
        settled = sum(inquiry.is_settled(event) for event in truth)
        for known in range(settled, min(len(truth), settled + 8)):
            folding = inquiry.anchored(inquiry.case.source, truth[:known])
            for place in range(len(inquiry.due), min(len(inquiry.order), len(inquiry.due) + 8) + 1):
                yield folding, inquiry.order[:place]
