"""Frames of few rows that this process has already: what is asked of them takes no Spark job, or one in all.

Spark computes a projection of such rows while it plans, and so in no job. Anything else takes it one job for each stage
and each table that is broadcast, as it measures one before it plans the next: of few rows there is nothing to measure.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from reconcile.spark import internals

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import DataType, StructType

MOST = 10_000
"""So many rows are few."""

_only_one = threading.RLock()
_KEPT = 500_000
"""So many values are worked on in this process: 50,000 rows of ten columns."""
_IN_ONE_JOB = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
}


def of_rows(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str | StructType) -> DataFrame:
    """Build a local frame of rows; times are instants, or microseconds since 1970."""
    struct = _struct(schema)
    return of_table(spark, _table(list(rows), struct), struct)


def of_table(spark: SparkSession, table: pa.Table, schema: str | StructType) -> DataFrame:
    """Build a local frame of an Arrow table."""
    # Spark stops reading at a chunk without rows, and says nothing of those behind it.
    return spark.createDataFrame(table.combine_chunks(), _struct(schema))


def is_local(frame: DataFrame) -> bool:
    """Whether the rows of a frame are known to this process without a job, and no more than it keeps."""
    # A frame that is asked for its plan keeps it, and would not see that it is persisted later: its copy is asked.
    copy = frame.select("*")
    return internals.is_plan_of_rows(copy) and _is_little(copy)


def rows(frame: DataFrame) -> list[Row] | None:
    """Read the rows of a local frame; None for any other, which takes a job."""
    return frame.collect() if is_local(frame) else None


def plain_rows(frame: DataFrame) -> list[dict[str, Any]] | None:
    """Read the rows of a local frame as plain values, times in microseconds since 1970; None for any other frame."""
    return _plain_rows(frame) if is_local(frame) else None


def table(frame: DataFrame) -> pa.Table | None:
    """Compute the rows of a frame that is made of local ones alone, in one job at most; None for any other."""
    return _collected(frame) if _is_little(frame.select("*")) else None


def localized(frame: DataFrame, most: int) -> DataFrame | None:
    """Compute a frame in one job, and build a local one of its rows; None if there are more rows than `most`."""
    found = _collected(frame.limit(most + 1))
    return None if found is None or found.num_rows > most else of_table(frame.sparkSession, found, frame.schema)


def mapped(frame: DataFrame, change: Callable[[dict[str, Any]], dict[str, Any]]) -> DataFrame:
    """Change each row of a frame, whose columns stay: here if it is local, else in Spark's tasks.

    Times are microseconds since 1970 in a local frame, and instants in others.
    """
    if (here := plain_rows(frame)) is not None:
        return of_rows(frame.sparkSession, (tuple(change(row).values()) for row in here), frame.schema)

    def of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pylist([change(row) for row in batch.to_pylist()], schema=batch.schema)

    return frame.mapInArrow(of_batches, frame.schema)


def _is_little(frame: DataFrame) -> bool:
    found = internals.values_in_plan(frame)
    return found is not None and found <= _KEPT


def _collected(frame: DataFrame) -> pa.Table | None:
    """Compute its rows in one job; None where Arrow could not hold them as they are."""
    found = _plain_rows(frame)
    return None if found is None else _table([tuple(row.values()) for row in found], frame.schema)


def _plain_rows(frame: DataFrame) -> list[dict[str, Any]] | None:
    from pyspark.sql import functions as f
    from pyspark.sql.types import TimestampType

    schema = frame.schema
    times = [isinstance(field.dataType, TimestampType) for field in schema]
    if any(_holds_times(field.dataType) for field, is_time in zip(schema, times, strict=True) if not is_time):
        return None
    named = [f.col(f"`{name.replace('`', '``')}`") for name in schema.names]
    # As microseconds, because a timestamp comes back in the time zone of this process.
    read = frame.select(*(f.unix_micros(each) if time else each for each, time in zip(named, times, strict=True)))
    with in_one_job(frame.sparkSession):
        return [dict(zip(schema.names, map(_plain, row), strict=True)) for row in read.collect()]


def arrow_schema(schema: str | StructType) -> pa.Schema:
    """Build what an Arrow table of these columns has."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(_struct(schema))


def arrow_table(rows: Sequence[Sequence[Any]], schema: str | StructType) -> pa.Table:
    """Build an Arrow table of rows; times are instants, or microseconds since 1970."""
    return _table(rows, _struct(schema))


def _struct(schema: str | StructType) -> StructType:
    return _parsed(schema) if isinstance(schema, str) else schema


@functools.lru_cache(maxsize=64)
def _parsed(schema: str) -> StructType:
    from pyspark.sql.types import StructType

    struct = StructType.fromDDL(schema)
    assert isinstance(struct, StructType)
    return struct


def _table(found: Sequence[Sequence[Any]], schema: StructType) -> pa.Table:
    import pyarrow as pa

    arrow = arrow_schema(schema)
    columns = list(zip(*found, strict=True)) or [()] * len(arrow)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, arrow, strict=True)]
    return pa.Table.from_arrays(arrays, schema=arrow)


def _plain(value: Any) -> Any:
    """Build of one of Spark's values what Arrow takes."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, tuple):
        return {name: _plain(each) for name, each in value.asDict().items()}  # type: ignore[attr-defined]
    return value


def _holds_times(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    if isinstance(kind, ArrayType):
        return _holds_times(kind.elementType)
    if isinstance(kind, StructType):
        return any(_holds_times(field.dataType) for field in kind)
    return isinstance(kind, (MapType, TimestampType))


@contextmanager
def in_one_job(spark: SparkSession) -> Iterator[None]:
    """Have each query that is planned in the block run as one job, by one task where it brings rows together."""
    with _only_one:
        before = {name: spark.conf.get(name) for name in _IN_ONE_JOB}
        for name, value in _IN_ONE_JOB.items():
            spark.conf.set(name, value)
        try:
            yield
        finally:
            for name, known in before.items():
                spark.conf.set(name, str(known))
