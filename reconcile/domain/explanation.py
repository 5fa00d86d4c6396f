"""The ways in which a log can have given a copy: events lost, doubled or late, and no others.

A ledger that decides says which. Otherwise a candidate is found in time linear in the events, by what it would change;
a few of them are then folded to be sure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from itertools import islice, pairwise

from reconcile.domain.aggregate_log import since_deletion
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
    def shows(self) -> bool:
        """Whether it shows that something went wrong at all."""
        return bool(self.lacking or self.doubled or self.late is not None)

    @property
    def losses(self) -> int:
        """How many events of those that would not have been applied say something: of deletions in a row, the first."""
        return len(self.lacking) - sum(former.deletes and later.deletes for former, later in pairwise(self.lacking))


def explain(inquiry: Inquiry) -> list[Explanation]:
    """Compute the ways in which the events can have given the copy, the likeliest first."""
    if inquiry.ledger_decides:
        if (by_ledger := _by_ledger(inquiry)) is not None:
            return [by_ledger]
        if inquiry.ledger_suffices:
            return _noted_once(inquiry)
    found = [each for each in _by_log(inquiry) if not _is_refuted(inquiry, each)]
    waiting = inquiry.unresolved.by_event
    lost = [event for event in inquiry.log.due if event.place in waiting or inquiry.ledger.lacks(event)]
    if lost and not inquiry.folding.whole and (without := _without(inquiry, lost)):
        found.insert(0, without)
    if not found and not inquiry.log.complete and (remaining := _none_applied(inquiry, lost)):
        found.append(Explanation(remaining, exact=False))
    return found


def _is_refuted(inquiry: Inquiry, explanation: Explanation) -> bool:
    """Whether the ledger shows otherwise: applied what would be lost, once what would be doubled, in order."""
    ledger = inquiry.ledger
    if inquiry.case.copy is None or not inquiry.ledger_decides:
        return False
    if any(ledger.shows(event) for event in explanation.lacking):
        return True
    late, over = explanation.late, explanation.over
    if late is not None and over is not None and ledger.ordered and ledger.shows(late) and ledger.shows(over):
        return True
    return any(ledger.reaches(event) and not ledger.shows_twice(event) for event in explanation.doubled)


def _noted_once(inquiry: Inquiry) -> list[Explanation]:
    """Choose the events that would give the copy if they were applied twice: a ledger of ids takes each but once."""
    if inquiry.hidden_gap is not None or not all(inquiry.ledger.shows(event) for event in inquiry.log.due):
        return []
    found = (each for each in _by_log(inquiry) if each.exact and each.doubled)
    return [each for each in found if not any(inquiry.ledger.shows_twice(event) for event in each.doubled)]


def _without(inquiry: Inquiry, lost: Sequence[Event]) -> Explanation | None:
    """Explain the copy by what the log gives without some events; None if that is another copy."""
    applied = [event for event in inquiry.log.due if event not in lost]
    fit = inquiry.folding.fit(inquiry.folding.final(applied), inquiry.copy)
    return Explanation(tuple(lost), exact=fit is Fit.EXACT) if fit else None


def _none_applied(inquiry: Inquiry, lost: Sequence[Event]) -> tuple[Event, ...]:
    """Choose what the log still has of the events, if the copy has none of it: then it is as they found it."""
    remaining = [event for event in inquiry.log.due if not inquiry.log.is_before_gap(event)]
    return tuple(remaining) if all(event in lost for event in remaining) else ()


# What the copy has to be by its ledger.


def _by_ledger(inquiry: Inquiry) -> Explanation | None:
    """Explain the copy by what the ledger shows applied, in its order; None if that gives another copy."""
    log, ledger = inquiry.log, inquiry.ledger
    before = [event for event in log.due if not ledger.shows(event) and not ledger.reaches(event)]
    for applied in _orders(inquiry):
        # What was not due may be newer in the ledger than in the copy, which was read before it.
        settled = max((number for number, event in enumerate(applied, 1) if log.is_due(event)), default=0)
        for end in range(settled, len(applied) + 1):
            sequence = [*before, *applied[:end]]
            if fit := inquiry.folding.fit(inquiry.folding.final(sequence), inquiry.copy):
                return _of_sequence(inquiry, sequence, fit, inquiry.concerned)
    if inquiry.copy is None:
        return _without_a_row(inquiry)
    return _in_part(inquiry, before) if ledger.ordered else _late_in_ledger(inquiry)


def _in_part(inquiry: Inquiry, before: Sequence[Event]) -> Explanation | None:
    """Explain the fields alone that are wrong as the ledger has them wrong: those beside them have another cause."""
    folding = inquiry.folding
    if folding.whole:
        return None
    for applied in _orders(inquiry):
        sequence = [*before, *(event for event in applied if inquiry.log.is_due(event))]
        state, faithful = folding.final(sequence), inquiry.states[len(inquiry.log.due)]
        known = [rule for rule in inquiry.concerned if folding.fit(state, inquiry.copy, (rule,)) is Fit.EXACT]
        rules = tuple(rule for rule in known if not folding.fit(faithful, inquiry.copy, (rule,)))
        if rules and (found := _of_sequence(inquiry, sequence, Fit.AS_FAR_AS_KNOWN, rules)).shows:
            return found
    return None


def _orders(inquiry: Inquiry) -> Iterator[list[Event]]:
    """Choose the orders in which the events that the ledger shows can have taken effect.

    A consumer that compares versions ignores what is older than its row. Where a deletion took the row away, most of
    them have nothing to compare with; some keep the version of what was deleted.
    """
    applied, rank = list(inquiry.ledger.applied), inquiry.log.rank
    if inquiry.ledger.ordered and inquiry.link.guarded:
        for again in (False, True):
            yield list(_not_ignored(applied, again))
    if inquiry.link.guarded or not inquiry.ledger.ordered:
        applied.sort(key=lambda event: rank[event.place])
    yield applied


def _not_ignored(applied: Sequence[Event], again: bool) -> Iterator[Event]:
    """Choose what a consumer that compares versions does not ignore; `again` if it takes the same version twice."""
    version: int | None = None
    for event in applied:
        least = None if version is None else version if again else version + 1
        if least is not None and event.version is not None and event.version < least:
            continue
        version = None if event.deletes else event.version
        yield event


def _of_sequence(inquiry: Inquiry, sequence: Sequence[Event], fit: Fit, rules: Sequence[FieldRule]) -> Explanation:
    """Explain the copy, in some fields, by the sequence of events that gives it."""
    log, whole = inquiry.log, inquiry.folding.whole
    setting = [event for event in sequence if inquiry.sets(event, rules)]
    last, newest = (setting[-1], log.newest(setting)) if setting else (None, None)
    inverted = last is not None and newest is not None and log.rank[last.place] < log.rank[newest.place]
    late, over = (last, newest) if inverted else _around_a_deletion(inquiry, sequence)
    lacking = [event for event in log.due if inquiry.ledger.lacks(event)]
    if whole and newest is not None:
        lacking = [event for event in lacking if log.rank[event.place] > log.rank[newest.place]]
    elif not whole:
        lacking = [event for event in lacking if _matters(inquiry, event, sequence, rules)]
    lacking.sort(key=lambda event: log.rank[event.place])
    return Explanation(
        lacking=tuple(lacking),
        late=late,
        over=over,
        doubled=_applied_twice(inquiry, sequence, rules),
        exact=fit is Fit.EXACT,
        by_ledger=True,
    )


def _applied_twice(inquiry: Inquiry, applied: Sequence[Event], rules: Sequence[FieldRule]) -> tuple[Event, ...]:
    """Choose the events that were applied twice, where that changes what differs.

    Of whole states, that is the last alone, if another came before it; of sums, what was added since the last deletion.
    """
    rank = inquiry.log.rank
    if inquiry.folding.whole:
        *former, last = (rank[event.place] for event in applied) if applied else (-1,)
        return (applied[-1],) if last in former and former[-1] != last else ()
    adding = {rule.name for rule in rules if rule.add}
    since = [event for event in since_deletion(applied) if adding & event.fields.keys()]
    times = Counter(rank[event.place] for event in since)
    return tuple({rank[event.place]: event for event in since if times[rank[event.place]] > 1}.values())


def _matters(inquiry: Inquiry, lost: Event, applied: Sequence[Event], rules: Sequence[FieldRule]) -> bool:
    """Whether a lost event says other than the copy of what differs, and none that was applied carries that anew."""
    rank = inquiry.log.rank
    later = [event for event in applied if rank[event.place] > rank[lost.place]]
    if lost.deletes or any(event.deletes for event in later):
        return lost.deletes
    anew = {name for event in later for name in event.fields}
    says = [rule for rule in rules if rule.name in lost.fields and (rule.add or rule.name not in anew)]
    copy = inquiry.copy or {}
    return any(
        rule.add or not inquiry.folding.equal(rule, lost.fields[rule.name], copy.get(rule.name)) for rule in says
    )


def _around_a_deletion(inquiry: Inquiry, sequence: Sequence[Event]) -> tuple[Event | None, Event | None]:
    """Find the first event that was applied after a newer one, where one of them is the last deletion.

    There sums have an order; whole states have none but that of the last.
    """
    rank = inquiry.log.rank
    last = max((place for place, event in enumerate(sequence) if event.deletes), default=-1)
    if inquiry.folding.whole or last < 0:
        return None, None
    deletion = sequence[last]
    if last and rank[deletion.place] < rank[sequence[last - 1].place]:
        return deletion, sequence[last - 1]
    older = (event for event in sequence[last + 1 :] if rank[event.place] < rank[deletion.place])
    late = next(older, None)
    return late, None if late is None else deletion


def _without_a_row(inquiry: Inquiry) -> Explanation | None:
    """Explain a row that is missing by the loss of the event that makes it: those behind it were applied to none."""
    log, ledger = inquiry.log, inquiry.ledger
    life = [event for event in log.life if log.is_due(event)]
    if not ledger.applied and all(ledger.lacks(event) for event in log.due) and log.reaches_back:
        return Explanation(tuple(log.due), by_ledger=True)
    knows = log.complete or len(log.life) < len(log.truth)
    if not knows or not life or not ledger.lacks(life[0]):
        return None
    return Explanation(tuple(event for event in life if ledger.lacks(event)), exact=False, by_ledger=True)


def _late_in_ledger(inquiry: Inquiry) -> Explanation | None:
    """Find an event that was applied after a newer one, which a ledger without times does not show."""
    ledger = inquiry.ledger
    for each in _by_log(inquiry):
        if each.late is not None and each.over is not None and ledger.shows(each.late) and ledger.shows(each.over):
            return replace(each, lacking=tuple(event for event in each.lacking if ledger.lacks(event)))
    return None


# What the log alone can have given.


def _by_log(inquiry: Inquiry) -> Iterator[Explanation]:
    """Compute the ways in which the events can have given the copy, whatever the ledger says; the simplest first."""
    return _of_states(inquiry) if inquiry.folding.whole else _of_changes(inquiry)


def _of_states(inquiry: Inquiry) -> Iterator[Explanation]:
    """Events carry whole states: the copy is at one of them."""
    log, position = inquiry.log, inquiry.position
    if position is None:
        return
    event = log.order[position - 1] if position else None
    rank = -1 if event is None else log.rank[event.place]
    newer = [each for each in log.due if log.rank[each.place] > rank]
    newer.sort(key=lambda each: log.rank[each.place])
    over = newer[-1] if newer and event is not None else None
    follows = position >= len(log.due)
    yield Explanation(tuple(newer), event if over is not None else None, over, follows=follows)


def _of_changes(inquiry: Inquiry) -> Iterator[Explanation]:
    """Events carry changes: the copy is the fold of some of them."""
    folding, copy, due, order = inquiry.folding, inquiry.copy, len(inquiry.log.due), inquiry.log.order
    cuts = [*range(due, min(due + _CUTS, len(order))), len(order)]
    for cut in cuts:
        if fit := folding.fit(inquiry.states[cut], copy):
            late, over = inquiry.inversion or (None, None)
            yield Explanation(late=late, over=over, exact=fit is Fit.EXACT, follows=True)
    for place in range(due - 1, -1, -1):
        state = inquiry.states[place]
        if state is not UNKNOWN and (fit := folding.fit(state, copy)):
            at = order[place - 1] if place and order[place - 1].deletes else None
            lacking = tuple(order[place:due])
            yield Explanation(lacking, at, None if at is None else lacking[-1], exact=fit is Fit.EXACT)
            break
    if copy is not None:
        for cut in cuts:
            yield from _ChangeSearch(inquiry, cut, copy).explanations()


class _ChangeSearch:
    """The search for the faults with which some events, which carry changes, give a copy that they should not."""

    def __init__(self, inquiry: Inquiry, cut: int, copy: Mapping[str, Value]) -> None:
        self._inquiry = inquiry
        self._folding = inquiry.folding
        self._events = inquiry.log.order[:cut]
        self._copy = copy

    def explanations(self) -> Iterator[Explanation]:
        """Find what can be shown, a single loss before all others."""
        yield from self._losses()
        yield from self._lost_life()
        yield from self._doublings()
        yield from self._losses_apart()
        yield from self._delays()
        yield from self._losing_partitions()

    # The events as they should have been applied, and how their state differs from the copy.

    @property
    def _state(self) -> State:
        return self._inquiry.states[len(self._events)]

    @cached_property
    def _final(self) -> Mapping[str, Value]:
        """The row that they should have given; empty where that is none, or unknown."""
        return _row(self._state)

    @property
    def _gone(self) -> bool:
        """Whether they should have given no row."""
        return self._state is None

    @cached_property
    def _start(self) -> int:
        """The place after the last deletion."""
        return len(self._events) - len(since_deletion(self._events))

    @cached_property
    def _first(self) -> Mapping[str, Value]:
        """The row that the first event after it finds."""
        return _row(self._folding.after(self._inquiry.states[self._start], _NOTHING))

    @cached_property
    def _life(self) -> range:
        """The places of the events that can have made the copy.

        After a deletion only an event from before it can have brought the row back.
        """
        if self._gone:
            return range(max(self._start - 1 - _TRIED, 0), self._start - 1)
        return range(self._start, len(self._events))

    @cached_property
    def _writers(self) -> Mapping[str, list[int]]:
        """The places of the events that set a field."""
        found: dict[str, list[int]] = {}
        for place in self._life:
            for name in self._events[place].fields.keys() - self._folding.adds:
                found.setdefault(name, []).append(place)
        return found

    @cached_property
    def _amounts(self) -> Mapping[str, dict[int, Decimal]]:
        """What is added to each sum, by the place of the event."""
        found: dict[str, dict[int, Decimal]] = {name: {} for name in self._folding.adds}
        for place in self._life:
            for name in self._events[place].fields.keys() & self._folding.adds:
                found[name][place] = amount(self._events[place], name)
        return found

    @cached_property
    def _wrong(self) -> list[FieldRule]:
        """The fields in which their row is not the copy."""
        known = (rule for rule in self._folding.rules if rule.name in self._final)
        return [rule for rule in known if not self._says(rule, self._final[rule.name])]

    @cached_property
    def _sums(self) -> list[FieldRule]:
        return [rule for rule in self._wrong if rule.add]

    @cached_property
    def _set(self) -> list[FieldRule]:
        return [rule for rule in self._wrong if not rule.add]

    def _says(self, rule: FieldRule, value: Value) -> bool:
        return self._folding.equal(rule, value, self._copy.get(rule.name))

    def _fits(self, state: State) -> Fit:
        return self._folding.fit(state, self._copy)

    # The faults.

    def _losses(self) -> Iterator[Explanation]:
        """One event lost, or several in a row."""
        for first, last in (*self._lost(), *self._runs(lost=True)):
            if not self._shown(range(first, last)) and (fit := self._fits(self._state_without(first, last))):
                yield Explanation(tuple(self._events[first:last]), exact=fit is Fit.EXACT)

    def _lost_life(self) -> Iterator[Explanation]:
        """All events from one deletion to the next lost, so that the former life goes on."""
        last, events = self._start, self._events
        if last and not self._gone:
            first = next((place for place in range(last - 1, 0, -1) if not events[place - 1].deletes), 0)
            if fit := self._fits(self._folding.final([*events[:first], *events[last:]])):
                yield Explanation(tuple(events[first:last]), exact=fit is Fit.EXACT)

    def _doublings(self) -> Iterator[Explanation]:
        """One event applied twice, or several in a row; the second time at once or after all others."""
        for first, last in (*self._doubled(), *self._runs(lost=False)):
            twice, again = self._state_with_twice(first, last), self._state_with_twice(first, last, at_end=True)
            if fit := self._fits(twice) or self._fits(again):
                yield Explanation(doubled=tuple(self._events[first:last]), exact=fit is Fit.EXACT)

    def _losses_apart(self) -> Iterator[Explanation]:
        """Several events lost, each on its own: all that set anew what the copy still says in an older way."""
        lost: set[int] = set()
        for rule in self._set if not self._gone else ():
            said = next(iter(self._speaking(rule)), -1)
            if said < 0 and not self._may_be_first(rule):
                return
            lost.update(place for place in self._writers.get(rule.name, ()) if place > said)
        applied = [event for place, event in enumerate(self._events) if place not in lost]
        if len(lost) > 1 and not self._shown(lost) and self._fits(self._folding.final(applied)):
            yield Explanation(tuple(self._events[place] for place in sorted(lost)), exact=False)

    def _delays(self) -> Iterator[Explanation]:
        """One event that was applied after a newer one."""
        if self._gone:
            for place in reversed(self._life):
                yield from self._delay(place, self._start - 1, self._folding.after(None, self._events[place]))
            return
        for place in range(self._start - 2, max(self._start - 2 - _TRIED, -1), -1):
            states = self._state_over_deletion(place), self._state_over_deletion(place, at_end=True)
            yield from self._delay(place, self._start - 1, *states)
        if not self._set or self._sums:
            return
        over = max(self._writers[rule.name][-1] if rule.name in self._writers else -1 for rule in self._set)
        for place in self._speaking(self._set[0]):
            if place < over:
                states = self._state_after(place, over), self._state_after(place, len(self._events))
                yield from self._delay(place, over, *states)

    def _delay(self, late: int, over: int, *states: State) -> Iterator[Explanation]:
        """One event after a newer one, if a state that this can have given is the copy."""
        if fit := next(filter(None, map(self._fits, states)), None):
            yield Explanation(late=self._events[late], over=self._events[over], exact=fit is Fit.EXACT)

    def _losing_partitions(self) -> Iterator[Explanation]:
        """All events of one partition applied after those of the others."""
        partitions = {event.partition for event in self._events}
        for partition in partitions if 1 < len(partitions) <= _CUTS and self._set else ():
            inside = [event for event in self._events if event.partition == partition]
            outside = [event for event in self._events if event.partition != partition]
            if fit := self._fits(self._folding.final([*outside, *inside])):
                yield Explanation(late=inside[-1], over=outside[-1], exact=fit is Fit.EXACT)

    # The states that a fault would have given.

    def _state_without(self, first: int, last: int) -> State:
        """Compute the state that there would be without some events in a row."""
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

    def _state_with_twice(self, first: int, last: int, at_end: bool = False) -> State:
        """Compute the state with some events in a row applied again, at once or after all others."""
        values = dict(self._final)
        for event in self._events[first:last] if at_end else ():
            values.update({name: text for name, text in event.fields.items() if name not in self._amounts})
        for name in self._amounts:
            if name in values:
                values[name] = EXACT.add(_number(values[name]), self._added(name, first, last))
        return values

    def _state_after(self, place: int, over: int) -> State:
        """Compute the state that there would be had an event been applied right after a newer one."""
        fields = self._events[place].fields.items()
        again = {name: text for name, text in fields if name in self._writers and self._writers[name][-1] <= over}
        return {**self._final, **again}

    def _state_over_deletion(self, place: int, at_end: bool = False) -> State:
        """Compute the state had an event from before the deletion come right after it, or after all."""
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

    # The few candidates that are worth a fold.

    def _lost(self) -> list[tuple[int, int]]:
        """Choose the only events whose loss can have made the difference."""
        if self._gone:
            return []
        if self._set:
            return [(place, place + 1) for place in self._writers.get(self._set[0].name, ())[-1:]]
        return self._adding(lost=True)

    def _doubled(self) -> list[tuple[int, int]]:
        return self._adding(lost=False)

    def _adding(self, lost: bool) -> list[tuple[int, int]]:
        """Choose the events that add what is missing, or too much."""
        if not self._sums or self._gone:
            return []
        rule, with_one = self._sums[0], EXACT.subtract if lost else EXACT.add
        final, copy = _number(self._final[rule.name]), _number(self._copy.get(rule.name))
        amounts = reversed(self._amounts[rule.name].items())
        # Floats are rounded as large as the sum is, and not as one amount.
        adding = ((place, place + 1) for place, each in amounts if near_sum(rule, with_one(final, each), copy))
        return list(islice(adding, _TRIED))

    def _runs(self, lost: bool) -> list[tuple[int, int]]:
        """Choose events in a row, as of one batch, that add what is missing or too much, or that set a field."""
        if self._gone:
            return []
        if self._sums:
            return self._summing(self._sums[0], lost)
        if self._set and lost and (places := self._writers.get(self._set[0].name)):
            last = places[-1]
            return [(first, last + 1) for first in range(last - 1, max(last - 1 - _TRIED, self._start - 1), -1)]
        return []

    def _summing(self, rule: FieldRule, lost: bool) -> list[tuple[int, int]]:
        """Choose the events in a row that add up to what is missing, or too much."""
        missing = EXACT.subtract(_number(self._final[rule.name]), _number(self._copy.get(rule.name)))
        missing = missing if lost else EXACT.minus(missing)
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

    def _speaking(self, rule: FieldRule) -> list[int]:
        """Choose the events that say what the copy says in a field that differs."""
        places = reversed(self._writers.get(rule.name, ()))
        said = (place for place in places if self._says(rule, self._events[place].fields[rule.name]))
        return list(islice(said, _TRIED))

    # What speaks against a candidate.

    def _shown(self, lost: Collection[int]) -> bool:
        """Whether the copy shows that events were not all lost: it has what they alone bring."""
        if not self._inquiry.log.complete:
            return False
        if len(lost) == len(self._events) - self._start:
            return True  # without them there would be no row
        wrong = {rule.name for rule in self._wrong}
        right = (name for name, text in self._final.items() if text is not None and name not in wrong)
        return any(all(place in lost for place in self._writers.get(name, (-1,))) for name in right)

    def _may_be_first(self, rule: FieldRule) -> bool:
        """Whether the copy says what it said before the first event; a sum has to show it if that is unknown."""
        if rule.name not in self._first:
            return bool(self._sums)
        return self._says(rule, self._first[rule.name])


def _row(state: State) -> Mapping[str, Value]:
    return {} if state is None or state is UNKNOWN else state


def _number(value: Value) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(0)
