"""An aggregate's records, or those of one correlation id, through the topic and all failure topics of its consumers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reconcile.contract.model import Contract
from reconcile.domain.finding import Finding
from reconcile.errors import RefusedError
from reconcile.gather.evidence import plain_parked
from reconcile.gather.evidence.plain_parked import ParkedRecord
from reconcile.gather.log import history_columns as c
from reconcile.gather.log.plain_log import KeptLog, LogRecord, NeedsSparkError, PlainLog
from reconcile.gather.log.records import Derivation
from reconcile.gather.log.store import HistoryStore, Home
from reconcile.pipeline import tables
from reconcile.pipeline.handoffs import Gathered, parked_records
from reconcile.pipeline.job import Job, new_job, reading_job
from reconcile.pipeline.log_view import cluster_client, history_up_to, value_schema
from reconcile.pipeline.retention import history_of
from reconcile.pipeline.shown_findings import Showing
from reconcile.pipeline.story import HIDDEN, instant
from reconcile.report.model import Trace, TracedRecord, TracedStep
from reconcile.workspace.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_SHOWN = 1000
"""So many records of a run's history are shown."""
_MOST_READ = 20_000
"""So many records of a run's history are read: all of a topic may have one correlation id."""
_MOST_IDS = 100
"""Of so many aggregates what the audit says of them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def traced_of_run(
    showing: Showing, place: Workspace, contract: Contract, aggregate_id: str | None, correlation_id: str | None
) -> Trace:
    """Read the records of an id or of a correlation id that the history of a run has, and what the run knew as parked.

    Nothing is asked of the cluster, and no value is read: what an event says is in the stories of findings, redacted.
    """
    run, topic = showing.run, showing.fence.topic.name
    name = history_of(place, run.id)
    home = Home(place.files, f"{place.root}/{name}")
    index = None if name is None else home.load()
    if index is None:
        raise RefusedError(f"the history that {run.id} has read is gone: `reconcile trace` reads the topic itself")
    log = KeptLog(topic, Derivation.of(contract.topic), home, index)
    column, value = (c.ID, aggregate_id) if aggregate_id is not None else (c.CORRELATION_ID, correlation_id)
    assert value is not None
    try:
        records = list(islice(log.with_value(column, value), _MOST_READ))
    except NeedsSparkError:
        raise RefusedError("the histories are on no folder of this machine: `reconcile trace` reads them") from None
    places = {each.place for each in records}
    found = [_logged(_columns(each), topic) for each in records]
    for link in run.read(Gathered).links:
        if run.find(parked_records(link.consumer)) is not None:
            by = {"id": [aggregate_id]} if aggregate_id is not None else {}
            rows = tables.rows(run, parked_records(link.consumer), by, showing.spark)
            ours = (each for each in rows if _is_wanted(ParkedRecord(**each), column, value, places))
            found += [_aside({**each, "consumer": link.consumer, "_micros": _micros(each["at"])}) for each in ours]
    hidden: dict[str, Any] = dict.fromkeys(_sensitive(contract), HIDDEN)
    ordered = _by_time(found, len(found))
    shown = ordered[:MOST_SHOWN]
    told = _told(showing, sorted({each.aggregate_id for each in shown if each.aggregate_id is not None})[:_MOST_IDS])
    ends = {each.partition: each.end for each in showing.fence.topic.partitions}
    steps = (
        TracedStep(
            replace(each, **hidden),
            tuple(told.said.get((each.topic, each.partition, each.offset), ())),
            each.kind == "log" and (each.offset or 0) >= ends.get(each.partition or 0, 0),
        )
        for each in shown
    )
    lost = sum(each.end - each.start for each in (*index.expired, *index.pruned))
    notes = [f"{lost:,} offsets of {topic} are not kept: they had expired, or were given up by age."] if lost else []
    if len(records) == _MOST_READ:
        notes.append(f"{topic} has more of them: the {_MOST_READ:,} that the history has first were read.")
    return Trace(tuple(steps), len(ordered) - len(shown), told.findings, tuple(notes))


class _Told(NamedTuple):
    findings: tuple[Finding, ...]
    said: dict[tuple[str, int | None, int | None], list[tuple[str, str]]]
    """What is said of the records at places of topics, each with its link."""


def _told(showing: Showing, ids: Sequence[str]) -> _Told:
    """Read what the run's audit says of some aggregates: its stories, then its evidence."""
    run = showing.run
    said: dict[tuple[str, int | None, int | None], list[tuple[str, str]]] = defaultdict(list)
    for story in showing.stories({each.link: ids for each in run.read(Gathered).links} if ids else {}):
        for each in story.moments:
            if each.lane == "log":
                partition, _, offset = each.place.partition("@")
                words = "; ".join((each.what, *each.marks))
                said[each.topic, int(partition), int(offset)].append((story.link, words))
    findings = tuple(map(showing.redaction.finding, tables.findings(run, ids=ids, spark=showing.spark))) if ids else ()
    for finding in findings:
        for seen in finding.evidence:
            if seen.topic is not None and seen.offset is not None:
                said[seen.topic, seen.partition, seen.offset].append((finding.link, seen.note))
    return _Told(findings, said)


def _sensitive(contract: Contract) -> list[str]:
    """Name the columns that say what the events' sensitive fields say."""
    fields = (field for each in contract.consumers for field in each.fields if field.sensitive)
    paths = {path for field in fields for path in field.event_paths}
    topic = contract.topic
    located = {
        c.VERSION: topic.version,
        c.EVENT_ID: topic.event_id,
        c.CORRELATION_ID: topic.correlation_id,
        "what": topic.type,
    }
    return [column for column, locator in located.items() if locator in paths]


def _micros(at: datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // timedelta(microseconds=1)


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
