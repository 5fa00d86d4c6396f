"""An aggregate's records, or those of one correlation id, through the topic and all failure topics of its consumers."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253

from reconcile.gather.log import history_columns as c
from reconcile.pipeline.gather import parked_of
from reconcile.pipeline.job import Job
from reconcile.pipeline.log_view import cluster_client, history_up_to
from reconcile.pipeline.story import instant
from reconcile.report.model import TracedRecord


def trace(job: Job, aggregate_id: str | None, correlation_id: str | None, limit: int) -> list[TracedRecord]:
    """Read the records of an id or of a correlation id as they are now, by time; at most `limit`."""
    topic = job.contract.topic
    with cluster_client(job) as cluster:
        ends = cluster.ends(topic.name, cluster.topic(topic.name).partitions)
    history = history_up_to(job, ends)
    log = history.records(job.spark)
    frames = [
        parked_of(job, consumer, history).withColumn("consumer", f.lit(consumer.name))
        for consumer in job.contract.consumers
    ]
    column, value = (c.ID, aggregate_id) if aggregate_id is not None else (c.CORRELATION_ID, correlation_id)
    records = log.where(f.col(column).eqNullSafe(f.lit(value)))
    aside = reduce(lambda left, right: left.unionByName(right), frames)
    # Not every framework keeps the event's own headers: then its place in the topic identifies it.
    if aggregate_id is not None:
        ours = aside.where(f.col("id").eqNullSafe(f.lit(aggregate_id)))
    else:
        places = records.select(f.col(c.PARTITION).alias("origin_partition"), f.col(c.OFFSET).alias("origin_offset"))
        by_place = aside.join(f.broadcast(places), ["origin_partition", "origin_offset"], "left_semi")
        by_header = aside.where(f.col("correlation_id").eqNullSafe(f.lit(correlation_id)))
        ours = by_place.unionByName(by_header).dropDuplicates()
    found = [_logged(row, topic.name) for row in _first(records, c.TIMESTAMP, limit)]
    found += [_aside(row) for row in _first(ours, "at", limit)]
    order = {"log": 0, "retry": 1, "stash": 2, "dead_letter": 3}
    found.sort(key=lambda each: (each.at or datetime.max.replace(tzinfo=UTC), order[each.kind], each.offset or 0))
    return found[:limit]


def _first(rows: DataFrame, time: str, limit: int) -> list[Any]:
    return rows.withColumn("_micros", f.unix_micros(time)).orderBy("_micros").limit(limit).collect()


def _logged(row: Any, topic: str) -> TracedRecord:
    what = "deletes" if row[c.DELETES] else (row[c.TYPE] or "event") if row[c.READABLE] else "cannot be read"
    return _traced(row, "log", topic, what, None)


def _aside(row: Any) -> TracedRecord:
    origin = "" if row["origin_offset"] is None else f" from {row['origin_partition']}@{row['origin_offset']}"
    error = f": {row['error']}" if row["error"] else ""
    state = f"; {row['resolved']}" if row["resolved"] else "; still there"
    return _traced(row, row["kind"], row["topic"], f"put aside{origin}{error}{state}", row["consumer"])


def _traced(row: Any, kind: str, topic: str, what: str, consumer: str | None) -> TracedRecord:
    same = {name: row[name] for name in (c.PARTITION, c.OFFSET, c.VERSION, c.EVENT_ID, c.CORRELATION_ID)}
    at = instant(row["_micros"])
    return TracedRecord(at, kind, topic, aggregate_id=row[c.ID], what=what, consumer=consumer, **same)
