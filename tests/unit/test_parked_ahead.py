"""A sink commits nothing behind the last record that it kept: what it parked there is not on its way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.domain.attribution import attribute
from reconcile.domain.case import Case, Event, Link, ParkedIn
from reconcile.domain.finding import Finding, Status
from tests.unit.cases import BILLING, LOGIN, UNVERSIONED, applied, case, event, history, parked, person, row
from tests.unit.test_histories import History, _agree, damaged, histories, names

FOUR = history(*(person(name) for name in "abcd"))
V1, V2, V3, V4 = FOUR
AT_1, AT_2, AT_3, AT_4 = (row(each.fields, each.version) for each in FOUR)
GONE = event(4, None)
TOMBSTONE = event(5, None)
PLAIN = replace(UNVERSIONED, name="posts/sink")
CAUSES: dict[ParkedIn, str] = {"dead_letter": "dead_lettered", "retry": "retrying", "stash": "stashed"}


def found(of: Case) -> Finding:
    """Give the finding of a case that has one."""
    finding = attribute(of)
    assert finding is not None
    return finding


def lies(*events: Event, kind: ParkedIn = "dead_letter", **more: Any) -> dict[str, Any]:
    """Give the parked records of events, as a case takes them."""
    return {"parked": tuple(parked(kind, each, **more) for each in events)}


@pytest.mark.parametrize("kind", CAUSES)
@pytest.mark.parametrize("link", [LOGIN, PLAIN, replace(LOGIN, patch=True), replace(LOGIN, guarded=True)])
@pytest.mark.parametrize("committed", [3, 0, None])
def test_what_is_parked_is_not_in_flight(kind: ParkedIn, link: Link, committed: int | None) -> None:
    """The copy lacks the very record that lies there, however far the group has committed."""
    events = FOUR if link.event_versions else [replace(each, version=None) for each in FOUR]
    of = case(link, AT_4, AT_3, events, committed=committed, **lies(events[3], kind=kind))
    finding = found(of)
    assert (CAUSES[kind], "certain", Status.CONFIRMED) == (finding.cause, finding.confidence, finding.status)
    assert "log_to_consumer" == finding.hop
    assert finding.drifts


def test_what_follows_it_is_in_flight() -> None:
    """A newer event brings the whole state: the older one's dead letter is not what the copy lacks."""
    assert "in_flight" == found(case(LOGIN, AT_4, AT_2, FOUR, committed=2, **lies(V3))).cause
    assert "in_flight" == found(case(LOGIN, AT_4, AT_2, FOUR, committed=2)).cause


def test_only_what_is_parked_is_lacking_for_good() -> None:
    """An older event that is not parked does not make the newest one arrive; nor if it has come meanwhile."""
    for copy in (AT_2, AT_3):
        finding = found(case(LOGIN, AT_4, copy, FOUR, committed=2, **lies(V4)))
        assert ("dead_lettered", "certain") == (finding.cause, finding.confidence)


def test_all_of_the_tail_is_parked() -> None:
    """Each record behind the last that was kept."""
    finding = found(case(LOGIN, AT_4, AT_1, FOUR, committed=1, **lies(V2, V3, V4)))
    assert ("dead_lettered", "certain") == (finding.cause, finding.confidence)
    assert 3 == sum(each.unresolved or each.kind == "event" for each in finding.evidence if each.kind == "event")


def test_a_row_that_was_never_made() -> None:
    """Its first event is parked."""
    finding = found(
        case(PLAIN, row(V1.fields), None, [replace(V1, version=None)], committed=0, **lies(V1, version=None))
    )
    assert ("missing", "dead_lettered", "certain") == (finding.difference, finding.cause, finding.confidence)


def test_a_changed_field_on_a_patch_topic() -> None:
    """The parked change is lacking; one that sets the same field anew makes it good once it arrives."""
    first, moved, again = (
        event(1, {"balance": "5", "tariff": "a"}),
        event(2, {"tariff": "b"}),
        event(3, {"tariff": "c"}),
    )
    source, copy = row({"balance": "5", "tariff": "b"}, 2), row({"balance": "5", "tariff": "a"})
    assert "dead_lettered" == found(case(BILLING, source, copy, [first, moved], committed=1, **lies(moved))).cause
    later = row({"balance": "5", "tariff": "c"}, 3)
    assert "in_flight" == found(case(BILLING, later, copy, [first, moved, again], committed=1, **lies(moved))).cause


def test_an_amount_that_is_parked_is_never_made_good() -> None:
    """Whatever follows it."""
    events = [event(1, {"balance": "5"}), event(2, {"balance": "7"}), event(3, {"balance": "1"})]
    source = row({"balance": "13"}, 3)
    assert "dead_lettered" == found(case(BILLING, source, row({"balance": "5"}), events[:2], committed=1,
                                         **lies(events[1]), settled_source=source)).cause  # fmt: skip
    assert "dead_lettered" == found(case(BILLING, source, row({"balance": "6"}), events, committed=1,
                                         **lies(events[1]))).cause  # fmt: skip


@pytest.mark.parametrize("which", [(GONE,), (TOMBSTONE,), (GONE, TOMBSTONE)])
@pytest.mark.parametrize("committed", [3, 4, 9])
def test_one_of_a_deletion_and_its_tombstone_is_parked(which: tuple[Event, ...], committed: int) -> None:
    """A sink drops the other: the copy lacks the deletion that lies there."""
    of = case(LOGIN, None, AT_3, [*FOUR[:3], GONE, TOMBSTONE], committed=committed, **lies(*which, version=None))
    finding = found(of)
    assert ("orphan", "dead_lettered", "certain") == (finding.difference, finding.cause, finding.confidence)


@pytest.mark.parametrize("which", [(GONE,), (TOMBSTONE,), (GONE, TOMBSTONE)])
def test_a_deletion_that_came_by_the_other_record(which: tuple[Event, ...]) -> None:
    """Both rows are gone, and a deletion that lies there could take away nothing."""
    events = [*FOUR[:3], GONE, TOMBSTONE]
    assert attribute(case(LOGIN, None, None, events, **lies(*which, version=None))) is None


def test_what_the_ledger_shows_applied_is_done_with() -> None:
    """Its dead letter says nothing of what the copy lacks."""
    of = case(LOGIN, AT_4, AT_3, FOUR, committed=2, ledger=applied(FOUR[:3]), **lies(V3))
    assert "in_flight" == found(of).cause


def test_a_resolved_record_waits_no_more() -> None:
    """Its group has committed past it."""
    of = case(LOGIN, AT_4, AT_3, FOUR, committed=3, **lies(V4, resolved="its group has committed past it"))
    assert "in_flight" == found(of).cause


@pytest.mark.parametrize("committed", [3, 9])
def test_a_text_that_the_copy_cannot_hold(committed: int) -> None:
    """Source and log agree in it, so nobody broke a schema: the sink parked what its table did not take."""
    events = [*FOUR[:3], replace(V4, unheld=("name",))]
    finding = found(case(LOGIN, AT_4, AT_3, events, committed=committed, **lies(V4)))
    assert ("dead_lettered", "certain", "log_to_consumer") == (finding.cause, finding.confidence, finding.hop)
    assert "source and log agree, the copy cannot hold it: name" in [each.note for each in finding.evidence]


def test_a_text_that_the_copy_cannot_hold_and_nobody_kept() -> None:
    """A consumer without failure topics went past it."""
    finding = found(case(LOGIN, AT_4, AT_3, [*FOUR[:3], replace(V4, unheld=("name",))]))
    assert "skipped" == finding.cause
    assert "source and log agree, the copy cannot hold it: name" in [each.note for each in finding.evidence]


@settings(max_examples=200)
@given(histories(), st.data())
def test_a_parked_tail_is_named_wherever_the_group_stands(history: History, data: st.DataObject) -> None:
    """From some event on, all lie among the dead letters, and the group has committed no more than those before."""
    place = data.draw(st.integers(0, len(history.steps) - 1))
    lying = lies(*history.events[place:])
    of = damaged(history, history.events[:place], False, **lying, committed=data.draw(st.integers(0, place)))
    if not _agree(of):
        assert names(of) == {"dead_lettered"}
