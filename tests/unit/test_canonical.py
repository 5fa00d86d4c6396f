"""What values are compared as, how a digest's hashes are computed, and SQL that a contract may not break out of."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.domain.canonical import (
    Layout,
    agreed,
    agreed_layout,
    can_hold,
    canonical_type,
    cast,
    json_text,
    native,
    version_number,
)
from reconcile.errors import RefusedError
from reconcile.gather.stores.contract_sql import for_jdbc, require_whole
from reconcile.gather.stores.digest import MAX_BUCKETS, DigestReading, Mode, Server, Side, bucket_count, choose, digest

SERVER = Server(version=180004, encoding="UTF8", probe=42)
SCALARS = st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NAMES = st.text('abé"\\ ', max_size=3)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))


@pytest.mark.parametrize(
    ("postgres_type", "expected"),
    [
        ("boolean", "boolean"),
        ("bool", "boolean"),
        ("smallint", "integer"),
        ("int4", "integer"),
        ("bigint", "integer"),
        ("numeric(10,2)", "numeric"),
        ("real", "float"),
        ("double precision", "float"),
        ("text", "text"),
        ("character varying(20)", "text"),
        ("character(5)", "text"),
        ("bpchar", "text"),
        ("citext", "text"),
        ("name", "text"),
        ("uuid", "uuid"),
        ("timestamp(3) without time zone", "timestamp"),
        ("timestamptz", "timestamp"),
        ("date", "date"),
        ("time(6) without time zone", "time"),
        ("bytea", "bytea"),
        ("json", "json"),
        ("pg_catalog.jsonb", "json"),
        ("numeric(10,2)[]", "numeric[]"),
        ("_int4", "integer[]"),
        ("public.status", "other"),
        ("app.date", "other"),
        ("interval", "other"),
        ('"char"', "other"),
        ("status[]", "other[]"),
    ],
)
def test_every_type_has_a_canonical_one(postgres_type: str, expected: str) -> None:
    """As format_type, pg_typeof and the catalog write its name."""
    assert expected == str(canonical_type(postgres_type))


@pytest.mark.parametrize(
    ("consumer", "source", "expected"),
    [
        ("numeric", "integer", "numeric"),
        ("integer", "bigint", "integer"),
        ("integer", "numeric", "numeric"),
        ("integer", "text", "numeric"),
        ("integer[]", "numeric[]", "numeric[]"),
        ("double precision", "numeric", "float"),
        ("timestamp without time zone", "timestamptz", "timestamp"),
        ("uuid", "text", "uuid"),
        ("text", "uuid", "text"),
    ],
)
def test_the_consumers_type_decides_and_never_rounds(consumer: str, source: str, expected: str) -> None:
    """An integer is compared with what is none as numeric."""
    assert expected == str(agreed(consumer, source))


@pytest.mark.parametrize(
    ("consumer", "source", "expected"),
    [
        ("real", "real", True),
        ("double precision", "float4", True),
        ("real", "double precision", True),
        ("double precision", "double precision", False),
        ("numeric", "real", False),
    ],
)
def test_floats_of_which_one_side_is_a_real_are_compared_as_that(consumer: str, source: str, expected: bool) -> None:
    """An event says 0.1, and a real holds 0.10000000149011612 of it."""
    assert expected == agreed(consumer, source).single


def test_ids_are_compared_as_text_unless_both_are_of_one_type() -> None:
    """An id is never normalised."""
    consumer = Layout(("uuid", "integer", "uuid"), None, ("integer",))
    source = Layout(("uuid", "bigint", "text"), "bigint", ("bigint",))
    form = agreed_layout(consumer, source)
    assert ["uuid", "integer", "text"] == [str(each) for each in form.id]
    assert form.version is None


def test_the_source_decides_how_a_part_of_an_id_is_written() -> None:
    """A key holds the source's integer without quotes, also where a copy has it as text; one column has no quotes."""
    several = agreed_layout(Layout(("text", "text"), None, ()), Layout(("text", "bigint"), None, ()))
    assert [("text", False), ("text", True)] == [(str(each), each.bare) for each in several.id]
    turned = agreed_layout(Layout(("text", "bigint"), None, ()), Layout(("text", "text"), None, ()))
    one = agreed_layout(Layout(("text",), None, ()), Layout(("bigint",), None, ()))
    assert not any(each.bare for each in (*turned.id, *one.id))


@pytest.mark.parametrize(
    ("own", "to", "checked"),
    [
        ("integer", "numeric", False),
        ("real", "numeric", False),
        ("timestamp without time zone", "timestamptz", False),
        ("timestamptz", "date", False),
        ("jsonb", "jsonb", False),
        ("integer[]", "numeric[]", False),
        ("numeric", "text", False),
        ("text", "uuid", True),
        ("text", "numeric", True),
        ("numeric", "double precision", True),
        ("json", "jsonb", True),
        ("json[]", "jsonb[]", True),
        ("text", "integer[]", True),
    ],
)
def test_a_cast_that_can_fail_is_checked(own: str, to: str, checked: bool) -> None:
    """One row must not end the digest of all others."""
    found = cast("x", own, canonical_type(to))
    assert checked == found.checked == ("pg_input_is_valid" in found.value)


@pytest.mark.parametrize("postgres_type", ["bigint", "numeric", "double precision", "timestamptz", "time"])
def test_what_postgres_hashes_only_in_part_is_hashed_as_bytes(postgres_type: str) -> None:
    """Postgres takes 5 and -5, or -1 and 4294967295, for the same."""
    assert "send(" in native("x", canonical_type(postgres_type))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{ "b" : 1.50, "aa":[ 1e3 , -0.0, 0.00 ],"a":null}', '{"a":null,"b":1.5,"aa":[1000,0,0]}'),
        ('"\\u00e9\\/\\n"', '"é/\\n"'),
        ('{"a":1,"a":2}', '{"a":2}'),
        (
            "12345678901234567890123456789012345678901234567890.10",
            "12345678901234567890123456789012345678901234567890.1",
        ),
        ("1E-7", "0.0000001"),
        ('" 1.0 "', '" 1.0 "'),
        ("NaN", None),
        ("1e200000", None),
        ("1e-20000", None),
        ('"\\u0000"', None),
        ('{"\\u0000":1}', None),
        ('"\\ud800"', None),
        ("{", None),
        ("[" * 100_000, None),
        ('{"a":1e99999999999999999999}', None),
    ],
)
def test_json_has_one_text(text: str, expected: str | None) -> None:
    """Sorted keys, no spaces, numbers by value; None for what jsonb does not take."""
    assert expected == json_text(text)


@given(VALUES)
def test_json_means_the_same_afterwards_and_is_stable(value: object) -> None:
    """However it was written."""
    if "\\u0000" in (written := json.dumps(value, indent=1)):
        return
    text = json_text(written)
    assert text is not None
    assert value == json.loads(text)
    assert text == json_text(json.dumps(value, ensure_ascii=False)) == json_text(text)


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(0, 5))
def test_a_number_in_json_has_one_text_for_each_value(number: Decimal, zeros: int) -> None:
    """Scale is no difference."""
    plain = format(number, "f")
    longer = (plain if "." in plain else plain + ".0") + "0" * zeros
    assert json_text(plain) == json_text(longer)
    text = json_text(plain)
    assert text is None or Decimal(text) == number


@pytest.mark.parametrize(
    ("consumer", "source", "checked", "mode", "reason"),
    [
        (SERVER, SERVER, True, Mode.NATIVE, ""),
        (SERVER, Server(170002, "UTF8", 42), False, Mode.PORTABLE, "Postgres 18 and 17, which may hash differently"),
        (SERVER, Server(180001, "UTF8", 43), False, Mode.PORTABLE, "hash the same row differently"),
        (Server(130001, "UTF8", None), Server(130002, "UTF8", None), False, Mode.PORTABLE, "have no hash of rows"),
        (SERVER, Server(180004, "LATIN1", 42), False, Mode.FULL, "a server's encoding is LATIN1, not UTF8"),
        (Server(150001, "UTF8", 1), SERVER, True, Mode.FULL, r"Postgres 15, which cannot tell .* \(since 16\)"),
        (Server(120001, "UTF8", None), SERVER, False, Mode.FULL, r"Postgres 12, which does not know trim_scale"),
    ],
)
def test_the_mode_comes_with_its_reason(
    consumer: Server, source: Server, checked: bool, mode: Mode, reason: str
) -> None:
    """The fastest that is safe for both servers."""
    choice = choose(consumer, source, checked=checked)
    assert mode == choice.mode
    assert re.search(reason, "; ".join(choice.reasons))


@given(st.integers(0, 10**9))
def test_buckets_hold_20_to_80_rows(rows: int) -> None:
    """A power of two within bounds."""
    buckets = bucket_count(rows)
    assert 1 == bin(buckets).count("1")
    assert 1 <= buckets <= MAX_BUCKETS
    if 80 <= rows <= 20 * MAX_BUCKETS:
        assert 20 <= rows / buckets <= 80


@pytest.mark.parametrize(
    "text",
    [
        "first_name || ' ' || last_name",
        "x -- not (closed",
        "x /* ( /* ( */ ( */",
        "')' || \")\" || 'it''s)' || E'\\')' || $$)$$ || $a$)$$;$a$",
        "(a[1] + b)",
        "x::text || $1",
        "'50%' || '{}'",
    ],
)
def test_whole_sql_stands_in_parentheses_on_lines_of_its_own(text: str) -> None:
    """A comment at its end takes nothing of ours with it."""
    assert f"(\n{text}\n)" == require_whole(text).string


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1) , (2", "a `)` closes nothing"),
        ("x) from t --", "a `)` closes nothing"),
        ("(x", "a `)` is missing"),
        ("a[1", "a `]` is missing"),
        ("(a]", "a `]` closes nothing"),
        ("x; drop table t", "a `;` would end the statement"),
        ("'x", "a ' is not closed"),
        ('"x', 'a " is not closed'),
        ("E'x\\'", "a E' is not closed"),
        ("$a$x", "a $a$ is not closed"),
        ("x /* y", "a /* is not closed"),
        ("x /* /* */", "a /* is not closed"),
        ("$€$x", "a $€$ is not closed"),
        ("$€$ ' $€$) '", "a `)` closes nothing"),
        ("€$x$ ) $x$", "a `)` closes nothing"),
        ("€E'\\') '", "a `)` closes nothing"),
        ("E'' -- more\n'\\'", "a text with escapes goes on in another"),
        ("1$a$ ' $a$", "a number and a `$` stand too close"),
        ("$1$a$ ' $a$", "a number and a `$` stand too close"),
        ("1E'\\'", "a number and a `'` stand too close"),
    ],
)
def test_sql_that_would_change_the_statement_is_refused(text: str, problem: str) -> None:
    """Silently, it could add a column or leave out the rest."""
    with pytest.raises(RefusedError, match=re.escape(problem)):
        require_whole(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("meta ? 'gone?'", "meta ?? 'gone?'"),
        ("a ?| b @? c ?& d", "a ??| b @?? c ??& d"),
        (r"E'\'?' ? x", r"E'\'?' ?? x"),
        ("'it''s ?' || \"a\"\"?\" ? y", "'it''s ?' || \"a\"\"?\" ?? y"),
        ("$$?$$ ? $a$ $b$ ? $a$", "$$?$$ ?? $a$ $b$ ? $a$"),
        ("x -- why?\n? y", "x -- why?\n?? y"),
        ("/* ? /* ? */ ? */ ?", "/* ? /* ? */ ? */ ??"),
        ("a", "a"),
    ],
)
def test_a_question_mark_is_an_operator_and_no_parameter(text: str, expected: str) -> None:
    """The JDBC driver takes two for one, outside of what is quoted."""
    assert expected == for_jdbc(text)


def test_there_is_no_digest_in_the_mode_full() -> None:
    """Every row is compared there."""
    types: Layout[str] = Layout(("uuid",), None, ("text",))
    reading = DigestReading(Side(("id",), ("x",), table="t"), types, agreed_layout(types, types), Mode.FULL)
    with pytest.raises(ValueError, match="no digest"):
        digest(reading)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        (" 7.00 ", 7),
        ("1970-01-01T00:00:01.5Z", 1_500_000),
        ("1970-01-02 00:00:00", 86_400_000_000),
        ("1970-01-01T02:00:00+02:00", 0),
        ("newest", None),
        (None, None),
    ],
)
def test_a_version_is_a_number_or_an_instant(text: str | None, expected: int | None) -> None:
    """An instant without a zone is one of UTC."""
    assert expected == version_number(text)


def test_sides_of_other_shapes_agree_on_nothing() -> None:
    """A side with an id of two columns is not compared with one of a single column."""
    with pytest.raises(ValueError, match="same number of columns"):
        agreed_layout(Layout(("text", "text"), None, ()), Layout(("text",), None, ()))


@pytest.mark.parametrize(
    ("postgres_type", "holds", "does_not_hold"),
    [
        ("character varying(3)", "abc  ", "abcd"),
        ("varchar(3)", "zoë", "zoë!"),
        ("character(2)", "ab", "abc"),
        ("numeric(5,2)", "-999.99", "1000"),
        ("numeric(5,2)", "0", "1E+30"),
        ("smallint", "32767", "32768"),
        ("integer", "-2147483648", "-2147483649"),
        ("bigint", "9223372036854775807", "9223372036854775808"),
    ],
)
def test_a_column_holds_what_its_length_or_range_permits(postgres_type: str, holds: str, does_not_hold: str) -> None:
    """What is longer or larger is refused by the store."""
    assert [True, False] == [can_hold(postgres_type, text) for text in (holds, does_not_hold)]


@pytest.mark.parametrize(
    "postgres_type", ["", "text", "character varying", "numeric", "timestamp(3) without time zone"]
)
def test_a_column_without_a_length_holds_all(postgres_type: str) -> None:
    """Nothing is known against it."""
    assert can_hold(postgres_type, "9" * 9999)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "n/a"])
def test_what_is_no_number_is_not_too_large(text: str) -> None:
    """Another check tells whether it can be cast."""
    assert can_hold("numeric(5,2)", text)
