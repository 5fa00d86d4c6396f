"""Why a copy differs from its source: pure, decided by evidence, in a fixed order.

The order is that of the way which a change takes. First, whether the log brings the source's state at all. Then,
whether the copy is only on its way: that is no drift. Then, whether events can have given the copy, and what the
consumer did with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import chain, islice, product

from reconcile.domain import comparison
from reconcile.domain.aggregate_log import each_once, since_deletion
from reconcile.domain.case import Case, Event, FieldRule, Routing, Row
from reconcile.domain.cause import Cause
from reconcile.domain.evidence import (
    absence_notes,
    arrange,
    cut_notes,
    event_note,
    event_notes,
    gap_notes,
    ledger_notes,
    lost_words,
    offset_notes,
    outbox_note,
    parked_note,
    retention_notes,
    routing_notes,
    undecided_note,
    unheld_notes,
    unread_notes,
    untold_notes,
    waiting_note,
)
from reconcile.domain.explanation import Explanation, explain
from reconcile.domain.finding import Difference, Evidence, Finding, Status
from reconcile.domain.folding import UNKNOWN, Fit, Folding
from reconcile.domain.grounds import PARKED, Attribution, Ground, ground_of_loss
from reconcile.domain.inquiry import Inquiry
from reconcile.domain.latent import latent
from reconcile.domain.other_faults import other_faults
from reconcile.domain.parking import came_back
from reconcile.domain.untold import taken_literally

_OF_WHAT_IS_GONE = (Cause.SKIPPED, Cause.FOREIGN_WRITE, Cause.EXPIRED, Cause.UNDETERMINED)
_TRIED = 64
"""In how many ways several partitions are taken to be ahead of each other."""
_MOST_SUMMED = 12
"""Of how many events the amounts are tried."""
_NEAR = 8
"""By how many events source and copy are taken to be apart where sums have no versions."""


def attribute(case: Case) -> Finding | None:
    """Name why the copy differs from its source, or will; None if both agree and nothing lies ready to break that."""
    inquiry = Inquiry(case)
    decided = decide(inquiry)
    return None if decided is None else _finding(inquiry, decided)


def decide(inquiry: Inquiry) -> Attribution | None:
    """Choose the ground on which a cause is named, and the notes that show it."""
    difference, has_id = inquiry.difference, inquiry.case.id is not None
    if difference is Difference.LATENT:
        return latent(inquiry) if has_id else None
    if not has_id:
        return Attribution(Ground.COPY_WITHOUT_ID if difference is Difference.ORPHAN else Ground.WITHOUT_ID)
    if difference is Difference.DUPLICATED:
        return _held_twice(inquiry)
    if inquiry.case.undecided is not None:
        undecided = inquiry.case.undecided
        return Attribution(Ground.UNDECIDED, undecided.at, (undecided_note(inquiry.case, undecided),))
    return _of_placeholders(inquiry) or _of_faults(inquiry)


def _of_faults(inquiry: Inquiry) -> Attribution:
    """Choose among the faults of source, log and consumer, and name those beside the one that is chosen."""
    fault = _unless_unread(inquiry, _fault_of_log(inquiry))
    if fault is not None:
        fault = replace(fault, exact=_is_faithful(inquiry) or _is_proved(inquiry, fault))
    decided = _of_way(inquiry, fault)
    return replace(decided, beside=(*decided.beside, *other_faults(inquiry, decided, fault)))


def _of_placeholders(inquiry: Inquiry) -> Attribution | None:
    """Decide about a copy that took for values what events have in place of those that they do not tell, if it did.

    What differs beside is decided as if placeholders were values: then the copy can be where it is.
    """
    log, copy = inquiry.log, inquiry.case.copy
    taken = {each.name: each.consumer for each in inquiry.fields if each.consumer in inquiry.link.untold}
    if not taken or copy is None or inquiry.case.source is None:
        return None
    naming = {name: [event for event in log.due if name in event.fields or name in event.untold] for name in taken}
    newest = [log.newest(events) for events in naming.values() if events]
    left_out = [event for event in newest if taken.keys() & set(event.untold)]
    notes = tuple(untold_notes(inquiry.case, left_out, taken))
    if len(taken) < len(inquiry.fields):
        source = replace(inquiry.case.source, fields={**inquiry.case.source.fields, **taken})
        found = _of_faults(Inquiry(replace(taken_literally(inquiry.case, taken), source=source)))
        return replace(found, notes=(*found.notes, *notes))
    if len(left_out) < len(newest):
        return _of_faults(Inquiry(taken_literally(inquiry.case, taken)))
    coming = [event for event in log.pending if taken.keys() <= event.fields.keys()]
    if coming and inquiry.brings(inquiry.true_states[-1], inquiry.source):
        return Attribution(Ground.PENDING, coming[0].at, _pending_notes(inquiry.case, coming), exact=True)
    return Attribution(Ground.PLACEHOLDER, left_out[0].at if left_out else None, notes, exact=True)


def _is_faithful(inquiry: Inquiry) -> bool:
    """Whether the copy is, in all fields, what the log makes of it."""
    states = inquiry.plain.states(inquiry.log.order)[len(inquiry.log.due) :]
    return any(inquiry.plain.fit(state, inquiry.copy) for state in states)


def _is_proved(inquiry: Inquiry, fault: Attribution) -> bool:
    """Whether the copy says in a field that differs, word by word, what the log last said of it."""
    copy, later = inquiry.copy, _told_later(inquiry, fault)
    if copy is None or (inquiry.folding.whole and inquiry.position is not None):
        return False
    states = inquiry.plain.states(inquiry.log.order)[len(inquiry.log.due) :]
    names = [rule for rule in inquiry.concerned if not rule.add and rule.name not in later]
    said = [rule for rule in names if copy.get(rule.name) is not None]
    return any(inquiry.plain.fit(state, copy, (rule,)) is Fit.EXACT for state in states for rule in said)


def _of_way(inquiry: Inquiry, fault: Attribution | None) -> Attribution:
    """Follow the way of a change: source, log, consumer."""
    if fault is not None and _is_followed(inquiry, fault):
        return fault
    found = _in_flight(inquiry) or _fault_of_consumer(inquiry)
    if fault is None:
        return found
    if fault.ground is Ground.VERSION_GAP and found.ground.cause is Cause.FOREIGN_WRITE:
        return replace(fault, ground=Ground.PERHAPS_GAP)  # nothing tells whether the sum would have kept what it added
    return fault if found.ground.cause is Cause.UNDETERMINED else found


def _finding(inquiry: Inquiry, decided: Attribution) -> Finding:
    case, ground = inquiry.case, decided.ground
    waiting = _waiting_notes(inquiry, decided.notes) if case.parked and case.id is not None else ()
    status = Status.CONFIRMED
    if ground.cause is Cause.IN_FLIGHT:
        status = Status.IN_FLIGHT
    elif inquiry.equivalent or _may_have_expired(inquiry, ground.cause):
        status = Status.TOLERATED
    return Finding(
        link=case.link.name,
        aggregate_id=case.id,
        difference=inquiry.difference,
        cause=ground.cause,
        confidence=decided.confidence,
        hop=ground.hop,
        status=status,
        fields=inquiry.fields,
        source_version=None if case.source is None else case.source.version,
        consumer_version=None if case.copy is None else case.copy.version,
        alternatives=decided.alternatives,
        since=decided.since,
        equivalent=inquiry.equivalent,
        evidence=arrange((*decided.notes, *waiting, *cut_notes(case))),
    )


def _may_have_expired(inquiry: Inquiry, cause: Cause) -> bool:
    """Whether a row is gone that the copy may have let go, and nothing shows that it never had it."""
    return inquiry.case.link.expires and inquiry.difference is Difference.MISSING and cause in _OF_WHAT_IS_GONE


def _waiting_notes(inquiry: Inquiry, notes: Sequence[Evidence]) -> list[Evidence]:
    """Describe one unresolved record of each kind that has no note yet, whatever the cause is."""
    unresolved = inquiry.unresolved
    newest = {each.kind: each for each in (*unresolved.strangers, *unresolved.by_event.values())}
    known = {each.kind for each in notes if each.unresolved}
    return [waiting_note(each) for kind, each in newest.items() if kind not in known]


def _is_followed(inquiry: Inquiry, fault: Attribution) -> bool:
    """Whether the copy is, in something that differs, what the log makes of it: only then is the log to blame.

    If the copy is in all that differs other than the log would have made it, the consumer, or somebody else, made this
    difference, whatever else the log lacks.
    """
    log, copy = inquiry.log, inquiry.copy
    if not log.events:
        return True
    first = min((place for place, event in enumerate(log.due) if event.bad_fields), default=len(log.due))
    if inquiry.folding.whole and inquiry.position is not None:
        return inquiry.position >= first
    rules = [rule for rule in inquiry.concerned if rule.add or rule.name not in _told_later(inquiry, fault)]
    if fault.ground is not Ground.LOG_NEWER:
        brought = inquiry.plain.final(log.known_to(inquiry.case.source))
        rules = [rule for rule in rules if inquiry.plain.fit(brought, inquiry.source, (rule,)) is not Fit.EXACT]
    for state in inquiry.plain.states(log.order)[first:]:
        if copy is None or state is None or inquiry.case.source is None or not inquiry.concerned:
            if inquiry.folding.fit(state, copy, () if copy is None else None):
                return True
        elif any(inquiry.folding.fit(state, copy, (rule,)) for rule in rules):
            return True
    return False


def _told_later(inquiry: Inquiry, fault: Attribution) -> set[str]:
    """Choose the fields of which events told that came after the source was read: the copy has these from them."""
    if fault.ground is Ground.LOG_NEWER or not inquiry.link.changes or not inquiry.link.versioned:
        return set()
    known = {event.place for event in inquiry.log.known_to(inquiry.case.source)}
    return {name for event in inquiry.log.events if event.place not in known for name in event.fields}


# From the source into the log: whether the log brings what the source says, and if not, why.


def _fault_of_log(inquiry: Inquiry) -> Attribution | None:
    """Name what keeps the log from bringing the source's state; None if it does, or what it lacks is on its way."""
    log, source = inquiry.log, inquiry.case.source
    if not log.events and not log.broken:
        return _without_events(inquiry)
    fault = _source_gone(inquiry) if source is None else _source_there(inquiry, source)
    if fault is None:
        # A sum that is folded from the source backwards cannot show that a record is missing from it.
        backwards = inquiry.link.changes and not log.complete and not inquiry.source_moved
        unreadable = _unreadable(inquiry, due=True) if backwards else None
        return None if unreadable is None else replace(unreadable, ground=Ground.PERHAPS_UNREADABLE)
    if fault.ground in (Ground.LOG_NEWER, Ground.DELETED_IN_LOG):
        return fault
    if fault.ground in _ABSENT and log.truth and log.is_before_gap(log.truth[-1]):
        # What we know of the newest event was kept from before: records behind it are gone.
        notes = retention_notes(inquiry.case, [log.truth[-1].partition])
        return Attribution(Ground.NEWEST_GONE, notes=(*fault.notes, *notes))
    if fault.ground is Ground.SAME_VERSION and not any(event.bad_fields for event in log.events):
        return fault  # shown by a record that can be read
    unreadable = _unreadable(inquiry)
    if unreadable is not None and inquiry.link.changes and not inquiry.link.versioned:
        return replace(unreadable, ground=Ground.PERHAPS_UNREADABLE)  # nothing tells at which event the source is
    return unreadable or fault


_ABSENT = (Ground.VERSION_ABSENT, Ground.STATE_ABSENT, Ground.DELETION_ABSENT, Ground.RETURN_ABSENT)


def _unless_unread(inquiry: Inquiry, fault: Attribution | None) -> Attribution | None:
    """What the log lacks may be behind an open transaction, where nobody has looked."""
    if fault is None or fault.ground.cause not in (Cause.NEVER_PUBLISHED, Cause.EXPIRED):
        return fault
    unread = unread_notes(inquiry.case, {*inquiry.log.partitions, *inquiry.case.homes})
    return Attribution(Ground.PERHAPS_UNDECIDED, fault.since, (*fault.notes, *unread)) if unread else fault


def _without_events(inquiry: Inquiry) -> Attribution | None:
    case, link = inquiry.case, inquiry.link
    partitions = case.homes or tuple(link.places)
    begins = [link.places[each].begin == 0 for each in partitions if each in link.places]
    from_beginning = all(begins) and not case.events_cut
    gone = tuple(retention_notes(case, partitions))
    if inquiry.source_moved:
        return None
    if case.source is None:
        if from_beginning and not link.compacted:
            return Attribution(Ground.NEVER_KNOWN, notes=tuple(absence_notes(case, partitions)))
        kept = all(begins) or (any(begins) and not case.homes)
        return Attribution(Ground.PERHAPS_NEVER_KNOWN if kept else Ground.PERHAPS_EXPIRED, notes=gone)
    if case.outbox_pending:
        return Attribution(Ground.OUTBOX_PENDING, notes=(outbox_note(case),))
    if from_beginning:
        return Attribution(Ground.NO_EVENT, notes=tuple(absence_notes(case, partitions)))
    if not case.homes and case.copy is None and sum(begins) * 2 >= len(begins):
        return Attribution(Ground.NO_EVENT_IN_PART, notes=gone)
    return _still_parked(inquiry, case.source, gone) or Attribution(Ground.ALL_GONE, notes=gone)


def _still_parked(inquiry: Inquiry, source: Row, gone: tuple[Evidence, ...]) -> Attribution | None:
    """A record in a failure topic has the source's version, where the log has expired."""
    for each in reversed(inquiry.unresolved.strangers):
        if each.version is not None and each.version == source.version:
            note = waiting_note(each, ", with the source's version")
            return Attribution(PARKED[each.kind][1], each.at, (note, *gone))
    return None


def _source_gone(inquiry: Inquiry) -> Attribution | None:
    """The source has no row: the newest event that it can know of should delete."""
    log = inquiry.log
    settled = [event for event in log.truth if log.is_settled(event)]
    known = [*settled[-1:], *(event for event in log.truth if not log.is_settled(event))]
    if log.truth and (not settled or any(event.deletes for event in known)):
        return None
    if inquiry.link.compacted and len(known) > 1:
        return None  # a deletion between them may have been taken away
    if inquiry.source_moved:
        return None
    return _unpublished(inquiry, Ground.DELETION_ABSENT, "the newest event; it does not delete")


def _source_there(inquiry: Inquiry, source: Row) -> Attribution | None:
    """The source has a row: the log should bring its state."""
    log, versioned = inquiry.log, inquiry.link.versioned
    newest = log.truth[-1] if log.truth else None
    if newest is not None and newest.deletes:
        return _source_returned(inquiry, source, newest)
    if any(event.deletes and not log.is_settled(event) for event in log.truth):
        return None  # the source was read before it
    if not inquiry.concerned and not (versioned and inquiry.fields):
        return None
    if inquiry.concerned and newest is not None and _is_brought(inquiry, newest):
        return None
    if versioned and source.version is not None and log.newest_version is not None:
        return _by_version(inquiry, source, source.version, log.newest_version)
    if newest is None:
        return None if inquiry.source_moved else _unpublished(inquiry, Ground.STATE_ABSENT, "")
    return _by_state(inquiry)


def _source_returned(inquiry: Inquiry, source: Row, deletion: Event) -> Attribution | None:
    """The source has a row, and the newest event deletes it."""
    if not inquiry.log.is_settled(deletion) or inquiry.source_moved:
        return None
    note = event_note(inquiry.case, deletion, "deletes what the source has")
    for event, state in zip(inquiry.log.truth, inquiry.true_states[1:], strict=True):
        if state is not None and inquiry.brings(state, inquiry.source):
            if not inquiry.link.versioned:
                return Attribution(Ground.EARLIER_STATE, deletion.at, (note,))
            if event.version == source.version:
                return Attribution(Ground.DELETED_IN_LOG, deletion.at, (note,))
    return _unpublished(inquiry, Ground.RETURN_ABSENT, "the newest event; it deletes")


def _by_version(inquiry: Inquiry, source: Row, version: int, newest: int) -> Attribution | None:
    """Compare the versions of source and log, and then what the event of the source's version says."""
    log = inquiry.log
    if newest < version:
        if inquiry.source_moved:
            return None
        return _unpublished(inquiry, Ground.VERSION_ABSENT, "the newest version in the log")
    if inquiry.source_recreated:
        return None
    newer = (event for event in log.life if event.version is not None and event.version > version)
    settled = [event for event in newer if log.is_settled(event)]
    if any(inquiry.tells(event) for event in settled):
        notes = event_notes(inquiry.case, settled, f"newer than the source, which is at version {version}")
        return Attribution(Ground.LOG_NEWER, settled[0].at, tuple(notes))
    if (other := _says_otherwise(inquiry, version)) is not None:
        return other
    return _by_fold(inquiry, source) if inquiry.link.changes and not inquiry.link.compacted else None


def _says_otherwise(inquiry: Inquiry, version: int) -> Attribution | None:
    """The event of the source's version says something else than the source."""
    same = next((event for event in reversed(inquiry.log.truth) if event.version == version), None)
    if same is None or not inquiry.fields:
        return None
    names = [rule.name for rule in inquiry.concerned if not rule.add and not _says(inquiry, same, rule)]
    said = (rule for rule in inquiry.concerned if rule.name in names)
    if not any(inquiry.folding.fit(same.fields, inquiry.copy, (rule,)) for rule in said):
        return None  # the copy is not what it says
    note = event_note(inquiry.case, same, f"the source's version, and says something else: {', '.join(names)}")
    return Attribution(Ground.SAME_VERSION, same.at, (note,))


def _by_fold(inquiry: Inquiry, source: Row) -> Attribution | None:
    """Compare the changes up to the source's version, folded, with the source; as far as the log reaches back."""
    log, case = inquiry.log, inquiry.case
    known = log.known_to(source)
    if not known:
        return None
    if inquiry.brings(inquiry.folding.final(known), inquiry.source):
        first = log.truth[0]
        late = inquiry.link.dense_versions and log.reaches_back and (first.version or 0) > 1
        # Versions before the first one: either the topic is younger than the aggregate, or they were lost.
        if not late or log.complete or not _follows_what_is_there(inquiry):
            return None
        if inquiry.brings(inquiry.from_nothing.final(known), inquiry.source):
            return None  # they told of nothing that differs
        note = event_note(case, first, "the first event; the versions before it are not in the log")
        return Attribution(Ground.VERSION_GAP, first.at, (note,))
    gaps = log.missing_versions(since_deletion(known))
    if hiding := next((gap for gap in gaps if not _is_set_behind(inquiry, gap[1], known)), None):
        return Attribution(Ground.VERSION_GAP, hiding[1].at, gap_notes(case, *hiding))
    own = [event for event in known if event.version == source.version]
    if own and all(log.corrects(event) for event in own) and all(rule.add for rule in inquiry.concerned):
        note_of_correction = "a correction, which adds nothing, has the source's version"
        return _unpublished(inquiry, Ground.VERSION_ABSENT, note_of_correction)
    note = event_note(case, known[-1], "the source's version; all changes up to it give another state")
    return Attribution(Ground.SAME_VERSION_FOLD, known[-1].at, (note,))


def _is_set_behind(inquiry: Inquiry, event: Event, known: Sequence[Event]) -> bool:
    """Whether an event, and those behind it, set anew all that differs: what came before it left no trace."""
    anew = {name for each in known[known.index(event) :] for name in each.fields}
    return bool(inquiry.concerned) and all(not rule.add and rule.name in anew for rule in inquiry.concerned)


def _follows_what_is_there(inquiry: Inquiry) -> bool:
    """Whether the copy is what the events in the log give, added up from nothing."""
    folding = inquiry.from_nothing
    return folding.fit(folding.final(inquiry.log.order), inquiry.copy, inquiry.concerned) is Fit.EXACT


def _by_state(inquiry: Inquiry) -> Attribution | None:
    """Compare the states that the log gives with the source: its versions cannot be."""
    case, row, truth, settled = inquiry.case, inquiry.source, inquiry.log.truth, inquiry.log.settled
    states = inquiry.true_states
    if not settled or (inquiry.link.compacted and settled < len(truth)):
        return None  # what the source had then may have been taken away
    if any(inquiry.brings(state, row) for state in states[settled:]):
        return None
    if inquiry.source_moved:
        return None
    for place in range(settled - 1, 0, -1):
        if inquiry.brings(states[place], row):
            later = event_notes(case, truth[place:settled], "newer than what the source says")
            at = event_note(case, truth[place - 1], "the source is as this event says")
            ground = Ground.OUTBOX_PENDING if case.outbox_pending else Ground.EARLIER_STATE
            return Attribution(ground, truth[place].at, (*_outbox_notes(case), at, *later))
    return _unpublished(inquiry, Ground.STATE_ABSENT, "the newest event; the source says something else")


def _unreadable(inquiry: Inquiry, due: bool = False) -> Attribution | None:
    """The record that should carry what the log lacks, if it cannot be read; with `due` only one that was due."""
    log, case = inquiry.log, inquiry.case
    for event in reversed(log.broken):
        overtaken = _is_told_anew(inquiry, event) if inquiry.link.changes else _is_overtaken(inquiry, event)
        if not overtaken and (not due or log.is_due(event)):
            note = event_note(case, event, f"cannot be read: {event.problem}")
            return Attribution(Ground.UNREADABLE, event.at, (note,))
    return _unreadable_field(inquiry, due)


def _unreadable_field(inquiry: Inquiry, due: bool) -> Attribution | None:
    log, names = inquiry.log, {each.name for each in inquiry.fields}
    suspects = log.events if inquiry.link.changes else [event for event in log.events if event is log.truth[-1]]
    for event in reversed(suspects):
        bad = [name for name in event.bad_fields if name in names or not names]
        if bad and (not due or log.is_due(event)):
            note = event_note(inquiry.case, event, f"cannot be read in {', '.join(bad)}")
            return Attribution(Ground.UNREADABLE_FIELD, event.at, (note,))
    return None


def _is_told_anew(inquiry: Inquiry, broken: Event) -> bool:
    """Whether later events delete the row, or set all that differs, of which a broken one could have told."""
    behind = (e for e in inquiry.log.events if e.partition == broken.partition and e.offset > broken.offset)
    later = [event for event in behind if event.problem is None]
    if any(event.deletes for event in later):
        return True
    anew = {name for event in later for name in event.fields.keys() - set(event.bad_fields)}
    rules = inquiry.concerned if inquiry.case.copy is not None else ()
    return bool(rules) and all(not rule.add and rule.name in anew for rule in rules)


def _is_overtaken(inquiry: Inquiry, broken: Event) -> bool:
    """Whether the newest readable event is newer than one that cannot be read."""
    if not inquiry.log.truth:
        return False
    newest = inquiry.log.truth[-1]
    if broken.version is not None and newest.version is not None:
        return broken.version <= newest.version
    numbers = {event.place: number for number, event in enumerate(inquiry.case.events)}
    return numbers[newest.place] > numbers[broken.place]


def _unpublished(inquiry: Inquiry, ground: Ground, note: str) -> Attribution:
    case, truth = inquiry.case, inquiry.log.truth
    newest = [event_note(case, truth[-1], note)] if truth else []
    return Attribution(Ground.OUTBOX_PENDING if case.outbox_pending else ground, notes=(*_outbox_notes(case), *newest))


def _outbox_notes(case: Case) -> list[Evidence]:
    return [outbox_note(case)] if case.outbox_pending else []


def _is_brought(inquiry: Inquiry, newest: Event) -> bool:
    """Whether the newest event brings what the source says, whatever the versions are."""
    log = inquiry.log
    if inquiry.link.changes and (not log.complete or any(r.name not in log.carried for r in inquiry.concerned)):
        return False
    if any(rule.name in newest.bad_fields for rule in inquiry.concerned):
        return False
    return inquiry.brings(inquiry.true_states[-1], inquiry.source)


def _says(inquiry: Inquiry, event: Event, rule: FieldRule) -> bool:
    """Whether an event says of a field what the source says."""
    fit = inquiry.folding.fit(event.fields, inquiry.source, (rule,))
    return fit is not Fit.NO and rule.name not in event.bad_fields


# On its way: the copy is where the log, or the source, has just been or is about to be.


def _in_flight(inquiry: Inquiry) -> Attribution | None:
    """Say that a difference will pass; only where the log brings the source's state, or will."""
    log, case = inquiry.log, inquiry.case
    if not log.events:
        return Attribution(Ground.ON_ITS_WAY) if inquiry.source_moved else None
    if _heals(inquiry):
        for number in range(len(log.order), len(log.due) - 1, -1):
            if inquiry.fits(number) and (found := _at_event(inquiry, number)):
                return found
        for folding, events in chain(_partitions_apart(inquiry), _between_readings(inquiry)):
            if folding.fit(folding.final(events), inquiry.copy):
                since = log.pending[0].at if log.pending else None
                return Attribution(Ground.PENDING, since, _pending_notes(case, log.pending), exact=True)
    if len(log.truth) < len(log.events) and (ahead := _ahead_without_repeats(inquiry)):
        return ahead
    if log.pending and not log.complete and (not log.due or inquiry.link.compacted):
        return Attribution(Ground.PENDING_ALL, log.pending[0].at, _pending_notes(case, log.pending))
    if inquiry.source_moved and inquiry.link.changes and not log.complete and not inquiry.link.versioned:
        return Attribution(Ground.ON_ITS_WAY)  # nothing shows how much of a sum the log already has
    return None


def _pending_notes(case: Case, pending: Sequence[Event]) -> tuple[Evidence, ...]:
    return *event_notes(case, pending, "at or past the committed offset"), *offset_notes(case, pending)


def _at_event(inquiry: Inquiry, number: int) -> Attribution | None:
    """The copy is where the log is after so many events."""
    case, log = inquiry.case, inquiry.log
    at, later = log.order[number - 1] if number else None, log.order[number:]
    if at is not None and not log.is_settled(at):
        note = event_note(case, at, "the copy is at this event, which came after the source was read")
        return Attribution(Ground.AHEAD, at.at, (note,), exact=True)
    here = () if at is None else (event_note(case, at, "the copy is at this event"),)
    if later:
        ground = Ground.PENDING_ALL if inquiry.states[number] is UNKNOWN else Ground.PENDING
        return Attribution(ground, later[0].at, (*here, *_pending_notes(case, later)), exact=True, about=tuple(later))
    return Attribution(Ground.ON_ITS_WAY, notes=here, exact=True) if inquiry.source_moved else None


def _heals(inquiry: Inquiry) -> bool:
    """Whether the log, once it is consumed, gives the right state, although something in it stands twice."""
    if len(inquiry.log.truth) == len(inquiry.log.order) or inquiry.folding.whole:
        return True
    final = inquiry.folding.final(inquiry.log.truth)
    return final is not UNKNOWN and bool(inquiry.folding.fit(inquiry.states[-1], final))


def _partitions_apart(inquiry: Inquiry) -> Iterator[tuple[Folding, list[Event]]]:
    """The events that were applied if several partitions are ahead of each other."""
    log = inquiry.log
    by_partition: dict[int, list[Event]] = {}
    for event in log.pending:
        by_partition.setdefault(event.partition, []).append(event)
    if len(by_partition) > 1:
        for lengths in islice(product(*(range(len(events) + 1) for events in by_partition.values())), _TRIED):
            taken = {e.place for events, n in zip(by_partition.values(), lengths, strict=True) for e in events[:n]}
            yield inquiry.folding, [*log.due, *(e for e in log.pending if e.place in taken)]


def _ahead_without_repeats(inquiry: Inquiry) -> Attribution | None:
    """The copy is ahead of the source, at the events of the log, each applied once although some stand there twice."""
    log = inquiry.log
    due = [event for event in log.truth if all(log.is_due(each) for each in log.twins(event))]
    later = [event for event in log.truth if event not in due]
    for number in range(len(later), -1, -1):
        events = [*due, *later[:number]]
        if not inquiry.folding.fit(inquiry.folding.final(events), inquiry.copy):
            continue
        if events and not log.is_settled(events[-1]):
            note = event_note(
                inquiry.case, events[-1], "the copy is at this event, which came after the source was read"
            )
            return Attribution(Ground.AHEAD, events[-1].at, (note,), exact=True)
        if number < len(later):
            return Attribution(
                Ground.PENDING, later[number].at, _pending_notes(inquiry.case, later[number:]), exact=True
            )
    return None


def _between_readings(inquiry: Inquiry) -> Iterator[tuple[Folding, list[Event]]]:
    """The events that were applied, and how they fold, if the source was read between two of them."""
    log = inquiry.log
    if not inquiry.link.changes or log.complete or inquiry.link.versioned:
        return
    settled, due = sum(log.is_settled(event) for event in log.truth), len(log.due)
    for known in range(settled, min(len(log.truth), settled + _NEAR)):
        folding = inquiry.anchored(inquiry.case.source, log.truth[:known])
        for number in range(due, min(len(log.order), due + _NEAR) + 1):
            yield folding, log.order[:number]


# From the log into the copy: what the consumer did with the events, or somebody else with the copy.


def _fault_of_consumer(inquiry: Inquiry) -> Attribution:
    explanations = explain(inquiry)
    for decide_on in _OF_THE_CONSUMER:
        if (found := decide_on(inquiry, explanations)) is not None:
            return found
    carried = any(rule.name in inquiry.log.carried for rule in inquiry.concerned)
    ground = Ground.NOTHING_SHOWN if carried or not inquiry.fields else Ground.NOT_CARRIED
    notes = event_notes(inquiry.case, inquiry.log.events[-3:], "looked at; it shows nothing")
    return Attribution(ground, notes=tuple(notes))


def _behind_a_gap(inquiry: Inquiry, explanations: Sequence[Explanation]) -> Attribution | None:
    """A version was never published that may have carried what differs, and no event that is known says more."""
    gap = inquiry.hidden_gap
    if gap is None or (explanations and _is_shown(inquiry)) or _is_of_one(explanations):
        return None
    return Attribution(Ground.PERHAPS_GAP, gap[1].at, gap_notes(inquiry.case, *gap))


def _is_shown(inquiry: Inquiry) -> bool:
    """Whether ledger or failure topics show what went wrong with an event that carries what differs."""
    names, ledger = {rule.name for rule in inquiry.concerned}, inquiry.ledger
    return any(
        event.place in inquiry.unresolved.by_event or ledger.lacks(event) or ledger.shows_twice(event)
        for event in inquiry.log.due
        if event.deletes or names & event.fields.keys()
    )


def _is_of_one(explanations: Sequence[Explanation]) -> bool:
    """Whether the loss of one event gives the copy, or its doubling, and nothing else does."""
    singly = all(each.exact and each.losses + len(each.doubled) == 1 for each in explanations)
    alone = all(each.late is None for each in explanations)
    return singly and alone and len({bool(each.lacking) for each in explanations}) == 1


def _written_by_another(inquiry: Inquiry, explanations: Sequence[Explanation]) -> Attribution | None:
    """The copy is at no state that its events can give."""
    if inquiry.pinned_version is not None and inquiry.position is None:
        return _other_than_version(inquiry, inquiry.pinned_version)
    if explanations:
        return _row_deleted(inquiry, explanations[0])
    case, due = inquiry.case, inquiry.log.due
    if inquiry.ledger_suffices and not _is_hidden(inquiry) and (_is_contradicted(inquiry) or inquiry.log.complete):
        shown = [event for event in due if inquiry.ledger.shows(event)][-3:]
        notes = [*event_notes(case, shown, "applied"), *ledger_notes(case, inquiry.ledger, shown)]
        written = _is_contradicted(inquiry) or not _may_be_summed(inquiry)
        ground = Ground.OTHER_THAN_LEDGER if written else Ground.OTHER_SUM_THAN_LEDGER
        return Attribution(ground, notes=tuple(notes))
    if inquiry.fields and not any(each.name in inquiry.log.carried for each in inquiry.fields):
        return Attribution(Ground.NOT_CARRIED, notes=_other_state_notes(inquiry))
    gone = retention_notes(case, inquiry.log.partitions)
    return Attribution(_without_explanation(inquiry), notes=(*_other_state_notes(inquiry), *gone))


def _other_than_version(inquiry: Inquiry, version: int) -> Attribution:
    """The copy has the version of an event, and does not say what that says."""
    event = next(event for event in reversed(inquiry.log.events) if event.version == version)
    state = inquiry.folding.after(None, event)
    names = [r.name for r in inquiry.folding.rules if not inquiry.folding.fit(state, inquiry.copy, (r,))]
    note = event_note(inquiry.case, event, f"the copy has this version, and says something else: {', '.join(names)}")
    return Attribution(Ground.OTHER_THAN_VERSION, notes=(note,))


def _row_deleted(inquiry: Inquiry, likeliest: Explanation) -> Attribution | None:
    """The copy has no row, although each of several events would have brought it."""
    case, ledger, lacking = inquiry.case, inquiry.ledger, likeliest.lacking
    if case.copy is not None or case.source is None or likeliest.by_ledger:
        return None
    if likeliest.losses < 2 or likeliest.late is not None:
        return None
    if any(event.place in inquiry.unresolved.by_event or ledger.lacks(event) for event in lacking):
        return None
    return Attribution(Ground.ROW_GONE, notes=(*_other_state_notes(inquiry), *ledger_notes(case, ledger, lacking[-3:])))


def _other_state_notes(inquiry: Inquiry) -> tuple[Evidence, ...]:
    case, due = inquiry.case, inquiry.log.due
    return *event_notes(case, due[-3:], "gives another state"), *offset_notes(case, due)


def _is_hidden(inquiry: Inquiry) -> bool:
    """Whether no event carries what differs: it never came into the log, or went wrong before the log begins."""
    if not inquiry.link.changes or not inquiry.concerned:
        return False
    carried = {name for event in inquiry.log.due for name in event.fields}
    return all(not inquiry.log.complete if rule.add else rule.name not in carried for rule in inquiry.concerned)


def _is_contradicted(inquiry: Inquiry) -> bool:
    """Whether the copy says something else than the last of the events that the ledger shows set it to.

    Of a sum, and of what none of these events sets, the ledger knows no value: several faults together, each noted once
    or not at all, can give any.
    """
    log, applied, copy = inquiry.log, inquiry.ledger.applied, inquiry.copy
    due = max((number for number, event in enumerate(applied, 1) if log.is_due(event)), default=0)
    if inquiry.folding.whole or copy is None or not due or applied[due - 1].deletes:
        return True
    states = inquiry.plain.states(applied)[due:]  # what is pending may have been applied before the copy was read
    rules = [rule for rule in inquiry.concerned if not rule.add]
    return not any(all(inquiry.plain.fit(state, copy, (rule,)) for rule in rules) for state in states)


def _may_be_summed(inquiry: Inquiry) -> bool:
    """Whether up to three amounts of events, added once more or left out, make the sums that the copy has."""
    log, copy, final = inquiry.log, inquiry.copy, inquiry.plain.final(inquiry.log.due)
    if len(log.order) > _MOST_SUMMED or copy is None or not isinstance(final, Mapping):
        return True
    for rule in inquiry.concerned:
        have, has = (comparison.number(str(each.get(rule.name))) for each in (final, copy))
        said = [comparison.number(str(event.fields.get(rule.name))) for event in log.order]
        amounts = [sign for each in said if each for sign in (each, -each)]
        if not rule.add or has is None or have is None:
            return True
        once = {Decimal(0), *amounts}
        twice = {one + other for one in once for other in once}
        missing = has - have
        if not any(comparison.near(missing - each, other, rule.tolerance) for each in once for other in twice):
            return False
    return True


def _without_explanation(inquiry: Inquiry) -> Ground:
    log, folding = inquiry.log, inquiry.folding
    if not log.complete:
        known = [event for event in log.due if not log.is_before_gap(event)]
        return Ground.NO_KNOWN_STATE if len(known) > 1 and folding.whole else Ground.FORMER_STATE_GONE
    final = inquiry.states[len(log.due)]
    wrong = [rule for rule in folding.rules if folding.fit(final, inquiry.copy, (rule,)) is Fit.NO]
    summed = any(rule.add for rule in wrong) and all(
        rule.add or _was_said(inquiry, rule) or _may_be_unset(inquiry, rule) for rule in wrong
    )
    return Ground.NO_SUM if summed and len(log.due) > 1 else Ground.NO_STATE


def _was_said(inquiry: Inquiry, rule: FieldRule) -> bool:
    """Whether an event said of a field what the copy says."""
    said = (event.fields[rule.name] for event in inquiry.log.events if rule.name in event.fields)
    copy = inquiry.copy or {}
    return any(inquiry.folding.equal(rule, each, copy.get(rule.name)) for each in said)


def _may_be_unset(inquiry: Inquiry, rule: FieldRule) -> bool:
    """Whether one event alone sets a field, and nothing shows that it was applied: the row may hold a default."""
    setting = [event for event in inquiry.log.life if rule.name in event.fields]
    if len(setting) != 1:
        return False
    if (inquiry.copy or {}).get(rule.name) is None:
        return True
    alone = setting[0].fields.keys() - {
        name for event in inquiry.log.life if event is not setting[0] for name in event.fields
    }
    wrong, copy = {each.name for each in inquiry.fields}, inquiry.copy or {}
    return not any(copy.get(name) is not None for name in alone - wrong)


def _parked(inquiry: Inquiry, explanations: Sequence[Explanation]) -> Attribution | None:
    """An event that the copy lacks lies in a failure topic."""
    case, log, waiting = inquiry.case, inquiry.log, inquiry.unresolved.by_event
    for each in explanations:
        lacking = each.lacking
        hits = [event for event in lacking if event.place in waiting]
        if not hits:
            continue
        seen = [hit for hit in hits if _is_seen(inquiry, hit, lacking)] or [hit for hit in hits if inquiry.tells(hit)]
        telling = (seen or hits)[-1]
        if case.copy is None and inquiry.link.patch:
            telling = next((hit for hit in hits if hit in log.life), hits[0])  # the first one makes the row
        alone, among = PARKED[waiting[telling.place].kind]
        notes = (
            *event_notes(case, lacking, "the copy lacks it"),
            *unheld_notes(case, hits[:4]),
            *offset_notes(case, hits),
            *(waiting_note(waiting[event.place]) for event in hits[:4]),
        )
        exact = each.exact and each.late is None and _is_alone(each, explanations)
        ground = alone if len(hits) == len(lacking) else among
        return Attribution(ground, log.first(lacking).at, notes, exact, lacking, _or_deleted(inquiry, each))
    return None


def _is_seen(inquiry: Inquiry, lost: Event, lacking: Sequence[Event]) -> bool:
    """Whether the copy would differ otherwise, had a lost event been applied: none that was tells it anew."""
    rank = inquiry.log.rank
    later = [each for each in inquiry.log.order if each not in lacking and rank[each.place] > rank[lost.place]]
    anew = {name for event in later for name in event.fields} - inquiry.folding.adds
    return lost.deletes or any(rule.name in lost.fields.keys() - anew for rule in inquiry.concerned)


def _or_deleted(inquiry: Inquiry, explanation: Explanation) -> tuple[Cause, ...]:
    """Doubt that a row was never made, if the ledger shows events applied behind the one that makes it.

    They may have met no row, as where a consumer makes it of that event alone; or they made it, and it was deleted.
    """
    if inquiry.case.copy is not None or not explanation.by_ledger or explanation.exact:
        return ()
    return (Cause.FOREIGN_WRITE,) if any(inquiry.ledger.shows(event) for event in inquiry.log.life) else ()


def _is_alone(explanation: Explanation, explanations: Sequence[Explanation]) -> bool:
    """Whether no other explanation gives the copy as exactly, by a fault of another kind."""
    kind = bool(explanation.lacking), bool(explanation.doubled), explanation.late is not None
    return all((bool(e.lacking), bool(e.doubled), e.late is not None) == kind for e in explanations if e.exact)


def _applied_late(inquiry: Inquiry, explanations: Sequence[Explanation]) -> Attribution | None:
    """An event that was applied after a newer one, as a ledger or a failure topic shows; or twice, by the ledger."""
    for each in explanations:
        if found := _in_wrong_order(inquiry, each) or _twice_by_ledger(inquiry, each):
            return found
    return None


def _in_wrong_order(inquiry: Inquiry, explanation: Explanation) -> Attribution | None:
    case, ledger, log = inquiry.case, inquiry.ledger, inquiry.log
    late, over = explanation.late, explanation.over
    if late is None or over is None or late.partition != over.partition:
        return None
    notes = (
        event_note(case, late, "the copy is at this event"),
        event_note(case, over, "newer, and lost to it"),
    )
    back = came_back(late, case.parked, log.events)
    by = (parked_note(back, f"came by this way: {back.resolved}"),) if back is not None else ()
    if explanation.by_ledger and ledger.ordered and late.offset < over.offset:
        ground = Ground.LEDGER_TWICE if ledger.shows_twice(late) else Ground.LEDGER_ORDER
        shown = *notes, *by, *ledger_notes(case, ledger, (over, late))
        return Attribution(ground, over.at, shown, explanation.exact, (late, over))
    ignored = inquiry.link.guarded and not over.deletes  # what comes back is older than the copy
    if back is not None and late.offset < over.offset and not ignored:
        shown = *notes, *by, *offset_notes(case, (over,))
        return Attribution(Ground.RETRIED_LATE, over.at, shown, explanation.exact, (late, over))
    return _twice_in_log(inquiry, late, explanation.exact) if late.offset > over.offset and log.repeats(late) else None


def _twice_by_ledger(inquiry: Inquiry, explanation: Explanation) -> Attribution | None:
    ledger, doubled = inquiry.ledger, explanation.doubled
    if not explanation.by_ledger or not doubled or inquiry.folding.whole:
        return None
    if not any(ledger.shows_twice(event) for event in doubled):
        return _twice_in_log(inquiry, doubled[0], explanation.exact)
    notes = *event_notes(inquiry.case, doubled, "applied twice"), *ledger_notes(inquiry.case, ledger, doubled)
    return Attribution(Ground.LEDGER_TWICE, doubled[0].at, notes, explanation.exact, doubled)


def _folded_twice(inquiry: Inquiry, explanations: Sequence[Explanation]) -> Attribution | None:
    """An event that stands twice in the log, or that gives the copy if it was applied twice."""
    log = inquiry.log
    for each in explanations:
        again = [event for event in log.due if log.repeats(event)]
        if each.follows and again and not inquiry.folding.whole and not _is_idle(inquiry):
            return _twice_in_log(inquiry, again[-1], each.exact)
        if each.doubled:
            return _doubled(inquiry, each, explanations)
    return None


def _is_idle(inquiry: Inquiry) -> bool:
    """Whether the copy would be the same, had the events that stand twice been applied once."""
    once, _ = each_once(inquiry.log.due)
    return bool(inquiry.folding.fit(inquiry.folding.final(once), inquiry.copy))


def _doubled(inquiry: Inquiry, doubling: Explanation, explanations: Iterable[Explanation]) -> Attribution:
    case, ledger, doubled = inquiry.case, inquiry.ledger, doubling.doubled
    if inquiry.log.repeats(doubled[0]):
        return _twice_in_log(inquiry, doubled[0], doubling.exact)
    if ledger.shows(doubled[0]):
        shown = event_notes(case, doubled, "applied twice, it gives the copy")
        return Attribution(Ground.NOTED_ONCE, doubled[0].at, (*shown, *ledger_notes(case, ledger, doubled)), True)
    rival = any(other.lacking for other in explanations)
    ground = Ground.FOLDED_TWICE if inquiry.hidden_gap is None else Ground.FOLDED_TWICE_OR_GAP
    if rival or len(doubled) > 1 or not doubling.exact:
        ground = Ground.PERHAPS_TWICE
    notes = *event_notes(case, doubled, "folded twice, it gives the copy"), *offset_notes(case, doubled)
    return Attribution(ground, doubled[0].at, notes, doubling.exact, doubled)


def _misrouted(inquiry: Inquiry, explanations: Sequence[Explanation]) -> Attribution | None:
    """Its events stand in several partitions, and the copy is at the last of a losing one."""
    case, log = inquiry.case, inquiry.log
    for each in explanations:
        late, over = each.late, each.over
        if late is None or over is None or late.partition == over.partition or inquiry.ledger.lacks(over):
            continue
        behind = [e for e in log.due if e.partition == late.partition and e.offset > late.offset]
        told = {rule.name for rule in inquiry.concerned if rule.name in late.fields and not rule.add}
        if any(inquiry.folding.whole or told & event.fields.keys() for event in behind):
            continue
        notes = (
            event_note(case, late, "the copy is at this event, the last of its partition"),
            event_note(case, over, "newer, in another partition"),
            *routing_notes(case, (late, over)),
            *offset_notes(case, (late, over)),
        )
        explained = any(event.routing != "unknown" for event in log.events)
        # The newer one stands where it belongs: without a ledger, it may be lost, whatever is wrong with the older one.
        open_ = late.routing is Routing.WRONG and not (inquiry.ledger.shows(late) and inquiry.ledger.shows(over))
        ground = Ground.LOSING_PARTITION if explained and not open_ else Ground.PERHAPS_LOSING_PARTITION
        return Attribution(ground, over.at, notes, each.exact, (late, over))
    return None


def _inverted_in_log(inquiry: Inquiry, explanations: Sequence[Explanation]) -> Attribution | None:
    """The log itself holds a newer version before an older one, and the copy follows it."""
    rank = inquiry.log.rank
    for each in explanations:
        late, over = each.late, each.over
        if late is None or over is None or late.partition != over.partition or late.offset < over.offset:
            continue
        if rank[late.place] < rank[over.place] and (not inquiry.link.guarded or over.deletes):
            notes = (
                event_note(inquiry.case, over, "newer, and stands before the older one"),
                event_note(inquiry.case, late, "older, and stands behind; the copy is at it"),
            )
            return Attribution(Ground.LOG_INVERTED, over.at, notes, each.exact, (late, over))
    return None


def _lost(inquiry: Inquiry, explanations: Sequence[Explanation]) -> Attribution | None:
    """An event that the consumer went past, or one that it applied late where the two look the same."""
    case, log, ledger = inquiry.case, inquiry.log, inquiry.ledger
    late = max((each for each in explanations if each.late is not None), key=lambda each: each.exact, default=None)
    best = max(
        (each for each in explanations if each.lacking),
        key=lambda each: (ledger.lacks(log.newest(each.lacking)), each.exact),
        default=None,
    )
    if best is None:
        return None if late is None else _late(inquiry, late, _is_alone(late, explanations))
    lacking, ground = best.lacking, _ground_of_loss(inquiry, best, late)
    if ground is Ground.MADE_OTHERWISE:
        made = event_notes(case, lacking, "made the row, and alone tells of what differs")
        return Attribution(ground, notes=(*made, *offset_notes(case, lacking)))
    said = {
        Ground.NOT_IN_LEDGER: lost_words(ledger, lacking),
        Ground.PERHAPS_LATE: "newer than what the copy says",
    }.get(ground, "committed past it")
    notes: tuple[Evidence, ...] = (
        *([event_note(case, best.late, "the copy is at this event")] if best.late is not None else []),
        *event_notes(case, lacking, said),
        *unheld_notes(case, lacking[-1:]),
        *offset_notes(case, lacking),
        *(parked_note(each, each.resolved) for each in case.parked[:2] if each.resolved is not None),
        *(ledger_notes(case, ledger, lacking[-2:]) if case.link.ledger else ()),
    )
    exact = best.exact and best.late is None and _is_alone(best, explanations)
    return Attribution(ground, log.first(lacking).at, notes, exact, lacking, _or_deleted(inquiry, best))


def _late(inquiry: Inquiry, explanation: Explanation, alone: bool) -> Attribution | None:
    case, late, over = inquiry.case, explanation.late, explanation.over
    if late is None or over is None:
        return None
    shown = inquiry.ledger.shows(late) and inquiry.ledger.shows(over)
    notes = (
        event_note(case, late, "applied late, it gives the copy"),
        event_note(case, over, "newer, and lost to it"),
        *offset_notes(case, (over,)),
    )
    ground = Ground.APPLIED_LATE if explanation.exact and shown else Ground.PERHAPS_LATE
    return Attribution(ground, over.at, notes, explanation.exact and alone, (late, over))


def _ground_of_loss(inquiry: Inquiry, best: Explanation, late: Explanation | None) -> Ground:
    whole = inquiry.folding.whole
    newest = inquiry.log.newest(best.lacking)
    if inquiry.ledger.lacks(newest):
        return ground_of_loss(inquiry.ledger.unapplied.get(newest.place))
    if inquiry.case.copy is None and not best.by_ledger:
        if best.late is not None:
            return Ground.RETURN_LOST if best.losses == 1 else Ground.DELETED_LATE
        return Ground.NO_ROW if best.losses == 1 else Ground.SEVERAL_LOST
    if whole and inquiry.link.guarded and not any(event.deletes for event in best.lacking):
        return Ground.GUARDED
    if whole or best.late is not None:
        return Ground.PERHAPS_LOST if best.late is None or best.losses == 1 else Ground.PERHAPS_LATE
    return _ground_of_lost_changes(inquiry, best, late)


def _ground_of_lost_changes(inquiry: Inquiry, best: Explanation, late: Explanation | None) -> Ground:
    if best.losses > 1 and late is not None:
        return Ground.PERHAPS_LATE
    if not best.exact or best.losses > 1:
        if _nothing_says_so(inquiry, best.lacking):
            return Ground.MADE_OTHERWISE
        return Ground.SEVERAL_LOST if all(r.add for r in inquiry.concerned) else Ground.SEVERAL_LOST_OR_LATE
    if inquiry.hidden_gap is not None:
        return Ground.FOLDED_WITHOUT_OR_GAP
    if late is not None or inquiry.log.by_deletion(best.lacking[0]):
        return Ground.PERHAPS_LOST
    lost = [rule for rule in inquiry.concerned if rule.name in best.lacking[0].fields]
    edited = (len(lost) == 1 and not lost[0].add) or best.lacking[0] in inquiry.log.life[:1]
    return Ground.LOST_OR_EDITED if edited else Ground.FOLDED_WITHOUT


def _nothing_says_so(inquiry: Inquiry, lost: Sequence[Event]) -> bool:
    """Whether what a row held without its first event is all that speaks for the loss of it, and that is not known."""
    log = inquiry.log
    if not log.complete or not any(event in lost for event in log.life[:1]):
        return False
    carried = {name for event in log.due if event not in lost for name in event.fields}
    return not any(rule.add or rule.name in carried for rule in inquiry.concerned)


_OF_THE_CONSUMER: tuple[Callable[[Inquiry, Sequence[Explanation]], Attribution | None], ...] = (
    _behind_a_gap,
    _written_by_another,
    _parked,
    _applied_late,
    _folded_twice,
    _misrouted,
    _inverted_in_log,
    _lost,
)


def _held_twice(inquiry: Inquiry) -> Attribution:
    """One side holds the id more than once."""
    case, log, ledger = inquiry.case, inquiry.log, inquiry.ledger
    if case.source is not None and case.source.count > 1:
        return Attribution(Ground.SOURCE_TWICE)
    twice = [event for event in log.events if ledger.shows_twice(event)]
    if twice:
        return Attribution(Ground.LEDGER_TWICE, twice[0].at, tuple(ledger_notes(case, ledger, twice)))
    again = next((event for event in log.due if log.repeats(event)), None)
    if again is not None:
        return _twice_in_log(inquiry, again)
    events = [event for event in log.due if not event.deletes]
    notes = (*event_notes(case, events[-3:], "stands once in the log"), *offset_notes(case, events))
    return Attribution(Ground.ROW_TWICE, events[-1].at if events else None, notes)


def _twice_in_log(inquiry: Inquiry, event: Event, exact: bool = False) -> Attribution:
    both = inquiry.log.twins(event)
    notes = event_notes(inquiry.case, both, "one event; it stands more than once")
    return Attribution(Ground.LOG_TWICE, both[-1].at, (*notes, *offset_notes(inquiry.case, both)), exact)
