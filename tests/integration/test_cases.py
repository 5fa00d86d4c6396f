"""From what was read to cases: of an id that has very much, the newest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from reconcile.audit.cases import MOST_EVENTS, Readings, joined, newest
from reconcile.audit.link_facts import Reach, ledger_reach
from reconcile.gather import ledger
from reconcile.gather.parked import SCHEMA as PARKED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# The sockets that PySpark leaves to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore")


def frame(spark: SparkSession, rows: int, schema: str, **columns: Column) -> DataFrame:
    """Give many rows of the id `hot`, one a second by the number of each, in a random order."""
    from pyspark.sql import functions as f

    known = {"id": f.lit("hot"), "partition": f.lit(0), "offset": f.col("number"), **columns}
    numbered = spark.range(rows).orderBy(f.xxhash64("id")).withColumnRenamed("id", "number")
    types = [each.split() for each in schema.split(", ")]
    return numbered.select(*(known.get(name, f.lit(None)).cast(kind).alias(name) for name, kind in types))


def test_of_a_hot_key_the_newest_is_kept(spark: SparkSession) -> None:
    """Its newest events, their number in all, their entries in the ledger, and first of all what is unresolved."""
    from pyspark.sql import functions as f

    many = 3 * MOST_EVENTS
    at = f.timestamp_seconds("number")
    columns = "id string, partition int, offset bigint, timestamp timestamp"
    kept = newest(frame(spark, many, columns, timestamp=at))
    assert (MOST_EVENTS, many - MOST_EVENTS) == kept.agg(f.count("*"), f.min("offset")).first()
    resolved = f.when(f.col("number") >= 5, "its group has committed past it")
    row = spark.createDataFrame([("hot", None, "a")], "reconcile_id string, reconcile_version string, field_0 string")
    suspects = "id string, settled_version string, settled_fields array<string>, differs boolean"
    (case,) = joined(
        Readings(
            suspects=spark.createDataFrame([("hot", None, ["a"], True)], suspects),
            source=row,
            copy=row,
            events=kept,
            parked=frame(spark, many, PARKED, at=at, resolved=resolved),
            ledger=frame(spark, many, f"id string, {ledger.SCHEMA}", at=at),
            outbox=None,
        )
    ).collect()
    assert (MOST_EVENTS, many) == (len(case["events"]), case["events_total"])
    assert {*range(5), *range(many - 2 * MOST_EVENTS + 5, many)} == {each["offset"] for each in case["parked"]}
    assert {*range(many - 2 * MOST_EVENTS, many)} == {each["offset"] for each in case["ledger"]}


def test_a_ledger_of_ids_alone_knows_from_its_oldest_event_on(spark: SparkSession) -> None:
    """It has neither offsets nor times: the log has the times of the events that it names."""
    log = spark.sql("select concat('E', id) event_id, timestamp_seconds(id) timestamp from range(9)")
    entries = spark.createDataFrame([("e4",), ("e3",), ("of another topic",)], "event_id string").selectExpr(
        "event_id", "cast(null as int) partition", "cast(null as bigint) offset", "cast(null as timestamp) at"
    )
    assert Reach(None, datetime.fromtimestamp(3, UTC)) == ledger_reach(entries, entries, log)
    assert Reach(None, None) == ledger_reach(entries, entries, log.where("event_id = 'E1'"))
