"""Rows of a run's artifacts, read for people and reports: a few at a time, without Spark where the files are local."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reconcile.run import Run
from reconcile.workspace import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_ONCE = 1000


def rows(
    run: Run, name: str, wanted: Mapping[str, Collection[str]] | None = None, spark: SparkSession | None = None
) -> Iterator[dict[str, Any]]:
    """Give an artifact's rows in their order; `wanted` names the values that a column may have."""
    if needs_spark(run.folder):
        assert spark is not None
        yield from _by_spark(run, name, wanted or {}, spark)
        return
    import pyarrow.dataset as ds  # type: ignore[import-untyped]

    files = run.data_files(name)
    if not files:
        return
    condition = None
    for column, values in (wanted or {}).items():
        each = ds.field(column).isin(list(values))
        condition = each if condition is None else condition & each
    scanner = ds.dataset(files, format="parquet").scanner(filter=condition, batch_size=_AT_ONCE, use_threads=False)
    for batch in scanner.to_batches():
        yield from batch.to_pylist()


def findings(
    run: Run,
    causes: Collection[str] = (),
    links: Collection[str] = (),
    ids: Collection[str] = (),
    spark: SparkSession | None = None,
) -> Iterator[dict[str, Any]]:
    """Give a run's findings as the objects of JSON lines, by link and id."""
    wanted = {"cause": causes, "link": links, "aggregate_id": ids}
    for row in rows(run, "findings", {name: values for name, values in wanted.items() if values}, spark):
        yield json.loads(row["finding"])


def _by_spark(
    run: Run, name: str, wanted: Mapping[str, Collection[str]], spark: SparkSession
) -> Iterator[dict[str, Any]]:
    from pyspark.sql import functions as f

    frame = run.parquet(name, spark)
    for column, values in wanted.items():
        frame = frame.where(f.col(column).isin(*values))
    for row in frame.toLocalIterator():
        yield row.asDict(recursive=True)
