"""All that is read of one link in its stores, at the instants of an open fence."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from reconcile.contract.model import Consumer, Contract, StashTable
from reconcile.contract.terms import Rows
from reconcile.domain.canonical import Layout
from reconcile.errors import RefusedError
from reconcile.gather import spark_read_errors
from reconcile.gather.evidence import ledger, outbox, stash_table
from reconcile.gather.fence.opening import OpenFence
from reconcile.gather.stores import buckets, canonical_columns, digest, sides, spark_store
from reconcile.gather.stores.buckets import Differing
from reconcile.gather.stores.digest import AskedMode, Choice, Mode, Side
from reconcile.gather.stores.link_rows import LinkRows, PostgresRows, SparkRows
from reconcile.gather.stores.postgres_rows import PostgresStore
from reconcile.gather.stores.spark_store import SparkStore
from reconcile.gather.stores.store_session import StoreSession
from reconcile.settings.connections import Store
from reconcile.settings.settings import Settings
from reconcile.settings.urls import PostgresUrl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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

    def compared(self, asked: AskedMode) -> Compared:
        """Give the rows to compare: all of them, or those in the buckets whose digests differ."""
        choice = self._choice(asked)
        if choice.mode is Mode.FULL:
            source, copy = self.rows
            return Compared(source.all(self.spark), copy.all(self.spark), choice.mode, choice.reasons, None)
        source, copy = (replace(each, reading=self._moded(each, choice.mode)) for each in self._postgres_rows())
        differing = buckets.compare(source.store, source.reading, copy.store, copy.reading)
        which = None if differing.most else differing.buckets
        if which == ():
            nothing = self.spark.createDataFrame([], self._schema)
            return Compared(nothing, nothing, choice.mode, choice.reasons, differing)
        frames = source.all(self.spark, which), copy.all(self.spark, which)
        return Compared(*frames, choice.mode, choice.reasons, differing)

    @cached_property
    def rows(self) -> tuple[LinkRows, LinkRows]:
        """Give both sides' rows: the source's and the copy's."""
        frames, types = self._sides
        pair = sides.pair(self.contract, self.consumer, *types, Mode.FULL, 1)
        found: list[LinkRows] = []
        for reading, frame, store, session in zip(
            (pair.source, pair.copy), frames, self._stores, self._sessions, strict=True
        ):
            if frame is None:
                assert isinstance(store, PostgresStore)
                assert session is not None
                found.append(PostgresRows(store, session, reading))
            else:
                found.append(SparkRows(frame, spark_store.columns(reading.side), reading.form))
        return found[0], found[1]

    def ledger(self) -> DataFrame | None:
        """Give the whole ledger; None if the consumer keeps none."""
        if self.consumer.failure.ledger is None:
            return None
        store, session = self._stores[1], self._sessions[1]
        if isinstance(store, PostgresStore):
            assert session is not None
            return ledger.PostgresLedger.of(store, session, self.consumer.failure.ledger).all(self.spark, session)
        return ledger.SparkLedger(store, self.consumer.failure.ledger).all(self.spark)

    def ledger_bounds(self) -> DataFrame | None:
        """Give the ledger's first offset and time by partition; None if the consumer keeps none."""
        from pyspark.sql import functions as f

        if self.consumer.failure.ledger is None:
            return None
        store, session = self._stores[1], self._sessions[1]
        if isinstance(store, PostgresStore):
            assert session is not None
            return ledger.PostgresLedger.of(store, session, self.consumer.failure.ledger).bounds(self.spark, session)
        entries = ledger.SparkLedger(store, self.consumer.failure.ledger).all(self.spark)
        return entries.groupBy("partition").agg(f.min("offset").alias("offset"), f.min("at").alias("at"))

    def ledger_of(self, events: DataFrame) -> DataFrame | None:
        """Give the ledger's entries for events, with the events' `id`."""
        if self.consumer.failure.ledger is None:
            return None
        store, session = self._stores[1], self._sessions[1]
        if isinstance(store, PostgresStore):
            assert session is not None
            return ledger.PostgresLedger.of(store, session, self.consumer.failure.ledger).among(events)
        return ledger.SparkLedger(store, self.consumer.failure.ledger).among(self.spark, events)

    def stash_table(self) -> DataFrame | None:
        """Give what lies in the consumer's table of problems, as `parked` gives what lies in topics."""
        table, store, session = self.consumer.failure.stash, self._stores[1], self._sessions[1]
        if not isinstance(table, StashTable):
            return None
        source_ids = self._sides[1][0].id
        if isinstance(store, PostgresStore):
            assert session is not None
            return stash_table.read(self.spark, store, session, table, source_ids)
        return stash_table.read_by_spark(self.spark, store, table, source_ids)

    def outbox(self) -> DataFrame | None:
        """Give how many events of an id wait in the source's outbox; None if there is none."""
        box, store, session = self.contract.source.outbox, self._stores[0], self._sessions[0]
        if box is None:
            return None
        if isinstance(store, PostgresStore):
            assert session is not None
            return outbox.pending(self.spark, store, session, box)
        return outbox.pending_by_spark(self.spark, store, box)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn what Spark says of a store into an error that says what to do."""
        with spark_read_errors.told(self.opened, self.consumer.name, self.contract.link(self.consumer)):
            yield

    @property
    def _schema(self) -> str:
        from reconcile.gather.stores import row_columns

        return row_columns.schema(len(self.consumer.fields))

    def _choice(self, asked: AskedMode) -> Choice:
        sessions = self._sessions
        if asked == "full":
            return Choice(Mode.FULL, ("asked for",))
        if sessions[0] is None or sessions[1] is None:
            if asked == "digest":
                raise RefusedError("the mode digest needs Postgres on both sides: use auto or full")
            return Choice(Mode.FULL, ("not both stores are Postgres",))
        servers = [digest.server(each.rows) for each in sessions if each is not None]
        checked = any(each.reading.checked for each in self._postgres_rows())
        found = digest.choose(servers[1], servers[0], checked=checked)
        if found.mode is Mode.FULL and asked == "digest":
            raise RefusedError(f"the mode digest cannot be used: {'; '.join(found.reasons)}")
        return found

    def _postgres_rows(self) -> list[PostgresRows]:
        return [each for each in self.rows if isinstance(each, PostgresRows)]

    def _moded(self, rows: PostgresRows, mode: Mode) -> digest.Reading:
        expected = max(self.opened.fence.source.rows or 0, self.opened.fence.consumer(self.consumer.name).rows or 0)
        return replace(rows.reading, mode=mode, buckets=digest.bucket_count(expected))

    @cached_property
    def _stores(self) -> tuple[PostgresStore | SparkStore, PostgresStore | SparkStore]:
        return self._store(self.contract.source, self._sessions[0]), self._store(self.consumer, self._sessions[1])

    def _store(self, rows: Rows, session: StoreSession | None) -> PostgresStore | SparkStore:
        connection = self.settings.connection(rows.store)
        address = connection.resolve() if isinstance(connection, Store) else connection
        if isinstance(address, PostgresUrl):
            assert session is not None
            assert session.snapshot is not None
            return PostgresStore(rows.store, address, session.snapshot.id)
        return SparkStore.of(rows.store, address)

    @property
    def _sessions(self) -> tuple[StoreSession | None, StoreSession | None]:
        return self.opened.source, self.opened.consumers[self.consumer.name]

    @cached_property
    def _sides(self) -> tuple[tuple[DataFrame | None, DataFrame | None], tuple[Layout[str], Layout[str]]]:
        """Give frames where Spark reads a side, and the types of both sides."""
        fence, consumer = self.opened.fence, self.opened.fence.consumer(self.consumer.name)
        wanted = sides.source_side(self.contract, self.consumer), sides.copy_side(self.consumer)
        known = fence.source.types and sides.types_for(fence.source.types, self.contract, self.consumer)
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(self._typed, self._stores, wanted, (known, consumer.types)))
        return (found[0][0], found[1][0]), (found[0][1], found[1][1])

    def _typed(
        self, store: PostgresStore | SparkStore, side: Side, known: Layout[str] | None
    ) -> tuple[DataFrame | None, Layout[str]]:
        if isinstance(store, PostgresStore):
            assert known is not None
            return None, known
        frame = store.frame(self.spark, side)
        return frame, canonical_columns.types(frame, spark_store.columns(side))
