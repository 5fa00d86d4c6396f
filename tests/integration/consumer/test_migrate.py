"""`reconcile consumer migrate`: the library's tables in a service's database."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reconcile.cli import cli
from reconcile.consumer import Consumer, Postgres, Stash
from reconcile.consumer.errors import TablesMissingError
from reconcile.consumer.postgres import migrations
from reconcile.errors import RefusedError, UnreachableError
from tests.integration.consumer.test_contract import CONTRACT, SETTINGS
from tests.integration.consumer.world import Scenario, apply_copy

Run = Callable[..., Result]
NAMES = [name for _, name, _ in migrations()]


@pytest.fixture
def migrate(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command on a database without the tables."""
    contract, settings = tmp_path / "user.yaml", tmp_path / "reconcile.yaml"
    contract.write_text(CONTRACT.format(topic=scenario.topic, group=scenario.group, aside="aside"))
    settings.write_text(SETTINGS.format(bootstrap=scenario.world.lab.bootstrap))
    monkeypatch.setenv("COPY_DB", scenario.url)
    scenario.rows("drop schema reconcile cascade")

    def run(*words: str) -> Result:
        return CliRunner().invoke(cli, ["consumer", "migrate", str(contract), *words, "--config", str(settings)])

    return run


def test_the_tables_are_created_once(migrate: Run, scenario: Scenario) -> None:
    """The second time there is nothing to do; the consumer's error names the command."""
    with pytest.raises(TablesMissingError, match="run `reconcile consumer migrate`"):
        scenario.consumer(Stash()).run()
    first, second = migrate(), migrate("--json")
    assert (0, "".join(f"{each}\n" for each in NAMES)) == (first.exit_code, first.stdout)
    assert {"schema_version": 1, "group": scenario.group, "applied": []} == json.loads(second.stdout)
    scenario.publish(("zoe", 1, "Zoey"))
    with scenario.running(scenario.consumer(Stash())):
        scenario.until_consumed()
    assert {"zoe": "Zoey"} == scenario.copy()


def test_the_sql_may_be_applied_by_others(migrate: Run, scenario: Scenario) -> None:
    """What --print prints does the same, and is known as done."""
    printed = migrate("--print")
    assert [(None,)] == scenario.rows("select to_regnamespace('reconcile')::text")
    scenario.rows(printed.stdout)
    assert (0, "") == (printed.exit_code, migrate().stdout)


def test_an_account_that_may_not_create_them_is_refused(migrate: Run, scenario: Scenario) -> None:
    """With what to do; a server that does not answer is another thing."""
    role, place = f"{scenario.database}_guest", scenario.url.split("@")[-1]
    scenario.rows(f"create role {role} login password 'guest'")
    with pytest.raises(RefusedError, match="have somebody apply what `reconcile consumer migrate --print` prints"):
        consumer(f"postgresql://{role}:guest@{place}").migrate()
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1/nowhere does not answer: "):
        consumer("postgresql://me:topsecret@127.0.0.1:1/nowhere").migrate()


def consumer(url: str) -> Consumer:
    """Build a consumer with a store that is elsewhere."""
    return Consumer(topic="t", group="g", policy=Stash(), store=Postgres(url), handler=apply_copy, kafka={})
