"""Rows of a Postgres as a DataFrame: read by Spark in parallel, all of them at the instant of one exported snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from psycopg2 import sql
from psycopg2.extensions import adapt
from pyspark.sql import DataFrame, SparkSession  # noqa: TID253

from reconcile.gather.stores import contract_sql, digest
from reconcile.gather.stores.digest import DigestReading
from reconcile.gather.stores.session import LONGEST_SNAPSHOT, StoreSession, open_session
from reconcile.settings.urls import PostgresUrl

FETCH_SIZE = 10_000
_MOST_PARTS = 32
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

    def frame(self, spark: SparkSession, statements: Sequence[str]) -> DataFrame:
        """Read the rows of statements with equal columns, each read by a task of its own."""
        url, properties = self.url.jdbc()
        options = {
            "url": url,
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
        limit = round(LONGEST_SNAPSHOT.total_seconds() * 1000)
        return (
            "set transaction isolation level repeatable read, read only; "
            f"set transaction snapshot {adapt(self.snapshot).getquoted().decode()}; "
            f"set local idle_in_transaction_session_timeout = {limit}; {digest.FORMATS}"
            "set jit = off; set row_security = off"
        )


@dataclass(frozen=True)
class OpenPostgres:
    """A Postgres at one instant, and our session that keeps the instant open."""

    store: PostgresStore
    session: StoreSession

    def frame(self, spark: SparkSession, statement: sql.Composable) -> DataFrame:
        """Read the rows of a statement by one task."""
        return self.store.frame(spark, [self.session.text(statement)])

    def rows(self, statement: sql.Composable) -> list[tuple[Any, ...]]:
        """Read the few rows of a statement at the same instant.

        In a session of its own: what the contract's SQL makes of its transaction must not end the run's snapshot.
        """
        with open_session(self.store.name, self.store.url) as session:
            session.import_snapshot(self.store.snapshot)
            session.run(sql.SQL(digest.FORMATS))
            return session.rows(statement)


def statements(session: StoreSession, reading: DigestReading, buckets: Sequence[int] | None = None) -> list[str]:
    """Build the statements that read all rows, or those in some buckets, in parts that are read side by side."""
    parts = _parts(session, reading, _PART_BLOCKS if buckets is None else _SIFTED_BLOCKS)
    return [session.text(digest.rows(reading, buckets, where=part)) for part in parts]


def ids_are_unique(session: StoreSession, reading: DigestReading) -> bool:
    """Query whether an index sees to it that no id of a table stands twice."""
    return reading.side.table is not None and bool(
        session.rows(_UNIQUE, (_regclass(session, reading.side.table), list(reading.side.id)))[0][0]
    )


def _parts(session: StoreSession, reading: DigestReading, each: int) -> list[sql.Composable | None]:
    """Cut a table into ranges of its blocks; a view or a query, which has none, is read in one piece."""
    if reading.side.table is None:
        return [None]
    found = session.rows(_BLOCKS, (_regclass(session, reading.side.table),))
    blocks = int(found[0][0]) if found else 0
    count = min(max(blocks // each, 1), _MOST_PARTS)
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
