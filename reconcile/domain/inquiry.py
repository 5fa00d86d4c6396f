"""A case laid out for the decision: where in the log source and copy are, and what the consumer left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property

from reconcile.domain.aggregate_log import AggregateLog
from reconcile.domain.case import Case, Event, FieldRule, Row
from reconcile.domain.comparison import EXACT, differing, equal, equivalent, number
from reconcile.domain.finding import Difference, FieldDifference
from reconcile.domain.folding import UNKNOWN, Fit, Folding, State, Value, total
from reconcile.domain.ledger import MatchedLedger, match_ledger
from reconcile.domain.parking import Unresolved, unresolved


class Inquiry:
    """What a case says for the fields in which its copy differs; each answer is computed once, and only if needed."""

    def __init__(self, case: Case) -> None:
        self.partly = not case.link.changes and any(event.untold for event in case.events)
        """Whether events that are to carry the whole state leave something out of it."""
        if self.partly:
            case = replace(case, link=replace(case.link, patch=True))
        self.case = case
        self.link = case.link
        self.difference, self.fields = _compare(case)
        self.concerned = _concerned(case, self.fields)
        """The fields that differ and that events carry; all that they carry where one side has no row."""
        self.log = AggregateLog(case, self.concerned)
        if case.parked and (passed := self._parked_ahead()):
            self.log = AggregateLog(case, self.concerned, passed)

    def _parked_ahead(self) -> set[tuple[int, int]]:
        """Choose the pending events that are parked and that no other one makes good, and those that the copy has.

        A sink does not commit past what it dropped as long as nothing follows that: it lacks just these for good.
        """
        waiting, due = self.unresolved.by_event, len(self.log.due)
        coming = [event for event in self.log.order if event.place not in waiting]
        ahead = (event for event in self.log.pending if event.place in waiting and self.tells(event))
        passed = {event.place for event in ahead if not self.is_overtaken(event, coming)}
        if passed:
            coming = [event for event in self.log.order if event.place not in passed]
            copy = self._values(self.case.copy, self.case.source)
            states = self.folding.states(coming)
            has = next((end for end in range(len(coming), due, -1) if self.folding.fit(states[end], copy)), 0)
            passed |= {event.place for event in coming[due:has]}
        return passed

    # What the source did.

    @cached_property
    def source_moved(self) -> bool:
        """Whether the source has moved on since a reading that the log had reached."""
        case = self.case
        former, present = case.settled_source, case.source
        if former is None and not case.settled_absent:
            return case.agreed  # whatever it said then, the copy said so too
        if former is None or present is None:
            return former is not present and self._was_reached(former)
        same = former.version == present.version and all(
            equal(rule, former.fields.get(rule.name), present.fields.get(rule.name)) for rule in self.link.fields
        )
        return not same and self._was_reached(former)

    @cached_property
    def source_recreated(self) -> bool:
        """Whether the source may have been deleted and created again: the log's versions are those of before."""
        former, present = self.case.settled_source, self.case.source
        if not self.source_moved or present is None or present.version is None:
            return False
        return former is None or former.version is None or former.version >= present.version

    def _was_reached(self, reading: Row | None) -> bool:
        """Whether the log ever had what the source said, as far as it reaches back."""
        if reading is None:
            return True
        versions = [event.version for event in self.log.events if event.version is not None]
        if self.link.versioned and reading.version is not None and (versions or self.log.complete):
            newer = any(version >= reading.version for version in versions)
            return newer or (self.link.compacted and any(event.deletes for event in self.log.events))
        row = self._values(reading, self.case.copy)
        return not self.log.complete or any(self.brings(state, row) for state in self.true_states[1:])

    # The states that the events make, and where among them the copy is.

    @cached_property
    def plain(self) -> Folding:
        """How the log's events are folded, whatever the source says."""
        return self._folding(None if self.log.complete else UNKNOWN)

    @cached_property
    def folding(self) -> Folding:
        """How a consumer folds them: what no event carries is as in the source, and sums go back from it."""
        if not self.link.changes:
            return self.plain
        anchor = self.case.source
        knows = self.link.versioned and anchor is not None and self._knows(anchor) and not self.source_recreated
        if self.source_moved and not knows:
            anchor = self.case.settled_source
        return self.anchored(anchor, self.log.known_to(anchor))

    @cached_property
    def from_nothing(self) -> Folding:
        """How they are folded if the log holds all that there ever was."""
        return self._folding(None, self._not_carried(self.case.source))

    def anchored(self, anchor: Row | None, known: Sequence[Event]) -> Folding:
        """Compute how to fold so that a reading of the source comes out after the events that it knew of."""
        close = self._anchors(anchor, known)
        constant = self._not_carried(anchor) if close else {}
        if self.log.complete:
            return self._folding(None, constant) if constant else self.plain
        if self.log.deletions:
            return self._folding({}, constant)
        sums = self._sums_before(anchor, known) if anchor is not None and close else {}
        return self._folding({**constant, **sums}, constant)

    def _anchors(self, anchor: Row | None, known: Sequence[Event]) -> bool:
        """Whether a reading of the source says what a row of the present life holds.

        One from an earlier life, or from before a gap, says nothing of that.
        """
        versioned, deletions = self.link.versioned, self.log.deletions
        passed = sum(event.deletes and (versioned or self.log.is_settled(event)) for event in known)
        if deletions != passed or not (versioned or not deletions or anchor is self.case.source):
            return False
        return self.log.complete or bool(known) or not self.log.events

    def _sums_before(self, anchor: Row, known: Sequence[Event]) -> dict[str, Value]:
        """Compute the sums before the first event: those of the reading, less what the events that it knew of added."""
        values = self._values(anchor, self.case.copy) or {}
        sums = ((rule.name, values.get(rule.name)) for rule in self.link.fields if rule.add and rule.carried)
        return {name: EXACT.subtract(value, total(known, name)) for name, value in sums if isinstance(value, Decimal)}

    def _not_carried(self, reading: Row | None) -> dict[str, Value]:
        """Choose the fields that no event carries: they are as they were before."""
        if reading is None:
            return {}
        rules = (rule for rule in self.link.fields if rule.carried and not rule.add)
        return {rule.name: reading.fields.get(rule.name) for rule in rules if rule.name not in self.log.carried}

    def _knows(self, reading: Row) -> bool:
        """Whether the log is as new as a reading of the source."""
        newest = self.log.newest_version
        return reading.version is not None and newest is not None and newest >= reading.version

    def _folding(self, before: State, born: dict[str, Value] | None = None) -> Folding:
        # A copy that is written in another Unicode form throughout is still at one of the events.
        same = equal if self.equivalent else equivalent
        return Folding(self.link.fields, self.link.changes, same, before, born)

    @cached_property
    def true_states(self) -> list[State]:
        """The states that the source went through, as far as the log shows."""
        return self.plain.states(self.log.truth)

    @cached_property
    def states(self) -> list[State]:
        """The states that a faithful consumer goes through."""
        same = self.folding is self.plain and self.log.truth == self.log.order
        return self.true_states if same else self.folding.states(self.log.order)

    @cached_property
    def pinned_version(self) -> int | None:
        """The version of the copy, if it is an event's: the copy can then be at no other event."""
        version = self.case.copy.version if self.case.copy is not None else None
        known = self.link.copy_versions and self.link.event_versions and self.folding.whole
        return version if known and any(event.version == version for event in self.log.events) else None

    @cached_property
    def position(self) -> int | None:
        """After how many events in their order the copy is as it is, at the latest; None if after no number of them."""
        found = (number for number in range(len(self.log.order), 0, -1) if self.fits(number))
        return next(found, 0 if self._is_before_all() else None)

    def fits(self, number: int) -> bool:
        """Whether the copy is as it should be after so many events."""
        pinned = self.pinned_version
        if pinned is not None and number and self.log.order[number - 1].version not in (pinned, None):
            return False
        return self.folding.fit(self.states[number], self.copy) is not Fit.NO

    def _is_before_all(self) -> bool:
        if self.folding.before is None:
            return self.copy is None
        version = self.case.copy.version if self.case.copy is not None else None
        versions = [event.version for event in self.log.events if event.version is not None]
        older = version is not None and bool(versions) and version < min(versions)
        return older and self.folding.whole and self.link.copy_versions and self.link.event_versions

    @cached_property
    def inversion(self) -> tuple[Event, Event] | None:
        """The last event that was due, and a newer one before it, if they set what differs in that order."""
        setting = [event for event in self.log.due if self.sets(event)]
        if not setting:
            return None
        last, newest = setting[-1], self.log.newest(setting)
        return None if self.log.rank[last.place] == self.log.rank[newest.place] else (last, newest)

    def sets(self, event: Event, rules: Sequence[FieldRule] | None = None) -> bool:
        """Whether an event sets what differs, or some fields of it; what it adds has no order."""
        some = self.concerned if rules is None else rules
        return event.deletes or self.folding.whole or any(rule.name in event.fields for rule in some if not rule.add)

    def tells(self, event: Event) -> bool:
        """Whether an event says something of what differs."""
        return event.deletes or self.folding.whole or any(rule.name in event.fields for rule in self.concerned)

    def is_overtaken(self, event: Event, others: Sequence[Event]) -> bool:
        """Whether others of the events carry anew all that an event carries."""
        rank = self.log.rank
        later = [each for each in others if rank[each.place] > rank[event.place]]
        if not self.link.changes or event.deletes:
            return any(not (event.deletes and each.deletes) for each in later)
        if any(each.deletes for each in later):
            return True
        adds = {rule.name for rule in self.link.fields if rule.add}
        return bool(event.fields) and event.fields.keys() <= {name for each in later for name in each.fields} - adds

    # The two rows.

    @cached_property
    def equivalent(self) -> bool:
        """Whether the copy differs in nothing that a reader would see."""
        rules = {rule.name: rule for rule in self.link.fields}
        return bool(self.fields) and all(
            equivalent(rules[each.name], each.source, each.consumer) for each in self.fields
        )

    @cached_property
    def source(self) -> dict[str, Value] | None:
        """The source's row as states hold it."""
        return self._values(self.case.source, self.case.copy)

    @cached_property
    def copy(self) -> dict[str, Value] | None:
        """The copy's row as states hold it: in what is right it speaks as the log does, if that spells it otherwise."""
        row = self._values(self.case.copy, self.case.source)
        return None if row is None else {**row, **self._spelled_otherwise(row)}

    def brings(self, state: State, row: Mapping[str, Value] | None) -> bool:
        """Whether a state says what a row says, in the fields that differ."""
        return self.plain.fit(state, row, self.concerned) is not Fit.NO

    def _values(self, row: Row | None, other: Row | None) -> dict[str, Value] | None:
        """Compute a row as states hold it: a sum that is NULL counts as 0, unless it is 0 that it differs from."""
        if row is None:
            return None
        values = dict(self.plain.row(row.fields))
        for rule in self.plain.rules:
            there = None if other is None else number(other.fields.get(rule.name))
            if rule.add and row.fields.get(rule.name) is None and there != 0:
                values[rule.name] = Decimal(0)
        return values

    def _spelled_otherwise(self, copy: Mapping[str, Value]) -> dict[str, Value]:
        """Choose the fields in which both rows agree and the log says neither's value, as the log says it.

        So a copy is not held to be at another event for the sake of a field that is right, as of a uuid in capitals.
        What the log says anywhere as the copy does stays: the copy may be at that event.
        """
        made, passed = self.true_states[self.log.settled :], self.plain.states(self.log.order)
        known = self.plain.final(self.log.known_to(self.case.source))
        if self.source is None or known is None or known is UNKNOWN:
            return {}
        names = {each.name for each in self.fields}
        right = (rule for rule in self.plain.rules if rule.name not in names and rule.name in known)
        return {
            rule.name: known[rule.name]
            for rule in right
            if not any(self.plain.fit(state, self.source, (rule,)) for state in (passed if rule.add else made))
            and not any(self._says(event, rule) for event in self.log.events)
            and not any(self._is_in(state, copy, rule) for state in (*self.true_states, *self.states))
        }

    def _is_in(self, state: State, copy: Mapping[str, Value], rule: FieldRule) -> bool:
        """Whether a row says of a field what a state says of it for sure."""
        return isinstance(state, Mapping) and rule.name in state and bool(self.folding.fit(state, copy, (rule,)))

    def _says(self, event: Event, rule: FieldRule) -> bool:
        """Whether an event says of a field what the source says, in the source's spelling."""
        return rule.name in event.fields and bool(self.plain.fit(event.fields, self.source, (rule,)))

    # What the consumer left behind.

    @cached_property
    def ledger(self) -> MatchedLedger:
        """What the ledger says."""
        return match_ledger(self.case, self.log.events)

    @cached_property
    def unresolved(self) -> Unresolved:
        """The records of the failure topics that may still be waiting."""
        return unresolved(self.case.parked, self.log.events, self.ledger)

    @cached_property
    def ledger_decides(self) -> bool:
        """Whether the ledger, with what it does not reach back to, shows what the copy should be."""
        ledger, due = self.ledger, self.log.due
        if due and all(ledger.shows(event) for event in due):
            return True
        if not self.link.ledger or not any(ledger.reaches(event) for event in due):
            return False
        if bool(ledger.applied) or not self.folding.whole:
            return True
        return self.log.complete and all(ledger.reaches(event) or ledger.shows(event) for event in due)

    @cached_property
    def ledger_suffices(self) -> bool:
        """Whether the ledger shows all of which the copy is made: what it does not reach back to plays no part."""
        ledger = self.ledger
        return self.ledger_decides and (
            self.folding.whole or all(ledger.shows(event) or ledger.reaches(event) for event in self.log.due)
        )

    @cached_property
    def hidden_gap(self) -> tuple[Event, Event] | None:
        """The neighbours of a version that was never published and may have carried what differs.

        Where the log does not reach back, or no event carries a field, it is folded from the source: that hides it.
        """
        log, case = self.log, self.case
        if not self.link.changes or self.source_moved or case.source is None or case.copy is None:
            return None
        hidden = any(rule.name not in log.carried or (rule.add and not log.complete) for rule in self.concerned)
        return log.gaps[0] if hidden and log.gaps else None


def _compare(case: Case) -> tuple[Difference, tuple[FieldDifference, ...]]:
    source, copy = case.source, case.copy
    if source is None or copy is None:
        if source is copy:
            return Difference.LATENT, ()
        return (Difference.ORPHAN if source is None else Difference.MISSING), ()
    fields = differing(case.link, source, copy)
    if source.count > 1 or copy.count > 1:
        return Difference.DUPLICATED, fields
    return (Difference.CHANGED if fields else Difference.LATENT), fields


def _concerned(case: Case, fields: Sequence[FieldDifference]) -> tuple[FieldRule, ...]:
    carried = tuple(rule for rule in case.link.fields if rule.carried)
    if case.source is None or case.copy is None:
        return carried
    names = {each.name for each in fields}
    return tuple(rule for rule in carried if rule.name in names)
