"""How messages are delivered: read again, doubled in the log, from where, in batches, and without what is damaged."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from reconcile.consumer.message import Message
from reconcile.consumer.policy import Block, Stash
from reconcile.consumer.postgres import Transaction
from reconcile.lab.services import offsets
from tests.integration.consumer.world import PATIENCE, PoisonError, Scenario, World, apply_copy, sequence_oracle, until

NAMES = [(f"user-{number % 7}", number, f"name {number}") for number in range(1, 60)]


def begin_again(scenario: Scenario) -> None:
    """Set the group back to the beginning, as if nothing of what was processed had been committed."""
    partitions = dict.fromkeys(range(scenario.partitions), 0)
    offsets.commit(scenario.world.lab.bootstrap, scenario.group, scenario.topic, partitions)


@pytest.mark.parametrize("batch", [1, 50])
def test_c3_what_is_read_again_is_applied_once(scenario: Scenario, batch: int) -> None:
    """C3: processed but not committed; the ledger knows each message by its place, also one without an id."""
    scenario.publish(*NAMES)
    for _ in range(2):
        consumer = scenario.consumer(Stash(), batch=batch)
        consumer.reading = replace(consumer.reading, event_id=None)
        with scenario.running(consumer):
            scenario.until_consumed()
        assert [] == scenario.rows("select event_id from reconcile.ledger where event_id is not null")
        assert list(range(1, 60)) == sorted(version for _, version in scenario.applied())
        begin_again(scenario)


def test_c3_what_ids_hold_does_not_matter(world: World) -> None:
    """C3: a batch notes each under its own id, whatever an array of the database would make of it."""
    ids = ["a,b", '"', "\\", '\\"', "null", "NULL", "{}", "{a}", " ", "''", "%s", "$1", "ë", "\n"]
    scenario = world.scenario(1)
    scenario.publish(*[(id_, 1, id_) for id_ in ids])
    for _ in range(2):
        with scenario.running(scenario.consumer(Stash(), batch=50, terms={"guard": "newer-or-equal"})):
            scenario.until_consumed()
        begin_again(scenario)
    assert [] == sequence_oracle(scenario)
    assert sorted(ids) == sorted(id_ for (id_,) in scenario.rows("select aggregate_id from reconcile.ledger"))
    assert sorted(ids) == sorted(id_ for (id_,) in scenario.rows("select aggregate_id from reconcile.version"))


def test_c3_without_a_ledger_the_guard_drops_what_is_read_again(scenario: Scenario) -> None:
    """C3: each version is applied once, and no aggregate goes back in time."""
    scenario.publish(*NAMES)
    for _ in range(2):
        with scenario.running(scenario.consumer(Stash(), terms={"ledger": False, "guard": "newer"})):
            scenario.until_consumed()
        begin_again(scenario)
    assert [] == sequence_oracle(scenario)


@pytest.mark.parametrize("batch", [1, 50])
def test_c7_an_event_that_is_twice_in_the_log_is_applied_once(scenario: Scenario, batch: int) -> None:
    """C7: the ledger knows it by its id, in the same batch or later."""
    scenario.publish(*NAMES, *NAMES)
    with scenario.running(scenario.consumer(Stash(), batch=batch)):
        scenario.until_consumed()
        scenario.publish(*NAMES)
        scenario.until_consumed()
    assert [] == sequence_oracle(scenario)


@pytest.mark.parametrize(("start", "applied"), [("earliest", [1, 2, 3]), ("latest", [3])])
def test_d1_a_group_without_offsets_begins_as_it_is_told(scenario: Scenario, start: str, applied: list[int]) -> None:
    """D1: with what the topic has, or with what comes; and that is remembered where it begins."""
    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"))
    with scenario.running(scenario.consumer(Block(), start=start)):
        scenario.until_consumed()
    scenario.publish(("zoe", 3, "Zoiee"))
    with scenario.running(scenario.consumer(Block(), start=start)):
        scenario.until_consumed()
    assert applied == scenario.applied("zoe")


@pytest.mark.parametrize("skips", [True, False])
def test_d8_what_is_registered_as_damaged_is_skipped(scenario: Scenario, skips: bool) -> None:
    """D8: a consumer that reads the topic again does without it, if it is told to."""
    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"), ("zoe", 3, "Zoiee"))
    scenario.rows(
        "insert into reconcile.damaged values (%s, %s, %s, 1, 'cannot be read')",
        *(scenario.group, scenario.topic, scenario.partition("zoe")),
    )
    with scenario.running(scenario.consumer(Stash(), terms={"skip_damaged": skips})):
        scenario.until_consumed()
    assert ([1, 3] if skips else [1, 2, 3]) == scenario.applied("zoe")
    noted = scenario.rows("select event_id, outcome from reconcile.ledger where outcome <> 'applied'")
    assert ([("zoe-2", "damaged")] if skips else []) == noted


def test_c8_of_a_batch_all_is_kept_or_nothing(world: World) -> None:
    """C8: when the bad message comes first, nothing of its batch is kept yet; one by one, all before it is."""
    scenario, kept = world.scenario(1), list[int]()

    def handle(message: Message, tx: Transaction) -> None:
        if message.event_id == "user-3-3":
            kept.append(len(scenario.applied()))
            raise PoisonError("cannot be read")
        apply_copy(message, tx)

    scenario.publish(*[(f"user-{number}", number, "name") for number in range(1, 30)])
    with scenario.running(scenario.consumer(Stash(), handle, batch=50)):
        scenario.until_consumed()
    assert [0, 2] == kept
    assert [("user-3", "user-3-3")] == scenario.stashed()


def test_c8_one_bad_message_costs_one_batch(world: World) -> None:
    """C8: only what was in its batch is called twice; the order is kept, and all else is in batches again."""
    scenario, calls = world.scenario(1), Counter[str]()

    def handle(message: Message, tx: Transaction) -> None:
        calls[str(message.event_id)] += 1
        if message.event_id == "user-3-3":
            raise PoisonError("cannot be read")
        apply_copy(message, tx)

    scenario.publish(*[(f"user-{number % 50}", number, "name") for number in range(1, 200)])
    with scenario.running(scenario.consumer(Stash(), handle, batch=50)):
        scenario.until_consumed()
    assert ({1, 2}, True) == (set(calls.values()), sum(each == 2 for each in calls.values()) <= 50)
    sizes = [size for (size,) in scenario.rows("select count(*) from reconcile.ledger group by xmin::text")]
    assert max(sizes) > 1
    scenario.consumer(Stash()).drain()
    assert [] == sequence_oracle(scenario)


def test_c8_a_group_of_batches_takes_what_failed_with_a_failure_that_passes(scenario: Scenario) -> None:
    """C8: the message waits in its place, what stands before it is kept, and then batches go on."""
    failures = [ConnectionRefusedError("no answer")] * 4

    def handle(message: Message, tx: Transaction) -> None:
        if message.version == 30 and failures:
            raise failures.pop()
        apply_copy(message, tx)

    scenario.publish(*NAMES)
    with scenario.running(scenario.consumer(Stash(), handle, batch=50)):
        until(lambda: not failures)
        scenario.until_consumed()
    assert ([], []) == (sequence_oracle(scenario), scenario.stashed())


@pytest.mark.parametrize("batch", [1, 50])
def test_a_topic_that_ends_with_a_marker_is_consumed_to_its_end(scenario: Scenario, batch: int) -> None:
    """The marker behind the last message takes an offset too: the group does not lag behind for ever."""
    producer = Producer({**scenario.world.cluster, "transactional.id": scenario.topic, "log_level": 0})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    value = json.dumps({"id": "zoe", "version": 1, "name": "Zoey"})
    headers: dict[str, str | bytes | None] = {"event-id": b"zoe-1", "version": b"1"}
    producer.produce(scenario.topic, key="zoe", value=value, headers=headers, partition=0)
    producer.commit_transaction(PATIENCE)
    with scenario.running(scenario.consumer(Stash(), batch=batch)):
        until(lambda: not scenario.lag(), "the group lags behind a marker")
    assert {"zoe": "Zoey"} == scenario.copy()
