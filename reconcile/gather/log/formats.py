"""What a topic's values are written in, turned into JSON text, so that paths work alike for all formats.

Debezium's envelope becomes the row as it is after the change, with the rest beside it under the names that Debezium's
own unwrapping gives: `$.email`, `$.__op`, `$.__source.lsn`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253

from reconcile.domain.event import event_id
from reconcile.errors import RefusedError
from reconcile.gather.log import json_objects

if TYPE_CHECKING:
    from reconcile.gather.log.value_reader import ValueReader

TEXT = "_text"
"""The value as text; NULL for a null value and for one that is not text."""
DELETED = "_deleted"
"""Whether the value itself says that the aggregate is gone."""
POSITION = "_position"
"""The event's id by Debezium's position in the source, else NULL."""

_READABLE = "_readable"
_NOWHERE = ("", 0, 0)
_UNNAMED = event_id((), None, None, _NOWHERE)


def decoded(records: DataFrame, value_format: str, values: ValueReader | None = None) -> DataFrame:
    """Add TEXT, DELETED and POSITION to records that have `value`; raise RefusedError if a schema is missing."""
    if value_format == "debezium-json":
        return _unwrapped(records.withColumn(TEXT, _utf8(f.col("value"))))
    if value_format == "json":
        text = _utf8(f.col("value"))
    elif values is not None:
        text = values.text(f.col("value"))
    else:
        raise RefusedError(f"values in {value_format} cannot be read without their schema")
    return records.withColumns({TEXT: text, DELETED: f.lit(False), POSITION: f.lit(None).cast("string")})


def position(source: str | None) -> str | None:
    """Name a change by the JSON of its source's position; None for what holds none."""
    try:
        found = json.loads(source) if source else None
    except (ValueError, RecursionError):  # it can be any text, and its numbers can be longer than Python reads
        return None
    name = event_id((), None, found if isinstance(found, dict) else None, _NOWHERE)
    return None if name == _UNNAMED else name


def _utf8(value: Column) -> Column:
    return f.try_validate_utf8(value.cast("string"))


def _unwrapped(records: DataFrame) -> DataFrame:
    """Unwrap the envelope, which stands alone, or as `payload` beside its schema."""
    columns = [each for each in records.columns if each != TEXT]
    whole, at = json_objects.with_paths(records, TEXT, ["$.payload"], _READABLE)
    inner = whole.select(*columns, f.coalesce(at["$.payload"], f.when(f.col(_READABLE), f.col(TEXT))).alias(TEXT))
    envelope, at = json_objects.with_paths(inner, TEXT, ["$.op", "$.after", "$.source"], _READABLE)
    op, after, source = (f.col(name) for name in ("_op", "_after", "_source"))
    parts = envelope.select(*columns, *(at[f"$.{name}"].alias(f"_{name}") for name in ("op", "after", "source")))
    row = f.concat(
        f.when(after.isNull() | (after == "{}"), "{").otherwise(
            f.concat(f.expr("left(_after, length(_after) - 1)"), f.lit(","))
        ),
        f.when(source.startswith("{"), f.concat(f.lit('"__source":'), source, f.lit(","))).otherwise(f.lit("")),
        f.substring(f.to_json(f.struct(op.alias("__op"))), 2, 1_000_000),
    )
    return parts.select(
        *columns,
        f.when(op.isNotNull(), row).alias(TEXT),
        f.coalesce(op == "d", f.lit(False)).alias(DELETED),
        _position(source).alias(POSITION),
    )


def _position(source: Column) -> Column:
    """Name the change by its place in the source's log, as `domain.event` names it."""
    return f.udf(position, "string", useArrow=True)(source)
