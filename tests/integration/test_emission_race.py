"""Corrections are emitted while their aggregates change: none lands after an event that is newer than it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from reconcile.control.corrections import CorrectionState
from reconcile.control.store import ControlStore
from reconcile.domain.correction import CORRECTION_ID, Correction
from reconcile.errors import RefusedError
from reconcile.lab.services.offsets import admin_client
from reconcile.repair.emission import EmissionOutcome, Watch
from reconcile.repair.tail import LogReplacedError, Tail
from reconcile.repair.transaction import EmissionRefusedError, Transactions
from tests.history_checker import Claim, violations
from tests.integration.emission_faults import BrokenNetwork, broken_race
from tests.integration.emission_world import (
    LINK,
    Source,
    Topic,
    World,
    emission_world,
    event,
    header,
    leased,
    overtaken,
    race,
    replayed,
)

ROUNDS = 20
AGGREGATES = 400
RATE = 500


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with emission_world() as made:
        yield made


@pytest.fixture(scope="module")
def control(world: World) -> Iterator[ControlStore]:
    with world.control() as opened:
        yield opened


@pytest.fixture
def run_id(control: ControlStore) -> str:
    """Begin a run."""
    name = f"run-{uuid4().hex[:8]}"
    control.runs.begin(name, "user-account", "c" * 64)
    return name


def figures(outcomes: list[EmissionOutcome]) -> tuple[int, int]:
    """Count what was emitted and what was dropped."""
    return sum(len(each.emitted) for each in outcomes), sum(len(each.dropped) for each in outcomes)


def test_none_lands_after_a_newer_event(world: World, control: ControlStore) -> None:
    """A checker that shares no code with the emitter finds none that was overtaken; some are emitted, some dropped."""
    source = Source(world.topic(), AGGREGATES, RATE)
    outcomes = race(control, source, ROUNDS)
    records = source.topic.read()
    assert [] == overtaken(records)
    assert source.truth == replayed(records)
    emitted, dropped = figures(outcomes)
    assert emitted > 0
    assert dropped > 0


def test_a_broken_network_breaks_no_promise(world: World, control: ControlStore) -> None:
    """While requests are lost, delayed and delivered late at random, readers see what was said, once and in order."""
    with world.proxied() as proxy:
        network = BrokenNetwork(proxy, seed=1)
        history = broken_race(proxy, control, Source(world.topic(), AGGREGATES, RATE), network, ROUNDS)
    assert [] == violations(history)
    assert {Claim.EMITTED, Claim.DROPPED} <= {each.claim for each in history.attempts}
    assert network.happened.total() > 0
    assert network.delivered > 0


def emitted(control: ControlStore, topic: Topic, run_id: str, *wanted: Correction) -> EmissionOutcome:
    with leased(control, "one") as held:
        return topic.emit(wanted, run_id, control, held)


def in_log(topic: Topic) -> list[tuple[int | None, str | None]]:
    """Give the partitions and ids of the corrections that a consumer sees."""
    return [(each.partition(), id_) for each in topic.read() if (id_ := header(each, CORRECTION_ID)) is not None]


def test_the_checker_bites(world: World, control: ControlStore, run_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look at the log a correction follows an event that is newer than it, and the checker finds it."""
    monkeypatch.setattr(Watch, "see", lambda *_: None)
    topic = world.topic(1)
    topic.produce(("a", 1), ("a", 2))
    a = topic.correction("a", 1, run_id, 0)
    emitted(control, topic, run_id, a)
    assert [a.id] == overtaken(topic.read())


@pytest.mark.parametrize("looks_after_writing", [True, False])
def test_a_look_before_writing_is_not_enough(
    world: World, control: ControlStore, run_id: str, monkeypatch: pytest.MonkeyPatch, looks_after_writing: bool
) -> None:
    """What comes between the look and the write is only seen after the write."""
    read_to = Tail.read_to

    def before_only(tail: Tail, offsets: Mapping[int, int], within: float = math.inf) -> None:
        if within == math.inf:
            read_to(tail, offsets)

    if not looks_after_writing:
        monkeypatch.setattr(Tail, "read_to", before_only)
    topic = world.topic(1)
    topic.produce(("a", 1))
    a = topic.correction("a", 1, run_id, 0)
    changes = iter([2])

    def change(step: str) -> None:
        if step == "mid_produce":
            topic.produce(*(("a", version) for version in changes))

    with leased(control, "one") as held:
        topic.emit([a], run_id, control, held, step=change)
    assert ([] if looks_after_writing else [a.id]) == overtaken(topic.read())


def test_what_is_dropped_says_why(world: World, control: ControlStore, run_id: str) -> None:
    """The outcome and the control store name the newer event's place; asked again, they say it still."""
    topic = world.topic(1)
    topic.produce(("a", 1), ("b", 1), ("b", 2))
    a, b = (topic.correction(key, 1, run_id, 0) for key in "ab")
    outcome = emitted(control, topic, run_id, a, b)
    assert [(a, 0)] == [(each.correction, each.correction.partition) for each in outcome.emitted]
    assert [(b, "a newer event stands in partition 0, offset 2", 2)] == [
        (each.correction, each.reason, each.offset) for each in outcome.dropped
    ]
    known = {each.correction_id: each.state for each in control.corrections.of_run(LINK, run_id)}
    assert {a.id: CorrectionState.EMITTED, b.id: CorrectionState.DROPPED} == known
    again = emitted(control, topic, run_id, a, b)
    assert (outcome.emitted, ()) == (again.already, again.emitted)
    assert outcome.dropped[0].reason == again.dropped[0].reason


def test_an_event_before_the_fence_does_not_matter(world: World, control: ControlStore, run_id: str) -> None:
    """What stands before `since` was known when the correction was made."""
    topic = world.topic(1)
    topic.produce(("a", 5))
    a = topic.correction("a", 4, run_id, since=1)
    assert [a] == [each.correction for each in emitted(control, topic, run_id, a).emitted]


def test_both_tombstones_go_or_none(world: World, control: ControlStore, run_id: str) -> None:
    """A newer event in one partition drops the correction from the other too; else they share a transaction."""
    topic = world.topic(2)
    a0, a1, b0, b1 = (topic.correction(key, 1, run_id, 0, partition) for key in "ab" for partition in (0, 1))
    topic.produce(("b", 2), partition=1)
    outcome = emitted(control, topic, run_id, a0, b0, a1, b1)
    assert [(0, a0.id), (1, a1.id)] == in_log(topic)
    assert [b0, b1] == [each.correction for each in outcome.dropped]


def test_a_pair_stands_together_in_its_order(world: World, control: ControlStore, run_id: str) -> None:
    """Debezium's deletion: an event and the tombstone behind it, with one id and in one partition."""
    topic = world.topic(2)
    a, b = (replace(topic.correction(key, 1, run_id, 0), then=(None,)) for key in "ab")
    outcome = emitted(control, topic, run_id, a, b)
    found = {id_: [each for each in topic.read() if header(each, CORRECTION_ID) == id_] for id_ in (a.id, b.id)}
    assert [[a.value, None], [b.value, None]] == [[each.value() for each in found[id_]] for id_ in (a.id, b.id)]
    assert [{a.partition}, {b.partition}] == [{each.partition() for each in found[id_]} for id_ in (a.id, b.id)]
    last = {each.correction.id: each.offset for each in outcome.emitted}
    assert last == {id_: records[-1].offset() for id_, records in found.items()}
    assert [a, b] == [each.correction for each in emitted(control, topic, run_id, a, b).already]


def test_a_pair_is_taken_back_by_what_stands_inside_it(
    world: World, control: ControlStore, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tombstone behind a newer event would delete what that event says."""
    topic = world.topic(1)
    pair = replace(topic.correction("a", 1, run_id, 0), then=(None,))
    produce, arrived = Transactions._produce, list[int]()

    def interrupted(self: Transactions, writer: Any, correction: Correction, value: bytes | None, told: Any) -> None:
        if value is None and not arrived:
            self._flush(writer, 30, [])
            topic.produce(("a", 2))
            arrived.append(2)
        produce(self, writer, correction, value, told)

    monkeypatch.setattr(Transactions, "_produce", interrupted)
    outcome = emitted(control, topic, run_id, pair)
    assert ([pair], []) == ([each.correction for each in outcome.dropped], in_log(topic))


def test_a_correction_of_another_run_counts(world: World, control: ControlStore, run_id: str) -> None:
    """Newer state is newer state, whoever wrote it."""
    topic = world.topic(1)
    theirs = topic.correction("a", 2, "another-run", 0)
    with world.producer({}) as producer:
        producer.produce(topic.name, theirs.value, theirs.key, partition=0, headers=list(theirs.headers))
    ours = topic.correction("a", 1, run_id, 0)
    assert [ours] == [each.correction for each in emitted(control, topic, run_id, ours).dropped]


def test_an_event_of_an_open_transaction_counts(world: World, control: ControlStore, run_id: str) -> None:
    """It stands before the correction, and its owner may commit it later."""
    topic = world.topic(1)
    ours = topic.correction("a", 1, run_id, 0)
    with world.producer({"transactional.id": f"theirs-{run_id}"}) as theirs:
        theirs.init_transactions()
        theirs.begin_transaction()
        theirs.produce(topic.name, event(2), ours.key, partition=0)
        theirs.flush()
        outcome = emitted(control, topic, run_id, ours)
        theirs.commit_transaction()
    assert [ours] == [each.correction for each in outcome.dropped]


def test_what_the_log_no_longer_tells_is_dropped(world: World, control: ControlStore, run_id: str) -> None:
    """Where records after the fence have expired, a newer one may have been among them."""
    from confluent_kafka import TopicPartition

    topic = world.topic(1)
    topic.produce(("a", 1), ("b", 1))
    cut = admin_client(world.lab.bootstrap).delete_records([TopicPartition(topic.name, 0, 2)])
    for future in cut.values():
        future.result(30)
    a = topic.correction("a", 1, run_id, since=1)
    outcome = emitted(control, topic, run_id, a)
    assert ["partition 0 has nothing before the offset 2 any more"] == [each.reason for each in outcome.dropped]


def test_a_log_that_was_made_anew_is_refused(world: World, control: ControlStore, run_id: str) -> None:
    """A fence past the end of the log was taken of another one."""
    topic = world.topic(1)
    with pytest.raises(LogReplacedError, match="start a new run"):
        emitted(control, topic, run_id, topic.correction("a", 1, run_id, since=7))


def test_a_partition_that_is_not_there_is_refused(world: World, control: ControlStore, run_id: str) -> None:
    """The error names it."""
    topic = world.topic(1)
    with pytest.raises(RefusedError, match="partition 7"):
        emitted(control, topic, run_id, topic.correction("a", 1, run_id, 0, partition=7))


def test_a_record_that_is_too_large_is_refused(world: World, control: ControlStore, run_id: str) -> None:
    """Nothing of its batch is written, and the error says what to raise."""
    topic = world.topic(1)
    large = replace(topic.correction("a", 1, run_id, 0), value=b"x" * 2_000_000)
    with pytest.raises(EmissionRefusedError, match=r"max\.message\.bytes"):
        emitted(control, topic, run_id, large)
    assert [] == in_log(topic)


def test_a_newer_that_fails_takes_all_back(world: World, control: ControlStore, run_id: str) -> None:
    """A record that cannot be judged is no reason to go on."""
    topic = world.topic(1)
    a = topic.correction("a", 1, run_id, 0)
    with pytest.raises(ValueError, match="Expecting value"), leased(control, "one") as held:
        topic.emit([a], run_id, control, held, step=lambda name: broken(topic, name))
    assert [] == in_log(topic)


def broken(topic: Topic, step: str) -> None:
    """Let a record that nobody can read come between the look and the write."""
    if step == "mid_produce":
        with topic.world.producer({}) as producer:
            producer.produce(topic.name, b"<broken>", b"a", partition=0)
            assert 0 == producer.flush(30)
