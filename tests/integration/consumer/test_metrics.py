"""What is measured of a consumer that runs."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from reconcile.consumer import Block, Message, Metrics, Stash, Transaction
from tests.integration.consumer.world import PoisonError, Scenario, apply_copy, until


def refuse_zoe(message: Message, tx: Transaction) -> None:
    """Apply all but one id."""
    if message.aggregate_id == "zoe":
        raise PoisonError("cannot be read")
    apply_copy(message, tx)


def test_outcomes_failures_and_the_stash_are_measured(scenario: Scenario) -> None:
    """By the group alone."""
    registry = CollectorRegistry()

    def sample(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"reconcile_consumer_{name}", {"group": scenario.group, **labels})

    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"), ("max", 1, "Max"))
    with scenario.running(scenario.consumer(Stash(), refuse_zoe, metrics=Metrics(registry, every=0.1))):
        scenario.until_consumed()
        until(lambda: (sample("stashed_messages"), sample("lag_messages")) == (2, 0))
    assert (1, 1) == (sample("stashed_aggregates"), sample("messages_total", outcome="applied"))
    assert 1 == sample("failures_total", kind="non-recoverable", error="PoisonError")
    assert 2 == sample("messages_total", outcome="stashed")


def test_the_lag_of_a_partition_that_waits_grows(scenario: Scenario) -> None:
    """Nothing is fetched of it, so that only the broker knows."""
    registry = CollectorRegistry()

    def sample(name: str) -> float | None:
        return registry.get_sample_value(f"reconcile_consumer_{name}", {"group": scenario.group})

    scenario.publish(("zoe", 1, "Zoey"))
    with scenario.running(scenario.consumer(Block(), refuse_zoe, metrics=Metrics(registry, every=0.1))):
        until(lambda: sample("waiting_partitions") == 1 and sample("lag_messages") == 1)
        scenario.publish(("zoe", 2, "Zoë"), ("zoe", 3, "Zoiee"))
        until(lambda: sample("lag_messages") == 3)
    assert 0 == sample("waiting_partitions")
