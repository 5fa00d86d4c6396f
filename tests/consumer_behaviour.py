"""What holds for every store of a consumer, and on every store for every policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pytest

from reconcile.consumer.decision import Facts, FailureKind, Outcome
from reconcile.consumer.errors import AnotherPolicyError, DrainHeldError, LossLimitError, StashFullError
from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.policy import (
    Backoff,
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
from reconcile.consumer.processor import Done, Fenced, Processor, Result, Waits
from reconcile.consumer.recovery import Recovery
from reconcile.consumer.store import (
    ConsumerStore,
    ContendedError,
    HeldPartition,
    Letter,
    Noted,
    Outgoing,
    Stashed,
    StashStore,
    Writes,
)

TOPIC = "accounts"
POLICIES: tuple[Policy, ...] = (
    Ignore(),
    Block(),
    RetryThenDeadLetter("dead", tries=1),
    RetryTopics((RetryTopic("retry", timedelta(minutes=1)),), "dead"),
    Stash("shown"),
)
BY_POLICY = pytest.mark.parametrize("policy", POLICIES, ids=[each.name for each in POLICIES])


class PoisonError(Exception):
    """A failure of one message."""


class Subject(Protocol):
    """A store under test: connections of one group, and its copy."""

    group: str

    def connect(self) -> ConsumerStore:
        """Open one more connection of the group."""

    def other_group(self) -> Subject:
        """Choose another group on the same database."""

    def stash(self, store: ConsumerStore) -> StashStore:
        """Open the stash over a connection."""

    def put(self, handle: Any, id_: str, value: str | None) -> None:
        """Do what a handler does: write a row of the copy, or delete it."""

    def copy(self) -> dict[str, str]:
        """Read the copy as it is committed."""


def message(offset: int, aggregate: str | None = "zoe", *, event: str | None = "", **more: Any) -> Message:
    """Build a message; its event's id is made of its offset unless it is said."""
    place = RecordPlace(TOPIC, more.pop("partition", 0), offset)
    value = more.pop("value", f"value {offset}".encode())
    given = {"place": place, "origin": place, "key": b"key", "value": value, **more}
    return Message(**given, aggregate_id=aggregate, event_id=f"event {offset}" if event == "" else event)


def connect(subject: Subject, *, ledger: bool = True, guard: str = "none") -> ConsumerStore:
    """Open a connection of a consumer that stashes."""
    store = subject.connect()
    store.register(Terms(Stash(), ledger=ledger, guard=guard), TOPIC)
    return store


def claim(subject: Subject, store: ConsumerStore, partition: int = 0) -> HeldPartition:
    """Claim a partition."""
    return HeldPartition(subject.group, TOPIC, partition, store.claim(subject.group, TOPIC, partition))


def known(store: ConsumerStore, held: HeldPartition, *messages: Message) -> list[Facts]:
    """Read what a store knows of messages."""
    with store.transaction() as transaction:
        return transaction.facts(messages, [held] * len(messages))


def write(store: ConsumerStore, held: HeldPartition, writes: Writes, handler: Callable[[Any], object] = bool) -> None:
    """Commit one transaction, in which a handler was called."""
    with store.transaction() as transaction:
        transaction.facts([message(0)], [held])
        handler(transaction.handle)
        transaction.commit(writes)


def noted(one: Message, outcome: Outcome = Outcome.APPLIED) -> Writes:
    """Build the writes of a message that is done with."""
    return Writes([Noted(one, outcome)])


def sent(store: ConsumerStore, most: int = 100) -> list[Outgoing]:
    """Send what the outbox holds; return it."""
    records: list[Outgoing] = []
    while store.send(records.extend, most):
        pass
    return records


def head(stash: StashStore, aggregate: str = "zoe") -> tuple[Letter, Facts] | None:
    """Read the oldest stashed message of an aggregate."""
    with stash.transaction() as step:
        return step.head(aggregate)


def take(stash: StashStore, aggregate: str = "zoe") -> Letter:
    """Take the oldest stashed message of an aggregate out of the stash."""
    with stash.transaction() as step:
        found = step.head(aggregate)
        assert found is not None
        step.take(found[0], Writes())
        return found[0]


def unblock(stash: StashStore, aggregate: str = "zoe") -> bool | None:
    """Let an aggregate flow, if nothing of it is stashed."""
    with stash.transaction() as step:
        step.head(aggregate)
        return step.unblock(aggregate)


def stash_size(store: ConsumerStore, held: HeldPartition) -> int:
    """Query how much is stashed."""
    with store.transaction() as transaction:
        transaction.facts([message(0)], [held])
        return transaction.stash_size()


class StoreBehaviour:
    """Each test takes `subject`, a store that has been migrated, and a group that nobody used before."""

    def test_each_claim_raises_the_epoch(self, subject: Subject) -> None:
        """So that of two members that hold a partition one is the later."""
        first, second = connect(subject), connect(subject)
        assert [1, 2, 3] == [claim(subject, each).epoch for each in (first, second, first)]

    def test_each_partition_has_an_epoch_of_its_own(self, subject: Subject) -> None:
        """Whoever loses one partition keeps the others."""
        store = connect(subject)
        held = claim(subject, store, 0)
        claim(subject, store, 1)
        assert held.epoch == known(store, held, message(1))[0].epoch

    def test_a_partition_that_nobody_claimed_has_no_epoch(self, subject: Subject) -> None:
        """Nobody may write for it."""
        assert None is known(connect(subject), HeldPartition(subject.group, TOPIC, 7, 1), message(1))[0].epoch

    def test_another_members_claim_is_seen(self, subject: Subject) -> None:
        """A member that still believes to hold the partition reads a newer epoch."""
        zombie, member = connect(subject), connect(subject)
        held = claim(subject, zombie)
        assert held.epoch + 1 == claim(subject, member).epoch == known(zombie, held, message(1))[0].epoch

    def test_a_claim_ends_the_transaction_of_the_member_before(self, subject: Subject) -> None:
        """A member that was stopped within a transaction, and goes on after its partition moved, changes nothing."""
        zombie, member = connect(subject), connect(subject)
        held, late = claim(subject, zombie), message(1)
        with pytest.raises(Exception) as lost:  # noqa: PT011 - its kind is checked
            write(zombie, held, noted(late), lambda _: claim(subject, member))
        assert FailureKind.RECOVERABLE is Recovery().kind(lost.value)
        assert ({}, None) == (subject.copy(), known(zombie, held, late)[0].noted)

    def test_a_claim_of_another_partition_ends_nothing(self, subject: Subject) -> None:
        """Members do not disturb one another."""
        first, second = connect(subject), connect(subject)
        held = claim(subject, first)
        write(first, held, noted(message(1)), lambda _: claim(subject, second, 1))
        assert Outcome.APPLIED is known(first, held, message(1))[0].noted

    def test_a_transaction_keeps_the_change_and_its_note_together(self, subject: Subject) -> None:
        """C7: the ledger is written in the transaction of the change."""
        store = connect(subject)
        held = claim(subject, store)
        write(store, held, noted(message(1)), lambda handle: subject.put(handle, "zoe", "Zoë"))
        assert ({"zoe": "Zoë"}, Outcome.APPLIED) == (subject.copy(), known(store, held, message(1))[0].noted)

    def test_a_transaction_that_is_not_committed_leaves_nothing(self, subject: Subject) -> None:
        """Neither the handler's change nor anything of the library's."""
        store = connect(subject)
        held = claim(subject, store)

        def fail(handle: Any) -> None:
            subject.put(handle, "zoe", "Zoë")
            raise PoisonError

        with pytest.raises(PoisonError):
            write(store, held, noted(message(1)), fail)
        assert ({}, None) == (subject.copy(), known(store, held, message(1))[0].noted)

    def test_a_store_goes_on_after_a_failure(self, subject: Subject) -> None:
        """The next transaction is a new one."""
        store = connect(subject)
        held = claim(subject, store)
        with pytest.raises(ZeroDivisionError):
            write(store, held, noted(message(1)), lambda _: 1 / 0)
        write(store, held, noted(message(1)))
        assert Outcome.APPLIED is known(store, held, message(1))[0].noted

    @pytest.mark.parametrize("outcome", Outcome)
    def test_the_ledger_says_how_a_message_was_done_with(self, subject: Subject, outcome: Outcome) -> None:
        """C7: by its place, which catches what is read again."""
        store = connect(subject)
        held = claim(subject, store)
        write(store, held, noted(message(1, event=None), outcome))
        assert [outcome, None] == [each.noted for each in known(store, held, message(1, event=None), message(2))]

    def test_the_ledger_knows_an_event_at_another_place(self, subject: Subject) -> None:
        """C7: its id catches a duplicate in the log, which a place cannot."""
        store = connect(subject)
        held = claim(subject, store)
        write(store, held, noted(message(1, event="same")))
        assert Outcome.APPLIED is known(store, held, message(2, event="same"))[0].noted

    def test_one_change_may_be_an_event_of_several_aggregates(self, subject: Subject) -> None:
        """As where a primary key changes: both records of Debezium's have one position, and so one id."""
        store = connect(subject)
        held = claim(subject, store)
        write(store, held, noted(message(1, "old", event="same")))
        assert None is known(store, held, message(2, "new", event="same"))[0].noted
        write(store, held, noted(message(2, "new", event="same")))
        assert Outcome.APPLIED is known(store, held, message(3, "new", event="same"))[0].noted

    def test_a_ledger_is_one_groups(self, subject: Subject) -> None:
        """What another group has applied is not applied here."""
        store, other = connect(subject), subject.other_group()
        write(store, claim(subject, store), noted(message(1)))
        elsewhere = connect(other)
        assert None is known(elsewhere, claim(other, elsewhere), message(1))[0].noted

    def test_without_a_ledger_nothing_is_noted(self, subject: Subject) -> None:
        """Then only versions keep an event from being applied again."""
        store = connect(subject, ledger=False)
        held = claim(subject, store)
        write(store, held, noted(message(1)))
        assert None is known(store, held, message(1))[0].noted

    @pytest.mark.parametrize("again", [message(1, event=None), message(2, event="event 1")], ids=["place", "event"])
    def test_of_two_that_apply_a_message_the_second_is_given_up(self, subject: Subject, again: Message) -> None:
        """C7: also where neither saw the other's note when it began."""
        first, second = connect(subject), connect(subject)
        held = claim(subject, first)

        def apply_late(handle: Any) -> None:
            write(second, held, noted(message(1)))
            subject.put(handle, "zoe", "twice")

        with pytest.raises(ContendedError):
            write(first, held, noted(again), apply_late)
        assert {} == subject.copy()

    def test_what_was_sent_on_may_be_applied_later(self, subject: Subject) -> None:
        """The ledger then says that it was applied."""
        store = connect(subject)
        held = claim(subject, store)
        for outcome in (Outcome.SENT_ON, Outcome.SENT_ON, Outcome.APPLIED):
            write(store, held, noted(message(1), outcome))
        assert Outcome.APPLIED is known(store, held, message(1))[0].noted

    def test_a_version_is_known(self, subject: Subject) -> None:
        """The newest that was written, of this aggregate, to a consumer that compares versions."""
        store = connect(subject, guard="newer")
        held = claim(subject, store)
        for version in (4, 9):
            write(store, held, Writes(versions={"zoe": (version, False)}))
        assert [9, None] == [each.version for each in known(store, held, message(1), message(2, "max"))]

    def test_a_version_never_goes_back(self, subject: Subject) -> None:
        """Whoever read an older one before another transaction wrote the newest."""
        store = connect(subject, guard="newer")
        held = claim(subject, store)
        write(store, held, Writes([Noted(message(1), Outcome.APPLIED)], versions={"zoe": (7, True)}))
        write(store, held, Writes([Noted(message(2), Outcome.APPLIED)], versions={"zoe": (3, False)}))
        assert 7 == known(store, held, message(3))[0].version

    def test_a_version_outlives_its_aggregate(self, subject: Subject) -> None:
        """A deletion leaves the version that late events are compared with."""
        store = connect(subject, guard="newer")
        held = claim(subject, store)
        write(store, held, Writes(versions={"zoe": (5, True)}))
        assert 5 == known(store, held, message(1))[0].version

    def test_a_stashed_message_blocks_its_aggregate(self, subject: Subject) -> None:
        """And no other."""
        store = connect(subject)
        held = claim(subject, store)
        write(store, held, Writes(stashed=[Stashed(message(1)), Stashed(message(2))]))
        facts = known(store, held, message(3), message(4, "max"))
        assert ([2, None], 2) == ([each.blocked for each in facts], stash_size(store, held))

    def test_a_message_is_stashed_once(self, subject: Subject) -> None:
        """C3: also where it is read again."""
        store = connect(subject)
        held = claim(subject, store)
        for _ in range(2):
            write(store, held, Writes(stashed=[Stashed(message(1))]))
        assert (1, 1) == (known(store, held, message(2))[0].blocked, stash_size(store, held))

    def test_what_is_stashed_is_one_groups(self, subject: Subject) -> None:
        """Another group has repaired nothing, and blocks nothing."""
        store, other = connect(subject), subject.other_group()
        write(store, claim(subject, store), Writes(stashed=[Stashed(message(1))]))
        elsewhere = connect(other)
        held = claim(other, elsewhere)
        assert (None, 0) == (known(elsewhere, held, message(2))[0].blocked, stash_size(elsewhere, held))

    def test_a_stash_that_was_given_up_blocks_nothing(self, subject: Subject) -> None:
        """A message is in the stash together with its aggregate's block, or neither is."""
        first, second = connect(subject), connect(subject)
        held = claim(subject, first)
        both = Writes([Noted(message(1), Outcome.APPLIED)], [Stashed(message(2))], [Outgoing("t", None, None, ())])
        with pytest.raises(ContendedError):
            write(first, held, both, lambda _: write(second, held, noted(message(1))))
        assert (None, 0) == (known(first, held, message(2))[0].blocked, stash_size(first, held))
        assert [] == sent(first)

    def test_facts_come_in_the_messages_order(self, subject: Subject) -> None:
        """Each with the partition that it was read in."""
        store = connect(subject)
        held = [claim(subject, store, partition) for partition in (0, 1)]
        claim(subject, store, 1)
        write(store, held[0], noted(message(12)))
        asked = [message(offset, partition=offset % 2) for offset in range(10, 20)]
        with store.transaction() as transaction:
            facts = transaction.facts(asked, [held[each.place.partition] for each in asked])
        assert [1, 2] * 5 == [each.epoch for each in facts]
        assert [2] == [index for index, each in enumerate(facts) if each.noted is not None]

    def test_the_outbox_keeps_its_order(self, subject: Subject) -> None:
        """What was written first is sent first, however many at a time."""
        store = connect(subject)
        held = claim(subject, store)
        records = [Outgoing("shown", str(number).encode(), None, ()) for number in range(5)]
        write(store, held, Writes(outgoing=records[:3]))
        write(store, held, Writes(outgoing=records[3:]))
        assert records == sent(store, 2)

    def test_what_was_sent_is_forgotten(self, subject: Subject) -> None:
        """Once."""
        store = connect(subject)
        write(store, claim(subject, store), Writes(outgoing=[Outgoing("shown", b"k", b"v", ())]))
        assert [1, 0] == [len(sent(store)), len(sent(store))]

    def test_what_could_not_be_sent_stays(self, subject: Subject) -> None:
        """It is sent again, and comes at least once."""
        store = connect(subject)
        write(store, claim(subject, store), Writes(outgoing=[Outgoing("shown", b"k", b"v", ())]))

        def fail(_records: Sequence[Outgoing]) -> None:
            raise ConnectionError

        with pytest.raises(ConnectionError):
            store.send(fail, 10)
        assert 1 == len(sent(store))

    def test_records_come_back_as_they_were(self, subject: Subject) -> None:
        """Nulls stay nulls, headers repeat and keep their order, bytes are no text."""
        store = connect(subject)
        headers = (("a", b"\x00\xff"), ("b", None), ("a", b""))
        odd = Outgoing("shown", None, b"\x00\xfe", headers)
        write(store, claim(subject, store), Writes(outgoing=[odd]))
        assert [odd] == sent(store)

    def test_the_same_consumer_registers_again(self, subject: Subject) -> None:
        """A second member, or the same after a restart."""
        assert [1, 2] == [claim(subject, connect(subject)).epoch for _ in range(2)]

    def test_a_stash_is_not_forgotten_by_another_policy(self, subject: Subject) -> None:
        """A consumer that would no longer look at the stash is refused while there is one."""
        store = connect(subject)
        write(store, claim(subject, store), Writes(stashed=[Stashed(message(1))]))
        store.close()
        with pytest.raises(AnotherPolicyError, match="stash"):
            subject.connect().register(Terms(Block()), TOPIC)

    def test_who_was_registered_otherwise_claims_nothing(self, subject: Subject) -> None:
        """A consumer that was started since with another policy has the partitions."""
        store = connect(subject)
        subject.connect().register(Terms(Block()), TOPIC)
        with pytest.raises(AnotherPolicyError, match="registered"):
            claim(subject, store)


class StashBehaviour:
    """What a drain relies on; each test takes `subject`."""

    def test_what_was_stashed_first_is_the_head(self, subject: Subject) -> None:
        """B12: the messages of an aggregate are drained in their order, and nobody else's among them."""
        store, held, stash = drained(subject)
        for one in (message(1), message(2, "max"), message(3)):
            write(store, held, Writes(stashed=[Stashed(one)]))
        assert [1, 3] == [take(stash).origin.offset for _ in range(2)]

    def test_without_a_ledger_what_is_read_again_is_stashed_where_it_stood(self, subject: Subject) -> None:
        """C3: it may have been applied before what is stashed by now, and nothing notes that."""
        store, held, stash = drained(subject, ledger=False)
        for one in (message(5), message(2), message(3), message(6)):
            write(store, held, Writes(stashed=[Stashed(one)]))
        assert [2, 3, 5, 6] == [take(stash).origin.offset for _ in range(4)]

    def test_a_letter_is_the_message_as_it_came(self, subject: Subject) -> None:
        """Its bytes, its headers and its time, and why it was put aside."""
        store, held, stash = drained(subject)
        headers = (("a", b"\x00\xff"), ("b", None), ("a", b""))
        at = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
        odd = message(1, key=None, value=b"\x00\xfe", headers=headers, at=at)
        write(store, held, Writes(stashed=[Stashed(odd, "PoisonError", "it says \0")]))
        found = take(stash)
        assert (odd.origin, odd.key, odd.value, odd.headers, at) == (
            found.origin,
            found.key,
            found.value,
            found.headers,
            found.at,
        )
        assert ("PoisonError", 0, False) == (found.error_class, found.drains, found.replayed)

    def test_an_error_may_repeat_what_no_text_can_say(self, subject: Subject) -> None:
        """Half a character, as JSON may escape it: the message is stashed all the same, and a drain puts it back."""
        store, held, stash = drained(subject)
        write(store, held, Writes(stashed=[Stashed(message(1), "PoisonError", "no \ud83d")]))
        with stash.transaction() as step:
            found = step.head("zoe")
            assert found is not None
            step.put_back(found[0], "PoisonError", "\ud83d \0", [])
        assert 1 == take(stash).drains

    def test_a_message_leaves_the_stash_with_the_change_that_it_makes(self, subject: Subject) -> None:
        """B12: it is applied and taken in one transaction."""
        store, held, stash = drained(subject)
        write(store, held, Writes(stashed=[Stashed(message(1))]))
        with stash.transaction() as step:
            found = step.head("zoe")
            assert found is not None
            subject.put(step.handle, "zoe", "Zoë")
            step.take(found[0], noted(message(1)))
        facts = known(store, held, message(1))[0]
        assert ({"zoe": "Zoë"}, Outcome.APPLIED, 0) == (subject.copy(), facts.noted, stash_size(store, held))
        assert None is head(stash)

    def test_a_drain_notes_nothing_where_the_members_keep_no_ledger(self, subject: Subject) -> None:
        """C3: of what is read again it would step over the last messages, and an earlier one would be the last word."""
        store = connect(subject, ledger=False)
        held = claim(subject, store)
        write(store, held, Writes(stashed=[Stashed(message(1))]))
        stash = subject.stash(subject.connect())
        stash.hold(60)
        with stash.transaction() as step:
            found = step.head("zoe")
            assert found is not None
            step.take(found[0], noted(message(1)))
        assert None is known(store, held, message(1))[0].noted

    def test_a_step_that_is_given_up_leaves_all_as_it_was(self, subject: Subject) -> None:
        """Neither is the copy changed nor the message taken."""
        store, held, stash = drained(subject)
        write(store, held, Writes(stashed=[Stashed(message(1))]))
        with stash.transaction() as step:
            step.head("zoe")
            subject.put(step.handle, "zoe", "Zoë")
        assert ({}, 1) == (subject.copy(), stash_size(store, held))

    def test_a_message_that_fails_again_stays_the_head(self, subject: Subject) -> None:
        """B13: with its new error, and one more drain counted; what shows it is left to send."""
        store, held, stash = drained(subject)
        write(store, held, Writes(stashed=[Stashed(message(1), "PoisonError", "first"), Stashed(message(2))]))
        with stash.transaction() as step:
            found = step.head("zoe")
            assert found is not None
            step.put_back(found[0], "OtherError", "second", [Outgoing("again", None, None, ())])
        assert ["again"] == [each.topic for each in sent(store)]
        again = take(stash)
        assert (1, "OtherError", "second", 1) == (
            again.origin.offset,
            again.error_class,
            again.error_message,
            again.drains,
        )

    def test_an_aggregate_flows_once_its_stash_is_empty(self, subject: Subject) -> None:
        """B10: and not before."""
        store, held, stash = drained(subject)
        write(store, held, Writes(stashed=[Stashed(message(1))]))
        early = unblock(stash)
        take(stash)
        assert (False, True, None) == (early, unblock(stash), unblock(stash))
        assert None is known(store, held, message(2))[0].blocked

    def test_an_aggregate_stays_blocked_while_the_last_message_is_gone(self, subject: Subject) -> None:
        """B10: until a drain has decided that nothing more came."""
        store, held, stash = drained(subject)
        write(store, held, Writes(stashed=[Stashed(message(1))]))
        take(stash)
        assert None is not known(store, held, message(2))[0].blocked

    def test_what_the_ledger_says_was_applied_is_known_of_the_head(self, subject: Subject) -> None:
        """C7: a duplicate that was stashed beside its original is not applied again."""
        store, held, stash = drained(subject)
        write(store, held, Writes(stashed=[Stashed(message(2, event="same"))]))
        write(store, held, noted(message(1, event="same")))
        found = head(stash)
        assert found is not None
        assert Outcome.APPLIED is found[1].noted

    @pytest.mark.parametrize("outcome", [Outcome.OLDER, Outcome.DISCARDED])
    def test_a_duplicate_of_what_was_not_applied_is_done_with_too(self, subject: Subject, outcome: Outcome) -> None:
        """C7: the ledger has an event once, so that a drain which tried to note it again would wait for ever."""
        store, held, stash = drained(subject)
        first, second = message(1, event="same"), message(2, event="same")
        write(store, held, Writes(stashed=[Stashed(first), Stashed(second)]))
        with stash.transaction() as step:
            found = step.head("zoe")
            assert found is not None
            step.take(found[0], noted(first, outcome))
        again = head(stash)
        assert again is not None
        assert outcome is again[1].noted

    def test_a_second_drain_is_refused_while_the_first_lives(self, subject: Subject) -> None:
        """B12: and may begin when that has given the stash back."""
        _, _, stash = drained(subject)
        epoch = stash.hold(60)
        other = subject.stash(connect(subject))
        with pytest.raises(DrainHeldError):
            other.hold(60)
        stash.give_back(epoch)
        assert epoch < other.hold(60)

    def test_a_drain_that_was_overtaken_sees_another_epoch(self, subject: Subject) -> None:
        """A drain that slept changes nothing more."""
        store, held, stash = drained(subject)
        write(store, held, Writes(stashed=[Stashed(message(1))]))
        epoch = stash.hold(60)
        stash.give_back(epoch)
        later = subject.stash(connect(subject))
        assert epoch < later.hold(60)
        found = head(later)
        assert found is not None
        assert epoch != found[1].epoch
        with pytest.raises(DrainHeldError):
            later.renew(epoch, 60)

    def test_what_is_blocked_for_longest_comes_first(self, subject: Subject) -> None:
        """B12: each once."""
        store, held, stash = drained(subject)
        for number, aggregate in enumerate(("zoe", "max", "zoe", "ann")):
            write(store, held, Writes(stashed=[Stashed(message(number, aggregate))]))
        order, after = [], None
        while (after := stash.blocked(after)) is not None:
            order.append(after[1])
        assert ["zoe", "max", "ann"] == order


def drained(subject: Subject, *, ledger: bool = True) -> tuple[ConsumerStore, HeldPartition, StashStore]:
    """Open a member's connection, which holds partition 0, and the stash over another."""
    store, other = connect(subject, ledger=ledger), connect(subject, ledger=ledger)
    return store, claim(subject, store), subject.stash(other)


class PolicyBehaviour:
    """What a processor does, on every store; each test takes `subject`."""

    @BY_POLICY
    def test_a_message_is_applied_once(self, subject: Subject, policy: Policy) -> None:
        """C3, C7: what is read again is seen, and its handler not called."""
        member = Member(subject, policy)
        assert [Done("applied"), Done("seen")] == [member.process(message(1)), member.process(message(1))]
        assert ([1], {"zoe": "value 1"}) == (member.handled, subject.copy())

    @BY_POLICY
    def test_a_duplicate_in_the_log_is_applied_once(self, subject: Subject, policy: Policy) -> None:
        """C7: its event's id was noted."""
        member = Member(subject, policy)
        results = [member.process(message(1, event="same")), member.process(message(2, event="same"))]
        assert ([Done("applied"), Done("seen")], [1]) == (results, member.handled)

    @BY_POLICY
    def test_a_member_without_its_partition_changes_nothing(self, subject: Subject, policy: Policy) -> None:
        """Whether it applies a message or has to do something with one that failed."""
        member = Member(subject, policy)
        claim(subject, member.another())
        member.poison.add(2)
        assert [Fenced(), Fenced()] == [member.process(message(1)), member.process(message(2))]
        assert ([], {}) == (member.handled, subject.copy())

    @BY_POLICY
    def test_a_member_that_loses_its_partition_while_a_message_fails_changes_nothing(
        self, subject: Subject, policy: Policy
    ) -> None:
        """What is done with a failed message is fenced again, in its own transaction."""
        member = Member(subject, policy)
        member.poison.add(1)
        other = member.another()
        member.at["putting aside"] = lambda: claim(subject, other)
        result = member.process(message(1))
        assert result == (Waits(0.1) if isinstance(policy, Block) else Fenced())
        held = claim(subject, other)
        facts = known(other, held, message(1))[0]
        assert (None, None, []) == (facts.noted, facts.blocked, sent(other))

    @BY_POLICY
    def test_b8_a_recoverable_error_is_tried_again_in_place(self, subject: Subject, policy: Policy) -> None:
        """B6, B8: under each policy, with growing delay; nothing is noted, nothing sent."""
        member = Member(subject, policy)
        member.outage = True
        assert [Waits(0.1), Waits(0.2), Waits(0.4)] == [member.process(message(1)) for _ in range(3)]
        facts = known(member.store, member.held, message(1))[0]
        assert (None, None, {}, []) == (facts.noted, facts.blocked, subject.copy(), sent(member.store))

    @BY_POLICY
    def test_b9_a_message_that_fails_by_itself_is_done_with_as_the_policy_says(
        self, subject: Subject, policy: Policy
    ) -> None:
        """B1, B2, B3, B4, B9: at once, and what the handler did is undone."""
        member = Member(subject, policy)
        member.poison.add(1)
        done: dict[str, tuple[Result, Outcome | None, list[str]]] = {
            "ignore": (Done("ignored"), Outcome.IGNORED, []),
            "block": (Waits(0.1), None, []),
            "retry-then-dead-letter": (Done("dead_lettered"), Outcome.DEAD_LETTERED, ["dead"]),
            "retry-topics": (Done("sent_on"), Outcome.SENT_ON, ["retry"]),
            "stash": (Done("stashed"), None, ["shown"]),
        }
        result = member.process(message(1))
        facts = known(member.store, member.held, message(1))[0]
        assert done[policy.name] == (result, facts.noted, [each.topic for each in sent(member.store)])
        assert {} == subject.copy()

    @BY_POLICY
    def test_b10_what_follows_a_failure(self, subject: Subject, policy: Policy) -> None:
        """B10: only `stash` holds back what follows of the same aggregate, and lets the others flow."""
        member = Member(subject, policy)
        member.poison.add(1)
        member.process(message(1))
        results = [member.process(message(2)), member.process(message(3, "max"))]
        assert results == [Done("stashed" if isinstance(policy, Stash) else "applied"), Done("applied")]

    @BY_POLICY
    def test_a_message_that_only_failed_once_is_applied(self, subject: Subject, policy: Policy) -> None:
        """B8: a transient failure leaves no trace."""
        member = Member(subject, policy)
        member.outage = True
        member.process(message(1))
        member.outage = False
        assert (Done("applied"), {"zoe": "value 1"}) == (member.process(message(1)), subject.copy())

    def test_b3_an_outage_takes_no_try_from_a_message(self, subject: Subject) -> None:
        """B3, B8: a message that fails by itself after an outage has all its tries."""
        member = Member(subject, RetryThenDeadLetter("dead", tries=2))
        member.outage = True
        waits = [member.process(message(1)) for _ in range(3)]
        member.outage = False
        member.poison.add(1)
        assert [Waits(0.1), Waits(0.2), Waits(0.4)] == waits
        assert [Waits(0.1), Done("dead_lettered")] == [member.process(message(1)) for _ in range(2)]

    @BY_POLICY
    def test_transactions_that_met_are_tried_again_at_once(self, subject: Subject, policy: Policy) -> None:
        """A deadlock is nobody's fault, and the same again succeeds."""
        member = Member(subject, policy)
        member.contended = 2
        results = [member.process(message(1)) for _ in range(3)]
        assert [Waits(0.0), Waits(0.0), Done("applied")] == results

    def test_a_message_from_a_retry_topic_is_applied_and_then_seen(self, subject: Subject) -> None:
        """B4: it comes back from where it was sent to; a copy of it that was sent twice changes nothing."""
        member = Member(subject, POLICIES[3])
        member.poison.add(1)
        member.process(message(1))
        member.poison.clear()
        back = message(1, place=RecordPlace("retry", 0, 40))
        twice = message(1, place=RecordPlace("retry", 0, 41))
        results = [member.process(each) for each in (message(1), back, twice, message(1))]
        assert [Done("seen"), Done("applied"), Done("seen"), Done("seen")] == results

    def test_ignore_stops_where_too_much_is_lost(self, subject: Subject) -> None:
        """B1: and the message that would be one too many is not lost."""
        member = Member(subject, Ignore(max_consecutive=2))
        member.poison |= {1, 2, 3}
        member.process(message(1))
        member.process(message(2))
        with pytest.raises(LossLimitError):
            member.process(message(3))
        assert None is known(member.store, member.held, message(3))[0].noted

    def test_a_stash_that_is_full_stops_the_consumer(self, subject: Subject) -> None:
        """Of one aggregate: nothing is dropped."""
        member = Member(subject, Stash(per_aggregate=2))
        member.poison.add(1)
        results = [member.process(message(1)), member.process(message(2))]
        with pytest.raises(StashFullError, match="2 messages of one aggregate"):
            member.process(message(3))
        assert [Done("stashed"), Done("stashed")] == results
        assert 2 == stash_size(member.store, member.held)

    @pytest.mark.parametrize("policy", [Stash(per_aggregate=2), Stash(in_all=2)], ids=["of one aggregate", "in all"])
    def test_a_stash_that_is_full_takes_what_it_holds(self, subject: Subject, policy: Policy) -> None:
        """C3: a message that is read again takes no more room, so that the consumer goes on."""
        member = Member(subject, policy)
        member.poison.add(1)
        results = [member.process(each) for each in (message(1), message(2), message(1), message(2))]
        assert [Done("stashed")] * 4 == results
        assert 2 == stash_size(member.store, member.held)

    def test_a_stash_that_is_full_in_all_stops_the_consumer(self, subject: Subject) -> None:
        """Of all aggregates together."""
        member = Member(subject, Stash(in_all=1))
        member.poison |= {1, 2}
        member.process(message(1))
        with pytest.raises(StashFullError, match="1 messages are stashed"):
            member.process(message(2, "max"))
        assert None is known(member.store, member.held, message(2, "max"))[0].blocked

    def test_what_strikes_many_aggregates_is_not_stashed(self, subject: Subject) -> None:
        """The breaker opens, one message at a time is tried, and all flows when one succeeds."""
        member = Member(subject, Stash(), breaker=BreakerLimits(in_a_row=2))
        member.poison |= {1, 2, 3}
        failures = [member.process(message(1, "a")), member.process(message(2, "b")), member.process(message(2, "b"))]
        member.poison.clear()
        assert [Done("stashed"), Waits(0.1, probing=True), Waits(0.2, probing=True)] == failures
        assert Done("applied") == member.process(message(2, "b"))

    def test_a_success_tells_the_breaker_that_others_flow(self, subject: Subject) -> None:
        """Failures with one that succeeds between them are no outage."""
        member = Member(subject, Stash(), breaker=BreakerLimits(in_a_row=2))
        member.poison |= {1, 3}
        results = [member.process(message(number, aggregate)) for number, aggregate in enumerate("abc", 1)]
        assert [Done("stashed"), Done("applied"), Done("stashed")] == results

    def test_c8_no_batch_is_a_probe(self, subject: Subject) -> None:
        """While the breaker is open one message is tried at a time."""
        member = Member(subject, Stash(), breaker=BreakerLimits(in_a_row=1))
        member.poison.add(1)
        member.process(message(1))
        assert None is member.processor.process_all([message(2), message(3)], [member.held] * 2)

    def test_each_message_begins_with_the_first_delay(self, subject: Subject) -> None:
        """Also where its partition was set back."""
        member = Member(subject, Block())
        member.poison |= {1, 2}
        results = [member.process(message(number)) for number in (2, 2, 1)]
        assert [Waits(0.1), Waits(0.2), Waits(0.1)] == results

    def test_c8_a_batch_with_a_message_of_no_aggregate_is_unrolled(self, subject: Subject) -> None:
        """C8: nothing of it was kept."""
        member = Member(subject, Block())
        assert None is member.processor.process_all([message(1), message(2, None)], [member.held] * 2)
        assert {} == subject.copy()

    def test_a_message_of_no_aggregate_blocks_its_partition(self, subject: Subject) -> None:
        """Where there is no dead-letter topic: nobody knows what may follow."""
        member = Member(subject, Stash())
        assert (Waits(0.1), []) == (member.process(message(1, None)), member.handled)

    def test_a_message_of_no_aggregate_is_dead_lettered(self, subject: Subject) -> None:
        """With a flag."""
        member = Member(subject, RetryThenDeadLetter("dead"))
        assert Done("dead_lettered") == member.process(message(1, None))
        assert [("reconcile-nameless", b"true")] == [each.headers[-1] for each in sent(member.store)]

    def test_b16_an_older_version_is_dropped(self, subject: Subject) -> None:
        """B16: the copy keeps what is newer, and the ledger says so."""
        member = Member(subject, Block(), guard="newer")
        results = [member.process(message(1, version=5)), member.process(message(2, version=4))]
        assert ([Done("applied"), Done("older")], {"zoe": "value 1"}) == (results, subject.copy())
        assert Outcome.OLDER is known(member.store, member.held, message(2))[0].noted

    def test_b16_a_late_event_does_not_raise_the_dead(self, subject: Subject) -> None:
        """B16: a deletion leaves a version, its own or that of what it deletes."""
        member = Member(subject, Block(), guard="newer")
        events = [message(1, version=5), message(2, value=None, deletes=True), message(3, version=5)]
        assert [Done("applied"), Done("applied"), Done("older")] == [member.process(each) for each in events]
        assert {} == subject.copy()

    def test_b16_an_aggregate_may_be_created_again(self, subject: Subject) -> None:
        """B16: with a version beyond that of its deletion."""
        member = Member(subject, Block(), guard="newer")
        events = [message(1, version=5), message(2, version=6, value=None, deletes=True), message(3, version=7)]
        assert [Done("applied")] * 3 == [member.process(each) for each in events]
        assert {"zoe": "value 3"} == subject.copy()

    def test_c8_a_batch_is_kept_whole(self, subject: Subject) -> None:
        """C8: in its order, with each message seeing what those before it did."""
        member = Member(subject, Block(), guard="newer")
        batch = [message(1, version=1), message(2, version=3), message(3, version=2), message(1, version=1)]
        held = [member.held] * len(batch)
        results = member.processor.process_all(batch, held)
        assert [Done("applied"), Done("applied"), Done("older"), Done("seen")] == results
        assert {"zoe": "value 2"} == subject.copy()

    def test_c8_a_batch_with_a_failure_leaves_nothing(self, subject: Subject) -> None:
        """C8: it is unrolled by who called."""
        member = Member(subject, Block())
        member.poison.add(2)
        assert None is member.processor.process_all([message(1), message(2)], [member.held] * 2)
        assert ({}, None) == (subject.copy(), known(member.store, member.held, message(1))[0].noted)

    def test_c8_a_batch_stashes_what_is_blocked(self, subject: Subject) -> None:
        """C8, B10: in its order, and others flow."""
        member = Member(subject, Stash())
        member.poison.add(1)
        member.process(message(1))
        batch = [message(2), message(3, "max"), message(4)]
        assert [Done("stashed"), Done("applied"), Done("stashed")] == member.processor.process_all(
            batch, [member.held] * 3
        )
        assert 3 == known(member.store, member.held, message(5))[0].blocked

    @pytest.mark.parametrize("policy", [Stash(per_aggregate=2), Stash(in_all=2)], ids=["of one aggregate", "in all"])
    def test_c8_a_batch_passes_no_bound(self, subject: Subject, policy: Policy) -> None:
        """C8: it is unrolled, so that what still finds room is stashed, and what is read again takes none."""
        member = Member(subject, policy)
        member.poison.add(1)
        member.process(message(1))
        assert None is member.processor.process_all([message(2), message(3)], [member.held] * 2)
        assert 1 == stash_size(member.store, member.held)


class Member:
    """A processor that holds partition 0, whose handler fails as it is told."""

    def __init__(self, subject: Subject, policy: Policy, **terms: Any) -> None:
        self.poison: set[int] = set()
        self.outage = False
        self.contended = 0
        self.handled: list[int] = []
        self.at: dict[str, Callable[[], object]] = {}
        self._subject = subject
        semantics = "records" if isinstance(policy, RetryTopics) else "state"
        self.terms = Terms(policy, semantics, backoff=Backoff(limit=timedelta(seconds=1)), **terms)
        self.store = self.another()
        self.held = claim(subject, self.store)
        self.processor = Processor(self.store, self._handle, subject.group, self.terms, at=self._at)

    def another(self) -> ConsumerStore:
        """Open one more connection that consumes in the same manner."""
        store = self._subject.connect()
        store.register(self.terms, TOPIC)
        return store

    def process(self, one: Message) -> Result:
        """Process one message."""
        held = self.held
        if one.place.topic != TOPIC:
            topic, partition, _ = one.place
            held = HeldPartition(held.group, topic, partition, self.store.claim(held.group, topic, partition))
        return self.processor.process(one, held)

    def _at(self, step: str) -> None:
        self.at.get(step, bool)()

    def _handle(self, messages: Sequence[Message], handle: Any) -> None:
        for each in messages:
            self._handle_one(each, handle)

    def _handle_one(self, one: Message, handle: Any) -> None:
        value = None if one.value is None else one.value.decode()
        self._subject.put(handle, one.aggregate_id or "", value)
        if one.origin.offset in self.poison:
            raise PoisonError(one.place)
        if self.outage:
            raise ConnectionError
        if self.contended:
            self.contended -= 1
            raise ContendedError
        self.handled.append(one.origin.offset)
