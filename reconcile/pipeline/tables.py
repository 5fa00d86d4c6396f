"""Rows of a run's artifacts, read for people and reports: a few at a time, without Spark where the files are local."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reconcile.settings.settings import needs_spark
from reconcile.workspace.run import Run

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

_AT_ONCE = 1000
_AS_OBJECTS = 20
"""A row may hold a long history: as objects of Python few at a time."""


def rows(
    run: Run,
    name: str,
    wanted: Mapping[str, Collection[str]] | None = None,
    spark: SparkSession | None = None,
    columns: Sequence[str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Give an artifact's rows in their order; `wanted` names the values that a column may have.

    With `columns` the rows have these alone.
    """
    if needs_spark(run.folder):
        assert spark is not None
        yield from _by_spark(run, name, wanted or {}, spark, columns)
        return
    by = list(wanted or {})
    sets = [frozenset(values) for values in (wanted or {}).values()]

    def fits(values: tuple[Any, ...]) -> bool:
        return all(value in some for value, some in zip(values, sets, strict=True))

    for batch, places in batches(run.data_files(name), by, fits, columns):
        if len(places) == batch.num_rows:
            for first in range(0, batch.num_rows, _AS_OBJECTS):
                yield from batch.slice(first, _AS_OBJECTS).to_pylist()
        else:
            for place in places:
                yield from batch.slice(place, 1).to_pylist()


def tuples(run: Run, name: str, columns: Sequence[str], spark: SparkSession | None = None) -> Iterator[tuple[Any, ...]]:
    """Give some columns of all of an artifact's rows, instants as microseconds since 1970: the fastest way through."""
    if needs_spark(run.folder):
        assert spark is not None
        from pyspark.sql import functions as f

        frame = run.parquet(name, spark).select(*columns)
        asked = [f.unix_micros(f.col(each)) if kind == "timestamp" else f.col(each) for each, kind in frame.dtypes]
        yield from map(tuple, frame.select(*asked).toLocalIterator())
        return
    import pyarrow as pa

    for batch, _ in batches(run.data_files(name), (), lambda _: True, columns):
        values = [each.cast("int64") if pa.types.is_timestamp(each.type) else each for each in batch.columns]
        yield from zip(*(each.to_pylist() for each in values), strict=True)


def batches(
    files: Iterable[str],
    by: Sequence[str],
    fits: Callable[[tuple[Any, ...]], bool],
    columns: Sequence[str] | None = None,
) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
    """Give the rows of Parquet files a batch at a time, and which of a batch fit by their values of the columns `by`.

    Row groups in which none fits are not read.
    """
    # Arrow's own filters would load pandas, which takes longer than most of what is read here.
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    for file in files:
        with pq.ParquetFile(file) as parquet:
            for group in range(parquet.num_row_groups):
                if not by:
                    for batch in _read(parquet, group, columns):
                        yield batch, range(batch.num_rows)
                    continue
                found = [_places(each, fits) for each in _read(parquet, group, by)]
                if any(found):
                    for batch, places in zip(_read(parquet, group, columns), found, strict=True):
                        if places:
                            yield batch, places


def findings(
    run: Run,
    causes: Collection[str] = (),
    links: Collection[str] = (),
    ids: Collection[str] = (),
    spark: SparkSession | None = None,
) -> Iterator[dict[str, Any]]:
    """Give a run's findings as the objects of JSON lines, by link and id."""
    wanted = {"cause": causes, "link": links, "aggregate_id": ids}
    given = {name: values for name, values in wanted.items() if values}
    for row in rows(run, "findings", given, spark, ["finding"]):
        yield json.loads(row["finding"])


def _places(batch: pa.RecordBatch, fits: Callable[[tuple[Any, ...]], bool]) -> list[int]:
    values = zip(*(each.to_pylist() for each in batch.columns), strict=True)
    return [place for place, each in enumerate(values) if fits(each)]


def _read(parquet: Any, group: int, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    found: Iterator[pa.RecordBatch] = parquet.iter_batches(
        batch_size=_AT_ONCE, row_groups=[group], columns=columns, use_threads=False
    )
    return found


def _by_spark(
    run: Run,
    name: str,
    wanted: Mapping[str, Collection[str]],
    spark: SparkSession,
    columns: Sequence[str] | None,
) -> Iterator[dict[str, Any]]:
    from pyspark.sql import functions as f

    frame = run.parquet(name, spark)
    for column, values in wanted.items():
        frame = frame.where(f.col(column).isin(*values))
    for row in (frame if columns is None else frame.select(*columns)).toLocalIterator():
        yield row.asDict(recursive=True)
