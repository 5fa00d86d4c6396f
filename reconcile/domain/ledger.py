"""What a consumer's ledger says of an aggregate's events: which were applied, how often, in which order, or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from reconcile.domain.case import Case, Event, LedgerEntry, Link
from reconcile.domain.event import spelled

_NEVER = datetime.min.replace(tzinfo=UTC)
Entries = dict[tuple[int, int], tuple[LedgerEntry, ...]]


@dataclass(frozen=True)
class MatchedLedger:
    """The ledger's entries, each with the event that it is about."""

    link: Link
    applied: tuple[Event, ...]
    """The events in the order in which they were applied; one that was applied twice is in here twice."""
    entries: Entries
    """The entries of each event that was applied, by its place."""
    unapplied: Mapping[tuple[int, int], LedgerEntry]
    """The entry of each event that it notes as not applied, by its place."""
    ordered: bool
    """Whether the entries have times, without which nothing can be said of their order."""
    names: frozenset[str]
    """The ids of all the events that it shows applied."""

    def shows(self, event: Event) -> bool:
        """Whether it shows an event applied."""
        return event.place in self.entries

    def shows_twice(self, event: Event) -> bool:
        """Whether it shows an event applied more than once."""
        return len(self.entries.get(event.place, ())) > 1

    def settles(self, event: Event) -> bool:
        """Whether it notes an event as done with, without it: dropped as older, or discarded by a person."""
        noted = self.unapplied.get(event.place)
        return noted is not None and noted.unapplied in ("older", "discarded")

    def reaches(self, event: Event) -> bool:
        """Whether it would show the event, had that been applied."""
        link = self.link
        if event.place in self.unapplied:
            return True
        if not link.ledger or (link.ledger_since is None and link.ledger_begins is None):
            return False
        if link.ledger_since is not None and event.at < link.ledger_since:
            return False
        if link.ledger_by_position and _is_nameless(link, event) and not event.deletes:
            return False
        begins = link.ledger_begins or {}
        if begins and event.partition not in begins:
            # Nothing was applied of it, or all of that was cleaned away: only the time can tell.
            return link.ledger_since is not None
        return begins.get(event.partition, 0) <= event.offset

    def lacks(self, event: Event) -> bool:
        """Whether it proves that an event was not applied."""
        return not self.shows(event) and self.reaches(event)


def match_ledger(case: Case, events: Sequence[Event]) -> MatchedLedger:
    """Match entries and events: by event id where both have one, else by partition and offset."""
    entries: Entries = {}
    unapplied: dict[tuple[int, int], LedgerEntry] = {}
    applied: list[tuple[datetime, int]] = []
    for entry, number in _matches(case, events):
        place = events[number].place
        if entry.unapplied is not None:
            unapplied[place] = entry
            continue
        entries[place] = (*entries.get(place, ()), entry)
        applied.append((entry.at or _NEVER, number))
    if entries:
        _share_with_twins(entries, events)
        _share_with_deletions(entries, events)
    return MatchedLedger(
        link=case.link,
        applied=tuple(events[number] for _, number in sorted(applied)),
        entries=entries,
        unapplied=unapplied,
        ordered=all(entry.at is not None for entry in case.ledger),
        names=frozenset(spelled(e.event_id) for e in case.ledger if e.event_id is not None and e.unapplied is None),
    )


def _matches(case: Case, events: Sequence[Event]) -> Iterator[tuple[LedgerEntry, int]]:
    """Compute for each entry the number of its event, if it has one."""
    if not case.ledger:
        return
    by_id = _by_id(events)
    by_place: dict[tuple[int, int] | None, int] = {event.place: number for number, event in enumerate(events)}
    ids = [None if entry.event_id is None else spelled(entry.event_id) for entry in case.ledger]
    names_events = any(name in by_id for name in ids if name is not None)
    for entry, name in zip(case.ledger, ids, strict=True):
        named = by_id.get(name, ()) if name is not None else ()
        match = by_place.get(entry.place)
        if named and match not in named:
            match = named[0]
        elif match is not None and not named and name is not None and names_events:
            # Of another event that stood there, as before the topic was created again.
            match = match if _is_nameless(case.link, events[match]) else None
        if match is not None:
            yield entry, match


def _by_id(events: Sequence[Event]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, event in enumerate(events):
        found.setdefault(spelled(event.event_id), []).append(number)
    return found


def _share_with_twins(entries: Entries, events: Sequence[Event]) -> None:
    """Add the entries of a record that stands twice: it is applied if either is."""
    for numbers in _by_id(events).values():
        shown = next((events[number] for number in numbers if events[number].place in entries), None)
        if shown is None:
            continue
        for event in (events[number] for number in numbers):
            if event.place not in entries and event.fields == shown.fields:
                entries[event.place] = entries[shown.place][:1]


def _share_with_deletions(entries: Entries, events: Sequence[Event]) -> None:
    """Add the entries of a deletion that is repeated: a consumer notes one of them."""
    for former, later in (*pairwise(events), *pairwise(events[::-1])):
        if former.deletes and later.deletes and former.place in entries and later.place not in entries:
            entries[later.place] = entries[former.place][:1]


def _is_nameless(link: Link, event: Event) -> bool:
    """Whether an event has no id of its own, but is called by where it stands."""
    return event.event_id == f"{link.topic}-{event.partition}@{event.offset}"
