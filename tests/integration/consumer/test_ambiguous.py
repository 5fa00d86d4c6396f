"""Connections to the database that break while a transaction is being committed, and what was lost that comes late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from reconcile.consumer.decision import Outcome
from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.policy import Block, Stash, Terms
from reconcile.consumer.postgres import LibraryStore
from reconcile.consumer.store import ContendedError, HeldPartition, Noted, Writes
from reconcile.errors import UnreachableError
from reconcile.lab.statements import StatementProxy
from reconcile.settings import urls
from tests.integration.consumer.child import refuse_poison
from tests.integration.consumer.world import Scenario, World, sequence_oracle, until

COMMIT = ";commit"
EVENTS = tuple(("max", version, f"Max {version}") for version in range(1, 6))
Rule = Callable[[StatementProxy], Any]
SEVERED: dict[str, Rule] = {
    "before": lambda proxy: proxy.when(COMMIT, nth=3).sever(),
    "after": lambda proxy: proxy.when_answered(COMMIT, nth=3).sever(),
    "before, again and again": lambda proxy: proxy.when(COMMIT, nth=2, times=3).sever(),
    "after, again and again": lambda proxy: proxy.when_answered(COMMIT, nth=2, times=3).sever(),
    "while facts are read": lambda proxy: proxy.when("execute reconcile_facts", nth=3).sever(),
    "in the handler": lambda proxy: proxy.when("into applied", nth=3).sever(),
    "while it claims": lambda proxy: proxy.when_answered("reconcile.fence as known").sever(),
}


@pytest.fixture
def proxy(world: World) -> Iterator[StatementProxy]:
    """A proxy before the database."""
    with world.severing() as running:
        yield running


@pytest.mark.parametrize("severed", SEVERED)
def test_a_connection_that_is_severed_costs_nothing(scenario: Scenario, proxy: StatementProxy, severed: str) -> None:
    """Whether the transaction was kept or not, each message is applied once, in its order."""
    scenario.publish(*EVENTS)
    rule = SEVERED[severed](proxy)
    with scenario.running(scenario.consumer(Block(), url=scenario.severable_url)):
        scenario.until_consumed()
    assert rule.met
    assert [] == sequence_oracle(scenario)


def test_a_store_that_does_not_answer_at_the_start_is_named(scenario: Scenario, proxy: StatementProxy) -> None:
    """Whoever runs the consumer starts it again."""
    proxy.when_answered("reconcile.consumer").sever()
    with pytest.raises(UnreachableError, match="does not answer"):
        scenario.consumer(Block(), url=scenario.severable_url).run()


@pytest.mark.parametrize("kept", [False, True])
def test_an_ambiguous_stash_row_is_there_once(scenario: Scenario, proxy: StatementProxy, kept: bool) -> None:
    """What is put aside while the connection breaks is stashed once, and counted once."""
    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "poison"), ("zoe", 3, "Zoiee"))
    when = (proxy.when_answered if kept else proxy.when)(COMMIT, nth=2, times=2)
    when.sever()
    with scenario.running(scenario.consumer(Stash(), refuse_poison, url=scenario.severable_url)):
        scenario.until_consumed()
    assert [("zoe", "zoe-2"), ("zoe", "zoe-3")] == scenario.stashed()
    assert [(2,)] == scenario.rows("select messages from reconcile.blocked")
    assert [(2,)] == scenario.rows("select sum(messages)::int from reconcile.stash_size")


def test_a_commit_that_comes_late_is_not_applied_twice(scenario: Scenario, proxy: StatementProxy) -> None:
    """The server gets a COMMIT long after its client has given it up and begun anew."""
    scenario.publish(*EVENTS)
    late = proxy.when(COMMIT, nth=3).hold()
    with scenario.running(scenario.consumer(Block(), url=scenario.severable_url)):
        late.wait()
        until(lambda: len(proxy.seen("into copy")) > 3, "it did not begin anew")
        with suppress(asyncio.IncompleteReadError, OSError):  # the server may have ended that connection
            late.release()
        scenario.until_consumed()
    assert [] == sequence_oracle(scenario)


def test_a_commit_that_never_comes_holds_nobody_up(scenario: Scenario, proxy: StatementProxy) -> None:
    """The server still waits for a client that is gone, with all its locks, and the message is applied all the same."""
    scenario.publish(*EVENTS)
    proxy.when(COMMIT, nth=3).hold()
    with scenario.running(scenario.consumer(Block(), url=scenario.severable_url)):
        scenario.until_consumed(20)
    assert [] == sequence_oracle(scenario)


def test_what_another_transaction_notes_meanwhile_is_not_noted_again(scenario: Scenario) -> None:
    """The facts of both say that the message is new, and one of them has to begin anew."""
    place = RecordPlace(scenario.topic, 0, 0)
    message = Message(place, place, b"max", b"{}", aggregate_id="max")
    noted = Writes([Noted(message, Outcome.APPLIED)])
    url = urls.parse(scenario.url)
    with closing(LibraryStore(url, scenario.group)) as one, closing(LibraryStore(url, scenario.group)) as other:
        one.register(Terms(Block()), scenario.topic)
        held = [HeldPartition(scenario.group, scenario.topic, 0, one.claim(scenario.group, scenario.topic, 0))]
        with one.transaction() as first:
            first.facts([message], held)
            with pytest.raises(ContendedError), other.transaction() as second:  # noqa: PT012 - the second is between
                second.facts([message], held)
                first.commit(noted)
                second.commit(noted)
