"""Comparing source and copy: which ids stand in one alone, or twice, which fields differ, and what is suspect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reconcile.audit.columns import (
    COPY_COUNT,
    COPY_FIELDS,
    COPY_VERSION,
    DIFFERS,
    FIELDS_DIFFER,
    ID,
    SETTLED_FIELDS,
    SETTLED_VERSION,
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
    """Select the ids that do not agree, with the rows of both; rows without an id count as one that does not."""
    from pyspark.sql import functions as f

    ours = _by_id(source, len(rules), SOURCE_VERSION, SOURCE_FIELDS)
    theirs = _by_id(copy, len(rules), COPY_VERSION, COPY_FIELDS)
    joined = ours.join(theirs, ID, "full_outer")
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
    differing = counted.where(one_sided | f.array_contains(FIELDS_DIFFER, f.lit(True)) | several).dropDuplicates([ID])
    found = differing.unionByName(_without_id(source, copy, compared))
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


def suspects(
    source: DataFrame, copy: DataFrame, rules: Sequence[FieldRule], candidates: DataFrame | None = None
) -> DataFrame:
    """Select the ids to look at closely, as the source has them: those that differ, and candidates that agree."""
    from pyspark.sql import functions as f

    differing = differences(source, copy, rules).withColumns(
        {SETTLED_VERSION: f.col(SOURCE_VERSION), SETTLED_FIELDS: f.col(SOURCE_FIELDS), DIFFERS: f.lit(True)}
    )
    found = differing.select(ID, SETTLED_VERSION, SETTLED_FIELDS, DIFFERS, SOURCE_COUNT)
    return found if candidates is None else found.unionByName(_agreeing(candidates, source, copy, rules))


def count_suspects(suspects: DataFrame) -> DataFrame:
    """Count in one row the suspects, those of them that differ, and the rows that the source has of them."""
    from pyspark.sql import functions as f

    return suspects.agg(
        f.count(f.lit(1)).alias("suspects"),
        f.count_if(DIFFERS).alias("differing"),
        f.coalesce(f.sum(SOURCE_COUNT), f.lit(0)).alias("source_rows"),
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


def _agreeing(candidates: DataFrame, source: DataFrame, copy: DataFrame, rules: Sequence[FieldRule]) -> DataFrame:
    """Select the candidates on which source and copy agree."""
    from pyspark.sql import functions as f

    ids = candidates.select(f.col(ID).alias(row_columns.ID))
    ours, theirs = (rows.join(ids, row_columns.ID, "left_semi") for rows in (source, copy))
    settled = _by_id(ours, len(rules), SETTLED_VERSION, SETTLED_FIELDS).dropDuplicates([ID])
    agreeing = candidates.join(differences(ours, theirs, rules).select(ID), ID, "left_anti")
    return agreeing.join(settled, ID, "left").withColumns({DIFFERS: f.lit(False), SOURCE_COUNT: f.lit(0)})


def _by_id(rows: DataFrame, fields: int, version: str, values: str) -> DataFrame:
    """Select rows with an id, under these names for the version and for the texts of all fields."""
    from pyspark.sql import functions as f

    return rows.where(f.col(row_columns.ID).isNotNull()).select(
        f.col(row_columns.ID).alias(ID),
        f.col(row_columns.VERSION).alias(version),
        f.array(*(f.col(row_columns.field(number)) for number in range(fields))).alias(values),
    )


def _repeated(rows: DataFrame, count: str) -> DataFrame:
    from pyspark.sql import functions as f

    ids = rows.where(f.col(row_columns.ID).isNotNull()).groupBy(f.col(row_columns.ID).alias(ID))
    return ids.agg(f.count(f.lit(1)).alias(count)).where(f.col(count) > 1)


def _without_id(source: DataFrame, copy: DataFrame, like: DataFrame) -> DataFrame:
    """Build one line for all rows without an id, if there are any."""
    from pyspark.sql import functions as f

    counts = [
        rows.where(f.col(row_columns.ID).isNull()).agg(f.count(f.lit(1)).alias(name))
        for rows, name in ((source, SOURCE_COUNT), (copy, COPY_COUNT))
    ]
    found = counts[0].crossJoin(counts[1]).where((f.col(SOURCE_COUNT) > 0) | (f.col(COPY_COUNT) > 0))
    return found.select(
        *(f.lit(None).cast(field.dataType).alias(field.name) for field in like.schema.fields),
        SOURCE_COUNT,
        COPY_COUNT,
    )


def _counted(count: str, fields: str) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(f.col(count), f.when(f.col(fields).isNotNull(), 1).otherwise(0)).cast("bigint").alias(count)
