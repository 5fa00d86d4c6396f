"""Times that ledgers and tables of problem events note: one that no clock shows (infinity, 44 BC) says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg2 import sql

if TYPE_CHECKING:
    from pyspark.sql import Column

_EARLIEST, _LATEST = "1970-01-01 00:00:00+00", "9999-12-30 00:00:00+00"


def shown_by_clocks(at: Column) -> Column:
    """Build the time, or NULL for one that no clock shows."""
    from pyspark.sql import functions as f

    return f.when(at.between(f.lit(_EARLIEST).cast("timestamp"), f.lit(_LATEST).cast("timestamp")), at)


def shown_by_clocks_in_sql(at: sql.Composable) -> sql.Composed:
    """Write the same in Postgres' SQL."""
    bounds = sql.Literal(_EARLIEST), sql.Literal(_LATEST)
    return sql.SQL("case when {}::timestamptz between {} and {} then {} end").format(at, *bounds, at)
