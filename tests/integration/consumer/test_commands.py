"""`reconcile stash` and `reconcile dead-letters`, as a person uses them at night."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reconcile.cli import cli
from reconcile.consumer import Consumer, Message, Stash, Transaction
from reconcile.lab.services import offsets
from tests.integration.consumer.test_contract import CONTRACT, SETTINGS
from tests.integration.consumer.world import PoisonError, Scenario, apply_copy

Run = Callable[..., Result]


def refuse(message: Message, tx: Transaction) -> None:
    """Process no name that begins with a Z or an I; a module of tests is found as a service's would be."""
    if not message.deletes and message.json()["name"][0] in "ZI":
        raise PoisonError("cannot be read")
    apply_copy(message, tx)


@pytest.fixture
def policy() -> str:
    """The failure block of the contract."""
    return "policy: stash, stash: {topic}.aside"


@pytest.fixture
def reconcile(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str) -> Run:
    """Consume what fails for zoe and ida, and run commands on the contract."""
    aside = scenario.create_topic(f"{scenario.topic}.aside")
    contract, settings = tmp_path / "user.yaml", tmp_path / "reconcile.yaml"
    text = CONTRACT.format(topic=scenario.topic, group=scenario.group, aside=aside)
    contract.write_text(text.replace(f"policy: stash, stash: {aside}", policy.format(topic=scenario.topic)))
    settings.write_text(SETTINGS.format(bootstrap=scenario.world.lab.bootstrap))
    monkeypatch.setenv("COPY_DB", scenario.url)
    scenario.publish(("zoe", 1, "Zoë"), ("zoe", 2, "Zoiee"), ("ida", 1, "Ida"), ("max", 1, "Max"))
    with scenario.running(Consumer.from_contract(contract, "login", refuse, settings=settings)):
        scenario.until_consumed()

    def run(group: str, command: str, *words: str) -> Result:
        return CliRunner().invoke(cli, [group, command, str(contract), *words, "--config", str(settings)])

    return run


def data(result: Result) -> Any:
    """Parse what a command printed with --json."""
    return json.loads(result.stdout)


def test_the_stash_is_listed_shown_and_drained(reconcile: Run, scenario: Scenario) -> None:
    """What waits is visible without its payload; a drain by the mended handler lets all flow again."""
    listed = data(reconcile("stash", "list", "--json"))
    assert (2, 3) == (listed["aggregates"], listed["messages"])
    assert {"zoe", "ida"} == {each["aggregate_id"] for each in listed["blocked"]}
    shown = data(reconcile("stash", "show", "zoe", "--json"))["letters"]
    assert [("zoe-1", "PoisonError", None), ("zoe-2", None, None)] == [
        (each["event_id"], each["error"], each["payload"]) for each in shown
    ]
    drained = reconcile("stash", "drain", "--handler", "tests.integration.consumer.world:apply_copy")
    assert (0, "3 messages applied, 2 aggregates flow again\n") == (drained.exit_code, drained.stdout)
    assert {"zoe": "Zoiee", "ida": "Ida", "max": "Max"} == scenario.copy()


def test_a_drain_that_fails_again_exits_1(reconcile: Run) -> None:
    """It names the aggregate; the others are drained."""
    drained = reconcile("stash", "drain", "--id", "zoe", "--handler", "tests.integration.consumer.test_commands:refuse")
    assert 1 == drained.exit_code
    assert "zoe: failed again" in drained.stderr


def test_a_person_releases_what_was_repaired_and_discards_what_is_worthless(reconcile: Run, scenario: Scenario) -> None:
    """Both are kept with the reason, and neither is ever applied."""
    assert 0 == reconcile("stash", "release", "zoe").exit_code
    assert 0 == reconcile("stash", "discard", "ida", "--because", "a test account").exit_code
    assert ({"max": "Max"}, []) == (scenario.copy(), scenario.stashed())
    because = scenario.rows('select event_id, because from reconcile.discarded order by topic, partition, "offset"')
    assert {"zoe-1": "the copy was repaired by hand", "ida-1": "a test account"}.items() <= dict(because).items()
    assert [("discarded", 3)] == scenario.rows(
        "select outcome, count(*) from reconcile.ledger where outcome <> 'applied' group by outcome"
    )


def test_a_release_leaves_what_came_after_the_repair(reconcile: Run, scenario: Scenario) -> None:
    """The copy was repaired up to a message: that one counts as done, and the next drain applies what follows."""
    first = data(reconcile("stash", "show", "zoe", "--json"))["letters"][0]["origin"]
    assert "no such message" in str(reconcile("stash", "release", "zoe", "--through", "t[0]@99").exception)
    assert "zoe: 1 messages" in reconcile("stash", "release", "zoe", "--through", first).stdout
    assert ("zoe", "zoe-2") in scenario.stashed()
    reconcile("stash", "drain", "--handler", "tests.integration.consumer.world:apply_copy")
    assert ([2], "Zoiee") == (scenario.applied("zoe"), scenario.copy()["zoe"])


@pytest.mark.parametrize("policy", ["policy: retry-then-dead-letter, dead_letter: {topic}.aside"])
def test_dead_letters_are_listed_replayed_and_cleaned(reconcile: Run, scenario: Scenario) -> None:
    """A day is cleaned only once it is resolved."""
    letters = data(reconcile("dead-letters", "list", "--json"))["letters"]
    assert {"zoe-1", "zoe-2", "ida-1"} == {each["event_id"] for each in letters}
    day = letters[0]["day"]
    refused = reconcile("dead-letters", "clean", "--day", day)
    assert "are not resolved" in str(refused.exception)
    assert "3 of 3 dead letters are in the stash" in reconcile("dead-letters", "replay", "--day", day).stdout
    assert 0 == reconcile("stash", "drain", "--handler", "tests.integration.consumer.world:apply_copy").exit_code
    assert "3 dead letters are cleaned" in reconcile("dead-letters", "clean", "--day", day).stdout
    assert [] == data(reconcile("dead-letters", "list", "--json"))["letters"]
    assert {"zoe": "Zoiee", "ida": "Ida", "max": "Max"} == scenario.copy()


@pytest.fixture
def damage(reconcile: Run, scenario: Scenario) -> Callable[..., Result]:
    """Work on the register with a message of zoe: the first one, or one at another offset."""
    first = scenario.rows("select min(\"offset\") from reconcile.stash where aggregate_id = 'zoe'")[0][0]

    def run(command: str, *words: str, offset: int | None = None, partition: int | None = None) -> Result:
        place = (
            str(scenario.partition("zoe") if partition is None else partition),
            str(first if offset is None else offset),
        )
        return reconcile("damaged", command, "--partition", place[0], "--offset", place[1], *words)

    return run


def test_d8_a_damaged_message_is_registered_listed_and_removed(
    damage: Callable[..., Result], reconcile: Run, scenario: Scenario
) -> None:
    """D8: with the reason, which the second time is a new one."""
    assert "is registered" in damage("add", "--because", "torn").stdout
    assert not data(damage("add", "--because", "torn by the disk", "--json"))["changed"]
    (line,) = data(reconcile("damaged", "list", "--json"))["damaged"]
    assert ("torn by the disk", None, True) == (line["because"], line["outcome"], line["stashed"])
    assert line["origin"] == data(reconcile("stash", "show", "zoe", "--json"))["letters"][0]["origin"]
    assert [True, False] == [data(damage("remove", "--json"))["changed"] for _ in range(2)]
    assert [] == scenario.rows("select 1 from reconcile.damaged")


def test_d8_a_place_where_the_topic_has_nothing_is_refused(damage: Callable[..., Result]) -> None:
    """D8: a slip would skip a message that is to come."""
    because = ("--because", "a slip")
    assert "the partition has the offsets 0 to" in str(damage("add", *because, offset=99).exception)
    assert "the topic has the partitions 0, 1, 2" in str(damage("add", *because, partition=7).exception)


@pytest.mark.parametrize("skips", [True, False])
def test_d8_a_stashed_message_that_is_damaged_is_skipped_by_a_drain_that_is_told_to(
    damage: Callable[..., Result], reconcile: Run, scenario: Scenario, skips: bool
) -> None:
    """D8: what follows is applied; any other drain tries it like all others."""
    damage("add", "--because", "torn")
    words = ["--handler", "tests.integration.consumer.world:apply_copy", *(["--skip-damaged"] if skips else [])]
    drained = data(reconcile("stash", "drain", "--id", "zoe", *words, "--json"))
    assert ((1, 1) if skips else (2, 0)) == (drained["applied"], drained["damaged"])
    assert ([2] if skips else [1, 2]) == scenario.applied("zoe")
    noted = scenario.rows("select event_id from reconcile.ledger where outcome = 'damaged'")
    assert ([("zoe-1",)] if skips else []) == noted


def test_d8_a_consumer_that_reads_the_topic_again_skips_what_was_registered(
    damage: Callable[..., Result], scenario: Scenario
) -> None:
    """D8: with a copy, a ledger and offsets that begin anew."""
    damage("add", "--because", "torn")
    scenario.rows("truncate reconcile.ledger, reconcile.stash, reconcile.blocked, reconcile.stash_size, copy, applied")
    offsets.commit(scenario.world.lab.bootstrap, scenario.group, scenario.topic, dict.fromkeys(range(3), 0))
    aside = f"{scenario.topic}.aside"
    with scenario.running(scenario.consumer(Stash(aside), terms={"skip_damaged": True})):
        scenario.until_consumed()
    assert ([2], {"zoe": "Zoiee", "ida": "Ida", "max": "Max"}) == (scenario.applied("zoe"), scenario.copy())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("apply", "write MODULE:FUNCTION"),
        ("no.such:apply", "there is no module no"),
        ("tests.integration.consumer.world:nothing", "has no function nothing"),
    ],
)
def test_a_handler_that_is_not_there_is_named(reconcile: Run, name: str, why: str) -> None:
    """The error says what to write, or what is missing."""
    assert why in str(reconcile("stash", "drain", "--handler", name).exception)
