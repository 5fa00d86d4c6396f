"""Which aggregates a run is about. Stages ask this object, and never how a run was called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from reconcile.errors import RefusedError
from reconcile.pipeline import tables
from reconcile.pipeline.handoffs import CHANGED, CLOSELY, Gathered, Request, RunScope
from reconcile.spark.local_frames import MOST, of_rows, of_table
from reconcile.spark.local_frames import table as local_table
from reconcile.workspace.run import Run

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

LAST = "last"
"""In place of a run's id: the newest run from which changes can be told."""
_ID = "id"
_MOST, _MOST_BYTES = 1_000_000, 64 * 1024 * 1024
"""So many ids that may have changed are kept in this process."""


@dataclass(frozen=True)
class All:
    """All aggregates of the contract."""

    ids: None = None
    since: None = None
    whole: bool = True
    """Whether nothing is left out: only such a run is a point of the trend."""
    sifted: bool = True
    """Whether those that agree are looked at closely only where something may break them."""
    count: None = None
    aggregates: int = 0
    """How many there are at least, where that is known before they are compared."""
    begins: None = None
    """From which offsets on the log's records are about it, where older ones are not."""

    def frame(self, _spark: SparkSession, _column: str) -> None:
        """Name no ids."""
        return

    def closely(self, _spark: SparkSession, _column: str) -> None:
        """Name no ids."""
        return

    def within(self, ids: DataFrame) -> DataFrame:
        """Leave nothing out."""
        return ids

    def listed(self, _spark: SparkSession | None) -> None:
        """Name no ids."""
        return


@dataclass(frozen=True)
class Ids:
    """Some aggregates, by their ids. A run of them closes no findings of others, and is no point of a trend."""

    ids: tuple[str, ...]
    """In order, each once."""
    since: None = None
    whole: bool = False
    sifted: bool = False
    aggregates: int = 0
    begins: None = None

    @classmethod
    def of(cls, ids: Iterable[str]) -> Ids:
        """Build the scope of some ids, in any order."""
        return cls(tuple(sorted(set(ids))))

    @property
    def count(self) -> int:
        """How many aggregates were asked for."""
        return len(self.ids)

    def frame(self, spark: SparkSession, column: str) -> DataFrame:
        """Build a DataFrame of the ids in one column."""
        rows, schema = [(each,) for each in self.ids], f"{column} string"
        return spark.createDataFrame(rows, schema) if self.count > MOST else of_rows(spark, rows, schema)

    def closely(self, spark: SparkSession, column: str) -> DataFrame:
        """Build a DataFrame of the ids that are looked at closely also where they agree: all of them."""
        return self.frame(spark, column)

    def within(self, ids: DataFrame) -> DataFrame:
        """Select those of the ids in the column `id` that it is about."""
        return ids.join(self.frame(ids.sparkSession, _ID), _ID, "left_semi")

    def listed(self, _spark: SparkSession | None) -> Iterable[str]:
        """Name the ids one by one."""
        return self.ids


@dataclass(frozen=True)
class ChangedIds:
    """The table of the ids that may have changed, as a run has published it."""

    run: Run

    @cached_property
    def here(self) -> pa.Table | None:
        """The table in this process; None where it is elsewhere, or too large."""
        return self.run.table(CHANGED, _MOST, _MOST_BYTES)

    @property
    def listed(self) -> list[str] | None:
        """The ids in this process; None where they are elsewhere, or too many."""
        found: list[str] | None = None if self.here is None else self.here.column(_ID).to_pylist()
        return found

    def frame(self, spark: SparkSession, column: str) -> DataFrame:
        """Build a DataFrame of the ids in one column."""
        return self.run.parquet(CHANGED, spark).selectExpr(f"{_ID} as {column}")

    def closely(self, spark: SparkSession, column: str) -> DataFrame:
        """Build a DataFrame of the ids that are looked at closely also where they agree."""
        if self.here is None:
            return self.run.parquet(CHANGED, spark).where(CLOSELY).selectExpr(f"{_ID} as {column}")
        found = self.here.filter(self.here.column(CLOSELY)).select([_ID]).rename_columns([column])
        return of_table(spark, found, f"{column} string")

    def within(self, ids: DataFrame) -> DataFrame:
        """Select those of the ids in the column `id` that may have changed."""
        wanted = None if self.here is None else local_table(ids)
        if wanted is None or self.here is None:
            return ids.join(self.frame(ids.sparkSession, _ID), _ID, "left_semi")
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        found = wanted.filter(pc.is_in(wanted.column(_ID), self.here.column(_ID).combine_chunks()))
        return of_table(ids.sparkSession, found, ids.schema)


@dataclass(frozen=True)
class ChangedSince:
    """The aggregates that may have changed since an earlier run; all of them where that cannot be told.

    Which it is, and which aggregates, the stage `gather` finds out: before, all seems to be in it.
    """

    since: str
    """The earlier run as it was asked for: its id, or `last`."""
    run: Run
    """The run that asks."""
    ids: None = None
    sifted: bool = True

    @property
    def whole(self) -> bool:
        """Whether nothing is left out, as it had to be a full run."""
        return self._scope is None

    @property
    def count(self) -> int | None:
        """How many aggregates may have changed; None for all."""
        return None if self._scope is None else self._scope.ids

    @property
    def aggregates(self) -> int:
        """How many aggregates there are at least, changed or not."""
        return 0 if self._scope is None else self._scope.aggregates or 0

    @property
    def begins(self) -> Mapping[int, int] | None:
        """From which offsets on the log's records are about it, by partition; None for all."""
        gathered = self._gathered
        return None if self._scope is None or gathered is None else gathered.begins

    def frame(self, spark: SparkSession, column: str) -> DataFrame | None:
        """Build a DataFrame of the ids in one column; None for all."""
        return None if self.whole else self._changed.frame(spark, column)

    def closely(self, spark: SparkSession, column: str) -> DataFrame | None:
        """Build a DataFrame of the ids that are looked at closely also where they agree: those of open findings."""
        return None if self.whole else self._changed.closely(spark, column)

    def within(self, ids: DataFrame) -> DataFrame:
        """Select those of the ids in the column `id` that may have changed."""
        return ids if self.whole else self._changed.within(ids)

    def listed(self, spark: SparkSession | None) -> Iterator[str] | None:
        """Read the ids one by one; None for all."""
        if self.whole:
            return None
        return (row[_ID] for row in tables.rows(self.run, CHANGED, spark=spark, columns=[_ID]))

    @cached_property
    def _changed(self) -> ChangedIds:
        return ChangedIds(self.run)

    @property
    def _gathered(self) -> Gathered | None:
        return self.run.read_if_there(Gathered)

    @property
    def _scope(self) -> RunScope | None:
        """What the run settled on, if that are some aggregates."""
        gathered = self._gathered
        scope = None if gathered is None else gathered.scope
        return None if scope is None or scope.kind != "changed" else scope


Scope = All | Ids | ChangedSince


def scope_for(run: Run, ids: Iterable[str] | None, since: str | None) -> Scope:
    """Build the scope of a run that is asked for some ids, or for what changed since another; else for all."""
    if ids is not None and since is not None:
        raise RefusedError("a run is of some ids, or of what changed since another run: leave one of them out")
    if since is not None:
        return ChangedSince(since, run)
    return All() if ids is None else Ids.of(ids)


def scope_of(run: Run, request: Request) -> Scope:
    """Build the scope of a run that was begun."""
    return scope_for(run, request.ids, request.since)
