"""Open transactions and groups of which nobody says how they read, from the audit to the plan."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from reconcile.domain.plan import Plan
from reconcile.domain.plan_rules import Action
from reconcile.files import committed
from reconcile.gather.log import undecided
from reconcile.kafka.reader import place_of
from reconcile.lab.faults.stage import Stage
from reconcile.lab.folder import Lab
from reconcile.lab.services.relay import producer
from reconcile.pipeline import stages as pipeline
from tests.integration.runs import Runs, findings
from tests.integration.worlds import seeded_world, until_decided
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, LINK = "user-account", "user-account/login"
LONG_AGO = 1_767_225_600_000
"""The beginning of 2026, as Kafka's timestamps have it."""


class World:
    """A small world, and the runs on it."""

    def __init__(self, lab: Lab, runs: Runs, stage: Stage, folder: Path) -> None:
        self.lab, self.runs, self.stage, self.folder = lab, runs, stage, folder

    def contract(self, **consumer: Any) -> Path:
        """Write login's contract, with changes to its consumer."""
        said = yaml.safe_load(committed("contracts", f"{TOPIC}.yaml").read_text("utf-8"))
        said["consumers"][0] |= {"settle": {"timeout": "2s", "confirm_after": "0s"}, **consumer}
        file = self.folder / "contract.yaml"
        file.write_text(yaml.safe_dump(said, sort_keys=False))
        return file

    def edited(self) -> str:
        """Edit the e-mail address of somebody's copy; give the id."""
        (person,) = self.stage.people(1)
        statement = "update login_profile set mail = %s where user_id = %s"
        self.stage.execute("login", statement, self.stage.mail(), person.user_id)
        return person.user_id

    @contextmanager
    def open_transaction(self, user_id: str, at: int = 0) -> Iterator[int]:
        """Hold a transaction open in the partition of an id during the block; give the offset where it begins."""
        sender = producer(self.lab.bootstrap, **{"transactional.id": "hanging"})
        places: list[tuple[int, int]] = []
        sender.init_transactions(30)
        sender.begin_transaction()
        partition = self.stage.home(TOPIC, user_id)
        sender.produce(
            TOPIC, key=b"nobody", partition=partition, timestamp=at,
            on_delivery=lambda _, record: places.append(place_of(record)),
        )  # fmt: skip
        assert not sender.flush(30)
        try:
            yield places[0][1]
        finally:
            sender.abort_transaction(30)
            until_decided(self.lab.bootstrap, TOPIC)

    def planned(self, contract: Path, run_id: str, *ids: str) -> Plan:
        """Audit and plan."""
        job, _ = self.runs.audited(contract, run_id, ids=ids)
        return pipeline.plan(job)


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world in which all is well."""
    with seeded_world(aggregates=120, ports=ports_of("open transactions")) as lab, ExitStack() as stack:
        folder = tmp_path_factory.mktemp("open")
        yield World(lab, Runs.of(spark, lab, folder / "runs"), Stage(lab, random.Random(7), stack), folder)  # noqa: S311


def changed_behind(world: World, user_id: str) -> None:
    """Change somebody, and let the relay publish it."""
    world.stage.user.change_email(user_id, world.stage.mail())
    world.stage.publish()


def test_an_event_behind_an_open_transaction_is_in_flight(world: World) -> None:
    """It is in the log, and no service can read it yet; once the transaction has ended, the copies agree."""
    (person,) = world.stage.people(1)
    with world.open_transaction(person.user_id) as begin:
        changed_behind(world, person.user_id)
        job, _ = world.runs.audited(world.contract(), "behind", ids=[person.user_id])
    found = findings(job)[LINK, person.user_id]
    assert ("in_flight", "certain", "in_flight") == (found["cause"], found["confidence"], found["status"])
    (note,) = found["evidence"]
    assert (f"behind an open transaction that began at offset {begin}", begin + 1) == (note["note"], note["offset"])
    world.stage.settle()
    job, _ = world.runs.audited(world.contract(), "ended", ids=[person.user_id])
    assert {} == findings(job)


def test_too_much_behind_an_open_transaction_is_not_certainly_unpublished(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looked at it: it may be on its way, and nothing is written."""
    monkeypatch.setattr(undecided, "MOST", 1)
    (person,) = world.stage.people(1)
    with world.open_transaction(person.user_id):
        changed_behind(world, person.user_id)
        job, _ = world.runs.audited(world.contract(), "unread", ids=[person.user_id])
    found = findings(job)[LINK, person.user_id]
    assert ("in_flight", "probable") == (found["cause"], found["confidence"])
    assert "never_published" in found["alternatives"]
    world.stage.settle()


def test_a_transaction_that_hangs_refuses_the_plan(world: World) -> None:
    """Nobody would get to a correction behind it."""
    someone = world.edited()
    with world.open_transaction(someone, at=LONG_AGO) as begin:
        plan = world.planned(world.contract(), "hangs", someone)
    (reason,) = plan.reasons
    assert "a transaction hangs in user-account" in reason
    assert f"--start-offset {begin}" in reason
    assert [Action.RESTATE] == [each.action for each in plan.links[0].items]


def test_a_young_transaction_is_a_warning(world: World) -> None:
    """It will end, and then the correction is read."""
    someone = world.edited()
    with world.open_transaction(someone) as begin:
        plan = world.planned(world.contract(), "young", someone)
    assert ([], [Action.RESTATE]) == (plan.reasons, [each.action for each in plan.links[0].items])
    assert any(f"at offset {begin}" in each for each in plan.links[0].warnings)


def test_a_copy_whose_group_does_not_say_how_it_reads_gets_advice(world: World) -> None:
    """It is audited as any other, and the finding and the plan say what has to be declared first."""
    someone = world.edited()
    job, _ = world.runs.audited(world.contract(isolation=None), "undeclared", ids=[someone])
    proposed = findings(job)[LINK, someone]["repair"]
    (item,) = pipeline.plan(job).links[0].items
    assert ("advice", Action.ADVICE) == (proposed["action"], item.action)
    assert "declare consumers[].isolation" in item.reason
