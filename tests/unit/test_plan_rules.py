"""What is done about a finding: for each cause and difference, and whatever speaks against it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Literal

import click
import pytest

from reconcile.cli.stash import drain
from reconcile.domain.cause import Cause
from reconcile.domain.finding import (
    Confidence,
    Difference,
    Evidence,
    EvidenceKind,
    FieldDifference,
    Finding,
    Hop,
    Status,
)
from reconcile.domain.outbox import WaitingEvents
from reconcile.domain.plan import repair_order
from reconcile.domain.plan_rules import TABLE, Action, AggregateFacts, PlanTerms, by_finding, treat
from reconcile.files import committed

TERMS = PlanTerms(deletes=True, carried=frozenset({"email", "phone"}))
HERE = AggregateFacts(version=5, log_version=5)
UNPUBLISHED = AggregateFacts(version=5, log_version=4)
GONE = AggregateFacts(rows=0, version=None, log_version=5)
ALL = list(product(Cause, Difference))


def finding(cause: Cause = Cause.SKIPPED, difference: Difference = Difference.CHANGED, **changes: object) -> Finding:
    """Give a finding of an aggregate whose e-mail address differs."""
    changed = difference is Difference.CHANGED
    made = Finding(
        link="user-account/login",
        aggregate_id="u-1",
        difference=difference,
        cause=cause,
        confidence=Confidence.CERTAIN,
        hop=Hop.LOG_TO_CONSUMER,
        status=Status.IN_FLIGHT if cause is Cause.IN_FLIGHT else Status.CONFIRMED,
        fields=(FieldDifference("email", "a", "b"),) if changed else (),
        source_version=None if difference is Difference.ORPHAN else 5,
        consumer_version=None if difference is Difference.MISSING else 4,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def facts(difference: Difference, cause: Cause = Cause.SKIPPED) -> AggregateFacts:
    """Give how an aggregate stands that is as its finding says."""
    if difference is Difference.ORPHAN:
        return GONE
    return UNPUBLISHED if cause is Cause.NEVER_PUBLISHED else HERE


def action(of: Finding, terms: PlanTerms = TERMS, now: AggregateFacts = HERE) -> Action:
    """Give what is done."""
    return treat(of, terms, now).action


@pytest.mark.parametrize(("cause", "difference"), ALL)
def test_each_cause_and_difference_has_its_treatment(cause: Cause, difference: Difference) -> None:
    """Where nothing speaks against it, what the table says is done."""
    assert TABLE[cause][difference] == treat(finding(cause, difference), TERMS, facts(difference, cause))


@pytest.mark.parametrize(("cause", "difference"), ALL)
def test_a_record_is_only_written_where_it_can_mend(cause: Cause, difference: Difference) -> None:
    """A state is restated for what the source has, a deletion is told of what it has not, and of nothing else."""
    done = action(finding(cause, difference), now=facts(difference, cause))
    assert (done is Action.TOMBSTONE) <= (difference is Difference.ORPHAN)
    assert (done is Action.RESTATE) <= (difference in (Difference.MISSING, Difference.CHANGED))


@pytest.mark.parametrize(("cause", "difference"), ALL)
@pytest.mark.parametrize(
    ("terms", "now", "status"),
    [
        (replace(TERMS, causes=frozenset()), None, Status.CONFIRMED),
        (TERMS, None, Status.INCOMPLETE),
        (TERMS, None, Status.IN_FLIGHT),
        (TERMS, None, Status.TOLERATED),
        (TERMS, replace(HERE, lagging=(3,)), Status.CONFIRMED),
        (TERMS, replace(HERE, keyless="no key"), Status.CONFIRMED),
    ],
)
def test_nothing_is_written_against_a_veto(
    cause: Cause, difference: Difference, terms: PlanTerms, now: AggregateFacts | None, status: Status
) -> None:
    """No cause and no difference passes a cause that is not permitted, an unconfirmed finding, unread records."""
    done = treat(finding(cause, difference, status=status), terms, now or facts(difference, cause))
    assert done.action in (Action.ADVICE, Action.NOT_REPAIRED)


@pytest.mark.parametrize(("cause", "difference"), ALL)
def test_every_treatment_has_a_reason(cause: Cause, difference: Difference) -> None:
    """A person can read why."""
    assert treat(finding(cause, difference), TERMS, facts(difference, cause)).reason


@pytest.mark.parametrize("cause", Cause)
def test_a_deletion_needs_its_own_yes(cause: Cause) -> None:
    """Without `deletes: true` no tombstone is planned."""
    of = finding(cause, Difference.ORPHAN)
    done = treat(of, replace(TERMS, deletes=False), GONE)
    permitted = treat(of, TERMS, GONE)
    assert done.action is not Action.TOMBSTONE
    assert ("repair.deletes" in done.reason) is (permitted.action is Action.TOMBSTONE)


@pytest.mark.parametrize(("confidence", "done"), [
    (Confidence.CERTAIN, Action.TOMBSTONE),
    (Confidence.PROBABLE, Action.ADVICE),
    (Confidence.POSSIBLE, Action.ADVICE),
])  # fmt: skip
def test_a_deletion_wants_a_certain_cause(confidence: Confidence, done: Action) -> None:
    """Whatever repair.min_confidence is."""
    terms = replace(TERMS, min_confidence=Confidence.POSSIBLE)
    assert done == action(finding(difference=Difference.ORPHAN, confidence=confidence), terms, GONE)


def test_a_source_that_may_show_less_than_there_is_deletes_nothing() -> None:
    """The advice says what it is."""
    done = treat(finding(difference=Difference.ORPHAN), TERMS, replace(GONE, unproven=("user-db is a replica",)))
    assert (Action.ADVICE, True) == (done.action, "(user-db is a replica)" in done.reason)


@pytest.mark.parametrize(("cause", "alive", "done"), [
    (Cause.SKIPPED, False, Action.TOMBSTONE),
    (Cause.SKIPPED, True, Action.ADVICE),
    (Cause.NEVER_PUBLISHED, True, Action.ADVICE),
])  # fmt: skip
def test_what_the_log_says_is_alive_is_not_deleted(cause: Cause, alive: bool, done: Action) -> None:
    """Its deletion is for the owner to publish."""
    assert done == action(finding(cause, Difference.ORPHAN), now=replace(GONE, alive=alive))


def test_what_the_log_never_had_is_deleted() -> None:
    """A phantom: no event says that it is alive."""
    now = AggregateFacts(rows=0, version=None, log_version=None, state_known=False)
    assert Action.TOMBSTONE == action(finding(Cause.PHANTOM, Difference.ORPHAN), now=now)


@pytest.mark.parametrize("least", Confidence)
@pytest.mark.parametrize("confidence", Confidence)
def test_a_cause_that_is_not_sure_enough_gets_an_advice(least: Confidence, confidence: Confidence) -> None:
    """`repair.min_confidence` says how sure it has to be."""
    order = [Confidence.CERTAIN, Confidence.PROBABLE, Confidence.POSSIBLE]
    expected = Action.RESTATE if order.index(confidence) <= order.index(least) else Action.ADVICE
    assert expected == action(finding(confidence=confidence), replace(TERMS, min_confidence=least))


@pytest.mark.parametrize(("status", "why"), [
    (Status.INCOMPLETE, "it is not confirmed"),
    (Status.TOLERATED, "tolerated"),
    (Status.IN_FLIGHT, "in flight"),
])  # fmt: skip
def test_a_finding_that_is_not_confirmed_says_so(status: Status, why: str) -> None:
    """Nothing is done about it, and the reason is its own."""
    done = treat(finding(status=status), TERMS, HERE)
    assert (Action.NOT_REPAIRED, True) == (done.action, why in done.reason)


def test_a_source_that_moved_on_is_left_to_its_own_event() -> None:
    """Another version than the audit saw: its event is on its way."""
    assert "moved on" in treat(finding(), TERMS, replace(HERE, version=6)).reason


def test_a_row_that_is_gone_is_not_restated() -> None:
    """What the source no longer has has no state."""
    assert Action.NOT_REPAIRED == action(finding(), now=GONE)


def test_a_row_that_came_back_is_not_deleted() -> None:
    """An orphan that the source has again is none."""
    assert Action.NOT_REPAIRED == action(finding(difference=Difference.ORPHAN), now=HERE)


def test_a_deletion_that_is_told_by_a_state_needs_one() -> None:
    """What neither log nor source has ever described is left to a person; it keeps nothing else from being repaired."""
    unknown = replace(GONE, state_known=False)
    orphan = finding(Cause.PHANTOM, Difference.ORPHAN)
    deleting = replace(TERMS, deletes=True)
    assert Action.TOMBSTONE == action(orphan, deleting, unknown)
    assert Action.ADVICE == action(orphan, replace(deleting, tombstones=False), unknown)
    assert Action.TOMBSTONE == action(orphan, replace(deleting, tombstones=False), GONE)


@pytest.mark.parametrize("difference", [Difference.MISSING, Difference.ORPHAN, Difference.CHANGED])
@pytest.mark.parametrize("cause", [Cause.NEVER_PUBLISHED, Cause.SKIPPED, Cause.FOREIGN_WRITE])
def test_an_id_with_an_event_in_the_outbox_is_not_repaired(cause: Cause, difference: Difference) -> None:
    """The event and the correction would both be applied; the reason says how long the event waits."""
    waiting = WaitingEvents(1, since=datetime(2026, 1, 1, tzinfo=UTC))
    done = treat(finding(cause, difference), TERMS, replace(facts(difference), waiting=waiting))
    assert (Action.NOT_REPAIRED, True) == (done.action, "outbox since 2026-01-01T00:00:00Z" in done.reason)


def test_an_outbox_without_times_says_when_it_was_seen() -> None:
    """Nobody knows since when the event waits."""
    waiting = WaitingEvents(1, seen_at=datetime(2026, 1, 2, tzinfo=UTC))
    assert "outbox, seen at 2026-01-02T00:00:00Z" in treat(finding(), TERMS, replace(HERE, waiting=waiting)).reason


def test_what_the_audit_saw_in_the_outbox_is_not_repaired() -> None:
    """Its finding says so, and the caps do not count it."""
    since = datetime(2026, 1, 1, tzinfo=UTC)
    seen = Evidence("outbox", "1 of its rows is not published", at=since)
    done = by_finding(finding(Cause.NEVER_PUBLISHED, evidence=(seen,)), TERMS)
    assert (Action.NOT_REPAIRED, True) == (done.action, "since 2026-01-01T00:00:00Z" in done.reason)


@pytest.mark.parametrize(("cause", "version", "done"), [
    (Cause.NEVER_PUBLISHED, 5, Action.NOT_REPAIRED),
    (Cause.SKIPPED, 5, Action.RESTATE),
    (Cause.SKIPPED, None, Action.NOT_REPAIRED),
])  # fmt: skip
def test_an_event_that_was_published_since_the_audit_forbids_a_correction(
    cause: Cause, version: int | None, done: Action
) -> None:
    """Where it may say what the correction says: it was never published before, or versions tell nothing."""
    now = replace(HERE, version=version, log_version=None, arrived=True)
    assert done == action(finding(cause, source_version=version), now=now)


def test_the_event_of_what_was_never_published_forbids_a_correction() -> None:
    """The log has the source's version by now."""
    of = finding(Cause.NEVER_PUBLISHED)
    assert (Action.NOT_REPAIRED, Action.RESTATE) == (action(of), action(of, now=replace(HERE, log_version=4)))


def test_a_log_that_is_ahead_of_the_source_forbids_a_restatement() -> None:
    """The log has a newer version already: a correction would overwrite it."""
    assert "log is at version 6" in treat(finding(), TERMS, replace(HERE, log_version=6)).reason


@pytest.mark.parametrize(("guard", "copy", "done"), [
    ("newer", 5, Action.ADVICE),
    ("newer", 6, Action.ADVICE),
    ("newer", 4, Action.RESTATE),
    ("newer-or-equal", 5, Action.RESTATE),
    ("newer-or-equal", 6, Action.ADVICE),
    ("none", 6, Action.RESTATE),
])  # fmt: skip
def test_a_guard_that_would_refuse_it_is_heeded(guard: str, copy: int, done: Action) -> None:
    """A consumer that compares versions ignores what is not newer: the plan says so instead of emitting."""
    terms = replace(TERMS, guard=guard)  # type: ignore[arg-type]
    assert done == action(finding(Cause.FOREIGN_WRITE, consumer_version=copy), terms)


def test_a_sum_is_not_restated() -> None:
    """A wrong balance on a topic of changes gets an advice."""
    terms = replace(TERMS, adds=frozenset({"balance"}))
    of = finding(fields=(FieldDifference("balance", "1", "2"),))
    assert Action.ADVICE == action(of, terms)


def test_what_a_correction_does_not_bring_is_named() -> None:
    """Where a sum and a plain field differ, the plain one is restated and the sum is named."""
    terms = replace(TERMS, adds=frozenset({"balance"}))
    of = finding(fields=(FieldDifference("balance", "1", "2"), FieldDifference("email", "a", "b")))
    assert treat(of, terms, HERE).reason.endswith("it does not bring balance")


@pytest.mark.parametrize(("alternatives", "least", "done"), [
    ((Cause.OUT_OF_ORDER, Cause.FOREIGN_WRITE), "probable", Action.RESTATE),
    ((Cause.OUT_OF_ORDER, Cause.IN_FLIGHT), "probable", Action.ADVICE),
    ((Cause.SOURCE_REGRESSED,), "probable", Action.ADVICE),
    ((), "probable", Action.ADVICE),
    ((Cause.OUT_OF_ORDER,), "certain", Action.ADVICE),
])  # fmt: skip
def test_what_one_record_mends_whichever_it_was_is_restated(
    alternatives: tuple[Cause, ...], least: str, done: Action
) -> None:
    """A cause that is only possible does no harm where each of the others wants the same correction."""
    of = finding(confidence=Confidence.POSSIBLE, alternatives=alternatives)
    assert done == action(of, replace(TERMS, min_confidence=Confidence(least)))


SUMMED = replace(TERMS, adds=frozenset({"balance"}), compensates=frozenset({"balance"}))


def test_a_sum_gets_the_difference_where_the_contract_says_so() -> None:
    """It is named; a field that is set waits for the next run."""
    of = finding(fields=(FieldDifference("balance", "1", "2"), FieldDifference("email", "a", "b")))
    found = treat(of, SUMMED, HERE)
    assert Action.COMPENSATE == found.action
    assert "balance gets the difference" in found.reason
    assert found.reason.endswith("it does not bring email")


def test_a_sum_that_nobody_can_tell_is_not_repaired() -> None:
    """The reason is the one that was found when both rows were read."""
    of = finding(fields=(FieldDifference("balance", "1", "2"),))
    found = treat(of, SUMMED, replace(HERE, unsettled="an event of it is on its way"))
    assert (Action.NOT_REPAIRED, "an event of it is on its way") == (found.action, found.reason)


def test_what_lies_unresolved_would_be_added_on_top_of_a_difference() -> None:
    """Whatever the cause is, and also for a consumer that compares versions."""
    parked = Evidence("dead_letter", "lies here", unresolved=True)
    of = finding(fields=(FieldDifference("balance", "1", "2"),), evidence=(parked,))
    assert Action.ADVICE == action(of, replace(SUMMED, guard="newer"))


def test_a_missing_row_with_a_sum_is_not_made() -> None:
    """A correction would make it without its sum."""
    assert Action.ADVICE == action(finding(difference=Difference.MISSING), replace(TERMS, adds=frozenset({"balance"})))


@pytest.mark.parametrize("cause", [Cause.FOREIGN_WRITE, Cause.NEVER_PUBLISHED, Cause.PAYLOAD_DIVERGENCE, Cause.SKIPPED])
@pytest.mark.parametrize("difference", [Difference.CHANGED, Difference.MISSING, Difference.ORPHAN])
@pytest.mark.parametrize(("kind", "as_if"), [
    ("stash", Cause.STASHED),
    ("retry", Cause.RETRYING),
    ("dead_letter", None),
])  # fmt: skip
def test_what_may_still_be_applied_comes_first(
    cause: Cause, difference: Difference, kind: EvidenceKind, as_if: Cause | None
) -> None:
    """Whatever the cause is: what lies in the stash or a retry topic would overwrite a correction."""
    lying = Evidence(kind, "lies here", unresolved=True)
    of = finding(cause, difference, evidence=(lying,))
    assert TABLE[as_if or cause][difference] == treat(of, TERMS, facts(difference, cause))
    over = replace(of, evidence=(replace(lying, unresolved=False),))
    assert TABLE[cause][difference] == treat(over, TERMS, facts(difference, cause))


@pytest.mark.parametrize(("topic", "command"), [
    ("reconcile.stash", ": reconcile stash drain CONTRACT --consumer login --handler MODULE:FUNCTION --id ID"),
    ("user-account.login.stash", ""),
])  # fmt: skip
@pytest.mark.parametrize("cause", [Cause.STASHED, Cause.SKIPPED])
def test_what_the_library_has_stashed_is_released_by_a_command(cause: Cause, topic: str, command: str) -> None:
    """The library's stash alone: of another one only its team knows how."""
    lying = Evidence("stash", "is stashed here", topic, unresolved=True)
    of = finding(cause, evidence=(lying,))
    assert (
        "release the stash first: what lies there would overwrite a correction" + command
        == by_finding(of, TERMS).reason
    )


def test_the_command_that_is_advised_is_one() -> None:
    """It names each option that is needed, and no other than the command has."""
    lying = Evidence("stash", "is stashed here", "reconcile.stash", unresolved=True)
    advised = set(re.findall(r"--[a-z]+", by_finding(finding(Cause.STASHED, evidence=(lying,)), TERMS).reason))
    options = [each for each in drain.params if isinstance(each, click.Option)]
    assert advised <= {name for each in options for name in each.opts}
    assert {each.opts[0] for each in options if each.required} <= advised


@pytest.mark.parametrize("guard", ["newer", "newer-or-equal"])
@pytest.mark.parametrize("kind", ["stash", "retry"])
def test_what_lies_cannot_harm_a_copy_that_compares_versions(
    guard: Literal["newer", "newer-or-equal"], kind: EvidenceKind
) -> None:
    """It ignores what is older; where the row is gone there is nothing to compare with."""
    lying, terms = (Evidence(kind, "lies here", unresolved=True),), replace(TERMS, guard=guard)
    assert Action.RESTATE == action(finding(evidence=lying), terms)
    assert Action.RESTATE == action(finding(difference=Difference.MISSING, evidence=lying), terms)
    assert Action.ADVICE == action(finding(difference=Difference.ORPHAN, evidence=lying), terms, GONE)


def test_fields_that_no_event_tells_of_are_for_people() -> None:
    """A correction that brings none of the fields that differ would do nothing."""
    assert Action.ADVICE == action(finding(fields=(FieldDifference("note", "a", "b"),)))


def test_rows_without_an_id_are_for_people() -> None:
    """They have no key."""
    assert Action.ADVICE == action(finding(Cause.PHANTOM, Difference.ORPHAN, aggregate_id=None), now=GONE)


def test_an_id_that_the_source_holds_twice_is_for_people() -> None:
    """Which row is right cannot be told."""
    assert Action.ADVICE == action(finding(), now=replace(HERE, rows=2))


def test_immutable_records_are_only_added() -> None:
    """A copy of immutable records gets what it lacks; what it has is for people."""
    terms = replace(TERMS, records=True)
    done = {each: action(finding(difference=each), terms, facts(each)) for each in list(Difference)[:3]}
    expected = {Difference.MISSING: Action.RESTATE, Difference.ORPHAN: Action.ADVICE, Difference.CHANGED: Action.ADVICE}
    assert expected == done


def test_what_nothing_explains_is_repaired_if_it_is_named() -> None:
    """`undetermined` in repair.causes asks for it."""
    terms = replace(TERMS, causes=frozenset({Cause.UNDETERMINED}))
    assert (Action.ADVICE, Action.RESTATE) == (
        action(finding(Cause.UNDETERMINED)),
        action(finding(Cause.UNDETERMINED), terms),
    )


def test_a_topic_without_a_value_restates_nothing() -> None:
    """The contract has to say how an event is built."""
    assert "topic.value" in treat(finding(), replace(TERMS, restates=False), HERE).reason


def test_groups_come_behind_those_that_they_build_on() -> None:
    """A chain is turned round; a group outside of the contract plays no part."""
    assert (["c", "b", "a"], []) == repair_order({"a": ["b"], "b": ["c", "elsewhere"], "c": []})


def test_groups_that_depend_on_one_another_are_told() -> None:
    """They keep the contract's order."""
    assert (["c", "a", "b"], ["a", "b"]) == repair_order({"a": ["b"], "b": ["a"], "c": []})


def test_the_documentation_has_the_same_table() -> None:
    """docs/repair.md says for each cause and difference what the code does."""
    text = committed("docs", "repair.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", text, re.MULTILINE)
    told = {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows if name in list(Cause)}
    assert {cause: [TABLE[cause][each].action for each in Difference] for cause in Cause} == told
