"""Canonical forms and hashes: the same bits in Postgres and in Spark, and different ones for different rows."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from psycopg2.extras import execute_values
from pyspark.sql import DataFrame, SparkSession  # noqa: TID253

from reconcile.domain.canonical import Layout, agreed_layout
from reconcile.errors import RefusedError
from reconcile.gather.stores import buckets, canonical_columns, digest
from reconcile.gather.stores.buckets import Differing
from reconcile.gather.stores.digest import DigestReading, Mode, Side
from reconcile.gather.stores.link_rows import PostgresRows
from reconcile.gather.stores.postgres_store import PostgresStore, ids_are_unique
from reconcile.gather.stores.session import open_session
from reconcile.lab.folder import Lab
from reconcile.settings.urls import parse
from tests.integration.worlds import postgres_alone
from tests.ports import ports_of

Row = dict[str, Any]
BUCKETS = 1 << 20
# The left table's type, the right one's, and the one in which Postgres itself says whether two values are equal.
TYPES = {
    "flag": ("boolean", "boolean", "boolean"),
    "small": ("integer", "bigint", "bigint"),
    "whole": ("bigint", "numeric(30,2)", "numeric"),
    "amount": ("numeric", "numeric", "numeric"),
    "ratio": ("double precision", "double precision", "double precision"),
    "words": ("text", "varchar", 'text collate "C"'),
    "label": ("citext_like", "text", 'text collate "C"'),
    "owner": ("uuid", "uuid", "uuid"),
    "at": ("timestamptz", "timestamp", "timestamptz"),
    "day": ("date", "date", "date"),
    "clock": ("time", "time(6)", "time"),
    "bytes": ("bytea", "bytea", "bytea"),
    "document": ("json", "jsonb", "jsonb"),
    "amounts": ("numeric[]", "numeric[]", "numeric[]"),
    "tags": ("text[]", "varchar[]", "text[]"),
    "instants": ("timestamptz[]", "timestamp[]", "timestamptz[]"),
    "ratios": ("float8[]", "float8[]", "float8[]"),
    "documents": ("jsonb[]", "jsonb[]", "jsonb[]"),
}
SIDES = {"left_rows": 0, "right_rows": 1}


@dataclass
class World:
    """The databases of this module."""

    lab: Lab
    connection: Any

    def run(self, statement: Any, parameters: Any = None) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    def types(self, side: Side) -> Layout[str]:
        fields = [f"({text})" for text in side.fields]
        columns = ", ".join([*side.id, *([side.version] if side.version else []), *fields])
        with self.connection.cursor() as cursor:
            table = f'"{side.table}"' if side.table else f"(\n{side.query}\n) as q"
            cursor.execute(f"select {columns} from {table} limit 0")
            oids = [column.type_code for column in cursor.description]
        listed = "select array(select format_type(o, null) from unnest(%s::oid[]) with ordinality u(o, n) order by n)"
        found = self.run(listed, (oids,))[0][0]
        ids, after = len(side.id), len(side.id) + (side.version is not None)
        return Layout(tuple(found[:ids]), found[ids] if side.version else None, tuple(found[after:]))

    def readings(
        self, left: Side, right: Side, mode: Mode, buckets: int = BUCKETS
    ) -> tuple[DigestReading, DigestReading]:
        """Give both readings; the right side is the consumer's."""
        types = self.types(left), self.types(right)
        form = agreed_layout(types[1], types[0])
        return DigestReading(left, types[0], form, mode, buckets), DigestReading(right, types[1], form, mode, buckets)

    def reading(self, side: Side, mode: Mode, buckets: int) -> DigestReading:
        return self.readings(side, side, mode, buckets)[0]

    def digest(self, reading: DigestReading) -> dict[int, tuple[int, int, int]]:
        return {bucket: (rows, high, low) for bucket, rows, high, low in self.run(digest.digest(reading))}

    def differing(self, left: DigestReading, right: DigestReading) -> set[str | None]:
        """Give the ids in the buckets that differ, as a run would fetch them."""
        digests = self.digest(left), self.digest(right)
        buckets = [b for b in {*digests[0], *digests[1]} if digests[0].get(b) != digests[1].get(b)]
        return {row[0] for reading in (left, right) for row in self.run(digest.rows(reading, buckets))}

    def agree(self, left: str, right: str, mode: Mode = Mode.NATIVE) -> bool:
        """Tell whether two values, as SQL, have the same digest."""
        sides = [Side(("id",), ("x",), query=f"select 1 as id, {value} as x") for value in (left, right)]
        readings = self.readings(sides[0], sides[1], mode, 1)
        return self.digest(readings[0]) == self.digest(readings[1])


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A server of this module's own."""
    with postgres_alone(ports_of("canonical")) as lab:
        connection = psycopg2.connect(lab.url("postgres", "postgres"))
        connection.autocommit = True
        world = World(lab, connection)
        world.run("create domain citext_like as varchar(4000)")
        world.run(digest.FORMATS + digest.PLANNING)
        for table, column in SIDES.items():
            columns = ", ".join(f"{name} {types[column]}" for name, types in TYPES.items())
            world.run(f"create table {table} (id uuid primary key, {columns})")
        yield world
        connection.close()


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12) | st.sampled_from(
    [
        "",
        " ",
        "Zo\u00eb",
        "Zoe\u0308",
        "trailing  ",
        "\U0001f600\u200d\U0001f525",
        "NULL",
        "a,b",
        '"',
        "\\",
        "{}",
        "\u00a0",
    ]
)
PLAIN = st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**19), max_value=10**19).map(str)
SCALED = st.builds(lambda number, zeros: f"{number}{'0' * zeros}", PLAIN, st.integers(0, 6)) | st.sampled_from(
    ["0", "-0.00", "12.34", "12.3400", "-12.34", "1.5e3", "1500", "1e-9", "-1", "4294967295"]
)
SPECIAL = st.sampled_from(["NaN", "Infinity", "-Infinity", "1e300", "1e-300", "123456789012345678901234567890.12345"])
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 2**32 - 1, 2**32 + 1, -(2**63), 2**63 - 1])
FLOATS = st.floats().map(repr) | st.sampled_from(["nan", "-0.0", "0.0", "0.1", "1e23", "5e-324", "inf", "-inf"])
DATETIMES = st.datetimes().filter(lambda at: (at.year, at.month) != (1582, 10)).map(str)
DATES = st.dates().filter(lambda day: (day.year, day.month) != (1582, 10)).map(str)
FAR = st.sampled_from(["infinity", "-infinity", "0044-03-15 12:00:00.5 BC", "12000-01-01 00:00:00.000001"])
FAR_DATES = st.sampled_from(["infinity", "-infinity", "0044-03-15 BC", "12000-01-01"])
JSON_NUMBERS = (
    st.integers(-(10**30), 10**30).map(str) | PLAIN | st.sampled_from(["1.0", "1", "1e3", "-0", "1.50", "1E-7"])
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """JSON as text, its members in any order, with spaces and escapes of any kind."""
    values = st.recursive(
        JSON_NUMBERS | st.sampled_from(["null", "true", "false"]) | st.builds(json.dumps, TEXT),
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda items: f"[{' , '.join(items)}]")
            | st.dictionaries(TEXT, inner, max_size=3).map(
                lambda items: (
                    "{ " + ",".join(f"{json.dumps(k, ensure_ascii=len(k) > 3)} :{v}" for k, v in items.items()) + "}"
                )
            )
        ),
        max_leaves=5,
    )
    return draw(values)


def arrays(of: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | of, max_size=3)


def tables(*, far: bool) -> st.SearchStrategy[Row]:
    """Rows of all types; without `far`, only with values that Spark's JDBC source reads as they are."""
    amounts, instants = (SCALED | SPECIAL, DATETIMES | FAR) if far else (SCALED, DATETIMES)
    columns: dict[str, st.SearchStrategy[Any]] = {
        "flag": st.booleans(),
        "small": st.integers(-(2**31), 2**31 - 1).map(str),
        "whole": INTEGERS.map(str),
        "amount": amounts,
        "ratio": FLOATS,
        "words": TEXT,
        "label": TEXT,
        "owner": st.uuids().map(str) | st.uuids().map(lambda value: str(value).upper()),
        "at": instants,
        "day": DATES | FAR_DATES if far else DATES,
        "clock": st.times().map(str) | st.just("24:00:00"),
        "bytes": st.binary(max_size=5).map(lambda value: "\\x" + value.hex()),
        "document": documents(),
        "amounts": arrays(amounts),
        "tags": arrays(TEXT),
        "instants": arrays(instants),
        "ratios": arrays(FLOATS),
        "documents": arrays(documents()),
    }
    assert columns.keys() == TYPES.keys()
    return st.fixed_dictionaries({name: st.none() | strategy for name, strategy in columns.items()})


@st.composite
def pairs(draw: st.DrawFn, *, far: bool) -> list[tuple[Row, Row]]:
    """Rows and their copies, of which most differ in one field or not at all."""
    drawn = draw(
        st.lists(st.tuples(tables(far=far), tables(far=far), st.sampled_from(["", *TYPES])), min_size=1, max_size=12)
    )
    return [(row, {**row, **({name: other[name]} if name else {})}) for row, other, name in drawn]


def write(world: World, table: str, rows: list[Row]) -> None:
    """Put rows into an emptied table, numbered by their ids."""
    template = f"(%s::uuid, {', '.join(f'%s::{types[SIDES[table]]}' for types in TYPES.values())})"
    world.run(f"truncate {table}")
    values = [(uuid(number), *(row[name] for name in TYPES)) for number, row in enumerate(rows)]
    with world.connection.cursor() as cursor:
        execute_values(cursor, f"insert into {table} values %s", values, template)


def uuid(number: int) -> str:
    return f"3f2504e0-4f89-11d3-9a0c-{number:012x}"


def side(table: str) -> Side:
    return Side(("id",), tuple(TYPES), table=table)


# Not shrunk: that takes minutes where each example is a table.
HEAVY = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)


@pytest.mark.parametrize("mode", [Mode.NATIVE, Mode.PORTABLE])
@settings(HEAVY, max_examples=60)
@given(rows=pairs(far=True))
def test_exactly_the_rows_that_differ_are_found(world: World, mode: Mode, rows: list[tuple[Row, Row]]) -> None:
    """Across physical types, and for every value; what differs is what Postgres itself holds for distinct."""
    write(world, "left_rows", [left for left, _ in rows])
    write(world, "right_rows", [right for _, right in rows])
    same = " and ".join(f"l.{n}::{types[2]} is not distinct from r.{n}::{types[2]}" for n, types in TYPES.items())
    expected = {
        row[0] for row in world.run(f"select id::text from left_rows l join right_rows r using (id) where not ({same})")
    }
    readings = world.readings(side("left_rows"), side("right_rows"), mode)
    assert expected == world.differing(*readings)
    texts = [{row[0]: row[2:] for row in world.run(digest.rows(reading))} for reading in readings]
    by_text = {key for key in texts[0] if not same_texts(texts[0][key], texts[1][key])}
    assert expected == by_text


def same_texts(left: tuple[str | None, ...], right: tuple[str | None, ...]) -> bool:
    return all(
        one == other
        or (name in ("ratio", "ratios") and (one or "").replace("-0", "0") == (other or "x").replace("-0", "0"))
        for name, one, other in zip(TYPES, left, right, strict=True)
    )


def jdbc(spark: SparkSession, world: World, **options: str) -> DataFrame:
    url = f"jdbc:postgresql://127.0.0.1:{world.lab.state().ports.postgres}/postgres"
    password = world.lab.password("postgres")
    given = {"url": url, "driver": "org.postgresql.Driver", "user": "postgres", "password": password, **options}
    return spark.read.format("jdbc").options(**given).load()


def read(spark: SparkSession, world: World, table: str) -> DataFrame:
    """Read a table by JDBC as it is, but for times, whose microseconds that loses."""
    query = f"select id, {', '.join(n if n != 'clock' else 'clock::text as clock' for n in TYPES)} from {table}"
    return jdbc(spark, world, query=query, customSchema="amount decimal(38,12)")


@settings(HEAVY, max_examples=12)
@given(rows=st.lists(tables(far=False), min_size=10, max_size=60))
def test_spark_computes_the_same_texts(world: World, spark: SparkSession, rows: list[Row]) -> None:
    """Texts, from a frame of Spark's own types."""
    columns: Layout[str] = Layout(("id",), None, tuple(TYPES))
    write(world, "left_rows", rows)
    reading, _ = world.readings(side("left_rows"), side("right_rows"), Mode.PORTABLE)
    frame = read(spark, world, "left_rows")
    found = {row[0]: tuple(row[2:]) for row in canonical_columns.rows(frame, columns, reading.form).collect()}
    for key, texts in {row[0]: row[2:] for row in world.run(digest.rows(reading))}.items():
        for name, expected, text in zip(TYPES, texts, found[key], strict=True):
            if name == "ratio" and expected is not None:
                assert float(expected) == float(text) or math.isnan(float(expected)) is math.isnan(float(text)) is True
            elif name != "ratios":
                assert (name, expected) == (name, text)


@pytest.mark.parametrize("mode", [Mode.NATIVE, Mode.PORTABLE])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("12.34::numeric(20,4)", "12.3400::numeric"),
        ("7::int4", "7.00::numeric(20,4)"),
        ("7::int2", "7::int8"),
        ("0.1::float8", "0.1::float8"),
        ("0.5::float4", "0.5::float8"),
        ("'-0'::float8", "0::float8"),
        ("'a'::varchar(5)", "'a'::text"),
        ("'ab'::char(5)", "'ab'::text"),
        ("'Zoë'::text collate \"POSIX\"", "'Zoë'::text"),
        ("'x'", "'x'::name::text"),
        ("timestamp '2026-01-01 10:00'", "timestamptz '2026-01-01 12:00+02'"),
        ("'2026-01-01T12:00:00.5+02:00'::text", "timestamptz '2026-01-01 10:00:00.5Z'"),
        ("timestamptz '2026-01-01 23:30-05'", "date '2026-01-02'"),
        ("'{3F2504E0-4F89-11D3-9A0C-0305E82C3301}'::text", "'3f2504e0-4f89-11d3-9a0c-0305e82c3301'::uuid"),
        ("""'{"b": 1.50, "a": "\\u00e9"}'::json""", """'{"a":"é","b":1.5}'::jsonb"""),
        ("array[1.50, null]", "array[1.5, null]::numeric(9,3)[]"),
        ("'{1,2}'::int4[]", "'{1,2}'::int8[]"),
        ("' 007 '::text", "7::int4"),
        ("true", "1::int4"),
        ("null::int4", "null::int8"),
    ],
)
def test_equal_values_of_other_types_agree(world: World, mode: Mode, left: str, right: str) -> None:
    """The source's value is cast to the type of the consumer's."""
    assert world.agree(left, right, mode)


@pytest.mark.parametrize("mode", [Mode.NATIVE, Mode.PORTABLE])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("5::numeric", "-5::numeric"),
        ("'NaN'::numeric", "'Infinity'::numeric"),
        ("'Infinity'::numeric", "'-Infinity'::numeric"),
        ("0::numeric", "null::numeric"),
        ("(-1)::int8", "4294967295::int8"),
        ("0::int8", "4294967297::int8"),
        ("'[[1],2]'::jsonb", "'[[1,2]]'::jsonb"),
        ("'{{1,2},{3,4}}'::int4[]", "'{1,2,3,4}'::int4[]"),
        ("array['NULL']", "array[null]::text[]"),
        ("array['a,b']", "array['a','b']"),
        ("''::text", "null::text"),
        ("'a '::text", "'a'::text"),
        ("'A'::text", "'a'::text"),
        (r"U&'Zo\00eb'", r"U&'Zoe\0308'"),
        ("12.5::numeric", "13::int4"),
        ("12.5::numeric", "12::int4"),
        ("'seven'::text", "7::int4"),
        ("'seven'::text", "null::int4"),
        ("'1e400'::text", "null::float8"),
        (r"""'"\u0000"'::json""", "null::jsonb"),
        ("timestamptz 'infinity'", "null::timestamptz"),
    ],
)
def test_values_that_differ_do_not_agree(world: World, mode: Mode, left: str, right: str) -> None:
    """Also where Postgres' own hash of them is the same, or where one cannot be cast."""
    assert not world.agree(left, right, mode)


@pytest.mark.parametrize("mode", [Mode.NATIVE, Mode.PORTABLE])
def test_a_value_that_cannot_be_cast_is_found_and_shown_as_it_is(world: World, mode: Mode) -> None:
    """One such row does not end the digest of all others."""
    query = "select i::text as id, case when i = 5 then 'five' else i::text end as n from generate_series(1, 9) i"
    source = Side(("id",), ("n",), query=query)
    consumer = Side(("id",), ("n",), query="select i::text as id, i as n from generate_series(1, 9) i")
    readings = world.readings(source, consumer, mode)
    assert {"5"} == world.differing(*readings)
    assert [("5", None, "five")] == world.run(digest.rows(readings[0], ids=["5"]))


@pytest.mark.parametrize("mode", [Mode.NATIVE, Mode.PORTABLE])
def test_a_version_is_told_and_not_compared(world: World, mode: Mode) -> None:
    """A copy that shows what its source shows agrees, however it came to that."""
    sides = [
        Side(("id",), ("id",), query=f"select 1 as id, {version} as version", version="version")
        for version in (1, "2::bigint")
    ]
    readings = world.readings(sides[0], sides[1], mode)
    assert set() == world.differing(*readings)
    assert [("1", "2", "1")] == world.run(digest.rows(readings[1]))


@pytest.mark.parametrize("mode", [Mode.NATIVE, Mode.PORTABLE])
def test_rows_that_change_places_are_found(world: World, mode: Mode) -> None:
    """Sums must not cancel out, not even in one bucket."""
    queries = (f"select * from (values (1, {x}), (2, {y})) v(id, x)" for x, y in ((7, 8), (8, 7)))
    left, right = (Side(("id",), ("x",), query=query) for query in queries)
    assert {"1", "2"} == world.differing(*world.readings(left, right, mode, 1))


@pytest.mark.parametrize("mode", [Mode.NATIVE, Mode.PORTABLE])
def test_rows_that_do_not_count(world: World, mode: Mode) -> None:
    """Deleted rows are left out, and rows without an id have a bucket of their own."""
    query = "select nullif(i, 3) as id, i as x, i = 2 as gone from generate_series(1, 3) i -- all of them"
    reading = world.reading(Side(("id",), ("x",), query=query, deleted="gone -- ("), mode, 1)
    assert {0: 1, -1: 1} == {bucket: counted[0] for bucket, counted in world.digest(reading).items()}
    assert [(None, None, "3")] == world.run(digest.rows(reading, [digest.NO_ID]))
    assert [("1", None, "1")] == world.run(digest.rows(reading, [0]))


@pytest.mark.parametrize("mode", [Mode.NATIVE, Mode.PORTABLE])
def test_an_id_that_stands_twice_on_both_sides_counts_as_different(world: World, mode: Mode) -> None:
    """Its bucket is one to look into, though both sides agree in it."""
    query = "select case when i = 9 then 3 else i end as id, 1 as x from generate_series(1, 9) i"
    reading = world.reading(Side(("id",), ("x",), query=query), mode, 1 << 20)
    found = compared(world, reading)
    assert {"3"} == {row[0] for row in world.run(digest.rows(reading, found.buckets))}


@pytest.mark.parametrize(
    ("made", "unique"),
    [
        ("(a int, b int, primary key (a, b))", True),
        ("(a int, b int primary key)", True),
        ("(a int, b int, c int, unique (a, b))", True),
        ("(a int, b int, c int, unique (a, c))", False),
        ('(a int, b int); create unique index on "Ids" (b) include (a)', True),
        ('(a int, b int); create unique index on "Ids" (a, b) where a > 0', False),
        ('(a int, b int); create unique index on "Ids" (a, (b + 1))', False),
        ("(a int, b int, primary key (a, b)) partition by hash (a)", True),
        ('(a int, b int, primary key (a, b)); create table "Heirs" () inherits ("Ids")', False),
        ('(a int, b int); create index on "Ids" (a, b)', False),
    ],
)
def test_an_index_may_say_that_no_id_stands_twice(world: World, made: str, unique: bool) -> None:
    """Nobody looks for such ids then."""
    world.run('drop table if exists "Ids", "Heirs" cascade')
    world.run(f'create table "Ids" {made}')
    reading = world.reading(Side(("a", "b"), (), table="Ids"), Mode.NATIVE, 1)
    with open_session("origin", parse(world.lab.url("postgres", "postgres"))) as session:
        session.take_snapshot()
        assert unique == ids_are_unique(session, reading)


def compared(world: World, reading: DigestReading) -> Differing:
    """Compare rows with themselves."""
    url = parse(world.lab.url("postgres", "postgres"))
    with open_session("origin", url) as session:
        rows = PostgresRows(PostgresStore("origin", url, session.take_snapshot().id), session, reading)
        return buckets.compare(rows, rows)


def test_only_the_ids_that_are_asked_for_are_read(world: World) -> None:
    """Ids are text, and one that is not written as its type writes it is nobody's."""
    seventh = "00000000-0000-0000-0000-000000000007"
    for written, ids in (
        ("i", ["7", "08", "x", "99999999999999999999"]),
        ("i::text", ["7", "08", "x'", "7\0"]),
        ("lpad(i::text, 32, '0')::uuid", [seventh, "7", seventh.replace("-", "")]),
    ):
        query = f"select {written} as id, i as x from generate_series(1, 9) i"
        reading = world.reading(Side(("id",), ("x",), query=query), Mode.NATIVE, 16)
        assert ["7"] == [x for _, _, x in world.run(digest.rows(reading, ids=ids))]
        assert [1] == [rows for _, rows, _, _ in world.run(digest.digest(reading, ids))]


def test_an_id_of_several_columns_is_a_json_array(world: World) -> None:
    """As the key of a record holds it."""
    query = r"""select 'e"u%'::text as tenant, 42 as id, 1 as x union all select null, 1, 2"""
    reading = world.reading(Side(("tenant", "id"), ("x",), query=query), Mode.NATIVE, 16)
    assert {('["e\\"u%",42]', None, "1"), (None, None, "2")} == set(world.run(digest.rows(reading)))
    assert [('["e\\"u%",42]', None, "1")] == world.run(digest.rows(reading, ids=['["e\\"u%",42]']))
    assert 2 == len(world.digest(reading))


def test_a_copy_may_hold_the_sources_integers_as_text(world: World, spark: SparkSession) -> None:
    """An id of several columns is written as the source's types say, and what is no integer is nobody's."""

    def side(numbers: str) -> Side:
        return Side(("tenant", "id"), ("x",), query=f"select 'a' as tenant, i as id, 1 as x from {numbers} as i")

    number, text = side("generate_series(7, 9)"), side("unnest(array['7', '8', '9'])")
    odd = side(r"unnest(array['07', '7,8', e'7\n', ''])")
    seven_to_nine = {f'["a",{each}]' for each in (7, 8, 9)}
    for mode in (Mode.NATIVE, Mode.PORTABLE):
        source, copy = world.readings(number, text, mode)
        assert world.digest(source) == world.digest(copy)
        assert seven_to_nine == {row[0] for row in world.run(digest.rows(copy))}
        assert [('["a",7]', None, "1")] == world.run(digest.rows(copy, ids=['["a",7]']))
    strange = world.readings(number, odd, Mode.PORTABLE)[1]
    expected = {'["a","07"]', '["a","7,8"]', r'["a","7\n"]', '["a",""]'}
    assert expected == {row[0] for row in world.run(digest.rows(strange))}
    for of, ids in ((text, seven_to_nine), (odd, expected)):
        frame = jdbc(spark, world, query=of.query or "")
        found = canonical_columns.rows(frame, Layout(of.id, None, of.fields), strange.form)
        assert ids == {row[0] for row in found.collect()}


def test_parquet_is_written_as_postgres_writes(world: World, spark: SparkSession, tmp_path: Path) -> None:
    """Ids of several columns, versions, and text that cannot be cast to the consumer's types included."""
    query = """select 'e"u' as tenant, i as id, i % 3 as version, nullif(i, 4) as n, i / 8.0 as ratio,
                      (array['7.50', 'seven', '1e2', null, '+.5', ' 007 '])[i % 6 + 1] as number,
                      (array['{3F2504E0-4F89-11D3-9A0C-0305E82C3301}', 'x', null])[i % 3 + 1] as owner,
                      timestamptz '1969-12-31 23:59:59.999999Z' + i * interval '1 day 0.1 s' as at
                 from generate_series(1, 40) i"""
    columns: Layout[str] = Layout(("tenant", "id"), "version", ("n", "ratio", "number", "owner", "at"))
    side = Side(columns.id, columns.fields, query=query, version="version")
    jdbc(spark, world, query=query).write.parquet(str(tmp_path / "rows"))
    frame = spark.read.parquet(str(tmp_path / "rows"))
    consumer = Layout(("text", "integer"), "integer", ("numeric", "numeric", "integer", "uuid", "timestamptz"))
    form = agreed_layout(consumer, canonical_columns.types(frame, columns))
    reading = DigestReading(side, world.types(side), form, Mode.PORTABLE, 8)
    found = canonical_columns.rows(frame, columns, form).collect()
    assert sorted(world.run(digest.rows(reading)), key=str) == sorted(map(tuple, found), key=str)


def test_canonical_texts_reach_spark_as_they_are(world: World, spark: SparkSession) -> None:
    """By JDBC, also where Spark would change the value itself."""
    query = """select 1 as id, timestamptz 'infinity' as at, 'NaN'::numeric as n, time '10:00:00.000001' as clock,
                      date '0044-03-15 BC' as day, '{"b?": [1.0], "a": "%s"}'::json as document, 'x'::char(3) as c"""
    reading = world.reading(Side(("id",), ("at", "n", "clock", "day", "document", "c"), query=query), Mode.FULL, 1)
    statement = digest.rows(reading).as_string(world.connection)
    found = jdbc(spark, world, query=statement, sessionInitStatement=digest.FORMATS).collect()
    expected = ("1", None, "infinity", "NaN", "10:00:00.000001", "0044-03-15 BC", '{"a":"%s","b?":[1]}', "x")
    assert [expected] == [tuple(row) for row in found]


def test_the_padding_of_char_is_no_data_in_spark_either(world: World, spark: SparkSession) -> None:
    """Postgres gives it to JDBC, and takes it away in a cast to text."""
    side = Side(("id",), ("c",), query="select 1 as id, 'ab'::char(5) as c")
    reading = world.reading(side, Mode.PORTABLE, 1)
    frame = jdbc(spark, world, query=side.query or "")
    assert "ab   " == frame.collect()[0]["c"]
    found = canonical_columns.rows(frame, Layout(("id",), None, ("c",)), reading.form).collect()
    assert [("1", None, "ab")] == [tuple(row) for row in found] == list(map(tuple, world.run(digest.rows(reading))))


def test_a_type_without_a_canonical_form_in_spark_is_refused(spark: SparkSession) -> None:
    """A text that Postgres would not write is worse than none."""
    frame = spark.sql("select 1 as id, cast(0.1 as double) as x")
    form = agreed_layout(Layout(("integer",), None, ("numeric",)), Layout(("integer",), None, ("double precision",)))
    with pytest.raises(RefusedError, match="the column x, double in Spark, has no canonical form as numeric"):
        canonical_columns.rows(frame, Layout(("id",), None, ("x",)), form)


def test_what_decides_the_mode_is_asked_of_the_server(world: World) -> None:
    """Two servers of one kind hash alike."""
    server = digest.server(world.run)
    assert server.version >= 140_000
    assert "UTF8" == server.encoding
    assert Mode.NATIVE == digest.choose(server, server).mode
