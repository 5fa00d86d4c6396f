"""What the copy has to be by its ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from reconcile.domain.case import Event
from reconcile.domain.explaining import Explanation, explain
from reconcile.domain.folding import Fit
from reconcile.domain.inquiry import Inquiry
from reconcile.domain.ledger import Ledger


def is_decisive(inquiry: Inquiry, ledger: Ledger) -> bool:
    """Tell whether the ledger, with what it does not reach back to, gives the copy's state."""
    if inquiry.due and all(ledger.shows(event) for event in inquiry.due):
        return True
    if not inquiry.link.ledger or not any(ledger.reaches(event) for event in inquiry.due):
        return False
    if all(ledger.reaches(event) or ledger.shows(event) for event in inquiry.due):
        return inquiry.whole or bool(ledger.applied) or not inquiry.folding.whole
    return bool(ledger.applied) or not inquiry.folding.whole


def explain_by_ledger(inquiry: Inquiry, ledger: Ledger) -> Explanation | None:
    """Explain the copy by what the ledger shows applied, in its order; None if that gives another copy."""
    rank = inquiry.rank
    before = [event for event in inquiry.due if not ledger.shows(event) and not ledger.reaches(event)]
    applied = list(ledger.applied)
    if inquiry.link.guarded or not ledger.ordered:
        applied.sort(key=lambda event: rank[event.place])
    # What was not due may be newer in the ledger than in the copy, which was read before it.
    settled = max((place for place, event in enumerate(applied, 1) if inquiry.is_due(event)), default=0)
    for end in range(settled, len(applied) + 1):
        sequence = [*before, *applied[:end]]
        fit = inquiry.folding.fit(inquiry.folding.final(sequence), inquiry.copy)
        if fit:
            return _told(inquiry, ledger, sequence, fit)
    if inquiry.copy is None:
        return _without_a_row(inquiry, ledger)
    return None if ledger.ordered else _late(inquiry, ledger)


def _late(inquiry: Inquiry, ledger: Ledger) -> Explanation | None:
    """An event that was applied after a newer one, of which a ledger without times does not tell."""
    for each in explain(inquiry):
        if each.late is not None and each.over is not None and ledger.shows(each.late) and ledger.shows(each.over):
            return replace(each, lacking=tuple(event for event in each.lacking if ledger.lacks(event)))
    return None


def _without_a_row(inquiry: Inquiry, ledger: Ledger) -> Explanation | None:
    """The event that makes the row was lost: those behind it were applied to none."""
    life = [event for event in inquiry.life if inquiry.is_due(event)]
    knows = inquiry.whole or len(inquiry.life) < len(inquiry.truth)
    if not knows or not life or not ledger.lacks(life[0]):
        return None
    lacking = tuple(event for event in life if ledger.lacks(event))
    return Explanation(lacking, exact=False, by_ledger=True)


def _told(inquiry: Inquiry, ledger: Ledger, sequence: Sequence[Event], fit: Fit) -> Explanation:
    rank = inquiry.rank
    telling = [event for event in sequence if inquiry.concerns(event)]
    last = telling[-1] if telling else None
    newest = max(telling, key=lambda event: rank[event.place], default=None)
    late, over = (last, newest) if last is not newest else _around_a_deletion(inquiry, sequence)
    lacking = [event for event in inquiry.due if ledger.lacks(event)]
    if inquiry.folding.whole and newest is not None:
        lacking = [event for event in lacking if rank[event.place] > rank[newest.place]]
    elif not inquiry.folding.whole:
        lacking = [event for event in lacking if _matters(inquiry, event, sequence)]
    lacking.sort(key=lambda event: rank[event.place])
    adding = {rule.name for rule in inquiry.concerned if rule.add}
    times = Counter(rank[event.place] for event in ledger.applied)
    twice = {
        rank[e.place]: e
        for e in ledger.applied
        if times[rank[e.place]] > 1 and (inquiry.folding.whole or adding & e.fields.keys())
    }
    return Explanation(
        lacking=tuple(lacking),
        late=late,
        over=over,
        doubled=tuple(twice.values()),
        exact=fit is Fit.EXACT,
        by_ledger=True,
    )


def _matters(inquiry: Inquiry, lost: Event, applied: Sequence[Event]) -> bool:
    """Whether a lost event tells of what differs, and none that was applied told that anew."""
    rank = inquiry.rank
    later = [event for event in applied if rank[event.place] > rank[lost.place]]
    if lost.deletes or any(event.deletes for event in later):
        return lost.deletes
    anew = {name for event in later for name in event.fields}
    return any(rule.name in lost.fields and (rule.add or rule.name not in anew) for rule in inquiry.concerned)


def _around_a_deletion(inquiry: Inquiry, sequence: Sequence[Event]) -> tuple[Event | None, Event | None]:
    """Give the first event that was applied after a newer one, where one of them deletes: there sums have an order."""
    rank = inquiry.rank
    for former, later in pairwise(sequence):
        if rank[later.place] < rank[former.place] and (former.deletes or later.deletes):
            return later, former
    return None, None
