"""What becomes of a message that cannot be processed, under each policy."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any

import psycopg2
import pytest

from reconcile.consumer.alerts import Hooks
from reconcile.consumer.consumer import Consumer
from reconcile.consumer.errors import LossLimitError, PolicyRefusedError, StashFullError
from reconcile.consumer.message import Message
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
)
from reconcile.consumer.postgres import Transaction
from tests.integration.consumer.world import PATIENCE, PoisonError, Scenario, World, apply_copy, sequence_oracle, until

Event = tuple[str, int, str | None]
QUICK = {"backoff": Backoff(first=timedelta(milliseconds=5), limit=timedelta(milliseconds=40))}
ZOE: Sequence[Event] = (("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"), ("zoe", 3, "Zoiee"))


@dataclass
class Handling:
    """A handler that fails as it is told to, and notes what it was called with."""

    fails: Callable[[Message], Exception | None] = lambda _: None
    calls: list[str] = field(default_factory=list)

    def __call__(self, message: Message, tx: Transaction) -> None:
        self.calls.append(str(message.event_id))
        error = self.fails(message)
        if error is not None:
            raise error
        apply_copy(message, tx)


def poison(*events: str) -> Callable[[Message], Exception | None]:
    """Build what fails at these events."""
    return lambda message: PoisonError("cannot be read") if message.event_id in events else None


def elsewhere(scenario: Scenario, key: str = "zoe") -> str:
    """Find a key of another partition."""
    names = (f"max{number}" for number in range(100))
    return next(name for name in names if scenario.partition(name) != scenario.partition(key))


def run_until_it_ends(consumer: Consumer) -> None:
    """Run a consumer that ends by itself; stop it if it does not."""
    stop = threading.Timer(PATIENCE, consumer.stop)
    stop.start()
    try:
        consumer.run()
    finally:
        stop.cancel()


def outcomes(scenario: Scenario) -> dict[str, str]:
    """Query what the ledger says of each event that was not applied."""
    return dict(scenario.rows("select event_id, outcome from reconcile.ledger where outcome <> 'applied'"))


def test_a_copy_follows_its_source(scenario: Scenario) -> None:
    """All events are applied once, in their order."""
    scenario.publish(*[(f"user-{number % 7}", number, f"name {number}") for number in range(1, 100)])
    with scenario.running(scenario.consumer(Stash())):
        scenario.until_consumed()
    assert [] == sequence_oracle(scenario)


def test_b1_what_is_ignored_is_skipped_and_noted(scenario: Scenario) -> None:
    """B1: the copy goes on without the message, and the ledger says that it was ignored."""
    scenario.publish(*ZOE)
    with scenario.running(scenario.consumer(Ignore(), Handling(poison("zoe-2")))):
        scenario.until_consumed()
    assert ([1, 3], {"zoe-2": "ignored"}) == (scenario.applied("zoe"), outcomes(scenario))


@pytest.mark.parametrize(
    ("policy", "bad", "why"),
    [
        (Ignore(max_ratio=1, max_consecutive=2), (2, 3, 4), "3 messages in a row failed, and 2 may be lost"),
        (Ignore(max_ratio=0.1, window=20), (1, 3, 5), "3 of the last 5 messages failed, and 2 may be lost"),
    ],
)
def test_b1_a_consumer_that_loses_too_much_stops(world: World, policy: Ignore, bad: tuple[int, ...], why: str) -> None:
    """B1: it says so, and loses no more: after the repair it goes on at the message that failed last."""
    scenario, told = world.scenario(1), list[str]()
    scenario.publish(*[(f"user-{number}", number, "name") for number in range(1, 7)])
    handling = Handling(poison(*(f"user-{number}-{number}" for number in bad)))
    with pytest.raises(LossLimitError, match=why):
        run_until_it_ends(scenario.consumer(policy, handling, hooks=Hooks(on_bound=told.append)))
    assert [why] == told
    with scenario.running(scenario.consumer(policy)):
        scenario.until_consumed()
    lost = bad[:-1]
    assert {f"user-{number}-{number}": "ignored" for number in lost} == outcomes(scenario)
    assert [number for number in range(1, 7) if number not in lost] == [version for _, version in scenario.applied()]


def test_b2_a_blocked_partition_waits_and_others_flow(scenario: Scenario) -> None:
    """B2: people are told once the delay grows no more; after the repair it goes on in order, with nothing lost."""
    other, broken, told = elsewhere(scenario), [True], list[str]()
    handling = Handling(lambda message: PoisonError("no") if broken[0] and message.event_id == "zoe-2" else None)
    hooks = Hooks(on_backoff_limit=lambda message, error: told.append(f"{message.event_id} {type(error).__name__}"))
    scenario.publish(*ZOE)
    with scenario.running(scenario.consumer(Block(), handling, terms=QUICK, hooks=hooks)):
        until(lambda: told)
        scenario.publish(*[(other, number, "Max") for number in range(1, 20)])
        until(lambda: len(scenario.applied(other)) == 19)
        until(lambda: scenario.lag() == {scenario.partition("zoe"): (1, 3)})
        assert [1] == scenario.applied("zoe")
        broken[0] = False
        scenario.until_consumed()
    assert ["zoe-2 PoisonError"] == told
    assert ([], {}) == (sequence_oracle(scenario), outcomes(scenario))


@pytest.mark.parametrize(("group", "batch"), [(None, 50), ("another", 1)])
def test_b4_a_message_goes_through_retry_topics_to_the_dead_letters(
    scenario: Scenario, group: str | None, batch: int
) -> None:
    """B4: each topic holds it longer than the one before, the main topic never stops; whichever group reads them."""
    policy = through_topics(scenario, (0.3, 0.6), group)
    tried: dict[int, float] = {}

    def fails(message: Message) -> Exception | None:
        if message.event_id != "zoe-2":
            return None
        tried[message.attempt] = time.monotonic()
        return PoisonError("cannot be read")

    scenario.publish(*ZOE)
    terms = QUICK | {"semantics": "records"}
    with scenario.running(scenario.consumer(policy, Handling(fails), terms=terms, batch=batch)):
        assert policy.dead_letter is not None
        until(lambda: scenario.records(str(policy.dead_letter)))
    first, second = (after - before for before, after in pairwise(tried.values()))
    assert ([0, 1, 2], True, True) == (list(tried), first >= 0.3, second >= 0.6)
    assert ([1, 3], {"zoe-2": "dead_lettered"}) == (scenario.applied("zoe"), outcomes(scenario))


@pytest.mark.parametrize("group", [None, "another"])
def test_b4_a_retry_topic_waits_while_the_main_topic_flows(scenario: Scenario, group: str | None) -> None:
    """B4: its partition is paused until its head is due; the same member goes on with the main topic's next message."""
    policy, broken = through_topics(scenario, (3.0,), group), [True]
    handling = Handling(lambda message: PoisonError("no") if broken[0] and message.event_id == "zoe-1" else None)
    scenario.publish(("zoe", 1, "Zoey"), ("ida", 1, "Ída"))
    with scenario.running(scenario.consumer(policy, handling, terms={"semantics": "records"})):
        until(lambda: scenario.records(policy.topics[0].topic))
        broken[0] = False
        scenario.publish(("max", 1, "Max"))
        until(lambda: "max" in scenario.copy())
        assert {"ida": "Ída", "max": "Max"} == scenario.copy()
        until(lambda: "zoe" in scenario.copy())
    assert (["zoe-1"] * 2, {}) == ([each for each in handling.calls if each == "zoe-1"], outcomes(scenario))


def test_b4_a_retry_topic_is_read_from_its_beginning(scenario: Scenario) -> None:
    """B4, D1: what was sent on before its reader came is tried, also where the main topic is read from its end."""
    policy = through_topics(scenario, (0.0,), "another")
    producer = scenario.world.producer()
    producer.produce(policy.topics[0].topic, key=b"ida", value=json.dumps({"name": "Ída"}), headers={"version": b"1"})
    assert 0 == producer.flush(PATIENCE)
    with scenario.running(scenario.consumer(policy, terms={"semantics": "records"}, start="latest")):
        until(lambda: "ida" in scenario.copy())


def through_topics(scenario: Scenario, delays: Sequence[float], group: str | None) -> RetryTopics:
    """Create retry topics, and a dead-letter topic."""
    reader = None if group is None else f"{scenario.group}.{group}"
    names = [scenario.create_topic(f"{scenario.topic}.retry-{number}", 2) for number in range(len(delays))]
    dead_letter = scenario.create_topic(f"{scenario.topic}.dlq")
    topics = [RetryTopic(name, timedelta(seconds=wait), reader) for name, wait in zip(names, delays, strict=True)]
    return RetryTopics(topics, dead_letter)


def test_b5_retry_topics_are_refused_for_a_copy_of_state(scenario: Scenario) -> None:
    """B5: there is no flag for it; the way out is to say that the copy keeps records."""
    with pytest.raises(PolicyRefusedError, match="choose the policy stash or block"):
        scenario.consumer(RetryTopics([RetryTopic("retry", timedelta(minutes=1))]))


@pytest.mark.parametrize("name", ["ignore", "block", "retry-then-dead-letter", "retry-topics", "stash"])
def test_b6_a_failure_that_passes_is_waited_for_in_place(scenario: Scenario, name: str) -> None:
    """B6, B7, B8: under every policy the order is kept, others flow, nothing is put aside, and people are told."""
    other, told = elsewhere(scenario), list[str]()
    policies: dict[str, Policy] = {each.name: each for each in (Ignore(), Block(), Stash())}
    policies |= {each.name: each for each in (RetryThenDeadLetter("none", 1), RetryTopics([]))}
    terms = {**QUICK, "semantics": "records" if name == "retry-topics" else "state"}

    def fails(message: Message) -> Exception | None:
        flowing = told and len(scenario.applied(other)) == 5
        if message.event_id != "zoe-2" or flowing:
            return None
        return TimeoutError("no answer") if told else psycopg2.OperationalError("no connection")

    scenario.publish(*ZOE, *[(other, number, "Max") for number in range(1, 6)])
    hooks = Hooks(on_backoff_limit=lambda message, _: told.append(str(message.event_id)))
    with scenario.running(scenario.consumer(policies[name], Handling(fails), terms=terms, hooks=hooks)):
        scenario.until_consumed()
    assert ([], {}, [], ["zoe-2"]) == (sequence_oracle(scenario), outcomes(scenario), scenario.stashed(), told)


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_b8_what_met_another_transaction_is_tried_again_at_once(scenario: Scenario, sqlstate: str) -> None:
    """B8: a serialization failure or a deadlock waits for nothing, and is nobody's fault."""
    calls: list[Message] = []

    def handle(message: Message, tx: Transaction) -> None:
        calls.append(message)
        if len(calls) <= 3:
            tx.execute(f"do $$ begin raise exception 'met' using errcode = '{sqlstate}'; end $$")
        apply_copy(message, tx)

    scenario.publish(("zoe", 1, "Zoey"))
    terms = {"backoff": Backoff(first=timedelta(hours=1), limit=timedelta(hours=1))}
    with scenario.running(scenario.consumer(Stash(), handle, terms=terms)):
        scenario.until_consumed()
    assert (4, [1], []) == (len(calls), scenario.applied("zoe"), scenario.stashed())


def test_b10_all_that_follows_a_stashed_message_is_stashed_too(scenario: Scenario) -> None:
    """B9, B10, B11: what fails is stashed after one try, what follows of the same id behind it, and others flow."""
    told: list[Any] = []

    def tell(message: Message, error: BaseException) -> None:
        told.append((message.event_id, type(error).__name__))
        raise RuntimeError("the messenger has gone home")

    handling = Handling(poison("zoe-2"))
    scenario.publish(*ZOE, ("max", 1, "Max"))
    with scenario.running(scenario.consumer(Stash(), handling, hooks=Hooks(on_stashed=tell))):
        scenario.until_consumed()
    assert {"zoe": "Zoey", "max": "Max"} == scenario.copy()
    assert [("zoe", "zoe-2"), ("zoe", "zoe-3")] == scenario.stashed()
    assert ["max-1", "zoe-1", "zoe-2"] == sorted(handling.calls)
    assert [("zoe-2", "PoisonError")] == told


@pytest.mark.parametrize(
    ("limits", "good_between", "stashed"),
    [(BreakerLimits(in_a_row=5), 0, 4), (BreakerLimits(in_a_row=50, of_recent=10, recent=100), 3, 9)],
)
def test_an_outage_opens_the_breaker(world: World, limits: BreakerLimits, good_between: int, stashed: int) -> None:
    """Where many aggregates fail nothing more is stashed: people are told, one is tried from time to time."""
    scenario, broken, told = world.scenario(1), [True], list[str]()
    handling = Handling(
        lambda message: PoisonError("no") if broken[0] and str(message.event_id).startswith("bad") else None
    )
    for number in range(1, 21):
        scenario.publish(
            (f"bad{number}", 1, "name"), *[(f"good{number}.{each}", 1, "name") for each in range(good_between)]
        )
    hooks = Hooks(on_breaker=lambda message, _: told.append(str(message.event_id)))
    terms = {**QUICK, "breaker": limits}
    with scenario.running(scenario.consumer(Stash(), handling, terms=terms, hooks=hooks)):
        until(lambda: handling.calls.count(f"bad{stashed + 1}-1") > 3)
        assert (stashed, [f"bad{stashed + 1}-1"]) == (len(scenario.stashed()), told)
        broken[0] = False
        scenario.until_consumed()
    assert stashed == len(scenario.stashed())
    scenario.consumer(Stash()).drain()
    assert [] == sequence_oracle(scenario)


def test_a_breaker_probes_the_partitions_in_turn(scenario: Scenario) -> None:
    """A bad message of one partition does not keep the breaker open once another one's succeeds."""
    other, broken = elsewhere(scenario), [True]
    handling = Handling(lambda message: PoisonError("no") if broken[0] or message.aggregate_id == "zoe" else None)
    scenario.publish(*ZOE, *[(other, number, "Max") for number in range(1, 6)])
    terms = {**QUICK, "breaker": BreakerLimits(in_a_row=1)}
    told: list[Message] = []
    hooks = Hooks(on_breaker=lambda message, _: told.append(message))
    with scenario.running(scenario.consumer(Stash(), handling, terms=terms, hooks=hooks)):
        until(lambda: told)
        broken[0] = False
        until(lambda: len(scenario.applied(other)) == 5)
    assert ([], []) == (scenario.stashed(), scenario.applied("zoe"))


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Stash(per_aggregate=2), "2 messages of one aggregate are stashed, and 2 may be"),
        (Stash(in_all=2), "2 messages are stashed, and 2 may be"),
    ],
)
@pytest.mark.parametrize("batch", [1, 50])
def test_a_full_stash_stops_the_consumer(world: World, policy: Stash, why: str, batch: int) -> None:
    """It names the bound, and drops nothing: after a drain it goes on in order."""
    scenario, told = world.scenario(1), list[str]()
    scenario.publish(*ZOE, ("zoe", 4, "Zoe"))
    hooks = Hooks(on_bound=told.append)
    with pytest.raises(StashFullError, match=f"{why}. Nothing was dropped"):
        run_until_it_ends(scenario.consumer(policy, Handling(poison("zoe-1")), hooks=hooks, batch=batch))
    assert ([why], [("zoe", "zoe-1"), ("zoe", "zoe-2")]) == (told, scenario.stashed())
    scenario.consumer(policy).drain()
    with scenario.running(scenario.consumer(policy)):
        scenario.until_consumed()
    assert [] == sequence_oracle(scenario)
