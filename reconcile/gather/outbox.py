"""What waits in the source's outbox: events that the source has written and nobody has published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg2 import sql

from reconcile.contract import Outbox
from reconcile.gather.contract_sql import require_whole
from reconcile.gather.postgres_rows import PostgresStore
from reconcile.gather.store_session import StoreSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def pending(spark: SparkSession, store: PostgresStore, session: StoreSession, outbox: Outbox) -> DataFrame:
    """Give `id` and how many rows of it are `pending`."""
    statement = sql.SQL(
        "select {}::text as id, count(*)::int as pending from {} where {} is not true group by 1"
    ).format(sql.Identifier(outbox.id), sql.Identifier(*outbox.table.split(".")), require_whole(outbox.published))
    return store.frame(spark, [session.text(statement)])
