"""Findings a page at a time: filtered, searched and counted without reading more than needed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconcile.pipeline import tables
from reconcile.settings.settings import needs_spark
from reconcile.workspace.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILTERS = ("link", "cause", "difference", "status", "hop")
_FINDINGS, _FINDING, _ID = "findings", "finding", "aggregate_id"


@dataclass(frozen=True)
class Page:
    """Some of the findings that fit."""

    findings: list[dict[str, Any]]
    total: int
    """How many fit."""


def page(
    run: Run, wanted: Mapping[str, str], search: str, offset: int, limit: int, spark: SparkSession | None = None
) -> Page:
    """Give findings in their order: those whose columns have the wanted values and whose id holds the searched text."""
    kinds = {name: value for name, value in wanted.items() if name in FILTERS and value}
    if needs_spark(run.folder):
        assert spark is not None
        return _by_spark(run, kinds, search, offset, limit, spark)
    by, values = [*kinds, _ID], tuple(kinds.values())

    def fits(row: tuple[Any, ...]) -> bool:
        return row[:-1] == values and (not search or search.lower() in (row[-1] or "").lower())

    rows: list[str] = []
    total = 0
    for batch, places in tables.batches(run.data_files(_FINDINGS), by, fits, [_FINDING]):
        first = max(offset - total, 0)
        rows += [batch.column(0)[place].as_py() for place in places[first : first + limit - len(rows)]]
        total += len(places)
    return Page([json.loads(each) for each in rows], total)


def _by_spark(run: Run, kinds: Mapping[str, str], search: str, offset: int, limit: int, spark: SparkSession) -> Page:
    from pyspark.sql import functions as f

    frame = run.parquet(_FINDINGS, spark)
    for name, value in kinds.items():
        frame = frame.where(f.col(name) == value)
    if search:
        frame = frame.where(f.contains(f.lower("aggregate_id"), f.lit(search.lower())))
    rows = frame.orderBy("link", "aggregate_id").offset(offset).limit(limit).select("finding").collect()
    return Page([json.loads(row["finding"]) for row in rows], frame.count())
