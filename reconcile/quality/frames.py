"""What expectation suites are run on: frames with the names that people know from the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession, Window  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253

from reconcile.contract.model import Consumer
from reconcile.domain.canonical import Kind
from reconcile.gather.log.history_columns import ID, OFFSET, PARTITION, READABLE, TIMESTAMP, VERSION
from reconcile.gather.stores import row_columns

_NUMBERS = (Kind.INTEGER, Kind.NUMERIC, Kind.FLOAT)


def columns(consumer: Consumer) -> list[str]:
    """Name the columns of one side's rows."""
    return ["id", "version", *(field.name for field in consumer.fields)]


def rows(read: DataFrame, consumer: Consumer, kinds: Sequence[str]) -> DataFrame:
    """Select one side's rows: `id`, `version`, and each field under its name in the contract.

    A field that is compared as a number is one, any other is its canonical text.
    """
    named = []
    for number, (field, kind) in enumerate(zip(consumer.fields, kinds, strict=True)):
        value = f.col(row_columns.field(number))
        named.append((value.try_cast("double") if kind in _NUMBERS else value).alias(field.name))
    return read.select(f.col(row_columns.ID).alias("id"), f.col(row_columns.VERSION).alias("version"), *named)


def log(records: DataFrame, at: datetime) -> DataFrame:
    """Select the log's records, each with how many hours before an instant it was written.

    And with whether its version is below an earlier one in its partition.
    """
    version = f.col(VERSION).try_cast("decimal(38,0)")
    before = Window.partitionBy(ID, PARTITION).orderBy(OFFSET).rowsBetween(Window.unboundedPreceding, -1)
    inverted = f.col(ID).isNotNull() & (version < f.max(version).over(before))
    return records.select(
        f.col(ID).alias("id"),
        f.col(PARTITION).alias("partition"),
        f.col(OFFSET).alias("offset"),
        f.col(TIMESTAMP).alias("at"),
        ((f.unix_micros(f.lit(at)) - f.unix_micros(TIMESTAMP)) / 3.6e9).alias("hours"),
        f.col(VERSION).alias("version"),
        f.col(READABLE).alias("readable"),
        f.coalesce(inverted, f.lit(False)).alias("inverted"),
    )


def rates(
    spark: SparkSession,
    link: str,
    compared: int,
    drifted: int,
    by_cause: Mapping[str, int],
    *,
    settled: bool,
    complete: bool,
) -> DataFrame:
    """Build how much of a link disagrees (`drift`), a line for each cause with its own `rate`, and one for `all`."""
    whole = max(compared, 1)
    lines = [("all", drifted), *by_cause.items()]
    rows = [(link, cause, number, number / whole, drifted / whole, complete, settled) for cause, number in lines]
    types = "link string, cause string, findings bigint, rate double, drift double, complete boolean, settled boolean"
    return spark.createDataFrame(rows, types)
