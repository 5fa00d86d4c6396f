"""Every command does its work with the rights that `reconcile contract grants` prints for it, and with no more."""

from __future__ import annotations

import json

import psycopg2
import pytest

from reconcile.lab import world as lab_world
from reconcile.lab.demo import consume
from reconcile.lab.folder import READER
from reconcile.lab.services.database import connected
from reconcile.pipeline.requests import TOPIC
from tests.integration.secure.world import SecureWorld


@pytest.mark.parametrize(
    ("table", "database"), [("outbox", "user"), ("user_account", "user"), ("login_profile", "login")]
)
def test_the_reader_writes_nothing(world: SecureWorld, table: str, database: str) -> None:
    """Its rights are to read, table by table."""
    with (
        pytest.raises(psycopg2.errors.InsufficientPrivilege),
        connected(world.lab.url(database, READER)) as cursor,
    ):
        cursor.execute(f"set transaction read write; delete from {table}")


def test_the_reader_reads_what_contracts_name_alone(world: SecureWorld) -> None:
    """A table that no contract names stays closed, also one that is made later."""
    with connected(world.lab.url("login")) as cursor:
        cursor.execute("create table if not exists private_note (note text)")
    with connected(world.lab.url("login", "postgres")) as cursor:
        cursor.execute(
            "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'"
            " and has_table_privilege(%s, oid, 'select') order by 1",
            (READER,),
        )
        assert [("login_profile",), ("processed_message",)] == cursor.fetchall()


def test_every_command_runs_with_what_was_granted(world: SecureWorld) -> None:
    """From the check to a repair that is verified, and what reads runs afterwards."""
    contract = world.contract(approval="none", max_ratio=1.0, min_confidence="possible")
    done = world.run("contract", "check", contract)
    assert 0 == done.exit_code, done.output
    reading: tuple[tuple[object, ...], ...] = (("fence", contract), ("doctor", contract, "--json"))
    for words in reading:
        done = world.run(*words)
        assert done.exception is None or isinstance(done.exception, SystemExit), (words, done.exception)
        assert done.exit_code in (0, 1), (words, done.output)
    assert not [each for each in json.loads(done.stdout)["checks"] if "does not let us" in each["found"]]
    done = world.run("run", contract, "--run-id", "repaired", "--apply", "--yes", "--json")
    # The lab's services are away: what was emitted waits for them.
    assert 1 == done.exit_code, (done.exception, done.output)
    applied = world.run("apply", "--run", "repaired", "--json")
    assert json.loads(applied.stdout)["links"], applied.output
    some = json.loads(world.run("findings", "repaired", "--json").stdout)["findings"][0]["aggregate_id"]
    reading = (("explain", "repaired", some), ("trace", contract, some), ("verify", "--run", "repaired"))
    for words in reading:
        done = world.run(*words)
        assert done.exit_code in (0, 1), (words, done.exception, done.output)
    consume(world.lab)
    verified = json.loads(world.run("verify", "--run", "repaired", "--json").stdout)
    outcomes = {name for link in verified["links"] for name in link["outcomes"]}
    assert "converged" in outcomes
    assert outcomes <= {"converged", "partial"}


def test_a_request_reaches_its_topic(world: SecureWorld) -> None:
    """Who may write to the request topic wakes Airflow."""
    lab_world.provide_topics(world.lab, {TOPIC: 1})
    done = world.run("request", world.contract(), "--json")
    assert json.loads(done.stdout)["sent"], done.output
