"""Which records of an aggregate still lie in the group's failure topics, and of which events they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from reconcile.domain.case import Event, Parked, ParkedIn
from reconcile.domain.event import spelled
from reconcile.domain.ledger import MatchedLedger

LIBRARY_STASH = "reconcile.stash"
"""The table in which the consumer library keeps what it stashed."""
# A record goes on from one to the next.
_HOPS: tuple[ParkedIn, ...] = ("retry", "stash", "dead_letter")


@dataclass(frozen=True)
class Unresolved:
    """The records that may still be waiting."""

    by_event: dict[tuple[int, int], Parked]
    """By the place of their event."""
    strangers: list[Parked]
    """Those of no event that the log has."""


def unresolved(parked: Sequence[Parked], events: Sequence[Event], ledger: MatchedLedger) -> Unresolved:
    """Choose what may still be waiting; of an event that went on from one topic to the next, where it is now."""
    found = Unresolved({}, [])
    for each in parked:
        if each.resolved is not None:
            continue
        event = event_of(each, events)
        if event is None:
            if each.event_id is None or spelled(each.event_id) not in ledger.names:
                found.strangers.append(each)
        elif not ledger.shows(event) and (each.topic == LIBRARY_STASH or not ledger.settles(event)):
            former = found.by_event.get(event.place)
            if former is None or _hop(former) <= _hop(each):
                found.by_event[event.place] = each
    _share_with_deletions(found.by_event, events, ledger)
    return found


def _share_with_deletions(
    by_event: dict[tuple[int, int], Parked], events: Sequence[Event], ledger: MatchedLedger
) -> None:
    """Add the deletions that repeat a parked one, as a tombstone does behind Debezium's event: a sink drops one."""
    for former, later in (*pairwise(events), *pairwise(events[::-1])):
        repeats = former.deletes and later.deletes and former.partition == later.partition
        if repeats and former.place in by_event and not ledger.shows(later):
            by_event.setdefault(later.place, by_event[former.place])


def _hop(parked: Parked) -> int:
    """Compute how far a record has gone on: the library brings a dead letter back by its stash."""
    return len(_HOPS) if parked.topic == LIBRARY_STASH else _HOPS.index(parked.kind)


def came_back(event: Event, parked: Sequence[Parked], events: Sequence[Event]) -> Parked | None:
    """Find the record of an event that left a retry topic or the stash again."""
    done = (each for each in parked if each.resolved is not None and each.kind != "dead_letter")
    return next((each for each in done if event_of(each, events) is event), None)


def event_of(parked: Parked, events: Sequence[Event]) -> Event | None:
    """Find the event that was parked: by its id, else by where it stood, else by its version."""
    if parked.event_id is not None:
        name = spelled(parked.event_id)
        named = [event for event in events if spelled(event.event_id) == name]
        if named:
            return next((event for event in named if event.place == parked.origin), named[-1])
    if parked.origin is not None:
        return next((event for event in events if event.place == parked.origin), None)
    if parked.event_id is None and parked.version is not None:
        return next((event for event in reversed(events) if event.version == parked.version), None)
    return None
