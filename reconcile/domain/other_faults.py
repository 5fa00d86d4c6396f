"""What else went wrong with an aggregate, as its evidence shows: any of it may be what makes the copy differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from itertools import islice, pairwise, product

from reconcile.domain.case import Event, ParkedIn, Routing
from reconcile.domain.cause import Cause
from reconcile.domain.comparison import EXACT, equal
from reconcile.domain.folding import Fit, amount
from reconcile.domain.grounds import Attribution, Ground, ground_of_loss
from reconcile.domain.inquiry import Inquiry
from reconcile.domain.parking import came_back
from reconcile.domain.rivals import rivals

_BY_TOPIC: dict[ParkedIn, Cause] = {
    "stash": Cause.STASHED,
    "retry": Cause.RETRYING,
    "dead_letter": Cause.DEAD_LETTERED,
}

_LOSSES = Cause.SKIPPED, *_BY_TOPIC.values()
_TRIED = 64
"""In how many ways the last events to set the fields are chosen."""
_SAYING = 8
"""Of how many events that say what the copy says."""
_MOST_SUMS = 10_000
"""How many sums are tried."""
_RECKONED = Ground.FOLDED_TWICE, Ground.FOLDED_WITHOUT, Ground.OTHER_THAN_LEDGER


def other_faults(inquiry: Inquiry, decided: Attribution, fault: Attribution | None) -> tuple[Cause, ...]:
    """Choose the causes, beside the one that was decided on, of faults that may play a part in what differs.

    `fault` is what keeps the log from bringing the source's state. If what was decided gives the copy exactly, only
    that counts of which nobody knows what it would have given, or which speaks against it.
    """
    found = [*_of_log(inquiry, decided, fault), *_of_strangers(inquiry, decided)]
    if decided.ground is Ground.NO_STATE:
        found += _of_several(inquiry)
    if decided.ground is Ground.NOT_CARRIED and not inquiry.log.complete:
        found.append(Cause.EXPIRED)
    if decided.ground is Ground.LOG_TWICE and inquiry.link.guarded and not inquiry.ledger_decides:
        found.append(Cause.SKIPPED)  # a guard may refuse what is there again
    if decided.ground.cause in _LOSSES:
        found += [*_of_turns(inquiry, decided), *_of_a_new_row(inquiry, decided)]
    if decided.ground.cause is Cause.IN_FLIGHT:
        found += _that_last(inquiry, decided)
    found += _of_about(inquiry, decided, fault) if decided.exact else _of_events(inquiry)
    found += rivals(inquiry, decided, fault)
    return tuple(dict.fromkeys(each for each in found if each is not decided.ground.cause))


def _of_log(inquiry: Inquiry, decided: Attribution, fault: Attribution | None) -> Iterator[Cause]:
    log = inquiry.log
    if fault is not None:
        yield fault.ground.cause
    moved = inquiry.source_moved or (decided is fault and _is_on_its_way(inquiry, fault))
    if moved and (decided is fault or not decided.exact):
        yield Cause.IN_FLIGHT
    reckoned = decided.ground in _RECKONED[:2]
    if reckoned and not log.complete and not inquiry.link.versioned:
        # What was before the log is reckoned from the source, whatever that lost or did not publish.
        yield from (Cause.NEVER_PUBLISHED, Cause.SOURCE_REGRESSED)
    if decided.ground in _RECKONED and _began_late(inquiry):
        yield Cause.NEVER_PUBLISHED
    if decided is not fault and decided.exact and log.complete:
        return  # the log brings the source's state, or what it lacks is named above
    if log.broken or any(event.bad_fields for event in log.events):
        yield Cause.SCHEMA_VIOLATION
    if decided is not fault:
        return
    if decided.ground.cause is Cause.SCHEMA_VIOLATION and _lacks_more_versions(inquiry):
        yield Cause.NEVER_PUBLISHED
    if inquiry.link.changes and log.missing_versions(log.truth):
        yield Cause.NEVER_PUBLISHED
    if _is_inverted(inquiry, log.events):
        yield Cause.OUT_OF_ORDER


def _began_late(inquiry: Inquiry) -> bool:
    """Whether the log reaches back, and the first versions are not in it: a sum may lack what they added."""
    log, first = inquiry.log, next((event.version for event in inquiry.log.truth), None)
    dense = inquiry.link.dense_versions and not inquiry.link.compacted
    return dense and log.reaches_back and first is not None and first > 1 and any(r.add for r in inquiry.concerned)


def _lacks_more_versions(inquiry: Inquiry) -> bool:
    """Whether the log lacks more of the source's versions than it has records that cannot be read."""
    log, source = inquiry.log, inquiry.case.source
    if not inquiry.link.dense_versions or inquiry.link.compacted or source is None or source.version is None:
        return False
    present = {event.version for event in log.events if event.version is not None}
    first = 1 if log.reaches_back else min(present, default=source.version)
    untold = sum(event.deletes and event.version is None for event in log.events)
    there = sum(first <= version <= source.version for version in present)
    return source.version - first + 1 - there - untold > len(log.broken)


def _is_on_its_way(inquiry: Inquiry, fault: Attribution) -> bool:
    """Whether the newest change of the source may be on its way, and would bring what the log lacks, or hide it.

    That is so if the source changed between its two readings, or if pending events tell all that differs.
    """
    former, present, copy = inquiry.case.settled_source, inquiry.case.source, inquiry.case.copy
    lacking = fault.ground.cause in (Cause.NEVER_PUBLISHED, Cause.SCHEMA_VIOLATION)
    if lacking and former != present and (former is not None or inquiry.case.settled_absent):
        return True
    if lacking and inquiry.link.changes and copy is not None and _names(inquiry) <= _told_in_flight(inquiry):
        return True
    if former is None or present is None or copy is None or former == present:
        return False
    return all(equal(r, former.fields.get(r.name), copy.fields.get(r.name)) for r in inquiry.link.fields)


def _told_in_flight(inquiry: Inquiry) -> set[str]:
    """Choose the fields that events tell which the source, or the copy, had no time to come to."""
    log = inquiry.log
    moving = [event for event in log.order if not (log.is_due(event) and log.is_settled(event))]
    if any(event.deletes for event in moving):
        return _names(inquiry)
    return {name for event in moving for name in event.fields}


def _of_strangers(inquiry: Inquiry, decided: Attribution) -> Iterator[Cause]:
    """Choose why records wait whose events the log no longer has: of changes, they can carry anything that differs."""
    shown = Cause.EXPIRED, Cause.SOURCE_REGRESSED, Cause.PAYLOAD_DIVERGENCE
    if inquiry.link.changes and decided.ground.cause not in shown:
        yield from (_BY_TOPIC[each.kind] for each in inquiry.unresolved.strangers)


def _that_last(inquiry: Inquiry, decided: Attribution) -> Iterator[Cause]:
    """Choose the causes of what differs and will still differ when all that is in flight has arrived."""
    log, folding, waiting = inquiry.log, inquiry.folding, inquiry.unresolved.by_event
    if folding.whole or decided.ground not in (Ground.PENDING, Ground.AHEAD):
        return
    adding = {rule.name for rule in inquiry.concerned if rule.add}
    if decided.ground is Ground.PENDING:
        for event in log.due:
            if adding & event.fields.keys() and (event.place in waiting or inquiry.ledger.lacks(event)):
                yield _BY_TOPIC[waiting[event.place].kind] if event.place in waiting else Cause.SKIPPED
    if inquiry.source_moved or _names(inquiry) <= _told_in_flight(inquiry):
        return
    if not log.complete:
        yield from (Cause.EXPIRED, Cause.SKIPPED, Cause.NEVER_PUBLISHED, Cause.FOREIGN_WRITE)
    yield Cause.OUT_OF_ORDER


def _names(inquiry: Inquiry) -> set[str]:
    return {rule.name for rule in inquiry.concerned}


def _of_several(inquiry: Inquiry) -> Iterator[Cause]:
    """Choose the causes of several faults that together may give what no single one does.

    That is so if some of the events, in some order, leave what the copy says: each field is as the last of them that
    sets it says, or was never set and is NULL, or right and at its default, as the event that makes the row tells it.
    """
    copy, events, first = inquiry.copy, inquiry.log.events, inquiry.log.life[:1]
    if copy is None or inquiry.folding.whole or _is_other_sum(inquiry):
        return
    carried = {name for event in events for name in event.fields}
    last: dict[str, list[Event | None]] = {}
    for rule in inquiry.folding.rules:
        if rule.add or rule.name not in carried:
            continue
        setting = [event for event in events if rule.name in event.fields]
        said = [e for e in setting if inquiry.folding.equal(rule, e.fields[rule.name], copy.get(rule.name))][-_SAYING:]
        right = rule not in inquiry.concerned
        unset = copy.get(rule.name) is None or (right and any(event in first for event in said))
        last[rule.name] = [*said, *([None] if unset else [])]
    ways = (dict(zip(last, way, strict=True)) for way in islice(product(*last.values()), _TRIED))
    if any(_is_an_order(way) and _is_likely(inquiry, way) for way in ways):
        yield from (Cause.SKIPPED, Cause.OUT_OF_ORDER, Cause.NEVER_PUBLISHED)


def _is_other_sum(inquiry: Inquiry) -> bool:
    """Whether a sum is none that the events' amounts can make, each of them left out, added once or added twice."""
    copy = inquiry.copy or {}
    for rule in (rule for rule in inquiry.concerned if rule.add):
        reached = {Decimal(0)}
        for each in (amount(event, rule.name) for event in inquiry.log.order):
            reached = {
                EXACT.add(former, more) for former in reached for more in (Decimal(0), each, EXACT.add(each, each))
            }
            if len(reached) > _MOST_SUMS:
                return False
        if not any(inquiry.folding.equal(rule, each, copy.get(rule.name)) for each in reached):
            return True
    return False


def _is_likely(inquiry: Inquiry, last: Mapping[str, Event | None]) -> bool:
    """Whether the loss of one event alone accounts for what was never set, if a default is needed beside it."""
    unset, copy = {name for name, event in last.items() if event is None}, inquiry.copy or {}
    lost = sum(bool(unset & event.fields.keys()) for event in inquiry.log.due)
    return lost < 2 or all(copy.get(name) is None for name in unset)


def _is_an_order(last: Mapping[str, Event | None]) -> bool:
    """Whether each event can be the last that sets its field; None where nothing that was applied sets it."""
    applied = {event.place: event for event in last.values() if event is not None}
    before: dict[tuple[int, int], set[tuple[int, int]]] = {place: set() for place in applied}
    for name, event in last.items():
        others = {place for place, other in applied.items() if name in other.fields}
        if event is not None:
            before[event.place] |= others - {event.place}
        elif others:
            return False
    try:
        TopologicalSorter(before).prepare()
    except CycleError:
        return False
    return True


def _of_turns(inquiry: Inquiry, decided: Attribution) -> Iterator[Cause]:
    """Choose why a lost event would have been overwritten, had it been applied: older ones came after its turn."""
    for lost in decided.about:
        after = [event for event in inquiry.log.due if _came_after(inquiry, event, lost)]
        anew = {name for event in after for name in event.fields} - inquiry.folding.adds
        gone = any(event.deletes or inquiry.folding.whole for event in after)
        if gone or (after and _names(inquiry) & lost.fields.keys() <= anew):
            yield Cause.OUT_OF_ORDER if after[-1].partition == lost.partition else Cause.MISROUTED
        if decided.ground.cause is not Cause.SKIPPED and inquiry.link.guarded and _may_be_passed(inquiry, lost):
            yield Cause.MISROUTED


def _may_be_passed(inquiry: Inquiry, lost: Event) -> bool:
    """Whether a newer event of another partition may have come first: a guard would have refused the lost one."""
    log = inquiry.log
    newer = (each for each in log.due if log.rank[each.place] > log.rank[lost.place])
    return any(each.partition != lost.partition and not inquiry.ledger.lacks(each) for each in newer)


def _came_after(inquiry: Inquiry, event: Event, lost: Event) -> bool:
    """Whether an older event was applied only after the turn of a newer one that was lost."""
    log, ledger, waiting = inquiry.log, inquiry.ledger, inquiry.unresolved.by_event
    if log.rank[event.place] >= log.rank[lost.place] or event.place in waiting or ledger.lacks(event):
        return False
    here = event.partition == lost.partition
    times = [entry.at for entry in ledger.entries.get(event.place, ()) if entry.at is not None]
    if here and event.offset > lost.offset:
        return True
    if came_back(event, inquiry.case.parked, log.events) is not None:
        return not times or max(times) > lost.at
    return bool(times) and any(turn < max(times) for turn in _turns(inquiry, lost))


def _turns(inquiry: Inquiry, lost: Event) -> Iterator[datetime]:
    """Choose the times by which the consumer had come by an event: it put that aside, or applied one behind it."""
    record = inquiry.unresolved.by_event.get(lost.place)
    if record is not None and record.at is not None and record.at > lost.at:
        yield record.at
    for event in inquiry.log.due:
        if event.partition == lost.partition and event.offset > lost.offset:
            yield from (entry.at for entry in inquiry.ledger.entries.get(event.place, ()) if entry.at is not None)


def _of_a_new_row(inquiry: Inquiry, decided: Attribution) -> Iterator[Cause]:
    """Doubt a loss that does not give the copy as it is.

    If the copy lacks also what others set, its row was deleted and made anew, without the lost. What is in flight may
    hide that.
    """
    log, folding, copy = inquiry.log, inquiry.folding, inquiry.copy
    if decided.exact or folding.whole or copy is None:
        return
    state = folding.final([event for event in log.due if event not in decided.about])
    empty = (rule for rule in inquiry.concerned if not rule.add and copy.get(rule.name) is None)
    if any(folding.fit(state, copy, (rule,)) is Fit.NO for rule in empty):
        yield Cause.FOREIGN_WRITE
    if _names(inquiry) & _told_in_flight(inquiry):
        yield Cause.IN_FLIGHT


def _of_about(inquiry: Inquiry, decided: Attribution, fault: Attribution | None) -> Iterator[Cause]:
    """Choose what speaks against a way in which the events give the copy exactly."""
    yield from _of_those_not_applied(inquiry, decided)
    late: Sequence[Event] = decided.about if decided.ground.cause in (Cause.OUT_OF_ORDER, Cause.MISROUTED) else ()
    if decided.ground.cause is Cause.MISROUTED and not (inquiry.link.versioned and late[0].at < late[1].at):
        yield Cause.OUT_OF_ORDER  # the newer one may have been published first
    if decided.ground is Ground.FOLDED_TWICE and any(each.routing is Routing.WRONG for each in inquiry.log.due):
        yield Cause.MISROUTED  # several partitions have no order, in which a sum could show what came twice
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
        last = event.deletes and event not in log.truth[:-1]
        if not adding & event.fields.keys() and event not in newest.values() and not last:
            continue
        if event.place in waiting:
            yield _BY_TOPIC[waiting[event.place].kind]
        elif inquiry.ledger.lacks(event) and not _has_a_twin_in_ledger(inquiry, event):
            yield ground_of_loss(inquiry.ledger.unapplied.get(event.place)).cause


def _of_events(inquiry: Inquiry) -> Iterator[Cause]:
    log, ledger, waiting = inquiry.log, inquiry.ledger, inquiry.unresolved.by_event
    for event in log.due:
        if not _plays_a_part(inquiry, event):
            continue
        if event.place in waiting:
            yield _BY_TOPIC[waiting[event.place].kind]
        elif ledger.lacks(event) and not _has_a_twin_in_ledger(inquiry, event):
            yield ground_of_loss(inquiry.ledger.unapplied.get(event.place)).cause
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
