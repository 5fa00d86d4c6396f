"""Which aggregates a run is about. Stages ask this object, and never how a run was called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconcile.spark.local_frames import MOST, of_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class All:
    """All aggregates of the contract."""

    @property
    def ids(self) -> None:
        """No list: nothing is left out."""
        return None

    @property
    def count(self) -> None:
        """Not known before the stores were read."""
        return None

    def frame(self, _spark: SparkSession, _column: str) -> None:
        """Name no ids."""
        return


@dataclass(frozen=True)
class Ids:
    """Some aggregates, by their ids. A run of them closes no findings of others, and is no point of a trend."""

    ids: tuple[str, ...]
    """In order, each once."""

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


Scope = All | Ids
