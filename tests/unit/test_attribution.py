"""Each cause by its name, and the stories that a service's team would recognise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from reconcile.consumer.decision import Outcome
from reconcile.domain.attribution import attribute
from reconcile.domain.canonical import Kind
from reconcile.domain.case import Case, Event, LedgerEntry, Link, ParkedIn, Routing, Row, Unapplied, Undecided
from reconcile.domain.cause import Cause
from reconcile.domain.evidence import arrange, event_note, parked_note
from reconcile.domain.finding import Confidence, Finding, Status
from tests.unit.cases import (
    ACTIVITY,
    BILLING,
    LOGIN,
    UNVERSIONED,
    applied,
    case,
    event,
    history,
    minute,
    noted,
    parked,
    person,
    row,
)

NONE_OF_IT = ("", "", "", None, ())
THREE = history(person("Zoey"), person("Zoë"), person("Zoiee"))
V1, V2, V3 = THREE
SUMS = replace(BILLING, event_versions=False, source_versions=False, dense_versions=False)
AT_1, AT_2, AT_3 = (row(each.fields, each.version) for each in THREE)
TOP_UPS = [
    event(1, {"balance": "100"}),
    event(2, {"tariff": "plus"}),
    event(3, {"balance": "40"}),
    event(4, {"balance": "-15.5"}),
]
BALANCE = row({"balance": "124.5", "tariff": "plus"}, 4)


def found(of: Case) -> Finding:
    """Give the finding of a case that has one."""
    finding = attribute(of)
    assert finding is not None
    return finding


def named(of: Case) -> tuple[str, str, str, str | None, tuple[str, ...]]:
    """Give difference, cause, confidence, hop and fields."""
    finding = attribute(of)
    if finding is None:
        return NONE_OF_IT
    fields = tuple(each.name for each in finding.fields)
    return finding.difference, finding.cause, finding.confidence, finding.hop, fields


def balance(amount: str, tariff: str = "plus") -> Case:
    """Give billing's case with a copy that says this."""
    return case(BILLING, BALANCE, row({"balance": amount, "tariff": tariff}), TOP_UPS)


def test_what_agrees_is_no_finding() -> None:
    """Nothing lies ready to break it either."""
    assert attribute(case(LOGIN, AT_3, AT_3, THREE, ledger=applied(THREE))) is None


def test_what_is_nowhere_is_no_finding() -> None:
    """Deleted here and there."""
    assert attribute(case(LOGIN, None, None, [*THREE, event(4, None)])) is None


def test_an_event_that_was_not_due_is_in_flight() -> None:
    """B2: it stands at the committed offset."""
    finding = found(case(LOGIN, AT_3, AT_2, THREE, committed=2))
    assert ("in_flight", "certain", "log_to_consumer") == (finding.cause, finding.confidence, finding.hop)
    assert (Status.IN_FLIGHT, minute(3)) == (finding.status, finding.since)


def test_a_group_that_committed_nothing_has_all_before_it() -> None:
    """D1: its row is missing, and in flight."""
    assert "in_flight" == found(case(LOGIN, AT_3, None, THREE, committed=None)).cause


def test_a_copy_ahead_of_the_source_is_in_flight() -> None:
    """The newest event came after the source was read."""
    finding = found(case(LOGIN, AT_2, AT_3, THREE, settled_end=2))
    assert (Status.IN_FLIGHT, "in_flight") == (finding.status, finding.cause)


def test_a_source_that_has_just_moved_on_is_in_flight() -> None:
    """Its newest change has not been published yet."""
    assert Status.IN_FLIGHT is found(case(LOGIN, AT_3, AT_2, THREE[:2], settled_source=AT_2)).status


def test_a_source_that_agreed_a_moment_ago_has_just_moved_on() -> None:
    """What it said then was not read one by one: its digest agreed with the copy's."""
    unknown = case(LOGIN, AT_3, AT_2, THREE[:2], settled_source=None, agreed=True)
    assert Status.IN_FLIGHT is found(unknown).status
    assert "never_published" == found(replace(unknown, agreed=False)).cause
    new = case(LOGIN, AT_1, None, settled_source=None, agreed=True)
    assert Status.IN_FLIGHT is found(new).status
    gone = case(LOGIN, None, AT_2, THREE[:2], settled_source=None, settled_absent=False, agreed=True)
    assert Status.IN_FLIGHT is found(gone).status


def test_zoe_is_applied_last() -> None:
    """B15: Zoey becomes Zoë, then Zoiee; Zoë comes back by the retry topic, and the ledger tells the order."""
    retried = parked("retry", V2, resolved="its group has committed past it")
    finding = found(case(LOGIN, AT_3, AT_2, THREE, ledger=applied([V1, V3, V2]), parked=(retried,)))
    assert ("out_of_order", "certain", "log_to_consumer") == (finding.cause, finding.confidence, finding.hop)
    assert (("name",), minute(3)) == (tuple(each.name for each in finding.fields), finding.since)
    assert ["event", "event", "retry", "ledger", "ledger"] == [each.kind for each in finding.evidence]


def test_zoe_is_applied_last_and_no_ledger_tells() -> None:
    """B15, B4: the retry topic, which its group has read, shows it."""
    retried = parked("retry", V2, resolved="its group has committed past it")
    expected = ("changed", "out_of_order", "certain", "log_to_consumer", ("name",))
    assert expected == named(case(LOGIN, AT_3, AT_2, THREE, parked=(retried,)))


@pytest.mark.parametrize(
    ("kind", "cause"), [("retry", "retrying"), ("stash", "stashed"), ("dead_letter", "dead_lettered")]
)
def test_the_missing_event_is_parked(kind: str, cause: str) -> None:
    """B3, B4, B9: the newest event lies in a failure topic of the group."""
    of = case(LOGIN, AT_3, AT_2, THREE, parked=(parked(kind, V3),))  # type: ignore[arg-type]
    assert ("changed", cause, "certain", "log_to_consumer", ("name",)) == named(of)


def test_all_that_follows_is_stashed_too() -> None:
    """B10: the first message is stashed, and so are the later ones of the id."""
    of = case(
        LOGIN, AT_3, AT_1, THREE, ledger=applied([V1]), parked=(parked("stash", V2), parked("stash", V3))
    )  # fmt: skip
    assert "stashed" == found(of).cause
    assert minute(2) == found(of).since


def test_a_registration_is_dead_lettered() -> None:
    """B3: the copy has no row."""
    of = case(LOGIN, AT_1, None, [V1], parked=(parked("dead_letter", V1),))
    assert ("missing", "dead_lettered", "certain", "log_to_consumer", ()) == named(of)


def test_an_event_that_went_on_to_the_dead_letters_is_dead() -> None:
    """B4: it left the retry topic for the last one."""
    way = (parked("retry", V3, resolved="its group has committed past it"), parked("dead_letter", V3))
    assert "dead_lettered" == found(case(LOGIN, AT_3, AT_2, THREE, parked=way)).cause


def test_a_parked_amount_is_found_by_its_fold() -> None:
    """B3: without the two dead letters the changes give the copy."""
    dead = (parked("dead_letter", TOP_UPS[0]), parked("dead_letter", TOP_UPS[2]))
    of = case(BILLING, BALANCE, row({"balance": "-15.5", "tariff": "plus"}), TOP_UPS, parked=dead)
    assert ("changed", "dead_lettered", "certain", "log_to_consumer", ("balance",)) == named(of)


def test_a_dead_letter_saves_what_expired() -> None:
    """D5, D7: the topic has lost the event, the dead-letter topic has it with the source's version."""
    of = case(LOGIN, AT_3, AT_2, [], begin=50, parked=(parked("dead_letter", V3),))
    assert "dead_lettered" == found(of).cause


def test_a_swallowed_event_is_not_in_the_ledger() -> None:
    """A4: the offset was committed, and nothing was applied."""
    finding = found(case(LOGIN, AT_3, AT_2, THREE, ledger=applied(THREE[:2])))
    assert ("skipped", "certain", (), minute(3)) == (
        finding.cause,
        finding.confidence,
        finding.alternatives,
        finding.since,
    )
    assert "committed past it; not in the ledger" in [each.note for each in finding.evidence]


@pytest.mark.parametrize(
    ("unapplied", "cause", "note"),
    [
        ("ignored", "skipped", "noted as ignored, by the consumer's policy"),
        ("damaged", "skipped", "noted as damaged: skipped on purpose, because: no json"),
        ("discarded", "skipped", "noted as discarded from the stash by a person, because: no json"),
        ("older", "skipped", "noted as older: the consumer's guard dropped it"),
        ("dead_lettered", "dead_lettered", "noted as dead-lettered"),
        ("sent_on", "retrying", "noted as sent on to a retry topic"),
    ],
)
@pytest.mark.parametrize("link", [LOGIN, replace(LOGIN, patch=True)])
def test_a_ledger_notes_what_became_of_an_event(link: Link, unapplied: Unapplied, cause: str, note: str) -> None:
    """B1, C7: the consumer library says so itself, also of the first event of its ledger."""
    because = "no json" if unapplied in ("damaged", "discarded") else None
    of = case(link, AT_3, AT_2, THREE, ledger=(*applied(THREE[:2]), noted(V3, unapplied, because)))
    since = replace(of, link=replace(of.link, ledger_since=minute(150)))
    for each in (of, since):
        assert (cause, "certain") == named(each)[1:3]
        evidence = {(one.kind, one.note) for one in found(each).evidence}
        assert ("ledger", note) in evidence
        assert ("event", "committed past it; not in the ledger") not in evidence


def test_every_outcome_of_the_library_is_known() -> None:
    """What its ledger may say of an event that was not applied."""
    assert {each.value for each in Outcome} - {"applied"} == set(get_args(Unapplied))


def test_a_dead_letter_that_was_read_is_not_applied_if_the_ledger_says_so() -> None:
    """D7: somebody has committed past it and thrown it away."""
    read, entries = (parked("dead_letter", V3, "read"),), (*applied(THREE[:2]), noted(V3, "dead_lettered"))
    assert ("dead_lettered", "certain") == named(case(LOGIN, AT_3, AT_2, THREE, parked=read, ledger=entries))[1:3]


@pytest.mark.parametrize(
    ("topic", "unapplied", "cause"),
    [
        ("reconcile.stash", "dead_lettered", "stashed"),
        ("user-account.login.stash", "dead_lettered", "dead_lettered"),
        ("reconcile.stash", "discarded", "stashed"),
        (None, "dead_lettered", "dead_lettered"),
        (None, "discarded", "skipped"),
        (None, "older", "skipped"),
    ],
)
def test_a_dead_letter_that_is_replayed_is_where_the_library_has_it(
    topic: str | None, unapplied: Unapplied, cause: str
) -> None:
    """D7: it waits in the stash, behind which it may be discarded; the letter itself stays where it was."""
    stashed = () if topic is None else (parked("stash", V3, topic=topic),)
    lying = (*stashed, parked("dead_letter", V3))
    of = case(LOGIN, AT_3, AT_2, THREE, parked=lying, ledger=(*applied(THREE[:2]), noted(V3, unapplied)))
    assert (cause, "certain") == named(of)[1:3]


def test_what_was_told_anew_is_not_what_is_missing() -> None:
    """B3, C6: a tariff lies among the dead letters, and was overtaken; then an amount was lost."""
    tariffs = [event(number, {"tariff": tariff}) for number, tariff in enumerate("abc", 1)]
    log = [*tariffs, event(4, {"balance": "5"}), event(5, {"balance": "7"})]
    now, then = row({"balance": "12", "tariff": "c"}, 5), row({"balance": "5", "tariff": "c"})
    applied_of_it = applied([log[0], log[2], log[3]])
    of = case(BILLING, now, then, log, parked=(parked("dead_letter", log[1]),), ledger=applied_of_it)
    assert ("changed", "skipped", "certain", "log_to_consumer", ("balance",)) == named(of)
    assert minute(5) == found(of).since
    assert minute(5) == found(replace(of, parked=())).since


def test_an_entry_of_another_event_at_the_same_place() -> None:
    """The topic was made anew: by its id an entry speaks of another event, that stood there before."""
    old = LedgerEntry("another", V3.place, minute(50))
    of = case(LOGIN, AT_3, AT_2, THREE, ledger=(old, *applied(THREE[:2])))
    assert ("changed", "skipped", "certain", "log_to_consumer", ("name",)) == named(of)
    assert attribute(case(LOGIN, AT_3, AT_3, THREE, ledger=(old, *applied(THREE)))) is None
    nameless = [replace(each, event_id=f"{LOGIN.topic}-0@{each.offset}") for each in THREE]
    assert attribute(case(LOGIN, AT_3, AT_3, nameless, ledger=applied(THREE))) is None


def test_a_ledger_of_ids_alone() -> None:
    """C7: when an event was applied it does not say; that it was, it does."""
    link = replace(LOGIN, ledger=True, ledger_since=V1.at)
    entries = tuple(LedgerEntry(each.event_id, None, None) for each in THREE)
    assert attribute(case(link, AT_3, AT_3, THREE, ledger=entries)) is None
    assert ("skipped", "certain") == named(case(link, AT_3, AT_2, THREE, ledger=entries[:2]))[1:3]
    for since in (V1.at, None):
        link = replace(link, ledger_since=since)
        assert ("out_of_order", "certain") == named(case(link, AT_3, AT_2, THREE, ledger=entries))[1:3]
        edited = row(person("Zoiee", "edited@x"))
        link = replace(link, copy_versions=False)
        assert ("foreign_write", "certain") == named(case(link, AT_3, edited, THREE, ledger=entries))[1:3]


def test_a_ledger_spells_ids_its_own_way() -> None:
    """C7: a column of uuids gives them in small letters."""
    capital = [replace(each, event_id=f"3F2504E0-4F89-11D3-9A0C-0305E82C330{n}") for n, each in enumerate(THREE)]
    ledger = tuple(LedgerEntry(each.event_id.lower(), None, minute(50)) for each in capital)
    assert attribute(case(LOGIN, AT_3, AT_3, capital, ledger=ledger)) is None
    assert ("skipped", "certain") == named(case(LOGIN, AT_3, AT_2, capital, ledger=ledger[:2]))[1:3]


def test_a_stash_spells_ids_its_own_way() -> None:
    """C5, C7: a table of uuids without a place gives them in small letters."""
    capital = [replace(each, event_id=f"3F2504E0-4F89-11D3-9A0C-0305E82C330{n}") for n, each in enumerate(THREE)]
    lying = parked("stash", capital[2], origin=None, version=None, event_id=capital[2].event_id.lower())
    assert ("stashed", "certain") == named(case(LOGIN, AT_3, AT_2, capital, parked=(lying,)))[1:3]


def test_a_swallowed_registration() -> None:
    """A4: the copy has no row, the ledger no entry."""
    older = applied(history(person("Another")))
    of = case(LOGIN, AT_1, None, [replace(V1, event_id="x", offset=5)], ledger=older)
    assert ("missing", "skipped", "certain", "log_to_consumer", ()) == named(of)


@pytest.mark.parametrize("sums", [True, False])
def test_a_registration_was_lost_and_what_came_behind_met_no_row(sums: bool) -> None:
    """A4, B3: the ledger notes the later events, which changed nothing."""
    log = TOP_UPS if sums else THREE
    of = case(BILLING if sums else LOGIN, BALANCE if sums else AT_3, None, log, ledger=applied(log[1:]))
    assert ("missing", "skipped", "probable", "log_to_consumer", ()) == named(of)
    assert minute(1) == found(of).since
    dead = replace(of, parked=(parked("dead_letter", log[0]),))
    assert ("missing", "dead_lettered", "probable", "log_to_consumer", ()) == named(dead)
    assert "foreign_write" == found(replace(of, ledger=applied(log))).cause


def test_an_ignored_tombstone() -> None:
    """D9: the consumer does not expect a null value."""
    of = case(LOGIN, None, AT_3, [*THREE, event(4, None)], ledger=applied(THREE))
    assert ("orphan", "skipped", "certain", "log_to_consumer", ()) == named(of)


@pytest.mark.parametrize("link", [UNVERSIONED, replace(UNVERSIONED, patch=True)])
def test_a_deletion_and_its_tombstone_are_one_loss(link: Link) -> None:
    """D9: a connector writes both."""
    gone = [event(4, None), event(5, None)]
    log = [*(replace(each, version=None) for each in THREE), *gone]
    one, both = (found(case(link, None, row(V3.fields), log[:end])) for end in (4, 5))
    assert ("skipped", "possible", minute(4)) == (both.cause, both.confidence, both.since)
    assert (one.cause, one.confidence, one.alternatives) == (both.cause, both.confidence, both.alternatives)


def test_a_deletion_and_its_tombstone_were_lost_before_what_is_there_again() -> None:
    """D9: the new life's amounts were added to those of the old one."""
    log = [event(1, {"balance": "5"}), event(2, None), event(3, None), event(4, {"balance": "7"})]
    log = [replace(each, version=None) for each in log]
    finding = found(case(SUMS, row({"balance": "7"}), row({"balance": "12"}), log))
    assert ("skipped", "possible", minute(2)) == (finding.cause, finding.confidence, finding.since)


def test_a_deletion_came_before_what_it_deletes() -> None:
    """D9: of the tariff that the copy has no event told."""
    of = case(BILLING, None, row({"balance": "10", "tariff": "basic"}), [event(1, {"balance": "10"}), event(2, None)])
    assert ("orphan", "skipped", "possible", "log_to_consumer", ()) == named(of)


def test_without_a_ledger_the_last_event_is_skipped_or_overtaken() -> None:
    """A4: the likelier is said, the other is an alternative."""
    finding = found(case(LOGIN, AT_3, AT_2, THREE))
    assert ("skipped", "possible", ("out_of_order", "foreign_write")) == (
        finding.cause,
        finding.confidence,
        finding.alternatives,
    )


def test_a_record_that_was_ignored() -> None:
    """B1: a feed loses a record, and keeps no ledger."""
    source = row(V1.fields)
    of = case(ACTIVITY, source, None, [replace(V1, version=None)])
    assert ("missing", "skipped", "probable", "log_to_consumer", ()) == named(of)


def test_a_record_that_was_ignored_where_others_have_expired() -> None:
    """B1, D5: its one event is there, so that nothing of it is gone."""
    source, log = row(V1.fields), [replace(V1, version=None, offset=20)]
    assert ("missing", "skipped", "probable") == named(case(ACTIVITY, source, None, log, begin=10))[:3]
    swallowed = case(ACTIVITY, source, None, log, begin=10, ledger=())
    assert ("missing", "skipped", "certain") == named(swallowed)[:3]
    edited = case(ACTIVITY, source, row(person("edited")), log, begin=10)
    assert ("changed", "foreign_write", "certain") == named(edited)[:3]
    gone = case(ACTIVITY, None, source, [event(20, None)], begin=10)
    assert ("orphan", "expired", "possible") == named(gone)[:3]


def test_an_amount_that_is_missing() -> None:
    """C6, D1: committed and not processed; all events but this one give the copy."""
    assert ("changed", "skipped", "certain", "log_to_consumer", ("balance",)) == named(balance("84.5"))


def test_a_sum_may_be_null() -> None:
    """Nothing was added to it yet; whether it is NULL on both sides, in the copy alone, or that is what differs."""
    log = [event(1, {"tariff": "a"}), event(2, {"tariff": "b"}), event(3, {"balance": "5"})]
    for link in (BILLING, SUMS):
        now, then = (row({"balance": None, "tariff": tariff}, 2) for tariff in "ba")
        assert "skipped" == found(case(link, now, then, log[:2])).cause
        assert "in_flight" == found(case(link, now, then, log[:2], committed=1)).cause
        owed = row({"balance": "5", "tariff": "b"}, 3)
        assert "skipped" == found(case(link, owed, now, log)).cause
        gone = [*log[:2], event(3, None)]
        assert ("orphan", "skipped", "certain") == named(case(link, None, now, gone, ledger=applied(log[:2])))[:3]
        nothing = row({"balance": "0", "tariff": "b"}, 2)
        assert "foreign_write" == found(case(link, nothing, now, log[:2])).cause


@pytest.mark.parametrize(
    ("copy", "cause"),
    [
        ((0.1 + 0.2 + 0.3, "a"), "skipped"),
        ((0.1 + 0.2, "b"), "skipped"),
        ((0.1 + 0.3, "b"), "skipped"),
        ((0.1 + 0.2 + 0.3 + 0.3, "b"), "duplicate_applied"),
        ((0.87, "b"), "foreign_write"),
    ],
)
@pytest.mark.parametrize("begin", [0, 1])
def test_a_sum_of_floats_is_rounded(copy: tuple[float, str], cause: str, begin: int) -> None:
    """0.1 and 0.2 and 0.3 are not 0.6."""
    link = replace(BILLING, fields=(replace(BILLING.fields[0], kind=Kind.FLOAT), BILLING.fields[1]))
    amounts: list[dict[str, str | None]] = [{"balance": "0.1", "tariff": "a"}, {"balance": "0.2"}, {"balance": "0.3"}]
    log = history(*amounts, {"tariff": "b"})
    sums = row({"balance": repr(0.1 + 0.2 + 0.3), "tariff": "b"}, 4)
    then = row({"balance": repr(copy[0]), "tariff": copy[1]})
    finding = found(case(link, sums, then, log[begin:], begin=begin))
    assert cause in (finding.cause, *finding.alternatives)


def test_a_small_amount_of_a_large_sum_of_floats() -> None:
    """C6: a sum of a billion hides no half, and its rounding no amount."""
    link = replace(BILLING, fields=(replace(BILLING.fields[0], kind=Kind.FLOAT),))
    amounts = ("1000000000", "0.3", "0.5", "0.25")
    log = history(*({"balance": each} for each in amounts))
    kept = [float(each) for each in amounts]
    source = row({"balance": repr(sum(kept))}, 4)
    for number, lost in enumerate(kept[1:], 2):
        copy = row({"balance": repr(sum(each for each in kept if each != lost))})
        finding = found(case(link, source, copy, log))
        assert ("skipped", "certain", minute(number)) == (finding.cause, finding.confidence, finding.since)


def test_two_losses_that_do_not_stand_in_a_row() -> None:
    """A4, B3: each event told of another field."""
    log = [
        event(1, {"name": "a", "email": "x", "phone": "1"}),
        event(2, {"name": "b"}),
        event(3, {"phone": "2"}),
        event(4, {"email": "y"}),
    ]
    link = replace(LOGIN, patch=True, copy_versions=False)
    source = row(person("b", "y", "2"), 4)
    finding = found(case(link, source, row(person("a", "x", "2")), log))
    assert ("skipped", "possible", minute(2)) == (finding.cause, finding.confidence, finding.since)
    assert "foreign_write" in finding.alternatives
    assert [1, 3] == [each.offset for each in finding.evidence if each.kind == "event"]
    for edited in (person("a", "edited", "2"), person("a", None, "2")):
        assert ("foreign_write", "certain") == named(case(link, source, row(edited), log))[1:3]
    both = [log[0], log[1], event(3, {"email": "y", "phone": "2"})]
    shown = case(link, row(person("b", "y", "2"), 3), row(person("a", "x", "2")), both)
    assert ("foreign_write", "certain") == named(shown)[1:3]


def test_two_that_were_applied_after_two_newer_ones() -> None:
    """B15: without a ledger the loss of the newer ones looks the same."""
    first = event(1, {"name": "a", "email": "x"})
    changes = ({"name": "b"}, {"email": "y"}, {"name": "c"}, {"email": "z"})
    log = [first, *(event(number, each) for number, each in enumerate(changes, 2))]
    link = replace(LOGIN, patch=True, copy_versions=False)
    finding = found(case(link, row(person("c", "z"), 5), row(person("b", "y")), log))
    assert ("skipped", "possible") == (finding.cause, finding.confidence)
    assert ("out_of_order", "foreign_write") == finding.alternatives


def test_two_losses_of_which_one_took_an_amount_along() -> None:
    """A4, B3: what the copy says was said once, and a sum is wrong: several faults can give that."""
    log = [
        event(1, {"balance": "100", "tariff": "a"}),
        event(2, {"balance": "10", "tariff": "b"}),
        event(3, {"balance": "5"}),
        event(4, {"balance": "7", "tariff": "c"}),
        event(5, {"balance": "3"}),
    ]
    source = row({"balance": "125", "tariff": "c"}, 5)
    finding = found(case(BILLING, source, row({"balance": "105", "tariff": "a"}), log))
    assert ("foreign_write", "possible") == (finding.cause, finding.confidence)
    assert ("skipped", "duplicate_applied", "out_of_order") == finding.alternatives
    apart = found(case(BILLING, source, row({"balance": "108", "tariff": "a"}), log))
    assert ("skipped", "possible") == (apart.cause, apart.confidence)
    made = found(case(BILLING, source, row({"balance": "8", "tariff": "basic"}), log))
    assert ("skipped", "possible") == (made.cause, made.confidence)
    never = case(BILLING, source, row({"balance": "105", "tariff": "edited"}), log)
    assert ("foreign_write", "certain") == named(never)[1:3]


def test_a_batch_that_is_missing() -> None:
    """C8: two amounts in a row."""
    finding = found(balance("100"))
    assert ("skipped", "probable", minute(3)) == (finding.cause, finding.confidence, finding.since)


def test_an_amount_that_was_added_twice() -> None:
    """C3: processed, not committed, and processed again."""
    assert ("changed", "duplicate_applied", "certain", "log_to_consumer", ("balance",)) == named(balance("164.5"))


def test_an_amount_that_was_added_twice_and_noted_once() -> None:
    """C3, C7: the ledger takes an event's id once; an edit of just this amount would look the same."""
    of = replace(balance("164.5"), ledger=applied(TOP_UPS))
    of = replace(of, link=replace(of.link, ledger=True, ledger_since=minute(0)))
    finding = found(of)
    assert ("duplicate_applied", "probable", minute(3)) == (finding.cause, finding.confidence, finding.since)
    assert ("foreign_write",) == finding.alternatives
    other = replace(of, copy=row({"balance": "164.51", "tariff": "plus"}))
    assert ("foreign_write", "certain") == named(other)[1:3]


def test_an_amount_that_stands_twice() -> None:
    """C1: an acknowledgement was lost, and the producer sent again."""
    again = replace(TOP_UPS[2], offset=4, at=minute(5))
    of = case(BILLING, BALANCE, row({"balance": "164.5", "tariff": "plus"}), [*TOP_UPS, again])
    finding = found(of)
    assert ("duplicate_applied", "certain", "log_to_consumer") == (finding.cause, finding.confidence, finding.hop)
    assert [2, 4] == [each.offset for each in finding.evidence if each.kind == "event"]


@pytest.mark.parametrize("named_too", [True, False])
def test_an_amount_that_stands_twice_and_is_noted_twice(named_too: bool) -> None:
    """C1, C7: the ledger knows records by their offsets, so that both of one event were applied."""
    again = replace(TOP_UPS[2], offset=4, at=minute(5))
    log = [*TOP_UPS, again]
    ledger = tuple(each if named_too else replace(each, event_id=None) for each in applied(log))
    of = case(BILLING, BALANCE, row({"balance": "164.5", "tariff": "plus"}), log, ledger=ledger)
    finding = found(of)
    assert ("duplicate_applied", "certain", "log_to_consumer") == (finding.cause, finding.confidence, finding.hop)
    assert [2, 4] == [each.offset for each in finding.evidence if each.kind == "event"]


def test_a_record_that_was_appended_twice() -> None:
    """C3: the feed has two rows of one event."""
    source = row(V1.fields)
    of = case(ACTIVITY, source, replace(source, count=2), [replace(V1, version=None)])
    assert ("duplicated", "duplicate_applied", "probable", "log_to_consumer", ()) == named(of)


def test_a_change_that_was_never_published() -> None:
    """C2: the source is at a version that the log never had."""
    finding = found(case(LOGIN, AT_3, AT_2, THREE[:2]))
    assert ("never_published", "certain", "source_to_log") == (finding.cause, finding.confidence, finding.hop)
    assert finding.since is None


def test_a_registration_that_was_never_published() -> None:
    """C2: the log has no event of it."""
    assert ("missing", "never_published", "certain", "source_to_log", ()) == named(case(LOGIN, AT_1, None))


def test_a_registration_is_looked_for_where_its_key_belongs() -> None:
    """D5: another partition has lost its beginning, which says nothing of this one."""
    of = case(LOGIN, AT_1, None, partitions=(0, 1))
    places = {**of.link.places, 1: replace(of.link.places[1], begin=40)}
    of = replace(of, link=replace(of.link, places=places), homes=(0,))
    assert ("missing", "never_published", "certain", "source_to_log", ()) == named(of)


def test_what_is_there_again_as_it_was() -> None:
    """D9: deleted, and made anew with the first state at the first version."""
    again = event(1, person("Zoey"), offset=3, at=minute(4), event_id="again")
    log = [V1, V2, event(3, None), again]
    assert attribute(case(LOGIN, AT_1, AT_1, log, ledger=applied(log))) is None
    assert Status.IN_FLIGHT is found(case(LOGIN, AT_1, None, log, committed=3)).status
    assert "skipped" == found(case(LOGIN, AT_1, None, log)).cause
    assert ("missing", "skipped", "certain", "log_to_consumer", ()) == named(
        case(LOGIN, AT_1, None, log, ledger=applied(log[:3]))
    )
    assert "foreign_write" == found(case(LOGIN, AT_1, row(person("Zoey", "edited@x"), 1), log)).cause


def test_a_deletion_that_was_never_published() -> None:
    """C2: the source is gone, and the newest event does not delete."""
    assert ("orphan", "never_published", "possible", "source_to_log", ()) == named(case(LOGIN, None, AT_3, THREE))


def test_an_outbox_that_is_stuck() -> None:
    """C2: its row says why."""
    finding = found(case(LOGIN, AT_3, AT_2, THREE[:2], outbox_pending=1))
    assert ("never_published", "certain", "outbox") == (finding.cause, finding.confidence, finding.evidence[0].kind)


def test_an_amount_that_was_never_published() -> None:
    """C2: a version is missing between two others, and the changes do not add up."""
    lost = [TOP_UPS[0], TOP_UPS[1], TOP_UPS[3]]
    of = case(BILLING, BALANCE, row({"balance": "84.5", "tariff": "plus"}), lost)
    assert ("changed", "never_published", "certain", "source_to_log", ("balance",)) == named(of)


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize(
    ("told", "source", "copy", "likelier"),
    [
        ([{"balance": "5"}, {"balance": "7"}], ("100", "a"), ("94", "a"), "never_published"),
        ([{"balance": "5"}, {"balance": "6"}], ("100", "a"), ("94", "a"), "skipped"),
        ([{"balance": "5"}, {"balance": "6"}], ("100", "a"), ("106", "a"), "duplicate_applied"),
        ([{"balance": "5"}, {"balance": "7"}], ("100", "b"), ("100", "a"), "never_published"),
    ],
)
def test_what_was_never_published_where_the_log_does_not_reach_back(
    told: list[dict[str, str | None]], source: tuple[str, str], copy: tuple[str, str], likelier: str, noted: bool
) -> None:
    """C2, D5: version 6 is not there; what goes back from the source does not show it, and the copy may."""
    log = [event(number, fields) for number, fields in zip((5, 7), told, strict=True)]
    now, then = (row(dict(zip(("balance", "tariff"), each, strict=True)), 7) for each in (source, copy))
    ledger: dict[str, Any] = {"ledger": applied(log)} if noted else {}
    finding = found(case(BILLING, now, then, log, begin=4, **ledger))
    # A ledger that shows each of them once leaves no loss and no doubling of one.
    cause = "never_published" if noted else likelier
    confidence = "possible" if cause == "never_published" else "probable"
    assert (cause, confidence) == (finding.cause, finding.confidence)
    assert "never_published" in (finding.cause, *finding.alternatives)
    compacted = case(replace(BILLING, compacted=True), now, then, log, begin=4, **ledger)
    assert "never_published" != found(compacted).cause
    assert "never_published" != found(case(BILLING, now, then, [*log[:1], event(6, {}), log[1]], begin=4)).cause


CUT = [event(number, {"balance": str(number)}) for number in (5, 6, 8, 9)]


def cut(copy: str, link: Link = BILLING, **more: Any) -> Finding:
    """Give what is found of a sum of 100 in a log that is cut, where version 7 is missing."""
    return found(case(link, row({"balance": "100"}, 9), row({"balance": copy}), CUT, begin=4, **more))


@pytest.mark.parametrize(
    ("copy", "lies", "cause"),
    [
        ("27", None, "skipped"),
        ("35", None, "duplicate_applied"),
        ("27", "stash", "stashed"),
        ("27", "dead_letter", "dead_lettered"),
    ],
)
def test_what_went_wrong_before_a_ledger_that_was_cleaned(copy: str, lies: ParkedIn | None, cause: str) -> None:
    """C6, C7: the ledger knows the last two events alone, and shows them applied."""
    log = history(*({"balance": each} for each in ("1", "2", "4", "8", "16")))
    link = replace(BILLING, ledger=True, ledger_begins={0: 3}, ledger_since=log[3].at)
    lying = (parked(lies, log[2]),) if lies else ()
    of = case(link, row({"balance": "31"}, 5), row({"balance": copy}), log, ledger=applied(log[3:]), parked=lying)
    finding = found(of)
    assert (cause, "certain") == (finding.cause, finding.confidence)


def test_what_a_ledger_shows_was_not_lost() -> None:
    """C6, C7: two events tell of as much, and the ledger shows one of them applied."""
    log = history(*({"balance": each} for each in ("1", "4", "4", "8")))
    link = replace(BILLING, ledger=True, ledger_begins={0: 2}, ledger_since=log[2].at)
    sums, then = row({"balance": "17"}, 4), row({"balance": "13"})
    finding = found(case(link, sums, then, log, ledger=applied(log[2:])))
    assert ("skipped", "certain", minute(2)) == (finding.cause, finding.confidence, finding.since)


def test_what_the_ledger_shows_twice_is_not_what_a_gap_made() -> None:
    """C2, C3: version 7 is missing, and the last amount was applied twice."""
    finding = cut("109", ledger=applied([*CUT, CUT[-1]]))
    assert ("duplicate_applied", "certain") == (finding.cause, finding.confidence)
    both = cut("102", ledger=applied([*CUT, CUT[-1]]))
    assert ("never_published", "possible") == (both.cause, both.confidence)


def test_a_gap_may_not_have_made_what_differs() -> None:
    """C2: an edit looks the same, whatever the ledger shows of the events that are there."""
    finding = cut("1234", ledger=applied(CUT))
    assert ("never_published", "possible") == (finding.cause, finding.confidence)
    assert "foreign_write" in finding.alternatives


def test_a_gap_that_a_correction_closed_is_none() -> None:
    """C2: an earlier run has restated what version 7 told."""
    link = replace(BILLING, corrections=frozenset({("a", 0, 7)}))
    finding = cut("109", link, ledger=applied([*CUT, CUT[-1]]))
    assert ("duplicate_applied", "certain") == (finding.cause, finding.confidence)
    assert ("skipped", "certain") == (cut("91", link).cause, cut("91", link).confidence)
    assert "never_published" != cut("1234", link, ledger=applied(CUT)).cause


def test_a_gap_does_not_make_a_row_go_away() -> None:
    """C2, E2: nothing that version 7 can have told deletes it."""
    of = case(BILLING, row({"balance": "100"}, 9), None, CUT, begin=4, ledger=applied(CUT))
    assert "never_published" != found(of).cause


def test_a_gap_does_not_explain_what_the_ledger_lacks() -> None:
    """C2, C6: an older version is missing, and an amount was lost."""
    log = [event(number, {"balance": str(number)}) for number in (5, 7, 8)]
    now, then = (row({"balance": each, "tariff": "a"}, 8) for each in ("100", "92"))
    of = case(BILLING, now, then, log, begin=4, ledger=applied(log[:2]))
    assert ("skipped", "certain") == named(of)[1:3]
    assert Status.IN_FLIGHT is found(case(BILLING, now, then, log, begin=4, committed=7)).status


def test_a_source_that_was_restored() -> None:
    """A6: it came back from a backup, and had published more."""
    finding = found(case(LOGIN, AT_2, AT_3, THREE))
    assert ("source_regressed", "certain", "source_to_log") == (finding.cause, finding.confidence, finding.hop)
    assert minute(3) == finding.since


def test_a_wrong_payload() -> None:
    """A5: the version is the source's, the e-mail is not."""
    wrong = replace(V3, fields=person("Zoiee", "another@x"))
    of = case(LOGIN, AT_3, row(wrong.fields, 3), [V1, V2, wrong])
    assert ("changed", "payload_divergence", "certain", "source_to_log", ("email",)) == named(of)


def test_a_wrong_change() -> None:
    """A5: the newest event carries what changed, and says something else than the source of its version."""
    log = [event(1, {"balance": "100", "tariff": "plus"}), event(2, {"balance": "40"}), event(3, {"tariff": "silver"})]
    now, then = (row({"balance": "140", "tariff": tariff}, 3) for tariff in ("gold", "silver"))
    expected = ("changed", "payload_divergence", "certain", "source_to_log", ("tariff",))
    assert expected == named(case(BILLING, now, then, log))
    assert expected == named(case(BILLING, now, then, log[2:], begin=2))
    earlier = [log[0], event(2, {"tariff": "silver"}), event(3, {"balance": "40"})]
    assert ("payload_divergence", "probable") == named(case(BILLING, now, then, earlier))[1:3]


def test_an_amount_that_was_never_published_is_not_told_by_a_correction() -> None:
    """C2: a correction has brought the source's tariff at its version, and the amount of that is nowhere."""
    log = [*TOP_UPS[:3], event(4, {"tariff": "gold"}, event_id="correction")]
    now, then = row({"balance": "124.5", "tariff": "gold"}, 4), row({"balance": "140", "tariff": "gold"})
    of = case(BILLING, now, then, log)
    assert ("payload_divergence", "probable") == named(of)[1:3]
    corrected = replace(of, link=replace(of.link, corrections={("a", 0, 3)}))
    assert ("changed", "never_published", "certain", "source_to_log", ("balance",)) == named(corrected)


def test_a_wrong_payload_that_did_not_reach_the_copy() -> None:
    """A5: what agrees is no finding, whatever an event says."""
    wrong = replace(V3, fields=person("Zoiee", "another@x"))
    assert attribute(case(LOGIN, AT_3, AT_3, [V1, V2, wrong])) is None


@pytest.mark.parametrize("version", [None, 3])
def test_a_record_that_cannot_be_read(version: int | None) -> None:
    """A1: cut-off JSON, or a record without a version."""
    broken = replace(V3, fields={}, version=version, problem="not JSON")
    of = case(LOGIN, AT_3, AT_2, [V1, V2, broken], ledger=applied([V1, V2]))
    assert ("changed", "schema_violation", "certain", "source_to_log", ("name",)) == named(of)


def test_a_broken_record_that_was_mended_is_not_to_blame() -> None:
    """A1: a later record brings the source's state; it was skipped."""
    broken = replace(V2, fields={}, version=None, problem="not JSON")
    assert "skipped" == found(case(LOGIN, AT_3, AT_1, [V1, broken, V3])).cause


def test_an_amount_in_words() -> None:
    """A1: one field of a change cannot be read."""
    broken = replace(TOP_UPS[2], fields={}, bad_fields=("balance",))
    of = case(
        BILLING, BALANCE, row({"balance": "84.5", "tariff": "plus"}), [*TOP_UPS[:2], broken, TOP_UPS[3]]
    )  # fmt: skip
    assert ("changed", "schema_violation", "certain", "source_to_log", ("balance",)) == named(of)


def test_a_field_of_which_no_event_told() -> None:
    """The contract says how events tell of it, and none of them could: it was written by somebody else, perhaps."""
    events = [event(number, {"name": each.fields["name"]}) for number, each in enumerate(THREE, 1)]
    finding = found(case(LOGIN, AT_3, row({**AT_3.fields, "email": "other"}, 3), events))
    assert ("foreign_write", "possible") == (finding.cause, finding.confidence)
    assert ("skipped", "never_published") == finding.alternatives


def test_what_retention_took_cannot_be_told() -> None:
    """D5: no event of it is left."""
    assert ("changed", "expired", "certain", None, ("name",)) == named(case(LOGIN, AT_3, AT_2, begin=50))


@pytest.mark.parametrize(
    ("balance", "tariff", "begin", "cause"),
    [
        ("84.5", "plus", 0, "skipped"),
        ("84.5", "plus", 1, "skipped"),
        ("164.5", "plus", 0, "duplicate_applied"),
        ("140", "basic", 0, "skipped"),
    ],
)
def test_an_amount_beside_the_state(balance: str, tariff: str, begin: int, cause: str) -> None:
    """B1, C3, D5: an event carries all fields, and for one of them what is added to it."""
    amounts = (("100", "basic"), ("0", "basic"), ("40", "basic"), ("-15.5", "plus"))
    events = [event(number, {"balance": each, "tariff": at}) for number, (each, at) in enumerate(amounts, 1)]
    link = replace(BILLING, patch=False)
    assert attribute(case(link, BALANCE, replace(BALANCE, version=None), events)) is None
    wrong = case(link, BALANCE, row({"balance": balance, "tariff": tariff}), events[begin:], begin=begin)
    assert cause == found(wrong).cause
    ahead = case(link, row({"balance": "140", "tariff": "basic"}, 3), BALANCE, events[begin:], settled_end=3)
    assert Status.IN_FLIGHT is found(ahead).status


@pytest.mark.parametrize("compacted", [True, False])
@pytest.mark.parametrize(
    ("source", "copy", "left"),
    [
        (AT_3, row(V2.fields), [V3]),
        (AT_3, row(V1.fields), [V2, V3]),
        (AT_3, None, [V3]),
        (None, row(V3.fields), [event(4, None)]),
    ],
    ids=["changed", "changed twice", "missing", "orphan"],
)
def test_what_is_left_of_the_log_was_not_applied(
    compacted: bool, source: Row | None, copy: Row | None, left: list[Event]
) -> None:
    """D5: where the copy was before is gone; that all which is left lies in a failure topic, or was lost, is not."""
    link = replace(LOGIN, copy_versions=False, compacted=compacted)
    for kind, cause in (("retry", "retrying"), ("stash", "stashed"), ("dead_letter", "dead_lettered")):
        lying = tuple(parked(kind, each) for each in left)  # type: ignore[arg-type]
        of = case(link, source, copy, left, begin=left[0].offset, parked=lying)
        assert (cause, "certain", "log_to_consumer") == named(of)[1:4]
    of = case(link, source, copy, left, begin=left[0].offset, ledger=())
    assert ("skipped", "certain", "log_to_consumer") == named(of)[1:4]
    assert named(case(link, source, copy, left, begin=left[0].offset))[1] in ("expired", "foreign_write")


def test_what_was_kept_from_before_a_hole_is_not_all() -> None:
    """D5: retention took records, before a run could read them, between two that were kept."""
    v3 = replace(V3, offset=9)
    of = case(UNVERSIONED, row(V3.fields), row(V2.fields), [V1, v3], begin=5)
    assert "expired" == found(of).cause
    of = case(replace(LOGIN, copy_versions=False), AT_3, row(V2.fields), [V1, v3], begin=5)
    assert "expired" == found(of).cause
    sums = [TOP_UPS[0], replace(TOP_UPS[2], offset=9)]
    of = case(BILLING, row({"balance": "160", "tariff": "plus"}, 3), row({"balance": "120", "tariff": "plus"}), sums)
    assert "never_published" == found(of).cause
    places = {0: replace(of.link.places[0], begin=5, committed=9)}
    assert "in_flight" == found(replace(of, link=replace(of.link, places=places))).cause
    places = {0: replace(of.link.places[0], begin=5)}
    assert "skipped" == found(replace(of, link=replace(of.link, places=places))).cause


def test_the_log_itself_is_out_of_order() -> None:
    """C4: two requests were in flight; the second was written first, and the copy follows."""
    v3, v2 = replace(V3, offset=1, at=minute(2)), replace(V2, offset=2, at=minute(3))
    of = case(LOGIN, AT_3, AT_2, [V1, v3, v2], ledger=applied([V1, v3, v2]))
    assert ("changed", "out_of_order", "certain", "source_to_log", ("name",)) == named(of)


def growth(routing: Routing = Routing.FORMER) -> list[Event]:
    """Give tariff changes of which the newest stands in another partition."""
    silver = event(5, {"tariff": "silver"}, routing=routing)
    gold = event(6, {"tariff": "gold"}, partition=1, routing=Routing.HOME, offset=0)
    return [*TOP_UPS, silver, gold]


def test_growth_lets_an_event_overtake() -> None:
    """D3: the newest event was consumed before the one that waited in the old partition."""
    source, copy = (row({"balance": "124.5", "tariff": tariff}, 6) for tariff in ("gold", "silver"))
    of = case(BILLING, source, replace(copy, version=None), growth(), partitions=(0, 1))
    assert ("changed", "misrouted", "certain", "source_to_log", ("tariff",)) == named(of)


def test_another_partitioner() -> None:
    """A2: the evidence names it."""
    v3 = replace(V3, partition=1, offset=0, routing=Routing.WRONG, routed_by="crc32")
    finding = found(case(LOGIN, AT_3, AT_2, [V1, V2, v3], partitions=(0, 1)))
    assert ("misrouted", "source_to_log") == (finding.cause, finding.hop)
    assert any("crc32" in each.note for each in finding.evidence if each.kind == "partition")


def test_in_another_partition_and_not_in_the_ledger_is_skipped() -> None:
    """A2, C7: the ledger shows that it was never applied."""
    v3 = replace(V3, partition=1, offset=0, routing=Routing.WRONG)
    of = case(LOGIN, AT_3, AT_2, [V1, V2, v3], partitions=(0, 1), ledger=applied([V1, V2]))
    assert "skipped" == found(of).cause


def test_an_edited_field() -> None:
    """Somebody edited the copy: no event ever said so."""
    edited = row(person("Zoiee", "edited@x"), 3)
    assert ("changed", "foreign_write", "certain", "consumer", ("email",)) == named(case(LOGIN, AT_3, edited, THREE))


def test_a_ledger_tells_nothing_of_what_no_event_told() -> None:
    """All was applied; the tariff changed and that was not published, or somebody edited the copy."""
    now, then = (row({"balance": "5", "tariff": tariff}) for tariff in ("gold", "basic"))
    log = [event(1, {"balance": "5"}, version=None)]
    assert ("foreign_write", "possible") == named(case(SUMS, now, then, log, ledger=applied(log)))[1:3]


def test_what_went_wrong_before_the_log_begins() -> None:
    """D5, C7: an amount that is gone from the log may have been lost, whatever the ledger shows of those behind it."""
    of = case(BILLING, BALANCE, row({"balance": "124", "tariff": "plus"}), TOP_UPS[2:], begin=2)
    for each in (
        of,
        replace(of, ledger=applied(TOP_UPS[2:]), link=replace(of.link, ledger=True, ledger_since=minute(0))),
    ):
        finding = found(each)
        assert ("expired", "possible") == (finding.cause, finding.confidence)
        assert ("skipped", "foreign_write", "never_published") == finding.alternatives
    edited = case(BILLING, BALANCE, row({"balance": "124.5", "tariff": "edited"}), TOP_UPS[1:], begin=1)
    edited = replace(
        edited, ledger=applied(TOP_UPS[1:]), link=replace(edited.link, ledger=True, ledger_since=minute(0))
    )
    assert ("foreign_write", "certain") == named(edited)[1:3]


CHANGES = (
    event(1, {"name": "a", "email": "x", "phone": "1"}),
    event(2, {"phone": "2"}),
    event(3, {"phone": "3"}),
    event(4, {"name": "b"}),
)


@pytest.mark.parametrize(
    ("edited", "events", "confidence"),
    [
        ({"phone": "edited"}, 4, "certain"),
        ({"name": "edited"}, 4, "certain"),
        ({"name": None}, 4, "certain"),
        ({"email": "edited"}, 1, "certain"),
        ({"email": "edited"}, 2, "certain"),
        ({"email": "edited"}, 4, "possible"),
    ],
)
@pytest.mark.parametrize("versioned", [True, False])
def test_an_edited_field_where_events_carry_changes(
    edited: dict[str, str | None], events: int, confidence: str, versioned: bool
) -> None:
    """The event that told of it was not lost: the copy has what else that one alone told, or would have no row."""
    log = [each if versioned else replace(each, version=None) for each in CHANGES[:events]]
    state: dict[str, str | None] = {}
    for each in log:
        state |= each.fields
    link = replace(LOGIN if versioned else UNVERSIONED, patch=True, copy_versions=False)
    of = case(link, row(state, events if versioned else None), row({**state, **edited}), log)
    finding = found(of)
    assert ("foreign_write", confidence, "consumer") == (finding.cause, finding.confidence, finding.hop)
    assert ("skipped", "out_of_order") == finding.alternatives if confidence == "possible" else not finding.alternatives


def test_an_empty_text_is_not_null() -> None:
    """The events said NULL."""
    edited = row(person("Zoiee", phone=""), 3)
    of = case(LOGIN, AT_3, edited, THREE, ledger=applied(THREE))
    assert ("changed", "foreign_write", "certain", "consumer", ("phone",)) == named(of)


def test_an_edited_balance() -> None:
    """No amount is missing, and none is double; more than one fault at once cannot be ruled out."""
    assert ("changed", "foreign_write", "possible", "consumer", ("balance",)) == named(balance("124.87"))


def shouted(log: list[Event], name: str) -> list[Event]:
    """Give events that say one field in capitals, as a producer does that spells uuids its own way."""
    told = ((each, each.fields[name]) for each in log)
    return [replace(each, fields={**each.fields, name: None if text is None else text.upper()}) for each, text in told]


@pytest.mark.parametrize("link", [LOGIN, UNVERSIONED, replace(LOGIN, copy_versions=False), replace(LOGIN, patch=True)])
def test_a_field_that_events_spell_otherwise_than_both_sides(link: Link) -> None:
    """Where the copy is does not depend on it: the sides agree in it."""
    log = shouted(history(person("a"), person("b"), person("c")), "email")
    if link is UNVERSIONED:
        log = [replace(each, version=None) for each in log]
    versions = [number if link.source_versions else None for number in (1, 2, 3)]
    states = [row(person(name), version) for name, version in zip("abc", versions, strict=True)]
    assert "skipped" == found(case(link, states[2], states[1], log)).cause
    assert ("skipped", "certain") == named(case(link, states[2], states[1], log, ledger=applied(log[:2])))[1:3]
    assert "in_flight" == found(case(link, states[2], states[1], log, committed=2)).cause
    edited = row(person("edited"), versions[2])
    assert ("foreign_write", "certain") == named(case(link, states[2], edited, log))[1:3]


def test_what_is_spelled_otherwise_still_tells_what_was_applied() -> None:
    """The copy has the last event's e-mail, whatever its capitals: that was not lost, and an older name is an edit."""
    log = shouted(history(person("a", "zoe@x"), person("b", "zoe@y")), "email")
    copy = row(person("a", "zoe@y"))
    for link in (LOGIN, replace(LOGIN, guarded=True), replace(LOGIN, patch=True)):
        of = case(replace(link, copy_versions=False), row(person("b", "zoe@y"), 2), copy, log)
        assert ("foreign_write", "certain") == named(of)[1:3]


def test_an_older_state_that_the_ledger_denies() -> None:
    """C7: the ledger shows all applied in order, so somebody put the old state back."""
    of = case(UNVERSIONED, row(V3.fields), row(V2.fields), THREE, ledger=applied(THREE))
    assert ("changed", "foreign_write", "certain", "consumer", ("name",)) == named(of)


def test_a_deleted_row() -> None:
    """The ledger shows all applied."""
    of = case(LOGIN, AT_3, None, THREE, ledger=applied(THREE))
    assert ("missing", "foreign_write", "certain", "consumer", ()) == named(of)


@pytest.mark.parametrize(
    ("of", "status"),
    [
        (case(replace(LOGIN, expires=True), AT_3, None, THREE, ledger=applied(THREE)), Status.TOLERATED),
        (case(replace(LOGIN, expires=True), AT_1, None, THREE[:1]), Status.TOLERATED),
        (case(replace(LOGIN, expires=True), AT_1, None, [], committed=0), Status.CONFIRMED),
        (case(replace(LOGIN, expires=True), AT_1, None, [V1], parked=(parked("stash", V1),)), Status.CONFIRMED),
        (case(replace(LOGIN, expires=True), AT_3, AT_2, THREE), Status.CONFIRMED),
        (case(LOGIN, AT_3, None, THREE, ledger=applied(THREE)), Status.CONFIRMED),
    ],
    ids=["let go", "never there", "never published", "stashed", "changed", "a row that stays"],
)
def test_a_row_that_may_have_expired_is_tolerated(of: Case, status: Status) -> None:
    """Unless the log, or a failure topic, shows why it is missing, or the copy has it and differs."""
    assert status is found(of).status


def test_a_row_that_nobody_published() -> None:
    """Neither source nor log ever knew the id."""
    assert ("orphan", "phantom", "certain", "consumer", ()) == named(case(LOGIN, None, AT_1))


def test_another_unicode_form_is_tolerated() -> None:
    """A clean-up job wrote the same name another way."""
    of = case(LOGIN, AT_2, row(person("Zoe\u0308"), 2), THREE[:2], ledger=applied(THREE[:2]))
    finding = found(of)
    assert (Status.TOLERATED, True, "foreign_write") == (finding.status, finding.equivalent, finding.cause)


def test_a_copy_in_another_unicode_form_can_be_skipped_too() -> None:
    """The form plays no part where there is a difference that a reader would see."""
    of = case(LOGIN, AT_3, row(person("Zoe\u0308"), 2), THREE)
    assert ("skipped", Status.CONFIRMED) == (found(of).cause, found(of).status)


def test_rows_without_an_id() -> None:
    """A NULL id belongs to no aggregate."""
    assert "phantom" == found(replace(case(LOGIN, None, AT_1), id=None)).cause
    assert "undetermined" == found(replace(case(LOGIN, AT_1, None), id=None)).cause


def test_evidence_is_bounded() -> None:
    """A thousand lost events are told in a few lines."""
    many = history(*(person(f"name {number}") for number in range(1000)))
    of = case(LOGIN, row(many[-1].fields, 1000), row(many[0].fields, 1), many, committed=1000, settled_end=1000)
    assert len(found(of).evidence) <= 12


@pytest.mark.parametrize("kind", ["stash", "retry", "dead_letter"])
@pytest.mark.parametrize(("copy", "cause"), [
    (row(person("Edited"), 3), "foreign_write"),
    (AT_3, "never_published"),
])  # fmt: skip
def test_a_record_that_may_still_be_applied_is_told_whatever_the_cause(kind: str, copy: Row, cause: str) -> None:
    """It would overwrite a correction; one that is resolved would not."""
    source = row(person("Newest"), 4) if cause == "never_published" else AT_3
    of = case(LOGIN, source, copy, THREE, parked=(parked(kind, V2),))  # type: ignore[arg-type]
    told = [(each.kind, each.offset, each.note) for each in found(of).evidence if each.unresolved]
    assert (cause, [kind]) == (found(of).cause, [each[0] for each in told])
    done = replace(of, parked=(replace(of.parked[0], resolved="its group has committed past it"),))
    assert [] == [each for each in found(done).evidence if each.unresolved]


def test_what_may_still_be_applied_is_not_left_out() -> None:
    """Among more notes than a story has."""
    many = (*(event_note(case(LOGIN, AT_1, AT_1), each, "seen") for each in history(*(person(),) * 20)),)
    lying = parked_note(parked("stash", V2), "is stashed here")
    found_notes = arrange((*many, lying))
    assert (12, lying) == (len(found_notes), found_notes[-1])


@pytest.mark.parametrize("copy", [None, row(person("a"), 1), row(person("x"), 1)])
def test_a_record_behind_an_open_transaction_is_on_its_way(copy: Row | None) -> None:
    """Whatever the copy says: nobody knows yet whether it counts, and a correction would stand behind it."""
    seen = Undecided(0, 12, minute(9))
    at = case(LOGIN, row(person("b"), 2), copy, history(person("a")), undecided=seen)
    at = replace(at, link=replace(at.link, places={0: replace(at.link.places[0], open=10)}))
    found = attribute(at)
    assert found is not None
    assert (Cause.IN_FLIGHT, Status.IN_FLIGHT, minute(9)) == (found.cause, found.status, found.since)
    (note,) = found.evidence
    assert ("event", "behind an open transaction that began at offset 10", 0, 12) == (
        note.kind,
        note.note,
        note.partition,
        note.offset,
    )


def test_what_agrees_is_not_on_its_way() -> None:
    """A record behind an open transaction makes no finding of an aggregate whose copy is right."""
    one = row(person("a"), 1)
    assert attribute(case(LOGIN, one, one, history(person("a")), undecided=Undecided(0, 12, minute(9)))) is None


@pytest.mark.parametrize(("partition", "expected"), [(0, Cause.IN_FLIGHT), (1, Cause.NEVER_PUBLISHED)])
def test_too_much_behind_an_open_transaction_leaves_it_open(partition: int, expected: Cause) -> None:
    """What nobody looked at may hold the change; in a partition where the id does not belong, it does not."""
    at = case(LOGIN, row(person("b"), 2), row(person("a"), 1), history(person("a")), partitions=(0, 1), homes=(0,))
    places = {**at.link.places, partition: replace(at.link.places[partition], open=10, unread=True)}
    found = attribute(replace(at, link=replace(at.link, places=places)))
    assert found is not None
    assert expected == found.cause
    if expected is Cause.IN_FLIGHT:
        assert (Confidence.PROBABLE, Cause.NEVER_PUBLISHED) == (found.confidence, found.alternatives[0])
