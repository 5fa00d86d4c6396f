"""The canonical form in Spark: the same texts as `digest` has Postgres compute.

For stores that are no Postgres: Parquet, and what Spark reads by JDBC. Rows of a Postgres come as canonical text
(`digest.rows`), because Spark's JDBC source loses some values: the microseconds of a time, NaN and infinity, numerics
of more than 38 digits, instants after 9999 or before 1, and what it takes for a gap in October 1582. The session has
to be in UTC with ANSI on, as `reconcile.spark.session` has it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253
from pyspark.sql import types as t  # noqa: TID253

from reconcile.domain.canonical import CanonicalType, Kind, Layout, json_text
from reconcile.errors import RefusedError


def types(frame: DataFrame, columns: Layout[str]) -> Layout[str]:
    """List the types of a frame's columns by the names that Postgres has for them, to agree on the canonical form."""
    version = None if columns.version is None else _postgres_type(frame.schema[columns.version].dataType)
    return Layout(
        tuple(_postgres_type(frame.schema[name].dataType) for name in columns.id),
        version,
        tuple(_postgres_type(frame.schema[name].dataType) for name in columns.fields),
    )


def rows(frame: DataFrame, columns: Layout[str], form: Layout[CanonicalType]) -> DataFrame:
    """Build what `digest.rows` reads of a Postgres; a float's text may differ, the number that it says does not."""
    id_text, values = _texts(frame, columns, form)
    version = f.lit(None) if columns.version is None else frame[columns.version]
    return frame.select(
        id_text.alias("reconcile_id"),
        version.cast("string").alias("reconcile_version"),
        *(f.coalesce(text, raw).alias(f"field_{number}") for number, (raw, text) in enumerate(values)),
    )


def text(frame: DataFrame, name: str, to: CanonicalType) -> Column | None:
    """Build a column's canonical text, NULL where a value has none; None where Spark has none for its type.

    It takes more than rows may hold: what an expression gives of an event need not be cast bit by bit as Postgres does.
    """
    value, own = frame[name], frame.schema[name].dataType
    if to.element is Kind.FLOAT:
        return None  # the text of a row's array of floats is Postgres' own
    if to.element is not None and isinstance(own, t.StringType):
        own = t.ArrayType(t.StringType())
        value = f.from_json(value, own)
        if to.element in (Kind.INTEGER, Kind.BOOLEAN):
            return _from_texts(value, to.element)
    elif isinstance(own, t.FractionalType) and to.kind is Kind.INTEGER:
        value, own = value.cast("string"), t.StringType()
    elif isinstance(own, t.DoubleType | t.FloatType) and to.kind in (Kind.NUMERIC, Kind.TEXT):
        value, own = _number(value.cast("string")), t.StringType()
    try:
        return _shown(value, own, to)
    except LookupError:
        return None


def _texts(
    frame: DataFrame,
    columns: Layout[str],
    form: Layout[CanonicalType],
) -> tuple[Column, list[tuple[Column, Column]]]:
    """Build the id's text, and for each value the text that it has anyway and its canonical text."""
    used = Layout(columns.id, None, columns.fields)
    values = []
    for name, to in zip(used.columns(), form.columns(), strict=True):
        field = frame.schema[name]
        value = frame[name]
        if field.metadata.get("__CHAR_VARCHAR_TYPE_STRING", "").startswith("char("):
            value = f.rtrim(value)
        try:
            text = _shown(value, field.dataType, to)
        except LookupError:
            problem = f"the column {name}, {field.dataType.simpleString()} in Spark, has no canonical form as {to}"
            raise RefusedError(f"{problem}: cast it in the contract's SQL, or compare in the mode full") from None
        raw = value if isinstance(field.dataType, t.StringType) else f.lit(None).cast("string")
        values.append((raw, text))
    ids = [text for _, text in values[: len(form.id)]]
    if len(ids) > 1:
        parts = [_id_part(text, to) for text, to in zip(ids, form.id, strict=True)]
        separated = [part for each in parts for part in (f.lit(","), each)][1:]
        ids = [f.concat(f.lit("["), *separated, f.lit("]"))]
    return ids[0], values[len(form.id) :]


def _id_part(text: Column, to: CanonicalType) -> Column:
    if to.kind is Kind.INTEGER:
        return text
    return f.when(text.rlike(_DECIMAL), text).otherwise(_quote(text)) if to.bare else _quote(text)


def _quote(text: Column) -> Column:
    written = f.to_json(f.array(text))
    return f.when(text.isNotNull(), f.substring(written, f.lit(2), f.length(written) - 2))


def _shown(value: Column, own: t.DataType, to: CanonicalType) -> Column:
    if to.kind is Kind.FLOAT:
        return (value.try_cast("float") if to.single else value).try_cast("double").cast("string")
    if to.element is None:
        return _scalar(value, own, to.kind)
    if not isinstance(own, t.ArrayType):
        raise LookupError
    element, inner = to.element, own.elementType
    if element in _BY_PYTHON:
        write = _BY_PYTHON[element]
        each = _udf(lambda values: None if values is None else [write(one) for one in values], "array<string>")
        texts = each(value.cast("array<double>") if element is Kind.FLOAT else value)
    elif isinstance(inner, t.StringType) and element not in (Kind.TEXT, Kind.OTHER, Kind.UUID):
        raise LookupError
    else:
        texts = f.transform(value, lambda one: _scalar(one, inner, element))
    return _array(texts)


def _from_texts(values: Column, element: Kind) -> Column:
    """Build the canonical text of an array of texts; NULL where one of them is no such element."""
    texts = f.transform(values, lambda one: _from_text(one, element))
    all_read = f.size(f.array_compact(values)) == f.size(f.array_compact(texts))
    return f.when(all_read, _array(texts))


def _array(texts: Column) -> Column:
    return f.concat(f.lit("{"), f.array_join(f.transform(texts, _array_element), ","), f.lit("}"))


def _array_element(text: Column) -> Column:
    special = (text == "") | (f.upper(text) == "NULL") | text.rlike(r'[{}",\\ \t\n\x0B\f\r]')
    quoted = f.concat(f.lit('"'), f.regexp_replace(text, r'(["\\])', r"\\$1"), f.lit('"'))
    return f.when(text.isNull(), f.lit("NULL")).when(special, quoted).otherwise(text)


def _scalar(value: Column, own: t.DataType, to: Kind) -> Column:
    """Build the canonical text of a value; raise LookupError where Spark does not have the same."""
    if isinstance(own, t.StringType):
        return _from_text(value, to)
    text = value.cast("string") if not isinstance(own, t.BinaryType) else f.lower(f.hex(value))
    match to, own:
        case Kind.TEXT | Kind.OTHER, t.IntegralType() | t.BooleanType() | t.DecimalType():
            return text
        case (Kind.BOOLEAN, t.BooleanType()) | (Kind.INTEGER | Kind.NUMERIC, t.IntegralType()):
            return text
        case (Kind.DATE, t.DateType()) | (Kind.TIMESTAMP, t.TimestampType() | t.TimestampNTZType()):
            return _year(text)
        case Kind.DATE, t.TimestampType() | t.TimestampNTZType():
            return _year(value.try_cast("date").cast("string"))
        case Kind.TIMESTAMP, t.DateType():
            return _year(value.try_cast("timestamp").cast("string"))
        case Kind.NUMERIC, t.DecimalType():
            return _trimmed(text) if own.scale else text
        case Kind.NUMERIC, t.BooleanType():
            return value.cast("int").cast("string")
        case Kind.BYTEA, t.BinaryType():
            return text
        case Kind.UUID, t.BinaryType():
            return _uuid(text)
        case Kind.TIME, t.TimestampType() | t.TimestampNTZType():
            return _trimmed(f.date_format(value, "HH:mm:ss.SSSSSS"))
    raise LookupError


def _from_text(text: Column, to: Kind) -> Column:
    match to:
        case Kind.TEXT | Kind.OTHER:
            return text
        case Kind.DATE | Kind.TIMESTAMP:
            return _year(text.try_cast(to.value).cast("string"))
        case Kind.BOOLEAN:
            return _boolean(f.lower(f.trim(text)))
        case Kind.INTEGER | Kind.NUMERIC:
            return _number(f.trim(text))
        case Kind.UUID:
            return _uuid(text)
        case Kind.TIME:
            return f.when(text.rlike(r"^\d\d:\d\d:\d\d(\.\d{1,6})?$"), _trimmed(text))
        case Kind.JSON:
            return _udf(_json, "string")(text)
    raise LookupError


def _trimmed(plain: Column) -> Column:
    return f.when(plain.contains("."), f.regexp_replace(plain, r"\.?0*$", "")).otherwise(plain)


def _number(text: Column) -> Column:
    special = {"nan": "NaN", **dict.fromkeys(("infinity", "inf", "+infinity", "+inf"), "Infinity")}
    special |= dict.fromkeys(("-infinity", "-inf"), "-Infinity")
    lower = f.lower(text)
    digits = _trimmed(f.regexp_replace(f.regexp_replace(text, r"^\+", ""), r"^(-?)0+(?=\d)", "$1"))
    plain = f.when(digits.isin("-0", "-"), f.lit("0")).otherwise(f.regexp_replace(digits, r"^(-?)(?=\.)", "$10"))
    found = f.when(text.rlike(r"^[+-]?(\d+\.?\d*|\.\d+)$"), plain)
    exponent = _trimmed(text.try_cast("decimal(38,18)").cast("string"))
    found = found.when(text.rlike(r"^[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+$"), exponent)
    return reduce(lambda so_far, word: so_far.when(lower == word, f.lit(special[word])), special, found)


def _boolean(word: Column) -> Column:
    said = f.when(word.isin("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"), "true")
    return said.when(word.isin("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"), "false")


def _uuid(text: Column) -> Column:
    digits = f.regexp_replace(f.regexp_replace(f.lower(text), r"^\{(.*)\}$", "$1"), "-", "")
    groups = f.regexp_replace(digits, r"^(.{8})(.{4})(.{4})(.{4})(.{12})$", "$1-$2-$3-$4-$5")
    return f.when(digits.rlike(r"^[0-9a-f]{32}$"), groups)


def _year(text: Column) -> Column:
    """Write the years before 1 and after 9999 as Postgres does."""
    year = f.lpad((f.regexp_extract(text, r"^-?(\d+)", 1).cast("int") + 1).cast("string"), 4, "0")
    before_christ = f.concat(year, f.regexp_extract(text, r"^-?\d+(.*)$", 1), f.lit(" BC"))
    return f.when(text.rlike(r"^(-|0000)"), before_christ).otherwise(f.regexp_replace(text, r"^\+", ""))


def _udf(write: Callable[..., object], returned: str) -> Callable[[Column], Column]:
    # Not by Arrow: on its way a NaN can become NULL.
    return f.udf(write, returned, useArrow=False)


def _bits(value: float | None) -> str | None:
    if value is None:
        return None
    # One zero, and one NaN.
    return struct.pack(">d", float("nan") if value != value else value + 0.0).hex()


def _json(text: str | None) -> str | None:
    return None if text is None else json_text(text)


def _postgres_type(own: t.DataType) -> str:
    if isinstance(own, t.ArrayType):
        return _postgres_type(own.elementType) + "[]"
    return next((name for kind, name in _POSTGRES_TYPES if isinstance(own, kind)), own.simpleString())


_DECIMAL = r"^(0|-?[1-9][0-9]*)\z"
_BY_PYTHON: dict[Kind, Callable[..., str | None]] = {Kind.FLOAT: _bits, Kind.JSON: _json}
_POSTGRES_TYPES: Sequence[tuple[type[t.DataType], str]] = (
    (t.BooleanType, "boolean"),
    (t.IntegralType, "bigint"),
    (t.DecimalType, "numeric"),
    (t.FractionalType, "double precision"),
    (t.StringType, "text"),
    (t.TimestampType, "timestamp with time zone"),
    (t.TimestampNTZType, "timestamp without time zone"),
    (t.DateType, "date"),
    (t.BinaryType, "bytea"),
)
