"""Stores that Spark reads: names, tests and tables of any database, and of Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pydantic import SecretStr

from reconcile.contract.model import Outbox, StashTable
from reconcile.gather.evidence import outbox, parked, stash_table
from reconcile.gather.stores import changed_rows
from reconcile.gather.stores.digest import Side
from reconcile.gather.stores.spark_store import SparkStore, columns
from reconcile.settings.connections import JdbcUrl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STASH = StashTable(
    table="stash",
    id=("tenant", "number"),
    partition="part",
    offset="pos",
    event_id="event",
    at="At",
    resolved="done = 1",
)
OUTBOX = Outbox(table="outbox", id="aggregate", published="sent = 1", at="Written")
NOTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def derby(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkStore]:
    """A database that writes names in capitals unless they are quoted; it comes with Spark."""
    jvm: Any = spark._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path_factory.mktemp("derby") / "derby.log"))
    url = "jdbc:derby:memory:stores"
    statement = jvm.java.sql.DriverManager.getConnection(f"{url};create=true").createStatement()
    for each in (
        'create table COPY (ID int, "name" varchar(9), VERSION bigint, GONE int)',
        "insert into COPY values (1, 'a', 3, 0), (2, 'b', 1, 1), (3, null, 2, null)",
        'create table "stash" ("tenant" varchar(9), "number" varchar(9), "part" int, "pos" bigint, "event" varchar(9),'
        ' "At" timestamp, DONE int)',
        "insert into \"stash\" values ('a', '7', 1, 17, 'e-1', timestamp('2026-01-02 03:04:05'), 0),"
        " ('a', 'x', 2, 18, null, null, 1), ('b', '8', 0, 0, 'e-3', null, null)",
        'create table "outbox" ("aggregate" varchar(9), SENT int, "Written" timestamp)',
        "insert into \"outbox\" values ('a', 0, timestamp('2026-01-02 03:04:05')),"
        " ('a', null, timestamp('2026-01-03 00:00:00')), ('b', 1, null), ('c', 0, null)",
    ):
        statement.execute(each)
    yield SparkStore("derby", JdbcUrl(SecretStr(url)))
    statement.getConnection().close()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> SparkStore:
    """The same tables in Parquet."""
    folder = tmp_path_factory.mktemp("stores")
    rows = [
        {"tenant": "a", "number": "7", "part": 1, "pos": 17, "event": "e-1", "At": NOTED, "done": 0},
        {"tenant": "a", "number": "x", "part": 2, "pos": 18, "event": None, "At": None, "done": 1},
        {"tenant": "b", "number": "8", "part": 0, "pos": 0, "event": "e-3", "At": None, "done": None},
    ]
    sent: list[dict[str, Any]] = [
        {"aggregate": "a", "sent": 0, "Written": NOTED},
        {"aggregate": "a", "sent": None, "Written": NOTED.replace(day=3)},
        {"aggregate": "b", "sent": 1, "Written": None},
        {"aggregate": "c", "sent": 0, "Written": None},
    ]
    for name, told in (("stash", rows), ("outbox", sent)):
        _written(folder / name, told)
    return SparkStore("lake", str(folder))


@pytest.fixture(params=["derby", "lake"])
def store(request: pytest.FixtureRequest) -> SparkStore:
    """Each of both."""
    found: SparkStore = request.getfixturevalue(request.param)
    return found


def test_columns_have_our_names_whatever_the_database_makes_of_them(derby: SparkStore, spark: SparkSession) -> None:
    """Oracle and others write a name that is not quoted in capitals."""
    side = Side(("ID",), ('"name"',), table="COPY", version="VERSION", deleted="GONE = 1")
    frame = derby.frame(spark, side)
    assert columns(side).columns() == tuple(frame.columns)
    assert [(1, 3, "a"), (3, 2, None)] == sorted(tuple(row) for row in frame.collect())


def test_a_table_of_problems_is_read_in_any_store(store: SparkStore, spark: SparkSession) -> None:
    """Its ids are written as the source's are; one that is done with says so."""
    found = stash_table.read_by_spark(spark, store, STASH, ("text", "bigint"))
    assert parked.SCHEMA == ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in found.schema)
    done = "its table says that it is resolved"
    assert [
        ('["a","x"]', 2, 18, None, False, done),
        ('["a",7]', 1, 17, "e-1", True, None),
        ('["b",8]', 0, 0, "e-3", False, None),
    ] == sorted(
        (row["id"], row["origin_partition"], row["origin_offset"], row["event_id"], row["noted"], row["resolved"])
        for row in found.selectExpr("*", "at <=> timestamp'2026-01-02 03:04:05' as noted").collect()
    )


def test_an_outbox_is_read_in_any_store(store: SparkStore, spark: SparkSession) -> None:
    """What is not known to be published waits."""
    found = outbox.pending_by_spark(spark, store, OUTBOX)
    columns = ["id string", "pending int", "pending_since timestamp"]
    assert columns == [f"{each.name} {each.dataType.simpleString()}" for each in found.schema]
    assert [("a", 2), ("c", 1)] == sorted((row["id"], row["pending"]) for row in found.collect())


def test_what_waits_of_some_ids_is_read_in_any_store(store: SparkStore, spark: SparkSession) -> None:
    """With the time of the oldest, where the outbox has times."""
    found = outbox.waiting_by_spark(spark, store, OUTBOX, ["a", "b", "c"], NOTED)
    assert {"a": (2, NOTED), "c": (1, None)} == {name: (each.count, each.since) for name, each in found.items()}


def _written(folder: Path, rows: list[dict[str, Any]]) -> None:
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "part-0.parquet")


@pytest.mark.parametrize(("day", "expected"), [(1, ["a", "a"]), (3, ["a"]), (4, [])])
def test_changed_rows_are_read_in_any_store(
    store: SparkStore, spark: SparkSession, day: int, expected: list[str]
) -> None:
    """By the time of a row's last change, those that count as deleted included; one without a time is not found."""
    side = Side(("aggregate",), (), table="outbox", deleted="1 = 1")
    found = changed_rows.by_spark(spark, store, side, "Written", datetime(2026, 1, day, tzinfo=UTC))
    assert expected == [row["reconcile_id"] for row in found.collect()]
