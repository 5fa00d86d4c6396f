"""What was seen, each in a short clause: the notes that are the evidence of a finding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from reconcile.domain.case import Case, Event, Parked, Routing, Unapplied, Undecided
from reconcile.domain.finding import Evidence, EvidenceKind
from reconcile.domain.ledger import MatchedLedger

_MOST = 12
_OF_EACH = 4
# As a person would tell the story.
_ORDER: tuple[EvidenceKind, ...] = (
    "outbox", "retention", "event", "partition", "offset", "retry", "stash", "dead_letter", "ledger",
)  # fmt: skip
_WAITS = {"retry": "waits here", "stash": "is stashed here", "dead_letter": "lies here"}
_UNAPPLIED: Mapping[Unapplied, str] = {
    "older": "older: the consumer's guard dropped it",
    "ignored": "ignored, by the consumer's policy",
    "damaged": "damaged: skipped on purpose",
    "sent_on": "sent on to a retry topic",
    "dead_lettered": "dead-lettered",
    "discarded": "discarded from the stash by a person",
}
_ROUTED = {
    Routing.HOME: "its key belongs here",
    Routing.FORMER: "its key belonged here before the topic grew",
    Routing.WRONG: "its key does not belong here",
    Routing.UNKNOWN: "no partitioner explains the topic",
}


_TELL = (
    "Postgres logs no large value that did not change: set REPLICA IDENTITY FULL for the table, add Debezium's"
    " reselect post processor, or let the sink leave out what unavailable.value.placeholder says"
)


def arrange(notes: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Put notes into the order of the story, each once, and leave out what would be too many.

    What may still be applied is never left out: a repair depends on it.
    """
    ordered = sorted(dict.fromkeys(notes), key=lambda note: _ORDER.index(note.kind))
    places = [place for place, note in enumerate(ordered) if not note.unresolved]
    left_out = places[len(places) - max(len(ordered) - _MOST, 0) :]
    return tuple(note for place, note in enumerate(ordered) if place not in left_out)


def event_note(case: Case, event: Event, note: str) -> Evidence:
    """Describe an event in the log."""
    return Evidence("event", note, case.link.topic, event.partition, event.offset, event.version, event.at)


def event_notes(case: Case, events: Sequence[Event], note: str) -> list[Evidence]:
    """Describe several events; the first and the last ones, where they are many."""
    if len(events) <= _OF_EACH:
        return [event_note(case, event, note) for event in events]
    more = len(events) - _OF_EACH
    first = [event_note(case, event, note) for event in events[: _OF_EACH - 2]]
    between = event_note(case, events[_OF_EACH - 2], f"{note}; and so are {more} more")
    return [*first, between, event_note(case, events[-1], note)]


def unheld_notes(case: Case, events: Iterable[Event]) -> list[Evidence]:
    """Describe events that say what the source says, and what the copy's columns do not take."""
    said = ((event, ", ".join(event.unheld)) for event in events if event.unheld)
    return [event_note(case, event, f"source and log agree, the copy cannot hold it: {names}") for event, names in said]


def undecided_note(case: Case, undecided: Undecided) -> Evidence:
    """Describe a record behind an open transaction."""
    place = case.link.places.get(undecided.partition)
    begin = undecided.offset if place is None or place.open is None else place.open
    note = f"behind an open transaction that began at offset {begin}"
    return Evidence("event", note, case.link.topic, undecided.partition, undecided.offset, at=undecided.at)


def unread_notes(case: Case, partitions: Iterable[int]) -> list[Evidence]:
    """Describe the partitions where too much is behind an open transaction to be looked at."""
    places = {partition: case.link.places.get(partition) for partition in sorted(set(partitions))}
    note = "an open transaction began here; too many records are behind it to look at"
    return [
        Evidence("offset", note, case.link.topic, partition, place.open)
        for partition, place in places.items()
        if place is not None and place.unread
    ]


def untold_notes(case: Case, events: Iterable[Event], names: Iterable[str]) -> Iterator[Evidence]:
    """Describe events that have a placeholder in place of a value, and what a person can do about that."""
    for event in events:
        told = ", ".join(name for name in names if name in event.untold)
        yield event_note(case, event, f"does not tell {told}: the copy took the placeholder for the value")
    yield Evidence("event", _TELL, case.link.topic)


def gap_notes(case: Case, former: Event, later: Event) -> tuple[Evidence, ...]:
    """Describe the neighbours of a version that was never published."""
    return (
        event_note(case, former, "the last version before a gap"),
        event_note(case, later, "the next version in the log"),
    )


def routing_notes(case: Case, events: Iterable[Event]) -> Iterator[Evidence]:
    """Describe why events stand where they do."""
    for event in events:
        note = _ROUTED[event.routing] + (f": put by {event.routed_by}" if event.routed_by is not None else "")
        yield Evidence("partition", note, case.link.topic, event.partition, event.offset, event.version, event.at)


def offset_notes(case: Case, events: Iterable[Event]) -> list[Evidence]:
    """Describe how far the group has committed in the partitions of some events."""
    found = []
    for partition in dict.fromkeys(event.partition for event in events):
        place = case.link.places.get(partition)
        committed = place.committed if place is not None else None
        note = "the group has committed nothing here" if committed is None else "the group has committed up to here"
        found.append(Evidence("offset", note, case.link.topic, partition, committed))
    return found[:_OF_EACH]


def parked_note(parked: Parked, note: str) -> Evidence:
    """Describe a record in a failure topic."""
    if parked.error is not None:
        note = f"{note}, for {parked.error}"
    place = (parked.topic, parked.partition, parked.offset)
    return Evidence(parked.kind, note, *place, parked.version, parked.at, unresolved=parked.resolved is None)


def waiting_note(parked: Parked, more: str = "") -> Evidence:
    """Describe a record that may still be applied."""
    return parked_note(parked, _WAITS[parked.kind] + more)


def ledger_notes(case: Case, ledger: MatchedLedger, events: Iterable[Event]) -> list[Evidence]:
    """Describe what the ledger says of some events."""
    found = []
    for event in events:
        entries = ledger.entries.get(event.place, ())
        unapplied = None if entries else ledger.unapplied.get(event.place)
        note = "not in the ledger" if ledger.reaches(event) else "the ledger does not reach back to it"
        if unapplied is not None and unapplied.unapplied is not None:
            note = unapplied_words(unapplied.unapplied, unapplied.because)
        for entry in entries[:2] or [unapplied]:
            at = None if entry is None else entry.at
            if entries:
                note = "applied" if len(entries) == 1 else f"applied {len(entries)} times"
            found.append(Evidence("ledger", note, case.link.topic, event.partition, event.offset, event.version, at))
    return found[:_OF_EACH]


def unapplied_words(unapplied: Unapplied, because: str | None) -> str:
    """Say how the ledger notes an event that was not applied."""
    return f"noted as {_UNAPPLIED[unapplied]}{'' if because is None else f', because: {because}'}"


def lost_words(ledger: MatchedLedger, events: Iterable[Event]) -> str:
    """Say of events that the consumer went past what its ledger says of them all."""
    noted = any(event.place in ledger.unapplied for event in events)
    return f"committed past it; {'the ledger does not show it applied' if noted else 'not in the ledger'}"


def retention_notes(case: Case, partitions: Iterable[int]) -> list[Evidence]:
    """Describe where the log begins."""
    found = []
    for partition in sorted(set(partitions)):
        place = case.link.places.get(partition)
        if place is not None and place.begin > 0:
            note = "the log begins here; what stood before is gone"
            found.append(Evidence("retention", note, case.link.topic, partition, place.begin))
    return found[:_OF_EACH]


def absence_notes(case: Case, partitions: Iterable[int]) -> list[Evidence]:
    """Describe where a record of the id would stand, and does not."""
    note = "holds no record of this id, from its beginning to its end"
    found = sorted(set(partitions) & case.link.places.keys())
    if len(found) > _OF_EACH:
        return [Evidence("partition", f"no partition {note}", case.link.topic)]
    return [Evidence("partition", note, case.link.topic, partition) for partition in found]


def cut_notes(case: Case) -> list[Evidence]:
    """Say that only the newest events were looked at; nothing where all were."""
    if not case.events_cut:
        return []
    return [Evidence("retention", f"{case.events_cut} older events were not looked at", case.link.topic)]


def outbox_note(case: Case) -> Evidence:
    """Describe the outbox."""
    rows = case.outbox_pending
    note = f"{rows} of its rows {'is' if rows == 1 else 'are'} not published"
    return Evidence("outbox", note, at=case.outbox_since)
