"""The consumer's ledger: which events it says it has applied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg2 import sql

from reconcile.contract.model import Ledger
from reconcile.domain.event import UUID, spelled, spellings
from reconcile.gather.evidence.times import shown_by_clocks, shown_by_clocks_in_sql
from reconcile.gather.stores import library_tables
from reconcile.gather.stores.digest import FORMATS, Side
from reconcile.gather.stores.postgres_store import OpenPostgres
from reconcile.gather.stores.session import open_session, storable_texts, uuid_texts
from reconcile.gather.stores.spark_store import FrameStore
from reconcile.spark import local_frames

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import Column, DataFrame, SparkSession

SCHEMA = "event_id string, partition int, offset bigint, at timestamp, unapplied string, because string"
LIBRARY_LEDGER = Ledger(
    table=library_tables.LEDGER, event_id="event_id", partition="partition", offset="offset", at="processed_at"
)
"""The consumer library's ledger, which it keeps for all groups of a store."""
_AT_ONCE = 5000
_Wanted = tuple[str, str, int, int]
"""An event: its aggregate's id, its own, its partition and its offset."""


@dataclass(frozen=True)
class PostgresLedger:
    """A ledger in a Postgres, at the instant of the copy's snapshot."""

    postgres: OpenPostgres
    ledger: Ledger
    event_id_type: str | None
    """The type of the column with the event's id, so that its index can be used."""
    whose: tuple[str, str] | None = None
    """The group whose entries count, and its topic, where the ledger is the library's."""

    @classmethod
    def of(cls, postgres: OpenPostgres, ledger: Ledger, whose: tuple[str, str] | None = None) -> PostgresLedger:
        """Look at the table once."""
        kind = None
        if ledger.event_id is not None:
            column, table = sql.Identifier(ledger.event_id), sql.Identifier(*ledger.table.split("."))
            (found,) = postgres.session.types(sql.SQL("select {} from {} limit 0").format(column, table))
            kind = "uuid" if found == "uuid" else "text"
        return cls(postgres, ledger, kind, whose)

    def all(self, spark: SparkSession) -> DataFrame:
        """Read all entries."""
        return self.postgres.frame(spark, _select(self.ledger, self.whose))

    def bounds(self, spark: SparkSession) -> DataFrame:
        """Query the first offset and time by partition, found out by the database."""
        bounds = sql.SQL(
            "select partition, min({}) as {}, min(at) as at from ({}) as entries group by partition"
        ).format(sql.Identifier("offset"), sql.Identifier("offset"), _select(self.ledger, self.whose))
        return local_frames.of_rows(spark, self.postgres.rows(bounds), "partition int, offset bigint, at timestamp")

    def among(self, spark: SparkSession, events: DataFrame) -> DataFrame:
        """Read the entries for events, which have `id`, `event_id`, `partition` and `offset`, with the events' `id`."""
        store, ledger, kind = self.postgres.store, self.ledger, self.event_id_type
        whose = self.whose

        def entries(batches: Iterable[Sequence[_Wanted]]) -> Iterator[pa.RecordBatch]:
            with open_session(store.name, store.url, store.limits) as session:
                session.import_snapshot(store.snapshot)
                session.run(sql.SQL(FORMATS))
                for wanted in batches:
                    for start in range(0, len(wanted), _AT_ONCE):
                        chunk = wanted[start : start + _AT_ONCE]
                        # Apart from each other, for of two ways that are joined by `or` Postgres uses no index.
                        ways = (_select(ledger, whose, each) for each in _ways(ledger, kind, chunk))
                        rows = session.rows(sql.SQL(" union all ").join(ways))
                        yield _tied(rows, chunk, placed=whose is not None)

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return entries(list(zip(*(each.to_pylist() for each in batch.columns), strict=True)) for batch in batches)

        schema = f"id string, {SCHEMA}"
        of_events = events.select("id", "event_id", "partition", "offset")
        if (here := local_frames.rows(of_events)) is None:
            return of_events.coalesce(store.limits.readers).mapInArrow(read, schema)
        import pyarrow as pa

        found = pa.Table.from_batches(entries([[tuple(each) for each in here]]), _arrow([]).schema)
        return local_frames.of_table(spark, found, schema)


@dataclass(frozen=True)
class SparkLedger:
    """A ledger in a store that Spark reads."""

    store: FrameStore
    ledger: Ledger

    def among(self, spark: SparkSession, events: DataFrame) -> DataFrame:
        """Read the entries for events, with the events' `id`: by the event's id, else by where it stood."""
        from pyspark.sql import functions as f

        known = events.select(
            "id",
            f.col("event_id").alias("_event_id"),
            f.col("partition").alias("_partition"),
            f.col("offset").alias("_offset"),
        )
        entries = self.all(spark)
        named = as_spelled("event_id") == as_spelled("_event_id")
        placed = (f.col("partition") == f.col("_partition")) & (f.col("offset") == f.col("_offset"))
        found = entries.join(known, named, "inner").unionByName(
            entries.join(known.select("_event_id"), named, "left_anti").join(known, placed, "inner")
        )
        return found.select("id", *entries.columns).dropDuplicates()

    def bounds(self, spark: SparkSession) -> DataFrame:
        """Compute the first offset and time by partition."""
        from pyspark.sql import functions as f

        return self.all(spark).groupBy("partition").agg(f.min("offset").alias("offset"), f.min("at").alias("at"))

    def all(self, spark: SparkSession) -> DataFrame:
        """Read all entries."""
        from pyspark.sql import functions as f

        named = {
            "event_id": self.ledger.event_id,
            "partition": self.ledger.partition,
            "offset": self.ledger.offset,
            "at": self.ledger.at,
        }
        given = [name for name, column in named.items() if column]
        columns = tuple(column for column in named.values() if column)
        frame = self.store.frame(spark, Side(columns, (), table=self.ledger.table))
        places = {name: f.col(f"i{number}") for number, name in enumerate(given)}
        kinds = dict(each.split() for each in SCHEMA.split(", "))
        columns_of = {name: places.get(name, f.lit(None)).cast(kind) for name, kind in kinds.items()}
        columns_of["at"] = shown_by_clocks(columns_of["at"])
        return frame.select(*(column.alias(name) for name, column in columns_of.items()))


def as_spelled(column: str) -> Column:
    """Build a column of event ids as `domain.event.spelled` has them."""
    from pyspark.sql import functions as f

    name = f.col(column)
    # Nearly all are spelled so already: to find that out takes less than the regular expression.
    other = (f.lower(name) != name) & name.rlike(rf"\A{UUID}\z")
    return f.when(other, f.lower(name)).otherwise(name)


_UNAPPLIED = sql.SQL("nullif(outcome, 'applied') as unapplied, {} as because").format(
    sql.SQL("case outcome {} end").format(
        sql.SQL(" ").join(
            sql.SQL(
                "when {} then (select because from {} as decided where decided.consumer_group = entry.consumer_group"
                " and decided.topic = entry.topic and decided.partition = entry.partition"
                ' and decided."offset" = entry."offset")'
            ).format(sql.Literal(outcome), sql.Identifier("reconcile", outcome))
            for outcome in ("discarded", "damaged")
        )
    )
)


def _select(ledger: Ledger, whose: tuple[str, str] | None, where: sql.Composable | None = None) -> sql.Composed:
    where = where or sql.SQL("true")
    unapplied: sql.Composable = sql.SQL("null::text as unapplied, null::text as because")
    if whose is not None:
        unapplied = _UNAPPLIED
        ours = sql.SQL("consumer_group = {} and topic = {} and {}")
        where = ours.format(*map(sql.Literal, whose), where)
    named = (
        (ledger.event_id, "text", "event_id"),
        (ledger.partition, "int", "partition"),
        (ledger.offset, "bigint", "offset"),
        (ledger.at, "timestamptz", "at"),
    )
    columns = []
    for column, kind, name in named:
        value: sql.Composable = sql.Identifier(column) if column else sql.NULL
        if name == "at" and column:
            value = shown_by_clocks_in_sql(value)
        columns.append(sql.SQL(f"({{}})::{kind} as {{}}").format(value, sql.Identifier(name)))
    table = sql.Identifier(*ledger.table.split("."))
    return sql.SQL("select {}, {} from {} as entry where {}").format(
        sql.SQL(", ").join(columns), unapplied, table, where
    )


def _ways(ledger: Ledger, kind: str | None, events: Sequence[_Wanted]) -> list[sql.Composable]:
    """Build the conditions by which entries are found: by the event's id, and where that finds none by its place."""
    ways: list[sql.Composable] = []
    if ledger.event_id is not None:
        named = storable_texts(each for _, event_id, _, _ in events for each in spellings(event_id))
        column = sql.Identifier(ledger.event_id)
        column_text = column if kind == "uuid" else sql.SQL("{}::text").format(column)
        fits = sql.Literal(uuid_texts(named) if kind == "uuid" else named)
        ways.append(sql.SQL(f"{{}} = any({{}}::{kind}[])").format(column_text, fits))
    if ledger.partition is not None and ledger.offset is not None:
        ways.append(
            sql.SQL("({}, {}) in (select * from unnest({}::int[], {}::bigint[])) and ({}) is not true").format(
                sql.Identifier(ledger.partition),
                sql.Identifier(ledger.offset),
                sql.Literal([partition for _, _, partition, _ in events]),
                sql.Literal([offset for _, _, _, offset in events]),
                ways[0] if ways else sql.SQL("false"),
            )
        )
    return ways


def _tied(rows: list[tuple[Any, ...]], events: Sequence[_Wanted], *, placed: bool) -> pa.RecordBatch:
    """Build the entries with the ids of their events: by the event's id, else by where it stood.

    With `placed`, as in the library's ledger, places are of the very topic; several aggregates may share an event's id.
    """
    by_name = {spelled(event_id): id_text for id_text, event_id, _, _ in events}
    by_place = {(partition, offset): id_text for id_text, _, partition, offset in events}
    tied = []
    for row in rows:
        named, stood = row[0] and by_name.get(spelled(row[0])), by_place.get((row[1], row[2]))
        id_text = (stood or named) if placed else (named or stood)
        if id_text is not None:
            tied.append((id_text, *row))
    return _arrow(tied)


def _arrow(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    import pyarrow as pa

    kinds = {
        "id": pa.string(),
        "event_id": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "at": pa.timestamp("us", tz="UTC"),
        "unapplied": pa.string(),
        "because": pa.string(),
    }
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(kinds))
