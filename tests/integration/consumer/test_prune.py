"""`reconcile consumer prune`: the ledger forgets what nothing can ask for, and that alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from reconcile.cli import cli
from reconcile.consumer import Consumer, Message, RetryThenDeadLetter, Stash, Transaction
from reconcile.consumer.errors import ReplayWindowError
from reconcile.lab.services import offsets
from reconcile.lab.services.offsets import admin_client
from tests.integration.consumer.test_contract import CONTRACT, SETTINGS
from tests.integration.consumer.world import PATIENCE, PoisonError, Scenario, World, apply_copy, until

Prune = Callable[..., Result]
DAY = {"retention.ms": str(86_400_000), "segment.ms": str(86_400_000)}
EVENTS = tuple((each, version, f"{each} {version}") for version in (1, 2, 3, 4) for each in ("zoe", "ida", "max"))


def refuse_ida(message: Message, tx: Transaction) -> None:
    """Process all but what comes second of ida."""
    if message.event_id == "ida-2":
        raise PoisonError("cannot be read")
    apply_copy(message, tx)


@pytest.fixture
def policy() -> str:
    """The failure block of the contract."""
    return "policy: stash, stash: {aside}"


@pytest.fixture
def scenario(world: World) -> Scenario:
    """A topic of one partition that keeps its records for a day, and its segments for another."""
    scenario = world.scenario(1)
    configure(scenario, **DAY)
    return scenario


@pytest.fixture
def prune(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str) -> Prune:
    """Consume by a contract, and prune."""
    aside = scenario.create_topic(f"{scenario.topic}.aside")
    contract, settings = tmp_path / "user.yaml", tmp_path / "reconcile.yaml"
    text = CONTRACT.format(topic=scenario.topic, group=scenario.group, aside=aside)
    contract.write_text(text.replace(f"policy: stash, stash: {aside}", policy.format(aside=aside)))
    settings.write_text(SETTINGS.format(bootstrap=scenario.world.lab.bootstrap))
    monkeypatch.setenv("COPY_DB", scenario.url)
    scenario.publish(*EVENTS)
    with scenario.running(Consumer.from_contract(contract, "login", refuse_ida, settings=settings)):
        scenario.until_consumed()
    scenario.rows("update reconcile.ledger set processed_at = processed_at - interval '9 days'")

    def run(*words: str) -> Result:
        return CliRunner().invoke(cli, ["consumer", "prune", str(contract), *words, "--config", str(settings)])

    return run


def configure(scenario: Scenario, **settings: str) -> None:
    """Change the topic's settings."""
    entries = [ConfigEntry(name, each, incremental_operation=AlterConfigOpType.SET) for name, each in settings.items()]
    resource = ConfigResource(ResourceType.TOPIC, scenario.topic, incremental_configs=entries)
    admin_client(scenario.world.lab.bootstrap).incremental_alter_configs([resource])[resource].result(PATIENCE)


def forget(scenario: Scenario, offset: int) -> None:
    """Let the topic delete what stands before an offset."""
    gone = TopicPartition(scenario.topic, 0, offset)
    admin_client(scenario.world.lab.bootstrap).delete_records([gone])[gone].result(PATIENCE)


def known(scenario: Scenario) -> list[str]:
    """Query the events that the ledger knows."""
    return [row[0] for row in scenario.rows('select event_id from reconcile.ledger order by "offset"')]


def data(result: Result) -> Any:
    """Parse what the command printed with --json."""
    return json.loads(result.stdout)


def test_what_the_topic_still_has_stays_known(prune: Prune, scenario: Scenario) -> None:
    """C3, C7: so that a group which reads it all again applies nothing twice."""
    forget(scenario, 6)
    pruned = data(prune("--json"))
    assert (4, {"0": 6}, "2d") == (pruned["rows"], pruned["begins"], pruned["replay_window"])
    assert ["ida-1", "zoe-3", "max-3", "zoe-4", "max-4"] == known(scenario)
    applied = scenario.applied()
    offsets.commit(scenario.world.lab.bootstrap, scenario.group, scenario.topic, {0: 6})
    with scenario.running(scenario.consumer(Stash(f"{scenario.topic}.aside"))):
        scenario.until_consumed()
    assert applied == scenario.applied()


def test_what_the_group_has_yet_to_commit_stays_known(prune: Prune, scenario: Scenario) -> None:
    """Its ledger is all that knows of it."""
    offsets.commit(scenario.world.lab.bootstrap, scenario.group, scenario.topic, {0: 2})
    forget(scenario, 6)
    assert 1 == data(prune("--json"))["rows"]
    assert "zoe-1" not in known(scenario)


def test_what_is_young_stays_known(prune: Prune, scenario: Scenario) -> None:
    """A duplicate of it may be in the log by another place."""
    forget(scenario, 12)
    assert 0 == data(prune("--keep", "10d", "--json"))["rows"]
    scenario.rows("update reconcile.ledger set processed_at = clock_timestamp() where event_id in ('zoe-1', 'max-4')")
    assert 6 == data(prune("--json"))["rows"]
    assert ["zoe-1", "ida-1", "max-4"] == known(scenario)


def test_all_of_an_aggregate_that_is_stashed_stays_known(prune: Prune, scenario: Scenario) -> None:
    """Until it is drained; then it may go too."""
    forget(scenario, 12)
    assert 8 == data(prune("--json"))["rows"]
    assert ["ida-1"] == known(scenario)
    assert ["ida"] == scenario.consumer(Stash(f"{scenario.topic}.aside")).drain().unblocked
    scenario.rows("update reconcile.ledger set processed_at = processed_at - interval '9 days'")
    assert 4 == data(prune("--json"))["rows"]
    assert [1, 2, 3, 4] == scenario.applied("ida")


@pytest.mark.parametrize("policy", ["policy: retry-then-dead-letter, dead_letter: {aside}"])
def test_a_dead_letter_that_is_replayed_after_a_prune_changes_nothing(prune: Prune, scenario: Scenario) -> None:
    """D7: the ledger still knows that it was overtaken."""
    aside = f"{scenario.topic}.aside"
    until(lambda: scenario.records(aside), "no dead letter came")
    forget(scenario, 12)
    assert 8 == data(prune("--json"))["rows"]
    assert ["ida-1", "ida-2", "ida-3", "ida-4"] == known(scenario)
    consumer = scenario.consumer(RetryThenDeadLetter(aside))
    with consumer.stash() as stash:
        letters = consumer.dead_letters().read(stash)
        assert 1 == consumer.dead_letters().replay(letters, stash, consumer.terms)
    drained = consumer.drain()
    assert ((0, 1), "ida 4") == ((drained.applied, drained.older), scenario.copy()["ida"])


def test_a_dry_run_deletes_nothing(prune: Prune, scenario: Scenario) -> None:
    """It counts what would be."""
    forget(scenario, 6)
    assert f"4 rows would be deleted of the ledger of {scenario.group}\n" == prune("--dry-run").stdout
    assert 9 == len(known(scenario))
    words = prune()
    assert f"4 rows were deleted of the ledger of {scenario.group}\n" == words.stdout
    assert f"{scenario.topic}[0]: what stands at 6 or later may be read again" in words.stderr


@pytest.mark.parametrize(
    ("settings", "words", "why"),
    [
        (DAY, ("--keep", "1d"), "keep at least 2d"),
        ({"retention.ms": "-1"}, (), "keeps its records without a limit of time"),
        ({"cleanup.policy": "compact"}, ("--keep", "300d"), "keeps its records without a limit of time"),
    ],
)
def test_less_than_may_be_read_again_is_refused(
    prune: Prune, scenario: Scenario, settings: dict[str, str], words: tuple[str, ...], why: str
) -> None:
    """By name, with what to do; nothing is deleted."""
    forget(scenario, 6)
    configure(scenario, **settings)
    refused = prune(*words)
    assert isinstance(refused.exception, ReplayWindowError)
    assert why in str(refused.exception)
    assert 9 == len(known(scenario))


def test_it_takes_many_rows_beside_a_consumer_that_runs(
    prune: Prune, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In small transactions; rows that stay are stepped over."""
    monkeypatch.setattr("reconcile.consumer.pruning._AT_ONCE", 2)
    scenario.rows("update reconcile.ledger set processed_at = now() - interval '9 days'")
    forget(scenario, 12)
    with scenario.running(scenario.consumer(Stash(f"{scenario.topic}.aside"))):
        scenario.publish(("max", 5, "max 5"))
        scenario.until_consumed()
        assert 8 == data(prune("--json"))["rows"]
    assert ["ida-1", "max-5"] == known(scenario)
