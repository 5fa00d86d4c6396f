"""Reading by ids and by `updated_at`: what a table's indexes find is not looked for in all of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg2 import sql

from reconcile.domain.canonical import CanonicalType, Kind, Layout
from reconcile.gather.stores import changed_rows, digest
from reconcile.gather.stores.digest import DigestReading, Side
from reconcile.lab.services.database import connect
from tests.integration.worlds import postgres_alone
from tests.ports import ports_of

WANTED = ["00000000-0000-0000-0000-000000000007", "00000000-0000-0000-0000-000000000042"]
TABLES = """
    create table by_uuid (id uuid primary key, name text, changed_at timestamptz);
    insert into by_uuid select lpad(n::text, 32, '0')::uuid, 'n', now() - n * interval '1 minute'
      from generate_series(1, 20000) n;
    create index on by_uuid (changed_at);
    create table by_text (id varchar(36) primary key, name text);
    insert into by_text select id::text, name from by_uuid;
    create table by_number (id integer primary key, name text);
    insert into by_number select n, 'n' from generate_series(1, 20000) n;
    create table by_pair (tenant text, number integer, name text, primary key (tenant, number));
    insert into by_pair select 't' || n % 7, n, 'n' from generate_series(1, 20000) n;
    analyze;
"""


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """A session with a Postgres that has tables with many rows."""
    with postgres_alone(ports_of("changed rows")) as lab, closing(connect(lab.url("postgres"))) as session:
        session.autocommit = True
        with session.cursor() as cursor:
            cursor.execute(TABLES)
        yield session


def rows(session: Any, statement: str | sql.Composable) -> list[tuple[Any, ...]]:
    """Query."""
    with session.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def test_an_id_of_several_columns_is_read_by_the_primary_key(session: Any) -> None:
    """What is no id of theirs finds nothing."""
    form = Layout((CanonicalType(Kind.TEXT), CanonicalType(Kind.INTEGER)), None, (CanonicalType(Kind.TEXT),))
    pair = DigestReading(
        Side(("tenant", "number"), ("name",), "by_pair"), Layout(("text", "integer"), None, ("text",)), form
    )
    none = ['["t0",8]', '["t1", 8]', '["t1","8"]', '["t1",8.0]', '["t1"]', "t1", "[", '["t1",99999999999999999999]']
    statement = digest.rows(pair, ids=['["t0",7]', '["t1",8]', *none])
    plan = "\n".join(line for (line,) in rows(session, sql.SQL("explain {}").format(statement)))
    assert ['["t0",7]', '["t1",8]'] == sorted(row[0] for row in rows(session, statement))
    assert "Seq Scan" not in plan


def reading(table: str, own: str, form: Kind) -> DigestReading:
    """Build how a table's names are read by their ids."""
    form_of = Layout((CanonicalType(form),), None, (CanonicalType(Kind.TEXT),))
    return DigestReading(Side(("id",), ("name",), table), Layout((own,), None, ("text",)), form_of)


@pytest.mark.parametrize(
    ("table", "own", "form", "wanted"),
    [
        ("by_uuid", "uuid", Kind.UUID, WANTED),
        ("by_uuid", "uuid", Kind.TEXT, WANTED),
        ("by_text", "character varying", Kind.TEXT, WANTED),
        ("by_number", "integer", Kind.INTEGER, ["7", "42"]),
        ("by_number", "integer", Kind.TEXT, ["7", "42"]),
    ],
)
def test_ids_are_read_by_the_primary_key(session: Any, table: str, own: str, form: Kind, wanted: list[str]) -> None:
    """Also where the other side keeps its ids as another type, and no row is read but those that are wanted."""
    statement = digest.rows(reading(table, own, form), ids=wanted)
    plan = "\n".join(line for (line,) in rows(session, sql.SQL("explain {}").format(statement)))
    assert wanted == sorted((row[0] for row in rows(session, statement)), key=wanted.index)
    assert "Seq Scan" not in plan


def test_changed_rows_are_found_by_their_index(session: Any) -> None:
    """Also where a row counts as deleted: it is what a copy may still have."""
    gone = reading("by_uuid", "uuid", Kind.UUID)
    gone = replace(gone, side=replace(gone.side, deleted="id = '00000000-0000-0000-0000-000000000001'"))
    statement = changed_rows.statement(gone, "changed_at", datetime.now(UTC) - timedelta(minutes=2, seconds=30))
    plan = "\n".join(line for (line,) in rows(session, sql.SQL("explain {}").format(statement)))
    assert ["1", "2"] == sorted(row[0].lstrip("0-") for row in rows(session, statement))
    assert "Seq Scan" not in plan


@pytest.mark.parametrize("type_", ["timestamptz", "timestamp", "date"])
def test_times_of_any_type_are_compared(session: Any, type_: str) -> None:
    """Without a zone they are UTC, as everywhere."""
    session.cursor().execute("set timezone = 'UTC'")
    times = f"select n as id, '2026-01-0{{}}'::{type_} as changed_at from generate_series(1, 1) n"
    query = f"{times.format(1)} union all {times.format(2).replace('n as id', 'n + 1 as id')}"
    one = reading("", "integer", Kind.INTEGER)
    one = replace(one, side=replace(one.side, table=None, query=query))
    statement = changed_rows.statement(one, "changed_at", datetime(2026, 1, 2, tzinfo=UTC))
    assert ["2"] == [row[0] for row in rows(session, statement)]
