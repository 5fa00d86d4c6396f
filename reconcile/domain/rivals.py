"""What else gives the copy just as well: another explanation that fits makes the cause that was decided on less sure.

Each rival is computed from the case: it is told only where the events, the ledger or the rows leave it possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal

from reconcile.domain.aggregate_log import since_deletion
from reconcile.domain.case import Event, FieldRule, Routing
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Confidence
from reconcile.domain.folding import Fit, amount
from reconcile.domain.grounds import PARKED, Attribution, Ground
from reconcile.domain.inquiry import Inquiry

_NOT_APPLIED = Cause.SKIPPED, Cause.RETRYING, Cause.STASHED, Cause.DEAD_LETTERED
_NOT_TOLD = Cause.SCHEMA_VIOLATION, Cause.NEVER_PUBLISHED
_WRONGLY_APPLIED = Cause.OUT_OF_ORDER, Cause.DUPLICATE_APPLIED, Cause.MISROUTED
_ROUND = 100
_TRIED = 64
"""Of how many events each can be the one with which a row was made anew."""
_CUTS = 4
"""How many pending events may have been applied then."""


def rivals(inquiry: Inquiry, decided: Attribution, fault: Attribution | None) -> Iterator[Cause]:
    """Choose the causes of other explanations that fit as well as one that would be certain, or almost."""
    ground, cause = decided.ground, decided.ground.cause
    if ground.confidence is not Confidence.CERTAIN and ground is not Ground.OTHER_SUM_THAN_LEDGER:
        return
    if cause in (*_NOT_APPLIED, *_NOT_TOLD, *_WRONGLY_APPLIED):
        yield from _of_an_edit(inquiry, decided, fault)
    if cause in _NOT_APPLIED and decided.about and _would_be_overwritten(inquiry, inquiry.log.newest(decided.about)):
        yield Cause.OUT_OF_ORDER
    if cause is Cause.SCHEMA_VIOLATION:
        yield from _of_an_unreadable(inquiry)
    elif ground in (Ground.NO_STATE, Ground.OTHER_THAN_LEDGER, Ground.OTHER_SUM_THAN_LEDGER):
        yield from _of_a_foreign_write(inquiry, ground)
    elif ground in (Ground.FOLDED_TWICE, Ground.FOLDED_WITHOUT):
        yield from _of_a_fold(inquiry, decided)
    elif ground is Ground.LOG_TWICE:
        yield from _of_a_repeat(inquiry)
    elif ground is Ground.PENDING:
        yield from _of_pending(inquiry, decided)
    elif ground is Ground.LEDGER_ORDER:
        yield from (_of_a_loss(inquiry, over) for over in decided.about[1:] if not inquiry.ledger.shows(over))
    elif ground is Ground.LOSING_PARTITION and decided.about[1].deletes:
        if decided.about[1].routing is Routing.WRONG:
            yield Cause.OUT_OF_ORDER  # whatever came late makes the row anew, also from the same partition
    elif ground is Ground.NEVER_KNOWN and inquiry.case.settled_source is not None:
        yield from (Cause.IN_FLIGHT, Cause.EXPIRED)  # the source had it a moment ago


# Somebody wrote the copy, or deleted its row.


def _of_an_edit(inquiry: Inquiry, decided: Attribution, fault: Attribution | None) -> Iterator[Cause]:
    """Doubt a fault of the log or the consumer, if the copy says, or lacks, what that does not account for."""
    if inquiry.copy is None:
        if decided.ground.cause not in _WRONGLY_APPLIED and inquiry.case.source is not None and _had_a_row(inquiry):
            yield Cause.FOREIGN_WRITE
        return
    if inquiry.log.complete and any(_is_said_by_none(inquiry, decided, rule) for rule in inquiry.concerned):
        yield Cause.FOREIGN_WRITE
    if decided is fault and _is_told_otherwise(inquiry):
        yield from (Cause.FOREIGN_WRITE, Cause.SKIPPED)


def _had_a_row(inquiry: Inquiry) -> bool:
    """Whether the copy once had the row that it lacks: of an event in the ledger, or of a version before the log."""
    log, source = inquiry.log, inquiry.case.source
    if any(inquiry.ledger.shows(event) for event in log.life):
        return True
    if not log.broken or log.events or log.complete or not inquiry.link.dense_versions:
        return False
    return source is not None and source.version is not None and source.version > len(log.broken)


def _is_said_by_none(inquiry: Inquiry, decided: Attribution, rule: FieldRule) -> bool:
    """Whether the copy says of a field what no event says, and that is no default from before one that was lost."""
    copy, source = inquiry.copy or {}, inquiry.source or {}
    said = [event.fields[rule.name] for event in inquiry.log.events if rule.name in event.fields]
    text = copy.get(rule.name)
    if rule.add or text is None or any(inquiry.folding.equal(rule, each, text) for each in said):
        return False
    if not said:
        return source.get(rule.name, text) is None
    life = since_deletion(inquiry.log.due)  # a row that was made anew has its defaults again
    return any(rule.name in event.fields for event in life if event not in decided.about)


def _is_told_otherwise(inquiry: Inquiry) -> bool:
    """Whether the copy says of a field that differs something else than what the log makes of it."""
    states = inquiry.plain.states(inquiry.log.order)[len(inquiry.log.due) :]
    rules = (rule for rule in inquiry.concerned if not rule.add)
    return any(not any(inquiry.plain.fit(state, inquiry.copy, (rule,)) for state in states) for rule in rules)


# An older event came after the turn of one that was not applied, or cannot be read.


def _would_be_overwritten(inquiry: Inquiry, lost: Event) -> bool:
    """Whether the ledger shows an older event applied out of its turn, and so late that it would overwrite a lost one.

    It is out of its turn if one behind it was applied before.
    """
    log, lags, applied = inquiry.log, _lags(inquiry), inquiry.ledger.applied
    for place, event in enumerate(applied):
        older = event.partition == lost.partition and log.rank[event.place] < log.rank[lost.place]
        if older and inquiry.tells(event) and _came_late(lags, event, lost):
            former = (each for each in applied[:place] if each.partition == event.partition)
            return any(each.offset > event.offset for each in former)
    return False


def _of_an_unreadable(inquiry: Inquiry) -> Iterator[Cause]:
    """Doubt that the copy would be right, could a record be read: older events would have overwritten it."""
    log, lags = inquiry.log, _lags(inquiry)
    if not log.events and not log.complete and inquiry.copy is not None:
        yield Cause.FOREIGN_WRITE  # nothing tells what the copy was before
    for broken in log.broken:
        for event in (each for each in log.due if each.partition == broken.partition and inquiry.tells(each)):
            if event.offset < broken.offset:
                if _came_late(lags, event, broken):
                    yield Cause.OUT_OF_ORDER
            elif log.repeats(event):
                yield Cause.DUPLICATE_APPLIED
            elif inquiry.case.source is None and not event.deletes:
                yield Cause.OUT_OF_ORDER


def _lags(inquiry: Inquiry) -> Mapping[tuple[int, int], timedelta]:
    """Compute how long after its publication each event was applied, if the ledger has times."""
    if not inquiry.ledger.ordered:
        return {}
    events = {event.place: event for event in inquiry.log.events}
    entries = inquiry.ledger.entries.items()
    times = {place: max(each.at for each in some if each.at is not None) for place, some in entries if place in events}
    return {place: at - events[place].at for place, at in times.items()}


def _came_late(lags: Mapping[tuple[int, int], timedelta], event: Event, newer: Event) -> bool:
    """Whether an event was applied after a newer one was published, although the consumer is quicker with another."""
    return event.place in lags and min(lags.values()) < newer.at - event.at < lags[event.place]


# Somebody else seems to have written the copy.


def _of_a_foreign_write(inquiry: Inquiry, ground: Ground) -> Iterator[Cause]:
    """Doubt that the events can give the copy in no way: some are not in the log, or the ledger notes them but once."""
    log = inquiry.log
    carried = {name for event in log.events for name in event.fields}
    silent = [rule for rule in inquiry.folding.rules if not rule.add and rule.name not in carried]
    if any(rule in inquiry.concerned for rule in silent):
        yield Cause.NEVER_PUBLISHED
    if ground is not Ground.OTHER_THAN_LEDGER:
        return
    if inquiry.copy is None and any(event.deletes for event in inquiry.ledger.applied):
        yield Cause.DUPLICATE_APPLIED
    if not log.complete and any(rule.add for rule in inquiry.concerned):
        yield Cause.EXPIRED


# Amounts.


def _of_a_fold(inquiry: Inquiry, decided: Attribution) -> Iterator[Cause]:
    """Doubt that one event is missing, or came twice, because the sum is as if: others can make the same."""
    log, summed = inquiry.log, any(rule.add for rule in inquiry.concerned)
    if any(event.routing is Routing.WRONG for event in log.events):
        yield Cause.MISROUTED
    if inquiry.source_moved:
        yield Cause.IN_FLIGHT
    if summed and not log.complete and _is_common(inquiry, decided):
        yield Cause.EXPIRED
    if summed and _is_made_anew(inquiry):
        yield Cause.FOREIGN_WRITE
    if _has_an_opposite(inquiry, decided.about, log.order):
        yield Cause.SKIPPED if decided.ground.cause is Cause.DUPLICATE_APPLIED else Cause.DUPLICATE_APPLIED


def _of_a_repeat(inquiry: Inquiry) -> Iterator[Cause]:
    """Doubt that what stands twice in the log was applied twice."""
    log, ledger = inquiry.log, inquiry.ledger
    again = [event for event in log.due if log.repeats(event)]
    unshown = [event for event in log.due if event not in again and not ledger.shows(event)]
    if _has_an_opposite(inquiry, again, unshown):
        yield Cause.SKIPPED
    if inquiry.link.guarded and inquiry.folding.whole:
        yield from (_of_a_loss(inquiry, event) for event in unshown)  # which the guard would have kept


def _has_an_opposite(inquiry: Inquiry, some: Iterable[Event], others: Iterable[Event]) -> bool:
    """Whether one event takes away as much as another one adds: the loss of one is as the other one twice."""
    names = [rule.name for rule in inquiry.concerned if rule.add]
    sums = {(name, -amount(event, name)) for name in names for event in some if amount(event, name)}
    return any((name, amount(event, name)) in sums for name in names for event in others)


def _is_common(inquiry: Inquiry, decided: Attribution) -> bool:
    """Whether an event before the log may well have had the same amount: it is a round one, or occurs again."""
    for name in (rule.name for rule in inquiry.concerned if rule.add):
        sums = [abs(amount(event, name)) for event in inquiry.log.order]
        own = {abs(amount(event, name)) for event in decided.about} - {Decimal(0)}
        if any(each % _ROUND == 0 or sums.count(each) > 1 for each in own):
            return True
    return False


def _is_made_anew(inquiry: Inquiry) -> bool:
    """Whether the newest events alone give the copy: its row may have been deleted before them, and made anew."""
    log, folding = inquiry.log, inquiry.from_nothing
    for end in range(len(log.due), min(len(log.due) + _CUTS, len(log.order)) + 1):
        for start in range(max(end - _TRIED, 1), end):
            if folding.fit(folding.final(log.order[start:end]), inquiry.copy) is Fit.EXACT:
                return True
    return False


# What is pending, and what is lost.


def _of_pending(inquiry: Inquiry, decided: Attribution) -> Iterator[Cause]:
    """Doubt that events are still to come which ledger or version show applied: what they add is missing otherwise."""
    row = inquiry.case.copy
    version = row.version if row is not None and inquiry.link.copy_versions else None
    for event in decided.about if inquiry.link.changes else ():
        newer = version is not None and event.version is not None and event.version <= version
        if inquiry.tells(event) and (newer or inquiry.ledger.shows(event)):
            yield from (Cause.SKIPPED, Cause.DUPLICATE_APPLIED)


def _of_a_loss(inquiry: Inquiry, event: Event) -> Cause:
    """Choose why an event may not have been applied."""
    record = inquiry.unresolved.by_event.get(event.place)
    return Cause.SKIPPED if record is None else PARKED[record.kind][0].cause
