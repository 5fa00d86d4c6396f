"""A MariaDB as the store of a copy and of a source: whole runs, with planted drift and with servers that go away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.domain.plan import Plan
from reconcile.errors import ReconcileError
from reconcile.files import committed
from reconcile.gather.stores.digest import ComparisonMode
from reconcile.lab.folder import Lab
from reconcile.lab.services.database import connected
from reconcile.lab.world import settings_file
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.handoffs import Fence, Gathered
from tests.integration.mariadb_server import MariaServer, mariadb_server
from tests.integration.runs import Runs, findings
from tests.integration.worlds import seeded_world
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROFILE = """
create table login_profile (
    user_id uuid primary key, version bigint unsigned, display_name varchar(200) collate utf8mb4_general_ci,
    mail varchar(200) character set latin1, phone varchar(40), b int default 7)
"""
LEDGER = """
create table processed_message (
    event_id char(36) character set ascii primary key, `partition` int, `offset` bigint, processed_at datetime(6))
"""
ACCOUNT = """
create table account (
    id char(36) character set ascii primary key, version int unsigned, first_name varchar(100), last_name varchar(100),
    email varchar(200), phone varchar(40), emails json, phones json, updated_at datetime(6), deleted tinyint(1))
"""
OUTBOX = (
    "create table outbox (id int primary key, account_id char(36), published_at datetime(6), created_at datetime(6))"
)


@dataclass(frozen=True)
class World:
    """A world of the lab, whose accounts and profiles lie in a MariaDB, too."""

    lab: Lab
    maria: MariaServer
    settings: Path
    folder: Path
    ids: tuple[str, ...]

    def contract(self, **changed: Any) -> Path:
        """Write the lab's contract with changes."""
        original = yaml.safe_load(committed("contracts", "user-account.yaml").read_text("utf-8"))
        path = self.folder / "contract.yaml"
        path.write_text(yaml.safe_dump(original | changed), "utf-8")
        return path

    def copy(self, **changed: Any) -> Path:
        """Write the contract of the copy in the MariaDB."""
        original = yaml.safe_load(committed("contracts", "user-account.yaml").read_text("utf-8"))
        settle = {"timeout": "60s", "confirm_after": "0s"}
        login = original["consumers"][0] | {"store": "shop", "settle": settle} | changed
        return self.contract(consumers=[login])

    def source(self, **changed: Any) -> Path:
        """Write the contract of the source in the MariaDB."""
        original = yaml.safe_load(committed("contracts", "user-account.yaml").read_text("utf-8"))
        outbox = {"table": "outbox", "id": "account_id", "published": "published_at is not null", "at": "created_at"}
        at = "date_format(updated_at, '%Y-%m-%dT%H:%i:%s.%fZ')"
        source = {"store": "shop", "table": "account", "id": "id", "version": "version", "updated_at": "updated_at"}
        login = original["consumers"][0] | {"settle": {"timeout": "60s", "confirm_after": "0s"}}
        login["fields"] = [dict(each) for each in login["fields"]]
        login["fields"][0]["source"] = "concat(first_name, ' ', last_name)"
        return self.contract(
            source=source | {"deleted": "deleted = 1", "outbox": outbox} | changed,
            topic=original["topic"] | {"value": original["topic"]["value"] | {"updated_at": at}},
            consumers=[login],
        )


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Lab, MariaServer]]:
    """A small world without faults, and a MariaDB beside it."""
    with (
        mariadb_server(ports_of("mariadb server").postgres) as maria,
        seeded_world(aggregates=40, ports=ports_of("mariadb")) as lab,
    ):
        yield lab, maria


@pytest.fixture
def world(servers: tuple[Lab, MariaServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The MariaDB holds what both services do."""
    lab, maria = servers
    monkeypatch.setenv("SHOP_URL", maria.url())
    known = yaml.safe_load(settings_file(lab).read_text("utf-8"))
    known["connections"]["shop"] = {"url": "env:SHOP_URL"}
    settings = tmp_path / "reconcile.yaml"
    settings.write_text(yaml.safe_dump(known), "utf-8")
    maria.run("drop table if exists login_profile, processed_message, account, outbox")
    for table in (PROFILE, LEDGER, ACCOUNT, OUTBOX):
        maria.run(table)
    with connected(lab.url("login")) as cursor:
        cursor.execute("select user_id::text, version, display_name, mail, phone from login_profile order by 1")
        profiles = cursor.fetchall()
        cursor.execute('select event_id::text, partition, "offset", processed_at from processed_message')
        entries = cursor.fetchall()
    maria.many(
        "insert into login_profile (user_id, version, display_name, mail, phone) values (%s, %s, %s, %s, %s)", profiles
    )
    maria.many("insert into processed_message values (%s, %s, %s, %s)", entries)
    original = yaml.safe_load(committed("contracts", "user-account.yaml").read_text("utf-8"))
    with connected(lab.url("user")) as cursor:
        cursor.execute(
            "select id::text, version, first_name, last_name, email, phone, emails::text, phones::text,"
            f" updated_at at time zone 'UTC', (deleted_at is not null)::int from ({original['source']['query']}) as q"
        )
        accounts = cursor.fetchall()
    maria.many(f"insert into account values ({', '.join(['%s'] * 10)})", accounts)
    return World(lab, maria, settings, tmp_path, tuple(row[0] for row in profiles))


@pytest.mark.parametrize("mode", ["auto", "full"])
def test_planted_drift_in_a_copy_is_found(
    world: World, spark: SparkSession, tmp_path: Path, mode: ComparisonMode
) -> None:
    """All of it, and nothing else, whichever way rows are compared."""
    edited, gone, nulled, *_ = world.ids
    stranger = "00000000-0000-4000-8000-000000000000"
    world.maria.run("update login_profile set mail = 'edited@example.org' where user_id = %s", (edited,))
    world.maria.run("update login_profile set display_name = upper(display_name) where user_id = %s", (nulled,))
    world.maria.run("delete from login_profile where user_id = %s", (gone,))
    world.maria.run("insert into login_profile (user_id, version) values (%s, 1)", (stranger,))
    job, summary = Runs(spark, world.settings, tmp_path / "runs").audited(world.copy(), mode, mode=mode)
    assert summary.complete
    assert {edited: "changed", nulled: "changed", gone: "missing", stranger: "orphan"} == {
        id_: each["difference"] for (_, id_), each in findings(job).items()
    }
    (gathered,) = job.run.read(Gathered).links
    expected = "portable" if mode == "auto" else "full"
    assert (expected, len(world.ids) + 1) == (gathered.mode, summary.links[0].compared)
    snapshot = job.run.read(Fence).consumers[0].snapshot
    assert snapshot is not None
    assert "MariaDB" in snapshot.server_version


def test_a_source_is_compared_and_its_values_are_planned(world: World, spark: SparkSession, tmp_path: Path) -> None:
    """What a correction says is read of the MariaDB; a row that it has not is not proven to be gone."""
    edited, stranger, waiting, *_ = world.ids
    world.maria.run("update account set email = 'new@example.org', version = version + 1 where id = %s", (edited,))
    world.maria.run("delete from account where id = %s", (stranger,))
    world.maria.run("insert into outbox values (1, %s, null, utc_timestamp(6))", (waiting,))
    runs = Runs(spark, world.settings, tmp_path / "runs")
    job, summary = runs.audited(world.source(), "source")
    assert summary.complete
    assert {edited: "changed", stranger: "orphan"} == {
        id_: each["difference"] for (_, id_), each in findings(job).items()
    }
    source = job.run.read(Fence).source
    assert source.nature is not None
    assert not source.nature.proven_primary
    assert 1 == source.outbox_pending
    pipeline.plan(job)
    items = {each.aggregate_id: each.action.value for link in job.run.read(Plan).links for each in link.items}
    assert {edited: "restate"} == {id_: action for id_, action in items.items() if action != "advice"}


def test_some_ids_are_looked_up(world: World, spark: SparkSession, tmp_path: Path) -> None:
    """Also such that no row can have."""
    edited, other, *_ = world.ids
    world.maria.run("update login_profile set mail = 'edited@example.org' where user_id <= %s", (other,))
    runs = Runs(spark, world.settings, tmp_path / "runs")
    job, _ = runs.audited(world.copy(), "ids", ids=[edited, edited.upper() + "x", "\u20ac"])
    assert [edited] == [id_ for _, id_ in findings(job)]


def test_a_contract_that_does_not_fit_is_told_of_at_once(world: World) -> None:
    """Each name that is not there, with the nearest that is."""
    fields = [
        {"name": "email", "source": "email", "consumer": "mial", "event": "$.email"},
        {"name": "phone", "source": "phone", "consumer": "phone)", "event": "$.phone"},
    ]
    contract = world.copy(fields=fields, version="verison")
    said = asked(world, "fence", contract)
    assert 'consumers[0].fields[0].consumer: no column "mial" in login_profile; did you mean "mail"?' in said
    assert 'consumers[0].version: no column "verison" in login_profile; did you mean "version"?' in said
    assert "consumers[0].fields[1].consumer: a `)` closes nothing" in said
    said = asked(world, "fence", world.copy(table="login_profil"))
    assert 'consumers[0].table: no table "login_profil" in shop; did you mean "login_profile"?' in said


def asked(world: World, *command: Any) -> str:
    """Call a command, and give the error that it ends with."""
    result = CliRunner().invoke(cli, [str(command[0]), str(command[1]), "--config", str(world.settings)])
    said = result.output + str(result.exception)
    assert "nobody may see" not in said
    assert isinstance(result.exception, ReconcileError), said
    return said


def test_a_fence_shows_the_instant(world: World) -> None:
    """Of both stores."""
    result = CliRunner().invoke(cli, ["fence", str(world.source()), "--config", str(world.settings), "--json"])
    assert 0 == result.exit_code, result.output
    found = json.loads(result.stdout)
    assert "MariaDB" in found["source"]["snapshot"]["server_version"]


def test_what_changed_in_a_source_is_found_by_its_time(world: World, spark: SparkSession, tmp_path: Path) -> None:
    """A row that was edited by hand, of which the log knows nothing."""
    runs, contract = Runs(spark, world.settings, tmp_path / "runs"), world.source()
    runs.audited(contract, "first")
    _, quiet = runs.audited(contract, "quiet", since="last")
    assert quiet.scope is not None
    assert (True, 0, "changed", 0) == (quiet.complete, quiet.exit_code, quiet.scope.kind, quiet.scope.ids)
    edited = world.ids[0]
    world.maria.run("update account set email = 'new@x.org', updated_at = utc_timestamp(6) where id = %s", (edited,))
    job, summary = runs.audited(contract, "changed", since="first")
    assert summary.scope is not None
    assert ("changed", 1, 40) == (summary.scope.kind, summary.scope.ids, summary.scope.aggregates)
    assert [edited] == [id_ for _, id_ in findings(job)]
