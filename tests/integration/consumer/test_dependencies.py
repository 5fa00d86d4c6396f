"""B17: copies that build on those of other groups."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

from reconcile.consumer import Backoff, Block, Dependency, Hooks, Postgres
from tests.integration.consumer.world import Scenario, sequence_oracle, until

QUICK = {"backoff": Backoff(timedelta(milliseconds=20), limit=timedelta(milliseconds=100))}


def commit(scenario: Scenario, group: str, offset: int) -> None:
    """Commit for a group in zoe's partition, as its own consumer would."""
    options = {**scenario.world.cluster, "group.id": group, "log_level": 0}
    with closing(KafkaConsumer(options)) as client:
        place = TopicPartition(scenario.topic, scenario.partition("zoe"), offset)
        client.commit(offsets=[place], asynchronous=False)


def test_b17_a_message_is_applied_once_the_other_group_is_past_it(scenario: Scenario) -> None:
    """B17: it waits in place, nothing after it in its partition is applied, and people are told at the deadline."""
    billing, told = f"{scenario.topic}-billing", list[int]()
    hooks = Hooks(on_dependency_late=lambda message, _: told.append(message.place.offset))
    dependency = Dependency(billing, deadline=timedelta(milliseconds=1))
    consumer = scenario.consumer(Block(), terms=QUICK, hooks=hooks, depends_on=[dependency])
    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"), ("zoe", 3, "Zoiee"))
    with scenario.running(consumer):
        until(lambda: told)
        before = scenario.applied("zoe")
        commit(scenario, billing, 2)
        until(lambda: told == [0, 2])
        between = scenario.applied("zoe")
        commit(scenario, billing, 3)
        scenario.until_consumed()
    assert ([], [1, 2], [1, 2, 3]) == (before, between, scenario.applied("zoe"))


def test_b17_a_message_is_applied_once_the_other_ledger_has_its_event(scenario: Scenario) -> None:
    """B17: the event of another topic, found by its id in the ledger of who keeps the other copy."""
    billing, told = f"{scenario.topic}-billing", list[int]()
    hooks = Hooks(on_dependency_late=lambda message, _: told.append(message.place.offset))
    dependency = Dependency(
        billing, lambda message: f"account-{message.aggregate_id}", Postgres(scenario.url), timedelta(milliseconds=1)
    )
    consumer = scenario.consumer(Block(), terms=QUICK, hooks=hooks, depends_on=[dependency])
    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"))
    with scenario.running(consumer):
        until(lambda: told)
        before = scenario.applied("zoe")
        scenario.rows(
            'insert into reconcile.ledger (consumer_group, topic, partition, "offset", event_id, outcome)'
            " values (%s, 'accounts', 0, 0, 'account-zoe', 'applied')",
            billing,
        )
        scenario.until_consumed()
    assert ([], []) == (before, sequence_oracle(scenario))


def test_b17_a_batch_is_applied_as_far_as_the_other_group_is(scenario: Scenario) -> None:
    """B17: and the rest once it has gone on."""
    billing, told = f"{scenario.topic}-billing", list[int]()
    hooks = Hooks(on_dependency_late=lambda message, _: told.append(message.place.offset))
    commit(scenario, billing, 5)
    scenario.publish(*[("zoe", number, f"name {number}") for number in range(1, 11)])
    dependency = Dependency(billing, deadline=timedelta(milliseconds=1))
    consumer = scenario.consumer(Block(), terms=QUICK, hooks=hooks, depends_on=[dependency], batch=20)
    with scenario.running(consumer):
        until(lambda: 5 in told)
        before = scenario.applied("zoe")
        commit(scenario, billing, 10)
        scenario.until_consumed()
    assert ([1, 2, 3, 4, 5], []) == (before, sequence_oracle(scenario))
