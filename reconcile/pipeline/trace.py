"""An aggregate's records, or those of one correlation id, through the topic and all failure topics of its consumers."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconcile.gather.evidence import plain_parked
from reconcile.gather.evidence.plain_parked import ParkedRecord
from reconcile.gather.log import history_columns as c
from reconcile.gather.log.plain_log import LogRecord, NeedsSparkError, PlainLog
from reconcile.gather.log.records import Derivation
from reconcile.gather.log.store import HistoryStore
from reconcile.pipeline.job import Job, new_job, reading_job
from reconcile.pipeline.log_view import cluster_client, history_up_to, value_schema
from reconcile.pipeline.story import instant
from reconcile.report.model import TracedRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def trace(
    file: Path,
    config: Path | None,
    workspace: str | None,
    aggregate_id: str | None,
    correlation_id: str | None,
    limit: int,
) -> list[TracedRecord]:
    """Read the records of an id or of a correlation id as they are now, by time; at most `limit`.

    Without Spark, unless only Spark reaches the workspace, too much is to be read, or only Spark can tell what it says.
    """
    job = reading_job(file, config, workspace)
    if job is not None:
        with suppress(NeedsSparkError):
            return traced_plainly(job, aggregate_id, correlation_id, limit)
    with new_job(file, config, workspace) as by_spark:
        return traced_by_spark(by_spark, aggregate_id, correlation_id, limit)


def traced_plainly(job: Job, aggregate_id: str | None, correlation_id: str | None, limit: int) -> list[TracedRecord]:
    """Read them by plain clients; raise NeedsSparkError where that cannot be."""
    topic, values, store = job.contract.topic, value_schema(job), HistoryStore.of(job.workspace)
    column, value = (c.ID, aggregate_id) if aggregate_id is not None else (c.CORRELATION_ID, correlation_id)
    assert value is not None
    with cluster_client(job) as cluster:
        log = PlainLog.of(cluster, topic, store, Derivation.of(topic, values=values))
        records = log.with_value(cluster, column, value)
        places: set[tuple[int | None, int | None]] = {each.place for each in records}
        found = [_logged(_columns(each), topic.name) for each in records]
        for consumer in job.contract.consumers:
            topics = plain_parked.read(job.contract, consumer, cluster, store, values)
            events_at = partial(log.at, cluster)
            parked = plain_parked.parked(topics, consumer, topic, values, events_at)
            ours = dict.fromkeys(each for each in parked if _is_wanted(each, column, value, places))
            found += [_aside({**each._asdict(), "consumer": consumer.name, "_micros": each.at}) for each in ours]
    return _by_time(found, limit)


def _is_wanted(
    parked: ParkedRecord, column: str, value: str, places: Collection[tuple[int | None, int | None]]
) -> bool:
    if column == c.ID:
        return parked.id == value
    # Not every framework keeps the event's own headers: then its place in the topic identifies it.
    return parked.correlation_id == value or (parked.origin_partition, parked.origin_offset) in places


def _columns(record: LogRecord) -> dict[str, Any]:
    return {**vars(record), "_micros": record.timestamp}


def traced_by_spark(job: Job, aggregate_id: str | None, correlation_id: str | None, limit: int) -> list[TracedRecord]:
    """Read them by Spark."""
    from pyspark.sql import functions as f

    from reconcile.pipeline.gather import parked_of

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
    return _by_time(found, limit)


def _by_time(found: list[TracedRecord], limit: int) -> list[TracedRecord]:
    order = {"log": 0, "retry": 1, "stash": 2, "dead_letter": 3}
    found.sort(key=lambda each: (each.at or datetime.max.replace(tzinfo=UTC), order[each.kind], each.offset or 0))
    return found[:limit]


def _first(rows: DataFrame, time: str, limit: int) -> list[Any]:
    from pyspark.sql import functions as f

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
