"""What is to be done with a message: by what the store knows of it, and by how it failed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reconcile.consumer.decision import (
    Admission,
    Break,
    Breaker,
    Course,
    Facts,
    FailureKind,
    GiveUp,
    Losses,
    Outcome,
    PutAside,
    SendOn,
    Skip,
    Stop,
    TryAgain,
    accepts,
    admit,
    admit_all,
    full,
    newest_versions,
)
from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.policy import (
    Block,
    BreakerLimits,
    Ignore,
    Policy,
    RetryThenDeadLetter,
    RetryTopic,
    RetryTopics,
    Stash,
    Terms,
)
from tests.consumer_behaviour import BY_POLICY, message

RETRIES = RetryTopics(
    (RetryTopic("soon", timedelta(seconds=1)), RetryTopic("later", timedelta(minutes=1))), dead_letter="dead"
)
ONE, FAILED = message(1), FailureKind.NON_RECOVERABLE


def terms(policy: Policy, **more: object) -> Terms:
    """Build terms; retry topics are for records."""
    return Terms(policy, "records" if isinstance(policy, RetryTopics) else "state", **more)  # type: ignore[arg-type]


def judged(one: Message, *, held: int = 3, given: Terms | None = None, **facts: object) -> Admission:
    """Admit a message to a member that holds epoch 3, as the partition's is."""
    return admit(one, Facts(**{"epoch": 3, **facts}), held, given or terms(Stash()))  # type: ignore[arg-type]


def from_retry_topic(topic: str, offset: int = 1) -> Message:
    """Build a message that came back."""
    return message(offset, place=RecordPlace(topic, 0, 77))


def test_a_message_that_nothing_is_known_of_is_applied() -> None:
    """By the member that holds its partition."""
    assert Admission.APPLY is judged(message(1))


@pytest.mark.parametrize("held", [2, 4])
def test_another_epoch_is_fenced(held: int) -> None:
    """Older or newer: it is not this member's."""
    assert Admission.FENCED is judged(message(1), held=held)


def test_the_fence_comes_first() -> None:
    """A zombie does nothing, whatever else is known."""
    assert Admission.FENCED is judged(message(1), held=2, noted=Outcome.APPLIED, blocked=1, damaged=True, version=9)


def test_a_partition_without_an_epoch_is_fenced() -> None:
    """Nobody claimed it."""
    assert Admission.FENCED is judged(message(1), epoch=None)


@pytest.mark.parametrize("outcome", Outcome)
def test_c7_what_was_noted_is_seen(outcome: Outcome) -> None:
    """C3, C7: however it was done with."""
    assert Admission.SEEN is judged(message(1), noted=outcome)


def test_b4_what_was_sent_on_comes_back_from_there() -> None:
    """B4: it is noted, and has yet to be applied."""
    assert Admission.APPLY is judged(from_retry_topic("soon"), noted=Outcome.SENT_ON, given=terms(RETRIES))


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.SENT_ON])
def test_b4_what_came_back_and_was_done_with_is_seen(outcome: Outcome) -> None:
    """B4, C7: a copy in a retry topic that was read again."""
    assert Admission.SEEN is judged(from_retry_topic("soon"), noted=outcome, given=terms(RETRIES))


def test_b10_what_follows_a_stashed_message_is_stashed() -> None:
    """B10: whatever its version."""
    given = terms(Stash(), guard="newer")
    assert Admission.STASH is judged(message(1, version=1), blocked=1, version=5, given=given)


def test_b10_an_aggregate_whose_last_message_was_taken_is_still_blocked() -> None:
    """B10: until the drain has unblocked it."""
    assert Admission.STASH is judged(message(1), blocked=0)


def test_c7_what_was_done_with_is_seen_also_while_its_aggregate_is_blocked() -> None:
    """C3: it was applied before the one that failed."""
    assert Admission.SEEN is judged(message(1), noted=Outcome.APPLIED, blocked=1)


def test_b16_a_damaged_message_is_skipped_where_that_is_wanted() -> None:
    """B16: by the register of damaged messages."""
    found = [judged(message(1), damaged=True, given=terms(Stash(), skip_damaged=skip)) for skip in (True, False)]
    assert [Admission.DAMAGED, Admission.APPLY] == found


def test_a_message_of_no_aggregate_is_nameless() -> None:
    """Nobody can say whether it is blocked."""
    assert Admission.NAMELESS is judged(message(1, None), blocked=1)


@pytest.mark.parametrize(
    ("guard", "version", "known", "expected"),
    [
        ("newer", 5, 4, True),
        ("newer", 5, 5, False),
        ("newer", 5, 6, False),
        ("newer-or-equal", 5, 4, True),
        ("newer-or-equal", 5, 5, True),
        ("newer-or-equal", 5, 6, False),
        ("none", 5, 6, True),
        ("newer", None, 6, True),
        ("newer", 5, None, True),
    ],
)
def test_b16_a_guard_compares_versions(guard: str, version: int | None, known: int | None, expected: bool) -> None:
    """B16: and lets pass what has none."""
    assert expected is accepts(guard, version, known)


def test_b16_what_a_guard_refuses_is_older() -> None:
    """B16: it is dropped, and noted as such."""
    assert Admission.OLDER is judged(message(1, version=4), version=5, given=terms(Block(), guard="newer"))


def all_judged(*batch: Message, given: Terms, facts: Facts | None = None) -> list[Admission]:
    """Admit a batch of which the store knows nothing, or the same of each."""
    return admit_all(batch, [facts or Facts(3)] * len(batch), [3] * len(batch), given)


@pytest.mark.parametrize("again", [message(1), message(1, event=None), message(2, event="event 1")])
def test_c8_a_batch_sees_its_own_messages(again: Message) -> None:
    """C7, C8: by place and by event."""
    assert [Admission.APPLY, Admission.SEEN] == all_judged(message(1), again, given=terms(Block()))


def test_c8_what_comes_back_from_a_retry_topic_is_not_lost_beside_its_original() -> None:
    """The original, or a duplicate of it, is in the same batch: the ledger has it as sent on, and it is due now."""
    copy = replace(message(1, event="same"), place=RecordPlace("retry", 0, 0))
    known = [Facts(3, Outcome.SENT_ON)] * 2
    for again in (message(1, event="same"), message(9, event="same")):
        found = admit_all([again, copy], known, [3, 3], terms(RETRIES))
        assert [Admission.SEEN, Admission.APPLY] == found


def test_c8_one_change_may_be_an_event_of_several_aggregates() -> None:
    """As where a primary key changes: Debezium deletes one and creates the other, both at one position."""
    batch = [message(1, "old", event="lsn"), message(2, "new", event="lsn"), message(3, "new", event="lsn")]
    assert [Admission.APPLY, Admission.APPLY, Admission.SEEN] == admit_all(
        batch, [Facts(3)] * 3, [3] * 3, terms(Block())
    )


def test_c8_a_batch_knows_an_event_however_its_id_is_spelled() -> None:
    """A uuid may be in capitals."""
    id_ = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
    batch = [message(1, event=id_), message(2, event=id_.upper())]
    assert [Admission.APPLY, Admission.SEEN] == admit_all(batch, [Facts(3)] * 2, [3] * 2, terms(Block()))


def test_c8_without_a_ledger_a_batch_sees_nothing_twice() -> None:
    """C8: as one by one."""
    found = all_judged(message(1), message(1), given=terms(Block(), ledger=False))
    assert [Admission.APPLY, Admission.APPLY] == found


def test_c8_a_batch_guards_against_its_own_versions() -> None:
    """B16, C8: of the same aggregate, and no other."""
    batch = [message(1, version=5), message(2, version=4), message(3, "max", version=4), message(4, version=6)]
    expected = [Admission.APPLY, Admission.OLDER, Admission.APPLY, Admission.APPLY]
    assert expected == all_judged(*batch, given=terms(Block(), guard="newer"))


def test_c8_a_batch_guards_against_what_was_known_before_it() -> None:
    """B16, C8: the newer of both counts."""
    batch = [message(1, version=5), message(2, version=8), message(3, version=7)]
    found = all_judged(*batch, given=terms(Block(), guard="newer"), facts=Facts(3, version=6))
    assert [Admission.OLDER, Admission.APPLY, Admission.OLDER] == found


def test_c8_what_was_dropped_as_older_sets_no_version() -> None:
    """B16, C8: only what is applied does."""
    batch = [message(1, version=7), message(2, version=3), message(3, version=5), message(4, version=7)]
    found = all_judged(*batch, given=terms(Block(), guard="newer-or-equal"))
    assert [Admission.APPLY, Admission.OLDER, Admission.OLDER, Admission.APPLY] == found


def test_c8_each_message_of_a_batch_is_fenced_by_its_own_partition() -> None:
    """A batch may hold messages of partitions that are held, and of one that was lost."""
    batch = [message(1), message(2, partition=1)]
    found = admit_all(batch, [Facts(3), Facts(8)], [3, 7], terms(Block()))
    assert [Admission.APPLY, Admission.FENCED] == found


def test_c8_a_duplicate_of_what_is_fenced_is_fenced_too() -> None:
    """It is for the other member to see it."""
    assert [Admission.FENCED] * 2 == admit_all([ONE, ONE], [Facts(8)] * 2, [7, 7], terms(Block()))


@BY_POLICY
def test_b8_what_passes_is_tried_again_in_place(policy: Policy) -> None:
    """B6, B8: under each policy, with growing delay, and people are told once at the limit."""
    course = Course(terms(policy))
    found = [course.react(ONE, FailureKind.RECOVERABLE, tries) for tries in (1, 2, 11, 12)]
    expected = [(0.1, False), (0.2, False), (60, True), (60, False)]
    assert [TryAgain(timedelta(seconds=delay), alert) for delay, alert in expected] == found


@BY_POLICY
def test_b7_what_met_another_transaction_is_tried_at_once_a_few_times(policy: Policy) -> None:
    """B7: then it backs off, and never counts as the message's fault."""
    course = Course(terms(policy, retries_at_once=2))
    delays = [course.react(ONE, FailureKind.CONTENDED, tries) for tries in (1, 2, 3)]
    assert [TryAgain(timedelta(seconds=delay)) for delay in (0, 0, 0.4)] == delays


def test_b1_ignore_skips() -> None:
    """B1: what fails is counted and lost."""
    assert Skip() == Course(terms(Ignore())).react(ONE, FAILED, 1)


def test_b2_block_tries_again_for_ever() -> None:
    """B2: and tells people."""
    course = Course(terms(Block()))
    assert TryAgain(timedelta(seconds=60), alert=True) == course.react(ONE, FAILED, 11)
    assert TryAgain(timedelta(seconds=60)) == course.react(ONE, FAILED, 10_000)


def test_b3_a_dead_letter_is_written_after_so_many_tries() -> None:
    """B3: not one less."""
    course = Course(terms(RetryThenDeadLetter("dead", tries=3)))
    assert isinstance(course.react(ONE, FAILED, 2), TryAgain)
    assert GiveUp("dead") == course.react(ONE, FAILED, 3)


def test_b4_retry_topics_follow_one_another() -> None:
    """B4: at once to the first, then to the next with a longer delay, then to the dead-letter topic."""
    course = Course(terms(RETRIES))
    found = [course.react(one, FAILED, 1) for one in (ONE, from_retry_topic("soon"), from_retry_topic("later"))]
    assert [SendOn("soon", timedelta(seconds=1)), SendOn("later", timedelta(minutes=1)), GiveUp("dead")] == found


def test_b9_stash_puts_aside_at_once() -> None:
    """B9: without a useless retry."""
    assert PutAside() == Course(terms(Stash())).react(ONE, FAILED, 1)


@BY_POLICY
def test_what_strikes_many_aggregates_opens_the_breaker(policy: Policy) -> None:
    """B6: where messages are put aside or sent on; the others wait or stop by themselves."""
    course = Course(terms(policy, breaker=BreakerLimits(in_a_row=2)))
    reactions = [course.react(message(number, f"id {number}"), FAILED, 9) for number in range(2)]
    assert isinstance(reactions[1], Break) is (not isinstance(policy, (Ignore, Block)))


def opened(limits: BreakerLimits, *aggregates: str | None) -> list[bool]:
    """Tell a breaker of failures, and of successes where there is no aggregate; list when it was open."""
    breaker, found = Breaker(limits), []
    for each in aggregates:
        if each is None:
            breaker.succeeded()
        else:
            breaker.failed(each)
        found.append(breaker.is_open)
    return found


def test_a_breaker_opens_at_so_many_in_a_row() -> None:
    """Of different aggregates."""
    assert [False, False, True] == opened(BreakerLimits(in_a_row=3), "a", "b", "c")


def test_a_breaker_counts_an_aggregate_once() -> None:
    """One that fails over and over says nothing of the others."""
    assert [False] * 4 == opened(BreakerLimits(in_a_row=2), "a", "a", "a", "a")


def test_a_success_ends_the_row() -> None:
    """And closes a breaker."""
    assert [False, False, False, True, False] == opened(BreakerLimits(in_a_row=2), "a", None, "b", "c", None)


def test_a_breaker_opens_at_so_many_of_the_last() -> None:
    """Also where others succeed in between."""
    limits = BreakerLimits(in_a_row=9, of_recent=3, recent=5)
    assert [False, False, False, False, True] == opened(limits, "a", None, "b", None, "c")


def test_a_breaker_forgets_what_is_long_ago() -> None:
    """Only the last messages count."""
    limits = BreakerLimits(in_a_row=9, of_recent=3, recent=4)
    assert not any(opened(limits, "a", None, "b", None, "c", None, "d"))


def test_a_breaker_that_closed_begins_anew() -> None:
    """What opened it does not open it at the next failure."""
    limits = BreakerLimits(in_a_row=9, of_recent=2, recent=10)
    assert [False, True, False, False] == opened(limits, "a", "b", None, "c")


def test_a_breaker_counts_its_probes() -> None:
    """So that the delay between them grows."""
    breaker = Breaker(BreakerLimits(in_a_row=1))
    probes = []
    for _ in range(3):
        breaker.failed("a")
        probes.append(breaker.probes)
    assert [1, 2, 3] == probes


def losses(policy: Ignore, *lost: bool) -> list[bool]:
    """Tell of messages, lost or not; list where to stop."""
    counter = Losses(policy)
    return [counter.note(each) is not None for each in lost]


def test_b1_too_many_losses_in_a_row_stop() -> None:
    """B1: one more than may be."""
    assert [False, False, True] == losses(Ignore(max_consecutive=2), True, True, True)


def test_b1_a_success_ends_the_row_of_losses() -> None:
    """B1: they are no longer in a row."""
    assert not any(losses(Ignore(max_consecutive=2), True, True, False, True, True))


def test_b1_too_many_losses_in_a_window_stop() -> None:
    """B1: one more than the ratio of the window allows."""
    policy = Ignore(max_ratio=0.2, window=10)
    assert [False, False, False, False, True] == losses(policy, True, False, True, False, True)


def test_b1_what_left_the_window_counts_no_more() -> None:
    """B1: a loss long ago."""
    assert not any(losses(Ignore(max_ratio=0.5, window=4), *[True, False] * 20))


def test_b1_beyond_what_may_be_lost_the_consumer_stops() -> None:
    """B1: with the reason."""
    course = Course(terms(Ignore(max_consecutive=0)))
    assert isinstance(course.react(ONE, FAILED, 1), Stop)


def test_b1_a_success_is_counted_in_the_window() -> None:
    """B1: through the course, so that a row of losses ends."""
    course = Course(terms(Ignore(max_consecutive=1)))
    found = []
    for _ in range(3):
        found.append(course.react(ONE, FAILED, 1))
        course.succeeded()
    assert [Skip()] * 3 == found


def test_b4_without_dead_letters_the_last_retry_topic_waits() -> None:
    """B4: nothing is dropped: what fails there too blocks its partition, and people are told."""
    course = Course(terms(RetryTopics(RETRIES.topics)))
    found = [course.react(from_retry_topic("later"), FAILED, tries) for tries in (1, 11)]
    assert [TryAgain(timedelta(seconds=0.1)), TryAgain(timedelta(seconds=60), alert=True)] == found


def test_a_nameless_message_is_dead_lettered_at_once() -> None:
    """With a flag, where there is a dead-letter topic."""
    assert GiveUp("dead", nameless=True) == Course(terms(RetryThenDeadLetter("dead"))).react_to_nameless(1)


@pytest.mark.parametrize("policy", [Block(), Stash(), RetryTopics(())])
def test_a_nameless_message_blocks_its_partition(policy: Policy) -> None:
    """Where there is none: with growing delay, and an alert at its limit."""
    found = [Course(terms(policy)).react_to_nameless(tries) for tries in (1, 11)]
    assert [TryAgain(timedelta(seconds=0.1)), TryAgain(timedelta(seconds=60), alert=True)] == found


def test_a_nameless_message_is_a_loss_where_losses_may_be() -> None:
    """B1: counted as any other."""
    course = Course(terms(Ignore(max_consecutive=1)))
    assert [Skip, Stop] == [type(course.react_to_nameless(1)) for _ in range(2)]


@pytest.mark.parametrize(
    ("of_aggregate", "in_all", "why"),
    [(1, 9, None), (2, 9, "of one aggregate"), (1, 10, "messages are stashed"), (3, 11, "of one aggregate")],
)
def test_b10_a_stash_has_bounds(of_aggregate: int, in_all: int, why: str | None) -> None:
    """B10: the message that would pass one is refused, with the bound's name."""
    found = full(Stash(per_aggregate=2, in_all=10), of_aggregate, in_all)
    assert found == why or (why is not None and found is not None and why in found)


def test_b16_the_newest_version_counts() -> None:
    """B16: of each aggregate, never less than what was known."""
    applied = [(message(1, version=5), Facts(3, version=2)), (message(2, version=7), Facts(3, version=2))]
    others = [(message(3, "max", version=1), Facts(3, version=6)), (message(4, None, version=9), Facts(3))]
    assert {"zoe": (7, False), "max": (6, False)} == newest_versions([*applied, *others])


def test_b16_a_deletion_without_a_version_has_that_of_what_it_deletes() -> None:
    """B16: in the same batch, or before."""
    known = newest_versions([(message(1, deletes=True), Facts(3, version=4))])
    batch = newest_versions([(message(1, version=5), Facts(3)), (message(2, deletes=True), Facts(3))])
    assert [{"zoe": (4, True)}, {"zoe": (5, True)}] == [known, batch]


def test_b16_an_aggregate_without_versions_has_none() -> None:
    """B16: there is nothing to compare."""
    assert {} == newest_versions([(message(1), Facts(3))])
