"""How a copy's row is read beside the log: what is right in it never keeps it from being at one of the events."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.domain.attribution import attribute
from reconcile.domain.canonical import Kind
from reconcile.domain.case import Case, FieldRule
from reconcile.domain.inquiry import Inquiry
from tests.unit.cases import LOGIN, NAME, UNVERSIONED, case, event, row

PRICE = FieldRule("price", Kind.NUMERIC, tolerance=Decimal("0.5"))
SUM = FieldRule("price", Kind.NUMERIC, add=True)
PRICED = replace(UNVERSIONED, fields=(NAME, PRICE))
_NAMES = st.sampled_from(["a", "b"])
_PRICES = st.sampled_from(["1", "1.4", "1.8", "7"])


def test_a_copy_at_an_earlier_event_is_not_held_to_be_elsewhere() -> None:
    """The copy is as the first event says within the tolerance; the source is as near to it, and not to that event."""
    events = [event(1, {"name": "a", "price": "1.8"}), event(2, {"name": "b", "price": "7"})]
    source, copy = row({"name": "b", "price": "1"}), row({"name": "a", "price": "1.4"})
    finding = attribute(case(PRICED, source, copy, [replace(each, version=None) for each in events]))
    assert finding is not None
    assert finding.cause != "foreign_write"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Give rows and events that say anything, of whole states or patches, with sums, with versions or without."""
    link = replace(draw(st.sampled_from([LOGIN, UNVERSIONED])), copy_versions=False, patch=draw(st.booleans()))
    link = replace(link, fields=(NAME, draw(st.sampled_from([PRICE, SUM]))))
    values = {"name": _NAMES, "price": _PRICES}
    whole = st.fixed_dictionaries(values)
    change = st.fixed_dictionaries({}, optional=values) if link.patch else whole
    changes = draw(st.lists(change, min_size=1, max_size=3))
    events = [event(number, fields) for number, fields in enumerate(changes, 1)]
    if not link.event_versions:
        events = [replace(each, version=None) for each in events]
    return case(link, row(draw(whole), len(events)), row(draw(whole)), events)


@settings(max_examples=1000)
@given(cases())
def test_another_spelling_never_removes_a_fit(of: Case) -> None:
    """Whatever state of the log the copy's own values fit, they fit as the inquiry spells them."""
    inquiry = Inquiry(of)
    own = inquiry._values(of.copy, of.source)
    for state in (*inquiry.states, *inquiry.true_states):
        assert not inquiry.folding.fit(state, own) or inquiry.folding.fit(state, inquiry.copy)
