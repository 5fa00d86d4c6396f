"""The control store in Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg2
import pytest

from reconcile.control.errors import ControlRefusedError, ControlUnreachableError, LeaseHeldError
from reconcile.control.store import ControlStore, open_control
from reconcile.lab.folder import Lab
from tests.control_behaviour import (
    MINUTE,
    ApprovalsBehaviour,
    CorrectionsBehaviour,
    DistributionsBehaviour,
    FindingsBehaviour,
    LeasesBehaviour,
    MigrationBehaviour,
    RequestsBehaviour,
    RetentionBehaviour,
    RunsBehaviour,
    begin,
    kept,
    settings,
)
from tests.integration.worlds import postgres_alone
from tests.ports import ports_of


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A server of this module's own."""
    with postgres_alone(ports_of("control")) as lab:
        yield lab


def execute(lab: Lab, *statements: str) -> None:
    connection = psycopg2.connect(lab.url("postgres", "postgres"))
    connection.autocommit = True
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    connection.close()


@pytest.fixture
def url(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a database that was made anew."""
    execute(lab, "drop database if exists control with (force)", "create database control")
    address = lab.url("control", "postgres")
    monkeypatch.setenv("CONTROL_URL", address)
    return address


@pytest.fixture
def control(url: str) -> Iterator[ControlStore]:
    with open_control(settings()) as opened:
        yield opened


class TestRuns(RunsBehaviour):
    """Runs in Postgres."""


class TestFindings(FindingsBehaviour):
    """Findings over time in Postgres."""


class TestLeases(LeasesBehaviour):
    """Leases in Postgres."""


class TestCorrections(CorrectionsBehaviour):
    """Corrections in Postgres."""


class TestApprovals(ApprovalsBehaviour):
    """Approvals in Postgres."""


class TestDistributions(DistributionsBehaviour):
    """How values were distributed, run by run."""


class TestRetention(RetentionBehaviour):
    """What goes in Postgres."""


class TestRequests(RequestsBehaviour):
    """Requests in Postgres."""


class TestMigration(MigrationBehaviour):
    """The schema in Postgres."""


def test_a_wrong_password_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to check, and shows no password."""
    monkeypatch.setenv("CONTROL_URL", url.replace("postgres:", "postgres:hunter2", 1))
    refused = r"password authentication failed.*Check user, password and database"
    with pytest.raises(ControlRefusedError, match=refused) as caught:
        open_control(settings()).__enter__()
    assert "hunter2" not in str(caught.value)


def test_an_account_without_rights_is_told(lab: Lab, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not make tables is refused before anything is done."""
    execute(lab, "drop role if exists guest", "create role guest login password 'guest'")
    port = lab.state().ports.postgres
    monkeypatch.setenv("CONTROL_URL", f"postgresql://guest:guest@127.0.0.1:{port}/control")
    with pytest.raises(ControlRefusedError, match="permission denied for schema public"):
        open_control(settings()).__enter__()


def test_a_connection_that_breaks_is_made_anew(lab: Lab, control: ControlStore) -> None:
    """A server that was away for a moment is no error afterwards."""
    first = kept(control, "r1")
    execute(lab, "select pg_terminate_backend(pid) from pg_stat_activity where datname = 'control'")
    assert first == kept(control, "r1")


def test_a_connection_that_breaks_in_the_middle_changes_nothing(lab: Lab, control: ControlStore) -> None:
    """The error says that trying again may help, and it does."""

    def interrupted() -> Iterator[tuple[str, str, str, str | None]]:
        yield "a", "missing", "skipped", None
        execute(lab, "select pg_terminate_backend(pid) from pg_stat_activity where datname = 'control'")

    begin(control, "r1")
    with pytest.raises(ControlUnreachableError, match="cannot be reached"):
        control.findings.record("r1", "l", interrupted(), complete=True)
    assert {} == control.findings.seen("l", ["a"])
    assert 0 == control.findings.record("r1", "l", [], complete=True).still_open


def test_the_session_s_time_zone_does_not_matter(lab: Lab, url: str) -> None:
    """Leases and instants are the same in any."""
    execute(lab, "alter database control set timezone = 'Pacific/Auckland'")
    with open_control(settings()) as control:
        first = kept(control, "r1")
        control.leases.acquire("x", "first", MINUTE)
        with pytest.raises(LeaseHeldError):
            control.leases.acquire("x", "second", MINUTE)
        assert first == kept(control, "r1")
        assert "UTC" == str(first.started_at.tzinfo)
