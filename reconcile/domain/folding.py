"""What events make of a row, in the fields that they carry.

A state maps fields to values: texts, or sums for the fields that are added to. None is no row. A field that is not in a
state, and a row that is `UNKNOWN`, could be anything: what made them so is no longer in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Final, Literal

from reconcile.domain.case import Event, FieldRule
from reconcile.domain.comparison import EXACT, near_sum, number


class Unknown(Enum):
    """The row before the first event that the log still has."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
Value = str | Decimal | None
Values = Mapping[str, Value] | None
State = Mapping[str, Value] | Literal[Unknown.UNKNOWN] | None
Same = Callable[[FieldRule, str | None, str | None], bool]


class Fit(IntEnum):
    """How well a row fits a state; false if it does not."""

    NO = 0
    AS_FAR_AS_KNOWN = 1
    EXACT = 2


class Folding:
    """How events are folded for one link, or one aggregate of it."""

    def __init__(
        self,
        rules: Iterable[FieldRule],
        patch: bool,
        same: Same,
        before: State = None,
        born: Mapping[str, Value] | None = None,
    ) -> None:
        """`before` is the row before the first event; `born` is what a new row holds before an event carries it."""
        self.rules = tuple(rule for rule in rules if rule.carried)
        self.adds = {rule.name for rule in self.rules if rule.add}
        self.whole = not patch and not self.adds
        self.before = before
        self._same = same
        self._born = {**dict.fromkeys(self.adds, Decimal(0)), **(born or {})}

    def row(self, fields: Mapping[str, str | None]) -> Mapping[str, Value]:
        """Compute a row's fields as a state holds them."""
        if not self.adds:
            return fields
        return {name: number(text) if name in self.adds else text for name, text in fields.items()}

    def after(self, state: State, event: Event) -> State:
        """Compute the state after one more event."""
        if event.deletes:
            return None
        if self.whole:
            return event.fields
        values = dict(self._born if state is None else {} if state is UNKNOWN else state)
        _apply(values, event, self.adds)
        return values

    def states(self, events: Sequence[Event]) -> list[State]:
        """Compute the states after none of the events, after the first, and so on."""
        if self.whole:
            return [self.before, *[None if event.deletes else event.fields for event in events]]
        state = self.before
        found = [state]
        for event in events:
            state = self.after(state, event)
            found.append(state)
        return found

    def final(self, events: Sequence[Event]) -> State:
        """Compute the state after all of the events."""
        if self.whole:
            return self.states(events[-1:])[-1] if events else self.before
        start = next((place for place in range(len(events), 0, -1) if events[place - 1].deletes), 0)
        state = None if start else self.before
        if start == len(events):
            return state
        values = dict(self._born if state is None else {} if state is UNKNOWN else state)
        for event in events[start:]:
            _apply(values, event, self.adds)
        return values

    def fit(self, state: State, row: Values, rules: Sequence[FieldRule] | None = None) -> Fit:
        """Compute how well a row fits a state, in all fields or in some."""
        if state is UNKNOWN:
            return Fit.AS_FAR_AS_KNOWN
        if state is None or row is None:
            return Fit.EXACT if state is row else Fit.NO
        fit = Fit.EXACT
        for rule in self.rules if rules is None else rules:
            name = rule.name
            if name not in state:
                fit = Fit.AS_FAR_AS_KNOWN
            elif state[name] != row.get(name) and not self.equal(rule, state[name], row.get(name)):
                return Fit.NO
        return fit

    def equal(self, rule: FieldRule, one: Value, other: Value) -> bool:
        """Whether two values of a field are the same."""
        if isinstance(one, Decimal) and isinstance(other, Decimal):
            return near_sum(rule, one, other)
        if isinstance(one, Decimal) or isinstance(other, Decimal):
            return False
        return self._same(rule, one, other)


def amount(event: Event, name: str) -> Decimal:
    """Parse what an event adds to a field."""
    return number(event.fields.get(name)) or Decimal(0)


def total(events: Iterable[Event], name: str) -> Decimal:
    """Compute what events add to a field together."""
    found = Decimal(0)
    for event in events:
        found = EXACT.add(found, amount(event, name))
    return found


def _apply(values: dict[str, Value], event: Event, adds: set[str]) -> None:
    if not adds:
        values.update(event.fields)
        return
    for name, text in event.fields.items():
        if name not in adds:
            values[name] = text
        elif name in values:
            former = values[name]
            values[name] = EXACT.add(former if isinstance(former, Decimal) else Decimal(0), number(text) or Decimal(0))
