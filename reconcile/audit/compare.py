"""Comparing source and copy: which ids stand in one alone, or twice, which fields differ, and what is suspect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
from reconcile.spark import local_frames

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
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
    here = _few_suspects(source, copy, rules, candidates)
    return suspects_by_spark(source, copy, rules, candidates) if here is None else here


def suspects_by_spark(
    source: DataFrame, copy: DataFrame, rules: Sequence[FieldRule], candidates: DataFrame | None = None
) -> DataFrame:
    """Select the same by Spark."""
    from pyspark.sql import functions as f

    differing = differences(source, copy, rules).withColumns(
        {SETTLED_VERSION: f.col(SOURCE_VERSION), SETTLED_FIELDS: f.col(SOURCE_FIELDS), DIFFERS: f.lit(True)}
    )
    found = differing.select(ID, SETTLED_VERSION, SETTLED_FIELDS, DIFFERS, SOURCE_COUNT)
    return found if candidates is None else found.unionByName(_agreeing(candidates, source, copy, rules))


def unlike(ours: pa.Table, theirs: pa.Table, wanted: Collection[str]) -> tuple[pa.Table, pa.Table]:
    """Select the rows of source and copy that may not agree, with those of wanted ids.

    Left out is an id that stands once on each side, with equal texts in all fields: `differences` finds it equal, too.
    """
    listed = [
        list(zip(*(table[name].to_pylist() for name in table.column_names if name != row_columns.VERSION), strict=True))
        for table in (ours, theirs)
    ]
    several = {
        id_text
        for counted in (Counter(id_text for id_text, *_ in rows) for rows in listed)
        for id_text, number in counted.items()
        if number > 1
    }
    alike = {id_text for id_text, *_ in set(listed[0]).intersection(listed[1])} - several - {None, *wanted}
    masks = ([id_text not in alike for id_text, *_ in rows] for rows in listed)
    found = [table.filter(mask) for table, mask in zip((ours, theirs), masks, strict=True)]
    return found[0], found[1]


def count_suspects(suspects: DataFrame) -> DataFrame:
    """Count in one row the suspects, those of them that differ, and the rows that the source has of them."""
    from pyspark.sql import functions as f

    if (here := local_frames.plain_rows(suspects.select(DIFFERS, SOURCE_COUNT))) is not None:
        counted = len(here), sum(each[DIFFERS] for each in here), sum(each[SOURCE_COUNT] for each in here)
        schema = "suspects bigint, differing bigint, source_rows bigint"
        return local_frames.of_rows(suspects.sparkSession, [counted], schema)

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


def _few_suspects(
    source: DataFrame, copy: DataFrame, rules: Sequence[FieldRule], candidates: DataFrame | None
) -> DataFrame | None:
    """Select the suspects of local rows; None for other rows, and where more than equal texts decides."""
    frames = [source, copy, *([] if candidates is None else [candidates])]
    read = [local_frames.plain_rows(each) for each in frames]
    if any(each is None for each in read):
        return None
    (ours, theirs, *listed), repeated = zip(*(_once_by_id(each or []) for each in read), strict=True)
    if any(repeated):
        return None
    found = []
    for id_text in dict.fromkeys((*ours, *theirs)):
        one, other = ours.get(id_text), theirs.get(id_text)
        if one is not None and other is not None:
            differing = [rule for rule, a, b in zip(rules, one[1:], other[1:], strict=True) if a != b]
            if any(rule.kind is Kind.FLOAT or rule.tolerance for rule in differing):
                return None
            if not differing:
                continue
        found.append((id_text, *_settled(one), True, int(one is not None)))
    differ = {id_text for id_text, *_ in found}
    wanted = [] if not listed else [id_text for id_text in listed[0] if id_text not in differ]
    found += [(id_text, *_settled(ours.get(id_text)), False, 0) for id_text in wanted]
    schema = (
        f"{ID} string, {SETTLED_VERSION} string, {SETTLED_FIELDS} array<string>, {DIFFERS} boolean,"
        f" {SOURCE_COUNT} bigint"
    )
    return local_frames.of_rows(source.sparkSession, found, schema)


def _once_by_id(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, list[Any]], bool]:
    """Build the version and the fields of each id, and whether a row has no id, or that of another one."""
    found = {id_text: values for id_text, *values in (row.values() for row in rows)}
    return found, None in found or len(found) < len(rows)


def _settled(row: Sequence[Any] | None) -> tuple[str | None, list[str | None] | None]:
    return (None, None) if row is None else (row[0], list(row[1:]))


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
