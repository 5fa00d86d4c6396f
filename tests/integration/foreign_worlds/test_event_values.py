"""What records say of the compared fields: in canonical form, whatever type an expression gives them."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from reconcile.audit.columns import BAD, TELLS, UNTOLD, VALUES
from reconcile.audit.events import event_values
from reconcile.contract.model import Consumer, Topic
from reconcile.domain.canonical import CanonicalType, Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = Topic.model_validate({"cluster": "main", "name": "t"})
_COLUMNS = (
    "id string, key binary, partition int, offset bigint, timestamp timestamp, version string, event_id string,"
    " type string, readable boolean, deletes boolean, value string"
)


def told(
    spark: SparkSession, expression: str | dict[str, str], form: CanonicalType, value: dict[str, Any]
) -> tuple[bool, Any, bool]:
    """Give whether a record tells of a field, its text, and whether it cannot be read."""
    tells, text, bad, _ = said(spark, expression, form, value)
    return tells, text, bad


def said(
    spark: SparkSession, expression: str | dict[str, str], form: CanonicalType, value: dict[str, Any]
) -> tuple[bool, Any, bool, bool]:
    """Give that, and whether the record leaves the field out."""
    field = {"name": "x", "source": "x", "consumer": "x", "event": expression}
    consumer = Consumer.model_validate(
        {"name": "c", "group": "g", "store": "s", "table": "t", "id": "i", "fields": [field]}
    )
    row = ("1", b"1", 0, 0, None, None, "e", None, True, False, json.dumps(value))
    frame = event_values(spark, spark.createDataFrame([row], _COLUMNS), TOPIC, consumer, [form])
    found = frame.collect()[0]
    return found[TELLS][0], found[VALUES][0], found[BAD][0], found[UNTOLD][0]


@pytest.mark.parametrize(
    ("expression", "form", "value", "expected"),
    [
        ("$.x", CanonicalType(Kind.BOOLEAN), True, "true"),
        ("$.x", CanonicalType(Kind.BOOLEAN), "No", "false"),
        ("cast($.x as decimal(12,8))", CanonicalType(Kind.NUMERIC), "0.00000001", "0.00000001"),
        ("cast($.x as decimal(12,8))", CanonicalType(Kind.NUMERIC), 0, "0"),
        ("cast($.x as decimal(12,2)) * 100", CanonicalType(Kind.INTEGER), "1.25", "125"),
        ("cast($.x as double)", CanonicalType(Kind.NUMERIC), 12.5, "12.5"),
        ("cast($.x as double)", CanonicalType(Kind.TEXT), 3, "3"),
        ("$.x", CanonicalType(Kind.ARRAY, Kind.TEXT), ["a b", "c"], '{"a b",c}'),
        ("$.x", CanonicalType(Kind.ARRAY, Kind.INTEGER), [1, -20, None], "{1,-20,NULL}"),
        ("$.x", CanonicalType(Kind.ARRAY, Kind.BOOLEAN), [True, False], "{true,false}"),
        ("$.x", CanonicalType(Kind.FLOAT, single=True), 0.1, "0.10000000149011612"),
        ("cast($.x as double)", CanonicalType(Kind.FLOAT, single=True), 0.1, "0.10000000149011612"),
        ("cast(nullif($.x, '') as decimal(6,2))", CanonicalType(Kind.NUMERIC), "", None),
    ],
)
def test_an_event_tells_of_a_field_in_its_canonical_form(
    spark: SparkSession, expression: str, form: CanonicalType, value: Any, expected: str | None
) -> None:
    """Text of JSON becomes the field's type, and nothing that was meant as NULL counts as unreadable."""
    assert (True, expected, False) == told(spark, expression, form, {"x": value})


@pytest.mark.parametrize(
    ("expression", "form"),
    [
        ("$.x", CanonicalType(Kind.BOOLEAN)),
        ("$.x", CanonicalType(Kind.ARRAY, Kind.TEXT)),
        ("$.x", CanonicalType(Kind.ARRAY, Kind.INTEGER)),
        ("cast($.x as int)", CanonicalType(Kind.INTEGER)),
    ],
)
def test_a_value_of_another_type_cannot_be_read(spark: SparkSession, expression: str, form: CanonicalType) -> None:
    """It is there and has no canonical form: it stays as it stands."""
    assert (True, "maybe", True) == told(spark, expression, form, {"x": "maybe"})


PLACEHOLDER = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("expression", "form", "value"),
    [
        ("$.x", CanonicalType(Kind.TEXT), PLACEHOLDER),
        ("upper($.x)", CanonicalType(Kind.TEXT), PLACEHOLDER),
        ("unbase64($.x)", CanonicalType(Kind.BYTEA), base64.b64encode(PLACEHOLDER.encode()).decode()),
        ("$.x", CanonicalType(Kind.ARRAY, Kind.TEXT), [PLACEHOLDER]),
        ("$.x", CanonicalType(Kind.TEXT), list(PLACEHOLDER.encode())),
        ("$.x", CanonicalType(Kind.JSON), {PLACEHOLDER: PLACEHOLDER}),
        ("$.x", CanonicalType(Kind.JSON), PLACEHOLDER),
        ("cast($.x as int)", CanonicalType(Kind.INTEGER), PLACEHOLDER),
    ],
)
def test_a_record_that_leaves_a_value_out_tells_nothing_of_the_field(
    spark: SparkSession, expression: str, form: CanonicalType, value: Any
) -> None:
    """The placeholder is no value, in whichever form the column's type gives it, and nothing that cannot be read."""
    assert (False, None, False, True) == said(spark, expression, form, {"x": value})


def test_a_record_tells_what_it_does_not_leave_out(spark: SparkSession) -> None:
    """A text that has the placeholder in it is one."""
    text = f"not {PLACEHOLDER}"
    assert (True, text, False, False) == said(spark, "$.x", CanonicalType(Kind.TEXT), {"x": text})


@pytest.mark.parametrize(
    ("encoding", "kind", "value", "expected"),
    [
        ("decimal(12,2)", Kind.NUMERIC, "BNI=", "12.34"),
        ("decimal(38,4)", Kind.NUMERIC, "//8=", "-0.0001"),
        ("decimal(12,2)", Kind.NUMERIC, {"scale": 1, "value": "BNI="}, "123.4"),
        ("epoch_days", Kind.DATE, -1, "1969-12-31"),
        ("epoch_millis", Kind.TIMESTAMP, -1, "1969-12-31 23:59:59.999"),
        ("epoch_micros", Kind.TIMESTAMP, 1767323045000006, "2026-01-02 03:04:05.000006"),
        ("epoch_nanos", Kind.TIMESTAMP, 1767323045000006000, "2026-01-02 03:04:05.000006"),
        ("epoch_micros", Kind.DATE, 1767323045000006, "2026-01-02"),
        ("micros_of_day", Kind.TIME, 11045000006, "03:04:05.000006"),
        ("iso_interval", Kind.OTHER, "P1Y2M3DT4H5M6.78S", "1 year 2 mons 3 days 04:05:06.78"),
        ("micro_duration", Kind.OTHER, 90_000_000_000, "25:00:00"),
        ("base64", Kind.BYTEA, "3q0=", "dead"),
        ("decimal(12,2)", Kind.NUMERIC, None, None),
    ],
)
def test_an_event_tells_of_a_field_as_connectors_write_it(
    spark: SparkSession, encoding: str, kind: Kind, value: Any, expected: str | None
) -> None:
    """A path and the form of its value, instead of SQL that takes bytes apart."""
    event = {"path": "$.x", "as": encoding}
    assert (True, expected, False) == told(spark, event, CanonicalType(kind), {"x": value})


@pytest.mark.parametrize(("encoding", "value"), [
    ("decimal(4,2)", "gibberish"), ("epoch_days", "soon"), ("epoch_micros", 10**18), ("base64", "%"),
])  # fmt: skip
def test_a_value_in_another_form_cannot_be_read(spark: SparkSession, encoding: str, value: Any) -> None:
    """One record that breaks the form does not end the run."""
    event = {"path": "$.x", "as": encoding}
    kind = Kind.BYTEA if encoding == "base64" else Kind.TEXT
    assert (True, None, True) == told(spark, event, CanonicalType(kind), {"x": value})
