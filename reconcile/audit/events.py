"""What the records of the log say of the compared fields: the contract's `event` expressions, in canonical form."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING

from reconcile.audit.columns import BAD, TELLS, VALUES
from reconcile.contract.model import Consumer, Topic
from reconcile.contract.terms import TOMBSTONE
from reconcile.domain import mapping
from reconcile.domain.canonical import CanonicalType
from reconcile.gather.log import json_objects
from reconcile.gather.log.history_columns import (
    DELETES,
    EVENT_ID,
    ID,
    KEY,
    OFFSET,
    PARTITION,
    READABLE,
    TIMESTAMP,
    TYPE,
    VALUE,
    VERSION,
)
from reconcile.gather.stores import canonical_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_OBJECT = "_object"
_ANSI = "spark.sql.ansi.enabled"
_CASTS = re.compile(r"::|\b(cast|date|timestamp|int|bigint|double|decimal|float|boolean|to_\w+)\s*\(", re.IGNORECASE)
_TO_NULL = re.compile(r"\b(nullif|case|if|iff|try_\w+|decode)\b", re.IGNORECASE)
_only_one = threading.Lock()


def event_values(
    spark: SparkSession, records: DataFrame, topic: Topic, consumer: Consumer, form: Sequence[CanonicalType]
) -> DataFrame:
    """Add to the records of a history what they say of a consumer's fields."""
    from pyspark.sql import functions as f

    expressions = {number: field.event for number, field in enumerate(consumer.fields) if field.event is not None}
    delete = None if topic.delete == TOMBSTONE else topic.delete
    wanted = [path for text in (*expressions.values(), *([delete] if delete else [])) for path in mapping.paths(text)]
    parsed, at = json_objects.with_paths(records, VALUE, wanted, _OBJECT)
    names = {path: f"_path_{number}" for number, path in enumerate(dict.fromkeys(wanted))}
    with_paths = parsed.withColumns({names[path]: at[path] for path in names})
    with _lenient(spark):
        evaluated = {f"_field_{n}": f.expr(mapping.with_names(text, names)) for n, text in expressions.items()}
        if delete:
            evaluated["_delete"] = f.expr(f"coalesce((\n{mapping.with_names(delete, names)}\n), false)")
        with_values = with_paths.withColumns(evaluated) if evaluated else with_paths
    deletes = f.col(DELETES) | f.col("_delete") if delete else f.col(DELETES)
    silent = f.lit(False), f.lit(None).cast("string"), f.lit(False)
    texts = {n: canonical_columns.text(with_values, f"_field_{n}", form[n]) for n in expressions}
    fields = [
        silent if (text := texts.get(n)) is None else _field(expressions[n], text, n, names, topic)
        for n in range(len(consumer.fields))
    ]
    tells, values, bad = (f.array(*each) for each in zip(*fields, strict=True))
    return with_values.select(
        ID,
        KEY,
        PARTITION,
        OFFSET,
        TIMESTAMP,
        VERSION,
        EVENT_ID,
        TYPE,
        READABLE,
        deletes.alias(DELETES),
        tells.alias(TELLS),
        values.alias(VALUES),
        bad.alias(BAD),
    )


def _field(
    expression: str, text: Column, number: int, names: Mapping[str, str], topic: Topic
) -> tuple[Column, Column, Column]:
    """Build of one field whether records say anything of it, its text, and whether its value cannot be read."""
    from pyspark.sql import functions as f

    paths = mapping.paths(expression)
    bad = _all([f.col(names[path]).isNotNull() for path in paths]) & text.isNull()
    if _CASTS.search(expression) is None or _TO_NULL.search(expression) is not None:
        bad &= f.col(f"_field_{number}").isNotNull()  # NULL may be what the expression makes of it
    tells = _all([_present(path) for path in paths]) if topic.state == "patch" else f.lit(True)
    return tells, text, f.coalesce(bad, f.lit(False))


def _present(path: str) -> Column:
    """Test whether a path is in the record, also where it holds JSON's null."""
    from pyspark.sql import functions as f

    *above, last = mapping.steps(path)
    parent = f.col(VALUE)
    if above:
        parent = f.get_json_object(parent, "$" + "".join(f"['{step}']" for step in above))
    return f.coalesce(f.array_contains(f.json_object_keys(parent), f.lit(last)), f.lit(False))


def _all(conditions: Sequence[Column]) -> Column:
    return reduce(lambda one, other: one & other, conditions)


@contextmanager
def _lenient(spark: SparkSession) -> Iterator[None]:
    """Let a cast that cannot be done give NULL: one record that breaks its schema must not end the run.

    Spark settles this when an expression is analysed, so the setting is needed no longer than that; canonical texts
    are written without it, as small decimals would get an exponent.
    """
    with _only_one:
        before = spark.conf.get(_ANSI)
        spark.conf.set(_ANSI, "false")
        try:
            yield
        finally:
            spark.conf.set(_ANSI, str(before))
