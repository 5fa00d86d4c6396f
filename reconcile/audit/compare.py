"""Comparing both sides of a link: which ids stand on one side alone, or twice, and which fields differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reconcile.audit.columns import (
    COPY_COUNT,
    COPY_FIELDS,
    COPY_VERSION,
    FIELDS_DIFFER,
    ID,
    SOURCE_COUNT,
    SOURCE_FIELDS,
    SOURCE_VERSION,
)
from reconcile.domain.canonical import Kind
from reconcile.domain.case import FieldRule
from reconcile.gather.stores import row_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def differences(source: DataFrame, copy: DataFrame, rules: Sequence[FieldRule]) -> DataFrame:
    """Give the ids that do not agree, with both sides' rows; rows without an id count as one that does not."""
    from pyspark.sql import functions as f

    left = named(source, len(rules), SOURCE_VERSION, SOURCE_FIELDS)
    right = named(copy, len(rules), COPY_VERSION, COPY_FIELDS)
    joined = left.join(right, ID, "full_outer")
    there = f.col(SOURCE_FIELDS).isNotNull() & f.col(COPY_FIELDS).isNotNull()
    each = [
        differs(f.get(SOURCE_FIELDS, f.lit(number)), f.get(COPY_FIELDS, f.lit(number)), rule)
        for number, rule in enumerate(rules)
    ]
    compared = joined.withColumn(FIELDS_DIFFER, f.when(there, f.array(*each)))
    one_sided = f.col(SOURCE_FIELDS).isNull() | f.col(COPY_FIELDS).isNull()
    repeated = _repeated(source, SOURCE_COUNT).join(_repeated(copy, COPY_COUNT), ID, "full_outer")
    counted = compared.join(f.broadcast(repeated), ID, "left")
    several = f.col(SOURCE_COUNT).isNotNull() | f.col(COPY_COUNT).isNotNull()
    suspects = counted.where(one_sided | f.array_contains(FIELDS_DIFFER, f.lit(True)) | several).dropDuplicates([ID])
    found = suspects.unionByName(_without_id(source, copy, compared))
    return found.select(
        ID,
        _counted(SOURCE_COUNT, SOURCE_FIELDS),
        _counted(COPY_COUNT, COPY_FIELDS),
        SOURCE_VERSION,
        COPY_VERSION,
        SOURCE_FIELDS,
        COPY_FIELDS,
        FIELDS_DIFFER,
    )


def differs(ours: Column, theirs: Column, rule: FieldRule) -> Column:
    """Compare canonical texts: equal texts are equal values; of floats, and within a tolerance, others may be too."""
    from pyspark.sql import functions as f

    same = ours.eqNullSafe(theirs)
    if rule.kind is Kind.FLOAT:
        numbers = [text.try_cast("double") for text in (ours, theirs)]
        same = same | f.coalesce(numbers[0] == numbers[1], f.lit(False))
    if rule.tolerance:
        kind = "double" if rule.kind is Kind.FLOAT else "decimal(38,12)"
        apart = f.abs(ours.try_cast(kind) - theirs.try_cast(kind))
        same = same | f.coalesce(apart <= f.lit(str(rule.tolerance)).cast(kind), f.lit(False))
    return ~same


def named(side: DataFrame, fields: int, version: str, values: str) -> DataFrame:
    """Give a side's rows by id, under these names for the version and for the texts of all fields."""
    from pyspark.sql import functions as f

    return side.where(f.col(row_columns.ID).isNotNull()).select(
        f.col(row_columns.ID).alias(ID),
        f.col(row_columns.VERSION).alias(version),
        f.array(*(f.col(row_columns.field(number)) for number in range(fields))).alias(values),
    )


def _repeated(side: DataFrame, count: str) -> DataFrame:
    from pyspark.sql import functions as f

    ids = side.where(f.col(row_columns.ID).isNotNull()).groupBy(f.col(row_columns.ID).alias(ID))
    return ids.agg(f.count(f.lit(1)).alias(count)).where(f.col(count) > 1)


def _without_id(source: DataFrame, copy: DataFrame, like: DataFrame) -> DataFrame:
    """Give one line for all rows without an id, if there are any."""
    from pyspark.sql import functions as f

    counts = [
        side.where(f.col(row_columns.ID).isNull()).agg(f.count(f.lit(1)).alias(name))
        for side, name in ((source, SOURCE_COUNT), (copy, COPY_COUNT))
    ]
    rows = counts[0].crossJoin(counts[1]).where((f.col(SOURCE_COUNT) > 0) | (f.col(COPY_COUNT) > 0))
    return rows.select(
        *(f.lit(None).cast(field.dataType).alias(field.name) for field in like.schema.fields),
        SOURCE_COUNT,
        COPY_COUNT,
    )


def _counted(count: str, fields: str) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(f.col(count), f.when(f.col(fields).isNotNull(), 1).otherwise(0)).cast("bigint").alias(count)
