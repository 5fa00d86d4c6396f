"""The rows of one side of a link in canonical form: all of them, those in some buckets, or those of some ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
from psycopg2 import sql
from pyspark.sql import DataFrame, SparkSession  # noqa: TID253

from reconcile.domain.canonical import CanonicalType, Layout
from reconcile.gather.stores import canonical_columns, digest, postgres_store, row_columns, spark_store
from reconcile.gather.stores.digest import NO_ID, DigestReading, Mode, OtherServer, Server, Side
from reconcile.gather.stores.postgres_store import IDS_AT_ONCE, PostgresParts, PostgresStore
from reconcile.gather.stores.session import StoreSession, open_session
from reconcile.gather.stores.spark_store import SparkStore
from reconcile.spark import local_frames


class LinkRows(Protocol):
    """One side of a link, at the instant of its fence."""

    @property
    def form(self) -> Layout[CanonicalType]:
        """What the columns are compared as."""

    def all(self, spark: SparkSession, buckets: Sequence[int] | None = None) -> DataFrame:
        """Read all rows, or those in some buckets."""

    def among(self, ids: DataFrame) -> DataFrame:
        """Read the rows whose ids are in the column `reconcile_id`; NULL there asks for the rows without an id."""


class DigestedRows(LinkRows, Protocol):
    """One whose database can compute digests."""

    @property
    def reading(self) -> DigestReading:
        """How it is read."""

    @property
    def server(self) -> Server | OtherServer:
        """What of its server decides how it hashes."""

    def digested(self, mode: Mode, buckets: int) -> DigestedRows:
        """Choose how its digest is computed."""

    def digest(self) -> tuple[Sequence[tuple[int, int, int, int]], bool]:
        """Query bucket, rows, high and low; and whether no id can stand twice."""

    def repeated(self) -> Iterator[int]:
        """Query the buckets that hold an id twice, and perhaps some others."""


@dataclass(frozen=True)
class PostgresRows:
    """A side that lies in a Postgres."""

    store: PostgresStore
    session: StoreSession
    reading: DigestReading

    @property
    def form(self) -> Layout[CanonicalType]:
        """What the columns are compared as."""
        return self.reading.form

    @property
    def server(self) -> Server:
        """What of its server decides how it hashes."""
        return digest.server(self.session.rows)

    def digested(self, mode: Mode, buckets: int) -> PostgresRows:
        """Choose how its digest is computed."""
        return replace(self, reading=replace(self.reading, mode=mode, buckets=buckets))

    def digest(self) -> tuple[Sequence[tuple[int, int, int, int]], bool]:
        """Query bucket, rows, high and low; and whether no id can stand twice."""
        with self._planned() as session:
            lines = [line for batch in session.batches(digest.digest(self.reading)) for line in batch]
            return lines, postgres_store.ids_are_unique(session, self.reading)

    def repeated(self) -> Iterator[int]:
        """Query the buckets that hold an id twice, and perhaps some others."""
        with self._planned() as session:
            for batch in session.batches(digest.repeated(self.reading)):
                yield from (bucket for (bucket,) in batch)

    def all(self, spark: SparkSession, buckets: Sequence[int] | None = None) -> DataFrame:
        """Read them with as many tasks as the table is worth."""
        return self.store.frame(spark, self.parts(buckets).statements(self.store.limits.readers))

    def parts(self, buckets: Sequence[int] | None = None, ids: Sequence[str] | None = None) -> PostgresParts:
        """Choose all rows, or those in some buckets or of some ids, to be read later."""
        return PostgresParts(self.store, self.session, self.reading, buckets, ids)

    def among(self, ids: DataFrame) -> DataFrame:
        """Read them by the tasks that hold the ids, so that no process holds them all; of local ids right here."""
        store, reading = self.store, self.reading
        names = row_columns.schema(len(reading.form.fields))

        def rows(batches: Iterable[Sequence[str | None]]) -> Iterator[pa.RecordBatch]:
            with open_session(store.name, store.url, store.limits) as session:
                session.import_snapshot(store.snapshot)
                session.wait_while_busy()
                session.run(sql.SQL(digest.FORMATS))
                for wanted in batches:
                    listed = [each for each in wanted if each is not None]
                    starts = range(0, len(listed), IDS_AT_ONCE)
                    statements = [digest.rows(reading, ids=listed[start : start + IDS_AT_ONCE]) for start in starts]
                    if len(listed) < len(wanted):
                        statements.append(digest.rows(reading, [NO_ID]))
                    for statement in statements:
                        yield _arrow(session.rows(statement), len(reading.form.fields))

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return rows(batch.column(0).to_pylist() for batch in batches)

        of_ids = ids.select(row_columns.ID)
        if (here := local_frames.rows(of_ids)) is None:
            return of_ids.coalesce(store.limits.readers).mapInArrow(read, names)
        found = pa.Table.from_batches(rows([[each for (each,) in here]]), _arrow([], len(reading.form.fields)).schema)
        return local_frames.of_table(ids.sparkSession, found, names)

    @contextmanager
    def _planned(self) -> Iterator[StoreSession]:
        """Open a session of its own at the snapshot's instant, which hashes and sums in memory."""
        usage = self.session.usage
        with (
            usage.readers.reading(),
            open_session(self.store.name, self.store.url, self.store.limits, usage) as session,
        ):
            session.import_snapshot(self.store.snapshot)
            session.wait_while_busy()
            session.run(sql.SQL(digest.FORMATS + digest.PLANNING))
            yield session


@dataclass(frozen=True)
class SparkRows:
    """A side that Spark reads: by JDBC, as Parquet, or by a plug-in. It has no snapshot, and is read as it stands."""

    store: SparkStore
    side: Side
    frame: DataFrame
    form: Layout[CanonicalType]

    def all(self, spark: SparkSession, buckets: Sequence[int] | None = None) -> DataFrame:  # noqa: ARG002
        """Read them; there are no buckets, as such a side is compared whole."""
        if buckets is not None:
            raise ValueError("a side that Spark reads is read whole")
        return canonical_columns.rows(self.frame, spark_store.columns(self.side), self.form)

    def among(self, ids: DataFrame) -> DataFrame:
        """Read them."""
        frame = self.store.among(self.frame, self.side, ids)
        rows = canonical_columns.rows(frame, spark_store.columns(self.side), self.form)
        wanted = ids.select(row_columns.ID).withColumnRenamed(row_columns.ID, "_wanted").distinct()
        return rows.join(wanted, rows[row_columns.ID].eqNullSafe(wanted["_wanted"]), "left_semi")


def some_of(rows: DataFrame, wanted: int, of: int) -> DataFrame:
    """Choose about so many rows of a side by the hashes of their ids: the same on both sides and each night."""
    if of <= wanted:
        return rows
    return rows.where(f"pmod(xxhash64({row_columns.ID}), {of // wanted}) = 0")


def _arrow(rows: list[tuple[Any, ...]], fields: int) -> pa.RecordBatch:
    names = row_columns.names(fields)
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], names=names)
