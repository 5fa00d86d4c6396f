"""All that is read of one link in its stores, at the instants of an open fence."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession  # noqa: TID253

from reconcile.contract.model import Consumer, Contract, StashTable
from reconcile.contract.terms import Rows
from reconcile.domain.canonical import Layout
from reconcile.domain.outbox import WaitingEvents
from reconcile.errors import RefusedError
from reconcile.gather import spark_read_errors
from reconcile.gather.evidence import outbox, stash_table
from reconcile.gather.evidence.ledger import PostgresLedger, SparkLedger
from reconcile.gather.fence.opening import OpenFence
from reconcile.gather.stores import buckets, canonical_columns, digest, row_columns, spark_store
from reconcile.gather.stores.buckets import Differing
from reconcile.gather.stores.comparison_pair import comparison_pair, copy_side, source_side, types_for
from reconcile.gather.stores.digest import Choice, ComparisonMode, Mode, Side
from reconcile.gather.stores.link_rows import LinkRows, PostgresRows, SparkRows
from reconcile.gather.stores.postgres_store import OpenPostgres, PostgresStore
from reconcile.gather.stores.session import StoreSession
from reconcile.gather.stores.spark_store import SparkStore
from reconcile.settings.connections import Store
from reconcile.settings.settings import Settings
from reconcile.settings.urls import PostgresUrl


@dataclass(frozen=True)
class Compared:
    """Rows of both sides that are to be compared, and how they were chosen."""

    source: DataFrame
    copy: DataFrame
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
            return Compared(source.all(self.spark), copy.all(self.spark), choice.mode, choice.reasons, None)
        source, copy = (replace(each, reading=self._moded(each, choice.mode)) for each in self._postgres_rows())
        differing = buckets.compare(source.store, source.reading, copy.store, copy.reading)
        which = None if differing.most else differing.buckets
        if which == ():
            nothing = self.spark.createDataFrame([], row_columns.schema(len(self.consumer.fields)))
            return Compared(nothing, nothing, choice.mode, choice.reasons, differing)
        frames = source.all(self.spark, which), copy.all(self.spark, which)
        return Compared(*frames, choice.mode, choice.reasons, differing)

    @cached_property
    def rows(self) -> tuple[LinkRows, LinkRows]:
        """The rows of both: the source's and the copy's."""
        frames, types = self._typed_sides
        pair = comparison_pair(self.contract, self.consumer, *types)
        found: list[LinkRows] = []
        for reading, frame, store in zip((pair.source, pair.copy), frames, self._stores, strict=True):
            if isinstance(store, OpenPostgres):
                found.append(PostgresRows(store.store, store.session, reading))
            else:
                assert frame is not None
                found.append(SparkRows(frame, spark_store.columns(reading.side), reading.form))
        return found[0], found[1]

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
            return outbox.pending(self.spark, store, box)
        return outbox.pending_by_spark(self.spark, store, box)

    def waiting(self, ids: Collection[str]) -> dict[str, WaitingEvents]:
        """Read what waits in the source's outbox of these ids; nothing where there is no outbox."""
        box, store = self.contract.source.outbox, self._stores[0]
        if box is None or not ids:
            return {}
        if isinstance(store, OpenPostgres):
            return outbox.waiting(store, box, ids)
        with self.reading():
            return outbox.waiting_by_spark(self.spark, store, box, ids)

    def reading(self) -> AbstractContextManager[None]:
        """Turn what Spark says of a store into an error that says what to do."""
        return spark_read_errors.explained(self.opened, self.consumer.name, self.contract.link(self.consumer))

    def _choice(self, mode: ComparisonMode) -> Choice:
        sessions = self._sessions
        if mode == "full":
            return Choice(Mode.FULL, ("asked for",))
        if sessions[0] is None or sessions[1] is None:
            if mode == "digest":
                raise RefusedError("the mode digest needs Postgres on both sides: use auto or full")
            return Choice(Mode.FULL, ("not both stores are Postgres",))
        servers = [digest.server(each.rows) for each in sessions if each is not None]
        checked = any(each.reading.checked for each in self._postgres_rows())
        found = digest.choose(servers[1], servers[0], checked=checked)
        if found.mode is Mode.FULL and mode == "digest":
            raise RefusedError(f"the mode digest cannot be used: {'; '.join(found.reasons)}")
        return found

    def _postgres_rows(self) -> list[PostgresRows]:
        return [each for each in self.rows if isinstance(each, PostgresRows)]

    def _moded(self, rows: PostgresRows, mode: Mode) -> digest.Reading:
        expected = max(self.opened.fence.source.rows or 0, self.opened.fence.consumer(self.consumer.name).rows or 0)
        return replace(rows.reading, mode=mode, buckets=digest.bucket_count(expected))

    @cached_property
    def _ledger(self) -> PostgresLedger | SparkLedger | None:
        ledger, store = self.consumer.failure.ledger, self._stores[1]
        if ledger is None:
            return None
        return PostgresLedger.of(store, ledger) if isinstance(store, OpenPostgres) else SparkLedger(store, ledger)

    @cached_property
    def _stores(self) -> tuple[OpenPostgres | SparkStore, OpenPostgres | SparkStore]:
        return self._store(self.contract.source, self._sessions[0]), self._store(self.consumer, self._sessions[1])

    def _store(self, rows: Rows, session: StoreSession | None) -> OpenPostgres | SparkStore:
        connection = self.settings.connection(rows.store)
        address = connection.resolve() if isinstance(connection, Store) else connection
        if isinstance(address, PostgresUrl):
            assert session is not None
            assert session.snapshot is not None
            return OpenPostgres(PostgresStore(rows.store, address, session.snapshot.id), session)
        return SparkStore.of(rows.store, address)

    @property
    def _sessions(self) -> tuple[StoreSession | None, StoreSession | None]:
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

    def _typed(
        self, store: OpenPostgres | SparkStore, side: Side, known: Layout[str] | None
    ) -> tuple[DataFrame | None, Layout[str]]:
        if isinstance(store, OpenPostgres):
            assert known is not None
            return None, known
        frame = store.frame(self.spark, side)
        return frame, canonical_columns.types(frame, spark_store.columns(side))
