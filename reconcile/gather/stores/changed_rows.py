"""The ids of rows that were changed since an instant, by the column with the time of a row's last change.

By an index on that column a database finds them; without one it looks through all rows. Rows that count as deleted are
among them: they are what a copy may still have.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from psycopg2 import sql

from reconcile.domain.canonical import Layout, agreed_layout
from reconcile.gather.stores import canonical_columns, digest, row_columns, spark_store
from reconcile.gather.stores.digest import DigestReading, Side
from reconcile.spark import local_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reconcile.gather.stores.mariadb.rows import MariaStore
    from reconcile.gather.stores.postgres_store import OpenPostgres
    from reconcile.gather.stores.spark_store import FrameStore


_FEW = 200_000
"""So many ids are read by this process."""


def of_postgres(
    spark: SparkSession, store: OpenPostgres, reading: DigestReading, column: str, since: datetime
) -> DataFrame:
    """Read them of a Postgres, as a local frame unless they are many."""
    wanted = statement(reading, column, since)
    few = store.session.rows(sql.SQL("{} limit {}").format(wanted, sql.Literal(_FEW + 1)))
    if len(few) > _FEW:
        return store.frame(spark, wanted)
    schema = row_columns.schema(0)
    return local_frames.of_rows(spark, few, schema)


def statement(reading: DigestReading, column: str, since: datetime) -> sql.Composed:
    """Build the query of a Postgres for the rows with their `reconcile_id` alone."""
    bare = replace(
        reading,
        side=replace(reading.side, fields=(), version=None, deleted=None),
        types=Layout(reading.types.id, None, ()),
        form=Layout(reading.form.id, None, ()),
    )
    newer = sql.SQL("{} >= {}::timestamptz").format(sql.Identifier(column), sql.Literal(since.isoformat()))
    return digest.rows(bare, where=newer)


def by_spark(spark: SparkSession, store: FrameStore, side: Side, column: str, since: datetime) -> DataFrame:
    """Read them of a store that Spark reads."""
    from pyspark.sql import functions as f

    # The time takes the place of a version, which is read as it is.
    timed = replace(side, fields=(), version=column, deleted=None)
    frame, columns = store.frame(spark, timed), spark_store.columns(timed)
    newer = frame.where(f.col(str(columns.version)).try_cast("timestamp") >= f.lit(since))
    return _ids(newer, Layout(columns.id, None, ()))


def of_maria(spark: SparkSession, store: MariaStore, side: Side, column: str, since: datetime) -> DataFrame:
    """Read them of a MariaDB, which compares the times."""
    from reconcile.gather.stores.mariadb import statements

    newer = f"{statements.identifier(column)} >= '{since:%Y-%m-%d %H:%M:%S.%f}'"
    query = f"select * from {statements.relation(side)} where {newer}"  # noqa: S608 - the contract's, and an instant
    bare = Side(side.id, (), query=query)
    return _ids(store.frame(spark, bare), spark_store.columns(bare))


def _ids(frame: DataFrame, columns: Layout[str]) -> DataFrame:
    types = canonical_columns.types(frame, columns)
    return canonical_columns.rows(frame, columns, agreed_layout(types, types)).select(row_columns.ID)
