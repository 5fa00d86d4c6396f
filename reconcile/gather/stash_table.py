"""A consumer's table of events that it could not apply: its size is the measure of how far it is out of step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg2 import sql

from reconcile.contract import StashTable
from reconcile.domain.canonical import Layout, agreed_layout
from reconcile.gather import digest, row_columns
from reconcile.gather.digest import Mode, Reading, Side
from reconcile.gather.postgres_rows import PostgresStore
from reconcile.gather.store_session import StoreSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TYPES = ("integer", "bigint", "text", "timestamp with time zone", "boolean")


def read(spark: SparkSession, store: PostgresStore, session: StoreSession, table: StashTable) -> DataFrame:
    """Give its rows in the columns of `parked.SCHEMA`."""
    from pyspark.sql import functions as f

    def column(name: str | None, kind: str) -> str:
        return f"{session.text(sql.Identifier(name)) if name else 'null'}::{kind}"

    fields = (
        column(table.partition, "int"),
        column(table.offset, "bigint"),
        column(table.event_id, "text"),
        column(table.at, "timestamptz"),
        f"coalesce((\n{table.resolved}\n), false)" if table.resolved else "false",
    )
    columns = sql.SQL(", ").join(map(sql.Identifier, table.id))
    where = sql.Identifier(*table.table.split("."))
    described = session.described(sql.SQL("select {} from {} limit 0").format(columns, where))
    types = Layout(tuple(kind for _, kind in described), None, _TYPES)
    reading = Reading(Side(table.id, fields, table=table.table), types, agreed_layout(types, types), Mode.FULL)
    rows = store.frame(spark, [session.text(digest.rows(reading))])
    value = [f.col(row_columns.field(number)) for number in range(len(fields))]
    return rows.select(
        f.lit("stash").alias("kind"),
        f.lit(table.table).alias("topic"),
        f.lit(None).cast("int").alias("partition"),
        f.lit(None).cast("bigint").alias("offset"),
        f.to_timestamp(value[3]).alias("at"),
        f.col(row_columns.ID).alias("id"),
        value[0].cast("int").alias("origin_partition"),
        value[1].cast("bigint").alias("origin_offset"),
        value[2].alias("event_id"),
        f.lit(None).cast("string").alias("version"),
        f.lit(None).cast("string").alias("correlation_id"),
        f.when(value[4] == "true", f.lit("its table says that it is resolved")).alias("resolved"),
        f.lit(None).cast("string").alias("error"),
    )
