"""The way from the log into the copy: what the consumer did with the events, or somebody else with the copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reconcile.domain.attribution_log import version_gap
from reconcile.domain.case import Event, FieldRule
from reconcile.domain.confidence import Ground
from reconcile.domain.copy_inquiry import LIES, PARKED, CopyInquiry
from reconcile.domain.evidence_notes import (
    Verdict,
    event_note,
    event_notes,
    ledger_notes,
    offset_notes,
    parked_note,
    retention_notes,
)
from reconcile.domain.explaining import Explanation
from reconcile.domain.finding import Evidence
from reconcile.domain.folding import Fit
from reconcile.domain.inquiry import Inquiry
from reconcile.domain.parking import came_back


def behind_a_gap(copy: CopyInquiry) -> Verdict | None:
    """A version was never published that may have told of what differs, and no event that is known says more."""
    if copy.gap is None or _is_shown(copy) or _is_of_one(copy.explanations):
        return None
    return version_gap(copy.inquiry, *copy.gap, Ground.PERHAPS_GAP)


def _is_shown(copy: CopyInquiry) -> bool:
    """Whether ledger or failure topics show what went wrong with an event, and that it gives the copy."""
    names = {rule.name for rule in copy.inquiry.concerned}
    telling = (event for event in copy.inquiry.due if event.deletes or names & event.fields.keys())
    ledger = copy.ledger
    return bool(copy.explanations) and any(
        event.place in copy.waiting or ledger.lacks(event) or ledger.twice(event) for event in telling
    )


def _is_of_one(explanations: Sequence[Explanation]) -> bool:
    """Whether the loss of one event gives the copy, or its doubling, and nothing else does."""
    singly = all(each.exact and each.losses + len(each.doubled) == 1 for each in explanations)
    alone = all(each.late is None for each in explanations)
    return singly and alone and len({bool(each.lacking) for each in explanations}) == 1


def written_by_another(copy: CopyInquiry) -> Verdict | None:
    """The copy is at no state that its events can give."""
    inquiry, case = copy.inquiry, copy.case
    if inquiry.pin is not None and not inquiry.places:
        event = next(event for event in reversed(inquiry.log) if event.version == inquiry.pin)
        state = inquiry.folding.after(None, event)
        names = [r.name for r in inquiry.folding.rules if not inquiry.folding.fit(state, inquiry.copy, (r,))]
        note = event_note(case, event, f"the copy has this version, and says something else: {', '.join(names)}")
        return Verdict(Ground.OTHER_THAN_VERSION, notes=(note,))
    explanations = copy.explanations
    if copy.complete and not explanations and not _is_hidden(inquiry):
        shown = [event for event in inquiry.due if copy.ledger.shows(event)]
        notes = [*event_notes(case, shown[-3:], "applied"), *ledger_notes(case, copy.ledger, shown[-3:])]
        return Verdict(Ground.OTHER_THAN_LEDGER, notes=tuple(notes))
    looked = (*event_notes(case, inquiry.due[-3:], "gives another state"), *offset_notes(case, inquiry.due))
    if not explanations and inquiry.fields and not any(each.name in inquiry.told for each in inquiry.fields):
        return Verdict(Ground.UNTOLD, notes=looked)
    if not explanations:
        return Verdict(_without_explanation(inquiry), notes=(*looked, *retention_notes(case, inquiry.partitions)))
    if case.copy is None and case.source is not None and not explanations[0].by_ledger:
        lacking = explanations[0].lacking
        if (
            explanations[0].losses > 1
            and explanations[0].late is None
            and not any(event.place in copy.waiting or copy.ledger.lacks(event) for event in lacking)
        ):
            return Verdict(Ground.ROW_GONE, notes=(*looked, *ledger_notes(case, copy.ledger, lacking[-3:])))
    return None


def parked(copy: CopyInquiry) -> Verdict | None:
    """An event that the copy lacks lies in a failure topic."""
    case = copy.case
    for explanation in copy.explanations:
        hits = [event for event in explanation.lacking if event.place in copy.waiting]
        if not hits:
            continue
        newest = copy.newest(explanation)
        carrying = copy.inquiry.folding.whole and newest.place in copy.waiting
        sure = carrying or len(hits) == len(explanation.lacking)
        of = copy.waiting[(newest if newest.place in copy.waiting else hits[-1]).place]
        first = min(explanation.lacking, key=lambda event: copy.inquiry.rank[event.place])
        notes = [
            *event_notes(case, explanation.lacking, "the copy lacks it"),
            *offset_notes(case, hits),
            *(parked_note(copy.waiting[event.place], LIES[copy.waiting[event.place].kind]) for event in hits[:4]),
        ]
        return Verdict(PARKED[of.kind][0 if sure else 1], first.at, tuple(notes))
    return None


def order_and_count(copy: CopyInquiry) -> Verdict | None:
    """An event that was applied after a newer one, or more than once."""
    case, ledger = copy.case, copy.ledger
    for each in copy.explanations:
        late, over = each.late, each.over
        if late is not None and over is not None and late.partition == over.partition:
            notes = (
                event_note(case, late, "the copy is at this event"),
                event_note(case, over, "newer, and lost to it"),
            )
            back = came_back(late, case.parked, copy.inquiry.log)
            by = (parked_note(back, f"came by this way: {back.resolved}"),) if back is not None else ()
            if each.by_ledger and ledger.ordered and late.offset < over.offset:
                ground = Ground.LEDGER_TWICE if ledger.twice(late) else Ground.LEDGER_ORDER
                return Verdict(ground, over.at, (*notes, *by, *ledger_notes(case, ledger, (over, late))))
            if back is not None and late.offset < over.offset:
                return Verdict(Ground.RETRIED_LATE, over.at, (*notes, *by, *offset_notes(case, (over,))))
            if late.offset > over.offset and copy.inquiry.repeated(late):
                return _twice_in_log(copy, late)
        if each.by_ledger and each.doubled and not copy.inquiry.folding.whole:
            if not any(ledger.twice(event) for event in each.doubled):
                return _twice_in_log(copy, each.doubled[0])
            notes_twice = (*event_notes(case, each.doubled, "applied twice"), *ledger_notes(case, ledger, each.doubled))
            return Verdict(Ground.LEDGER_TWICE, each.doubled[0].at, notes_twice)
    return _folded_twice(copy)


def misrouted(copy: CopyInquiry) -> Verdict | None:
    """Its events stand in several partitions, and the copy is at the last of a losing one."""
    case, inquiry = copy.case, copy.inquiry
    for each in copy.explanations:
        late, over = each.late, each.over
        if late is None or over is None or late.partition == over.partition or copy.ledger.lacks(over):
            continue
        behind = (e for e in inquiry.due if e.partition == late.partition and e.offset > late.offset)
        if inquiry.folding.whole and any(behind):
            continue
        notes = (
            event_note(case, late, "the copy is at this event, the last of its partition"),
            event_note(case, over, "newer, in another partition"),
            *routing_notes(case.link.topic, (late, over)),
            *offset_notes(case, (late, over)),
        )
        explained = any(event.routing != "unknown" for event in inquiry.log)
        return Verdict(Ground.LOSING_PARTITION if explained else Ground.LOSING_PARTITION_UNEXPLAINED, over.at, notes)
    return None


def inverted_log(copy: CopyInquiry) -> Verdict | None:
    """The log itself holds a newer version before an older one, and the copy follows it."""
    inquiry = copy.inquiry
    for each in copy.explanations:
        late, over = each.late, each.over
        if late is None or over is None or late.partition != over.partition or late.offset < over.offset:
            continue
        if inquiry.rank[late.place] < inquiry.rank[over.place]:
            notes = (
                event_note(copy.case, over, "newer, and stands before the older one"),
                event_note(copy.case, late, "older, and stands behind; the copy is at it"),
            )
            return Verdict(Ground.LOG_INVERTED, over.at, notes)
    return None


def lost(copy: CopyInquiry) -> Verdict | None:
    """An event that the consumer went past, or one that it applied late where that cannot be told apart."""
    case, inquiry = copy.case, copy.inquiry
    best = max(
        (each for each in copy.explanations if each.lacking),
        key=lambda each: (copy.ledger.lacks(copy.newest(each)), each.exact),
        default=None,
    )
    late = max((each for each in copy.explanations if each.late is not None), key=lambda each: each.exact, default=None)
    if best is None:
        if late is None or late.late is None or late.over is None:
            return None
        notes = (
            event_note(case, late.late, "applied late, it gives the copy"),
            event_note(case, late.over, "newer, and lost to it"),
            *offset_notes(case, (late.over,)),
        )
        return Verdict(Ground.APPLIED_LATE if late.exact else Ground.PERHAPS_LATE, late.over.at, notes)
    ground = _ground_of_loss(copy, best, late)
    if ground is Ground.MADE_OTHERWISE:
        made = event_notes(case, best.lacking, "made the row, and alone tells of what differs")
        return Verdict(ground, notes=(*made, *offset_notes(case, best.lacking)))
    first = min(best.lacking, key=lambda event: inquiry.rank[event.place])
    said = "committed past it; not in the ledger" if ground is Ground.NOT_IN_LEDGER else "committed past it"
    if ground is Ground.PERHAPS_LATE:
        said = "newer than what the copy says"
    notes_of_loss: list[Evidence] = [
        *([event_note(case, best.late, "the copy is at this event")] if best.late is not None else []),
        *event_notes(case, best.lacking, said),
        *offset_notes(case, best.lacking),
        *(parked_note(each, each.resolved) for each in case.parked[:2] if each.resolved is not None),
        *(ledger_notes(case, copy.ledger, best.lacking[-2:]) if case.link.ledger else ()),
    ]
    return Verdict(ground, first.at, tuple(notes_of_loss))


def held_twice(copy: CopyInquiry) -> Verdict:
    """One side holds the id more than once."""
    case, inquiry = copy.case, copy.inquiry
    if case.source is not None and case.source.count > 1:
        return Verdict(Ground.SOURCE_TWICE)
    twice = [event for event in inquiry.log if copy.ledger.twice(event)]
    if twice:
        return Verdict(Ground.LEDGER_TWICE, twice[0].at, tuple(ledger_notes(case, copy.ledger, twice)))
    again = next((event for event in inquiry.due if inquiry.repeated(event)), None)
    if again is not None:
        return _twice_in_log(copy, again)
    events = [event for event in inquiry.due if not event.deletes]
    notes = (*event_notes(case, events[-3:], "stands once in the log"), *offset_notes(case, events))
    return Verdict(Ground.ROW_TWICE, events[-1].at if events else None, notes)


def routing_notes(topic: str, events: tuple[Event, ...]) -> Iterator[Evidence]:
    """Tell why events stand where they do."""
    words = {
        "home": "its key belongs here",
        "former": "its key belonged here before the topic grew",
        "wrong": "its key does not belong here",
        "unknown": "no partitioner explains the topic",
    }
    for event in events:
        by = f": put by {event.routed_by}" if event.routed_by is not None else ""
        note = words[event.routing] + by
        yield Evidence("partition", note, topic, event.partition, event.offset, event.version, event.at)


def _is_hidden(inquiry: Inquiry) -> bool:
    """Whether no event tells of what differs: it never came into the log, or went wrong before the log begins."""
    if not inquiry.link.changes or not inquiry.concerned:
        return False
    told = {name for event in inquiry.due for name in event.fields}
    return all(not inquiry.whole if rule.add else rule.name not in told for rule in inquiry.concerned)


def _without_explanation(inquiry: Inquiry) -> Ground:
    if not inquiry.whole:
        left = [event for event in inquiry.due if not inquiry.is_before_gap(event)]
        return Ground.NO_STATE_LEFT if len(left) > 1 and inquiry.folding.whole else Ground.FORMER_STATE_GONE
    final = inquiry.states[len(inquiry.due)]
    wrong = [rule for rule in inquiry.folding.rules if inquiry.folding.fit(final, inquiry.copy, (rule,)) is Fit.NO]
    summed = any(rule.add for rule in wrong) and all(rule.add or _was_said(inquiry, rule) for rule in wrong)
    return Ground.NO_SUM if summed and len(inquiry.due) > 1 else Ground.NO_STATE


def _was_said(inquiry: Inquiry, rule: FieldRule) -> bool:
    """Whether an event said of a field what the copy says."""
    said = (event.fields[rule.name] for event in inquiry.due if rule.name in event.fields)
    copy = inquiry.copy or {}
    return any(inquiry.folding.equal(rule, each, copy.get(rule.name)) for each in said)


def _ground_of_loss(copy: CopyInquiry, best: Explanation, late: Explanation | None) -> Ground:
    case, inquiry = copy.case, copy.inquiry
    if copy.ledger.lacks(copy.newest(best)):
        return Ground.NOT_IN_LEDGER
    if case.copy is None and best.late is not None:
        return Ground.RETURN_LOST if best.losses == 1 else Ground.DELETED_LATE
    if case.copy is None:
        return Ground.NO_ROW if best.losses == 1 else Ground.SEVERAL_LOST
    if inquiry.folding.whole and case.link.guarded:
        return Ground.GUARDED
    if inquiry.folding.whole or best.late is not None:
        return Ground.PERHAPS_LOST if best.late is None or best.losses == 1 else Ground.PERHAPS_LATE
    if best.losses > 1 and late is not None:
        return Ground.PERHAPS_LATE
    if not best.exact or best.losses > 1:
        if _nothing_says_so(inquiry, best.lacking):
            return Ground.MADE_OTHERWISE
        return Ground.SEVERAL_LOST if all(r.add for r in inquiry.concerned) else Ground.SEVERAL_LOST_OR_LATE
    if copy.gap is not None:
        return Ground.FOLDED_WITHOUT_OR_GAP
    return Ground.PERHAPS_LOST if late is not None or inquiry.by_deletion(best.lacking[0]) else Ground.FOLDED_WITHOUT


def _nothing_says_so(inquiry: Inquiry, lost: Sequence[Event]) -> bool:
    """Whether what a row held without its first event is all that speaks for the loss of it, and that is not known."""
    if not inquiry.whole or not any(event in lost for event in inquiry.life[:1]):
        return False
    told = {name for event in inquiry.due if event not in lost for name in event.fields}
    return not any(rule.add or rule.name in told for rule in inquiry.concerned)


def _folded_twice(copy: CopyInquiry) -> Verdict | None:
    case, inquiry = copy.case, copy.inquiry
    for each in copy.explanations:
        again = [event for event in inquiry.due if inquiry.repeated(event)]
        if each.follows and again and not inquiry.folding.whole:
            return _twice_in_log(copy, again[-1])
        if not each.doubled:
            continue
        if inquiry.repeated(each.doubled[0]):
            return _twice_in_log(copy, each.doubled[0])
        if copy.ledger.shows(each.doubled[0]):
            notes = (
                *event_notes(case, each.doubled, "applied twice, it gives the copy"),
                *ledger_notes(case, copy.ledger, each.doubled),
            )
            return Verdict(Ground.NOTED_ONCE, each.doubled[0].at, notes)
        rival = any(other.lacking and other.exact for other in copy.explanations)
        ground = Ground.FOLDED_TWICE if copy.gap is None else Ground.FOLDED_TWICE_OR_GAP
        if rival or len(each.doubled) > 1 or not each.exact:
            ground = Ground.PERHAPS_TWICE
        notes = (*event_notes(case, each.doubled, "folded twice, it gives the copy"), *offset_notes(case, each.doubled))
        return Verdict(ground, each.doubled[0].at, notes)
    return None


def _twice_in_log(copy: CopyInquiry, event: Event) -> Verdict:
    inquiry = copy.inquiry
    both = [each for each in inquiry.log if inquiry.rank[each.place] == inquiry.rank[event.place]]
    notes = event_notes(copy.case, both, "one event; it stands more than once")
    return Verdict(Ground.LOG_TWICE, both[-1].at, (*notes, *offset_notes(copy.case, both)))
