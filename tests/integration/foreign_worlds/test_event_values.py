"""What records say of the compared fields: in canonical form, whatever type an expression gives them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from reconcile.audit.columns import BAD, TELLS, VALUES
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


def told(spark: SparkSession, expression: str, form: CanonicalType, value: dict[str, Any]) -> tuple[bool, Any, bool]:
    """Give whether a record tells of a field, its text, and whether it cannot be read."""
    field = {"name": "x", "source": "x", "consumer": "x", "event": expression}
    consumer = Consumer.model_validate(
        {"name": "c", "group": "g", "store": "s", "table": "t", "id": "i", "fields": [field]}
    )
    row = ("1", b"1", 0, 0, None, None, "e", None, True, False, json.dumps(value))
    frame = event_values(spark, spark.createDataFrame([row], _COLUMNS), TOPIC, consumer, [form])
    found = frame.collect()[0]
    return found[TELLS][0], found[VALUES][0], found[BAD][0]


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
        ("cast($.x as int)", CanonicalType(Kind.INTEGER)),
    ],
)
def test_a_value_of_another_type_cannot_be_read(spark: SparkSession, expression: str, form: CanonicalType) -> None:
    """It is there and has no canonical form."""
    assert (True, None, True) == told(spark, expression, form, {"x": "maybe"})
