"""Which records of an aggregate still lie in the group's failure topics, and of which events they are."""

from __future__ import annotations

from collections.abc import Sequence

from reconcile.domain.case import Event, Parked
from reconcile.domain.event import spelled
from reconcile.domain.ledger import Ledger

# A record goes on from one to the next.
_HOPS = ("retry", "stash", "dead_letter")


def event_of(parked: Parked, log: Sequence[Event]) -> Event | None:
    """Find the event that was parked: by its id, else by where it stood, else by its version."""
    if parked.event_id is not None:
        name = spelled(parked.event_id)
        named = [event for event in log if spelled(event.event_id) == name]
        if named:
            return next((event for event in named if event.place == parked.origin), named[-1])
    if parked.origin is not None:
        return next((event for event in log if event.place == parked.origin), None)
    if parked.event_id is None and parked.version is not None:
        return next((event for event in reversed(log) if event.version == parked.version), None)
    return None


def unresolved(
    parked: Sequence[Parked], log: Sequence[Event], ledger: Ledger
) -> tuple[dict[tuple[int, int], Parked], list[Parked]]:
    """Give what may still be waiting: by the place of its event, and what is of no event that the log has."""
    waiting: dict[tuple[int, int], Parked] = {}
    strangers: list[Parked] = []
    for each in parked:
        if each.resolved is not None:
            continue
        event = event_of(each, log)
        if event is None:
            if each.event_id is None or spelled(each.event_id) not in ledger.names:
                strangers.append(each)
        elif not ledger.shows(event):
            former = waiting.get(event.place)
            if former is None or _HOPS.index(former.kind) <= _HOPS.index(each.kind):
                waiting[event.place] = each
    return waiting, strangers


def came_back(event: Event, parked: Sequence[Parked], log: Sequence[Event]) -> Parked | None:
    """Give the record of an event that left a retry topic or the stash again."""
    done = (each for each in parked if each.resolved is not None and each.kind != "dead_letter")
    return next((each for each in done if event_of(each, log) is event), None)
