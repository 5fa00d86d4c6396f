"""What waits in the source's outbox: events that the source has written and nobody has published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg2 import sql

from reconcile.contract.model import Outbox
from reconcile.domain.canonical import agreed_layout
from reconcile.gather.stores import row_columns, spark_store
from reconcile.gather.stores.contract_sql import require_whole
from reconcile.gather.stores.digest import Side
from reconcile.gather.stores.postgres_store import OpenPostgres
from reconcile.gather.stores.spark_store import SparkStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def pending(spark: SparkSession, postgres: OpenPostgres, outbox: Outbox) -> DataFrame:
    """Query `id` and how many rows of it are `pending`."""
    statement = sql.SQL(
        "select {}::text as id, count(*)::int as pending from {} where {} is not true group by 1"
    ).format(sql.Identifier(outbox.id), sql.Identifier(*outbox.table.split(".")), require_whole(outbox.published))
    return postgres.frame(spark, statement)


def pending_by_spark(spark: SparkSession, store: SparkStore, outbox: Outbox) -> DataFrame:
    """Read what `pending` queries, of a store that Spark reads."""
    from pyspark.sql import functions as f

    from reconcile.gather.stores import canonical_columns

    side = Side((outbox.id,), (), table=outbox.table, deleted=outbox.published)
    frame, columns = store.frame(spark, side), spark_store.columns(side)
    types = canonical_columns.types(frame, columns)
    waiting = canonical_columns.rows(frame, columns, agreed_layout(types, types))
    return waiting.groupBy(f.col(row_columns.ID).alias("id")).agg(f.count(f.lit(1)).cast("int").alias("pending"))
