"""Histories without the records of some aggregates."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f  # noqa: TID253

from reconcile.domain import key
from reconcile.domain.dialect import ORIGIN_KEY
from reconcile.gather.log import history_columns as c
from reconcile.gather.log.segment import rewrite_segment
from reconcile.gather.log.store import Home
from reconcile.workspace.filesystem import literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from reconcile.gather.log.index import Index


def forget(spark: SparkSession, home: Home, ids: Collection[str], key_type: str) -> int:
    """Rewrite the segments that hold records of some aggregates, without those; return how many these were.

    The next index replaces the segments at once: what is cut off before that has changed nothing. Then the earlier
    indexes go with all that only they name, and the state of the log, which is made anew when it is asked for.
    """
    forgotten = 0

    def following(index: Index) -> Index | None:
        nonlocal forgotten
        kept, forgotten = [], 0
        for segment in index.segments:
            if not segment.rows:
                kept.append(segment)
                continue
            records = _Records.read(spark, home, segment.name, ids, key_type)
            found = records.mentions.count()
            kept.append(rewrite_segment(spark, records.rest, segment, home, index) if found else segment)
            forgotten += found
        if not forgotten:
            return None
        return index.model_copy(update={"generation": index.generation + 1, "segments": tuple(kept)})

    if home.change(following) is not None:
        home.remove_past()
        home.remove_state()
    return forgotten


def count(spark: SparkSession, home: Home, ids: Collection[str], key_type: str) -> int:
    """Count the records of some aggregates in all files of a history, whether an index names them or not."""
    records = (_Records.read(spark, home, name, ids, key_type) for name in home.stored_segments())
    return sum(each.mentions.count() for each in records)


@dataclass(frozen=True)
class _Records:
    """The records of a segment, and which aggregates are to be forgotten."""

    stored: DataFrame
    ids: tuple[str, ...]
    forms: tuple[bytes, ...]
    """The bytes that a header may hold of an id."""

    @classmethod
    def read(cls, spark: SparkSession, home: Home, name: str, ids: Collection[str], key_type: str) -> _Records:
        listed = tuple(sorted(set(ids)))
        forms = tuple(form for each in listed for form in _forms(each, key_type))
        return cls(spark.read.parquet(literal(home.uri(name))), listed, forms)

    @property
    def mentions(self) -> DataFrame:
        """Those that are about them, or are about others and name them."""
        named = _holds(f.col(c.CORRELATION_ID).isin(*self.ids))
        if c.HEADERS in self.stored.columns:
            named |= _holds(f.exists(c.HEADERS, self._has_form))
        return self.stored.where(self._about | named)

    @property
    def rest(self) -> DataFrame:
        """Those that are about others, without what names them."""
        unnamed = {c.CORRELATION_ID: f.when(~_holds(f.col(c.CORRELATION_ID).isin(*self.ids)), f.col(c.CORRELATION_ID))}
        if c.HEADERS in self.stored.columns:
            unnamed[c.HEADERS] = f.transform(c.HEADERS, self._unnamed)
        return self.stored.where(~self._about).withColumns(unnamed)

    @property
    def _about(self) -> Column:
        """Whether a record is about one of them: by its id, by its key in the main topic, or by what it says."""
        about = _holds(f.col(c.ID).isin(*self.ids))
        for each in self.ids:
            about |= f.col(c.ID).isNull() & _holds(f.contains(f.col(c.VALUE), f.lit(f'"{each}"')))
        if c.HEADERS in self.stored.columns:
            about |= _holds(f.exists(c.HEADERS, lambda each: (each["key"] == ORIGIN_KEY) & self._has_form(each)))
        return about

    def _has_form(self, header: Column) -> Column:
        return _holds(header["value"].isin(*self.forms))

    def _unnamed(self, header: Column) -> Column:
        value = f.when(~self._has_form(header), header["value"])
        return f.struct(header["key"].alias("key"), value.alias("value"))


def _holds(condition: Column) -> Column:
    return f.coalesce(condition, f.lit(False))


def _forms(id_text: str, key_type: str) -> list[bytes]:
    """List the bytes that a header may hold of an id."""
    try:
        return [id_text.encode(), key.encode(id_text, key_type)]
    except (ValueError, KeyError):
        return [id_text.encode()]
