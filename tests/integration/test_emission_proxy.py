"""A network that loses, delays and repeats requests makes no correction lost, doubled or overtaken."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from reconcile.control.store import ControlStore
from reconcile.domain.correction import Correction
from reconcile.kafka.client import ClusterClient, GroupState
from reconcile.lab.proxy import Api, FaultProxy
from reconcile.repair.emission import EmissionOutcome
from reconcile.repair.transaction import EmissionUnreachableError
from reconcile.repair.verification import passed
from tests.history_checker import Attempt, Claim, EmissionHistory, Write, violations
from tests.integration.emission_faults import MOVED, attempts_at, decided, visible
from tests.integration.emission_world import Topic, World, emission_world, leased, until

NOT_COORDINATOR = 16
RUNS = count()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with emission_world() as made:
        yield made


@pytest.fixture(scope="module")
def control(world: World) -> Iterator[ControlStore]:
    with world.control() as opened:
        yield opened


@dataclass
class Case:
    """A topic, a run, and corrections that are emitted through a proxy."""

    topic: Topic
    control: ControlStore
    proxy: FaultProxy
    run_id: str = field(default_factory=lambda: f"proxy-{next(RUNS)}")
    writes: list[Write] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)

    def write(self, *events: tuple[str, int]) -> None:
        """Let the source change aggregates."""
        self.topic.produce(*events)
        self.writes += [Write(*event) for event in events]

    def corrections(self, keys: str) -> list[Correction]:
        """Build a correction to version 1 of each key."""
        return [self.topic.correction(key, 1, self.run_id, 0) for key in keys]

    def emit(self, wanted: Sequence[Correction], **more: Any) -> EmissionOutcome:
        """Emit corrections, one in each transaction unless more is said."""
        cluster = self.topic.world.cluster | {"bootstrap.servers": self.proxy.bootstrap}
        try:
            with leased(self.control, "one") as held:
                outcome = self.topic.emit(
                    wanted, self.run_id, self.control, held, **{"batch": 1, "cluster": cluster, **more}
                )
        except BaseException:
            self.attempts += attempts_at(wanted, self.run_id, Claim.UNKNOWN)
            raise
        self.attempts += decided(outcome, self.run_id)
        return outcome

    def assert_kept(self) -> None:
        """Nothing is lost, doubled or overtaken, and nothing of what was dropped is visible."""
        assert [] == violations(EmissionHistory(self.writes, self.attempts, visible(self.topic)))


@pytest.fixture
def case(world: World, control: ControlStore) -> Iterator[Case]:
    with world.proxied() as proxy:
        made = Case(world.topic(1), control, proxy)
        control.runs.begin(made.run_id, "user-account", "c" * 64)
        made.write(("a", 1), ("b", 1), ("c", 1))
        yield made
        made.assert_kept()


def keys(found: Sequence[Any]) -> list[str]:
    return [each.correction.aggregate_id for each in found]


def at(actions: Mapping[tuple[str, int], Callable[[], object]]) -> Callable[[str], None]:
    """Build a step that acts when a step of this name comes for the nth time."""
    steps: list[str] = []

    def step(name: str) -> None:
        steps.append(name)
        if action := actions.get((name, steps.count(name))):
            action()

    return step


@pytest.mark.parametrize("late_in", [2, 3])
def test_a_late_commit_does_not_end_another_transaction(case: Case, late_in: int) -> None:
    """A commit that was sent again and comes late would commit a correction that is overtaken."""
    late = case.proxy.when(Api.END_TXN).sever()
    overtaken = "abc"[late_in - 1]
    step = at({("mid_produce", late_in): lambda: case.write((overtaken, 2)), ("after_flush", late_in): late.release})
    outcome = case.emit(case.corrections("abc"), step=step)
    assert [overtaken] == keys(outcome.dropped)
    assert 2 == len(outcome.emitted)


@pytest.mark.parametrize("late_in", [2, 3])
def test_a_late_abort_does_not_end_another_transaction(case: Case, late_in: int) -> None:
    """An abort that was sent again and comes late would take back what is good."""
    late = case.proxy.when(Api.END_TXN).sever()
    step = at({("mid_produce", 1): lambda: case.write(("a", 2)), ("after_flush", late_in): late.release})
    outcome = case.emit(case.corrections("abc"), batch=2, step=step)
    assert (["b", "c"], ["a"]) == (keys(outcome.emitted), keys(outcome.dropped))


def test_a_late_abort_of_an_interrupted_attempt_does_not_end_the_next_one(case: Case) -> None:
    """What closing sends is shut out as well."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    late = case.proxy.when(Api.END_TXN).sever()
    with pytest.raises(KeyboardInterrupt):
        case.emit(case.corrections("ab"), step=at({("after_flush", 1): interrupt}))
    step = at({("after_flush", 1): late.release})
    assert ["a", "b"] == keys(case.emit(case.corrections("ab"), step=step).emitted)


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_lost_commit_is_sent_again(case: Case, lost: str) -> None:
    """Whether it or its answer is lost, the call ends as if nothing had been."""
    (case.proxy.when if lost == "request" else case.proxy.when_answered)(Api.END_TXN).sever()
    assert ["a", "b"] == keys(case.emit(case.corrections("ab")).emitted)


def test_a_commit_that_is_never_answered_is_found_by_the_next_attempt(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt does not know its outcome and says so; the second one sends nothing."""
    case.proxy.when_answered(Api.END_TXN, times=math.inf).sever()
    with monkeypatch.context() as patched:
        patched.setattr("reconcile.repair.transaction._PATIENCE", 1.0)
        with pytest.raises(EmissionUnreachableError, match="emit again"):
            case.emit(case.corrections("a"))
    case.proxy.forget_rules()
    outcome = case.emit(case.corrections("a"))
    assert (["a"], []) == (keys(outcome.already), keys(outcome.emitted))


def test_a_commit_that_never_arrives_is_made_again_by_the_next_attempt(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may arrive when the next attempt has begun, and does no harm there."""
    late = case.proxy.when(Api.END_TXN, times=math.inf).sever()
    with monkeypatch.context() as patched:
        patched.setattr("reconcile.repair.transaction._PATIENCE", 1.0)
        with pytest.raises(EmissionUnreachableError, match="emit again"):
            case.emit(case.corrections("a"))
    case.proxy.forget_rules()
    step = at({("mid_produce", 1): lambda: case.write(("a", 2)), ("after_flush", 1): late.release})
    assert ["a"] == keys(case.emit(case.corrections("a"), step=step).dropped)


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_lost_abort_is_sent_again(case: Case, lost: str) -> None:
    """What was taken back stays so, and the rest goes on."""
    (case.proxy.when if lost == "request" else case.proxy.when_answered)(Api.END_TXN).sever()
    step = at({("mid_produce", 1): lambda: case.write(("a", 2))})
    outcome = case.emit(case.corrections("ab"), batch=2, step=step)
    assert (["b"], ["a"]) == (keys(outcome.emitted), keys(outcome.dropped))


@pytest.mark.parametrize("lost", ["request", "answer"])
@pytest.mark.parametrize("api", [Api.PRODUCE, Api.ADD_PARTITIONS_TO_TXN, Api.INIT_PRODUCER_ID])
def test_what_is_lost_on_the_way_is_sent_again(case: Case, api: Api, lost: str) -> None:
    """The second batch goes through once, though its connection broke in the middle."""
    (case.proxy.when if lost == "request" else case.proxy.when_answered)(api, nth=2).sever()
    assert ["a", "b"] == keys(case.emit(case.corrections("ab")).emitted)


@pytest.mark.parametrize("api", [Api.END_TXN, Api.INIT_PRODUCER_ID, Api.ADD_PARTITIONS_TO_TXN])
def test_a_coordinator_that_has_moved_is_found(case: Case, api: Api) -> None:
    """NOT_COORDINATOR makes the client look for it again, and nothing else."""
    name = case.topic.name.encode()
    place = struct.pack(">iih", 1, 0, NOT_COORDINATOR)
    added = struct.pack(">iih", 0, 1, len(name)) + name + place
    moved = case.proxy.when(api, nth=2).answer({**MOVED, Api.ADD_PARTITIONS_TO_TXN: added}[api])
    assert ["a", "b"] == keys(case.emit(case.corrections("ab")).emitted)
    assert 1 == len(moved.met)


def test_a_group_whose_coordinator_has_moved_is_asked_again(case: Case) -> None:
    """Asked by an admin client, the answer NOT_COORDINATOR ends the process (librdkafka 5040)."""
    group = f"group of {case.run_id}"
    cluster = {"bootstrap.servers": case.proxy.bootstrap}
    with closing(ClusterClient("main", case.topic.world.cluster | cluster)) as client:
        assert {0: None} == client.committed(group, case.topic.name, [0])
        (asked,) = case.proxy.seen(Api.OFFSET_FETCH)
        moved = case.proxy.when(Api.OFFSET_FETCH).answer(_moved(group, asked.version))
        assert {0: None} == client.committed(group, case.topic.name, [0])
    assert 1 == len(moved.met)


def _moved(group: str, version: int) -> bytes:
    """Build the answer to OffsetFetch that the broker is not the group's coordinator, in its flexible versions."""
    assert version >= 6
    head, error = b"\0" + struct.pack(">i", 0), struct.pack(">h", NOT_COORDINATOR)
    if version < 8:
        return head + b"\x01" + error + b"\0"
    return head + b"\x02" + bytes([len(group) + 1]) + group.encode() + b"\x01" + error + b"\0" + b"\0"


def test_a_late_batch_of_an_earlier_transaction_is_not_written(case: Case) -> None:
    """Records that were sent again and come late are in no transaction any more."""
    late = case.proxy.when(Api.PRODUCE).sever()
    step = at({("after_flush", 2): late.release, ("after_flush", 3): late.release})
    assert ["a", "b", "c"] == keys(case.emit(case.corrections("abc"), step=step).emitted)


def test_a_member_that_lost_touch_has_not_passed(case: Case) -> None:
    """A group that waits for a member with late heartbeats rebalances, and has not passed what that member holds."""
    from confluent_kafka import Consumer

    ((emitted,), group) = case.emit(case.corrections("a")).emitted, f"group of {case.run_id}"
    direct = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    through = {**direct, "bootstrap.servers": case.proxy.bootstrap, "heartbeat.interval.ms": 100}
    place = {emitted.correction.partition: emitted.offset}
    with (
        closing(ClusterClient("main", case.topic.world.cluster)) as client,
        closing(Consumer(through)) as member,
        closing(Consumer({**direct, **case.topic.world.cluster})) as other,
    ):
        member.subscribe([case.topic.name])
        until(lambda: member.poll(0.1) is not None, "nothing came")
        case.proxy.when_answered(Api.HEARTBEAT, times=math.inf).delay(60)
        other.subscribe([case.topic.name])

        def state() -> GroupState:
            other.poll(0)
            return client.group(group, case.topic.name).state

        until(lambda: state() is GroupState.REBALANCING, "the group does not wait for its member")
        assert not passed(place, client.committed(group, case.topic.name, place))
