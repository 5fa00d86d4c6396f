"""The rights that a contract needs are named one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.contract.model import load_contract
from reconcile.errors import RefusedError
from reconcile.files import committed
from reconcile.pipeline.grants import Purpose, kafka_grants, store_sql, tables_read
from tests.schemas import valid_output

ACCOUNT = committed("contracts", "user-account.yaml")


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("select * from a", ["a"]),
        ("select * from sales.a x, b as y join c using (id)", ["sales.a", "b", "c"]),
        ('select * from only "T a" t left join lateral f(t.id) on true', ["T a"]),
        ("with recent as (select * from a) select * from recent join b on b.id = recent.id", ["a", "b"]),
        ("select (select max(n) from a where a.id = b.id) from b", ["a", "b"]),
        ("select extract(year from born), trim(both 'x' from name) from a where x is distinct from y", ["a"]),
        ("select ' from b ' /* from c */ from a -- from d", ["a"]),
        ("select 1", []),
    ],
)
def test_the_tables_of_a_query_are_found(query: str, tables: list[str]) -> None:
    """By the words before them, and not in texts, comments, functions or names that the query makes."""
    assert sorted(tables) == sorted(tables_read(query))


def test_sql_names_each_table() -> None:
    """Nothing is granted on a whole schema."""
    found = store_sql(load_contract(ACCOUNT), Purpose.AUDIT, "auditor")
    assert {"user-db", "login-db"} == found.keys()
    assert [] == [text for text in found.values() if "all tables" in text or "default privileges" in text]
    assert 'grant select on "public"."processed_message" to "auditor";' in found["login-db"]


def test_a_topic_that_is_named_twice_has_all_its_rights_in_one_line() -> None:
    """What one purpose needs of a resource does not hide what another part of it needs."""
    contract = load_contract(ACCOUNT)
    for purpose in Purpose:
        named = [(each.resource, each.name) for each in kafka_grants(contract, purpose)]
        assert sorted(set(named)) == sorted(named)


def test_a_group_that_stands_for_all_is_not_granted(tmp_path: Path) -> None:
    """To Kafka's tool a `*` means every group, also in quotes."""
    file = tmp_path / "user-account.yaml"
    file.write_text(ACCOUNT.read_text("utf-8").replace("group: login-service", "group: '*'"), "utf-8")
    with pytest.raises(RefusedError, match="stands for every group"):
        kafka_grants(load_contract(file), Purpose.CONSUMER)


def test_an_auditor_writes_nowhere() -> None:
    """Neither in a store nor in the cluster."""
    contract = load_contract(ACCOUNT)
    operations = {one for each in kafka_grants(contract, Purpose.AUDIT) for one in each.operations}
    assert {"Read", "Describe", "DescribeConfigs"} == operations
    assert "insert" not in str(store_sql(contract, Purpose.AUDIT, "auditor"))


def test_the_command_prints_statements_and_calls(tmp_path: Path) -> None:
    """For each purpose that is named; a table of its own, a role and a principal are as they were given."""
    words = ["contract", "grants", str(ACCOUNT), "--for", "audit", "--for", "apply", "--principal", "User:CN=auditor x"]
    printed = CliRunner().invoke(cli, words).stdout
    assert "-- audit: in the database of user-db" in printed
    assert "--allow-principal 'User:CN=auditor x' --operation Describe --operation Write --transactional-id" in printed
    alone = CliRunner().invoke(cli, [*words, "--store", "login-db"]).stdout
    assert ("login_profile" in alone, "user_account" in alone, "kafka-acls" in alone) == (True, False, False)
    given = valid_output("contract grants", CliRunner().invoke(cli, [*words, "--json"]).stdout)
    assert {"audit", "apply"} == given["kafka"].keys()


def test_a_store_of_another_kind_is_said(tmp_path: Path) -> None:
    """Statements for Postgres are no statements for a MariaDB."""
    settings = tmp_path / "reconcile.yaml"
    settings.write_text(
        "connections: {user-db: {url: 'mariadb://a@h/d'}, login-db: {url: 'postgresql://a@h/d'}, main: {bootstrap: h}}"
    )
    words = ["contract", "grants", str(ACCOUNT), "--config", str(settings)]
    heads = [line for line in CliRunner().invoke(cli, words).stdout.splitlines() if "in the database of" in line]
    assert [True, False] == ["no Postgres" in each for each in heads]
