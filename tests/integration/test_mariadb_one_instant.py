"""Sessions with a MariaDB that begin snapshots together: they see the same rows, whatever is written meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pymysql
import pytest

from reconcile.domain.canonical import Layout, agreed_layout
from reconcile.gather.stores.digest import DigestReading, Mode, Side
from reconcile.gather.stores.mariadb import one_instant, statements
from reconcile.gather.stores.mariadb.rows import MariaRows, MariaStore
from reconcile.gather.stores.mariadb.session import open_maria_session
from reconcile.settings.connections import StoreLimits
from tests.integration.mariadb_server import MariaServer, mariadb_server
from tests.ports import ports_of

SEEN = "select count(*), sum(x), bit_xor(crc32(concat(id, ':', x))) from numbers"
LOOP = """
begin not atomic
    declare ours int default %s;
    while true do
        start transaction;
        update numbers set x = x + 1 where id = ours + floor(rand() * 100);
        delete from numbers where id = ours;
        do sleep(0.002);
        insert into numbers values (ours, floor(rand() * 100));
        if rand() < 0.3 then rollback; else commit; end if;
        do sleep(0.002);
        update numbers set x = x + 1 where id = ours + floor(rand() * 100);
    end while;
end
"""


@pytest.fixture(scope="module")
def server() -> Iterator[MariaServer]:
    """One with a binary log; the account may see its transactions."""
    with mariadb_server(ports_of("mariadb server").postgres, "--log-bin=binlog", "--server-id=1") as started:
        started.run("grant process on *.* to audit@localhost")
        started.run("create table numbers (id int primary key, x int)")
        started.run("insert into numbers select seq, 0 from seq_0_to_399")
        yield started


@contextmanager
def root(server: MariaServer, *, logged: bool = True) -> Iterator[pymysql.Connection[Any]]:
    """Connect as who may write, also past the binary log."""
    with pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="shop") as connection:
        run(connection, f"set sql_log_bin = {int(logged)}")
        yield connection


def run(connection: pymysql.Connection[Any], statement: str) -> None:
    """Run a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


@contextmanager
def writing(server: MariaServer) -> Iterator[None]:
    """Write all the time, by four sessions of which two are not logged; the server itself repeats what they do."""

    def write(connection: pymysql.Connection[Any], first: int) -> None:
        with suppress(pymysql.Error):
            run(connection, LOOP % first)

    with (
        root(server) as first,
        root(server) as second,
        root(server, logged=False) as third,
        root(server, logged=False) as fourth,
    ):
        connections = [first, second, third, fourth]
        writers = [
            threading.Thread(target=write, args=(connection, 100 * number))
            for number, connection in enumerate(connections)
        ]
        for writer in writers:
            writer.start()
        try:
            yield
            assert all(writer.is_alive() for writer in writers)
        finally:
            for connection, writer in zip(connections, writers, strict=True):
                server.run(f"kill {connection.thread_id()}")  # type: ignore[no-untyped-call]
                writer.join(60)


def test_sessions_beside_each_other_see_the_same_rows(server: MariaServer) -> None:
    """Each time, while others write; and often there are such sessions."""
    accepted = 0
    with writing(server):
        for _ in range(40):
            with open_maria_session("shop", server.address(), StoreLimits(readers=3)) as session:
                session.take_snapshot()
                seen = {each.rows(SEEN)[0] for each in (session, *session.beside)}
                assert 1 == len(seen)
                accepted += bool(session.beside)
    assert accepted > 0


@pytest.mark.parametrize(
    ("logged", "meanwhile", "expected"),
    [
        (True, [], True),
        (True, ["update numbers set x = x + 1 where id = 2"], True),
        (True, ["commit"], False),
        (False, ["commit"], False),
        (True, ["xa end 'x'", "xa prepare 'x'", "xa commit 'x'"], False),
        (False, ["xa end 'x'", "xa prepare 'x'"], True),
        (True, ["rollback"], False),
        (False, ["commit", "begin", "update numbers set x = x + 1 where id = 2", "commit"], False),
    ],
)
def test_what_ends_between_two_snapshots_makes_them_two_instants(
    server: MariaServer, logged: bool, meanwhile: list[str], expected: bool
) -> None:
    """Logged or not; what goes on does not."""
    with (
        open_maria_session("shop", server.address()) as first,
        open_maria_session("shop", server.address()) as second,
        root(server, logged=logged) as writer,
    ):
        run(writer, "xa start 'x'" if any("xa" in each for each in meanwhile) else "begin")
        run(writer, "update numbers set x = x + 1 where id = 1")
        second.begin()
        before = one_instant.parse(second.status())
        first.begin()
        for each in meanwhile:
            run(writer, each)
        second.begin()
        after, again = one_instant.parse(second.status()), one_instant.parse(second.status())
        connections = [each.place().connection for each in (first, second)]
        assert expected == one_instant.is_one_instant(before, after, again, connections)
        if expected:
            assert first.rows(SEEN) == second.rows(SEEN)
        with suppress(pymysql.Error):
            run(writer, "xa rollback 'x'")


def test_an_account_that_may_not_see_transactions_has_one_session(
    server: MariaServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says why."""
    server.run("create user plain@localhost identified by 'x'")
    server.run("grant select on shop.* to plain@localhost")
    caplog.set_level("DEBUG")
    with open_maria_session("shop", server.address(user="plain", password="x")) as session:
        session.take_snapshot()
        assert [] == session.beside
        assert 400 == session.count("numbers", "true")
    assert ["PROCESS" in each for each in caplog.messages if "is read by one session" in each] == [True]


def test_the_server_takes_no_second_connection(server: MariaServer) -> None:
    """Then there is one session."""
    server.run("create or replace user narrow@localhost identified by 'x' with max_user_connections 1")
    server.run("grant select on shop.* to narrow@localhost")
    server.run("grant process on *.* to narrow@localhost")
    with open_maria_session("shop", server.address(user="narrow", password="x")) as session:
        session.take_snapshot()
        assert [] == session.beside
        assert 400 == session.count("numbers", "true")


def rows_of(server: MariaServer, sessions: int, side: Side) -> tuple[list[tuple[int, int, int, int]], int]:
    """Digest a side; say also how many statements that took."""
    server.run("set global log_output = 'TABLE', general_log = 1")
    with open_maria_session("shop", server.address(), StoreLimits(readers=sessions)) as session:
        session.take_snapshot()
        ids = [each.type for each in session.columns(f"select {', '.join(side.id)} from some limit 0")]
        types = Layout(tuple(ids), None, ("integer",))
        reading = DigestReading(side, types, agreed_layout(types, types), Mode.PORTABLE, 8)
        lines, _ = MariaRows(MariaStore(session), reading).digest()
    server.run("set global general_log = 0")
    found = server.run("select count(*) from mysql.general_log where argument like %s", ["%group by bucket%"])
    server.run("truncate mysql.general_log")
    return sorted(lines), found[0][0]


SOME = Side(("id",), ("x",), table="some")


@pytest.mark.parametrize(
    ("made", "side", "parts"),
    [
        ("(id int primary key, x int)", SOME, 3),
        ("(id int, x int, primary key (id, x))", SOME, 3),
        ("(id int, x int, primary key (id, x))", Side(("x", "ID"), ("x",), table="some"), 3),
        ("(id varchar(9) character set latin1 collate latin1_german2_ci primary key, x int)", SOME, 3),
        ("(id bit(20) primary key, x int)", SOME, 3),
        ("(id int(9) zerofill primary key, x int)", SOME, 3),
        ("(id date primary key, x int)", SOME, 1),
        ("(id bigint unsigned primary key, x int) partition by hash(id) partitions 3", SOME, 3),
        ("(id int, x int, key (id))", SOME, 1),
        ("(id int, x int primary key)", SOME, 1),
        ("(id int primary key, x int)", Side(("id",), ("x",), query="select * from some"), 1),
        ("(id int primary key, x int) engine = MyISAM", SOME, 1),
    ],
)
def test_a_table_of_innodb_is_hashed_by_all_sessions(server: MariaServer, made: str, side: Side, parts: int) -> None:
    """Each a range of the primary key, with the same bits in the end; what cannot be cut is hashed by one."""
    server.run("drop table if exists some")
    server.run(f"create table some {made}")
    days = "'2020-01-01' + interval seq day" if "date" in made else "seq"
    server.run(f"insert into some select {days}, seq * 7 from seq_1_to_1000")
    alone, shared = rows_of(server, 1, side), rows_of(server, 3, side)
    assert (alone[0], 1, parts) == (shared[0], alone[1], shared[1])


def test_ranges_are_of_about_one_size(server: MariaServer) -> None:
    """Also where ids are far from even."""
    server.run("create or replace table some (id varchar(40) primary key, x int)")
    server.run("insert into some select concat(if(seq < 900, 'a', 'z'), md5(seq)), seq from seq_1_to_1000")
    server.run("analyze table some")
    types = Layout(("text",), None, ("integer",))
    reading = DigestReading(SOME, types, agreed_layout(types, types), Mode.PORTABLE, 1)
    with open_maria_session("shop", server.address(), StoreLimits(readers=4)) as session:
        session.take_snapshot()
        digests = [statements.digest(reading, each) for each in MariaRows(MariaStore(session), reading)._ranges()]
        assert ["250"] * 4 == [counted for each in digests for _, counted, *_ in session.rows(each)]


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
def test_a_table_of_few_rows_is_hashed_whole(server: MariaServer, rows: int) -> None:
    """Also if there are fewer than sessions."""
    server.run("drop table if exists some")
    server.run("create table some (id int primary key, x int)")
    server.run(f"insert into some select seq, 1 from seq_1_to_5 where seq <= {rows}")
    assert rows == sum(counted for _, counted, _, _ in rows_of(server, 3, SOME)[0])
