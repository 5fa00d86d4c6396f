"""What was seen, each in a short clause: the notes of which a finding's story is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from reconcile.domain.case import Case, Event, Parked
from reconcile.domain.confidence import Ground
from reconcile.domain.finding import Evidence, EvidenceKind
from reconcile.domain.ledger import Ledger

MOST = 12
_OF_EACH = 4
# As a person would tell the story.
_ORDER: tuple[EvidenceKind, ...] = (
    "outbox", "retention", "event", "partition", "offset", "retry", "stash", "dead_letter", "ledger",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """What was decided, on what ground, and what says so."""

    ground: Ground
    since: datetime | None = None
    notes: tuple[Evidence, ...] = ()


def told(notes: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Put notes into the order of the story, each once, and leave out what would be too many.

    What may still be applied is never left out: a repair depends on it.
    """
    ordered = sorted(dict.fromkeys(notes), key=lambda note: _ORDER.index(note.kind))
    places = [place for place, note in enumerate(ordered) if not note.unresolved]
    left_out = places[len(places) - max(len(ordered) - MOST, 0) :]
    return tuple(note for place, note in enumerate(ordered) if place not in left_out)


def event_note(case: Case, event: Event, note: str) -> Evidence:
    """Tell of an event in the log."""
    return Evidence("event", note, case.link.topic, event.partition, event.offset, event.version, event.at)


def event_notes(case: Case, events: Sequence[Event], note: str) -> list[Evidence]:
    """Tell of several events; of the first and the last ones, where they are many."""
    if len(events) <= _OF_EACH:
        return [event_note(case, event, note) for event in events]
    left = len(events) - _OF_EACH + 1
    shown = [event_note(case, event, note) for event in (*events[: _OF_EACH - 2], events[-1])]
    return [*shown[:-1], event_note(case, events[_OF_EACH - 2], f"{note}; and so are {left - 1} more"), shown[-1]]


def offset_notes(case: Case, events: Iterable[Event]) -> list[Evidence]:
    """Tell how far the group has committed in the partitions of some events."""
    found = []
    for partition in dict.fromkeys(event.partition for event in events):
        place = case.link.places.get(partition)
        committed = place.committed if place is not None else None
        note = "the group has committed nothing here" if committed is None else "the group has committed up to here"
        found.append(Evidence("offset", note, case.link.topic, partition, committed))
    return found[:_OF_EACH]


def parked_note(parked: Parked, note: str) -> Evidence:
    """Tell of a record in a failure topic."""
    if parked.error is not None:
        note = f"{note}, for {parked.error}"
    place = (parked.topic, parked.partition, parked.offset)
    return Evidence(parked.kind, note, *place, parked.version, parked.at, unresolved=parked.resolved is None)


def ledger_notes(case: Case, ledger: Ledger, events: Iterable[Event]) -> list[Evidence]:
    """Tell what the ledger says of some events."""
    found = []
    for event in events:
        entries = ledger.entries.get(event.place, ())
        note = "not in the ledger" if ledger.reaches(event) else "the ledger does not reach back to it"
        for entry in entries[:2] or [None]:
            at = None if entry is None else entry.at
            note = note if entry is None else "applied" if len(entries) == 1 else f"applied {len(entries)} times"
            found.append(Evidence("ledger", note, case.link.topic, event.partition, event.offset, event.version, at))
    return found[:_OF_EACH]


def retention_notes(case: Case, partitions: Iterable[int]) -> list[Evidence]:
    """Tell where the log begins."""
    found = []
    for partition in sorted(set(partitions)):
        place = case.link.places.get(partition)
        if place is not None and place.begin > 0:
            note = "the log begins here; what stood before is gone"
            found.append(Evidence("retention", note, case.link.topic, partition, place.begin))
    return found[:_OF_EACH]


def absence_notes(case: Case, partitions: Iterable[int]) -> list[Evidence]:
    """Tell where a record of the id would stand, and does not."""
    note = "holds no record of this id, from its beginning to its end"
    found = sorted(set(partitions) & case.link.places.keys())
    if len(found) > _OF_EACH:
        return [Evidence("partition", f"no partition {note}", case.link.topic)]
    return [Evidence("partition", note, case.link.topic, partition) for partition in found]


def cut_notes(case: Case) -> list[Evidence]:
    """Tell that only the newest events were looked at."""
    if not case.events_cut:
        return []
    return [Evidence("retention", f"{case.events_cut} older events were not looked at", case.link.topic)]


def outbox_note(case: Case) -> Evidence:
    """Tell of the outbox."""
    rows = case.outbox_pending
    return Evidence("outbox", f"{rows} of its rows {'is' if rows == 1 else 'are'} not published")
