"""All that is read of one link in its stores, at the instants of an open fence."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession  # noqa: TID253

from reconcile.contract.model import Consumer, Contract, StashTable
from reconcile.contract.terms import Rows
from reconcile.domain.canonical import Layout
from reconcile.domain.outbox import WaitingEvents
from reconcile.domain.parking import LIBRARY_STASH
from reconcile.errors import RefusedError
from reconcile.gather import spark_read_errors
from reconcile.gather.evidence import outbox, stash_table
from reconcile.gather.evidence.ledger import LIBRARY_LEDGER, PostgresLedger, SparkLedger
from reconcile.gather.fence.opening import OpenFence
from reconcile.gather.stores import buckets, canonical_columns, changed_rows, digest, row_columns, spark_store
from reconcile.gather.stores.buckets import Differing
from reconcile.gather.stores.comparison_pair import comparison_pair, copy_side, source_side, types_for
from reconcile.gather.stores.digest import Choice, ComparisonMode, Mode, Side
from reconcile.gather.stores.library_tables import Registration
from reconcile.gather.stores.link_rows import DigestedRows, PostgresRows, SparkRows
from reconcile.gather.stores.postgres_store import OpenPostgres, PostgresParts, PostgresStore
from reconcile.gather.stores.session import SnapshotSession, StoreSession
from reconcile.gather.stores.spark_store import SparkStore
from reconcile.gather.stores.usage import Usage
from reconcile.settings.connections import Store
from reconcile.settings.settings import Settings
from reconcile.settings.urls import PostgresUrl

if TYPE_CHECKING:
    from reconcile.gather.stores.mariadb.rows import MariaRows, MariaStore

    _AnyStore = OpenPostgres | MariaStore | SparkStore


@dataclass(frozen=True)
class Compared:
    """Rows of both sides that are to be compared, and how they were chosen."""

    source: DataFrame | PostgresParts
    copy: DataFrame | PostgresParts
    mode: Mode
    reasons: tuple[str, ...]
    """Why not a faster mode."""
    differing: Differing | None
    """What the digests said; None where all rows are compared."""


@dataclass(frozen=True)
class LinkReader:
    """Reads one link's rows, ledger, problem table and outbox."""

    spark: SparkSession
    contract: Contract
    consumer: Consumer
    settings: Settings
    opened: OpenFence

    def compared(self, mode: ComparisonMode) -> Compared:
        """Read the rows to compare: all of them, or those in the buckets whose digests differ."""
        choice = self._choice(mode)
        if choice.mode is Mode.FULL:
            source, copy = self.rows
            return Compared(self._all(source), self._all(copy), choice.mode, choice.reasons, None)
        source, copy = (each.digested(choice.mode, self._buckets) for each in self._digestible)
        differing = buckets.compare(source, copy)
        which = None if differing.most else differing.buckets
        if which == ():
            nothing = self.spark.createDataFrame([], row_columns.schema(len(self.consumer.fields)))
            return Compared(nothing, nothing, choice.mode, choice.reasons, differing)
        return Compared(self._all(source, which), self._all(copy, which), choice.mode, choice.reasons, differing)

    def compared_among(self, ids: DataFrame, listed: Sequence[str] | None) -> Compared:
        """Read the rows of the ids in the column `reconcile_id`; `listed` if this process has them, without NULL."""
        source, copy = (
            each.among(ids) if listed is None or not isinstance(each, PostgresRows) else each.parts(ids=listed)
            for each in self.rows
        )
        return Compared(source, copy, Mode.FULL, (), None)

    def _all(self, rows: DigestedRows | SparkRows, buckets: tuple[int, ...] | None = None) -> DataFrame | PostgresParts:
        return rows.parts(buckets) if isinstance(rows, PostgresRows) else rows.all(self.spark, buckets)

    def sample(self, compared: Compared, rows: int) -> tuple[DataFrame, DataFrame]:
        """Read about so many rows of each side: those of some buckets, which are the same on both sides and each night.

        For rows that were compared by their digests.
        """
        assert compared.differing is not None
        differing = compared.differing
        share = rows / max(differing.source_rows, differing.copy_rows, 1)
        some = None if share >= 1 else tuple(range(math.ceil(differing.count * share)))
        source, copy = (
            each.digested(compared.mode, differing.count).all(self.spark, some) for each in self._digestible
        )
        return source, copy

    @cached_property
    def rows(self) -> tuple[DigestedRows | SparkRows, DigestedRows | SparkRows]:
        """The rows of both: the source's and the copy's."""
        frames, types = self._typed_sides
        pair = comparison_pair(self.contract, self.consumer, *types)
        found: list[DigestedRows | SparkRows] = []
        for reading, frame, store in zip((pair.source, pair.copy), frames, self._stores, strict=True):
            if isinstance(store, OpenPostgres):
                found.append(PostgresRows(store.store, store.session, reading))
            elif isinstance(store, SparkStore):
                assert frame is not None
                found.append(SparkRows(store, reading.side, frame, reading.form))
            else:
                found.append(_maria_rows(store, reading))
        return found[0], found[1]

    def changed_since(self, instant: datetime) -> DataFrame | None:
        """Read the ids of the source's rows that were changed since; None if it does not say when they were."""
        column, store = self.contract.source.updated_at, self._stores[0]
        if column is None:
            return None
        source = self.rows[0]
        if isinstance(store, OpenPostgres):
            assert isinstance(source, PostgresRows)
            return changed_rows.of_postgres(self.spark, store, source.reading, column, instant)
        side = source_side(self.contract, self.consumer)
        if isinstance(store, SparkStore):
            return changed_rows.by_spark(self.spark, store, side, column, instant)
        return changed_rows.of_maria(self.spark, store, side, column, instant)

    def ledger(self) -> DataFrame | None:
        """Read the whole ledger; None if the consumer keeps none."""
        return None if self._ledger is None else self._ledger.all(self.spark)

    def ledger_bounds(self) -> DataFrame | None:
        """Read the ledger's first offset and time by partition; None if the consumer keeps none."""
        return None if self._ledger is None else self._ledger.bounds(self.spark)

    def ledger_of(self, events: DataFrame) -> DataFrame | None:
        """Read the ledger's entries for events, with the events' `id`; None if the consumer keeps none."""
        return None if self._ledger is None else self._ledger.among(self.spark, events)

    def stash_table(self) -> DataFrame | None:
        """Read what lies in the consumer's table of problems, as `parked` does what lies in topics."""
        table, store = self.consumer.failure.stash, self._stores[1]
        declared = table.table if isinstance(table, StashTable) else None
        by_library = self._registration is not None if declared is None else declared == LIBRARY_STASH
        if by_library and isinstance(store, OpenPostgres):
            return stash_table.read_of_library(self.spark, store, self._whose, self._typed_sides[1][0].id)
        if not isinstance(table, StashTable):
            return None
        source_ids = self._typed_sides[1][0].id
        if isinstance(store, OpenPostgres):
            return stash_table.read(self.spark, store, table, source_ids)
        return stash_table.read_by_spark(self.spark, store, table, source_ids)

    def outbox(self) -> DataFrame | None:
        """Read how many events of an id wait in the source's outbox; None if there is none."""
        box, store = self.contract.source.outbox, self._stores[0]
        if box is None:
            return None
        if isinstance(store, OpenPostgres):
            return outbox.pending(self.spark, store, box, self.opened.fence.source.outbox_pending)
        return outbox.pending_by_spark(self.spark, store, box)

    def waiting(self, ids: Collection[str]) -> dict[str, WaitingEvents]:
        """Read what waits in the source's outbox of these ids; nothing where there is no outbox."""
        box, store = self.contract.source.outbox, self._stores[0]
        if box is None or not ids:
            return {}
        if isinstance(store, OpenPostgres):
            return outbox.waiting(store, box, ids)
        with self.reading():
            snapshot = self.opened.fence.source.snapshot
            seen_at = datetime.now(UTC) if snapshot is None else snapshot.taken_at
            return outbox.waiting_by_spark(self.spark, store, box, ids, seen_at)

    @contextmanager
    def tasks_reading(self, tasks: int | None, *, of_source: bool) -> Iterator[Usage | None]:
        """Let so many of Spark's tasks read a side, once its database is not too busy; give where to count that.

        None stands for as many as may read it at all.
        """
        store = self._stores[0 if of_source else 1]
        if not isinstance(store, OpenPostgres):
            yield None
            return
        with store.tasks_reading(tasks):
            yield store.session.usage

    def reading(self) -> AbstractContextManager[None]:
        """Turn what Spark says of a store into an error that says what to do."""
        return spark_read_errors.explained(self.opened, self.consumer.name, self.contract.link(self.consumer))

    def _choice(self, mode: ComparisonMode) -> Choice:
        if mode == "full":
            return Choice(Mode.FULL, ("asked for",))
        digestible = self._digestible
        if len(digestible) < len(self.rows):
            if mode == "digest":
                raise RefusedError("the mode digest needs a Postgres or a MariaDB on both sides: use auto or full")
            return Choice(Mode.FULL, ("not both stores are a Postgres or a MariaDB",))
        source, copy = digestible
        checked = any(isinstance(each, PostgresRows) and each.reading.checked for each in digestible)
        found = digest.choose(copy.server, source.server, checked=checked)
        if found.mode is Mode.FULL and mode == "digest":
            raise RefusedError(f"the mode digest cannot be used: {'; '.join(found.reasons)}")
        return found

    @property
    def _digestible(self) -> list[DigestedRows]:
        return [each for each in self.rows if not isinstance(each, SparkRows)]

    @property
    def _buckets(self) -> int:
        expected = max(self.opened.fence.source.rows or 0, self.opened.fence.consumer(self.consumer.name).rows or 0)
        return digest.bucket_count(expected)

    @cached_property
    def _ledger(self) -> PostgresLedger | SparkLedger | None:
        ledger, store, registration = self.consumer.failure.ledger, self._stores[1], self._registration
        kept = registration is not None and registration.ledger
        by_library = kept if ledger is None else ledger.table == LIBRARY_LEDGER.table
        if by_library and isinstance(store, OpenPostgres):
            return PostgresLedger.of(store, LIBRARY_LEDGER, self._whose)
        if ledger is None:
            return None
        return PostgresLedger.of(store, ledger) if isinstance(store, OpenPostgres) else SparkLedger(store, ledger)

    @property
    def _registration(self) -> Registration | None:
        """How the group consumes by the library, whose tables stand for those that the contract does not declare."""
        return self.opened.fence.consumer(self.consumer.name).registration(self.contract.topic.name)

    @property
    def _whose(self) -> tuple[str, str]:
        """The group and the topic whose rows of the library's tables count."""
        return self.consumer.group, self.contract.topic.name

    @cached_property
    def _stores(self) -> tuple[_AnyStore, _AnyStore]:
        fence, (source, copy) = self.opened.fence, self._sessions
        cut = fence.consumer(self.consumer.name).cut
        return self._store(self.contract.source, source, fence.source.cut), self._store(self.consumer, copy, cut)

    def _store(self, rows: Rows, session: SnapshotSession | None, cut: str | None) -> _AnyStore:
        connection = self.settings.connection(rows.store)
        address = connection.resolve() if isinstance(connection, Store) else connection
        if isinstance(address, PostgresUrl):
            assert isinstance(session, StoreSession)
            assert session.snapshot is not None
            store = PostgresStore(rows.store, address, session.snapshot.id, session.limits)
            return OpenPostgres(store, session)
        if session is not None:
            return _maria_store(session)
        return SparkStore.of(rows.store, address, cut, rows.table)

    @property
    def _sessions(self) -> tuple[SnapshotSession | None, SnapshotSession | None]:
        return self.opened.source, self.opened.consumers[self.consumer.name]

    @cached_property
    def _typed_sides(self) -> tuple[tuple[DataFrame | None, DataFrame | None], tuple[Layout[str], Layout[str]]]:
        """Frames where Spark reads a side, and the types of both sides."""
        fence, consumer = self.opened.fence, self.opened.fence.consumer(self.consumer.name)
        wanted = source_side(self.contract, self.consumer), copy_side(self.consumer)
        known = fence.source.types and types_for(fence.source.types, self.contract, self.consumer)
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(self._typed, self._stores, wanted, (known, consumer.types)))
        return (found[0][0], found[1][0]), (found[0][1], found[1][1])

    def _typed(self, store: _AnyStore, side: Side, known: Layout[str] | None) -> tuple[DataFrame | None, Layout[str]]:
        if not isinstance(store, SparkStore):
            assert known is not None
            return None, known
        frame = store.frame(self.spark, side)
        return frame, canonical_columns.types(frame, spark_store.columns(side))


def _maria_store(session: SnapshotSession) -> MariaStore:
    from reconcile.gather.stores.mariadb.rows import MariaStore
    from reconcile.gather.stores.mariadb.session import MariaSession

    assert isinstance(session, MariaSession)
    return MariaStore(session)


def _maria_rows(store: MariaStore, reading: digest.DigestReading) -> MariaRows:
    from reconcile.gather.stores.mariadb.rows import MariaRows

    return MariaRows(store, reading)
