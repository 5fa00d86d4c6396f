"""Rows by COPY, without Spark: the same rows and the same artifact as Spark's own reading gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from reconcile.domain.canonical import Layout, agreed_layout
from reconcile.gather.stores import copying, postgres_store
from reconcile.gather.stores.digest import DigestReading, Mode, Side
from reconcile.gather.stores.errors import StatementTimeoutError
from reconcile.gather.stores.postgres_store import PostgresParts, PostgresStore
from reconcile.gather.stores.session import StoreSession, open_session
from reconcile.lab.folder import Lab
from reconcile.settings.connections import StoreLimits
from reconcile.settings.urls import parse
from reconcile.workspace.manifest import Inputs
from reconcile.workspace.workspace import Workspace
from tests.integration.worlds import postgres_alone
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from reconcile.workspace.run import Run

INPUTS = Inputs(contract="c" * 64)
TEXTS = (
    *("", " ", '"', '""', 'a"b', "\\", "\\\\", "\\N", "\\.", "\n", "\r\n", "\r", "\t", "a\nb", "a\\nb", "NULL", "null"),
    *("\x1f", "a\x1fb", "\x01\x02\x7f", "\ufeff", "\ufeffa", ",", ";", "\u2028", "Zo\u00eb", "Zoe\u0308", "\U0001f600"),
    *('"\n"\n', '\n"', "trailing  ", "x" * 31, "x" * 32, "x" * 33, "y" * 5000, "é" * 47),
)
KINDS = {
    "boolean": "true",
    "integer": "-2147483648",
    "bigint": "'9223372036854775807'",
    "numeric": "'-12.3400'",
    "double precision": "'-0.0'",
    "real": "'0.1'",
    "character varying(9)": "'a\"b'",
    "uuid": "'3F2504E0-4f89-11d3-9A0C-0305E82C3301'",
    "timestamp with time zone": "'0044-03-15 12:00:00.5 BC'",
    "timestamp without time zone": "'infinity'",
    "date": "'12000-01-01'",
    "time without time zone": "'24:00:00'",
    "bytea": "'\\x000aff'",
    "jsonb": """'{"a": ["\\n", "\\"", null, 1.0]}'""",
    "json": """' {"b" : 1e3} '""",
    "numeric[]": "'{1.50,NULL,NaN}'",
    "text[]": """'{"a\\"b",NULL,"","\\\\"}'""",
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A server of this module's own, with strange texts and all kinds of values."""
    with postgres_alone(ports_of("copying")) as lab:
        with closing(psycopg2.connect(lab.url("postgres", "postgres"))) as database, database.cursor() as cursor:
            cursor.execute("create table texts (id text, note text, version bigint)")
            pairs = [(text, other, None) for text in (*TEXTS, None) for other in ("", "\n", None, text)]
            cursor.executemany("insert into texts values (%s, %s, %s)", pairs)
            columns = ", ".join(f"c{number} {kind} default {KINDS[kind]}" for number, kind in enumerate(KINDS))
            cursor.execute(f"create table kinds (id int, {columns})")
            names = ", ".join(f"c{number}" for number in range(len(KINDS)))
            cursor.execute("insert into kinds select n from generate_series(1, 3000) n")
            cursor.execute(f"insert into kinds (id, {names}) values (0{', null' * len(KINDS)})")
            database.commit()
        yield lab


@pytest.fixture
def opened(lab: Lab) -> Iterator[Any]:
    """Open parts of a side, at the instant of a snapshot."""
    url = parse(lab.url("postgres", "postgres"))
    with ExitStack() as stack:

        def parts(side: Side, types: Layout[str], limits: StoreLimits | None = None) -> PostgresParts:
            limits = limits or StoreLimits()
            session = stack.enter_context(open_session("user-db", url, limits))
            store = PostgresStore("user-db", url, session.take_snapshot().id, limits)
            return PostgresParts(store, session, DigestReading(side, types, agreed_layout(types, types), Mode.FULL))

        yield parts


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run on local files."""
    return Workspace(str(tmp_path / "runs")).run("r")


TEXT_SIDE = Side(("id",), ("note", "id"), table="texts", version="version"), Layout(("text",), "bigint", ("text",) * 2)
KIND_SIDE = (
    Side(("id",), tuple(f"c{number}" for number in range(len(KINDS))), table="kinds"),
    Layout(("integer",), None, tuple(KINDS)),
)


@pytest.mark.parametrize("side", [TEXT_SIDE, KIND_SIDE])
def test_what_is_published_is_what_spark_would_publish(
    opened: Any, run: Run, spark: SparkSession, side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, digest and columns, of all that Postgres can hold."""
    monkeypatch.setattr(postgres_store, "_PART_BLOCKS", 1)
    parts = opened(*side)
    frame = parts.store.frame(spark, parts.statements(4))
    by_spark = run.publish_parquet("source.spark", frame, INPUTS, stage="gather")
    copied = run.publish_texts("source.copied", parts.columns, parts.readers(2), INPUTS, stage="gather")
    assert (by_spark.rows, by_spark.digest) == (copied.rows, copied.digest)
    fields = [[(each["name"], each["type"]) for each in made.columns["fields"]] for made in (by_spark, copied)]  # type: ignore[index, call-overload, union-attr]
    assert fields[0] == fields[1]
    shown = [sorted(map(repr, run.parquet(name, spark).collect())) for name in ("source.spark", "source.copied")]
    assert shown[0] == shown[1]


def test_null_is_neither_the_empty_text_nor_what_looks_like_it(opened: Any) -> None:
    """Each text comes back as it is in the database."""
    parts = opened(*TEXT_SIDE)
    assert sorted(map(repr, parts.session.rows("select id, note from texts"))) == sorted(
        repr((row["reconcile_id"], row["field_0"])) for row in read(parts)
    )


def test_a_row_may_be_larger_than_a_block(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks end where rows do, whatever line breaks and quotes stand in values."""
    monkeypatch.setattr(copying, "_BLOCK", 64)
    parts = opened(*TEXT_SIDE)
    assert len(read(parts)) == parts.session.count(*relation("texts"))


def test_no_rows_are_a_table_without_files(opened: Any, run: Run, spark: SparkSession) -> None:
    """It is read as one of the same columns."""
    parts = opened(
        Side(("id",), ("note",), query="select * from texts where false"), Layout(("text",), None, ("text",))
    )
    made = run.publish_texts("source.none", parts.columns, parts.readers(2), INPUTS, stage="gather")
    assert (0, {}) == (made.rows, made.files)
    assert list(parts.columns) == run.parquet("source.none", spark).columns


def test_parts_are_read_by_as_many_as_may(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be more parts than readers, so that each statement is short."""
    monkeypatch.setattr(postgres_store, "_PART_BLOCKS", 1)
    parts = opened(*KIND_SIDE, StoreLimits(readers=2))
    assert 2 < len(parts.statements())
    assert 2 == len(parts.readers(8))
    assert 3001 == len(read(parts))
    taken = parts.session.usage.taken()
    assert taken.readers <= 2
    assert taken.rows >= 3001
    assert taken.bytes > 3001 * 100


def test_a_part_that_takes_too_long_publishes_nothing(opened: Any, run: Run) -> None:
    """The error has the setting's name."""
    slow = Side(("id",), ("pg_sleep(1)::text",), table="kinds")
    parts = opened(slow, Layout(("integer",), None, ("text",)), StoreLimits(statement_timeout=timedelta(seconds=1.2)))
    with pytest.raises(StatementTimeoutError, match="raise `statement_timeout` of its connection"):
        run.publish_texts("source.slow", parts.columns, parts.readers(2), INPUTS, stage="gather")
    assert run.find("source.slow") is None


def test_what_fails_while_rows_come_is_not_hidden(opened: Any) -> None:
    """Such as a disk that is full."""

    def full(_table: pa.Table) -> None:
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        opened(*KIND_SIDE).readers(1)[0](full)


def test_who_is_interrupted_publishes_nothing(opened: Any, run: Run) -> None:
    """All readers end, those too that have not begun."""
    parts = opened(*KIND_SIDE)
    parts.stop(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run.publish_texts("source.cut", parts.columns, parts.readers(2), INPUTS, stage="gather")
    assert run.find("source.cut") is None


def read(parts: PostgresParts) -> list[dict[str, str | None]]:
    """Read all rows by readers one after the other."""
    tables: list[pa.Table] = []
    for reader in parts.readers(2):
        reader(tables.append)
    return [row for table in tables for row in table.to_pylist()]


def relation(table: str) -> tuple[Any, Any]:
    """Name a table, and all of its rows."""
    from psycopg2 import sql

    return sql.Identifier(table), sql.SQL("true")


def test_readers_see_the_instant_of_the_snapshot(opened: Any, lab: Lab) -> None:
    """What changes before they begin is not seen."""
    parts = opened(*TEXT_SIDE)
    assert isinstance(parts.session, StoreSession)
    expected = parts.session.count(*relation("texts"))
    with closing(psycopg2.connect(lab.url("postgres", "postgres"))) as database, database.cursor() as cursor:
        cursor.execute("insert into texts values ('later', null, 1)")
        database.commit()
        assert expected == len(read(parts))
        cursor.execute("delete from texts where id = 'later'")
        database.commit()
