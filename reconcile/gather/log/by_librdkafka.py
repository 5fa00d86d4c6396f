"""Reading a log by librdkafka, where Spark's own source would be slow.

Of a few records it makes a job with a consumer for each partition: here this process reads them. At each gap of a log,
be it compacted or written in small transactions, it asks the broker twice where the log begins and ends. On a compacted
topic, where nearly every record stands behind a gap, that takes a hundred times as long as the reading. Here tasks read
instead, in Python, to the same offsets; they are slower only where there are no gaps. They also read what that source
cannot: records whose times are too large for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession  # noqa: TID253

from reconcile.gather.log.history_columns import EARLIEST, LATEST
from reconcile.gather.log.index import Range
from reconcile.kafka import options as kafka_options
from reconcile.kafka import reader
from reconcile.spark import local_frames

_MANY = 0.005
"""Gaps for each record; measured, the two ways take the same time at about so many."""
_WORTH_A_LOOK = 2000
_SAMPLE = 500
_PLACES = 4
_BATCH = 5000
_FEW = 100_000
_MOST_BYTES = 24 * 1024 * 1024
"""So much of keys and values is read by this process."""
_CHUNK = 500_000
_SCHEMA = "key binary, value binary, partition int, offset bigint, timestamp timestamp"
_HEADERS = "headers array<struct<key: string, value: binary>>"

Chunk = tuple[int, int, int]


def has_many_gaps(settings: Mapping[str, str], topic: str, ranges: Mapping[int, Range], isolation: str) -> bool:
    """Look at a few hundred records of the longest ranges."""
    longest = sorted(ranges.items(), key=lambda each: each[1][0] - each[1][1])[:_PLACES]
    records = gaps = 0
    for partition, (start, end) in longest:
        if end - start < _WORTH_A_LOOK:
            continue
        # The middle: compaction works from the oldest records on, and transactions may be new.
        for begin in (start, (start + end) // 2):
            offsets: list[int] = []
            for batch in _consumed(settings, topic, (partition, begin, end), isolation, _SAMPLE):
                offsets += [record.offset() for record in batch]
                if len(offsets) >= _SAMPLE:
                    break
            records += len(offsets)
            gaps += sum(right - left > 1 for left, right in pairwise(offsets))
    return gaps > records * _MANY


def few(
    spark: SparkSession,
    settings: Mapping[str, str],
    topic: str,
    ranges: Mapping[int, Range],
    isolation: str,
    *,
    headers: bool,
) -> DataFrame | None:
    """Read the records in these offsets now, in the columns of Spark's source; None where there are too many."""
    if sum(end - start for start, end in ranges.values()) > _FEW:
        return None
    found, size = [], 0
    for batch in reader.read(kafka_options.for_librdkafka(settings), topic, ranges, isolation, _BATCH):
        found.append(_arrow(batch, headers=headers))
        size += found[-1].nbytes
        if size > _MOST_BYTES:
            return None
    table = pa.Table.from_batches(found or [_arrow([], headers=headers)])
    return local_frames.of_table(spark, table, _columns(headers=headers))


def records(
    spark: SparkSession,
    settings: Mapping[str, str],
    topic: str,
    ranges: Mapping[int, Range],
    isolation: str,
    *,
    headers: bool,
) -> DataFrame:
    """Read the records in these offsets, in the columns of Spark's source; fail if the log has lost some of them."""
    chunks = list(_chunks(ranges))
    carried = kafka_options.with_files_inside(settings)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for found in _consumed(carried, topic, chunks[number], isolation, _BATCH):
                    yield _arrow(found, headers=headers)

    return spark.range(0, len(chunks), 1, len(chunks)).mapInArrow(read, _columns(headers=headers))


def _columns(*, headers: bool) -> str:
    return f"{_SCHEMA}, {_HEADERS}" if headers else _SCHEMA


def _chunks(ranges: Mapping[int, Range]) -> Iterator[Chunk]:
    for partition, (start, end) in sorted(ranges.items()):
        for begin in range(start, end, _CHUNK):
            yield partition, begin, min(begin + _CHUNK, end)


def _consumed(
    settings: Mapping[str, str], topic: str, chunk: Chunk, isolation: str, size: int
) -> Iterator[Sequence[Any]]:
    """Read the records of a chunk in batches; raise KafkaException, also where the log no longer has its first."""
    partition, start, end = chunk
    return reader.read(kafka_options.for_librdkafka(settings), topic, {partition: (start, end)}, isolation, size)


def _arrow(found: Sequence[Any], *, headers: bool) -> pa.RecordBatch:
    columns = {
        "key": pa.array([record.key() for record in found], pa.binary()),
        "value": pa.array([record.value() for record in found], pa.binary()),
        "partition": pa.array([record.partition() for record in found], pa.int32()),
        "offset": pa.array([record.offset() for record in found], pa.int64()),
        "timestamp": pa.array([max(EARLIEST, min(LATEST, record.timestamp()[1])) for record in found], pa.int64())
        .cast(pa.timestamp("ms", tz="UTC"))
        .cast(pa.timestamp("us", tz="UTC")),
    }
    if headers:
        listed = [record.headers() or () for record in found]
        flat = [header for each in listed for header in each]
        ends = [0]
        for each in listed:
            ends.append(ends[-1] + len(each))
        names = pa.array([name for name, _ in flat], pa.string())
        values = pa.array([value for _, value in flat], pa.binary())
        structs = pa.StructArray.from_arrays([names, values], names=["key", "value"])
        columns["headers"] = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs)
    return pa.RecordBatch.from_pydict(columns)
