"""One segment of a history: ranges of offsets read by Spark, written as Parquet, and then checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException  # noqa: TID253
from pyspark.sql import DataFrame, SparkSession  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253

from reconcile.errors import UnreachableError
from reconcile.gather.log import by_librdkafka
from reconcile.gather.log import history_columns as c
from reconcile.gather.log.index import Held, Index, Range, Segment
from reconcile.gather.log.records import Derivation
from reconcile.gather.log.store import Home
from reconcile.kafka import options as kafka_options
from reconcile.kafka.errors import HOW_TO_GRANT, ClusterRefusedError, Right
from reconcile.spark.java_causes import root_cause
from reconcile.workspace.filesystem import literal

# Measured: at the 500 records a poll that Kafka gives by default, reading takes half as long again.
# After each poll Spark asks where the log begins and ends, and is answered only after the fetch that was begun ahead;
# where the log ends, that one waits in vain: half a second for each partition, by Kafka's default.
_RECIPE = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
    "kafka.fetch.max.wait.ms": "10",
}
# Nearly every value of these is another one: a dictionary would be built, and then thrown away.
_DISTINCT = (c.ID, c.ID_HASH, c.KEY, c.OFFSET, c.EVENT_ID, c.CORRELATION_ID, c.VALUE, c.RAW)
_WRITING = {
    "compression": "zstd",
    "parquet.compression.codec.zstd.level": "1",  # measured: the files are no larger than those of the default, 3
    **{f"parquet.enable.dictionary#{column}": "false" for column in _DISTINCT},
}


_COUNTED = ("null_keys", "unreadable_keys", "unreadable_values", "odd_times")


class ReadFailedError(UnreachableError):
    """Raised when Spark could not read the log or write the segment: what it said is in the message; try again."""


class InexactReadError(UnreachableError):
    """Raised when what was written is not what was to be read: a fault of ours or of Spark's; nothing was kept."""


@dataclass(frozen=True)
class TopicSource:
    """How a topic is read."""

    topic: str
    settings: Mapping[str, str] = field(repr=False)
    """What `Cluster.resolve()` gives."""
    isolation: str
    newest: int = -1
    """The largest time of its records, in milliseconds."""

    @property
    def options(self) -> dict[str, str]:
        """The settings as Spark takes them."""
        return kafka_options.for_spark(self.settings)

    def records(self, spark: SparkSession, ranges: Mapping[int, Range], *, headers: bool) -> DataFrame:
        """Read the records in these offsets; that fails if the log has lost some of them."""
        near = by_librdkafka.few(spark, self.settings, self.topic, ranges, self.isolation, headers=headers)
        if near is not None:
            return near
        # Spark counts microseconds in 64 bits.
        beyond = self.newest * 1000 >= 2**63
        if beyond or by_librdkafka.has_many_gaps(self.settings, self.topic, ranges, self.isolation):
            return by_librdkafka.records(spark, self.settings, self.topic, ranges, self.isolation, headers=headers)

        def each(place: int) -> str:
            return json.dumps({self.topic: {str(partition): pair[place] for partition, pair in ranges.items()}})

        options = {
            **self.options,
            **_RECIPE,
            "assign": json.dumps({self.topic: list(ranges)}),
            "startingOffsets": each(0),
            "endingOffsets": each(1),
            "kafka.isolation.level": self.isolation,
            "failOnDataLoss": "true",
            "includeHeaders": str(headers).lower(),
            "groupIdPrefix": "reconcile-history",
        }
        return spark.read.format("kafka").options(**options).load()


def write_segment(
    spark: SparkSession,
    source: TopicSource,
    derivation: Derivation,
    ranges: Mapping[int, Range],
    home: Home,
    index: Index,
) -> Segment:
    """Read ranges of offsets into a new segment, which no index names yet; raise ReadFailedError if that fails."""
    name = home.new_segment(index)
    try:
        records = source.records(spark, ranges, headers=derivation.needs_headers)
        stored = derivation.stored(records).sortWithinPartitions(c.ID_HASH, c.PARTITION, c.OFFSET)
        home.files.mkdirs(home.segments)
        stored.write.options(**_WRITING).parquet(home.uri(name))
        home.files.restrict(home.path(name))
        return _segment(spark.read.schema(derivation.schema).parquet(literal(home.uri(name))), name, ranges, home)
    except (Py4JError, PySparkException, KafkaException, FileNotFoundError) as error:
        said = kafka_options.without_secrets(_said(error), source.settings, source.options)
        if "TopicAuthorizationException" in said:
            right = Right("Read", "topic", source.topic)
            raise ClusterRefusedError(f"Spark may not read {source.topic}: grant {right}; {HOW_TO_GRANT}") from None
        raise ReadFailedError(f"{source.topic} could not be read into {home.path(name)}: {said}") from None


def rewrite_segment(spark: SparkSession, records: DataFrame, segment: Segment, home: Home, index: Index) -> Segment:
    """Write some records of a segment into one that takes its place; no index names it yet."""
    name = home.new_segment(index)
    ranges = {partition: (held.start, held.end) for partition, held in segment.partitions.items()}
    records.sortWithinPartitions(c.ID_HASH, c.PARTITION, c.OFFSET).write.options(**_WRITING).parquet(home.uri(name))
    home.files.restrict(home.path(name))
    stored = spark.read.schema(records.schema).parquet(literal(home.uri(name)))
    return _segment(stored, name, ranges, home)


def _segment(stored: DataFrame, name: str, ranges: Mapping[int, Range], home: Home) -> Segment:
    """Look at what was written: by narrow columns alone, so that it costs little."""
    place = f.xxhash64(c.OFFSET, c.TIMESTAMP, c.ID_HASH)
    no_id = f.col(c.ID).isNull()
    found = {
        int(row[c.PARTITION]): row
        for row in stored.groupBy(c.PARTITION)
        .agg(
            f.count(f.lit(1)).alias("rows"),
            f.min(c.OFFSET).alias("first"),
            f.max(c.OFFSET).alias("last"),
            f.unix_micros(f.max(c.TIMESTAMP)).alias("latest"),
            f.count_if(no_id & f.col(c.KEY).isNull()).alias("null_keys"),
            f.count_if(no_id & f.col(c.KEY).isNotNull()).alias("unreadable_keys"),
            f.count_if(f.col(c.RAW).isNotNull()).alias("unreadable_values"),
            f.count_if(c.is_beyond(f.col(c.TIMESTAMP))).alias("odd_times"),
            f.sum(f.shiftright(place, 32)).alias("high"),
            f.sum(f.shiftright(f.shiftleft(place, 32), 32)).alias("low"),
        )
        .collect()
    }
    if foreign := sorted(found.keys() - ranges.keys()):
        raise InexactReadError(f"{home.path(name)} holds records of partition {foreign[0]}, which was not asked for")
    held: dict[int, Held] = {}
    for partition, (start, end) in sorted(ranges.items()):
        row = found.get(partition)
        if row is None:
            held[partition] = Held(start=start, end=end, rows=0, first=None, last=None)
            continue
        if row["first"] < start or row["last"] >= end or row["rows"] > end - start:
            raise InexactReadError(
                f"{home.path(name)} holds {row['rows']} records of partition {partition}, from offset {row['first']}"
                f" to {row['last']}; asked for was from {start} up to {end}"
            )
        held[partition] = Held(start=start, end=end, rows=row["rows"], first=row["first"], last=row["last"])
    places = sorted((partition, row["rows"], row["high"], row["low"]) for partition, row in found.items())
    latest = max((row["latest"] for row in found.values()), default=None)
    return Segment(
        name=name,
        partitions=held,
        latest=None if latest is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=latest),
        **{name: sum(row[name] for row in found.values()) for name in _COUNTED},
        digest=hashlib.sha256(repr(places).encode()).hexdigest(),
        files={entry.name: entry.size for entry in home.files.list(home.path(name)) if entry.name.endswith(".parquet")},
    )


def _said(error: Exception) -> str:
    """Choose what Java says at the bottom of it, or what Python's own errors say last."""
    thrown = root_cause(error)
    said = str(thrown.toString()) if thrown is not None else str(error)
    lines = said.strip().splitlines()
    return (lines[-1] if "Traceback" in said else lines[0])[:1000]  # Python's own errors stand last
