"""The log history: a topic's records as Parquet, read once, kept for all runs, exact to the offset.

Files are sorted by the hash of the id. For a few ids a reader then fetches a few pages of each file. For thousands,
spread over everything, no layout saves much: any bucket that they could be put in holds one of them. What makes those
cheap is one columnar scan that looks at their hashes first, and that an extension writes one file for each partition
it read, where directories by bucket would be a hundred small ones a night. The sort takes a tenth of the time of a
reading.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Unpack

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253
from pyspark.sql.pandas.types import to_arrow_schema  # noqa: TID253
from pyspark.sql.types import StructType  # noqa: TID253

from reconcile.contract.model import Topic
from reconcile.errors import RefusedError
from reconcile.gather.log import near_records
from reconcile.gather.log.history_columns import ID, ID_HASH, OFFSET, PARTITION, by_partition
from reconcile.gather.log.index import Index, LogState, Range, extended, plan_extension
from reconcile.gather.log.records import Derivation, DerivationOptions
from reconcile.gather.log.segment import ReadFailedError, TopicSource, write_segment
from reconcile.gather.log.store import HistoryStore, Home, UnsettledHistoryError
from reconcile.kafka import options as kafka_options
from reconcile.kafka.client import ClusterClient
from reconcile.settings import connections
from reconcile.spark import local_frames
from reconcile.workspace.filesystem import literal

_LOG = logging.getLogger(__name__)

_ATTEMPTS = 8
_FEW = 10  # as many values as Spark pushes down one by one


class ReplacedTopicError(RefusedError):
    """Raised when a topic is made anew while it is read: start the run again."""


@dataclass(frozen=True)
class History:
    """What is known of a topic's log."""

    home: Home
    index: Index
    derivation: Derivation

    def records(
        self,
        spark: SparkSession,
        ids: Iterable[str] | DataFrame | None = None,
        segments: Collection[str] | None = None,
    ) -> DataFrame:
        """Read the records, under the names in `history_columns`: all of them, or those of some ids, or segments.

        Ids are a list, or a DataFrame with a column `id`, which is broadcast: a million of them is too many. The
        records of a list or of local rows are a local frame where the files are near, and they are not too many.
        """
        names = [segment.name for segment in self.index.segments] if segments is None else segments
        if ids is not None and not isinstance(ids, DataFrame):
            ids = sorted(set(ids))
        if ids is not None and near_records.are_near(self.home) and (wanted := _known(ids)) is not None:
            near = self.near(names, wanted)
            if near is not None:
                return self.of_table(spark, near)
        stored = self._stored(spark, names)
        if isinstance(ids, list):
            if len(ids) <= _FEW:
                hashes = [f.xxhash64(f.lit(each)) for each in ids]
                stored = stored.where(f.col(ID_HASH).isin(*hashes) & f.col(ID).isin(*ids))
            else:
                ids = spark.createDataFrame([(each,) for each in ids], f"{ID} string")
        if isinstance(ids, DataFrame):
            stored = stored.join(f.broadcast(ids.select(ID).distinct()), ID, "left_semi")
        return self.derivation.shown(stored, self.index.topic)

    def some_ids(self, spark: SparkSession, most: int) -> list[str]:
        """Read some ids of aggregates that have records, about so many, in their order."""
        near = near_records.some_ids(self.home, [segment.name for segment in self.index.segments], most)
        if near is not None:
            return near
        ids = self.records(spark).where(f"{ID} is not null").select(ID).limit(most)
        return sorted({each for (each,) in ids.collect()})

    def near(
        self, segments: Iterable[str], ids: pa.Array | None = None, columns: Collection[str] | None = None
    ) -> pa.Table | None:
        """Read stored columns of the records of some ids, or of all, into this process; None where that cannot be."""
        struct = StructType([each for each in self._struct.fields if columns is None or each.name in columns])
        return near_records.read(self.home, segments, to_arrow_schema(struct), ids)

    def of_table(self, spark: SparkSession, stored: pa.Table) -> DataFrame:
        """Build the records of stored columns that were read; the others are NULL."""
        read = [each for each in self._struct.fields if each.name in stored.column_names]
        frame = local_frames.of_table(spark, stored, StructType(read))
        empty = {each.name: f.lit(None).cast(each.dataType) for each in self._struct.fields if each not in read}
        return self.derivation.shown(frame.withColumns(empty) if empty else frame, self.index.topic)

    def records_from(self, spark: SparkSession, begins: Mapping[int, int]) -> DataFrame:
        """Read the records at or past offsets by partition, of those segments alone that hold such records."""
        newer = self._stored(spark, self._reaching(begins)).where(f.col(OFFSET) >= by_partition(begins))
        return self.derivation.shown(newer, self.index.topic)

    def ids_from(self, spark: SparkSession, begins: Mapping[int, int]) -> DataFrame:
        """Read the ids of these records, each once and NULL too; a local frame where the files are near."""
        near = self.near(self._reaching(begins), columns=(ID, PARTITION, OFFSET))
        if near is None:
            return self.records_from(spark, begins).select(ID).distinct()
        starts = pa.table({PARTITION: pa.array(begins, pa.int32()), "start": pa.array(begins.values(), pa.int64())})
        newer = near.join(starts, PARTITION, join_type="inner")
        found = newer.filter(pc.greater_equal(newer.column(OFFSET), newer.column("start"))).column(ID).unique()
        return local_frames.of_table(spark, pa.table({ID: found}), f"{ID} string")

    def _reaching(self, begins: Mapping[int, int]) -> list[str]:
        """List the segments that hold records at or past offsets by partition."""
        return [
            segment.name
            for segment in self.index.segments
            if any(part.end > begins[number] for number, part in segment.partitions.items() if number in begins)
        ]

    def _stored(self, spark: SparkSession, segments: Iterable[str]) -> DataFrame:
        paths = [literal(self.home.uri(name)) for name in segments]
        if not paths:
            return spark.createDataFrame([], self.derivation.schema)
        return spark.read.schema(self.derivation.schema).parquet(*paths)

    @cached_property
    def _struct(self) -> StructType:
        struct = StructType.fromDDL(self.derivation.schema)
        assert isinstance(struct, StructType)
        return struct

    def prune(self, older_than: datetime) -> History:
        """Give up the oldest segments in which all records are older; what was given up is kept on record."""
        return replace(self, index=self.home.prune(older_than) or self.index)


def extend(
    spark: SparkSession,
    topic: Topic,
    connection: connections.ClusterConnection,
    until: Mapping[int, int],
    store: HistoryStore,
    **wanted: Unpack[DerivationOptions],
) -> History:
    """Read what the history lacks of a topic, up to the offsets `until`; start no Spark job if there is nothing.

    Offsets that the log has no more are recorded as expired, also when it loses them while they are read. Raises
    UnreachableError, or RefusedError where something has to be done first; the history stays as it was then.
    """
    settings = connection.resolve()
    kafka_options.for_spark(settings)  # what Spark cannot do is an error before anything is read
    derivation = Derivation.of(topic, **wanted)
    isolation = derivation.isolation
    log = _log_state(topic, settings, isolation)
    home = store.home(topic.cluster, topic.name, log.topic_id, derivation.digest)
    home.note_use(datetime.now(UTC))
    for _ in range(_ATTEMPTS):
        index = home.load() or _empty(topic, log, derivation)
        extension = plan_extension(index, log, until)
        if not extension.changes:
            _LOG.debug(f"{topic.name}: the history has all of it")
            return History(home, index, derivation)
        segment = failure = None
        if extension.ranges:
            number = sum(end - start for start, end in extension.ranges.values())
            _LOG.debug(f"{topic.name}: reading {number:,} offsets of {len(extension.ranges)} partitions")
            if not index.segments:
                _require_readable(topic, settings, extension.ranges, isolation)
            source = TopicSource(topic.name, settings, isolation, log.newest)
            try:
                segment = write_segment(spark, source, derivation, extension.ranges, home, index)
            except ReadFailedError as error:
                failure = error
            after = _same_topic(log, _log_state(topic, settings, isolation), topic)
            if failure is not None:
                lost = any(after.begins[partition] > start for partition, (start, _) in extension.ranges.items())
                if not lost and (home.load() or index).generation == index.generation:
                    raise failure
                log = after
                continue
        following = extended(index, extension, log, segment, datetime.now(UTC))
        if home.publish(following):
            home.remove_leftovers()
            _LOG.debug(f"{topic.name}: the history is extended by {segment.rows if segment else 0:,} records")
            return History(home, following, derivation)
    raise UnsettledHistoryError(f"the log of {topic.name}, or its history, changed at each of {_ATTEMPTS} attempts")


def _known(ids: list[str] | DataFrame) -> pa.Array | None:
    """List ids that this process has, or can have without reading anything; None where it takes more."""
    if not isinstance(ids, DataFrame):
        return pa.array(ids, pa.string())
    found = local_frames.table(ids.select(ID).distinct())
    return None if found is None else found.column(ID).combine_chunks()


def _log_state(topic: Topic, settings: Mapping[str, str], isolation: str) -> LogState:
    """Query where the log begins and ends, by a client that lives no longer than that."""
    with closing(ClusterClient(topic.cluster, settings)) as cluster:
        described = cluster.topic(topic.name)
        # In this order: a log that is written to and cut meanwhile never seems to begin behind its end.
        begins = cluster.begins(topic.name, described.partitions)
        decided = cluster.ends(topic.name, described.partitions)
        ends = cluster.high_watermarks(topic.name, described.partitions)
        newest = cluster.newest_time(topic.name, described.partitions)
    return LogState(described.id, begins, decided if isolation == "read_committed" else ends, ends, newest)


def _require_readable(topic: Topic, settings: Mapping[str, str], ranges: Mapping[int, Range], isolation: str) -> None:
    """Read a record before Spark does, which takes its time to say that it may not."""
    partition, (start, _) = next(iter(ranges.items()))
    with closing(ClusterClient(topic.cluster, settings)) as cluster:
        cluster.first_records(topic.name, {partition: start}, isolation)


def _empty(topic: Topic, log: LogState, derivation: Derivation) -> Index:
    return Index(
        generation=0, cluster=topic.cluster, topic=topic.name, topic_id=log.topic_id, derivation=derivation.digest
    )


def _same_topic(before: LogState, now: LogState, topic: Topic) -> LogState:
    if before.topic_id != now.topic_id:
        raise ReplacedTopicError(f"{topic.name} was deleted and made anew while it was read: start the run again")
    return now
