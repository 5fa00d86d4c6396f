"""What else went wrong with an aggregate, as its evidence shows: any of it may be what makes the copy differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from reconcile.domain.case import Event, ParkedIn, Routing
from reconcile.domain.cause import Cause
from reconcile.domain.comparison import equal
from reconcile.domain.grounds import Attribution, Ground
from reconcile.domain.inquiry import Inquiry
from reconcile.domain.parking import came_back

_BY_TOPIC: dict[ParkedIn, Cause] = {
    "stash": Cause.STASHED,
    "retry": Cause.RETRYING,
    "dead_letter": Cause.DEAD_LETTERED,
}


def other_faults(inquiry: Inquiry, decided: Attribution, fault: Attribution | None) -> tuple[Cause, ...]:
    """Choose the causes, beside the one that was decided on, of faults that may play a part in what differs.

    `fault` is what keeps the log from bringing the source's state. If what was decided gives the copy exactly, only
    that counts of which nobody knows what it would have given, or which speaks against it.
    """
    found = [*_of_log(inquiry, decided, fault)]
    found += _of_about(inquiry, decided, fault) if decided.exact else _of_events(inquiry)
    return tuple(dict.fromkeys(each for each in found if each is not decided.ground.cause))


def _of_log(inquiry: Inquiry, decided: Attribution, fault: Attribution | None) -> Iterator[Cause]:
    log = inquiry.log
    if fault is not None:
        yield fault.ground.cause
    moved = inquiry.source_moved or (decided is fault and _agreed_before(inquiry))
    if moved and (decided is fault or not decided.exact):
        yield Cause.IN_FLIGHT
    reckoned = decided.ground in (Ground.FOLDED_TWICE, Ground.FOLDED_WITHOUT)
    if reckoned and not log.complete and not inquiry.link.versioned:
        # What was before the log is reckoned from the source, whatever that lost or did not publish.
        yield from (Cause.NEVER_PUBLISHED, Cause.SOURCE_REGRESSED)
    if decided is not fault and decided.exact and log.complete:
        return  # the log brings the source's state, or what it lacks is named above
    if log.broken or any(event.bad_fields for event in log.events):
        yield Cause.SCHEMA_VIOLATION
    if decided is not fault:
        return
    if inquiry.link.changes and log.missing_versions(log.truth):
        yield Cause.NEVER_PUBLISHED
    if _is_inverted(inquiry, log.events):
        yield Cause.OUT_OF_ORDER


def _agreed_before(inquiry: Inquiry) -> bool:
    """Whether the copy is as the source was when it was read first, and the source has changed since."""
    former, present, copy = inquiry.case.settled_source, inquiry.case.source, inquiry.case.copy
    if former is None or present is None or copy is None or former == present:
        return False
    return all(equal(r, former.fields.get(r.name), copy.fields.get(r.name)) for r in inquiry.link.fields)


def _of_about(inquiry: Inquiry, decided: Attribution, fault: Attribution | None) -> Iterator[Cause]:
    """Choose what speaks against a way in which the events give the copy exactly."""
    yield from _of_those_not_applied(inquiry, decided)
    late: Sequence[Event] = decided.about if decided.ground.cause in (Cause.OUT_OF_ORDER, Cause.MISROUTED) else ()
    if decided.ground.cause is Cause.MISROUTED and not (inquiry.link.versioned and late[0].at < late[1].at):
        yield Cause.OUT_OF_ORDER  # the newer one may have been published first
    if inquiry.folding.whole and inquiry.position and not late and decided.ground.cause is not Cause.IN_FLIGHT:
        late = (inquiry.log.order[inquiry.position - 1],)
    elif decided is fault and not inquiry.folding.whole:
        late = [event for event in inquiry.log.due if inquiry.tells(event)]
    for event in late:
        if event.routing is Routing.WRONG:
            yield Cause.MISROUTED
        if came_back(event, inquiry.case.parked, inquiry.log.events) is not None:
            yield Cause.OUT_OF_ORDER


def _of_those_not_applied(inquiry: Inquiry, decided: Attribution) -> Iterator[Cause]:
    """Choose why events that this way applies once, and that the copy should show, were not applied, or twice."""
    log, waiting, whole = inquiry.log, inquiry.unresolved.by_event, inquiry.folding.whole
    adding = {rule.name for rule in inquiry.concerned if rule.add}
    newest = {name: event for event in log.truth for name in event.fields if inquiry.tells(event)}
    for event in log.due if not whole and decided.ground.cause is not Cause.IN_FLIGHT else ():
        if event in decided.about or not inquiry.tells(event):
            continue
        if adding & event.fields.keys() and log.repeats(event):
            yield Cause.DUPLICATE_APPLIED
        if not adding & event.fields.keys() and event not in newest.values():
            continue
        if event.place in waiting:
            yield _BY_TOPIC[waiting[event.place].kind]
        elif inquiry.ledger.lacks(event) and not _has_a_twin_in_ledger(inquiry, event):
            yield Cause.SKIPPED


def _of_events(inquiry: Inquiry) -> Iterator[Cause]:
    log, ledger, waiting = inquiry.log, inquiry.ledger, inquiry.unresolved.by_event
    for event in log.due:
        if not _plays_a_part(inquiry, event):
            continue
        if event.place in waiting:
            yield _BY_TOPIC[waiting[event.place].kind]
        elif ledger.lacks(event) and not _has_a_twin_in_ledger(inquiry, event):
            yield Cause.SKIPPED
        if ledger.shows_twice(event) or log.repeats(event):
            yield Cause.DUPLICATE_APPLIED
        if came_back(event, inquiry.case.parked, log.events) is not None:
            yield Cause.OUT_OF_ORDER
        if event.routing is Routing.WRONG:
            yield Cause.MISROUTED
    if _is_inverted(inquiry, log.events) or (ledger.ordered and _is_inverted(inquiry, ledger.applied)):
        yield Cause.OUT_OF_ORDER


def _plays_a_part(inquiry: Inquiry, event: Event) -> bool:
    """Whether an event can have to do with what differs: it carries that, or is as new as the state of the copy."""
    if not inquiry.folding.whole:
        return event.deletes or any(rule.name in event.fields for rule in inquiry.concerned)
    position, rank = inquiry.position, inquiry.log.rank
    return not position or rank[event.place] >= rank[inquiry.log.order[position - 1].place]


def _has_a_twin_in_ledger(inquiry: Inquiry, event: Event) -> bool:
    return any(inquiry.ledger.shows(each) for each in inquiry.log.twins(event))


def _is_inverted(inquiry: Inquiry, events: list[Event] | tuple[Event, ...]) -> bool:
    """Whether an event that can have to do with what differs stands behind a newer one."""
    rank = inquiry.log.rank
    return any(
        rank[later.place] < rank[former.place] and _plays_a_part(inquiry, former)
        for former, later in pairwise(each for each in events if each.place in rank)
    )
