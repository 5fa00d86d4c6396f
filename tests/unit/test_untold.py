"""Events that leave out a large value which did not change, as Debezium's do, and copies that took that for a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.domain.attribution import attribute
from reconcile.domain.case import Case, Event, FieldRule, Link
from reconcile.domain.finding import Finding, Status
from reconcile.domain.plan_rules import Action, PlanTerms, by_finding
from reconcile.domain.untold import DEBEZIUM, in_copies, in_records
from tests.unit.cases import LOGIN, NAME, UNVERSIONED, case, event, parked, row
from tests.unit.test_histories import History, _agree, damaged, histories, names, races

BODY = FieldRule("body")
POSTS = replace(UNVERSIONED, fields=(NAME, BODY), untold=in_copies(DEBEZIUM))
VERSIONED = replace(LOGIN, fields=(NAME, BODY), copy_versions=False, untold=in_copies(DEBEZIUM))


def post(number: int, name: str, body: str | None = None) -> Event:
    """Give an event that tells the name, and the body only if there is one."""
    if body is None:
        return event(number, {"name": name}, untold=("body",))
    return event(number, {"name": name, "body": body})


def found(
    events: Sequence[Event], source: tuple[str, str], copy: tuple[str, str], link: Link = POSTS, **more: Any
) -> Finding:
    """Give the finding of a post whose source and copy say this."""
    ours, theirs = (row({"name": name, "body": body}, len(events)) for name, body in (source, copy))
    listed = events if link.event_versions else [replace(each, version=None) for each in events]
    finding = attribute(case(link, ours, theirs, listed, **more))
    assert finding is not None
    return finding


@pytest.mark.parametrize("link", [POSTS, VERSIONED])
def test_a_value_that_events_leave_out_is_as_it_was(link: Link) -> None:
    """The copy lacks the last change; the source has lost nothing, and nobody else wrote the copy."""
    events = [post(1, "a", "long"), post(2, "b"), post(3, "c")]
    assert "skipped" == found(events, ("c", "long"), ("b", "long"), link).cause
    assert "in_flight" == found(events, ("c", "long"), ("b", "long"), link, committed=2).cause
    lies = parked("dead_letter", events[2], event_id="e3", version=None)
    assert "dead_lettered" == found(events, ("c", "long"), ("b", "long"), link, parked=(lies,)).cause
    assert "foreign_write" == found(events, ("c", "long"), ("c", "edited"), link).cause


@pytest.mark.parametrize("link", [POSTS, VERSIONED])
def test_a_change_that_later_events_leave_out_was_lost(link: Link) -> None:
    """The second event alone tells the new body."""
    events = [post(1, "a", "old"), post(2, "b", "new"), post(3, "c")]
    finding = found(events, ("c", "new"), ("c", "old"), link)
    assert ("skipped", ["body"]) == (finding.cause, [each.name for each in finding.fields])


@pytest.mark.parametrize("link", [POSTS, VERSIONED])
@pytest.mark.parametrize("form", sorted(in_copies(DEBEZIUM)))
def test_a_copy_that_took_the_placeholder_for_the_value(link: Link, form: str) -> None:
    """The event does not say what the source says, whichever form the column's type gives that."""
    finding = found([post(1, "a", "long"), post(2, "b")], ("b", "long"), ("b", form), link)
    assert ("payload_divergence", "certain", "source_to_log") == (finding.cause, finding.confidence, finding.hop)
    assert () == finding.alternatives
    notes = " ".join(each.note for each in finding.evidence)
    assert "does not tell body: the copy took the placeholder for the value" in notes
    assert "REPLICA IDENTITY FULL" in notes


def test_a_copy_that_took_the_placeholder_is_restated() -> None:
    """With the source's value: a correction is made of the source's row."""
    finding = found([post(1, "a", "long"), post(2, "b")], ("b", "long"), ("b", DEBEZIUM))
    assert Action.RESTATE is by_finding(finding, PlanTerms(carried=frozenset({"name", "body"}))).action


def test_the_placeholder_is_named_where_the_event_that_had_it_has_expired() -> None:
    """Nothing else writes it."""
    finding = found([], ("b", "long"), ("b", DEBEZIUM), begin=9)
    assert ("payload_divergence", "certain") == (finding.cause, finding.confidence)


@pytest.mark.parametrize("link", [POSTS, VERSIONED])
def test_a_placeholder_beside_another_difference(link: Link) -> None:
    """The copy took the second event as it stands, and lacks the third: that is the cause; the notes say the rest."""
    events = [post(1, "a", "long"), post(2, "b"), post(3, "c")]
    finding = found(events, ("c", "long"), ("b", DEBEZIUM), link)
    assert ("skipped", ["name", "body"]) == (finding.cause, [each.name for each in finding.fields])
    assert any("the copy took the placeholder" in each.note for each in finding.evidence)
    assert "in_flight" == found(events, ("c", "long"), ("b", DEBEZIUM), link, committed=2).cause


@pytest.mark.parametrize("link", [POSTS, VERSIONED])
def test_a_placeholder_that_a_later_event_puts_right(link: Link) -> None:
    """It is on its way, or was lost."""
    events = [post(1, "a", "old"), post(2, "b"), post(3, "b", "new")]
    assert "in_flight" == found(events, ("b", "new"), ("b", DEBEZIUM), link, committed=2).cause
    assert "skipped" == found(events, ("b", "new"), ("b", DEBEZIUM), link).cause


def test_another_placeholder_is_a_value() -> None:
    """Only what the contract says counts."""
    finding = found([post(1, "a", "long")], ("a", "long"), ("a", "__other"))
    assert "foreign_write" == finding.cause


def test_all_forms_of_the_placeholder() -> None:
    """As text, as bytes, as an array of these, of its bytes or of a uuid, and as a map."""
    lists = {'["none"]', '["bm9uZQ=="]', "[110,111,110,101]", '["334c4a4c-42fd-379d-bebc-3e73b517e6f8"]'}
    assert {"none", "bm9uZQ==", '{"none":"none"}'} | lists == in_records("none")
    assert {"none", "{none}", "6e6f6e65", "{6e6f6e65}", "{110,111,110,101}", '"none"'} <= in_copies("none")


def left_out(of: Case, data: st.DataObject) -> Case:
    """Give the case with some of what did not change left out of its events."""
    if of.link.changes:
        return of
    events = [*of.events[:1]]
    for former, each in zip(of.events, of.events[1:], strict=False):
        same = [name for name, text in each.fields.items() if not former.deletes and former.fields[name] == text]
        some = data.draw(st.lists(st.sampled_from(same), unique=True)) if same else []
        told = {name: text for name, text in each.fields.items() if name not in some}
        events.append(replace(each, fields=told, untold=tuple(some)))
    return replace(of, events=tuple(events))


def folded(history: History) -> History:
    """Give the history of a consumer that keeps what an event leaves out."""
    return replace(history, link=replace(history.link, patch=True))


@settings(max_examples=250)
@given(races(), st.data())
def test_life_is_no_drift(of: Case, data: st.DataObject) -> None:
    """Whatever events leave out and whatever is read in between: nothing is confirmed where nothing went wrong."""
    finding = attribute(left_out(of, data))
    assert finding is None or finding.status is Status.IN_FLIGHT


@given(histories(deletions=False), st.data())
def test_a_lost_event_is_skipped(history: History, data: st.DataObject) -> None:
    """Also where it, or those around it, leave something out."""
    place = data.draw(st.integers(0, len(history.steps) - 1))
    whole = case(history.link, None, None, history.events)
    events = left_out(whole, data).events
    order = [*events[:place], *events[place + 1 :]]
    of = replace(damaged(folded(history), order, ledger=False), link=whole.link, events=events)
    if not _agree(of):
        assert "skipped" in names(of)
