"""A consumer's table of events that it could not apply: its size is the measure of how far it is out of step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from psycopg2 import sql

from reconcile.contract.model import StashTable
from reconcile.domain.canonical import CanonicalType, Layout, agreed_layout
from reconcile.domain.parking import LIBRARY_STASH
from reconcile.gather.evidence.times import shown_by_clocks
from reconcile.gather.stores import digest, row_columns, spark_store
from reconcile.gather.stores.contract_sql import require_whole
from reconcile.gather.stores.digest import DigestReading, Mode, Side
from reconcile.gather.stores.postgres_store import OpenPostgres
from reconcile.gather.stores.spark_store import FrameStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_COLUMNS = ("partition", "offset", "event_id", "at", "resolved", "error")
_TYPES = ("integer", "bigint", "text", "timestamp with time zone", "boolean", "text")
_LIBRARY = StashTable(
    table=LIBRARY_STASH,
    id=("aggregate_id",),
    partition="partition",
    offset="offset",
    event_id="event_id",
    at="stashed_at",
)


def read_of_library(
    spark: SparkSession, postgres: OpenPostgres, whose: tuple[str, str], source_ids: tuple[str, ...]
) -> DataFrame:
    """Read what `read` does, of the consumer library's stash: the rows of one group and topic."""
    ours = sql.SQL("consumer_group = {} and topic = {}")
    return read(spark, postgres, _LIBRARY, source_ids, error="error_class", where=ours.format(*map(sql.Literal, whose)))


def read(
    spark: SparkSession,
    postgres: OpenPostgres,
    table: StashTable,
    source_ids: tuple[str, ...],
    *,
    error: str | None = None,
    where: sql.Composable | None = None,
) -> DataFrame:
    """Read its rows in the columns of `parked.SCHEMA`; ids are written as those of the source, which has these types.

    Of a Postgres, at the instant of the copy's snapshot.
    """

    def column(name: str | None, kind: str) -> str:
        return f"{postgres.session.text(sql.Identifier(name)) if name else 'null'}::{kind}"

    fields = (
        column(table.partition, "int"),
        column(table.offset, "bigint"),
        column(table.event_id, "text"),
        column(table.at, "timestamptz"),
        f"coalesce({require_whole(table.resolved).string}, false)" if table.resolved else "false",
        column(error, "text"),
    )
    columns = sql.SQL(", ").join(map(sql.Identifier, table.id))
    relation = sql.Identifier(*table.table.split("."))
    ids = postgres.session.types(sql.SQL("select {} from {} limit 0").format(columns, relation))
    types = Layout(tuple(ids), None, _TYPES)
    form = _form(types, source_ids)
    reading = DigestReading(Side(table.id, fields, table=table.table), types, form, Mode.FULL)
    return _parked(postgres.frame(spark, digest.rows(reading, where=where)), table, _COLUMNS)


def read_by_spark(spark: SparkSession, store: FrameStore, table: StashTable, source_ids: tuple[str, ...]) -> DataFrame:
    """Read what `read` does, of a store that Spark reads."""
    from reconcile.gather.stores import canonical_columns

    columns = (table.partition, table.offset, table.event_id, table.at)
    named = {name: column for name, column in zip(_COLUMNS, columns, strict=False) if column}
    fields = (f"case when (\n{table.resolved}\n) then 'true' else 'false' end",) if table.resolved else ()
    # Names of columns are quoted by the database's own dialect where a side has its id.
    side = Side((*table.id, *named.values()), fields, table=table.table)
    frame = store.frame(spark, side)
    every = spark_store.columns(side)
    many = len(table.id)
    layout = Layout(every.id[:many], None, (*every.id[many:], *every.fields))
    types = canonical_columns.types(frame, layout)
    form = _form(types, source_ids)
    names = (*named, *(("resolved",) if fields else ()))
    return _parked(canonical_columns.rows(frame, layout, form), table, names)


def _form(types: Layout[str], source_ids: tuple[str, ...]) -> Layout[CanonicalType]:
    alike = len(source_ids) == len(types.id)  # an id of several columns can also stand as one text
    return agreed_layout(types, replace(types, id=source_ids) if alike else types)


def _parked(rows: DataFrame, table: StashTable, names: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as f

    values = {name: f.col(row_columns.field(number)) for number, name in enumerate(names)}

    def value(name: str) -> Column:
        return values.get(name, f.lit(None).cast("string"))

    return rows.select(
        f.lit("stash").alias("kind"),
        f.lit(table.table).alias("topic"),
        f.lit(None).cast("int").alias("partition"),
        f.lit(None).cast("bigint").alias("offset"),
        shown_by_clocks(value("at").try_cast("timestamp")).alias("at"),
        f.col(row_columns.ID).alias("id"),
        value("partition").cast("int").alias("origin_partition"),
        value("offset").cast("bigint").alias("origin_offset"),
        value("event_id").alias("event_id"),
        f.lit(None).cast("string").alias("version"),
        f.lit(None).cast("string").alias("correlation_id"),
        f.when(value("resolved") == "true", f.lit("its table says that it is resolved")).alias("resolved"),
        value("error").alias("error"),
    )
