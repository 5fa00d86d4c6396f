"""Bad input and bad handlers: each ends in a named error or waits, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg2
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from reconcile.consumer.alerts import Hooks
from reconcile.consumer.errors import (
    AnotherPolicyError,
    EndedTransactionError,
    NamelessMessageError,
    RecordsDeletedError,
    StashFullError,
    TablesMissingError,
)
from reconcile.consumer.message import Message
from reconcile.consumer.policy import Backoff, Block, RetryThenDeadLetter, Stash
from reconcile.consumer.postgres import Transaction
from reconcile.errors import RefusedError, UnreachableError
from reconcile.kafka.client import ClusterClient, GroupState
from reconcile.lab.services import offsets
from reconcile.lab.services.offsets import admin_client
from tests.integration.consumer.child import refuse_poison
from tests.integration.consumer.world import (
    PATIENCE,
    PROTOCOLS,
    Scenario,
    World,
    apply_copy,
    brief,
    sequence_oracle,
    until,
)

NOBODY = 9
"""A port at which nobody listens."""
KEYS = {"null": None, "unreadable": b"\xff\xfe"}


def produce(scenario: Scenario, key: bytes | None, value: bytes, partition: int = 0) -> None:
    """Publish a record as it is."""
    producer = scenario.world.producer()
    producer.produce(scenario.topic, key=key, value=value, partition=partition, headers={"version": b"1"})
    assert 0 == producer.flush(PATIENCE)


def stashed_for(scenario: Scenario) -> list[str]:
    """Query the errors for which messages were stashed."""
    return [name for (name,) in scenario.rows("select error_class from reconcile.stash order by sequence")]


@pytest.mark.parametrize("value", [b"\xff", b"{", b"null", b"[]", b'{"name": 7}', b'{"name": "a\\u0000b"}', b""])
def test_a_poison_record_is_stashed(world: World, value: bytes) -> None:
    """What a handler cannot read waits in the stash, as it came, and others flow."""
    scenario = world.scenario(1)
    produce(scenario, b"zoe", value)
    scenario.publish(("max", 1, "Max"))
    with scenario.running(scenario.consumer(Stash())):
        scenario.until_consumed()
    if value == b'{"name": 7}':
        assert {"zoe": "7", "max": "Max"} == scenario.copy()
        return
    assert {"max": "Max"} == scenario.copy()
    assert [(value,)] == [(bytes(each),) for (each,) in scenario.rows("select value from reconcile.stash")]


@pytest.mark.parametrize("key", KEYS)
def test_a_message_of_no_aggregate_blocks_its_partition(scenario: Scenario, key: str) -> None:
    """Without a dead-letter topic nothing else is safe: others flow, and people are told."""
    told: list[BaseException] = []
    produce(scenario, KEYS[key], b"{}", partition=scenario.partition("zoe"))
    other = next(name for name in ("a", "b", "c", "d", "e") if scenario.partition(name) != scenario.partition("zoe"))
    scenario.publish(("zoe", 1, "Zoey"), (other, 1, "Other"))
    hooks = Hooks(on_backoff_limit=lambda _, error: told.append(error))
    with scenario.running(scenario.consumer(Stash(), hooks=hooks, terms={"backoff": brief(Backoff())})):
        until(lambda: told and scenario.copy(), "nobody was told")
    assert {other: "Other"} == scenario.copy()
    assert isinstance(told[0], NamelessMessageError)
    assert {scenario.partition("zoe"): (0, 2)} == scenario.lag()


@pytest.mark.parametrize("key", KEYS)
def test_a_message_of_no_aggregate_is_a_dead_letter(scenario: Scenario, key: str) -> None:
    """With a dead-letter topic it goes there at once, marked, with its own key, and others flow."""
    letters = scenario.create_topic(f"{scenario.topic}-dead")
    produce(scenario, KEYS[key], b"{}", partition=scenario.partition("zoe"))
    scenario.publish(("zoe", 1, "Zoey"))
    with scenario.running(scenario.consumer(RetryThenDeadLetter(letters))):
        scenario.until_consumed()
        until(lambda: scenario.records(letters), "no dead letter came")
    assert {"zoe": "Zoey"} == scenario.copy()
    (letter,) = scenario.records(letters)
    headers = dict(letter.headers())
    assert (KEYS[key], b"true") == (headers["reconcile-origin-key"], headers["reconcile-nameless"])


def test_a_payload_of_a_megabyte_is_stashed_and_shown_once_its_topic_takes_it(scenario: Scenario) -> None:
    """The stash keeps it; a topic that refuses it with our headers is named, and gets it once it takes it."""
    shown = scenario.create_topic(f"{scenario.topic}-stash")
    value = b'{"name": "poison' + b"x" * 1_048_400 + b'"}'
    produce(scenario, b"zoe", value)
    with (  # noqa: PT012 - it is raised at the end of the block
        pytest.raises(RefusedError, match="They are kept: change the topic"),
        scenario.running(scenario.consumer(Stash(shown), refuse_poison)),
    ):
        scenario.until_consumed()
        until(lambda: [each for each in threading.enumerate() if each.name == scenario.topic] == [], "it goes on")
    assert [(len(value),)] == scenario.rows("select length(value) from reconcile.stash")
    larger = ConfigResource(
        ResourceType.TOPIC,
        shown,
        incremental_configs=[ConfigEntry("max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)],
    )
    admin_client(scenario.world.lab.bootstrap).incremental_alter_configs([larger])[larger].result(PATIENCE)
    with scenario.running(scenario.consumer(Stash(shown), refuse_poison)):
        until(lambda: scenario.records(shown), "it was not shown")
    assert [value] == [each.value() for each in scenario.records(shown)]


def test_a_handler_that_never_returns_loses_its_partition(world: World) -> None:
    """After max.poll.interval the partition moves, and what the handler did not finish is not kept."""
    scenario = world.scenario(1)
    scenario.publish(*[("max", version, f"Max {version}") for version in range(1, 4)])
    entered, released = threading.Event(), threading.Event()

    def never_return(message: Message, tx: Transaction) -> None:
        apply_copy(message, tx)
        entered.set()
        released.wait(PATIENCE)

    quick = {**PROTOCOLS["classic"], "max.poll.interval.ms": 3000}
    with scenario.running(scenario.consumer(Block(), never_return, kafka=quick)):
        entered.wait(PATIENCE)
        with scenario.running(scenario.consumer(Block(), kafka=PROTOCOLS["classic"])):
            scenario.until_consumed()
            released.set()
    assert [] == sequence_oracle(scenario)


def test_a_handler_that_swallows_the_databases_error_is_found(scenario: Scenario) -> None:
    """It went on in a transaction that the database had given up: its message is stashed, with this error."""

    def swallow(message: Message, tx: Transaction) -> None:
        try:
            tx.execute("insert into no_such_table values (1)")
        except psycopg2.Error:
            return

    scenario.publish(("max", 1, "Max"))
    with scenario.running(scenario.consumer(Stash(), swallow)):
        scenario.until_consumed()
    assert ["SwallowedError"] == stashed_for(scenario)


ENDINGS: dict[str, Callable[[Transaction], object]] = {
    "commit": lambda tx: tx.execute("commit"),
    "rollback": lambda tx: tx.execute("rollback"),
    "commit and begin": lambda tx: tx.execute("commit; begin"),
    "end within more": lambda tx: tx.execute("select 1; end; select 2"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_handler_that_ends_the_transaction_stops_its_consumer(scenario: Scenario, ending: str) -> None:
    """No message can be kept with what belongs to it by such a handler: it says so, and commits no offset."""

    def end(_message: Message, tx: Transaction) -> None:
        ENDINGS[ending](tx)
        tx.execute("select 1")

    scenario.publish(("max", 1, "Max"))
    with pytest.raises(EndedTransactionError, match="the library commits"):
        scenario.consumer(Stash(), end).run()
    assert {scenario.partition("max"): (0, 1)} == scenario.lag()


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_handler_that_ends_the_transaction_and_fails_stops_its_consumer(
    world: World, ending: str, batch: int
) -> None:
    """What it had changed is kept: stashed, its message would be applied once more by a drain."""
    scenario = world.scenario(1)

    def end(message: Message, tx: Transaction) -> None:
        apply_copy(message, tx)
        ENDINGS[ending](tx)
        raise ValueError("after its commit")

    scenario.publish(("max", 1, "Max"), ("ida", 1, "Ida"))
    with pytest.raises(EndedTransactionError, match="the library commits"):
        scenario.consumer(Stash(), end, batch=batch).run()
    assert ([], {0: (0, 2)}) == (scenario.stashed(), scenario.lag())


def test_a_drain_whose_handler_ends_the_transaction_and_fails_ends(scenario: Scenario) -> None:
    """The message stays where it is."""

    def end(message: Message, tx: Transaction) -> None:
        apply_copy(message, tx)
        tx.execute("commit")
        raise ValueError("after its commit")

    scenario.publish(("zoe", 1, "poison"))
    with scenario.running(scenario.consumer(Stash(), refuse_poison)):
        scenario.until_consumed()
    with pytest.raises(EndedTransactionError, match="the library commits"):
        scenario.consumer(Stash(), end).drain()
    assert [("zoe", "zoe-1")] == scenario.stashed()


def test_a_drivers_own_commit_has_no_effect(scenario: Scenario) -> None:
    """`commit()` and `rollback()` of the connection end nothing: the library's transaction goes on."""

    def commit(message: Message, tx: Transaction) -> None:
        apply_copy(message, tx)
        tx.connection.rollback()
        tx.connection.commit()
        if message.version == 2:
            raise ValueError("after its commit")

    scenario.publish(("max", 1, "Max"), ("max", 2, "Max, again"))
    with scenario.running(scenario.consumer(Stash(), commit)):
        scenario.until_consumed()
    assert {"max": "Max"} == scenario.copy()
    assert ["ValueError"] == stashed_for(scenario)


def test_a_store_without_our_tables_is_named(scenario: Scenario) -> None:
    """It says what to run."""
    scenario.rows("drop schema reconcile cascade")
    with pytest.raises(TablesMissingError, match="reconcile consumer migrate"):
        scenario.consumer(Stash()).run()


def test_another_policy_is_refused_while_members_are_connected(scenario: Scenario, world: World) -> None:
    """Also where a member had to connect anew, so that its first connection is none any more."""
    scenario.publish(("max", 1, "Max"))
    with world.severing() as proxy, scenario.running(scenario.consumer(Block(), url=scenario.severable_url)):
        scenario.until_consumed()
        with pytest.raises(AnotherPolicyError, match="stop its 1 connected members first"):
            scenario.consumer(Stash()).run()
        proxy.sever_all()
        scenario.publish(("max", 2, "Max, again"))
        scenario.until_consumed()
        with pytest.raises(AnotherPolicyError, match="stop its 1 connected members first"):
            scenario.consumer(Stash()).run()


def test_a_member_finds_another_policy_before_it_claims(scenario: Scenario) -> None:
    """One that had nothing to do yet is not connected in a sense that the other one sees."""
    with (  # noqa: PT012 - it is raised at the end of the block
        pytest.raises(AnotherPolicyError, match="otherwise than as block"),
        scenario.running(scenario.consumer(Block())),
    ):
        until(lambda: scenario.rows("select 1 from reconcile.consumer"), "nobody registered")
        with scenario.running(scenario.consumer(Stash())):
            until(lambda: scenario.rows("select 1 from reconcile.consumer where policy = 'stash'"), "not registered")
            # Before both have partitions, the one that came first could have consumed all.
            until(lambda: shares(scenario) == [1, 2], "the partitions are not shared")
            scenario.publish(*[(each, 1, each) for each in ("a", "b", "c", "d", "e", "f", "g", "h")])
            scenario.until_consumed()
            until(lambda: len(scenario.copy()) == 8, "the other one did not go on")
    assert [("stash",)] == scenario.rows("select policy from reconcile.consumer")


def shares(scenario: Scenario) -> list[int]:
    """Query how many partitions each member of the group has."""
    with closing(ClusterClient("main", scenario.world.cluster)) as cluster:
        group = cluster.group(scenario.group, scenario.topic)
        return sorted(len(member.partitions) for member in group.members) if group.state is GroupState.STABLE else []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_is_missing_is_named(scenario: Scenario, protocol: str) -> None:
    """It is not waited for."""
    scenario.topic = "no-such-topic"
    with pytest.raises(RefusedError, match="cannot read no-such-topic"):
        scenario.consumer(Stash(), kafka=PROTOCOLS[protocol]).run()


def test_records_that_are_deleted_before_they_were_read_are_named(world: World) -> None:
    """They are lost for the copy, so that somebody has to decide."""
    scenario = world.scenario(1)
    scenario.publish(("max", 1, "Max"), ("max", 2, "Max, again"))
    offsets.commit(world.lab.bootstrap, scenario.group, scenario.topic, {0: 0})
    gone = TopicPartition(scenario.topic, 0, 1)
    admin_client(world.lab.bootstrap).delete_records([gone])[gone].result(PATIENCE)
    with pytest.raises(RecordsDeletedError, match="reconcile the copy"):
        scenario.consumer(Stash()).run()
    assert {} == scenario.copy()


def test_a_full_stash_stops_the_consumer(world: World) -> None:
    """Nothing is dropped: with more room it goes on where it was."""
    scenario = world.scenario(1)
    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "poison"), ("zoe", 3, "Zoiee"), ("max", 1, "Max"))
    with pytest.raises(StashFullError, match="1 messages are stashed, and 1 may be"):
        scenario.consumer(Stash(in_all=1), refuse_poison).run()
    assert [("zoe", "zoe-2")] == scenario.stashed()
    with scenario.running(scenario.consumer(Stash(), refuse_poison)):
        scenario.until_consumed()
    assert [] == sequence_oracle(scenario, stashed=True)


def test_a_broker_that_does_not_answer_is_named(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the consumer ends, so that whoever runs it sees why."""
    monkeypatch.setattr("reconcile.consumer.member._TO_RESTART", 0.0)
    monkeypatch.setattr("reconcile.consumer.member._TO_ANSWER", 1.0)
    nowhere: dict[str, Any] = {"bootstrap.servers": f"127.0.0.1:{NOBODY}"}
    with pytest.raises(UnreachableError, match="does not answer the group"):
        scenario.consumer(Stash(), kafka=nowhere).run()


def test_a_database_that_does_not_answer_is_named(scenario: Scenario) -> None:
    """The consumer ends before it reads anything."""
    url = scenario.url.replace(f":{scenario.url.rsplit(':', 1)[1]}", f":{NOBODY}/{scenario.database}")
    with pytest.raises(UnreachableError, match="does not answer"):
        scenario.consumer(Stash(), url=url).run()
