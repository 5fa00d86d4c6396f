"""What the records of the log say of the compared fields: the contract's `event` expressions, in canonical form."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

from reconcile.audit.columns import BAD, GONE, TELLS, UNTOLD, VALUES
from reconcile.config.yamlfile import KeyPath, path_text
from reconcile.contract.consumer import ComparedField, Consumer, EncodedValue
from reconcile.contract.model import Contract, Topic
from reconcile.contract.terms import TOMBSTONE
from reconcile.domain import mapping, untold
from reconcile.domain.canonical import CanonicalType
from reconcile.errors import InvalidFileError, Problem, RefusedError
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
from reconcile.spark import parsed_sql

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

    events = {number: field.event for number, field in enumerate(consumer.fields) if field.event is not None}
    of_fields = [path for field in consumer.fields for path in field.event_paths]
    wanted = [*of_fields, *_tested_paths(topic)]
    parsed, at = json_objects.with_paths(records, VALUE, wanted, _OBJECT)
    names = {path: f"_path_{number}" for number, path in enumerate(dict.fromkeys(wanted))}
    with_paths = parsed.withColumns({names[path]: at[path] for path in names})
    with lenient(spark):
        evaluated = {f"_field_{n}": _evaluated(spark, event, names) for n, event in events.items()}
        with_values = with_paths.withColumns(evaluated | {GONE: _gone(spark, topic, names)})
    silent = f.lit(False), f.lit(None).cast("string"), f.lit(False), f.lit(False)
    texts = {n: canonical_columns.text(with_values, f"_field_{n}", form[n]) for n in events}
    fields = [
        silent
        if (text := texts.get(n)) is None
        else _field(field, text, _as_written(with_values, field, n, names), n, names, topic)
        for n, field in enumerate(consumer.fields)
    ]
    tells, values, bad, unsaid = (f.array(*each) for each in zip(*fields, strict=True))
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
        f.col(GONE).alias(DELETES),
        tells.alias(TELLS),
        values.alias(VALUES),
        bad.alias(BAD),
        unsaid.alias(UNTOLD),
    )


def require_analysed(spark: SparkSession, contract: Contract, file: Path) -> None:
    """Raise InvalidFileError for each expression over events that Spark cannot make sense of; it runs nothing."""
    problems = [Problem(path_text(path), said) for path, said in _unanalysed(spark, contract)]
    if problems:
        raise InvalidFileError(file, problems)


def _unanalysed(spark: SparkSession, contract: Contract) -> Iterator[tuple[KeyPath, str]]:
    several = isinstance(contract.topic.delete, tuple)
    for number, test in enumerate(contract.topic.deletes):
        if test != TOMBSTONE and (said := _problem(spark, test, is_test=True)):
            yield ("topic", "delete", *([number] if several else [])), said
    for index, consumer in enumerate(contract.consumers):
        for number, field in enumerate(consumer.fields):
            if isinstance(field.event, str) and (said := _problem(spark, field.event)):
                yield ("consumers", index, "fields", number, "event"), said


def _problem(spark: SparkSession, expression: str, *, is_test: bool = False) -> str | None:
    """Say what Spark's parser or analyzer has against an expression."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql.types import BooleanType, StructType

    names = {path: f"_path_{number}" for number, path in enumerate(mapping.paths(expression))}
    struct = StructType()
    for name in names.values():
        struct = struct.add(name, "string")
    try:
        with lenient(spark):
            column = parsed_sql.expression(spark, mapping.with_names(expression, names))
            (found,) = spark.createDataFrame([], struct).select(column).schema
    except RefusedError as error:
        return str(error)
    except (AnalysisException, ParseException) as error:
        said = str(error).strip().partition("\n")[0].partition(" SQLSTATE")[0].rstrip(" .")
        for path, name in reversed(names.items()):
            said = said.replace(name, path)
        return f"Spark does not take it: {said}"
    if is_test and not isinstance(found.dataType, BooleanType):
        return f"is no test: it gives {found.dataType.simpleString()}, and neither true nor false"
    return None


def with_gone(records: DataFrame, topic: Topic) -> DataFrame:
    """Add GONE to the records of a history: whether they delete, by themselves or by the contract's tests."""
    from pyspark.sql import functions as f

    paths = dict.fromkeys(_tested_paths(topic))
    names = {path: f"_path_{number}" for number, path in enumerate(paths)}
    places = {path: "$" + "".join(f"['{step}']" for step in mapping.steps(path)) for path in paths}
    with_paths = records.withColumns({name: f.get_json_object(VALUE, places[path]) for path, name in names.items()})
    with lenient(records.sparkSession):
        return with_paths.withColumn(GONE, _gone(records.sparkSession, topic, names)).drop(*names.values())


def _tested_paths(topic: Topic) -> list[str]:
    return [path for test in topic.delete_tests for path in mapping.paths(test)]


def _gone(spark: SparkSession, topic: Topic, names: Mapping[str, str]) -> Column:
    """Build whether a record deletes, of the columns with its paths."""
    from pyspark.sql import functions as f

    tests = (parsed_sql.expression(spark, mapping.with_names(test, names)) for test in topic.delete_tests)
    return reduce(or_, (f.coalesce(test, f.lit(False)) for test in tests), f.col(DELETES))


def _evaluated(spark: SparkSession, event: str | EncodedValue, names: Mapping[str, str]) -> Column:
    """Build what an event says, of the columns with its paths."""
    from pyspark.sql import functions as f

    if not isinstance(event, EncodedValue):
        return parsed_sql.expression(spark, mapping.with_names(event, names))
    encoding, column = event.encoding, f.col(names[event.path])
    if encoding.form == "base64":
        return f.try_to_binary(column, f.lit("base64"))

    def decode(text: str | None) -> str | None:
        try:
            return None if text is None else encoding.decode(text)
        except ValueError:
            return None

    return f.udf(decode, "string", useArrow=True)(column)


def _field(
    field: ComparedField, text: Column, written: Column, number: int, names: Mapping[str, str], topic: Topic
) -> tuple[Column, Column, Column, Column]:
    """Build of one field whether records tell it, its text, whether that cannot be read, and whether it is left out."""
    from pyspark.sql import functions as f

    paths, event = field.event_paths, field.event
    forms = untold.in_records(topic.untold)
    unsaid = reduce(or_, (f.coalesce(f.col(names[path]).isin(*forms), f.lit(False)) for path in paths))
    bad = _all([f.col(names[path]).isNotNull() for path in paths]) & text.isNull()
    if isinstance(event, str) and (_CASTS.search(event) is None or _TO_NULL.search(event) is not None):
        bad &= f.col(f"_field_{number}").isNotNull()  # NULL may be what the expression makes of it
    tells = _all([_present(path) for path in paths]) if topic.state == "patch" else f.lit(True)
    bad = f.coalesce(bad, f.lit(False)) & ~unsaid
    return tells & ~unsaid, f.when(~unsaid, f.coalesce(text, f.when(bad, written))), bad, unsaid


def _as_written(values: DataFrame, field: ComparedField, number: int, names: Mapping[str, str]) -> Column:
    """Build the text in a record of a value that has no canonical form; NULL where several paths make it, or bytes."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    if isinstance(values.schema[f"_field_{number}"].dataType, StringType):
        return f.col(f"_field_{number}")
    alone = isinstance(field.event, str) and len(field.event_paths) == 1
    return f.col(names[field.event_paths[0]]) if alone else f.lit(None).cast("string")


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
def lenient(spark: SparkSession) -> Iterator[None]:
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
