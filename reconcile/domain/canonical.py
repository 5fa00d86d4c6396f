"""The canonical form of compared values: the type that both sides are cast to, and its text in Postgres' SQL.

Two values are equal when their canonical texts are. Numbers have no trailing zeros, instants are in UTC with
microseconds, uuids are lower-case, JSON has its keys sorted and no spaces, arrays are written element by element, text
is as it is; char(n) is text without its padding. The SQL relies on the settings that `gather.digest` makes: UTC, ISO.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Generic, TypeVar

from reconcile.domain.json_text import write as write_json

T = TypeVar("T")


class Kind(StrEnum):
    """The kinds of values that are compared; the values of `OTHER` are compared by the text that Postgres gives."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMERIC = "numeric"
    FLOAT = "float"
    TEXT = "text"
    UUID = "uuid"
    TIMESTAMP = "timestamp"
    DATE = "date"
    TIME = "time"
    BYTEA = "bytea"
    JSON = "json"
    ARRAY = "array"
    OTHER = "other"


@dataclass(frozen=True)
class CanonicalType:
    """What a field is compared as."""

    kind: Kind
    element: Kind | None = None
    """The kind of an array's elements."""
    bare: bool = False
    """Whether text in an id of several columns stands without quotes where it is an integer, as in the source's."""
    single: bool = False
    """Whether floats are rounded to the four bytes of a `real`: 0.1 in an event is what such a column holds of it."""

    @property
    def postgres(self) -> str:
        """The type in Postgres that holds every value of it."""
        return f"{_HOLDS[self.element]}[]" if self.element else _HOLDS[self.kind]

    def __str__(self) -> str:
        return f"{self.element}[]" if self.element else str(self.kind)


@dataclass(frozen=True)
class Layout(Generic[T]):
    """One thing for each column that is read: of the id, the version and the compared fields."""

    id: tuple[T, ...]
    version: T | None
    fields: tuple[T, ...]

    def columns(self) -> tuple[T, ...]:
        """Build the list of all of them, in that order."""
        return (*self.id, *(() if self.version is None else (self.version,)), *self.fields)


@dataclass(frozen=True)
class Cast:
    """SQL that casts a value of any row without an error."""

    value: str
    """The value; NULL also where it cannot be cast."""
    checked: bool
    """Whether there are values that cannot be cast; Postgres tells since version 16."""


def canonical_type(postgres_type: str) -> CanonicalType:
    """Choose what values of a type are compared as; the name is as pg_typeof or format_type writes it."""
    name = _plain(postgres_type)
    if name.endswith("[]"):
        return CanonicalType(Kind.ARRAY, _KINDS.get(name.removesuffix("[]"), Kind.OTHER))
    return CanonicalType(_KINDS.get(name, Kind.OTHER))


def agreed(consumer: str, source: str) -> CanonicalType:
    """Choose what a field is compared as: the type of the consumer's expression.

    But an integer and what is none are compared as numeric: a cast to integer would round 12.5 to the copy's 13. And
    floats of which one side is a `real` are compared as that.
    """
    to, own = canonical_type(consumer), canonical_type(source)
    if to.kind is Kind.FLOAT and "real" in (_plain(consumer), _plain(source)):
        return replace(to, single=True)
    if to.element is Kind.INTEGER and own.element is not Kind.INTEGER:
        return CanonicalType(Kind.ARRAY, Kind.NUMERIC)
    if to.kind is Kind.INTEGER and own.kind is not Kind.INTEGER:
        return CanonicalType(Kind.NUMERIC)
    return to


def agreed_layout(consumer: Layout[str], source: Layout[str]) -> Layout[CanonicalType]:
    """Choose what each column is compared as; versions are not compared."""
    if len(consumer.id) != len(source.id) or len(consumer.fields) != len(source.fields):
        raise ValueError("both sides need the same number of columns in their ids, and of fields")
    return Layout(
        id=tuple(_agreed_id(*types, len(source.id) > 1) for types in zip(consumer.id, source.id, strict=True)),
        version=None,
        fields=tuple(agreed(*types) for types in zip(consumer.fields, source.fields, strict=True)),
    )


def cast(value: str, own: str, to: CanonicalType) -> Cast:
    """Build SQL that casts a value of the type `own`."""
    found = _cast(value, own, to)
    if not to.single or _plain(own) == "real":
        return found
    # Postgres refuses to round what a `real` cannot hold, so that stays as it is.
    held = f"{found.value} = 0 or abs({found.value}) between 1.5e-45 and 3.4028235e38"
    rounded = f"(case when {held} then {found.value}::real::double precision else {found.value} end)"
    return replace(found, value=rounded)


def _cast(value: str, own: str, to: CanonicalType) -> Cast:
    if to.kind in (Kind.TEXT, Kind.OTHER):
        return Cast(f"{value}::text", checked=False)
    name, of = _plain(own), canonical_type(own)
    kinds = (of.element, to.element) if to.element else (of.kind, to.kind)
    same_shape = (of.element is None) is (to.element is None)
    if same_shape and (kinds[0] is kinds[1] or kinds in _NEVER_FAILS) and name.removesuffix("[]") != "json":
        if name == "timestamp without time zone" or (of.kind, to.kind) == (Kind.TIMESTAMP, Kind.DATE):
            value = f"({value} at time zone 'UTC')"
        if kinds == (Kind.BOOLEAN, Kind.NUMERIC):
            value = f"{value}::integer{'[]' if to.element else ''}"
        return Cast(f"{value}::{to.postgres}", checked=False)
    # Postgres has no cast that gives NULL instead of an error, but it can be asked whether there would be one.
    fits = f"pg_input_is_valid({value}::text, '{to.postgres}')"
    return Cast(f"(case when {fits} then {value}::text::{to.postgres} end)", checked=True)


def shown(value: str, to: CanonicalType) -> str:
    """Build SQL for the canonical text of a value that has been cast; floats as Postgres writes them."""
    return f"{value}::text" if Kind.FLOAT in (to.kind, to.element) else portable(value, to)


def portable(value: str, to: CanonicalType) -> str:
    """Build SQL for the canonical text of a value that has been cast; floats as their 64 bits, in hexadecimal."""
    if to.element is None:
        return _TEXT.get(to.kind, "{}::text").format(value)
    element = _TEXT.get(to.element, "{}::text").format("e")
    several = f"case when array_ndims({value}) > 1 then array_dims({value}) || '=' else '' end"
    # The only names in it are our own.
    elements = f"array(select {element} from unnest({value}) with ordinality as u(e, o) order by o)"  # noqa: S608
    return f"case when {value} is not null then {several} || {elements}::text end"


def native(value: str, to: CanonicalType) -> str:
    """Build SQL for a value that has been cast as hash_record_extended should see it.

    As bytes wherever Postgres' own hash leaves something out: it ignores the sign of a numeric, tells NaN from no
    infinity, folds 64-bit integers and instants into 32 bits, and overlooks how arrays and JSON are nested.
    """
    return _BYTES.get(to.kind, portable(value, to) + ' collate "C"').format(value)


def json_text(text: str) -> str | None:
    """Compute the canonical text of JSON; None for what Postgres would not take as jsonb."""
    try:
        parsed = json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=_refuse)
        canonical = write_json(parsed, _members, _scalar)
        canonical.encode()
    except (ValueError, ArithmeticError, RecursionError):
        return None
    return canonical


def version_number(text: str | None) -> int | None:
    """Parse a version, a whole number or an instant, to a number that grows as it does; None for what is neither."""
    if text is None:
        return None
    if is_whole(text):
        return int(text.strip().partition(".")[0])
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    since = (at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def is_whole(version: str) -> bool:
    """Whether a version is a plain number."""
    return _WHOLE.fullmatch(version.strip()) is not None


def can_hold(postgres_type: str, text: str) -> bool:
    """Whether a column can hold a value by its canonical text, as far as the column's length or range tells."""
    name, sizes = _plain(postgres_type), [int(size) for size in re.findall(r"\d+", postgres_type.partition("(")[2])]
    if name in ("varchar", "character varying", "char", "character", "bpchar") and sizes:
        return len(text.rstrip(" ")) <= sizes[0]
    if name not in _WHOLE_NUMBERS and not (name == "numeric" and len(sizes) == 2):
        return True
    try:
        number = Decimal(text)
    except ArithmeticError:
        return True
    if not number.is_finite():
        return True
    if name in _WHOLE_NUMBERS:
        return -_WHOLE_NUMBERS[name] <= number < _WHOLE_NUMBERS[name]
    return not number or number.adjusted() < sizes[0] - sizes[1]


def _agreed_id(consumer: str, source: str, composite: bool) -> CanonicalType:
    to, own = canonical_type(consumer), canonical_type(source)
    if to == own and to.kind in (Kind.UUID, Kind.INTEGER):
        return to
    return CanonicalType(Kind.TEXT, bare=composite and own.kind is Kind.INTEGER)


def _plain(postgres_type: str) -> str:
    name = re.sub(r"\s+", " ", re.sub(r"\([^)]*\)", "", postgres_type)).strip().removeprefix("pg_catalog.")
    array = "[]" if name.endswith("[]") or re.match("_[a-z]", name) else ""
    name = name.removesuffix("[]").removeprefix("_" if array else "").lower()
    return _SYNONYMS.get(name, name) + array


def _members(value: Mapping[str, object]) -> list[tuple[str, object]]:
    return sorted(value.items(), key=lambda member: (len(member[0].encode()), member[0].encode()))


def _scalar(value: object) -> str:
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, str) and "\0" in value:
        raise ValueError("jsonb holds no NUL")
    return json.dumps(value, ensure_ascii=False)


def _number(value: Decimal) -> str:
    exponent = value.as_tuple().exponent
    if value and (not isinstance(exponent, int) or exponent < -_SCALE or value.adjusted() >= _DIGITS):
        raise ValueError("numeric holds no such number")
    plain = format(value, "f") if value else "0"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


_WHOLE_NUMBERS = {"smallint": 1 << 15, "integer": 1 << 31, "bigint": 1 << 63}
_WHOLE = re.compile(r"[+-]?\d{1,30}(\.0+)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What numeric can hold.
_DIGITS, _SCALE = 131_072, 16_383
_SYNONYMS: Mapping[str, str] = {
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "bool": "boolean",
    "float4": "real",
    "float8": "double precision",
    "decimal": "numeric",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "time": "time without time zone",
}
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("smallint", "integer", "bigint"), Kind.INTEGER),
    **dict.fromkeys(("real", "double precision"), Kind.FLOAT),
    **dict.fromkeys(("text", "varchar", "character varying", "char", "character", "bpchar"), Kind.TEXT),
    **dict.fromkeys(("citext", "name"), Kind.TEXT),
    **{f"timestamp {zone} time zone": Kind.TIMESTAMP for zone in ("with", "without")},
    "time without time zone": Kind.TIME,
    **dict.fromkeys(("json", "jsonb"), Kind.JSON),
    **{kind.value: kind for kind in (Kind.BOOLEAN, Kind.NUMERIC, Kind.UUID, Kind.DATE, Kind.BYTEA)},
}
_HOLDS: Mapping[Kind, str] = {
    **{kind: kind.value for kind in Kind},
    Kind.INTEGER: "bigint",
    Kind.FLOAT: "double precision",
    Kind.TIMESTAMP: "timestamp with time zone",
    Kind.TIME: "time without time zone",
    Kind.JSON: "jsonb",
    Kind.OTHER: "text",
}
_NEVER_FAILS = {
    (Kind.INTEGER, Kind.NUMERIC),
    (Kind.INTEGER, Kind.FLOAT),
    (Kind.FLOAT, Kind.NUMERIC),
    (Kind.BOOLEAN, Kind.NUMERIC),
    (Kind.TIMESTAMP, Kind.DATE),
    (Kind.OTHER, Kind.TEXT),
    (Kind.TEXT, Kind.OTHER),
}
_ZEROS_AND_SPACES = r"""("(?:[^"\\]|\\.)*")|(\.[0-9]*[1-9])0+\M|\.0+\M| """
_TEXT: Mapping[Kind, str] = {
    Kind.NUMERIC: "trim_scale({})::text",
    Kind.FLOAT: "encode(float8send(case {0} when 'NaN' then 'NaN' when 0 then 0 else {0} end), 'hex')",
    Kind.TIMESTAMP: "({} at time zone 'UTC')::text",
    Kind.BYTEA: "encode({}, 'hex')",
    Kind.JSON: "regexp_replace({}::text, '" + _ZEROS_AND_SPACES + r"', '\1\2', 'g')",
}
_AS_THEY_ARE = dict.fromkeys((Kind.BOOLEAN, Kind.UUID, Kind.DATE, Kind.BYTEA), "{}")
_BYTES: Mapping[Kind, str] = {
    **_AS_THEY_ARE,
    Kind.INTEGER: "int8send({})",
    Kind.NUMERIC: "numeric_send(trim_scale({}))",
    Kind.FLOAT: "float8send(case {0} when 'NaN' then 'NaN' when 0 then 0 else {0} end)",
    Kind.TEXT: '{} collate "C"',
    Kind.TIMESTAMP: "timestamptz_send({})",
    Kind.TIME: "time_send({})",
}
