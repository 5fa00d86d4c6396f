"""A digest of a DataFrame's content, and its row count, taken while it is written and not by a second scan."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Observation  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253
from pyspark.sql.types import ArrayType, MapType, StructType  # noqa: TID253


def observed(df: DataFrame, observation: Observation) -> DataFrame:
    """Return the same DataFrame; the next action on it gives the observation what `row_count` and `digest` need."""
    row = _row_hash(df.schema)
    # Sums and not XOR, so that equal rows do not cancel; of halves, so that two billion rows do not overflow.
    return df.observe(
        observation,
        f.count(f.lit(1)).alias("rows"),
        f.coalesce(f.sum(f.shiftright(row, 32)), f.lit(0)).alias("high"),
        f.coalesce(f.sum(f.shiftright(f.shiftleft(row, 32), 32)), f.lit(0)).alias("low"),
    )


def row_count(observation: Observation) -> int:
    """Read the number of rows that were written."""
    return int(observation.get["rows"])


def digest(schema: StructType, observation: Observation) -> str:
    """Compute the digest of what was written: equal for equal columns and rows in any order and number of files."""
    columns = _named(schema)
    seen = observation.get
    return _digest(columns, seen["rows"], seen["high"], seen["low"])


def digest_of_local(df: DataFrame) -> str:
    """Compute the same digest of a local frame, in no job."""
    hashes = [row[0] for row in df.select(_row_hash(df.schema)).collect()]
    return _digest(_named(df.schema), len(hashes), sum(each >> 32 for each in hashes), sum(map(_low_half, hashes)))


def _named(schema: StructType) -> list[str]:
    return [f"{field.name} {field.dataType.simpleString()}" for field in schema.fields]


def _low_half(number: int) -> int:
    return (number & 0xFFFF_FFFF ^ 0x8000_0000) - 0x8000_0000


def _digest(columns: Sequence[str], rows: int, high: int, low: int) -> str:
    return hashlib.sha256(repr((columns, rows, high, low)).encode()).hexdigest()


def _row_hash(schema: StructType) -> Column:
    """Hash a row. Spark's hash passes over NULL, so for each column it is also hashed whether it is NULL."""
    hashed: list[Column] = []
    for field in schema.fields:
        column = f.col(f"`{field.name.replace('`', '``')}`")
        if isinstance(field.dataType, (ArrayType, MapType, StructType)):
            column = f.to_json(f.struct(column), {"ignoreNullFields": "false"})  # it shows NULLs at any depth
        hashed += [column, column.isNull()]
    return f.xxhash64(*hashed)
