"""Rows of a run's artifacts, read for people and reports: a few at a time, without Spark where the files are local."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconcile.domain.finding import Finding, from_json
from reconcile.pipeline.handoffs import FINDINGS
from reconcile.settings.settings import needs_spark
from reconcile.workspace.manifest import DamagedArtifactError
from reconcile.workspace.run import Run

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession

FILTERS = ("link", "cause", "difference", "status", "hop")
"""The columns by which findings are listed."""

_ID, _FINDING = "aggregate_id", "finding"
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
    """Read an artifact's rows in their order; `wanted` names the values that a column may have.

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


def batches(
    files: Iterable[str],
    by: Sequence[str],
    fits: Callable[[tuple[Any, ...]], bool],
    columns: Sequence[str] | None = None,
) -> Iterator[tuple[pa.RecordBatch, Sequence[int]]]:
    """Read the rows of Parquet files a batch at a time, and which of a batch fit by their values of the columns `by`.

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


@dataclass(frozen=True)
class Page:
    """Some of the findings that fit."""

    findings: list[Finding]
    total: int
    """How many fit."""


def findings(
    run: Run,
    causes: Collection[str] = (),
    links: Collection[str] = (),
    ids: Collection[str] = (),
    spark: SparkSession | None = None,
) -> Iterator[Finding]:
    """Read a run's findings, by link and id."""
    return (_finding(run, line) for line in finding_lines(run, causes, links, ids, spark))


def finding_lines(
    run: Run,
    causes: Collection[str] = (),
    links: Collection[str] = (),
    ids: Collection[str] = (),
    spark: SparkSession | None = None,
) -> Iterator[str]:
    """Read a run's findings as JSON lines, by link and id."""
    wanted = {"cause": causes, "link": links, _ID: ids}
    given = {name: values for name, values in wanted.items() if values}
    return (row[_FINDING] for row in rows(run, FINDINGS, given, spark, [_FINDING]))


def page(
    run: Run, wanted: Mapping[str, str], search: str, offset: int, limit: int, spark: SparkSession | None = None
) -> Page:
    """Read findings in their order: those whose columns have the wanted values and whose id holds the searched text."""
    kinds = {name: value for name, value in wanted.items() if name in FILTERS and value}
    if needs_spark(run.folder):
        assert spark is not None
        return _page_by_spark(run, kinds, search, offset, limit, spark)
    by, values = [*kinds, _ID], tuple(kinds.values())

    def fits(row: tuple[Any, ...]) -> bool:
        return row[:-1] == values and (not search or search.lower() in (row[-1] or "").lower())

    lines: list[str] = []
    total = 0
    for batch, places in batches(run.data_files(FINDINGS), by, fits, [_FINDING]):
        first = max(offset - total, 0)
        lines += [batch.column(0)[place].as_py() for place in places[first : first + limit - len(lines)]]
        total += len(places)
    return Page([_finding(run, each) for each in lines], total)


def _finding(run: Run, line: str) -> Finding:
    try:
        return from_json(line)
    except ValueError as error:
        raise DamagedArtifactError(f"the run {run.id} holds a finding that this version cannot read: {error}") from None


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


def _page_by_spark(
    run: Run, kinds: Mapping[str, str], search: str, offset: int, limit: int, spark: SparkSession
) -> Page:
    from pyspark.sql import functions as f

    frame = run.parquet(FINDINGS, spark)
    for name, value in kinds.items():
        frame = frame.where(f.col(name) == value)
    if search:
        frame = frame.where(f.contains(f.lower(_ID), f.lit(search.lower())))
    rows = frame.orderBy("link", _ID).offset(offset).limit(limit).select(_FINDING).collect()
    return Page([_finding(run, row[_FINDING]) for row in rows], frame.count())
