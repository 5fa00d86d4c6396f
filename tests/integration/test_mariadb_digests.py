"""A MariaDB's canonical texts and digests: the same bits as a Postgres gives, and others for other values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg2.extras import execute_values

from reconcile.domain.canonical import Layout, agreed_layout
from reconcile.errors import RefusedError
from reconcile.gather.stores import buckets, digest
from reconcile.gather.stores.buckets import Differing
from reconcile.gather.stores.digest import DigestReading, Mode, Side
from reconcile.gather.stores.errors import StoreRefusedError
from reconcile.gather.stores.link_rows import PostgresRows
from reconcile.gather.stores.mariadb import statements
from reconcile.gather.stores.mariadb.rows import MariaRows, MariaStore
from reconcile.gather.stores.mariadb.session import open_maria_session
from reconcile.gather.stores.postgres_store import PostgresStore
from reconcile.gather.stores.session import open_session
from reconcile.lab.folder import Lab
from reconcile.settings.connections import StoreLimits
from reconcile.settings.urls import parse
from tests.integration.mariadb_server import MariaServer, mariadb_server
from tests.integration.worlds import postgres_alone
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORTS = ports_of("mariadb")
BUCKETS = 1 << 20
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12) | st.sampled_from(
    [
        "",
        " ",
        "Zo\u00eb",
        "Zoe\u0308",
        "trailing  ",
        "12:ab",
        "~",
        ";",
        "'\\\"`",
        "\x01\x1f\x7f\n",
        "\U0001f600",
        "A",
        "a",
    ]
)
LATIN = st.text("abAB \u00e4\u20ac\u00df'\\", max_size=12)
DECIMALS = st.decimals(-(10**30), 10**30, places=20) | st.sampled_from([Decimal("0.00"), Decimal("-0.1"), Decimal(100)])
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 0.1, 1e300, 5e-324, -1e-9])
SINGLES = st.floats(-float(1 << 99), float(1 << 99), width=32, allow_subnormal=False)
MOMENTS = st.datetimes(dt.datetime(1000, 1, 1))  # noqa: DTZ001
UUIDS = st.uuids(version=4)
# The type in a MariaDB, the one in a Postgres, and the values.
TYPES: dict[str, tuple[str, str, st.SearchStrategy[Any]]] = {
    "flag": ("tinyint(1)", "boolean", st.booleans()),
    "small": ("smallint(7) unsigned zerofill", "integer", st.integers(0, 65535)),
    "whole": ("bigint", "bigint", st.integers(-(1 << 63), (1 << 63) - 1)),
    "huge": ("bigint unsigned", "numeric", st.integers(0, (1 << 64) - 1)),
    "bits": ("bit(64)", "numeric", st.integers(0, (1 << 64) - 1)),
    "one_bit": ("bit(1)", "boolean", st.booleans()),
    "years": ("year", "smallint", st.integers(1901, 2155)),
    "amount": ("decimal(65,30)", "numeric", DECIMALS),
    "money": ("decimal(12,2) zerofill", "numeric(12,4)", st.decimals(0, 10**7, places=2)),
    "count_of": ("decimal(20,0)", "bigint", st.integers(-(10**18), 10**18)),
    "ratio": ("double", "double precision", FLOATS),
    "single": ("float", "real", SINGLES),
    "as_float": ("decimal(20,5)", "double precision", st.decimals(-(10**9), 10**9, places=5)),
    "words": ("varchar(100)", "text", TEXT),
    "latin": ("varchar(40) character set latin1", "text", LATIN),
    "label": ("char(20)", "char(20)", TEXT),
    "kind": ("enum('a', 'B', '\u00fc')", "text", st.sampled_from(["a", "B", "\u00fc"])),
    "flags": ("set('x', 'y')", "text", st.sampled_from(["", "x", "x,y"])),
    "owner": ("uuid", "uuid", UUIDS.map(str)),
    "at": (
        "timestamp(6) null",
        "timestamptz",
        st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2038, 1, 18)),  # noqa: DTZ001
    ),
    "moment": ("datetime(6)", "timestamp", MOMENTS),
    "second": (
        "datetime",
        "timestamptz",
        MOMENTS.map(lambda at: at.replace(microsecond=0)),
    ),
    "day": ("date", "date", st.dates(dt.date(1000, 1, 1))),
    "clock": ("time(6)", "time", st.times()),
    "bytes": ("varbinary(50)", "bytea", st.binary(max_size=20)),
    "document": ("longtext", "text", TEXT),
}
ROWS = st.lists(
    st.fixed_dictionaries({"id": UUIDS.map(str), **{name: st.none() | each[2] for name, each in TYPES.items()}}),
    max_size=12,
    unique_by=lambda row: row["id"],
)


@dataclass
class World:
    """Both servers of this module."""

    lab: Lab
    maria: MariaServer
    connection: Any

    def postgres(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    def both(self, statement: str) -> None:
        """Run a statement that both understand."""
        self.postgres(statement)
        self.maria.run(statement)

    @contextmanager
    def sides(self, maria: Side, postgres: Side, *, copy_is_maria: bool) -> Iterator[tuple[MariaRows, PostgresRows]]:
        """Open both sides, as they would be compared: the MariaDB as a copy by three sessions, else by one."""
        url, place = parse(self.lab.url("postgres", "postgres")), self.maria.address()
        limits = StoreLimits(readers=3 if copy_is_maria else 1)
        with open_maria_session("theirs", place, limits) as theirs, open_session("ours", url) as ours:
            theirs.take_snapshot()
            snapshot = ours.take_snapshot()
            types = maria_types(theirs, maria), postgres_types(ours, postgres)
            form = agreed_layout(*(types if copy_is_maria else types[::-1]))
            readings = [
                DigestReading(side, own, form, Mode.PORTABLE, BUCKETS)
                for side, own in zip((maria, postgres), types, strict=True)
            ]
            store = PostgresStore("ours", url, snapshot.id)
            yield MariaRows(MariaStore(theirs), readings[0]), PostgresRows(store, ours, readings[1])


def maria_types(session: Any, side: Side) -> Layout[str]:
    columns = [statements.identifier(each) for each in side.id] + [f"({each})" for each in side.fields]
    found = session.described(f"select {', '.join(columns)} from {statements.relation(side)} limit 0")
    types = [each.type for each in found]
    return Layout(tuple(types[: len(side.id)]), None, tuple(types[len(side.id) :]))


def postgres_types(session: Any, side: Side) -> Layout[str]:
    from psycopg2 import sql

    from reconcile.gather.stores.contract_check import relation

    columns = [f'"{each}"' for each in side.id] + [f"({each})" for each in side.fields]
    types = session.types(sql.SQL("select {} from {} limit 0").format(sql.SQL(", ".join(columns)), relation(side)))
    return Layout(tuple(types[: len(side.id)]), None, tuple(types[len(side.id) :]))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Both with a table of all types."""
    with (
        postgres_alone(PORTS) as lab,
        mariadb_server(ports_of("mariadb server").postgres) as maria,
        closing(psycopg2.connect(lab.url("postgres", "postgres"))) as connection,
    ):
        connection.autocommit = True
        maria.run("grant process on *.* to audit@localhost")
        world = World(lab, maria, connection)
        made = "create table every_type (id uuid primary key, {})".format
        maria.run(made(", ".join(f"{name} {each[0]}" for name, each in TYPES.items())))
        world.postgres(made(", ".join(f"{name} {each[1]}" for name, each in TYPES.items())))
        yield world


@pytest.mark.parametrize("copy_is_maria", [True, False])
@given(rows=ROWS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_equal_rows_have_equal_bits(world: World, copy_is_maria: bool, rows: list[dict[str, Any]]) -> None:
    """Of every type, whichever is the copy; and their texts are equal, a float's as a number."""
    world.both("delete from every_type")
    names = ["id", *TYPES]
    if rows:
        values = [[row[name] for name in names] for row in rows]
        with world.connection.cursor() as cursor:
            execute_values(cursor, f"insert into every_type ({', '.join(names)}) values %s", values)
        places = ", ".join(["%s"] * len(names))
        world.maria.many(f"insert into every_type ({', '.join(names)}) values ({places})", values)
    side = Side(("id",), tuple(TYPES), table="every_type")
    with world.sides(side, side, copy_is_maria=copy_is_maria) as (theirs, ours):
        assert () == theirs.server.without
        expected = {row[0]: row[2:] for row in ours.session.rows(digest.rows(ours.reading))}
        found = {row[0]: row[2:] for row in theirs.store.session.rows(statements.rows(theirs.reading))}
        assert {key: as_numbers(texts) for key, texts in expected.items()} == {
            key: as_numbers(texts) for key, texts in found.items()
        }
        assert sorted(ours.digest()[0]) == sorted(theirs.digest()[0])


def as_numbers(texts: tuple[str | None, ...]) -> list[Any]:
    floats = ("ratio", "single", "as_float")
    return [
        float(text) if name in floats and text is not None else text for name, text in zip(TYPES, texts, strict=True)
    ]


def compared(
    world: World, maria: str, postgres: str, *, ids: str = "id", fields: tuple[str, ...] = ("x",)
) -> Differing:
    """Make a table `rows_of` in both, and compare them by digests."""
    world.both("drop table if exists rows_of")
    for statement in maria.split(";\n"):
        world.maria.run(f"set statement sql_mode = '' for {statement}" if statement.startswith("insert") else statement)
    world.postgres(postgres)
    side = Side(tuple(ids.split()), fields, table="rows_of")
    with world.sides(side, side, copy_is_maria=False) as (theirs, ours):
        return buckets.compare(theirs.digested(Mode.PORTABLE, BUCKETS), ours.digested(Mode.PORTABLE, BUCKETS))


@pytest.mark.parametrize("name", ["b", "bucket", "total", "i0", "f0", "side"])
def test_no_name_of_a_column_hides_a_difference(world: World, name: str) -> None:
    """Whatever our own names are."""
    made = f"create table rows_of (id int primary key, {{0}}{name}{{0}} int, x int)"
    filled = f"insert into rows_of values {', '.join(f'({n}, 7, {n})' for n in range(100))}"
    found = compared(
        world,
        made.format("`") + ";\n" + filled,
        made.format('"') + "; " + filled + "; update rows_of set x = 0 where id = 5",
        fields=("x", f"coalesce({name}, 0)"),
    )
    assert (100, 100, 1) == (found.source_rows, found.copy_rows, len(found.buckets))


@pytest.mark.parametrize(
    ("maria", "theirs", "postgres", "ours"),
    [
        ("varchar(9)", "'a'", "text", "'A'"),
        ("varchar(9)", "'a'", "text", "'a '"),
        ("varchar(9)", "'a '", "text", "'a'"),
        ("varchar(9)", "''", "text", "null"),
        ("varchar(9)", "'~'", "text", "null"),
        ("varchar(9)", "'\u00e4'", "text", "'a'"),
        ("varchar(9)", "'1:~'", "text", "'~'"),
        ("date", "'0000-00-00'", "date", "null"),
        ("date", "'0000-00-00'", "date", "'0001-01-01'"),
        ("date", "'2026-02-00'", "date", "'2026-02-01'"),
        ("datetime(6)", "'2026-01-01 00:00:00'", "timestamptz", "'2026-01-01 00:00:00+01'"),
        ("datetime(6)", "'2026-01-01 00:00:00.000001'", "timestamp", "'2026-01-01 00:00:00'"),
        ("time", "'24:00:01'", "time", "'00:00:01'"),
        ("time", "'-01:00:00'", "time", "'01:00:00'"),
        ("tinyint(1)", "2", "boolean", "true"),
        ("tinyint(1)", "-1", "boolean", "true"),
        ("int", "1", "integer", "-1"),
        ("bigint unsigned", "18446744073709551615", "numeric", "-1"),
        ("double", "0.1", "double precision", "0.10000000000000002"),
        ("double", "1", "double precision", "'nan'"),
        ("float", "0.1", "double precision", "0.1000001"),
        ("double", "1e300", "real", "3.4028235e38"),
        ("decimal(10,3)", "0.1", "numeric", "0.1001"),
        ("varbinary(9)", "x'00'", "bytea", "'\\x'"),
        ("binary(3)", "x'61'", "bytea", "'\\x61'"),
        ("binary(16)", "x'00'", "uuid", "'00000000-0000-0000-0000-000000000001'"),
        ("varbinary(16)", "x'01'", "uuid", "'00000000-0000-0000-0000-000000000001'"),
        ("varbinary(16)", "x'01'", "uuid", "null"),
        ("bit(4)", "b'11'", "integer", "11"),
    ],
)
def test_other_values_have_other_bits(world: World, maria: str, theirs: str, postgres: str, ours: str) -> None:
    """Also such as one of the two cannot hold, or takes for equal."""
    found = compared(
        world,
        f"create table rows_of (id int primary key, x {maria});\ninsert into rows_of values (1, {theirs})",
        f"create table rows_of (id int primary key, x {postgres}); insert into rows_of values (1, {ours})",
    )
    assert 1 == len(found.buckets)


@pytest.mark.parametrize(
    ("maria", "theirs", "postgres", "ours"),
    [
        ("binary(16)", "x'3F2504E04F8911D39A0C0305E82C3301'", "uuid", "'3f2504e0-4f89-11d3-9a0c-0305e82c3301'"),
        ("tinyint(1)", "1", "boolean", "true"),
        ("int(5) unsigned zerofill", "7", "bigint", "7"),
        ("decimal(10,3) zerofill", "7", "numeric", "7.0"),
        ("double", "-0.0e0", "double precision", "0"),
        ("float", "0.1", "double precision", "0.1"),
        ("double", "0.1", "real", "0.1"),
        ("bigint", "5", "double precision", "5"),
        ("datetime(3)", "'2026-01-01 00:00:00.5'", "date", "'2026-01-01'"),
        ("date", "'2026-01-01'", "timestamptz", "'2026-01-01 00:00:00+00'"),
        ("datetime(6)", "'2026-01-01 10:20:30.5'", "time", "'10:20:30.5'"),
        ("int", "12", "text", "'12'"),
        ("decimal(10,3)", "1.500", "text", "'1.500'"),
        ("timestamp(6)", "'2026-01-01 00:00:00.5'", "text", "'2026-01-01 00:00:00.5+00'"),
        ("varbinary(9)", "x'00FF'", "text", "'\\x00ff'"),
    ],
)  # fmt: skip
def test_one_value_has_the_same_bits_as_two_types(
    world: World, maria: str, theirs: str, postgres: str, ours: str
) -> None:
    """The copy's type is what both are cast to."""
    found = compared(
        world,
        f"create table rows_of (id int primary key, x {maria});\ninsert into rows_of values (1, {theirs})",
        f"create table rows_of (id int primary key, x {postgres}); insert into rows_of values (1, {ours})",
    )
    assert (1, 1, ()) == (found.source_rows, found.copy_rows, found.buckets)


IDS = [
    ("varchar(20) collate utf8mb4_general_ci", "text", ["'a'", "'B '", "'\u00fc'", "'12'", "'\u20ac'", "''"]),
    ("varchar(20) character set latin1 collate latin1_german1_ci", "text", ["'a'", "'\u00df'", "'\u20ac'"]),
    ("char(36) character set ascii", "uuid", ["'3f2504e0-4f89-41d3-9a0c-0305e82c3301'"]),
    ("uuid", "text", ["'3f2504e0-4f89-41d3-9a0c-0305e82c3301'"]),
    ("bigint unsigned", "numeric(20)", ["18446744073709551615", "0"]),
    ("int(8) zerofill", "bigint", ["12", "0"]),
]


@pytest.mark.parametrize(("maria", "postgres", "ids"), IDS)
def test_rows_are_found_by_their_ids(world: World, maria: str, postgres: str, ids: list[str]) -> None:
    """By the very id alone: the collation's equals are others, and an id that no row can have finds none."""
    values = ", ".join(f"({each}, 1)" for each in ids)
    filled = f"insert into rows_of values {values}"
    agreed = compared(
        world,
        f"create table rows_of (id {maria} primary key, x int);\n{filled}",
        f"create table rows_of (id {postgres} primary key, x int); {filled}",
    )
    assert (len(ids), ()) == (agreed.copy_rows, agreed.buckets)
    side = Side(("id",), ("x",), table="rows_of")
    with world.sides(side, side, copy_is_maria=False) as (theirs, ours):
        texts = sorted(str(row[0]) for row in ours.session.rows(digest.rows(ours.reading)))
        session, strange = (
            theirs.store.session,
            ["A", "b", "B", "\u65e5", "1e1", "0x0C", "' or 1 = 1 -- ", "a\0", "\\'"],
        )
        found = session.rows(statements.rows(theirs.reading, theirs._among([*texts, *strange])))
        assert texts == sorted(row[0] for row in found)
        assert [] == session.rows(statements.rows(theirs.reading, theirs._among(strange)))
        plan = session.rows("explain " + statements.rows(theirs.reading, theirs._among(texts)))
        assert "PRIMARY" == plan[-1][4]


@given(
    st.lists(st.tuples(TEXT.filter(lambda text: "\ud800" not in text), st.integers(-99, 99)), max_size=6, unique=True)
)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ids_of_several_columns_are_written_alike(world: World, ids: list[tuple[str, int]]) -> None:
    """As JSON arrays."""
    world.both("drop table if exists pairs")
    world.maria.run("create table pairs (a varchar(60) collate utf8mb4_bin, n int)")
    world.postgres("create table pairs (a text, n int)")
    if ids:
        world.maria.many("insert into pairs values (%s, %s)", ids)
        with world.connection.cursor() as cursor:
            execute_values(cursor, "insert into pairs values %s", ids)
    side = Side(("a", "n"), ("n",), table="pairs")
    with world.sides(side, side, copy_is_maria=True) as (theirs, ours):
        texts = sorted(row[0] for row in ours.session.rows(digest.rows(ours.reading)))
        session = theirs.store.session
        assert texts == sorted(row[0] for row in session.rows(statements.rows(theirs.reading, theirs._among(texts))))
        assert sorted(ours.digest()[0]) == sorted(theirs.digest()[0])


def test_rows_without_an_id_and_ids_that_stand_twice_are_looked_into(world: World) -> None:
    """Where no index keeps them out."""
    filled = "insert into rows_of values (1, 1), (2, 2), (2, 2), (null, 3), (null, 3)"
    found = compared(
        world, f"create table rows_of (id int, x int);\n{filled}", f"create table rows_of (id int, x int); {filled}"
    )
    assert digest.NO_ID in found.buckets
    assert 2 == len(found.buckets)


def test_a_row_that_is_too_large_for_a_packet_is_refused(world: World) -> None:
    """Its hash would be NULL, and hide whatever it holds."""
    filled = "insert into rows_of values (1, repeat(0x00, 10000000))"
    with pytest.raises(StoreRefusedError, match="max_allowed_packet"):
        compared(
            world,
            f"create table rows_of (id int primary key, x longblob);\n{filled}",
            "create table rows_of (id int primary key, x bytea); insert into rows_of values (1, null)",
        )


def test_a_value_that_is_too_large_for_a_packet_is_not_read_as_none(world: World, spark: SparkSession) -> None:
    """Also where all rows are compared."""
    world.both("drop table if exists large")
    world.maria.run("create table large (id int primary key, x longblob)")
    world.maria.run("set statement sql_mode = '' for insert into large values (1, repeat(0x00, 10000000))")
    world.postgres("create table large (id int primary key, x bytea)")
    side = Side(("id",), ("x",), table="large")
    with (
        world.sides(side, side, copy_is_maria=False) as (theirs, _),
        pytest.raises(StoreRefusedError, match="max_allowed_packet"),
    ):
        theirs.all(spark)


def test_json_is_compared_whole(world: World, spark: SparkSession) -> None:
    """It has no canonical text in a MariaDB: Spark writes it, and the run says why there are no digests."""
    world.both("drop table if exists documents")
    world.maria.run("create table documents (id int primary key, x json, n varchar(20))")
    world.postgres("create table documents (id int primary key, x jsonb, n integer)")
    world.maria.run(
        """insert into documents values (1, '{"b": 1.0,  "a": [true, null, "x y"]}', '007'), (2, null, null)"""
    )
    world.postgres("""insert into documents values (1, '{"a": [true, null, "x y"], "b": 1}', 7), (2, null, null)""")
    side = Side(("id",), ("x", "n"), table="documents")
    with world.sides(side, side, copy_is_maria=False) as (theirs, ours):
        assert {
            "a MariaDB has no canonical text of json as json",
            "a MariaDB has no canonical text of character varying(20) as numeric",
        } == set(theirs.server.without)
        assert Mode.FULL == digest.choose(theirs.server, ours.server).mode
        expected = sorted(row[0:1] + row[2:] for row in ours.session.rows(digest.rows(ours.reading)))
        assert expected == sorted((row[0], *row[2:]) for row in map(tuple, theirs.all(spark).collect()))
        some = theirs.among(spark.createDataFrame([("2",), ("9",), (None,)], "reconcile_id string"))
        assert ["2"] == [row[0] for row in some.collect()]


def test_a_type_without_a_canonical_form_is_refused(world: World) -> None:
    """A text that Postgres would not write is worse than none."""
    world.maria.run("create or replace table points (id int primary key, x double)")
    types = Layout(("integer",), None, ("double precision",))
    form = agreed_layout(Layout(("integer",), None, ("numeric",)), types)
    with pytest.raises(RefusedError, match="double precision in a MariaDB has no canonical form as numeric"):
        statements.rows(DigestReading(Side(("id",), ("x",), table="points"), types, form, Mode.FULL))
