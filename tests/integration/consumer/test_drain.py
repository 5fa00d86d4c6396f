"""Draining the stash: in order, beside a consumer that runs, by one drain at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg2
import pytest

from reconcile.consumer.errors import AnotherPolicyError, DrainHeldError
from reconcile.consumer.message import Message
from reconcile.consumer.policy import Stash
from reconcile.consumer.postgres import Transaction
from tests.integration.consumer.world import PoisonError, Scenario, apply_copy, sequence_oracle, until

NEWER = {"guard": "newer"}


def refusing(*names: str) -> Callable[[Message, Transaction], None]:
    """Build a handler that cannot process some names."""

    def handle(message: Message, tx: Transaction) -> None:
        if not message.deletes and message.json()["name"] in names:
            raise PoisonError(f"cannot read {message.json()['name']}")
        apply_copy(message, tx)

    return handle


@pytest.fixture
def stashed(scenario: Scenario) -> Scenario:
    """Two aggregates that are stashed: zoe with two messages, ida with one; max flows."""
    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"), ("zoe", 3, "Zoiee"), ("ida", 1, "Ída"), ("max", 1, "Max"))
    with scenario.running(scenario.consumer(Stash(), refusing("Zoë", "Ída"))):
        scenario.until_consumed()
    return scenario


def test_b12_a_drain_applies_what_is_stashed_in_order(stashed: Scenario) -> None:
    """After the fix the letters are applied, oldest first, and their aggregates flow again."""
    drained = stashed.consumer(Stash()).drain()
    assert (3, {"zoe", "ida"}, []) == (drained.applied, set(drained.unblocked), drained.blocked)
    assert [1, 2, 3] == stashed.applied("zoe")
    assert ([], [(0,)]) == (stashed.stashed(), stashed.rows("select distinct messages from reconcile.stash_size"))
    assert [] == sequence_oracle(stashed)


def test_b12_a_drain_compares_versions_as_the_members_do(scenario: Scenario) -> None:
    """One without their guard would apply an event that is older than the copy, and keep no version of what it did."""
    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"))
    with scenario.running(scenario.consumer(Stash(), refusing("Zoë"), terms=NEWER)):
        scenario.until_consumed()
    with pytest.raises(AnotherPolicyError, match="consumes here with `guard: newer`, and this drain would with"):
        scenario.consumer(Stash()).drain()
    assert [("zoe", "zoe-2")] == scenario.stashed()
    assert 1 == scenario.consumer(Stash(), terms=NEWER).drain().applied


def test_b13_what_fails_again_keeps_its_place_and_the_next_goes_on(stashed: Scenario) -> None:
    """The aggregate stays blocked, its head has the new error, and another aggregate is drained."""
    drained = stashed.consumer(Stash(), refusing("Zoë")).drain()
    assert (["ida"], ["zoe"]) == (drained.unblocked, drained.blocked)
    assert [("zoe", "zoe-2"), ("zoe", "zoe-3")] == stashed.stashed()
    assert [(1, "PoisonError")] == stashed.rows("select drains, error_class from reconcile.stash where drains > 0")


def test_b13_a_failure_that_passes_is_waited_for(stashed: Scenario) -> None:
    """A drain backs off in place, and then goes on."""
    failures = [psycopg2.OperationalError("no connection"), ConnectionRefusedError()]

    def handle(message: Message, tx: Transaction) -> None:
        if failures:
            raise failures.pop()
        apply_copy(message, tx)

    drained = stashed.consumer(Stash(), handle).drain()
    assert (3, 2) == (drained.applied, len(drained.unblocked))


def test_only_the_named_aggregates_are_drained(stashed: Scenario) -> None:
    """Others stay as they are."""
    stashed.consumer(Stash()).drain(["ida"])
    assert ["zoe", "zoe"] == [id_ for id_, _ in stashed.stashed()]


def test_messages_that_arrive_during_a_drain_keep_queueing(stashed: Scenario) -> None:
    """The consumer stashes behind the drain until 'empty, so unblock' is decided; then it applies by itself."""
    entered, go_on = threading.Event(), threading.Event()

    def slow(message: Message, tx: Transaction) -> None:
        entered.set()
        assert go_on.wait(60)
        apply_copy(message, tx)

    with stashed.running(stashed.consumer(Stash())):
        draining = threading.Thread(target=stashed.consumer(Stash(), slow).drain, args=(["zoe"],))
        draining.start()
        assert entered.wait(60)
        stashed.publish(("zoe", 4, "Zoë!"))
        until(lambda: ("zoe", "zoe-4") in stashed.stashed())
        go_on.set()
        draining.join()
        stashed.publish(("zoe", 5, "Zoe"))
        until(lambda: stashed.copy().get("zoe") == "Zoe")
    assert [1, 2, 3, 4, 5] == stashed.applied("zoe")


def test_a_second_drain_is_refused_while_the_first_lives(stashed: Scenario) -> None:
    """Two drains would apply one letter twice."""
    entered, go_on = threading.Event(), threading.Event()

    def slow(message: Message, tx: Transaction) -> None:
        entered.set()
        assert go_on.wait(60)
        apply_copy(message, tx)

    draining = threading.Thread(target=stashed.consumer(Stash(), slow).drain)
    draining.start()
    assert entered.wait(60)
    try:
        with pytest.raises(DrainHeldError, match="drains the stash of"):
            stashed.consumer(Stash()).drain()
    finally:
        go_on.set()
        draining.join()
    assert [] == stashed.stashed()
