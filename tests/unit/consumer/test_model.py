"""The real processor and the real drain in a simulated world where all goes wrong that may: what is promised holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from reconcile.consumer.policy import Block, BreakerLimits, Policy, Stash, Terms
from tests.consumer_simulation import GROUP, MEMBERS, PARTITION_OF, Incident, Violation, World
from tests.unit.consumer.wrong_members import (
    AcknowledgedEarly,
    CommitsFirst,
    ForgetfulStore,
    HalfwayStore,
    HastyStash,
    ParkingStore,
    Unacknowledged,
    UnfencedStore,
)

HISTORIES = 25
"""Of each kind; `python -m bench.consumer_model` runs as many as one likes, from any seed."""
WHAT = ("crash", "kept", "lost", "repaired", "drained", "drain expired", "moved")
AGGREGATES = st.sampled_from(sorted(PARTITION_OF))
EVENTS = st.tuples(AGGREGATES, st.sampled_from([True, False, False, False]))
"""An aggregate, and whether this event of it fails by itself."""
PARTITIONS = st.sampled_from(sorted(set(PARTITION_OF.values())))
NUMBERS = st.integers(0, MEMBERS - 1)
TROUBLE = (
    "an outage",
    "a duplicate",
    "a repair",
    "offsets are committed",
    "a member hears",
    "a member dies",
)
INCIDENTS = st.lists(
    st.builds(Incident, st.integers(0, 7), st.sampled_from(WHAT), NUMBERS, st.integers(0, 3)), max_size=3
)


def terms(policy: Policy, *, guard: str = "none", ledger: bool = True) -> Terms:
    """Build terms whose breaker opens early, so that it does."""
    return Terms(policy, guard=guard, ledger=ledger, breaker=BreakerLimits(in_a_row=3))


class Model(RuleBasedStateMachine):
    """Whatever may happen, in any order."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    @initialize(events=st.lists(EVENTS, min_size=4, max_size=12))
    def begin(self, events: list[tuple[str, bool]]) -> None:
        """The topic holds something when the group begins."""
        self.publish(events)

    @rule(events=st.lists(EVENTS, min_size=1, max_size=5))
    def publish(self, events: list[tuple[str, bool]]) -> None:
        """The source changes; some of its events cannot be processed, until somebody repairs the handler."""
        for aggregate, fails in events:
            self.world.publish(aggregate, fails=fails)

    @rule(what=st.sampled_from(TROUBLE), aggregate=AGGREGATES, who=NUMBERS, much=st.integers(0, 3))
    def trouble(self, what: str, aggregate: str, who: int, much: int) -> None:
        """Something happens between two messages."""
        world, member = self.world, self.world.members[who]
        if what == "an outage":
            world.outage = 1 + much
        elif what == "a duplicate" and (world.terms.ledger or world.terms.guard != "none"):
            world.duplicate(PARTITION_OF[aggregate], 1 + much)
        elif what == "a repair":
            world.repair()
        elif what == "offsets are committed":
            member.commit()
        elif what == "a member hears":
            world.hear(member)
        elif what == "a member dies":
            world.crash(member)

    @rule(partition=PARTITIONS, who=NUMBERS, clean=st.booleans())
    def rebalance(self, partition: int, who: int, clean: bool) -> None:
        """A partition moves; its owner before may not hear of it."""
        self.world.assign(partition, self.world.members[who], clean=clean)

    @rule(partition=PARTITIONS, who=NUMBERS, many=st.integers(1, 5), incidents=INCIDENTS, batch=st.booleans())
    def process(self, partition: int, who: int, many: int, incidents: list[Incident], batch: bool) -> None:
        """One of those that believe to have a partition processes messages, and something happens meanwhile."""
        self.world.process(partition, who, many, incidents, batch=batch)

    @precondition(lambda self: self.world.database.tables(GROUP).blocked)
    @rule(incidents=INCIDENTS)
    def drain(self, incidents: list[Incident]) -> None:
        """Somebody drains the stash, and something happens meanwhile."""
        self.world.drain(incidents)

    @invariant()
    def promises_hold(self) -> None:
        """Order, once, blocked, nothing lost."""
        self.world.check()

    def teardown(self) -> None:
        """When all faults have ended, the copy becomes what its source is."""
        self.world.settle()


def explore(given: Terms, histories: int, *, seed: int | None = None, shrink: bool = True, **wrong: Any) -> None:
    """Run so many histories of a world: always the same, or those of a seed."""

    def model() -> Model:
        return Model(World(given, **wrong))

    run_state_machine_as_test(
        model if seed is None else hypothesis.seed(seed)(model),  # type: ignore[arg-type] # a factory of machines
        settings=settings(
            max_examples=histories,
            stateful_step_count=40,
            derandomize=seed is None,
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )


TERMS = {
    "stash": terms(Stash()),
    "stash, guard": terms(Stash(), guard="newer"),
    "stash, guard, no ledger": terms(Stash(), guard="newer", ledger=False),
    "stash, no ledger": terms(Stash(), ledger=False),
    "block": terms(Block()),
    "block, guard, no ledger": terms(Block(), guard="newer", ledger=False),
    "block, no ledger": terms(Block(), ledger=False),
}


@pytest.mark.parametrize("given", TERMS.values(), ids=TERMS)
def test_whatever_happens_the_copy_follows_its_source(given: Terms) -> None:
    """Order per aggregate, nothing lost, blocked until the stash is empty; with a ledger or a guard nothing twice."""
    explore(given, HISTORIES)


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("stash", {"member": CommitsFirst}),
        ("block", {"member": CommitsFirst}),
        ("stash", {"store": ParkingStore}),
        ("stash", {"store": HalfwayStore}),
        ("stash", {"store": ForgetfulStore}),
        ("block", {"store": ForgetfulStore}),
    ],
    ids=lambda each: each if isinstance(each, str) else next(iter(each.values())).__name__,
)
def test_a_mistake_is_found(given: str, wrong: dict[str, Any]) -> None:
    """The model bites: with one mistake in a member, its store or a drain, some history breaks a promise."""
    with pytest.raises(Violation):
        explore(TERMS[given], 200, shrink=False, **wrong)


def a_partition_moves_within_a_transaction(world: World) -> None:
    """C3: a member is stopped within a transaction, its partition moves, and it goes on."""
    world.process(0, 0, 1, [Incident(after=3, what="moved", much=2)])


def a_partition_moves_before_it_is_claimed(world: World) -> None:
    """A member is stopped after the group said that the partition is its own, and then claims it."""
    world.process(0, 0, 1, [Incident(after=0, what="moved", much=2)])


def a_member_that_was_fenced_goes_on(world: World) -> None:
    """A member that lost its partition while a message failed, and has not heard of it, claims it once more."""
    world.outage = 1
    world.process(0, 0)
    world.assign(0, world.members[1], clean=False)
    world.process(0, 1, 2)
    world.members[1].commit()
    world.process(0, 0, 2)


def a_message_comes_while_its_aggregate_is_drained(world: World) -> None:
    """B10, B12: a member reads on while a drain has applied one of two stashed messages."""
    world.poison.add("ann-1")
    world.process(0, 0, 2)
    world.members[0].commit()
    world.publish("ann")
    world.repair()
    world.drain([Incident(after=4, what="moved", much=2)])


@pytest.mark.parametrize(
    ("given", "history", "wrong"),
    [
        ("block, no ledger", a_partition_moves_within_a_transaction, {"store": UnfencedStore}),
        ("block, no ledger", a_partition_moves_before_it_is_claimed, {"member": AcknowledgedEarly}),
        ("block, no ledger", a_member_that_was_fenced_goes_on, {"member": Unacknowledged}),
        ("stash", a_message_comes_while_its_aggregate_is_drained, {"stash": HastyStash}),
    ],
)
def test_a_history_that_needs_each_guard(given: str, history: Callable[[World], None], wrong: dict[str, Any]) -> None:
    """All is well after it; with one mistake a promise is broken."""
    right, mistaken = World(TERMS[given]), World(TERMS[given], **wrong)
    for world in (right, mistaken):
        world.publish("ann")
        world.publish("ann")
        history(world)
    right.check()
    right.settle()
    with pytest.raises(Violation):
        mistaken.check()
