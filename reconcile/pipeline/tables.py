"""Rows of a run's artifacts, read for people and reports: a few at a time, without Spark where the files are local."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconcile.domain.finding import MATTERS, Finding, Rank, from_json, rank
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
_RANKED = [*MATTERS, "cause", "since", "fields", "link", _ID]
"""The columns by which findings are ordered and counted."""
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
    causes: Counter[str]
    """How many fit, by cause."""

    @property
    def total(self) -> int:
        """How many fit."""
        return self.causes.total()


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
    run: Run,
    wanted: Mapping[str, Collection[str]],
    search: str = "",
    offset: int = 0,
    limit: int | None = None,
    spark: SparkSession | None = None,
) -> Page:
    """Read findings, what matters most first: those whose columns have wanted values and whose id holds a text."""
    kinds = {name: frozenset(values) for name, values in wanted.items() if name in FILTERS and values}
    if needs_spark(run.folder):
        assert spark is not None
        return _page_by_spark(run, kinds, search, offset, limit, spark)
    by, sets = [*kinds, _ID], list(kinds.values())

    def fits(row: tuple[Any, ...]) -> bool:
        among = all(value in some for value, some in zip(row, sets, strict=False))
        return among and (not search or search.lower() in (row[-1] or "").lower())

    files = run.data_files(FINDINGS)
    causes: Counter[str] = Counter()

    def ranks() -> Iterator[Rank]:
        for batch, places in batches(files, by, fits, _RANKED):
            columns = [_plain(each) for each in batch.columns]
            for place in places:
                status, difference, confidence, cause, since, fields, link, id_ = (column[place] for column in columns)
                causes[cause] += 1
                yield *rank(status, difference, confidence, since, len(fields or ()), link, id_), causes.total() - 1

    ordered = heapq.nsmallest(offset + limit, ranks()) if limit is not None else sorted(ranks())
    numbers = {each[-1]: place for place, each in enumerate(ordered[offset:])}
    lines: dict[int, str] = {}
    first = 0
    for batch, places in batches(files, by, fits, [_FINDING]) if numbers else ():
        chosen = [(first + at, place) for at, place in enumerate(places) if first + at in numbers]
        lines |= {numbers[number]: batch.column(0)[place].as_py() for number, place in chosen}
        first += len(places)
    return Page([_finding(run, lines[each]) for each in sorted(lines)], causes)


def _finding(run: Run, line: str) -> Finding:
    try:
        return from_json(line)
    except ValueError as error:
        raise DamagedArtifactError(f"the run {run.id} holds a finding that this version cannot read: {error}") from None


def _places(batch: pa.RecordBatch, fits: Callable[[tuple[Any, ...]], bool]) -> list[int]:
    values = zip(*(each.to_pylist() for each in batch.columns), strict=True)
    return [place for place, each in enumerate(values) if fits(each)]


def _plain(column: pa.Array) -> list[Any]:
    """Give a column's values; of an instant its number."""
    import pyarrow as pa

    found: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return found


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
    run: Run, kinds: Mapping[str, Collection[str]], search: str, offset: int, limit: int | None, spark: SparkSession
) -> Page:
    from pyspark.sql import functions as f

    frame = run.parquet(FINDINGS, spark)
    for name, values in kinds.items():
        frame = frame.where(f.col(name).isin(*values))
    if search:
        frame = frame.where(f.contains(f.lower(_ID), f.lit(search.lower())))
    places = [f.array_position(f.array(*map(f.lit, values)), f.col(kind)) for kind, values in MATTERS.items()]
    ordered = frame.orderBy(*places, f.asc_nulls_last("since"), f.desc(f.size("fields")), "link", _ID).offset(offset)
    rows = (ordered if limit is None else ordered.limit(limit)).select(_FINDING).collect()
    causes = {row["cause"]: row["count"] for row in frame.groupBy("cause").count().collect()}
    return Page([_finding(run, row[_FINDING]) for row in rows], Counter(causes))
