"""The state of the log: what its history says of aggregates, kept beside it, so that a night costs what is new.

A part of the state is a function of one aggregate's records: rows for those aggregates of which there is something to
say, and sums over all of them. When segments were added to the history, or given up, only the aggregates that have
records in them are looked at again: what the sums had of them before goes, what they have now comes. So a state never
depends on the way in which the log came, and equals what a scan of all records finds. It can be lost at any time, and
is made anew by such a scan, as it is where the rules changed by which it was made.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from reconcile.gather.log import key_sample, near_records
from reconcile.gather.log.history_columns import (
    DELETES,
    ID,
    KEY,
    OFFSET,
    PARTITION,
    RAW,
    READABLE,
    TIMESTAMP,
    TYPE,
    VERSION,
)
from reconcile.gather.log.state_shelf import Shelf
from reconcile.spark import local_frames
from reconcile.spark.persisted import persisted
from reconcile.workspace import handoff
from reconcile.workspace.filesystem import literal

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

    from reconcile.gather.log.history import History
    from reconcile.gather.log.index import Index, Range

_LOG = logging.getLogger(__name__)

_READ = (ID, KEY, PARTITION, OFFSET, TIMESTAMP, VERSION, TYPE, DELETES, READABLE)
_STORED = (*_READ[:-1], RAW)
"""The stored columns that it takes."""
_MOST_CHANGED = 1_000_000
_NEAR = 200_000  # so many records that came or went are looked at in this process
_SHARE_CHANGED = 5  # records that came or went, as a share of all: from one in so many on a scan of all is cheaper
_ROWS = "kept_rows"
_NOTHING: Mapping[str, int] = {}


@dataclass(frozen=True)
class Found:
    """What a part is of some records."""

    sums: Mapping[str, int]
    rows: pa.Table
    """Those that are kept."""


@dataclass(frozen=True)
class AggregatePart:
    """What is computed of each aggregate's records, and what is kept of it."""

    name: str
    rules: Any
    """All that decides on it beside the records, as JSON can hold it."""
    columns: str
    """The columns of a kept row, in Spark's DDL."""
    of: Callable[[DataFrame], DataFrame]
    """Build one row for each aggregate from records, or none for those of which nothing is to be said."""
    sums: Mapping[str, str]
    """Sums over these rows, in Spark's SQL: whole numbers, to which each row adds its own."""
    kept: str = "true"
    """Which rows are kept, in Spark's SQL: few."""
    here: Callable[[pa.Table], Found | None] | None = None
    """The same of records that this process has; None where only Spark computes it."""


@dataclass(frozen=True)
class RecordPart:
    """What is computed of a stretch of records, whosever they are."""

    name: str
    rules: Any
    """All that decides on it beside the records, as JSON can hold it."""
    of: Callable[[DataFrame, int], Any]
    """Query it, as JSON can hold it, of records that are about so many."""


@dataclass(frozen=True)
class Known:
    """What a part of the state says."""

    sums: Mapping[str, int]
    rows: DataFrame
    count: int
    """How many rows there are."""


class LogState(Protocol):
    """Where parts of the state are read from."""

    def read(self, *parts: AggregatePart) -> list[Known]:
        """Read parts of the state, each up to where the history ends."""

    def read_stretches(self, part: RecordPart) -> list[Any]:
        """Read what is known of each stretch of the history."""

    def read_keys(self, within: Mapping[int, Range]) -> list[tuple[bytes, int]]:
        """Read a sample of keys with their partitions, of the records in a range of offsets of each partition."""


@dataclass(frozen=True)
class ScannedState:
    """The state as a scan of all records computes it, and nobody keeps."""

    records: DataFrame
    index: Index

    def read(self, *parts: AggregatePart) -> list[Known]:
        """Compute parts of the state."""
        found = []
        for part in parts:
            rows = part.of(self.records)
            sums = _summed(part, rows)
            found.append(Known(sums, rows.where(part.kept).select(*_names(part)), sums.pop(_ROWS)))
        return found

    def read_stretches(self, part: RecordPart) -> list[Any]:
        """Compute it of all records at once."""
        rows = sum(segment.rows for segment in self.index.segments)
        return [part.of(self.records, rows)] if rows else []

    def read_keys(self, within: Mapping[int, Range]) -> list[tuple[bytes, int]]:
        """Query the sample."""
        share = key_sample.share(self.index.segments, within)
        return key_sample.pairs(key_sample.query(self.records, within, share)) if share else []


class Kept(handoff.Versioned):
    """A part of the state, as it is while the history has these segments."""

    segments: dict[str, int]
    """How many records each segment holds, by its name."""
    sums: dict[str, int]
    rows: int
    folder: str
    """Where the rows are."""
    files: dict[str, int]
    """Their files, with their sizes in bytes."""


class Stretch(handoff.Part):
    """What is known of the records of some segments."""

    segments: dict[str, int]
    found: Any


class Stretches(handoff.Versioned):
    """What is known of all records, stretch by stretch."""

    stretches: tuple[Stretch, ...] = ()


class KeySample(handoff.Versioned):
    """A sample of keys, as it is while the history has these segments."""

    segments: dict[str, int]
    share: int
    """One record in so many belongs to it."""
    keys: tuple[tuple[str, int, int, int], ...]
    """As `key_sample.query` gives them."""


@dataclass(frozen=True)
class KeptState:
    """The state of a history, kept beside it and extended by what is new."""

    spark: SparkSession
    history: History

    def read(self, *parts: AggregatePart) -> list[Known]:
        """Read parts of the state; what the history has got or lost since is looked at first."""
        found = []
        with ExitStack() as stack:
            changes: dict[frozenset[str], _Change | None] = {}
            for part in parts:
                shelf = Shelf(self.history.home, part.name, part.rules, Kept)
                before = shelf.newest()
                if before is not None and before.files != shelf.files(before.folder):
                    before = None  # somebody removed or damaged them
                if before is None or before.segments != self._segments:
                    before = self._extended(part, shelf, before, changes, stack)
                found.append(Known(before.sums, self._rows(part, shelf, before), before.rows))
        return found

    def read_stretches(self, part: RecordPart) -> list[Any]:
        """Read what is known of each stretch; what is new since the last time is one more."""
        shelf = Shelf(self.history.home, part.name, part.rules, Stretches)
        before, now = shelf.newest() or Stretches(), self._segments
        whole = [each for each in before.stretches if each.segments.keys() <= now.keys()]
        known = {name for each in whole for name in each.segments}
        missing = {name: rows for name, rows in now.items() if rows and name not in known}
        if missing:
            found = part.of(self.history.records(self.spark, segments=missing), sum(missing.values()))
            whole.append(Stretch(segments=missing, found=found))
        if len(whole) != len(before.stretches) or missing:
            shelf.publish(self.history.index.generation, Stretches(stretches=tuple(whole)))
        return [each.found for each in whole]

    def read_keys(self, within: Mapping[int, Range]) -> list[tuple[bytes, int]]:
        """Read the sample; only what is new is looked at."""
        share, now = key_sample.share(self.history.index.segments, within), self._segments
        if not share:
            return []
        shelf = Shelf(self.history.home, "keys", sorted(within.items()), KeySample)
        before = shelf.newest()
        if before is not None and (before.segments, before.share) == (now, share):
            return key_sample.pairs(before.keys)
        if before is None or before.share > share:
            before = KeySample(segments={}, share=share, keys=())
        added = [name for name, rows in now.items() if rows and name not in before.segments]
        keys = key_sample.thinned(before.keys, share, self.history.index)
        if added:
            keys += key_sample.query(self.history.records(self.spark, segments=added), within, share)
        shelf.publish(self.history.index.generation, KeySample(segments=now, share=share, keys=tuple(keys)))
        return key_sample.pairs(keys)

    @property
    def _segments(self) -> dict[str, int]:
        return {segment.name: segment.rows for segment in self.history.index.segments}

    def _extended(
        self,
        part: AggregatePart,
        shelf: Shelf[Kept],
        before: Kept | None,
        changes: dict[frozenset[str], _Change | None],
        stack: ExitStack,
    ) -> Kept:
        covered = frozenset(before.segments if before else ())
        if covered not in changes:
            changes[covered] = None if before is None else self._change(before, stack)
        change = changes[covered]
        if before is None or change is None:
            _LOG.debug(f"{self.history.index.topic}: the log's {part.name} are computed of all records")
            kept = self._written(part, shelf, part.of(self._of(self._segments)))
        elif not change.records:
            kept = before.model_copy(update={"segments": self._segments})
        else:
            _LOG.debug(f"{self.history.index.topic}: the log's {part.name} follow {change.records:,} records")
            here = self._followed_here(part, shelf, before, change)
            kept = here or self._followed(part, shelf, before, change)
        shelf.publish(self.history.index.generation, kept)
        return kept

    def _followed(self, part: AggregatePart, shelf: Shelf[Kept], before: Kept, change: _Change) -> Kept:
        others = self._rows(part, shelf, before).join(change.ids, ID, "left_anti")
        with local_frames.in_one_job(self.spark) if change.here else nullcontext():
            gone = _summed(part, part.of(change.before()))
            return self._written(part, shelf, part.of(change.now()), others, _less(part, before, gone, gone[_ROWS]))

    def _followed_here(self, part: AggregatePart, shelf: Shelf[Kept], before: Kept, change: _Change) -> Kept | None:
        """Compute the same in this process; None where that cannot be."""
        import pyarrow as pa
        import pyarrow.compute as pc  # type: ignore[import-untyped]
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        known = self._rows_here(part, shelf, before)
        if change.here is None or part.here is None or known is None:
            return None
        gone, came = part.here(change.here.before), part.here(change.here.now)
        if gone is None or came is None:
            return None
        others = known.filter(pc.invert(pc.is_in(known.column(ID), change.here.ids)))
        rows = pa.concat_tables([others, came.rows.cast(known.schema)])
        sums = _less(part, before, gone.sums, gone.rows.num_rows)
        folder = self._new_folder(shelf)
        self.history.home.files.mkdirs(f"{shelf.folder}/{folder}")
        if rows.num_rows:
            pq.write_table(rows, f"{shelf.folder}/{folder}/part-00000.parquet")
        return Kept(
            segments=self._segments,
            rows=sums.pop(_ROWS) + came.rows.num_rows,
            sums={name: sums[name] + came.sums[name] for name in part.sums},
            folder=folder,
            files=shelf.files(folder),
        )

    def _change(self, before: Kept, stack: ExitStack) -> _Change | None:
        """Choose what to look at again; None where that is so much that all may be looked at."""
        home, now = self.history.home, self._segments
        added = {name: rows for name, rows in now.items() if rows and name not in before.segments}
        removed = {name: rows for name, rows in before.segments.items() if rows and name not in now}
        records = sum(added.values()) + sum(removed.values())
        if records > min(_MOST_CHANGED, sum(now.values()) // _SHARE_CHANGED):
            return None
        if not all(home.files.exists(home.path(name)) for name in removed):
            return None
        if not records:
            nothing = self._of(())
            return _Change(0, nothing, lambda: nothing, lambda: nothing)
        common = [name for name in now if name in before.segments]
        if records <= _NEAR and (near := self._near_change(records, common, added, removed)) is not None:
            return near
        came, went = self._of(added), self._of(removed)
        ids = stack.enter_context(persisted(came.unionByName(went).where(f"{ID} is not null").select(ID).distinct()))
        stayed = stack.enter_context(persisted(self._of(common, ids)))
        return _Change(records, ids, lambda: stayed.unionByName(went), lambda: stayed.unionByName(came))

    def _near_change(
        self, records: int, common: Collection[str], added: Collection[str], removed: Collection[str]
    ) -> _Change | None:
        """Look at it in this process, where the files are near."""
        import pyarrow as pa

        came, went = (self.history.near(segments, columns=_STORED) for segments in (added, removed))
        if came is None or went is None:
            return None
        ids = pa.concat_tables([came, went]).column(ID).unique().drop_null()
        stayed = self.history.near(common, ids, _STORED)
        if stayed is None:
            return None

        listed = local_frames.of_table(self.spark, pa.table({ID: ids}), f"{ID} string")
        stored = [pa.concat_tables([stayed, others]) for others in (went, came)]

        def frame(of: pa.Table) -> DataFrame:
            return self.history.of_table(self.spark, of).select(*_READ)

        here = _Here(ids, *map(self.history.derivation.shown_here, stored))
        return _Change(records, listed, lambda: frame(stored[0]), lambda: frame(stored[1]), here)

    def _of(self, segments: Collection[str], ids: DataFrame | None = None) -> DataFrame:
        return self.history.records(self.spark, ids, segments).select(*_READ)

    def _rows(self, part: AggregatePart, shelf: Shelf[Kept], kept: Kept) -> DataFrame:
        if (here := self._rows_here(part, shelf, kept)) is not None:
            return local_frames.of_table(self.spark, here, part.columns)
        path = literal(self.history.home.files.uri(f"{shelf.folder}/{kept.folder}"))
        return self.spark.read.schema(part.columns).parquet(path)

    def _rows_here(self, part: AggregatePart, shelf: Shelf[Kept], kept: Kept) -> pa.Table | None:
        """Read the rows into this process; None where the files are elsewhere, or the rows too many."""
        schema = local_frames.arrow_schema(part.columns)
        if not kept.rows:
            return schema.empty_table()
        if kept.rows > local_frames.MOST:
            return None
        return near_records.tables(self.history.home, [f"{shelf.folder}/{kept.folder}"], schema)

    def _new_folder(self, shelf: Shelf[Kept]) -> str:
        self.history.home.files.mkdirs(f"{shelf.folder}/rows")
        return f"rows/{self.history.index.generation:08d}-{uuid4().hex[:12]}"

    def _written(
        self,
        part: AggregatePart,
        shelf: Shelf[Kept],
        rows: DataFrame,
        others: DataFrame | None = None,
        sums: Mapping[str, int] = _NOTHING,
    ) -> Kept:
        """Write which of the rows are kept, beside others, and add all of them to the sums in the same job."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        observation = Observation()
        observed = rows.observe(observation, *(f.expr(each).alias(name) for name, each in _sums(part).items()))
        kept = observed.where(part.kept).select(*_names(part))
        whole = kept if others is None else kept.unionByName(others.select(*_names(part)))
        folder = self._new_folder(shelf)
        files, path = self.history.home.files, f"{shelf.folder}/{folder}"
        whole.write.parquet(files.uri(path))
        files.restrict(path)
        seen = {name: sums.get(name, 0) + int(found or 0) for name, found in observation.get.items()}
        count, listed = seen.pop(_ROWS), shelf.files(folder)
        return Kept(segments=self._segments, rows=count, sums=seen, folder=folder, files=listed)


@dataclass(frozen=True)
class _Here:
    """A change whose records this process has."""

    ids: pa.Array
    before: pa.Table
    now: pa.Table


@dataclass(frozen=True)
class _Change:
    """What came into a history, or went out of it."""

    records: int
    ids: DataFrame
    """Whose records."""
    before: Callable[[], DataFrame]
    """The records of these ids before."""
    now: Callable[[], DataFrame]
    here: _Here | None = None
    """The same, if this process has it."""


def _less(part: AggregatePart, before: Kept, gone: Mapping[str, int], rows: int) -> dict[str, int]:
    """Compute what is left of the sums, and of the rows, without what is gone."""
    return {_ROWS: before.rows - rows, **{name: before.sums[name] - gone[name] for name in part.sums}}


def _sums(part: AggregatePart) -> dict[str, str]:
    return {**part.sums, _ROWS: f"count_if({part.kept})"}


def _summed(part: AggregatePart, rows: DataFrame) -> dict[str, int]:
    from pyspark.sql import functions as f

    found = rows.agg(*(f.expr(each).alias(name) for name, each in _sums(part).items())).collect()[0]
    return {name: int(found[name] or 0) for name in found.asDict()}


def _names(part: AggregatePart) -> list[str]:
    return [each.strip().split()[0] for each in re.split(r",(?![^<]*>)", part.columns)]
