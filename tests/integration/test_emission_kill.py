"""An emission that is killed, cut off or interrupted goes on where it stopped, and sends nothing twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from reconcile.control.corrections import CorrectionState
from reconcile.control.errors import ControlUnreachableError, LeaseLostError
from reconcile.control.store import ControlStore, open_control
from reconcile.domain.correction import CORRECTION_ID, Correction
from reconcile.errors import UnreachableError
from reconcile.lab import process
from reconcile.repair.emission import EmissionOutcome
from reconcile.repair.transaction import EmissionFencedError
from reconcile.settings.settings import Settings
from tests.integration.emission_attempt import written
from tests.integration.emission_world import LINK, Topic, World, emission_world, event, header, leased, until

STEPS = (
    "before_intents",
    "after_intents",
    "mid_produce",
    "after_flush",
    "before_commit",
    "after_commit",
    "before_mark",
)
MANY = 30
BATCH = 10
RUNS = count()


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
    name = f"kill-{next(RUNS)}"
    control.runs.begin(name, "user-account", "c" * 64)
    return name


@pytest.fixture
def topic(world: World) -> Topic:
    """A topic with two events of each aggregate."""
    made = world.topic()
    made.produce(*((str(key), version) for version in (1, 2) for key in range(MANY)))
    return made


def corrections(topic: Topic, run_id: str, many: int = MANY) -> list[Correction]:
    fence = topic.ends()
    return [topic.correction(str(key), 2, run_id, fence[topic.partition(str(key))]) for key in range(many)]


def killed(world: World, wanted: Sequence[Correction], run_id: str, folder: Path, step: str, number: int = 1) -> None:
    """Let an attempt die at a step."""
    assert -signal.SIGKILL == ended(world, wanted, run_id, folder, step, number, signal.SIGKILL)


def ended(
    world: World,
    wanted: Sequence[Correction],
    run_id: str,
    folder: Path,
    step: str,
    number: int,
    by: signal.Signals,
) -> int:
    """Let an attempt get a signal at a step; give how it exits."""
    file = folder / "task.json"
    task = {
        "control": f"file:{world.control_url}",
        "cluster": world.cluster,
        "run_id": run_id,
        "topic": wanted[0].topic,
        "batch": BATCH,
        "corrections": [written(each) for each in wanted],
    }
    file.write_text(json.dumps(task))
    words = ["attempt", str(file), step, str(number), by.name]
    command = [sys.executable, "-m", "tests.integration.emission_attempt", *words]
    code = subprocess.run(command, check=False, timeout=300).returncode
    world.end_leases()
    return code


def resumed(control: ControlStore, topic: Topic, wanted: Sequence[Correction], run_id: str) -> EmissionOutcome:
    """Let another attempt end what was begun."""
    with leased(control, "resumed") as held:
        return topic.emit(wanted, run_id, control, held, batch=BATCH)


def in_log(topic: Topic) -> Counter[str]:
    """Count each correction's records as a consumer sees them."""
    return Counter(id_ for record in topic.read() if (id_ := header(record, CORRECTION_ID)) is not None)


def assert_once(topic: Topic, control: ControlStore, wanted: Sequence[Correction], run_id: str) -> None:
    """Each correction stands in the log once, and where the control store says."""
    assert Counter(each.id for each in wanted) == in_log(topic)
    stands = {(header(each, CORRECTION_ID), each.partition(), each.offset()) for each in topic.read()}
    known = control.corrections.of_run(LINK, run_id)
    assert {CorrectionState.EMITTED} == {each.state for each in known}
    assert {(each.correction_id, each.partition, each.offset) for each in known} <= stands


@pytest.mark.parametrize(("step", "number"), [*((step, 1) for step in STEPS), ("after_flush", 2), ("before_commit", 3)])
def test_what_is_killed_goes_on(
    world: World, control: ControlStore, topic: Topic, run_id: str, tmp_path: Path, step: str, number: int
) -> None:
    """Wherever the first attempt dies, and under whichever id, the second leaves each correction in the log once."""
    wanted, before = corrections(topic, run_id), topic.ends()
    killed(world, wanted, run_id, tmp_path, step, number)
    assert (topic.ends() == before) is (step in ("before_intents", "after_intents"))
    resumed(control, topic, wanted, run_id)
    assert_once(topic, control, wanted, run_id)


@pytest.mark.parametrize("step", ["mid_produce", "after_flush", "before_commit", "after_commit"])
def test_an_interrupted_attempt_leaves_nothing_open(
    world: World, control: ControlStore, topic: Topic, run_id: str, tmp_path: Path, step: str
) -> None:
    """Ctrl-C exits 130; what was written in the second batch is taken back or stays, and nobody has to wait for it."""
    wanted = corrections(topic, run_id)
    assert 130 == ended(world, wanted, run_id, tmp_path, step, 2, signal.SIGINT)
    # The cluster writes its markers right behind the answer; it would end the transaction by itself after a minute.
    until(lambda: topic.ends() == topic.ends(committed_only=True), "a transaction is open", patience=15)
    assert (2 if step == "after_commit" else 1) * BATCH == in_log(topic).total()
    outcome = resumed(control, topic, wanted, run_id)
    assert in_log(topic).total() == len(outcome.already) + len(outcome.emitted)
    assert_once(topic, control, wanted, run_id)


def test_what_is_killed_over_and_over_goes_on(
    world: World, control: ControlStore, topic: Topic, run_id: str, tmp_path: Path
) -> None:
    """Attempts that die in later batches leave behind what the next ones take up."""
    wanted = corrections(topic, run_id)
    for step, number in (("after_commit", 2), ("after_flush", 1), ("mid_produce", 1)):
        killed(world, wanted, run_id, tmp_path, step, number)
    outcome = resumed(control, topic, wanted, run_id)
    assert (MANY - 2 * BATCH, 2 * BATCH) == (len(outcome.emitted), len(outcome.already))
    assert_once(topic, control, wanted, run_id)


@pytest.mark.parametrize("given", [1, 0])
def test_what_this_attempt_was_not_given_is_found_too(
    world: World, control: ControlStore, topic: Topic, run_id: str, tmp_path: Path, given: int
) -> None:
    """What an earlier attempt committed is marked, though its source has moved on since and nobody asks for it."""
    wanted = corrections(topic, run_id, BATCH)
    killed(world, wanted, run_id, tmp_path, "after_commit")
    outcome = resumed(control, topic, wanted[:given], run_id)
    assert wanted[:given] == [each.correction for each in outcome.already]
    assert_once(topic, control, wanted, run_id)


def test_what_was_committed_may_be_hidden(
    world: World,
    control: ControlStore,
    topic: Topic,
    run_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a transaction of another producer hides what we committed, nothing is sent, and the error says why."""
    wanted = corrections(topic, run_id, 1)
    with world.producer({"transactional.id": "theirs"}) as theirs:
        theirs.init_transactions()
        theirs.begin_transaction()
        theirs.produce(topic.name, key=b"x", value=event(1), partition=wanted[0].partition)
        theirs.flush()
        killed(world, wanted, run_id, tmp_path, "after_commit")
        with monkeypatch.context() as patched:
            patched.setattr("reconcile.repair.tail._PATIENCE", 1.0)
            with pytest.raises(UnreachableError, match="a transaction of another producer may hide them"):
                resumed(control, topic, wanted, run_id)
        theirs.commit_transaction()
    assert wanted == [each.correction for each in resumed(control, topic, wanted, run_id).already]
    assert_once(topic, control, wanted, run_id)


@pytest.mark.parametrize("step", ["mid_produce", "after_flush", "before_commit", "after_commit"])
def test_what_is_interrupted_leaves_nothing_open(
    world: World, control: ControlStore, topic: Topic, run_id: str, step: str
) -> None:
    """Ctrl-C aborts what is not committed, so that no reader waits, and the emission can go on."""
    wanted = corrections(topic, run_id)

    def interrupt(name: str) -> None:
        if name == step:
            raise KeyboardInterrupt

    with leased(control, "interrupted") as held, pytest.raises(KeyboardInterrupt):
        topic.emit(wanted, run_id, control, held, batch=BATCH, step=interrupt)
    until(lambda: topic.ends() == topic.ends(committed_only=True), "a transaction is open")
    resumed(control, topic, wanted, run_id)
    assert_once(topic, control, wanted, run_id)


@pytest.mark.parametrize("step", ["after_flush", "before_commit"])
def test_a_broker_that_comes_back_is_waited_for(
    world: World, control: ControlStore, topic: Topic, run_id: str, step: str
) -> None:
    """A broker that dies and starts again costs an attempt at most."""
    wanted = corrections(topic, run_id)
    left = [step]

    def restart(name: str) -> None:
        if left == [name]:
            left.clear()
            world.kafka.kill()
            world.kafka.up()

    with leased(control, "restarted") as held:
        try:
            topic.emit(wanted, run_id, control, held, batch=BATCH, step=restart)
        except UnreachableError:
            until(topic.is_led, "the broker has no leaders")
            topic.emit(wanted, run_id, control, held, batch=BATCH)
    assert_once(topic, control, wanted, run_id)


def test_a_broker_that_has_just_been_started_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its program begins, nobody can tell by the list of processes that it is there."""
    world.kafka.kill()
    with monkeypatch.context() as patched:
        patched.setattr(process, "find", lambda _: [])
        world.kafka.up()
    assert world.kafka.pid is not None


def test_a_broker_that_stays_away_is_told(
    world: World, control: ControlStore, topic: Topic, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that emitting again may help, and it does."""
    wanted = corrections(topic, run_id)

    def kill(name: str) -> None:
        if name == "after_flush":
            world.kafka.kill()

    with leased(control, "left alone") as held:
        try:
            monkeypatch.setattr("reconcile.repair.tail._PATIENCE", 2.0)
            with pytest.raises(UnreachableError):
                topic.emit(wanted, run_id, control, held, batch=BATCH, step=kill)
            with pytest.raises(UnreachableError, match="cannot be reached"):
                topic.emit(wanted, run_id, control, held, batch=BATCH)
        finally:
            monkeypatch.undo()
            world.kafka.up()
        until(topic.is_led, "the broker has no leaders")
        topic.emit(wanted, run_id, control, held, batch=BATCH)
    assert_once(topic, control, wanted, run_id)


def test_a_control_store_that_goes_away_is_told(world: World, control: ControlStore, topic: Topic, run_id: str) -> None:
    """What could not be marked is found when the control store is back."""
    wanted = corrections(topic, run_id)

    def stop(name: str) -> None:
        if name == "before_mark":
            world.postgres.down()

    try:
        with leased(control, "unmarked", timedelta(minutes=5)) as held, pytest.raises(ControlUnreachableError):
            topic.emit(wanted, run_id, control, held, batch=BATCH, step=stop)
    finally:
        world.postgres.up()
        world.end_leases()
    outcome = resumed(control, topic, wanted, run_id)
    assert (MANY, 0) == (len(outcome.already), len(outcome.emitted))
    assert_once(topic, control, wanted, run_id)


def test_a_control_store_that_goes_away_between_two_batches_is_told(
    world: World, control: ControlStore, topic: Topic, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is marked already stays so, and what was committed since is found."""
    wanted = corrections(topic, run_id)
    monkeypatch.setattr("reconcile.repair.emission._MARKED_TOGETHER", BATCH)
    steps: list[str] = []

    def stop(name: str) -> None:
        steps.append(name)
        if name == "after_commit" and steps.count(name) == 2:
            world.postgres.down()

    try:
        with leased(control, "unmarked", timedelta(seconds=10)) as held, pytest.raises(ControlUnreachableError):
            topic.emit(wanted, run_id, control, held, batch=BATCH, step=stop)
    finally:
        world.postgres.up()
    assert BATCH == sum(each.state is CorrectionState.EMITTED for each in control.corrections.of_run(LINK, run_id))
    outcome = resumed(control, topic, wanted, run_id)
    assert (2 * BATCH, BATCH) == (len(outcome.already), len(outcome.emitted))
    assert_once(topic, control, wanted, run_id)


@pytest.mark.parametrize(("step", "batch"), [("mid_produce", 1), ("before_commit", BATCH)])
def test_another_attempt_fences_this_one(
    world: World, control: ControlStore, topic: Topic, run_id: str, step: str, batch: int
) -> None:
    """What another attempt has taken over is not committed, and the error says so, wherever it is found out."""
    wanted = corrections(topic, run_id)

    def overtake(name: str) -> None:
        if name == step:
            with world.producer({"transactional.id": f"reconcile-{LINK}-0"}) as other:
                other.init_transactions()

    with leased(control, "fenced") as held, pytest.raises(EmissionFencedError, match="another attempt"):
        topic.emit(wanted, run_id, control, held, batch=batch, step=overtake)
    assert Counter() == in_log(topic)
    resumed(control, topic, wanted, run_id)
    assert_once(topic, control, wanted, run_id)


@pytest.mark.parametrize(("step", "sent"), [("after_flush", 0), ("after_commit", BATCH)])
def test_workspaces_with_control_stores_of_their_own_are_fenced_by_the_cluster(
    control: ControlStore, topic: Topic, run_id: str, tmp_path: Path, step: str, sent: int
) -> None:
    """No lease keeps two apart that know nothing of each other: the one that came first can write no more.

    What it had committed is said once more, as the other one cannot know of it.
    """
    wanted, theirs = corrections(topic, run_id), corrections(topic, "elsewhere")
    found: list[EmissionOutcome] = []

    def overtake(name: str) -> None:
        if name == step and not found:
            with open_control(Settings(workspace=str(tmp_path))) as other:
                other.runs.begin("elsewhere", "user-account", "c" * 64)
                found.append(resumed(other, topic, theirs, "elsewhere"))

    with leased(control, "here") as held, pytest.raises(EmissionFencedError, match="another attempt"):
        topic.emit(wanted, run_id, control, held, batch=BATCH, step=overtake)
    assert MANY == len(found[0].emitted)
    stands = in_log(topic)
    assert ({each.id for each in wanted}, MANY + sent) == (set(stands), stands.total())
    assert max(stands.values()) <= 2


def test_an_attempt_that_does_not_know_that_it_was_overtaken_writes_no_more(
    world: World, control: ControlStore, topic: Topic, run_id: str
) -> None:
    """The control store's clock decides who holds the lease: one that ended by it is not written under any more."""
    wanted, steps = corrections(topic, run_id), []

    def overtake(name: str) -> None:
        steps.append(name)
        if name == "after_commit" and steps.count(name) == 1:
            world.end_leases()
            resumed(control, topic, wanted, run_id)

    with leased(control, "asleep", timedelta(minutes=5)) as held, pytest.raises(LeaseLostError):
        topic.emit(wanted, run_id, control, held, batch=BATCH, step=overtake)
    assert_once(topic, control, wanted, run_id)


def test_nothing_is_committed_without_the_lease(world: World, control: ControlStore, topic: Topic, run_id: str) -> None:
    """A lease that is lost while corrections are written takes them back."""
    wanted = corrections(topic, run_id)
    with leased(control, "lost", timedelta(seconds=3)) as held:

        def lose(name: str) -> None:
            if name == "before_commit":
                control.leases.release(held.lease)
                until(lambda: held.lost, "the lease was not lost")

        with pytest.raises(LeaseLostError):
            topic.emit(wanted, run_id, control, held, batch=BATCH, step=lose)
    until(lambda: topic.ends() == topic.ends(committed_only=True), "a transaction is open")
    assert Counter() == in_log(topic)
