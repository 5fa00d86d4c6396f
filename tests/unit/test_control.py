"""The control store in a SQLite file, as a trial has it; and what is told of a store that cannot be had."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconcile.control.database import connect
from reconcile.control.errors import ControlRefusedError, ControlUnreachableError, OlderSchemaError
from reconcile.control.migration import migrate, migrations
from reconcile.control.store import ControlStore, open_control
from reconcile.domain.approval import Actor
from reconcile.errors import RefusedError
from reconcile.settings.connections import SqliteFile
from reconcile.settings.settings import Settings
from tests.control_behaviour import (
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
    settings,
)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    address = f"sqlite:///{tmp_path}/control.db"
    monkeypatch.setenv("CONTROL_URL", address)
    return address


@pytest.fixture
def control(url: str) -> Iterator[ControlStore]:
    with open_control(settings()) as opened:
        yield opened


class TestRuns(RunsBehaviour):
    """Runs in a file."""


class TestFindings(FindingsBehaviour):
    """Findings over time in a file."""


class TestLeases(LeasesBehaviour):
    """Leases in a file."""


class TestCorrections(CorrectionsBehaviour):
    """Corrections in a file."""


class TestApprovals(ApprovalsBehaviour):
    """Approvals in a file."""


class TestDistributions(DistributionsBehaviour):
    """How values were distributed, run by run."""


class TestRetention(RetentionBehaviour):
    """What goes in a file."""


class TestRequests(RequestsBehaviour):
    """Requests in a file."""


class TestMigration(MigrationBehaviour):
    """The schema of a file."""


def test_without_a_control_store_it_is_in_the_workspace(tmp_path: Path) -> None:
    """The folder is made where it is missing."""
    with open_control(Settings(workspace=str(tmp_path / "a" / "runs"))) as control:
        begin(control, "r1")
    assert (tmp_path / "a" / "runs" / "control.db").is_file()


def test_a_workspace_elsewhere_needs_a_control_store() -> None:
    """SQLite's file lies on this machine."""
    with pytest.raises(RefusedError, match=r"s3a://b/runs is no folder of this machine.*set control_store.url"):
        open_control(Settings(workspace="s3a://b/runs")).__enter__()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """It stays as it is."""
    (tmp_path / "control.db").write_text("something else, and long enough to be looked at as a database's header" * 9)
    with pytest.raises(ControlRefusedError, match="file is not a database"):
        open_control(Settings(workspace=str(tmp_path))).__enter__()


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """The error names the path."""
    (tmp_path / "runs").write_text("")
    with pytest.raises(ControlRefusedError, match=r"no folder for the control store .*/runs/control.db: File exists"):
        open_control(Settings(workspace=str(tmp_path / "runs"))).__enter__()


def test_a_database_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the place, what to do, and no password."""
    monkeypatch.setenv("CONTROL_URL", "postgresql://me:hunter2@127.0.0.1:1/control")
    with pytest.raises(ControlUnreachableError, match=r"127\.0\.0\.1:1/control cannot be reached.*try again") as caught:
        open_control(settings()).__enter__()
    assert "hunter2" not in str(caught.value)


def test_a_migration_stands_whole_or_not_at_all(tmp_path: Path) -> None:
    """What fails in the middle is tried again from its beginning."""
    broken, mended = tmp_path / "0006_broken.sql", tmp_path / "0006_mended.sql"
    broken.write_text("create table extra (id text);\ncreate tabel other (id text);\n")
    mended.write_text("create table extra (id text);\ncreate table other (id text);\n")
    database = connect(SqliteFile(tmp_path / "control.db"))
    with pytest.raises(ControlRefusedError, match='near "tabel"'):
        migrate(database, [*migrations(), broken])
    migrate(database, [*migrations(), mended])
    database.close()


def test_migrations_are_numbered_without_a_gap() -> None:
    """The number of a file is its place."""
    numbers = [int(file.name.split("_")[0]) for file in migrations()]
    assert list(range(1, len(numbers) + 1)) == numbers


def test_who_reads_makes_and_migrates_nothing(tmp_path: Path) -> None:
    """An empty database stays empty, and one that is not there is not made."""
    place = Settings(workspace=str(tmp_path))
    with pytest.raises(ControlRefusedError), open_control(place, read_only=True):
        pass
    assert [] == list(tmp_path.iterdir())
    file = tmp_path / "control.db"
    sqlite3.connect(file).close()
    file.touch()
    with pytest.raises(OlderSchemaError, match="has the schema 0"), open_control(place, read_only=True):
        pass
    assert 0 == file.stat().st_size


def test_who_reads_writes_nothing(tmp_path: Path) -> None:
    """The database refuses it, whatever the code does."""
    place = Settings(workspace=str(tmp_path))
    with open_control(place) as control:
        control.requests.queue("one", "user", (), "auto", apply=False, requester=Actor("somebody", "cli"))
    with open_control(place, read_only=True) as control:
        assert "one" == control.requests.find("one").id
        with pytest.raises(ControlRefusedError, match="readonly"):
            control.requests.queue("two", "user", (), "auto", apply=False, requester=Actor("somebody", "cli"))
