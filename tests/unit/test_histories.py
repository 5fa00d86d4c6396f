"""Whatever happened to an aggregate: no finding without damage, and damage by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reconcile.domain.attribution import attribute
from reconcile.domain.case import Case, Event, Link, Place, Row
from reconcile.domain.comparison import equal
from reconcile.domain.finding import Status
from reconcile.domain.folding import UNKNOWN, Folding
from tests.unit.cases import BILLING, LOGIN, UNVERSIONED, Step, applied, case, parked, patches, whole_states

SUMS = replace(BILLING, event_versions=False, source_versions=False, dense_versions=False)
Draw = st.DrawFn


@dataclass(frozen=True)
class History:
    """What the source did, and the link by which it is followed."""

    link: Link
    steps: Sequence[Step]

    @property
    def events(self) -> list[Event]:
        return [step.event for step in self.steps]

    def source(self, after: int) -> Row | None:
        """Give the source's row after so many changes."""
        return self.steps[after - 1].after if after else None

    def copy(self, events: Sequence[Event]) -> Row | None:
        """Give what a consumer has that applied these events."""
        folding = Folding(
            self.link.fields, self.link.changes, equal, None, {"tariff": "basic"} if self.link.changes else {}
        )
        state = folding.final(events)
        assert state is not UNKNOWN
        version = next((event.version for event in reversed(events) if event.version is not None), None)
        if state is None:
            return None
        texts = {name: None if value is None else str(value) for name, value in state.items()}
        return Row(texts, version if self.link.copy_versions else None)


@st.composite
def histories(draw: Draw, deletions: bool = True) -> History:
    """Give a history of an aggregate that may come and go, with versions or without.

    Its events carry the state, or what changed, or the state and in it what is added to a sum.
    """
    gone = st.none() if deletions else st.nothing()
    if draw(st.booleans()):
        names = st.tuples(st.sampled_from("ABC"), st.sampled_from("xy"), st.sampled_from([None, "", "1"]))
        versioned = draw(st.booleans())
        states = draw(st.lists(names | names | names | gone, min_size=1, max_size=7).filter(_alive))
        return History(LOGIN if versioned else UNVERSIONED, whole_states(states, versioned))
    amounts, tariffs = st.none() | st.sampled_from([5, 5, 10, -5]), st.none() | st.sampled_from(["plus", "gold"])
    full, versioned = draw(st.booleans()), draw(st.booleans())
    change = st.tuples(amounts, tariffs).filter(all if full else any)
    changes = draw(st.lists(change | change | change | gone, min_size=1, max_size=7).filter(_alive))
    return History(replace(BILLING if versioned else SUMS, patch=not full), patches(changes, versioned))


def _alive(changes: Sequence[object]) -> bool:
    """Only what is there can be deleted."""
    return all(
        later is not None or (place > 0 and changes[place - 1] is not None) for place, later in enumerate(changes)
    )


@st.composite
def races(draw: Draw) -> Case:
    """Give an aggregate to which nothing happened but life, read at any moment: log, source and copy are apart."""
    history = draw(histories())
    size = len(history.steps)
    published = draw(st.integers(0, size))
    source = draw(st.integers(0, size))
    settled_end = draw(st.integers(0, min(source, published)))
    before = draw(st.integers(0, min(source, published)))
    here = draw(st.integers(0, published))
    committed = draw(st.integers(0, here))
    begin = draw(st.just(0) | st.integers(0, min(settled_end, committed)))
    known, former = history.source(source), history.source(before)
    # Without versions, what comes back within seconds to what it was looks like a restore.
    same = former == known or (former is not None and known is not None and former.fields == known.fields)
    assume(not (same and before != source and published < source))
    copy = history.copy(history.events[:here])
    settled: dict[str, Any] = {"settled_source": former, "settled_absent": former is None}
    if before <= here and draw(st.booleans()):
        settled = {"settled_source": None, "settled_absent": False, "agreed": True}
    of = case(
        history.link,
        known,
        copy,
        history.events[begin:published],
        committed=committed,
        settled_end=settled_end,
        begin=begin,
        **settled,
    )
    if draw(st.booleans()):
        oldest = draw(st.integers(0, here))
        entries = applied(history.events[oldest:here])
        since = history.events[oldest].at if entries else None
        of = replace(of, ledger=entries, link=replace(of.link, ledger=True, ledger_since=since))
    return of


@settings(max_examples=250)
@given(races())
def test_life_is_no_drift(of: Case) -> None:
    """Whatever is read in between: nothing is confirmed where nothing went wrong."""
    finding = attribute(of)
    assert finding is None or finding.status is Status.IN_FLIGHT


@settings(max_examples=100)
@given(races(), st.integers(0, 7))
def test_growth_is_no_drift(of: Case, moved: int) -> None:
    """D3: the later events stand in a new partition, and the old one is read before it."""
    old = of.link.places[0]
    split = max(moved, old.begin)
    first = [event for event in of.events if event.offset < split]
    second = [replace(event, partition=1) for event in of.events if event.offset >= split]
    assume(old.committed is not None and (old.committed >= split or not second))
    places = {0: old, 1: Place(0, old.settled_end, old.log_end, old.committed)}
    entries = tuple(replace(entry, place=None) for entry in of.ledger)
    grown = replace(of, events=(*first, *second), ledger=entries, link=replace(of.link, places=places))
    finding = attribute(grown)
    assert finding is None or finding.status is Status.IN_FLIGHT


@given(histories())
def test_what_was_applied_in_order_agrees(history: History) -> None:
    """With and without its ledger."""
    now, copy = history.source(len(history.steps)), history.copy(history.events)
    assert attribute(case(history.link, now, copy, history.events)) is None
    assert attribute(case(history.link, now, copy, history.events, ledger=applied(history.events))) is None


def damaged(history: History, order: Sequence[Event], ledger: bool, oldest: int = 0, **more: object) -> Case:
    """Give the case of a consumer that applied these events in this order, and whose ledger has all, or the latest."""
    now = history.source(len(history.steps))
    if ledger:
        more["ledger"] = applied(order[oldest:])
    of = case(history.link, now, history.copy(order), history.events, **more)  # type: ignore[arg-type]
    if not ledger or not 0 < oldest < len(order):
        return of
    since = max(event.at for event in order[: oldest + 1])
    return replace(of, link=replace(of.link, ledger_since=since))


def names(of: Case) -> set[str]:
    """Give the cause and its alternatives; nothing where both sides agree and no more is known."""
    finding = attribute(of)
    return set() if finding is None else {finding.cause, *finding.alternatives}


@given(histories(deletions=False), st.data(), st.booleans())
def test_a_lost_event_is_skipped(history: History, data: st.DataObject, ledger: bool) -> None:
    """A ledger names it alone; also if the copy agrees, or the log has lost what was before it."""
    place = data.draw(st.integers(0, len(history.steps) - 1))
    begin = data.draw(st.integers(0, place)) if ledger else 0
    order = [*history.events[:place], *history.events[place + 1 :]]
    of = damaged(history, order, ledger, begin=begin)
    of = replace(of, events=of.events[begin:])
    if ledger and order:
        assert names(of) == {"skipped"}
    elif of.copy is None or not _agree(of):
        assert "skipped" in names(of)


@given(histories(deletions=False), st.data())
def test_what_went_wrong_before_a_ledger_begins_is_named(history: History, data: st.DataObject) -> None:
    """An event was lost, doubled or parked, and the ledger has the entries from some moment on."""
    place = data.draw(st.integers(0, len(history.steps) - 1))
    happened = data.draw(st.sampled_from(["skipped", "duplicate_applied", "stashed"]))
    times = 2 if happened == "duplicate_applied" else 0
    order = [*history.events[:place], *history.events[place : place + 1] * times, *history.events[place + 1 :]]
    lying = (parked("stash", history.events[place]),) if happened == "stashed" else ()
    oldest = data.draw(st.integers(0, max(len(order) - 1, 0)))
    assume(not times or oldest != place + 1)  # it begins with the second of the two: of the first nothing is left
    of = damaged(history, order, ledger=True, oldest=oldest, parked=lying)
    if order and of.copy is not None and not _agree(of):
        assert happened in names(of)


@given(histories(deletions=False), st.data(), st.booleans())
def test_what_was_never_published_is_named(history: History, data: st.DataObject, ledger: bool) -> None:
    """By its version, whether the log has lost what was before it or not; alone, where the log could show the rest."""
    assume(history.link.event_versions and len(history.steps) > 1)
    place = data.draw(st.integers(1, len(history.steps) - 1))
    begin = data.draw(st.integers(0, place - 1))
    order = [*history.events[:place], *history.events[place + 1 :]]
    of = damaged(history, order, ledger, begin=begin)
    of = replace(of, events=tuple(event for event in order if event.offset >= begin))
    if not _agree(of):
        hidden = history.link.changes and (begin > 0 or "balance" not in history.events[place].fields)
        assert "never_published" in names(of) if hidden else names(of) == {"never_published"}


@given(histories(deletions=False), st.data(), st.booleans())
def test_two_that_changed_places_are_out_of_order(history: History, data: st.DataObject, ledger: bool) -> None:
    """Without a ledger the loss of the newer one looks the same."""
    assume(len(history.steps) > 1)
    place = data.draw(st.integers(0, len(history.steps) - 2))
    events = history.events
    order = [*events[:place], events[place + 1], events[place], *events[place + 2 :]]
    of = damaged(history, order, ledger)
    if not _agree(of):
        assert "out_of_order" in names(of)


@settings(max_examples=200)
@given(histories(), st.data(), st.booleans(), st.integers(0, 3))
def test_whatever_was_applied_in_whatever_order_has_a_cause(
    history: History, data: st.DataObject, ledger: bool, begin: int
) -> None:
    """What differs is a finding, also where several things happened to it."""
    some = data.draw(st.lists(st.sampled_from(history.events), max_size=8))
    of = damaged(history, some, ledger, begin=begin)
    of = replace(of, events=of.events[begin:])
    assert _agree(of) or attribute(of) is not None


@given(histories(deletions=False), st.data(), st.booleans())
def test_a_doubled_amount_is_a_duplicate(history: History, data: st.DataObject, ledger: bool) -> None:
    """A negative one that is missing can look the same."""
    place = data.draw(st.integers(0, len(history.steps) - 1))
    of = damaged(history, [*history.events[: place + 1], *history.events[place:]], ledger)
    if not _agree(of):
        assert "duplicate_applied" in names(of)


@pytest.mark.parametrize(
    ("kind", "cause"), [("retry", "retrying"), ("stash", "stashed"), ("dead_letter", "dead_lettered")]
)
@given(history=histories(deletions=False), data=st.data(), ledger=st.booleans())
def test_what_is_parked_is_named(kind: str, cause: str, history: History, data: st.DataObject, ledger: bool) -> None:
    """From some event on, all lie in a failure topic; the log may have lost what was before them."""
    place = data.draw(st.integers(0, len(history.steps) - 1))
    begin = data.draw(st.integers(0, place))
    lying = tuple(parked(kind, event) for event in history.events[place:])  # type: ignore[arg-type]
    of = damaged(history, history.events[:place], ledger, parked=lying, begin=begin)
    of = replace(of, events=of.events[begin:])
    if not _agree(of):
        assert names(of) == {cause}


@given(histories(), st.booleans(), st.sampled_from(["balance", "tariff"]))
def test_an_edited_copy_is_foreign(history: History, ledger: bool, changed: str) -> None:
    """Nothing that the events say gives what stands there."""
    of = damaged(history, history.events, ledger)
    assume(of.copy is not None)
    assert of.copy is not None
    fields = dict(of.copy.fields)
    name = changed if history.link.changes else "email"
    fields[name] = str(Decimal(fields[name] or 0) + Decimal("0.37")) if name == "balance" else "edited"
    assert "foreign_write" in names(replace(of, copy=replace(of.copy, fields=fields)))


def _agree(of: Case) -> bool:
    if of.source is None or of.copy is None:
        return of.source is of.copy
    rules = of.link.fields
    return all(equal(rule, of.source.fields.get(rule.name), of.copy.fields.get(rule.name)) for rule in rules)
