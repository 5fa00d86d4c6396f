"""What a consumer has put aside: records of its retry, dead-letter and stash topics, each tied to its aggregate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from reconcile.contract.model import Consumer, Contract, FailureTopic, Topic
from reconcile.domain import dialect
from reconcile.domain.case import ParkedIn
from reconcile.gather.evidence.ledger import as_spelled
from reconcile.gather.log.history import History, extend
from reconcile.gather.log.history_columns import (
    CORRELATION_ID,
    EVENT_ID,
    HEADERS,
    ID,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TOMBSTONE,
    VERSION,
    by_partition,
)
from reconcile.gather.log.record_keys import decoded
from reconcile.gather.log.store import HistoryStore
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.errors import TopicMissingError
from reconcile.settings import connections

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from reconcile.gather.log.records import Derivation
    from reconcile.gather.log.value_reader import ValueReader

SCHEMA = (
    "kind string, topic string, partition int, offset bigint, at timestamp, id string, origin_partition int,"
    " origin_offset bigint, event_id string, version string, correlation_id string, resolved string, error string"
)
_ORIGIN = (
    "struct<topic: string, partition: int, offset: bigint, group: string, error: string, pointer: boolean,"
    " dialect: string>"
)


CLOCKS_APART = timedelta(minutes=1)
"""By how much the clock of the group that parks may be behind that of the producer."""


@dataclass(frozen=True)
class FailureLog:
    """One failure topic: what it holds, and how far the group that reads it has come."""

    kind: ParkedIn
    topic: FailureTopic
    group: str
    history: History
    committed: Mapping[int, int | None]
    ends: Mapping[int, int]


def failure_topics(consumer: Consumer) -> list[tuple[ParkedIn, FailureTopic]]:
    """List the topics in which a consumer's failed events may lie, in the order in which they get there."""
    failure = consumer.failure
    found: list[tuple[ParkedIn, FailureTopic]] = [("retry", topic) for topic in failure.retry]
    if isinstance(failure.stash, FailureTopic):
        found.append(("stash", failure.stash))
    if failure.dead_letter is not None:
        found.append(("dead_letter", failure.dead_letter))
    return found


def read(
    spark: SparkSession,
    contract: Contract,
    consumer: Consumer,
    cluster: ClusterClient,
    connection: connections.ClusterConnection,
    store: HistoryStore,
    values: ValueReader | None,
) -> list[FailureLog]:
    """Read the failure topics of a consumer up to their ends; one that does not exist holds nothing."""
    found = []
    for kind, topic in failure_topics(consumer):
        try:
            described = cluster.topic(topic.topic)
        except TopicMissingError:
            continue  # many frameworks create it with the first failure
        group = topic.group or consumer.group
        # In this order: what the group has committed past is in what is read.
        committed = cluster.committed(group, topic.topic, described.partitions)
        ends = cluster.ends(topic.topic, described.partitions)
        like = contract.topic.model_copy(update={"name": topic.topic})
        history = extend(spark, like, connection, ends, store, values=values, all_headers=True)
        found.append(FailureLog(kind, topic, group, history, committed, ends))
    return found


def parked(
    spark: SparkSession,
    logs: Sequence[FailureLog],
    consumer: Consumer,
    main: Topic,
    log: DataFrame,
    *,
    mirrored: bool = False,
) -> DataFrame:
    """Build the parked records of a consumer; `log` is the history of the topic `main`.

    With `mirrored` a table has the stash, and what the consumer library writes to the stash's topic only shows it.
    """
    held = [each for each in logs if any(segment.rows for segment in each.history.index.segments)]
    if not held:
        return spark.createDataFrame([], SCHEMA)
    raw = reduce(lambda left, right: left.unionByName(right), (_raw(spark, each) for each in held))
    records = _parsed(raw, consumer, mirrored)
    return _identified(_origins_followed(records, main.name, hops=len(held)), log, main.name)


def _raw(spark: SparkSession, log: FailureLog) -> DataFrame:
    """Read a topic's records up to its end, with how far the group that reads them has come."""
    from pyspark.sql import functions as f

    name = log.topic.topic
    own_id = f.concat(f.lit(f"{name}-"), f.col(PARTITION), f.lit("@"), f.col(OFFSET))
    return (
        log.history.records(spark)
        .where(f.col(OFFSET) < by_partition(log.ends))
        .select(
            f.lit(log.kind).alias("kind"),
            f.lit(name).alias("topic"),
            f.lit(log.group).alias("_group"),
            by_partition(log.committed).alias("_committed"),
            f.col(PARTITION).alias("partition"),
            f.col(OFFSET).alias("offset"),
            f.col(TIMESTAMP).alias("at"),
            _original_id(log.history.derivation).alias("id"),
            f.col(KEY).alias("_key"),
            f.when(f.col(EVENT_ID) != own_id, f.col(EVENT_ID)).alias("event_id"),
            f.col(VERSION).alias("version"),
            f.col(CORRELATION_ID).alias("correlation_id"),
            f.col(TOMBSTONE).alias("_tombstone"),
            f.col(HEADERS).alias("_headers"),
        )
    )


def _original_id(derivation: Derivation) -> Column:
    """Decode the id of the key that a record had in the main topic, where a header says it; else it is as read."""
    from pyspark.sql import functions as f

    said = f.filter(HEADERS, lambda each: each["key"] == dialect.ORIGIN_KEY)
    original = decoded(f.try_element_at(said, f.lit(-1))["value"], derivation.key_type, derivation.values)
    return f.when(f.size(said) > 0, original).otherwise(f.col(ID))


def _parsed(raw: DataFrame, consumer: Consumer, mirrored: bool) -> DataFrame:
    """Read where each record came from, and whether it is done with."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    read = raw.withColumn("_origin", _origin(consumer.failure.dialect)(f.col("_headers")))
    groups = {consumer.group, *(topic.group or consumer.group for _, topic in failure_topics(consumer))}
    ours = read.where(f.coalesce(f.col("_origin.group").isin(*groups), f.lit(True)))
    if mirrored:
        shows = f.exists("_headers", lambda each: each["key"] == dialect.SHOWS)
        ours = ours.where(~f.coalesce(shows, f.lit(False)))
    # A null value without an origin says that what was parked under its key is done with.
    settles = f.col("_tombstone") & f.col("_origin").isNull()
    of_key = Window.partitionBy("topic", "partition", "_key")
    settled_at = f.when(f.col("_key").isNotNull(), f.max(f.when(settles, f.col("offset"))).over(of_key))
    resolved = f.when(f.col("offset") < f.col("_committed"), committed_past(f.col("_group"))).when(
        f.col("offset") < f.col("_settled_at"), f.lit("a tombstone followed it")
    )
    return (
        ours.withColumn("_settled_at", settled_at)
        .where(~settles)
        .select(
            "kind",
            "topic",
            "partition",
            "offset",
            "at",
            "id",
            f.col("_origin.topic").alias("origin_topic"),
            f.col("_origin.partition").alias("origin_partition"),
            f.col("_origin.offset").alias("origin_offset"),
            "event_id",
            "version",
            "correlation_id",
            resolved.alias("resolved"),
            f.col("_origin.error").alias("error"),
        )
    )


def committed_past(group: Column) -> Column:
    """Say that a group has committed past a record."""
    from pyspark.sql import functions as f

    return f.concat(group, f.lit(" has committed past it"))


def resolved_since(records: DataFrame, cluster: ClusterClient, consumer: Consumer) -> DataFrame:
    """Read parked records again, with what the groups that read them have committed past since."""
    from pyspark.sql import functions as f

    resolved = f.col("resolved")
    for _, topic in failure_topics(consumer):
        try:
            described = cluster.topic(topic.topic)
        except TopicMissingError:
            continue
        group = topic.group or consumer.group
        committed = cluster.committed(group, topic.topic, described.partitions)
        past = (f.col("topic") == topic.topic) & (f.col("offset") < by_partition(committed))
        resolved = f.coalesce(resolved, f.when(past, committed_past(f.lit(group))))
    return records.withColumn("resolved", resolved)


def _origins_followed(records: DataFrame, main: str, hops: int) -> DataFrame:
    """Where a dialect names the topic of the last hop, take the origin of what stood there, and so on."""
    from pyspark.sql import functions as f

    names = ("topic", "partition", "offset")
    origin = [f.coalesce(f.col("origin_topic"), f.lit(main)), *(f.col(f"origin_{name}") for name in names[1:])]
    before = records.select(
        *(f.col(name).alias(f"_b_{name}") for name in names), *(f.col(f"origin_{n}").alias(f"_o_{n}") for n in names)
    ).where(f.col("_o_offset").isNotNull())
    same = reduce(lambda left, right: left & right, (f.col(f"_b_{n}") == o for n, o in zip(names, origin, strict=True)))
    found = f.col("_b_offset").isNotNull()  # its topic may be none: then it is the main one
    followed = records
    for _ in range(hops):
        followed = followed.join(before, same, "left").select(
            *(each for each in records.columns if not each.startswith("origin_")),
            *(f.when(found, f.col(f"_o_{n}")).otherwise(f.col(f"origin_{n}")).alias(f"origin_{n}") for n in names),
        )
    return followed


def _identified(records: DataFrame, log: DataFrame, main: str) -> DataFrame:
    """Tie each record to its aggregate and its event: by where it stood first, else by its key and headers."""
    from pyspark.sql import functions as f

    of_main = f.coalesce(f.col("origin_topic"), f.lit(main)) == main
    places = records.withColumns(
        {
            "origin_partition": f.when(of_main, f.col("origin_partition")),
            "origin_offset": f.when(of_main, f.col("origin_offset")),
        }
    )
    # A place can be another event's by now, if the topic was made anew: no event is parked before it is written.
    event = log.select(
        f.col(PARTITION).alias("_partition"),
        f.col(OFFSET).alias("_offset"),
        f.col(ID).alias("_id"),
        f.col(EVENT_ID).alias("_event_id"),
        f.col(VERSION).alias("_version"),
        f.col(TIMESTAMP).alias("_written"),
    )
    same = (f.col("origin_partition") == f.col("_partition")) & (f.col("origin_offset") == f.col("_offset"))
    now_anothers = (f.col("_written") > f.col("at") + f.lit(CLOCKS_APART)) & ~as_spelled("event_id").eqNullSafe(
        as_spelled("_event_id")
    )
    gone = f.coalesce(now_anothers, f.lit(False))
    joined = places.join(event, same, "left")
    found = ("_id", "_event_id", "_version", "origin_partition", "origin_offset")
    return joined.withColumns({name: f.when(~gone, f.col(name)) for name in found}).select(
        "kind",
        "topic",
        "partition",
        "offset",
        "at",
        f.coalesce("_id", "id").alias("id"),
        "origin_partition",
        "origin_offset",
        f.coalesce("event_id", "_event_id").alias("event_id"),
        f.coalesce("version", "_version").alias("version"),
        "correlation_id",
        "resolved",
        "error",
    )


def _origin(name: str) -> Any:
    from pyspark.sql import functions as f

    def read_origin(headers: Sequence[Any] | None) -> tuple[Any, ...] | None:
        listed = [(each["key"], each["value"]) for each in headers or ()]
        found = dialect.read(listed, name)
        if found is None:
            return None
        place = found.topic, found.partition, found.offset
        return *place, found.group, found.error_class, found.pointer, found.dialect

    return f.udf(read_origin, _ORIGIN, useArrow=True)
