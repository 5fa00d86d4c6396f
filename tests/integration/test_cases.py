"""From what was read to cases: of an id that has very much, the newest."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconcile.audit import latent_candidates
from reconcile.audit.cases import MOST_EVENTS, Readings, case_rows, case_rows_by_spark, newest
from reconcile.audit.link_facts import Reach, ledger_reach
from reconcile.contract.model import Ledger
from reconcile.domain.event import spelled
from reconcile.gather.evidence import ledger
from reconcile.gather.evidence.parked import SCHEMA as PARKED
from reconcile.gather.log.index import Index
from reconcile.gather.log.state import ScannedState
from reconcile.gather.stores.spark_store import SparkStore
from reconcile.spark import local_frames
from tests.integration.runs import jobs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

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
    (case,) = case_rows(
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


def test_few_cases_are_joined_as_spark_joins_them(spark: SparkSession) -> None:
    """With all there is of one id, nothing of another, several rows of a third, and rows without an id."""
    from pyspark.sql import functions as f

    ids = f.element_at(
        f.array(*map(f.lit, ("all", "all", "stranger", "several"))), (f.col("number") % 4 + 1).cast("int")
    )
    at, resolved = f.timestamp_micros(f.col("number") % 7), f.when(f.col("number") % 3 == 0, "done")
    stored = "reconcile_id string, reconcile_version string, field_0 string, field_1 string"
    row = [("all", "2", "a", None), ("several", None, None, "b"), ("several", None, None, "b"), (None, None, "c", "d")]
    suspects = "id string, settled_version string, settled_fields array<string>, differs boolean"
    event = (
        "id string, key binary, partition int, offset bigint, timestamp timestamp, version string, event_id string,"
        " type string, readable boolean, deletes boolean"
    )
    flags, texts = f.array(f.lit(True), f.lit(False)), f.array(f.lit("a"), f.lit(None).cast("string"))
    said = {"tells": flags, "values": texts, "bad": flags, "untold": flags}
    events = frame(spark, 12, event, id=ids, timestamp=at, key=f.lit(b"k"), readable=f.lit(True), deletes=f.lit(False))
    by_spark = Readings(
        suspects=spark.createDataFrame(
            [
                ("all", "1", ["a", None], True),
                ("none", None, None, False),
                ("several", None, ["a", "b"], True),
                (None, None, None, True),
            ],
            suspects,
        ),
        source=spark.createDataFrame(row, stored),
        copy=spark.createDataFrame(row[1:], stored),
        events=newest(events.withColumns(said)),
        parked=frame(spark, 30, PARKED, id=ids, at=at, resolved=resolved, kind=f.lit("stash"), topic=f.lit("t")),
        ledger=frame(spark, 9, f"id string, {ledger.SCHEMA}", id=ids, at=f.when(f.col("number") > 4, at)),
        outbox=spark.createDataFrame([("all", 3, None)], "id string, pending int, pending_since timestamp"),
        undecided=spark.createDataFrame([("all", 1, 2, 3)], "id string, partition int, offset bigint, at bigint"),
    )
    for expected in (by_spark, replace(by_spark, ledger=None, outbox=None, undecided=None)):
        named: dict[str, Any] = {
            name: each and local_frames.localized(each, 100) for name, each in vars(expected).items()
        }
        before = jobs(spark)
        found = case_rows(Readings(**named))
        cases = sorted(map(whole, found.collect()))
        assert before == jobs(spark)
        assert sorted(map(whole, case_rows_by_spark(expected).collect())) == cases
        assert case_rows_by_spark(expected).dtypes == found.dtypes


def whole(case: Row) -> str:
    """Spell a case out; the order of its events and parked records says nothing."""
    listed = case.asDict(recursive=True)
    return repr({name: sorted(map(repr, each)) if isinstance(each, list) else each for name, each in listed.items()})


def test_a_ledger_of_ids_alone_knows_from_its_oldest_event_on(spark: SparkSession) -> None:
    """It has neither offsets nor times: the log has the times of the events that it names."""
    first = "3F2504E0-4F89-11D3-9A0C-0305E82C330"
    log = spark.sql(f"select concat('{first}', id) event_id, timestamp_seconds(id) timestamp from range(9)")
    named = [(f"{first}4",), (f"{first}3".lower(),), ("of another topic",)]
    entries = spark.createDataFrame(named, "event_id string").selectExpr(
        "event_id", "cast(null as int) partition", "cast(null as bigint) offset", "cast(null as timestamp) at"
    )
    assert Reach(None, datetime.fromtimestamp(3, UTC)) == ledger_reach(entries, entries, log)
    assert Reach(None, None) == ledger_reach(entries, entries, log.where(f"event_id = '{first}1'"))


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (["1", "2", "3"], True),
        ([*map(str, range(1, 1000)), "1001"], True),
        ([*map(str, range(1, 10)), "11"], False),
        (["a", None], False),
    ],
)
def test_versions_are_dense_where_most_steps_are_one(
    spark: SparkSession, versions: list[str | None], expected: bool
) -> None:
    """999 of 1,000 are needed, as few gaps make many findings; where nothing counts up, nothing is missing."""
    log = spark.createDataFrame([("a", each, True) for each in versions], "id string, version string, readable boolean")
    index = Index(generation=1, cluster="main", topic="t", topic_id="i", derivation="d")
    (gaps,) = ScannedState(log, index).read(latent_candidates.version_gaps(()))
    assert expected == latent_candidates.are_dense(gaps)


def test_spark_spells_ids_as_we_do(spark: SparkSession) -> None:
    """A uuid in small letters, and all else as it is."""
    uuid = "3F2504E0-4F89-11D3-9A0C-0305E82C3301"
    ids = [uuid, uuid.lower(), uuid + "\n", f"ID {uuid}", "E-1", "e-1", ""]
    frame = spark.createDataFrame([(each,) for each in ids], "event_id string")
    assert [spelled(each) for each in ids] == [row[0] for row in frame.select(ledger.as_spelled("event_id")).collect()]


def test_a_ledger_that_spark_reads_is_found_however_it_spells(spark: SparkSession, tmp_path: Path) -> None:
    """By a uuid in capitals, where the log has it in small letters."""
    uuid = "3F2504E0-4F89-11D3-9A0C-0305E82C3301"
    spark.createDataFrame([(uuid,), ("E-1",)], "event string").write.parquet(str(tmp_path / "done"))
    kept = ledger.SparkLedger(SparkStore("lake", str(tmp_path)), Ledger(table="done", event_id="event"))
    asked = [("a", uuid.lower(), 0, 1), ("b", "e-1", 0, 2)]
    events = spark.createDataFrame(asked, "id string, event_id string, partition int, offset bigint")
    assert [("a", uuid)] == [(row["id"], row["event_id"]) for row in kept.among(spark, events).collect()]
