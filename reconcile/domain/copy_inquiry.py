"""The consumer's part of a case: its ledger, its failure topics, and how its events can have given its copy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from reconcile.domain.case import Event, Parked
from reconcile.domain.confidence import Ground
from reconcile.domain.evidence_notes import Verdict, parked_note
from reconcile.domain.explaining import Explanation, explain, explain_without
from reconcile.domain.finding import Evidence
from reconcile.domain.inquiry import Inquiry
from reconcile.domain.ledger import Ledger, read_ledger
from reconcile.domain.ledger_fold import explain_by_ledger, is_decisive
from reconcile.domain.parking import unresolved

PARKED = {
    "retry": (Ground.RETRYING, Ground.RETRYING_AMONG),
    "stash": (Ground.STASHED, Ground.STASHED_AMONG),
    "dead_letter": (Ground.DEAD_LETTERED, Ground.DEAD_LETTERED_AMONG),
}
LIES = {"retry": "waits here", "stash": "is stashed here", "dead_letter": "lies here"}


class CopyInquiry:
    """What is known of the consumer's part."""

    def __init__(self, inquiry: Inquiry) -> None:
        self.inquiry = inquiry
        self.case = inquiry.case

    @cached_property
    def ledger(self) -> Ledger:
        """What the ledger says."""
        return read_ledger(self.case, self.inquiry.log)

    @cached_property
    def decisive(self) -> bool:
        """Whether the ledger, with what it does not reach back to, tells what the copy should be."""
        return is_decisive(self.inquiry, self.ledger)

    @cached_property
    def complete(self) -> bool:
        """Whether the ledger tells all of which the copy is made: what it does not reach back to plays no part."""
        ledger, due = self.ledger, self.inquiry.due
        reached = self.inquiry.folding.whole or all(ledger.shows(event) or ledger.reaches(event) for event in due)
        return self.decisive and reached

    @cached_property
    def lying(self) -> tuple[dict[tuple[int, int], Parked], list[Parked]]:
        """The unresolved records of the failure topics: by the place of their event, and those of no event we know."""
        return unresolved(self.case.parked, self.inquiry.log, self.ledger)

    @property
    def waiting(self) -> dict[tuple[int, int], Parked]:
        """The unresolved records of the failure topics, by the place of their event."""
        return self.lying[0]

    @cached_property
    def explanations(self) -> list[Explanation]:
        """The ways in which the events can have given the copy."""
        inquiry = self.inquiry
        if self.decisive:
            by_ledger = explain_by_ledger(inquiry, self.ledger)
            if by_ledger is not None:
                return [by_ledger]
            if self.complete:
                return self._noted_once()
        found = [each for each in explain(inquiry) if not self._is_refuted(each)]
        lost = [event for event in inquiry.due if event.place in self.waiting or self.ledger.lacks(event)]
        if lost and not inquiry.folding.whole and (without := explain_without(inquiry, lost)):
            found.insert(0, without)
        if not found and not inquiry.whole and (left := self._none_applied(lost)):
            found.append(Explanation(left, exact=False))
        return found

    @cached_property
    def gap(self) -> tuple[Event, Event] | None:
        """The neighbours of a version that was never published and may have told of what differs.

        Where the log does not reach back, or no event tells of a field, it is folded from the source: that hides it.
        """
        inquiry, case = self.inquiry, self.case
        if not inquiry.link.changes or inquiry.moving or case.source is None or case.copy is None:
            return None
        hidden = any(rule.name not in inquiry.told or (rule.add and not inquiry.whole) for rule in inquiry.concerned)
        return inquiry.gaps[0] if hidden and inquiry.gaps else None

    def _is_refuted(self, explanation: Explanation) -> bool:
        """Whether the ledger shows otherwise: applied what would be lost, once what would be doubled, in order."""
        ledger = self.ledger
        if self.case.copy is None or not self.decisive:
            return False
        if any(ledger.shows(event) for event in explanation.lacking):
            return True
        late, over = explanation.late, explanation.over
        if late is not None and over is not None and ledger.ordered and ledger.shows(late) and ledger.shows(over):
            return True
        return any(ledger.reaches(event) and not ledger.twice(event) for event in explanation.doubled)

    def _noted_once(self) -> list[Explanation]:
        """Give the events that would give the copy if they were applied twice: a ledger of ids takes each but once."""
        if self.gap is not None or not all(self.ledger.shows(event) for event in self.inquiry.due):
            return []
        found = (each for each in explain(self.inquiry) if each.exact and each.doubled)
        return [each for each in found if not any(self.ledger.twice(event) for event in each.doubled)]

    def _none_applied(self, lost: Sequence[Event]) -> tuple[Event, ...]:
        """Give what is left of the events, if the copy has none of it: then it is as they found it."""
        left = [event for event in self.inquiry.due if not self.inquiry.is_before_gap(event)]
        return tuple(left) if left and all(event in lost for event in left) else ()

    def left_over(self, fault: Verdict) -> Verdict:
        """Give what still tells where the log has expired: a record in a failure topic; else the fault itself."""
        if fault.ground is not Ground.NOTHING_LEFT:
            return fault
        source = self.case.source
        for each in reversed(self.lying[1]):
            if source is not None and each.version is not None and each.version == source.version:
                note = parked_note(each, f"{LIES[each.kind]}, with the source's version")
                return Verdict(PARKED[each.kind][0], each.at, (note, *fault.notes))
        return fault

    def lying_notes(self, told: Sequence[Evidence]) -> list[Evidence]:
        """Tell of one unresolved record of each kind that was not told of yet, whatever the cause is."""
        waiting, strangers = self.lying
        newest = {each.kind: each for each in (*strangers, *waiting.values())}
        known = {each.kind for each in told if each.unresolved}
        return [parked_note(each, LIES[kind]) for kind, each in newest.items() if kind not in known]

    def newest(self, explanation: Explanation) -> Event:
        """Give the newest of the events that the copy lacks."""
        return max(explanation.lacking, key=lambda event: self.inquiry.rank[event.place])
