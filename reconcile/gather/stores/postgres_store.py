"""Rows of a Postgres as a DataFrame: read by Spark in parallel, all of them at the instant of one exported snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from psycopg2 import sql
from psycopg2.extensions import adapt
from pyspark.sql import DataFrame, SparkSession  # noqa: TID253

from reconcile.gather.stores import contract_sql, copying, digest, row_columns
from reconcile.gather.stores.digest import DigestReading
from reconcile.gather.stores.session import LONGEST_SNAPSHOT, StoreSession, open_session
from reconcile.settings.connections import StoreLimits
from reconcile.settings.urls import PostgresUrl

FETCH_SIZE = 10_000
IDS_AT_ONCE = 5000
_LIMITS = StoreLimits()
# A task costs a third of a second before its first row: connecting, planning, opening a file.
_PART_BLOCKS = 8192
_SIFTED_BLOCKS = 65_536
"""How much of a table one task looks through where few of its rows are wanted."""
_BLOCKS = (
    "select (pg_relation_size(oid) / current_setting('block_size')::int)::bigint from pg_class"
    " where oid = to_regclass(%s) and relkind in ('r', 'm')"
)

# A partitioned table's index holds for all its parts; a plain table's says nothing of those that inherit from it.
_UNIQUE = """
    select exists (
        select from pg_index i join pg_class c on c.oid = i.indrelid
        where c.oid = to_regclass(%s)
          and (c.relkind = 'p' or not exists (select from pg_inherits where inhparent = c.oid))
          and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
          and not exists (
              select from unnest(i.indkey::int2[]) with ordinality as k (attnum, place)
              join pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
              where k.place <= i.indnkeyatts and a.attname <> all(%s)))
"""


@dataclass(frozen=True)
class PostgresStore:
    """A Postgres at one instant: any reader that imports the snapshot sees it while its session lasts."""

    name: str
    url: PostgresUrl
    snapshot: str
    limits: StoreLimits = _LIMITS

    def frame(self, spark: SparkSession, statements: Sequence[str]) -> DataFrame:
        """Read the rows of statements with equal columns, each read by a task of its own."""
        url, properties = self.url.jdbc()
        options = {
            "url": url,
            "ApplicationName": "reconcile",
            **properties,
            "driver": "org.postgresql.Driver",
            "fetchsize": str(FETCH_SIZE),
            # The driver's first statement opens the transaction, so this is the first in it.
            "sessionInitStatement": self.initial_statement,
        }
        queries = map(contract_sql.for_jdbc, statements)
        frames = [spark.read.format("jdbc").options(**options, query=query).load() for query in queries]
        return reduce(lambda left, right: left.unionAll(right), frames)

    @property
    def initial_statement(self) -> str:
        """What a reader's session runs first."""
        limit, longest = (
            round(each.total_seconds() * 1000) for each in (self.limits.statement_timeout, LONGEST_SNAPSHOT)
        )
        return (
            "set transaction isolation level repeatable read, read only; "
            f"set transaction snapshot {adapt(self.snapshot).getquoted().decode()}; "
            f"set local idle_in_transaction_session_timeout = {longest}; "
            f"set local statement_timeout = {limit}; {digest.FORMATS}"
            "set jit = off; set row_security = off"
        )


@dataclass(frozen=True)
class PostgresParts:
    """Rows of a Postgres that are yet to be read: statements with equal columns, and our session at their instant."""

    store: PostgresStore
    session: StoreSession
    reading: DigestReading
    buckets: Sequence[int] | None = None
    """Only those in some buckets; None for all."""
    ids: Sequence[str] | None = None
    """Only those of some ids; None for all."""
    stopped_by: list[BaseException] = field(default_factory=list)
    """Why the reading ends before its end."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, all of them text."""
        return row_columns.names(len(self.reading.form.fields))

    def statements(self, most: int | None = None) -> list[str]:
        """Build statements that read them in parts: `most` at most, unless some ids are asked for."""
        if self.ids is not None:
            some = (self.ids[start : start + IDS_AT_ONCE] for start in range(0, len(self.ids), IDS_AT_ONCE))
            return [self.session.whole_text(digest.rows(self.reading, ids=each)) for each in some]
        parts = _parts(self.session, self.reading, _PART_BLOCKS if self.buckets is None else _SIFTED_BLOCKS, most)
        return [self.session.whole_text(digest.rows(self.reading, self.buckets, where=part)) for part in parts]

    def readers(self, most: int) -> list[Callable[[Callable[[pa.Table], None]], None]]:
        """Build readers for threads of this process, which share the parts and read each by COPY.

        What stops one of them is raised by all.
        """
        statements = self.statements()
        parts: SimpleQueue[str] = SimpleQueue()
        for statement in statements:
            parts.put(statement)

        def read(take: Callable[[pa.Table], None]) -> None:
            def going_on(table: pa.Table) -> None:
                self._require_going_on()
                take(table)

            def sleep(seconds: float) -> None:
                self._require_going_on()
                time.sleep(seconds)

            store, usage = self.store, self.session.usage
            try:
                with open_session(store.name, store.url, store.limits, usage) as session, suppress(Empty):
                    session.import_snapshot(store.snapshot)
                    session.run(sql.SQL(f"{digest.FORMATS}set jit = off"))
                    while statement := parts.get_nowait():
                        with usage.readers.reading():
                            self._require_going_on()
                            session.wait_while_busy(sleep)
                            copying.copy(session, statement, self.columns, going_on)
            except BaseException as error:
                self.stop(error)
                raise

        return [read] * min(most, self.session.limits.readers, len(statements))

    def stop(self, why: BaseException) -> None:
        """Have all readers raise this as soon as they can: somebody else has failed, or pressed Ctrl-C."""
        self.stopped_by.append(why)

    def _require_going_on(self) -> None:
        if self.stopped_by:
            raise self.stopped_by[0]


@dataclass(frozen=True)
class OpenPostgres:
    """A Postgres at one instant, and our session that keeps the instant open."""

    store: PostgresStore
    session: StoreSession

    def frame(self, spark: SparkSession, statement: sql.Composable) -> DataFrame:
        """Read the rows of a statement by one task."""
        return self.store.frame(spark, [self.session.whole_text(statement)])

    @contextmanager
    def tasks_reading(self, tasks: int | None) -> Iterator[None]:
        """Let so many of Spark's tasks read during the block, once the database is not too busy."""
        with self.session.usage.readers.reading(tasks):
            self.session.wait_while_busy()
            yield

    def rows(self, statement: sql.Composable) -> list[tuple[Any, ...]]:
        """Read the few rows of a statement at the same instant.

        In a session of its own: what the contract's SQL makes of its transaction must not end the run's snapshot.
        """
        with open_session(self.store.name, self.store.url, self.store.limits) as session:
            session.import_snapshot(self.store.snapshot)
            session.run(sql.SQL(digest.FORMATS))
            return session.rows(statement)


def ids_are_unique(session: StoreSession, reading: DigestReading) -> bool:
    """Query whether an index sees to it that no id of a table stands twice."""
    return reading.side.table is not None and bool(
        session.rows(_UNIQUE, (_regclass(session, reading.side.table), list(reading.side.id)))[0][0]
    )


def _parts(session: StoreSession, reading: DigestReading, each: int, most: int | None) -> list[sql.Composable | None]:
    """Cut a table into ranges of its blocks; a view or a query, which has none, is read in one piece."""
    if reading.side.table is None:
        return [None]
    found = session.rows(_BLOCKS, (_regclass(session, reading.side.table),))
    blocks = int(found[0][0]) if found else 0
    count = min(max(blocks // each, 1), most or blocks + 1)
    if count == 1:
        return [None]
    bounds = [blocks * number // count for number in range(count)]
    parts: list[sql.Composable | None] = []
    for number, start in enumerate(bounds):
        low = sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({start},0)"))
        if number == count - 1:  # without an end: the table may have grown since its blocks were counted
            parts.append(low)
        else:
            high = sql.Literal(f"({bounds[number + 1]},0)")
            parts.append(sql.SQL("{} and ctid < {}::tid").format(low, high))
    return parts


def _regclass(session: StoreSession, table: str) -> str:
    return session.text(sql.Identifier(*table.split(".")))
