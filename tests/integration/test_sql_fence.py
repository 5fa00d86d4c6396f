"""A contract's SQL against a real Postgres: it can neither end our statement nor add one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from io import BufferedWriter, BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from psycopg2 import sql
from pydantic import SecretStr

from reconcile.domain import sql_calls
from reconcile.errors import RefusedError
from reconcile.gather.stores.contract_sql import require_whole
from reconcile.gather.stores.digest import Side
from reconcile.gather.stores.errors import StoreRefusedError
from reconcile.gather.stores.session import StoreSession, open_session
from reconcile.gather.stores.spark_store import SparkStore
from reconcile.lab.folder import Lab
from reconcile.settings.connections import JdbcUrl
from reconcile.settings.urls import parse
from reconcile.spark import internals, parsed_sql
from tests.integration.worlds import postgres_alone
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ESCAPE = "commit; create table escaped (id int); select (1"
HIDDEN = [
    f"E''\n'\\' ' ); {ESCAPE} --'",
    f"$€$ ' $€$); {ESCAPE} --'",
    f"$٣$ ' $٣$); {ESCAPE} --'",
    f"$\U0001f600a$ ' $\U0001f600a$); {ESCAPE} --'",
    f"(select 1 as €$x$); {ESCAPE.replace('(1', '((1)')} --$x$)",
]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A server of this module's own."""
    with postgres_alone(ports_of("sql fence")) as lab:
        yield lab


@pytest.fixture
def session(lab: Lab) -> Iterator[StoreSession]:
    """A session as a run has it, with its snapshot."""
    with open_session("user-db", parse(lab.url("postgres", "postgres"))) as opened:
        opened.take_snapshot()
        yield opened


def tables(lab: Lab) -> list[str]:
    """List what lies in the server's public schema."""
    with closing(psycopg2.connect(lab.url("postgres", "postgres"))) as database, database.cursor() as cursor:
        cursor.execute("select tablename from pg_tables where schemaname = 'public'")
        return [name for (name,) in cursor.fetchall()]


@pytest.mark.parametrize("text", HIDDEN)
def test_no_name_hides_the_end_of_a_statement(session: StoreSession, lab: Lab, text: str) -> None:
    """To Postgres every byte above 0x7f is a letter, in a name as in the tag of a quotation."""
    with pytest.raises(RefusedError):
        session.rows(sql.SQL("select {}").format(require_whole(text)))
    assert [] == tables(lab)


WRAPPED = ["prepare read as select 1", "declare read cursor for select 1", "copy (select 1) to stdout", "select 1"]


@pytest.mark.parametrize("ours", WRAPPED)
def test_the_simple_protocol_takes_several_statements_behind_any_of_ours(lab: Lab, ours: str) -> None:
    """So neither PREPARE nor a server's cursor nor COPY is a fence where psycopg2 sends them."""
    with closing(psycopg2.connect(lab.url("postgres", "postgres"))) as database, database.cursor() as cursor:
        database.set_session(isolation_level="REPEATABLE READ", readonly=True)
        text = f"{ours}; {ESCAPE})"
        if ours.startswith("copy"):
            cursor.copy_expert(text, StringIO())
        else:
            cursor.execute(text)
        database.commit()
        assert ["escaped"] == tables(lab)
        database.set_session(readonly=False)
        cursor.execute("drop table escaped")
        database.commit()


def test_a_session_runs_one_statement_at_a_time(session: StoreSession, lab: Lab) -> None:
    """Whatever the tokenizer lets through: the server itself parses each text, and takes one."""
    statement = sql.SQL(f"select 1; {ESCAPE})")
    for run in (
        lambda: session.rows(statement),
        lambda: list(session.batches(statement)),
        lambda: session.described(statement),
        lambda: session.copy(f"copy (select 1) to stdout; {ESCAPE})", BufferedWriter(BytesIO())),
        lambda: session.whole_text(statement),
        lambda: session.estimate(sql.SQL(f"(select 1) as x; {ESCAPE})")),
    ):
        with pytest.raises(RefusedError, match="several statements"):
            run()
    assert [] == tables(lab)
    assert [(1,)] == session.rows("select 1"), "the snapshot stands"


def test_what_a_function_says_of_a_row_is_not_told(session: StoreSession, lab: Lab) -> None:
    """Whatever SQLSTATE it gives to it."""
    raising = "begin raise exception using errcode = 'UA001', message = 'zoe'; end"
    with closing(psycopg2.connect(lab.url("postgres", "postgres"))) as database, database.cursor() as cursor:
        cursor.execute(f"create function told() returns int language plpgsql as $${raising}$$")
        database.commit()
    try:
        session.end_snapshot()
        session.take_snapshot()
        with pytest.raises(StoreRefusedError, match="SQLSTATE UA001") as raised:
            session.rows("select told()")
        assert "zoe" not in str(raised.value)
    finally:
        session.end_snapshot()
        with closing(psycopg2.connect(lab.url("postgres", "postgres"))) as database, database.cursor() as cursor:
            cursor.execute("drop function told()")
            database.commit()


def test_threads_share_a_session(session: StoreSession) -> None:
    """A statement is parsed and run before another is."""
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: session.rows("select %s::int", (number,)), range(200)))
    assert [[(number,)] for number in range(200)] == found


CALL = "reflect('java.lang.System', 'setProperty', 'reconcile.escaped', 'yes')"


@pytest.fixture
def folder(tmp_path: Path) -> SparkStore:
    """A folder of Parquet."""
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({"id": ["a"], "x": ["b"]}), tmp_path / "rows" / "part-0.parquet")
    return SparkStore("lake", str(tmp_path))


@pytest.mark.parametrize(
    "side",
    [
        Side(("id",), (CALL,), table="rows"),
        Side(("id",), ("x",), table="rows", deleted=f"{CALL} is null"),
        Side(("id",), ("x",), query=f"select 'a' as id, {CALL} as x"),
        Side(("id",), ("x",), query=f"with a as (select {CALL} as x) select 'a' as id, x from a"),
        Side(("id",), ("x",), query="select transform('a', 'b') using 'cat' as (id, x)"),
        Side(("id",), ("x",), query="create view escaped as select 1"),
        Side(("id",), ("x",), query="set reconcile.escaped = yes"),
    ],
)
def test_what_spark_runs_for_a_folder_calls_nothing_of_java(
    spark: SparkSession, folder: SparkStore, side: Side
) -> None:
    """No method, no script, no command: each of them ran with the rights of the driver."""
    with pytest.raises(RefusedError):
        folder.frame(spark, side).collect()
    assert internals.java(spark).java.lang.System.getProperty("reconcile.escaped") is None
    assert spark.conf.get("reconcile.escaped", "") == ""


@pytest.mark.parametrize(
    ("text", "query"),
    [
        (CALL, False),
        (f"upper({CALL})", False),
        (f"transform(array(1), each -> {CALL})", False),
        (f"exists(array(1), each -> {CALL} = 'a')", False),
        (f"(select {CALL})", False),
        (f"select 1 where exists (select {CALL})", True),
        (f"select sum(1) over (partition by {CALL})", True),
        (f"select * from values ({CALL})", True),
        ("select transform(1) using 'cat' as (x)", True),
        ("select * from range(3)", True),
    ],
)
def test_sparks_own_parser_finds_what_is_called(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str, query: bool
) -> None:
    """Also where our own reading would be deceived."""
    monkeypatch.setattr("reconcile.domain.sql_calls.require_calls", lambda *_, **__: None)
    with pytest.raises(RefusedError):
        parsed_sql.require_calls(spark, text, folder="/nowhere" if query else None)


@pytest.mark.parametrize(
    "asked",
    [
        "select value as id from {0}",
        "with a as (select value as id from {0}) select id from a",
        "select (select max(value) from {0}) as id",
        "select 'a' as id where exists (select 1 from {0})",
        "from {0} |> select value as id",
    ],
)
@pytest.mark.parametrize(
    "place",
    ["{0}/../elsewhere", "file:{0}/rows/../../elsewhere", "{0}/.\\./elsewhere", "{0}-other", "/proc/self/environ"],
)
def test_a_query_over_a_folder_asks_for_nothing_elsewhere(
    spark: SparkSession, folder: SparkStore, asked: str, place: str
) -> None:
    """Spark's account can read our keys, and the passwords in the environment."""
    named = f"text.`{place.format(folder.place)}`"
    with pytest.raises(RefusedError, match="is not in the folder"):
        folder.frame(spark, Side(("id",), ("id",), query=asked.format(named)))


def test_a_query_over_a_folder_asks_for_what_is_in_it(spark: SparkSession, folder: SparkStore) -> None:
    """With or without a scheme, and by names that it makes itself."""
    rows = [f"parquet.`{scheme}{folder.place}/rows`" for scheme in ("", "file:", "file://")]
    query = f"with a as (select * from {rows[0]} union select * from {rows[1]}) select a.* from a, {rows[2]} b"
    assert 1 == folder.frame(spark, Side(("id",), ("x",), query=query)).count()


def test_all_that_may_be_called_is_spark_s_own(spark: SparkSession) -> None:
    """A name that Spark does not have could be anybody's function."""
    known = {row[0] for row in spark.sql("show system functions").collect()}
    # The parser knows these, and no function has their names.
    syntax = {"try_cast", "timestampadd", "timestampdiff"}
    assert sql_calls.SPARK.functions - known - syntax == set()


def test_what_a_driver_hands_on_calls_nothing_unknown(spark: SparkSession, tmp_path: Path) -> None:
    """Derby comes with Spark, and can write files."""
    store = SparkStore("derby", JdbcUrl(SecretStr("jdbc:derby:memory:fence;create=true")))
    file = tmp_path / "escaped"
    call = f"syscs_util.syscs_export_table(null, 'T', '{file}', null, null, null)"
    for side in (
        Side(("ID",), (call,), table="T"),
        Side(("ID",), ("X",), table="T", deleted=f"1) then 1 else 0 end = 0; call {call}; select (case when (1"),
        Side(("ID",), ("X",), query=f"select 1 from T) x; call {call} --"),
        # A MariaDB reads two quotation marks behind a backslash as the end of a text.
        Side(('ID\\", load_file("/etc/passwd") as i0, "',), ("X",), table="T"),
        Side(("ID",), ("X",), table="T", version='V\\"'),
    ):
        with pytest.raises(RefusedError, match="in the contract's SQL"):
            store.frame(spark, side)
    assert not file.exists()
