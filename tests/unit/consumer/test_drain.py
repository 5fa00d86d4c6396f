"""A drain waits for what passes, and leaves what fails by itself where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reconcile.consumer.decision import Outcome
from reconcile.consumer.drain import Drain, Drained
from reconcile.consumer.errors import DrainHeldError
from reconcile.consumer.message import Message
from reconcile.consumer.policy import Stash, Terms
from reconcile.consumer.processor import At, nowhere
from tests.consumer_memory import Handle, MemoryStash, MemoryStore
from tests.consumer_simulation import GROUP, READING, PoisonError, World


def stashed(*events: tuple[str, bool], guard: str = "none") -> World:
    """Build a world in which all was read: events of these aggregates, each with whether it fails."""
    world = World(Terms(Stash(), guard=guard))
    for aggregate, fails in events:
        world.publish(aggregate, fails=fails)
    for partition in world.log:
        world.process(partition, 0, len(events))
    return world


def drain(world: World, waits: list[float], at: At = nowhere) -> Drained:
    """Drain all, and note each time to wait."""
    stash = MemoryStash(MemoryStore(world.database, GROUP))
    return Drain(stash, world.handle, READING, GROUP, world.terms, wait=waits.append, at=at).run()


def test_b13_an_outage_is_waited_for() -> None:
    """B13: with growing delay, and then all is applied."""
    world, waits = stashed(("ann", True), ("ann", False)), list[float]()
    world.repair()
    world.outage = 2
    assert Drained(applied=2, unblocked=["ann"]) == drain(world, waits)
    assert [0.1, 0.2] == waits


def test_b13_what_fails_again_stays_blocked_and_the_next_goes_on() -> None:
    """B13: the second aggregate flows, whatever the first does."""
    world, waits = stashed(("ann", True), ("ann", False), ("bob", True)), list[float]()
    world.poison.discard("bob-1")
    assert Drained(applied=1, unblocked=["bob"], blocked=["ann"]) == drain(world, waits)
    assert [] == waits


def test_b13_a_lost_connection_is_waited_for_also_where_a_message_is_put_back() -> None:
    """B13: the drain goes on, and the message is tried once more."""
    world, waits = stashed(("ann", True)), list[float]()
    world.database.next_commit = "lost"
    assert Drained(blocked=["ann"]) == drain(world, waits)
    assert [0.1] == waits


def test_an_aggregate_of_which_nothing_is_stashed_does_not_flow_again() -> None:
    """A slip in an id is not to look like a success."""
    world = stashed(("ann", True))
    stash = MemoryStash(MemoryStore(world.database, GROUP))
    assert Drained() == Drain(stash, world.handle, READING, GROUP, world.terms).run(["anna"])


def test_c7_a_drain_notes_what_it_applied() -> None:
    """C3, C7: a message that is read again afterwards is seen, and its version known."""
    world = stashed(("ann", True), guard="newer")
    world.repair()
    drain(world, [])
    tables = world.database.tables(GROUP)
    assert ([Outcome.APPLIED], {"ann": (1, False)}) == (list(tables.ledger.values()), tables.versions)


def test_b13_each_message_is_waited_for_anew() -> None:
    """B13: a second outage begins with the first delay."""
    world, waits = stashed(("ann", True), ("ann", False)), list[float]()
    world.repair()
    world.outage = 1
    outages = [1]

    def at(step: str) -> None:
        if step == "drain taken" and outages:
            world.outage = outages.pop()

    drain(world, waits, at)
    assert [0.1, 0.1] == waits


def test_b12_a_drain_gives_the_stash_back() -> None:
    """B12: the next one is not refused."""
    world = stashed(("ann", True))
    assert [["ann"], ["ann"]] == [drain(world, []).blocked for _ in range(2)]


@pytest.mark.parametrize("step", ["drain begun", "a handler fails"])
def test_b12_a_drain_that_was_overtaken_changes_nothing(step: str) -> None:
    """B12: it slept, another drain has begun, and it goes on."""
    world = stashed(("ann", True))
    stash = MemoryStash(MemoryStore(world.database, GROUP))

    def overtake(at: str) -> None:
        if at == step and not stash.expired:
            stash.expired = True
            MemoryStash(MemoryStore(world.database, GROUP)).hold(60)

    def handler(_messages: Sequence[Message], _handle: Handle) -> None:
        overtake("a handler fails")
        raise PoisonError

    before = dict(world.database.tables(GROUP).stash)
    with pytest.raises(DrainHeldError):
        Drain(stash, handler, READING, GROUP, world.terms, at=overtake).run()
    assert before == world.database.tables(GROUP).stash


def test_b13_what_is_not_read_as_it_was_stashed_stays_blocked() -> None:
    """B13: nothing is taken out of the stash unapplied, also where the contract reads keys otherwise by now."""
    world, waits = stashed(("ann", True)), list[float]()
    stash = MemoryStash(MemoryStore(world.database, GROUP))
    reading = replace(READING, key_type="int64")
    drained = Drain(stash, world.handle, reading, GROUP, world.terms, wait=waits.append).run()
    assert Drained(blocked=["ann"]) == drained
    assert 1 == len(world.database.groups[GROUP].stash)
