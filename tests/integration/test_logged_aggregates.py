"""What the log says of an aggregate that is to be corrected."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from reconcile.audit.events import with_gone
from reconcile.contract.model import Topic
from reconcile.repair.logged_aggregates import LoggedAggregate, logged_aggregates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = (
    "id string, key binary, partition int, offset bigint, timestamp timestamp, version string, type string,"
    " deletes boolean, readable boolean, value string"
)
TOPIC = {"cluster": "main", "name": "t"}
NOW, FAR = datetime(2026, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)


def test_the_offset_decides_what_is_newest_in_a_partition(spark: SparkSession) -> None:
    """A deletion by a producer whose clock is fast does not hide that the aggregate was created again."""
    rows = [
        ("a", b"a", 0, 2, FAR, "5", "Created", False, True, '{"name": "old"}'),
        ("a", b"a", 0, 3, FAR, None, None, True, True, None),
        ("a", b"a", 0, 4, NOW, "7", "Renamed", False, True, '{"name": "new"}'),
    ]
    records, ids = spark.createDataFrame(rows, RECORDS), spark.createDataFrame([("a",)], "id string")
    found = LoggedAggregate({0: 4}, b"a", 0, 7, "Renamed", {"name": "new"}, "7", alive=True)
    assert {"a": found} == logged_aggregates(with_gone(records, Topic.model_validate(TOPIC)), ids, ())


def test_a_deletion_by_the_contracts_test_deletes(spark: SparkSession) -> None:
    """An orphan that the log deletes is not told to wait for its owner, however a deletion is written."""
    rows = [
        ("a", b"a", 0, 2, NOW, "5", None, False, True, '{"name": "old", "gone": "false"}'),
        ("a", b"a", 0, 3, NOW, "6", None, False, True, '{"name": "old", "gone": "true"}'),
        ("b", b"b", 0, 4, NOW, "1", None, False, True, '{"name": "new", "gone": "false"}'),
    ]
    records, ids = spark.createDataFrame(rows, RECORDS), spark.createDataFrame([("a",), ("b",)], "id string")
    topic = Topic.model_validate({**TOPIC, "delete": "$.gone == 'true'"})
    found = logged_aggregates(with_gone(records, topic), ids, ())
    assert {"a": False, "b": True} == {name: each.alive for name, each in found.items()}
