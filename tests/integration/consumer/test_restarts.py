"""Rebalances while events are consumed, and restarts of the broker and of the database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from reconcile.consumer.message import Message
from reconcile.consumer.policy import Backoff, Block
from reconcile.consumer.postgres import Transaction
from tests.integration.consumer.processes import Members, members_in
from tests.integration.consumer.world import PROTOCOLS, Scenario, World, apply_copy, sequence_oracle, until

IDS = [f"user-{number}" for number in range(12)]


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    """Processes that end with the test."""
    with members_in(tmp_path) as started:
        yield started


def publish(scenario: Scenario, versions: range) -> None:
    """Publish so many events of each id."""
    scenario.publish(*[(each, version, f"{each} {version}") for version in versions for each in IDS])


def until_applied(scenario: Scenario, at_least: int) -> None:
    """Wait until so many events were applied."""
    until(lambda: scenario.rows("select count(*) from applied")[0][0] >= at_least, f"less than {at_least} were applied")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_come_and_go(world: World, members: Members, protocol: str) -> None:
    """Partitions move while they are consumed, and each event is applied once, in its order."""
    scenario = world.scenario(4)
    publish(scenario, range(1, 10))
    one = members.start(scenario, protocol)
    until_applied(scenario, 12)
    other = members.start(scenario, protocol)
    other.until_logged("assigned: t")
    publish(scenario, range(10, 20))
    assert 0 == one.end()
    third = members.start(scenario, protocol)
    third.until_logged("assigned: t")
    publish(scenario, range(20, 30))
    other.kill()
    scenario.until_consumed()
    assert [] == sequence_oracle(scenario)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_waiting_partition_that_comes_back_is_read_at_once(scenario: Scenario, protocol: str) -> None:
    """It waited for ever here, moved, and came back: what it waited for here counts no more."""
    healthy = threading.Event()
    failed: set[tuple[int, str | None]] = set()

    def handle(message: Message, tx: Transaction) -> None:
        if not healthy.is_set():
            failed.add((threading.get_ident(), message.aggregate_id))
            raise ConnectionError("not now")
        apply_copy(message, tx)

    slow = {"backoff": Backoff(first=timedelta(hours=1), limit=timedelta(hours=2))}
    one, other = (scenario.consumer(Block(), handle, kafka=PROTOCOLS[protocol], terms=slow) for _ in range(2))
    ids = [next(each for each in IDS if scenario.partition(each) == number) for number in range(3)]
    scenario.publish(*[(each, 1, each) for each in ids])
    with scenario.running(one):
        until(lambda: len(failed) == 3, "not all partitions wait")
        with scenario.running(other):
            until(lambda: len(failed) > 3, "no partition moved")
            healthy.set()
        until(lambda: scenario.copy(), "what came back was not read")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_broker_that_is_restarted_is_waited_for(
    world: World, scenario: Scenario, members: Members, protocol: str
) -> None:
    """Members go on where they were, also those that had just been given their partitions."""
    publish(scenario, range(1, 5))
    for _ in range(2):
        members.start(scenario, protocol)
    until_applied(scenario, 12)
    world.kafka.kill()
    world.kafka.up()
    publish(scenario, range(5, 9))
    scenario.until_consumed()
    assert [None, None] == [each.exit_code for each in members.started]
    assert [] == sequence_oracle(scenario)


def test_a_database_that_is_restarted_is_waited_for(world: World, scenario: Scenario, members: Members) -> None:
    """Members go on where they were, and what they had committed is there, though the server died."""
    publish(scenario, range(1, 5))
    member = members.start(scenario)
    scenario.until_consumed()
    world.postgres.kill()
    publish(scenario, range(5, 9))
    world.postgres.up()
    scenario.until_consumed()
    assert member.exit_code is None
    assert [] == sequence_oracle(scenario)
