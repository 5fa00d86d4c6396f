"""Sessions with a MariaDB: one instant of it, nothing written, and each error by its name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import SecretStr

from reconcile.draft.stores import open_store
from reconcile.errors import ReconcileError
from reconcile.gather.stores.errors import (
    NoTableError,
    SnapshotLostError,
    StatementTimeoutError,
    StoreRefusedError,
    StoreUnreachableError,
)
from reconcile.gather.stores.mariadb.session import MariaSession, open_maria_session
from reconcile.settings.connections import Store, StoreLimits
from reconcile.settings.references import Given
from tests.integration.mariadb_server import MariaServer, mariadb_server
from tests.ports import ports_of

PORT = ports_of("mariadb server").postgres


@pytest.fixture(scope="module")
def server() -> Iterator[MariaServer]:
    """One with a table of five rows, and one that the account may not read."""
    with mariadb_server(PORT, "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "--default-time-zone=+05:00") as started:
        started.run("create table numbers (id int primary key, at timestamp default '2026-01-01 00:00:00')")
        started.run("insert into numbers (id) values (1), (2), (3), (4), (5)")
        started.run("create database closed", database=None)
        started.run("create table closed.numbers (id int)")
        yield started


@pytest.fixture
def session(server: MariaServer) -> Iterator[MariaSession]:
    """One as the audit opens it."""
    with open_maria_session("shop", server.address(), StoreLimits(statement_timeout=timedelta(seconds=1))) as opened:
        yield opened


def test_a_snapshot_is_one_instant(server: MariaServer, session: MariaSession) -> None:
    """What others write afterwards is not seen, also between its statements."""
    snapshot = session.take_snapshot()
    server.run("delete from numbers where id = 5")
    try:
        assert 5 == session.count("numbers", "true")
    finally:
        server.run("insert into numbers (id) values (5)")
    assert not snapshot.replica
    session.end_snapshot()


def test_what_is_read_does_not_depend_on_the_server(session: MariaSession) -> None:
    """Neither its time zone nor its quotes."""
    session.take_snapshot()
    assert [("2026-01-01 00:00:00", 'a"\n', "x")] == session.rows('select at, "a\\"\\n", \'x\' from numbers limit 1')
    assert [("it's\\",)] == session.rows("select " + session.quoted("it's\\"))


def test_nothing_can_be_written(session: MariaSession) -> None:
    """Not even by an account that may."""
    session.take_snapshot()
    with pytest.raises(StoreRefusedError):
        session.rows("insert into numbers (id) values (6)")
    session.require_alive()


@pytest.mark.parametrize(
    ("parts", "error", "said"),
    [
        ({"password": "wrong"}, StoreRefusedError, "Check user, password and database"),
        ({"user": "nobody"}, StoreRefusedError, "Check user, password and database"),
        ({"database": "missing"}, StoreRefusedError, "Check user, password and database"),
        ({"port": 1}, StoreUnreachableError, "cannot be reached"),
    ],
)
def test_a_connection_that_is_not_made_says_why(
    server: MariaServer, parts: dict[str, str], error: type[ReconcileError], said: str
) -> None:
    """Without the password."""
    place = replace(server, port=int(parts.pop("port", server.port)))
    with pytest.raises(error, match=said) as raised, open_maria_session("shop", place.address(**parts)):
        pass
    assert "nobody may see" not in str(raised.value)


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("select * from closed.numbers", StoreRefusedError, "grant select"),
        ("select count(*) from numbers a, numbers b where sleep(0.2) = 0", StatementTimeoutError, "took too long"),
        ("select exp(id * 1000) from numbers", StoreRefusedError, "error 1690"),
        ("select missing from numbers", StoreRefusedError, "Unknown column 'missing'"),
    ],
)
def test_a_statement_that_fails_says_why(
    session: MariaSession, statement: str, error: type[ReconcileError], said: str
) -> None:
    """And the session goes on."""
    session.take_snapshot()
    with pytest.raises(error, match=said):
        session.rows(statement)
    session.require_alive()


def test_a_snapshot_that_is_lost_is_named(server: MariaServer, session: MariaSession) -> None:
    """The connection is gone, and what was read is no longer one instant."""
    number = session.take_snapshot().id.removeprefix("connection ")
    server.run(f"kill {number}")
    with pytest.raises(SnapshotLostError, match="start the run again"):
        session.rows("select count(*) from numbers")
    with pytest.raises(SnapshotLostError):
        session.require_alive()


def test_a_table_that_is_altered_ends_the_snapshot(server: MariaServer, session: MariaSession) -> None:
    """Its rows of then cannot be read any more."""
    server.run("create or replace table altered (id int)")
    session.take_snapshot()
    server.run("alter table altered add column x int, algorithm = copy")
    with pytest.raises(SnapshotLostError, match="was altered"):
        session.count("altered", "true")


def test_readers_wait_for_each_other(session: MariaSession) -> None:
    """There is one connection."""
    session.take_snapshot()
    batches = session.batches("select id from numbers order by id", size=2)
    assert [("1",), ("2",)] == next(batches)
    found: list[int] = []
    other = threading.Thread(target=lambda: found.append(session.count("numbers", "true")))
    other.start()
    assert [[("3",), ("4",)], [("5",)]] == list(batches)
    other.join(60)
    assert [5] == found


def test_a_server_that_stops_is_told_of() -> None:
    """By the name of the store, whether a snapshot was lost or not."""
    with (
        mariadb_server(PORT + 1) as stopping,
        open_maria_session("shop", stopping.address()) as lost,
        open_maria_session("shop", stopping.address()) as idle,
    ):
        lost.take_snapshot()
        stopping.stop()
        with pytest.raises(SnapshotLostError):
            lost.require_alive()
        with pytest.raises(StoreUnreachableError):
            idle.rows("select 1")


def test_a_message_is_one_statement(session: MariaSession) -> None:
    """The client does not say that it takes several, so the server refuses them."""
    session.take_snapshot()
    with pytest.raises(StoreRefusedError, match="syntax"):
        session.rows("select 1; create table escaped (id int)")


def test_samples_for_a_draft_are_read(server: MariaServer) -> None:
    """With what is unique, rows of both ends of the key, those of some ids, and no bytes; wrong ids find nothing."""
    server.run(
        "create table sampled (`order` int, code varchar(20), price decimal(10,2), sold boolean, picture blob,"
        " at datetime(6), primary key (`order`, code), unique (price))"
    )
    server.many(
        "insert into sampled values (%s, %s, %s, %s, %s, %s)",
        [(number, f"it's {number}", f"{number}.50", number % 2, b"x", "2026-01-01 10:00:00") for number in range(300)],
    )
    with open_store("shop", Store(url=Given(SecretStr(server.url())))) as store:
        table = store.table("sampled")
        assert (("order", "code"), ("price",)) == table.keys
        assert [("order", "integer", "`order`"), ("code", "character varying(20)", "`code`")] == [
            (each.name, each.type, each.sql) for each in table.columns[:2]
        ]
        ends = store.ends(table)
        assert [*map(str, range(100)), *map(str, range(200, 300))] == sorted(
            (str(row["order"]) for row in ends), key=int
        )
        row = {"order": "7", "code": "it's 7", "price": "7.50", "sold": "1", "at": "2026-01-01 10:00:00.000000"}
        assert [row] == store.among(table, ["order", "code"], [("7", "it's 7"), ("8", "other"), ("no", "x")])
        with pytest.raises(NoTableError, match='no table "sampld" in shop; did you mean "sampled"'):
            store.table("sampld")
