"""A case laid out for the decision: where in the log source and copy are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cached_property

from reconcile.domain.case import Event, Row
from reconcile.domain.comparison import EXACT, equal, equivalent, number
from reconcile.domain.folding import UNKNOWN, Fit, Folding, State, Value, total
from reconcile.domain.log_reading import LogReading


class Inquiry(LogReading):
    """What source and copy are to the log: which of its states they are at, and what the source had made by then."""

    @cached_property
    def equivalent(self) -> bool:
        """Whether the copy differs in nothing that a reader would see."""
        rules = {rule.name: rule for rule in self.link.fields}
        return bool(self.fields) and all(
            equivalent(rules[each.name], each.source, each.consumer) for each in self.fields
        )

    @cached_property
    def moving(self) -> bool:
        """Whether the source has moved on since a reading that the log had reached."""
        case = self.case
        former, present = case.settled_source, case.source
        if former is None and not case.settled_absent:
            return case.agreed  # whatever it said then, the copy said so too
        if former is None or present is None:
            return former is not present and self.reached(former)
        same = former.version == present.version and all(
            equal(rule, former.fields.get(rule.name), present.fields.get(rule.name)) for rule in self.link.fields
        )
        return not same and self.reached(former)

    @cached_property
    def anew(self) -> bool:
        """Whether the source may have been deleted and made anew since: the log's versions are those of before."""
        former, present = self.case.settled_source, self.case.source
        if not self.moving or present is None or present.version is None:
            return False
        return former is None or former.version is None or former.version >= present.version

    def reached(self, reading: Row | None) -> bool:
        """Tell whether the log ever had what the source said, as far as it reaches back."""
        if reading is None:
            return True
        versions = [event.version for event in self.log if event.version is not None]
        if self.versioned and reading.version is not None and (versions or self.whole):
            newer = any(version >= reading.version for version in versions)
            return newer or (self.link.compacted and any(event.deletes for event in self.log))
        row = self._row(reading, self.case.copy)
        return not self.whole or any(self.brings(state, row) for state in self.true_states[1:])

    def brings(self, state: State, row: Mapping[str, Value] | None) -> bool:
        """Tell whether a state says what a row says, in the fields that differ."""
        return self.plain.fit(state, row, self.concerned) is not Fit.NO

    @cached_property
    def true_states(self) -> list[State]:
        """The states that the source went through, as far as the log tells."""
        return self.plain.states(self.truth)

    @cached_property
    def states(self) -> list[State]:
        """The states that a faithful consumer goes through."""
        same = self.folding is self.plain and self.truth == self.order
        return self.true_states if same else self.folding.states(self.order)

    @cached_property
    def pin(self) -> int | None:
        """The version of the copy, if it is an event's: the copy can then be at no other event."""
        version = self.case.copy.version if self.case.copy is not None else None
        known = self.link.copy_versions and self.link.event_versions and self.folding.whole
        return version if known and any(event.version == version for event in self.log) else None

    @cached_property
    def places(self) -> list[int]:
        """The places in the order after which the copy is as it is, the latest first; 0 before the first event."""
        found = [place for place in range(len(self.order), 0, -1) if self.fits(place)]
        if self._before_all():
            found.append(0)
        return found

    def fits(self, place: int) -> bool:
        """Tell whether the copy is as it should be after so many events."""
        pin = self.pin
        if pin is not None and place and self.order[place - 1].version not in (pin, None):
            return False
        return self.folding.fit(self.states[place], self.copy) is not Fit.NO

    @cached_property
    def inversion(self) -> tuple[Event, Event] | None:
        """The last event that was due, and a newer one before it, if what differs was told by them in that order."""
        telling = [event for event in self.due if self.concerns(event)]
        newest = max(telling, key=lambda event: self.rank[event.place], default=None)
        if newest is None or self.rank[telling[-1].place] == self.rank[newest.place]:
            return None
        return telling[-1], newest

    def concerns(self, event: Event) -> bool:
        """Tell whether an event sets what differs; what it adds has no order."""
        return event.deletes or self.folding.whole or any(r.name in event.fields for r in self.concerned if not r.add)

    @cached_property
    def copy(self) -> dict[str, Value] | None:
        """The copy's row as states hold it: in what is right it speaks as the log does, if that spells it otherwise."""
        row = self._row(self.case.copy, self.case.source)
        return None if row is None else {**row, **self._spelled_otherwise()}

    @cached_property
    def source(self) -> dict[str, Value] | None:
        """The source's row as states hold it."""
        return self._row(self.case.source, self.case.copy)

    @cached_property
    def plain(self) -> Folding:
        """How the log's events are folded, whatever the source says."""
        return self._folding(None if self.whole else UNKNOWN)

    @cached_property
    def folding(self) -> Folding:
        """How a consumer folds them: what no event tells is as in the source, and sums go back from it."""
        if not self.link.changes:
            return self.plain
        anchor = self.case.source
        knows = self.versioned and anchor is not None and self._knows(anchor) and not self.anew
        if self.moving and not knows:
            anchor = self.case.settled_source
        return self.anchored(anchor, self.known(anchor))

    def anchored(self, anchor: Row | None, known: Sequence[Event]) -> Folding:
        """Fold so that a reading of the source comes out after the events that it knew of."""
        deletions = sum(event.deletes for event in self.truth)
        # A reading from an earlier life, or from before a gap, says nothing of what a new row holds.
        passed = sum(event.deletes and (self.versioned or self.is_settled(event)) for event in known)
        alive = deletions == passed and (self.versioned or not deletions or anchor is self.case.source)
        close = alive and (self.whole or bool(known) or not self.log)
        untold = self._untold(anchor) if close else {}
        if self.whole:
            return self._folding(None, untold) if untold else self.plain
        before: dict[str, Value] = {} if deletions else dict(untold)
        if anchor is not None and close and not deletions:
            sums = self._row(anchor, self.case.copy) or {}
            for rule in self.link.fields:
                value = sums.get(rule.name) if rule.add and rule.told else None
                if isinstance(value, Decimal):
                    before[rule.name] = EXACT.subtract(value, total(known, rule.name))
        return self._folding(before, untold)

    @cached_property
    def from_nothing(self) -> Folding:
        """Fold as if the log held all that there ever was."""
        return self._folding(None, self._untold(self.case.source))

    @cached_property
    def told(self) -> set[str]:
        """The fields of which events tell, in the aggregate's life as it is now."""
        return {name for event in self.life for name in event.fields}

    def known(self, reading: Row | None) -> list[Event]:
        """Give the events that a reading of the source knew of."""
        if reading is None or reading.version is None or not self.versioned:
            return self.truth
        version = reading.version
        known = [event.version is not None and event.version <= version for event in self.truth]
        last = max((place for place, yes in enumerate(known) if yes), default=-1)
        return [
            event for place, event in enumerate(self.truth) if known[place] or (event.version is None and place < last)
        ]

    def _row(self, row: Row | None, other: Row | None) -> dict[str, Value] | None:
        """Give a row as states hold it: a sum that is NULL counts as 0, unless it is 0 that it differs from."""
        if row is None:
            return None
        values = dict(self.plain.row(row.fields))
        for rule in self.plain.rules:
            there = None if other is None else number(other.fields.get(rule.name))
            if rule.add and row.fields.get(rule.name) is None and there != 0:
                values[rule.name] = Decimal(0)
        return values

    def _spelled_otherwise(self) -> dict[str, Value]:
        """Give the fields in which both sides agree and the log says something else of the source, as the log says it.

        So a copy is not held to be at another event for the sake of a field that is right, as of a uuid in capitals.
        """
        settled = max((place for place, event in enumerate(self.truth, 1) if self.is_settled(event)), default=0)
        made = self.true_states[settled:]
        known = self.plain.final(self.known(self.case.source))
        if self.source is None or known is None or known is UNKNOWN:
            return {}
        names = {each.name for each in self.fields}
        right = (rule for rule in self.plain.rules if rule.name not in names and rule.name in known)
        return {
            rule.name: known[rule.name]
            for rule in right
            if not any(self.plain.fit(state, self.source, (rule,)) for state in made)
        }

    def _before_all(self) -> bool:
        if self.folding.before is None:
            return self.copy is None
        version = self.case.copy.version if self.case.copy is not None else None
        versions = [event.version for event in self.log if event.version is not None]
        older = version is not None and bool(versions) and version < min(versions)
        return older and self.folding.whole and self.link.copy_versions and self.link.event_versions

    def _knows(self, reading: Row) -> bool:
        """Whether the log is as new as a reading of the source."""
        newest = self.newest_version
        return reading.version is not None and newest is not None and newest >= reading.version

    def _untold(self, reading: Row | None) -> dict[str, Value]:
        """Give the fields of which no event tells: they are as they were before."""
        if reading is None:
            return {}
        names = [rule.name for rule in self.link.fields if rule.told and not rule.add and rule.name not in self.told]
        return {name: reading.fields.get(name) for name in names}

    def _folding(self, before: State, born: dict[str, Value] | None = None) -> Folding:
        # A copy that is written in another Unicode form throughout is still at one of the events.
        same = equal if self.equivalent else equivalent
        return Folding(self.link.fields, self.link.changes, same, before, born)
