"""What waits in the source's outbox: events that the source has written and nobody has published."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from psycopg2 import sql

from reconcile.contract.model import Outbox
from reconcile.domain.canonical import agreed_layout
from reconcile.domain.outbox import WaitingEvents
from reconcile.gather.evidence.times import shown_by_clocks, shown_by_clocks_in_sql
from reconcile.gather.stores import row_columns, spark_store
from reconcile.gather.stores.contract_sql import require_whole
from reconcile.gather.stores.digest import Side
from reconcile.gather.stores.postgres_store import OpenPostgres
from reconcile.gather.stores.session import storable_texts
from reconcile.gather.stores.spark_store import FrameStore
from reconcile.spark import local_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def pending(spark: SparkSession, postgres: OpenPostgres, outbox: Outbox, waiting: int | None) -> DataFrame:
    """Query `id`, how many rows of it are `pending`, and since when: `pending_since`, NULL where that is not known.

    `waiting` is how many rows there are in all, if that is known.
    """
    statement = _pending(outbox, sql.SQL("true"))
    if waiting is None or waiting > local_frames.MOST:
        return postgres.frame(spark, statement)
    return local_frames.of_rows(spark, postgres.rows(statement), "id string, pending int, pending_since timestamp")


def waiting(postgres: OpenPostgres, outbox: Outbox, ids: Collection[str]) -> dict[str, WaitingEvents]:
    """Query what waits of these ids at the snapshot's instant."""
    snapshot = postgres.session.snapshot
    seen_at = None if snapshot is None else snapshot.taken_at
    among = sql.SQL("{}::text = any({}::text[])").format(
        sql.Identifier(outbox.id), sql.Literal(storable_texts(sorted(ids)))
    )
    rows = postgres.rows(_pending(outbox, among))
    return {id_text: WaitingEvents(count, since, seen_at) for id_text, count, since in rows}


def pending_by_spark(spark: SparkSession, store: FrameStore, outbox: Outbox) -> DataFrame:
    """Read what `pending` queries, of a store that Spark reads."""
    from pyspark.sql import functions as f

    from reconcile.gather.stores import canonical_columns

    # The time takes the place of a version, which is read as it is.
    side = Side((outbox.id,), (), table=outbox.table, version=outbox.at, deleted=outbox.published)
    frame, columns = store.frame(spark, side), spark_store.columns(side)
    types = canonical_columns.types(frame, columns)
    rows = canonical_columns.rows(frame, columns, agreed_layout(types, types))
    since = f.min(shown_by_clocks(f.col(row_columns.VERSION).try_cast("timestamp")))
    return rows.groupBy(f.col(row_columns.ID).alias("id")).agg(
        f.count(f.lit(1)).cast("int").alias("pending"), since.alias("pending_since")
    )


def waiting_by_spark(
    spark: SparkSession, store: FrameStore, outbox: Outbox, ids: Collection[str], seen_at: datetime
) -> dict[str, WaitingEvents]:
    """Read what `waiting` queries, of a store that Spark reads, as it is at an instant: now, if it has no past."""
    from pyspark.sql import functions as f

    wanted = spark.createDataFrame([(each,) for each in ids], "id string")
    rows = pending_by_spark(spark, store, outbox).join(f.broadcast(wanted), "id", "left_semi")
    # As microseconds, because a timestamp comes back in the time zone of this process.
    timed = rows.select("id", "pending", f.unix_micros("pending_since"))
    return {
        id_text: WaitingEvents(count, None if at is None else datetime.fromtimestamp(at / 1e6, UTC), seen_at)
        for id_text, count, at in timed.collect()
    }


def _pending(outbox: Outbox, where: sql.Composable) -> sql.Composed:
    at = sql.SQL("{}::timestamptz").format(sql.Identifier(outbox.at) if outbox.at else sql.NULL)
    return sql.SQL(
        "select {}::text as id, count(*)::int as pending, min({}) as pending_since from {}"
        " where {} is not true and {} group by 1"
    ).format(
        sql.Identifier(outbox.id),
        shown_by_clocks_in_sql(at),
        sql.Identifier(*outbox.table.split(".")),
        require_whole(outbox.published),
        where,
    )
