"""What events make of a row."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.domain.aggregate_log import in_log_order, in_true_order
from reconcile.domain.case import Event
from reconcile.domain.comparison import equal
from reconcile.domain.folding import UNKNOWN, Fit, Folding, State, total
from tests.unit.cases import BILLING, LOGIN, event, history, patches, person

PATCHES = Folding(BILLING.fields, patch=True, same=equal)
WHOLE = Folding(LOGIN.fields, patch=False, same=equal)
CHANGES = [event(1, {"balance": "10"}), event(2, {"tariff": "plus"}), event(3, {"balance": "-2.5"})]


def test_changes_are_added_and_set() -> None:
    """A sum begins at 0; a field of which no event told yet could be anything."""
    expected: list[State] = [
        None,
        {"balance": Decimal(10)},
        {"balance": Decimal(10), "tariff": "plus"},
        {"balance": Decimal("7.5"), "tariff": "plus"},
    ]
    assert expected == PATCHES.states(CHANGES)


def test_a_deletion_starts_anew() -> None:
    """What was before it is forgotten."""
    expected: list[State] = [None, {"balance": Decimal(1)}]
    assert expected == PATCHES.states([*CHANGES, event(4, None), event(5, {"balance": "1"})])[-2:]


def test_whole_states_replace_each_other() -> None:
    """An event is the state."""
    a, b = person("a"), person("b")
    assert [None, a, None, b] == WHOLE.states([event(1, a), event(2, None), event(3, b)])


def test_an_explicit_null_sets_null() -> None:
    """It is told, unlike a field that is not there."""
    assert {"balance": 0, "tariff": None} == PATCHES.final([event(1, {"tariff": None})])


def test_a_sum_whose_beginning_is_lost_stays_unknown() -> None:
    """The log does not reach back to where it began."""
    folding = Folding(BILLING.fields, patch=True, same=equal, before=UNKNOWN)
    assert {"tariff": "plus"} == folding.final(CHANGES)


@pytest.mark.parametrize(
    ("state", "row", "expected"),
    [
        ({"balance": Decimal(1), "tariff": "a"}, {"balance": Decimal("1.0"), "tariff": "a"}, Fit.EXACT),
        ({"balance": Decimal(1)}, {"balance": Decimal(1), "tariff": "a"}, Fit.AS_FAR_AS_KNOWN),
        ({"balance": Decimal(1), "tariff": "a"}, {"balance": Decimal(2), "tariff": "a"}, Fit.NO),
        ({"balance": Decimal(1), "tariff": None}, {"balance": Decimal(1), "tariff": ""}, Fit.NO),
        ({"balance": Decimal(0), "tariff": "a"}, {"balance": None, "tariff": "a"}, Fit.NO),
        (None, None, Fit.EXACT),
        (None, {"balance": Decimal(0)}, Fit.NO),
        ({"balance": Decimal(0)}, None, Fit.NO),
        (UNKNOWN, None, Fit.AS_FAR_AS_KNOWN),
    ],
)
def test_fit(state: State, row: dict[str, str | Decimal | None] | None, expected: Fit) -> None:
    """What is unknown fits anything; NULL is not an empty text, and no row is not an empty one."""
    assert expected is PATCHES.fit(state, row)


def test_sums_are_never_rounded() -> None:
    """However long the numbers are."""
    long = "1" + "0" * 40
    assert Decimal(long + ".01") == total([event(1, {"balance": long}), event(2, {"balance": "0.01"})], "balance")


@given(st.lists(st.none() | st.tuples(st.none() | st.integers(-9, 9), st.none() | st.sampled_from("ab")), max_size=9))
def test_the_final_state_is_the_last(changes: list[tuple[int | None, str | None] | None]) -> None:
    """Folding in one go gives what folding step by step gives."""
    events = [step.event for step in patches(changes, versioned=True)]
    assert PATCHES.states(events)[-1] == PATCHES.final(events)


@given(st.integers(1, 8), st.integers(0, 6))
def test_two_that_changed_places_are_put_back(size: int, place: int) -> None:
    """The source made its versions in their order."""
    events = history(*(person(str(number)) for number in range(size)))
    mixed: list[Event] = [*events[:place], *reversed(events[place : place + 2]), *events[place + 2 :]]
    assert events == in_true_order(mixed)


def test_what_stands_twice_counts_once() -> None:
    """Under one id with one content."""
    events = history(person("a"), person("b"))
    assert events == in_true_order([*events, events[0]])


def test_a_life_may_begin_at_version_1_again() -> None:
    """After a deletion."""
    first = history(person("a"), person("b"))
    second = [event(1, person("c"), offset=9, event_id="again")]
    assert [*first, event(3, None), *second] == in_true_order([*first, event(3, None), *second])


def test_a_life_may_begin_as_the_one_before() -> None:
    """After a deletion the same state at the same version is told anew; what keeps its id stands twice."""
    first = [*history(person("a"), person("b")), event(3, None)]
    again = event(1, person("a"), offset=9, event_id="again")
    assert [*first, again] == in_true_order([*first, again])
    assert first == in_true_order([*first, replace(again, event_id=first[0].event_id)])
    second = event(2, person("b"), offset=10, event_id="then")
    assert [*first, again, second] == in_true_order([*first, again, second])
    assert first == in_true_order([*first, second])


def test_what_came_after_its_deletion_belongs_before_it() -> None:
    """Version 2 is not the first of a new life."""
    v1, v2, v3, gone = [*history(person("a"), person("b"), person("c")), event(4, None)]
    assert [v1, v2, v3, gone] == in_true_order([v1, v3, gone, v2])


def test_offsets_are_the_order_of_a_partition() -> None:
    """C4: what was sent again keeps the time at which it was made."""
    v1, v2, v3 = history(person("a"), person("b"), person("c"))
    late = replace(v2, offset=7)
    other = replace(v2, partition=1, offset=0)
    assert [v1, other, v3, late] == in_log_order([v1, late, other, v3])
