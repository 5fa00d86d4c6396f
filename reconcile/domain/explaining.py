"""The ways in which a log can have given a copy: events lost, doubled or late, and no others.

A candidate is found in time linear in the events, by what it would change; a few of them are then folded to be sure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice, pairwise

from reconcile.domain.case import Event, FieldRule
from reconcile.domain.comparison import EXACT, near_sum
from reconcile.domain.folding import UNKNOWN, Fit, State, Value, amount
from reconcile.domain.inquiry import Inquiry

_TRIED = 3
_CUTS = 4
_NOTHING = Event(0, 0, datetime.min.replace(tzinfo=UTC), "", {})


@dataclass(frozen=True)
class Explanation:
    """One way in which events can have given the copy."""

    lacking: tuple[Event, ...] = ()
    """The events that would not have been applied, by the source's order."""
    late: Event | None = None
    """The event that would have been applied after a newer one."""
    over: Event | None = None
    """That newer one."""
    doubled: tuple[Event, ...] = ()
    """The events that would have been applied twice."""
    exact: bool = True
    """Whether it gives the copy in every field, none of them unknown."""
    follows: bool = False
    """Whether the copy is what a faithful consumer of this log would have."""
    by_ledger: bool = False
    """Whether the ledger says so."""

    @property
    def losses(self) -> int:
        """How many events of those that would not have been applied say something: of deletions in a row, the first."""
        return len(self.lacking) - sum(former.deletes and later.deletes for former, later in pairwise(self.lacking))


def explain(inquiry: Inquiry) -> list[Explanation]:
    """Give the ways in which the events can have given the copy, the simplest first."""
    return _of_states(inquiry) if inquiry.folding.whole else list(_of_changes(inquiry))


def explain_without(inquiry: Inquiry, lost: Sequence[Event]) -> Explanation | None:
    """Tell whether the copy is what the log gives without some events."""
    left = [event for event in inquiry.due if event not in lost]
    fit = inquiry.folding.fit(inquiry.folding.final(left), inquiry.copy)
    return Explanation(tuple(lost), exact=fit is Fit.EXACT) if fit else None


def _of_states(inquiry: Inquiry) -> list[Explanation]:
    """Events carry whole states: the copy is at one of them."""
    if not inquiry.places:
        return []
    place = inquiry.places[0]
    event = inquiry.order[place - 1] if place else None
    rank = -1 if event is None else inquiry.rank[event.place]
    newer = [each for each in inquiry.due if inquiry.rank[each.place] > rank]
    newer.sort(key=lambda each: inquiry.rank[each.place])
    over = newer[-1] if newer and event is not None else None
    follows = place >= len(inquiry.due)
    return [Explanation(tuple(newer), event if over is not None else None, over, follows=follows)]


def _of_changes(inquiry: Inquiry) -> Iterator[Explanation]:
    """Events carry changes: the copy is the fold of some of them."""
    folding, copy, due = inquiry.folding, inquiry.copy, len(inquiry.due)
    cuts = [*range(due, min(due + _CUTS, len(inquiry.order))), len(inquiry.order)]
    for cut in cuts:
        if fit := folding.fit(inquiry.states[cut], copy):
            late, over = inquiry.inversion or (None, None)
            yield Explanation(late=late, over=over, exact=fit is Fit.EXACT, follows=True)
    for place in range(due - 1, -1, -1):
        state = inquiry.states[place]
        if state is not UNKNOWN and (fit := folding.fit(state, copy)):
            at = inquiry.order[place - 1] if place and inquiry.order[place - 1].deletes else None
            lacking = tuple(inquiry.order[place:due])
            yield Explanation(lacking, at, None if at is None else lacking[-1], exact=fit is Fit.EXACT)
            break
    if copy is not None:
        for cut in cuts:
            yield from _Changes(inquiry, cut, copy).explanations()


class _Changes:
    """Some events, and the copy that they should have given."""

    def __init__(self, inquiry: Inquiry, cut: int, copy: Mapping[str, Value]) -> None:
        self._inquiry = inquiry
        self._folding = inquiry.folding
        self._events = inquiry.order[:cut]
        self._copy = copy
        final = inquiry.states[cut]
        self._final: Mapping[str, Value] = {} if final is None or final is UNKNOWN else final
        self._gone = final is None
        self._start = next((place for place in range(cut, 0, -1) if self._events[place - 1].deletes), 0)
        first = inquiry.folding.after(inquiry.states[self._start], _NOTHING)
        self._first: Mapping[str, Value] = {} if first is None or first is UNKNOWN else first
        # After a deletion only an event from before it can have brought the row back.
        low = max(self._start - 1 - _TRIED, 0) if self._gone else self._start
        self._life = range(low, self._start - 1 if self._gone else cut)
        self._writers: dict[str, list[int]] = {}
        self._amounts: dict[str, dict[int, Decimal]] = {name: {} for name in self._folding.adds}
        for place in self._life:
            for name in self._events[place].fields:
                if name in self._amounts:
                    self._amounts[name][place] = amount(self._events[place], name)
                else:
                    self._writers.setdefault(name, []).append(place)
        wrong = [rule for rule in self._folding.rules if rule.name in self._final and self._differs(rule)]
        self._wrong = {rule.name for rule in wrong}
        self._sums = [rule for rule in wrong if rule.add]
        self._set = [rule for rule in wrong if not rule.add]

    def explanations(self) -> Iterator[Explanation]:
        """Give what can be shown, a single loss before all others."""
        events = self._events
        for first, last in (*self._lost(), *self._runs(lost=True)):
            if not self._shown(range(first, last)) and (fit := self._fits(self._without(first, last))):
                yield Explanation(tuple(events[first:last]), exact=fit is Fit.EXACT)
        if self._start and not self._gone:
            last = self._start
            first = next((place for place in range(last - 1, 0, -1) if not events[place - 1].deletes), 0)
            if fit := self._fits(self._folding.final([*events[:first], *events[last:]])):
                yield Explanation(tuple(events[first:last]), exact=fit is Fit.EXACT)
        for first, last in (*self._doubled(), *self._runs(lost=False)):
            if fit := self._fits(self._twice(first, last)) or self._fits(self._twice(first, last, at_end=True)):
                yield Explanation(doubled=tuple(events[first:last]), exact=fit is Fit.EXACT)
        yield from self._apart()
        yield from self._late()
        yield from self._losing_partitions()

    def _fits(self, state: State) -> Fit:
        return self._folding.fit(state, self._copy)

    def _differs(self, rule: FieldRule) -> bool:
        return not self._folding.equal(rule, self._final[rule.name], self._copy.get(rule.name))

    def _without(self, first: int, last: int) -> State:
        """The state that there would be without some events in a row."""
        values = dict(self._final)
        for name in {name for event in self._events[first:last] for name in event.fields}:
            if name in self._amounts:
                if name in values:
                    values[name] = EXACT.subtract(_number(values[name]), self._added(name, first, last))
                continue
            writer = next((place for place in reversed(self._writers[name]) if not first <= place < last), None)
            if writer is not None:
                values[name] = self._events[writer].fields[name]
            elif name in self._first:
                values[name] = self._first[name]
            else:
                values.pop(name, None)
        return values

    def _shown(self, lost: Collection[int]) -> bool:
        """Tell whether the copy shows that events were not all lost: it has what they alone bring."""
        if not self._inquiry.whole:
            return False
        if len(lost) == len(self._events) - self._start:
            return True  # without them there would be no row
        right = (name for name, text in self._final.items() if text is not None and name not in self._wrong)
        return any(all(place in lost for place in self._writers.get(name, (-1,))) for name in right)

    def _twice(self, first: int, last: int, at_end: bool = False) -> State:
        """The state that there would be with some events in a row applied again, at once or after all others."""
        values = dict(self._final)
        for event in self._events[first:last] if at_end else ():
            values.update({name: text for name, text in event.fields.items() if name not in self._amounts})
        for name in self._amounts:
            if name in values:
                values[name] = EXACT.add(_number(values[name]), self._added(name, first, last))
        return values

    def _after(self, place: int, over: int) -> State:
        """The state that there would be had an event been applied right after a newer one."""
        values = dict(self._final)
        told = self._events[place].fields.items()
        values.update({name: text for name, text in told if name in self._writers and self._writers[name][-1] <= over})
        return values

    def _over_deletion(self, place: int, at_end: bool = False) -> State:
        """The state that there would be had an event from before the deletion come right after it, or after all."""
        values = dict(self._final)
        for name, text in self._events[place].fields.items():
            if name not in self._amounts:
                values[name] = values[name] if name in self._writers and not at_end else text
            elif name in values:
                values[name] = EXACT.add(_number(values[name]), amount(self._events[place], name))
        return values

    def _added(self, name: str, first: int, last: int) -> Decimal:
        amounts = self._amounts[name]
        found = Decimal(0)
        for place in range(first, last):
            if place in amounts:
                found = EXACT.add(found, amounts[place])
        return found

    def _lost(self) -> list[tuple[int, int]]:
        """The only events whose loss can have made the difference."""
        if self._gone:
            return []
        if self._set:
            return [(place, place + 1) for place in self._writers.get(self._set[0].name, ())[-1:]]
        return self._adding(lost=True)

    def _doubled(self) -> list[tuple[int, int]]:
        return self._adding(lost=False)

    def _adding(self, lost: bool) -> list[tuple[int, int]]:
        """The events that add what is missing, or too much."""
        if not self._sums or self._gone:
            return []
        rule, with_one = self._sums[0], EXACT.subtract if lost else EXACT.add
        final, copy = _number(self._final[rule.name]), _number(self._copy.get(rule.name))
        amounts = reversed(self._amounts[rule.name].items())
        # Floats are rounded as large as the sum is, and not as one amount.
        adding = ((place, place + 1) for place, each in amounts if near_sum(rule, with_one(final, each), copy))
        return list(islice(adding, _TRIED))

    def _missing(self, rule: FieldRule, lost: bool) -> Decimal:
        missing = EXACT.subtract(_number(self._final[rule.name]), _number(self._copy.get(rule.name)))
        return missing if lost else EXACT.minus(missing)

    def _runs(self, lost: bool) -> list[tuple[int, int]]:
        """Events in a row, as of one batch, that add what is missing or too much; or in which a field was set."""
        if self._gone:
            return []
        if self._sums:
            return self._summing(self._sums[0], lost)
        if self._set and lost and (places := self._writers.get(self._set[0].name)):
            last = places[-1]
            return [(first, last + 1) for first in range(last - 1, max(last - 1 - _TRIED, self._start - 1), -1)]
        return []

    def _summing(self, rule: FieldRule, lost: bool) -> list[tuple[int, int]]:
        missing = self._missing(rule, lost)
        amounts = self._amounts[rule.name]
        reached: dict[Decimal, int] = {}
        found: list[tuple[int, int]] = []
        so_far = Decimal(0)
        for place in self._life:
            reached[so_far] = place
            if place in amounts:
                so_far = EXACT.add(so_far, amounts[place])
            first = reached.get(EXACT.subtract(so_far, missing))
            if first is not None and place > first:
                found.append((first, place + 1))
        return found[-_TRIED:]

    def _apart(self) -> Iterator[Explanation]:
        """Several events lost, each on its own: all that told anew what the copy still says in an older way."""
        lost: set[int] = set()
        for rule in self._set if not self._gone else ():
            places = self._writers.get(rule.name, [])
            said = next(iter(self._speaking(rule)), -1)
            if said < 0 and not self._may_be_first(rule):
                return
            lost.update(place for place in places if place > said)
        left = [event for place, event in enumerate(self._events) if place not in lost]
        if len(lost) > 1 and not self._shown(lost) and self._fits(self._folding.final(left)):
            yield Explanation(tuple(self._events[place] for place in sorted(lost)), exact=False)

    def _late(self) -> Iterator[Explanation]:
        """One event that was applied after a newer one."""
        events = self._events
        if self._gone:
            for place in reversed(self._life):
                if fit := self._fits(self._folding.after(None, events[place])):
                    yield Explanation(late=events[place], over=events[self._start - 1], exact=fit is Fit.EXACT)
            return
        for place in range(self._start - 2, max(self._start - 2 - _TRIED, -1), -1):
            if fit := self._fits(self._over_deletion(place)) or self._fits(self._over_deletion(place, at_end=True)):
                yield Explanation(late=events[place], over=events[self._start - 1], exact=fit is Fit.EXACT)
        if not self._set or self._sums:
            return
        over = max(self._writers[rule.name][-1] if rule.name in self._writers else -1 for rule in self._set)
        for place in self._speaking(self._set[0]):
            if place < over and (
                fit := self._fits(self._after(place, over)) or self._fits(self._after(place, len(events)))
            ):
                yield Explanation(late=events[place], over=events[over], exact=fit is Fit.EXACT)

    def _may_be_first(self, rule: FieldRule) -> bool:
        """Tell whether the copy says what it said before the first event; a sum has to show it if that is unknown."""
        if rule.name not in self._first:
            return bool(self._sums)
        return self._folding.equal(rule, self._first[rule.name], self._copy.get(rule.name))

    def _speaking(self, rule: FieldRule) -> list[int]:
        """The events that say what the copy says in a field that differs."""
        value = self._copy.get(rule.name)
        places = reversed(self._writers.get(rule.name, ()))
        said = (place for place in places if self._folding.equal(rule, self._events[place].fields[rule.name], value))
        return list(islice(said, _TRIED))

    def _losing_partitions(self) -> Iterator[Explanation]:
        """All events of one partition applied after those of the others."""
        partitions = {event.partition for event in self._events}
        for partition in partitions if 1 < len(partitions) <= _CUTS and self._set else ():
            inside = [event for event in self._events if event.partition == partition]
            outside = [event for event in self._events if event.partition != partition]
            if fit := self._fits(self._folding.final([*outside, *inside])):
                yield Explanation(late=inside[-1], over=outside[-1], exact=fit is Fit.EXACT)


def _number(value: Value) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(0)
