"""What a consumer's ledger says of an aggregate's events: which were applied, how often, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from reconcile.domain.case import Case, Event, LedgerEntry, Link
from reconcile.domain.event import spelled

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Ledger:
    """The ledger's entries, each with the event of which it speaks."""

    link: Link
    applied: tuple[Event, ...]
    """The events in the order in which they were applied; one that was applied twice is in here twice."""
    entries: dict[tuple[int, int], tuple[LedgerEntry, ...]]
    """The entries of each event, by its place."""
    ordered: bool
    """Whether the entries have times, without which nothing can be said of their order."""
    names: frozenset[str]
    """The ids of all the events of which it speaks."""

    def shows(self, event: Event) -> bool:
        """Tell whether it shows an event applied."""
        return event.place in self.entries

    def twice(self, event: Event) -> bool:
        """Tell whether it shows an event applied more than once."""
        return len(self.entries.get(event.place, ())) > 1

    def reaches(self, event: Event) -> bool:
        """Tell whether it would show the event, had that been applied."""
        link = self.link
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
        """Tell whether it proves that an event was not applied."""
        return not self.shows(event) and self.reaches(event)


def _is_nameless(link: Link, event: Event) -> bool:
    """Whether an event has no id of its own, but is called by where it stands."""
    return event.event_id == f"{link.topic}-{event.partition}@{event.offset}"


def read_ledger(case: Case, log: Sequence[Event]) -> Ledger:
    """Match entries and events: by event id where both have one, else by partition and offset."""
    if not case.ledger:
        return Ledger(case.link, (), {}, ordered=True, names=frozenset())
    by_id: dict[str, list[int]] = {}
    by_place: dict[tuple[int, int] | None, int] = {}
    for number, event in enumerate(log):
        by_id.setdefault(spelled(event.event_id), []).append(number)
        by_place[event.place] = number
    names = frozenset(spelled(entry.event_id) for entry in case.ledger if entry.event_id is not None)
    names_events = not names.isdisjoint(by_id)
    found: dict[tuple[int, int], tuple[LedgerEntry, ...]] = {}
    applied: list[tuple[datetime, int]] = []
    for entry in case.ledger:
        named = by_id.get(spelled(entry.event_id), ()) if entry.event_id is not None else ()
        match = by_place.get(entry.place)
        if named and match not in named:
            match = named[0]
        elif match is not None and not named and entry.event_id is not None and names_events:
            # Of another event that stood there, as before the topic was made anew.
            match = match if _is_nameless(case.link, log[match]) else None
        if match is not None:
            place = log[match].place
            found[place] = (*found.get(place, ()), entry)
            applied.append((entry.at or _NEVER, match))
    applied.sort()
    for numbers in by_id.values():  # a record that stands twice is applied if either is
        shown = next((log[number] for number in numbers if log[number].place in found), None)
        for number in numbers if shown is not None and len(numbers) > 1 else ():
            if log[number].place not in found and shown is not None and log[number].fields == shown.fields:
                found[log[number].place] = found[shown.place][:1]
    for former, later in (*pairwise(log), *pairwise(log[::-1])):  # of a deletion that is told twice one is noted
        if former.deletes and later.deletes and former.place in found and later.place not in found:
            found[later.place] = found[former.place][:1]
    return Ledger(
        link=case.link,
        applied=tuple(log[number] for _, number in applied),
        entries=found,
        ordered=all(entry.at is not None for entry in case.ledger),
        names=names,
    )
