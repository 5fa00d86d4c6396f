"""What will break a copy that still agrees, and what will not."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from reconcile.domain.attribution import attribute
from reconcile.domain.case import Case, Event, Link, Routing, Unapplied
from reconcile.domain.finding import Finding
from tests.unit.cases import BILLING, LOGIN, applied, case, event, history, minute, noted, parked, person, row

THREE = history(person("a"), person("b"), person("c"))
V1, V2, V3 = THREE
NOW = row(V3.fields, 3)
BACK = "its group has committed past it"
PATCH = replace(LOGIN, patch=True)


def agreeing(link: Link = LOGIN, events: list[Event] = THREE, **more: object) -> Case:
    return case(link, NOW, NOW, events, **more)  # type: ignore[arg-type]


def found(of: Case) -> Finding:
    finding = attribute(of)
    assert finding is not None
    assert ("latent", "confirmed", ()) == (finding.difference, finding.status, finding.fields)
    return finding


@pytest.mark.parametrize(
    ("kind", "cause"), [("retry", "retrying"), ("stash", "stashed"), ("dead_letter", "dead_lettered")]
)
def test_a_parked_record_that_was_overtaken(kind: str, cause: str) -> None:
    """D7: were it processed now, it would overwrite newer state."""
    finding = found(agreeing(parked=(parked(kind, V2),)))  # type: ignore[arg-type]
    assert (cause, "certain", "log_to_consumer", minute(2)) == (
        finding.cause,
        finding.confidence,
        finding.hop,
        finding.since,
    )


def test_a_parked_record_of_what_is_deleted_would_bring_it_back() -> None:
    """D7, D9: neither side has it, and a redrive would change that."""
    finding = found(case(LOGIN, None, None, [V1, V2, event(3, None)], parked=(parked("dead_letter", V2),)))
    assert "dead_lettered" == finding.cause


def test_a_parked_record_that_the_log_has_lost() -> None:
    """D5, D7: its version is older than the copy's."""
    of = agreeing(events=[V3], begin=2, parked=(parked("dead_letter", V1),))
    assert "dead_lettered" == found(of).cause
    assert "dead_lettered" == found(replace(of, copy=row(V3.fields))).cause


@pytest.mark.parametrize(
    "harmless",
    [
        agreeing(parked=(parked("retry", V2, resolved=BACK),)),
        agreeing(parked=(parked("retry", V2),), ledger=applied([V1, V3, V2])),
        agreeing(parked=(parked("retry", V3),)),
        agreeing(replace(LOGIN, guarded=True), parked=(parked("dead_letter", V2),)),
        agreeing(replace(LOGIN, records=True), parked=(parked("dead_letter", V2),)),
    ],
    ids=["resolved", "in the ledger", "the newest", "guarded", "immutable"],
)
def test_a_parked_record_that_does_no_harm(harmless: Case) -> None:
    """It is done with, is what the copy says, or would not be applied."""
    assert attribute(harmless) is None


def test_an_amount_that_is_parked_and_in_the_sum_was_applied() -> None:
    """It cannot be overtaken."""
    events = [event(1, {"balance": "5"}), event(2, {"balance": "6"})]
    state = row({"balance": "11", "tariff": "basic"}, 2)
    assert attribute(case(BILLING, state, state, events, parked=(parked("retry", events[0]),))) is None


def test_a_tariff_that_was_overtaken() -> None:
    """All that the parked change tells was told anew."""
    events = [event(1, {"tariff": "a"}), event(2, {"tariff": "b"})]
    state = row({"balance": "0", "tariff": "b"}, 2)
    assert "retrying" == found(case(BILLING, state, state, events, parked=(parked("retry", events[0]),))).cause


def test_a_gap_in_the_ledger() -> None:
    """A4, C7: an event was swallowed, and the next one brought the whole state."""
    finding = found(agreeing(ledger=applied([V1, V3])))
    assert ("skipped", "certain", "log_to_consumer", minute(2)) == (
        finding.cause,
        finding.confidence,
        finding.hop,
        finding.since,
    )


@pytest.mark.parametrize("noted", [1, 2])
def test_a_deletion_that_is_told_twice_is_noted_once(noted: int) -> None:
    """D9: change data capture tells of a deletion, and sends a tombstone behind it for the cleaner."""
    gone = [event(2, None), event(3, None)]
    again = event(4, person("d"))
    applied_once = applied([V1, gone[noted - 1], again])
    now = row(again.fields, 4)
    assert attribute(case(LOGIN, now, now, [V1, *gone, again], ledger=applied_once)) is None


def test_a_correction_closes_a_gap_in_the_ledger() -> None:
    """It told anew what was lost; whether the ledger shows the correction itself or not."""
    assert attribute(corrected(agreeing(ledger=applied([V1, V3])), V3)) is None
    assert attribute(corrected(agreeing(ledger=applied([V1, V3])), V1)) is not None


def test_a_correction_closes_a_gap_in_the_versions() -> None:
    """What stands before it was lost, and is known to be: it is no news every night."""
    of = replace(agreeing(PATCH), events=(V1, V3))
    assert "never_published" == found(of).cause
    assert attribute(corrected(of, V3)) is None


def test_a_ledger_by_position_cannot_know_what_has_none() -> None:
    """Debezium's snapshots and corrections stand nowhere in the source's log."""
    of = agreeing(ledger=applied([V1, V3]))
    nameless = replace(V2, event_id=f"{of.link.topic}-{V2.partition}@{V2.offset}")
    for by_position in (False, True):
        link = replace(of.link, ledger_by_position=by_position)
        assert by_position == (attribute(replace(of, link=link, events=(V1, nameless, V3))) is None)


def test_a_deletion_needs_no_position_to_be_missed() -> None:
    """The tombstone behind it has none, and never had: that says nothing of the deletion."""
    tombstone = event(4, None)
    nameless = replace(tombstone, event_id=f"{LOGIN.topic}-{tombstone.partition}@{tombstone.offset}")
    link = replace(LOGIN, ledger_by_position=True)
    finding = attribute(case(link, None, NOW, [*THREE, nameless], ledger=applied(THREE)))
    assert finding is not None
    assert ("orphan", "skipped", "certain") == (finding.difference, finding.cause, finding.confidence)


def corrected(of: Case, event: Event) -> Case:
    """Let an event be a correction of an earlier run."""
    return replace(of, link=replace(of.link, corrections=frozenset({(of.id, *event.place)})))


def test_the_ledger_does_not_reach_back() -> None:
    """Older entries were cleaned away."""
    of = agreeing(ledger=applied([V3]))
    assert attribute(replace(of, link=replace(of.link, ledger_since=minute(3)))) is None
    assert attribute(replace(of, link=replace(of.link, ledger_begins={0: 2}))) is None


def test_an_event_that_stands_twice_is_applied_once() -> None:
    """C1, C7: the ledger has one entry for both."""
    again = replace(V3, offset=3)
    assert attribute(agreeing(events=[*THREE, again], ledger=applied(THREE))) is None


def test_a_correction_closes_the_gap() -> None:
    """C7: the skipped version was stated anew, by an event of another id."""
    anew = replace(V3, offset=3, event_id="correction")
    assert attribute(agreeing(events=[*THREE, anew], ledger=applied([V1, V2, anew]))) is None


def test_an_event_that_was_not_due_is_no_gap() -> None:
    """The copy happens to agree already."""
    assert attribute(agreeing(ledger=applied(THREE[:2]), committed=2)) is None


def test_a_record_of_an_ignored_type_is_no_gap() -> None:
    """It says nothing of the state."""
    said = replace(V2, event_id="note", offset=7, ignored=True)
    assert attribute(agreeing(events=[*THREE, said], ledger=applied(THREE))) is None


def test_a_guarded_consumer_writes_no_entry_for_what_it_ignores() -> None:
    """C4: version 2 stands behind version 3."""
    v3, v2 = replace(V3, offset=1), replace(V2, offset=2)
    link = replace(LOGIN, guarded=True)
    assert attribute(agreeing(link, events=[V1, v3, v2], ledger=applied([V1, v3]))) is None


def test_the_newest_record_in_a_wrong_partition() -> None:
    """A2: the next event, in the right one, may overtake it."""
    stray = replace(V3, partition=1, offset=0, routing=Routing.WRONG, routed_by="crc32")
    finding = found(agreeing(events=[V1, V2, stray], partitions=(0, 1)))
    assert ("misrouted", "source_to_log") == (finding.cause, finding.hop)


def test_growth_alone_is_no_finding() -> None:
    """D3: what stands in the old partition is consumed."""
    events = [
        replace(V1, routing=Routing.FORMER),
        replace(V2, routing=Routing.FORMER),
        replace(V3, partition=1, offset=0),
    ]
    assert attribute(agreeing(events=events, partitions=(0, 1))) is None


def test_a_version_that_is_missing() -> None:
    """C2: it was lost before the log."""
    finding = found(agreeing(PATCH, events=[V1, V3]))
    assert ("never_published", "certain", "source_to_log", minute(3)) == (
        finding.cause,
        finding.confidence,
        finding.hop,
        finding.since,
    )


@pytest.mark.parametrize(
    "harmless",
    [
        agreeing(events=[V1, V3]),
        agreeing(replace(PATCH, dense_versions=False), events=[V1, V3]),
        agreeing(replace(PATCH, compacted=True), events=[V1, V3]),
        agreeing(PATCH, events=[V3], begin=2),
        agreeing(PATCH, events=[V1, replace(V2, ignored=True), V3]),
        agreeing(PATCH, events=[V1, replace(V2, fields={}, version=None, problem="not JSON"), V3]),
        agreeing(PATCH, events=[V1, V3], committed=1),
        agreeing(PATCH, events=[V1, replace(V3, offset=9)], begin=5),
        agreeing(PATCH, events=[V3, event(4, None), event(1, person("c"), offset=9)], begin=2),
    ],
    ids=[
        "events carry the whole state",
        "not dense",
        "compacted",
        "below the begin",
        "ignored",
        "unreadable",
        "not due",
        "kept from before a hole",
        "another life",
    ],
)
def test_a_version_that_is_not_missing(harmless: Case) -> None:
    """Its absence has another reason, or it is there."""
    assert attribute(harmless) is None


def test_the_most_dangerous_comes_first() -> None:
    """A parked record, before a gap in the ledger; the gap is in the evidence."""
    finding = found(agreeing(ledger=applied([V3]), parked=(parked("dead_letter", V2),)))
    assert "dead_lettered" == finding.cause
    assert "committed past it; not in the ledger" in [each.note for each in finding.evidence]


def test_a_ledger_that_is_empty_tells_nothing() -> None:
    """It may never have been written."""
    assert attribute(agreeing(replace(LOGIN, ledger=True))) is None


@pytest.mark.parametrize("unapplied", get_args(Unapplied))
def test_what_the_ledger_notes_as_not_applied(unapplied: Unapplied) -> None:
    """A1, C7: an event that the policy dropped is a loss, though an overtaken one; all else was meant so."""
    of = agreeing(ledger=(*applied([V1, V3]), noted(V2, unapplied)))
    if unapplied != "ignored":
        assert attribute(of) is None
    else:
        assert "skipped" == found(of).cause
        assert "noted as ignored, by the consumer's policy" in [each.note for each in found(of).evidence]
