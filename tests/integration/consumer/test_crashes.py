"""Members that die or stand still at each named step, and those that wake after their partition has moved."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from reconcile.consumer.policy import Stash
from tests.integration.consumer.child import refuse_poison
from tests.integration.consumer.processes import MemberProcess, Members, members_in
from tests.integration.consumer.world import PROTOCOLS, Scenario, World, sequence_oracle, until

STEPS = ("claimed", "begun", "facts read", "handled", "committing", "committed", "putting aside")
EVENTS = (
    *[("max", version, f"Max {version}") for version in range(1, 4)],
    ("zoe", 1, "Zoey"),
    ("zoe", 2, "poison"),
    ("zoe", 3, "Zoiee"),
    ("eve", 1, "Eve"),
    ("max", 4, None),
    ("max", 5, "Max, again"),
)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    """Processes that end with the test."""
    with members_in(tmp_path) as started:
        yield started


def state(scenario: Scenario) -> list[object]:
    """Query all that a member changes in the database, but for its fences."""
    tables = ("copy", "applied", "reconcile.ledger", "reconcile.stash", "reconcile.blocked", "reconcile.outbox")
    return [scenario.rows(f"select to_jsonb(t)::text from {each} t order by 1") for each in tables]


def ending_at_each_step(
    world: World, members: Members, protocol: str, how: str
) -> dict[str, tuple[Scenario, MemberProcess]]:
    """Start a member for each step, which ends or stops there, each in a scenario of its own."""
    started = {}
    for step in STEPS:
        scenario = world.scenario(1)
        scenario.publish(*EVENTS)
        nth = 1 if step in ("claimed", "putting aside") else 2
        started[step] = (scenario, members.start(scenario, protocol, step=step, nth=nth, how=how))
    return started


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_c3_a_member_that_dies_at_a_step_leaves_all_to_the_next(world: World, members: Members, protocol: str) -> None:
    """C3: whatever was not committed is processed by the next member, and what was is not processed again."""
    dying = ending_at_each_step(world, members, protocol, "SIGKILL")
    for _, member in dying.values():
        member.until_killed()
    with ExitStack() as running:
        for scenario, _ in dying.values():
            next_one = scenario.consumer(Stash(), refuse_poison, kafka=PROTOCOLS[protocol])
            running.enter_context(scenario.running(next_one))
        for scenario, _ in dying.values():
            scenario.until_consumed()
    assert {step: [] for step in STEPS} == {
        step: sequence_oracle(scenario, stashed=True) for step, (scenario, _) in dying.items()
    }
    assert {("zoe", "zoe-2"), ("zoe", "zoe-3")} == {row for scenario, _ in dying.values() for row in scenario.stashed()}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_zombie_that_wakes_late_changes_nothing(world: World, members: Members, protocol: str) -> None:
    """A member stands still at a step, its partition moves and is consumed to the end, and then it wakes."""
    stopping = ending_at_each_step(world, members, protocol, "SIGSTOP")
    for _, member in stopping.values():
        member.until_stopped()
    with ExitStack() as running:
        for scenario, _ in stopping.values():
            successor = scenario.consumer(Stash(), refuse_poison, kafka=PROTOCOLS[protocol])
            running.enter_context(scenario.running(successor))
        for scenario, _ in stopping.values():
            scenario.until_consumed()
        before = {step: state(scenario) for step, (scenario, _) in stopping.items()}
        for _, member in stopping.values():
            member.send(signal.SIGCONT)
        for _, member in stopping.values():
            member.until_logged("given up")
        assert dict.fromkeys(STEPS, 0) == {step: member.end() for step, (_, member) in stopping.items()}
        assert before == {step: state(scenario) for step, (scenario, _) in stopping.items()}
    for scenario, _ in stopping.values():
        assert [] == sequence_oracle(scenario, stashed=True)


@pytest.mark.parametrize(
    ("step", "wrong", "harmed"), [("claimed", "", False), ("begun", "", False), ("begun", "no fence", True)]
)
def test_a_zombie_without_the_fence_is_found(
    scenario: Scenario, members: Members, step: str, wrong: str, harmed: bool
) -> None:
    """Nothing but the fence keeps a zombie's message out where no ledger remembers it."""
    scenario.publish(*[("max", version, f"Max {version}") for version in range(1, 4)])
    zombie = members.start(scenario, step=step, how="SIGSTOP", wrong=wrong, ledger=False)
    zombie.until_stopped()
    with scenario.running(scenario.consumer(Stash(), kafka=PROTOCOLS["classic"], terms={"ledger": False})):
        scenario.until_consumed()
        zombie.send(signal.SIGCONT)
        zombie.until_logged("given up")
        zombie.end()
    assert harmed is bool(sequence_oracle(scenario))


@pytest.mark.parametrize(("wrong", "harmed"), [("", False), ("commits first", True)])
def test_a_member_that_commits_before_it_applies_is_found(
    scenario: Scenario, members: Members, wrong: str, harmed: bool
) -> None:
    """What it had committed when it died is in no copy."""
    scenario.publish(*[("max", version, f"Max {version}") for version in range(1, 4)])
    members.start(scenario, step="handled", nth=2, how="SIGKILL", wrong=wrong).until_killed()
    with scenario.running(scenario.consumer(Stash(), kafka=PROTOCOLS["classic"])):
        scenario.until_consumed()
    assert harmed is bool(sequence_oracle(scenario))


@pytest.mark.parametrize(("wrong", "harmed"), [("", False), ("parks without blocking", True)])
def test_a_member_that_parks_without_blocking_is_found(
    scenario: Scenario, members: Members, wrong: str, harmed: bool
) -> None:
    """Later events of the aggregate are applied before the one that is parked."""
    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "poison"), ("zoe", 3, "Zoiee"))
    member = members.start(scenario, wrong=wrong)
    until(lambda: scenario.rows("select 1 from reconcile.ledger") and not scenario.lag(), "it has not consumed all")
    assert 0 == member.end()
    assert harmed is bool(sequence_oracle(scenario, stashed=True))
