"""Records as Kafka's source gives them, turned into the columns of the log history."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass, replace
from typing import TypedDict, Unpack

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253

from reconcile.contract.model import Topic
from reconcile.gather.log import formats, json_objects, record_keys
from reconcile.gather.log import history_columns as c
from reconcile.gather.log.value_reader import ValueReader

_LAYOUT = 3  # grows when the same record would give other columns
_HEADER = "header:"
_READABLE = "_readable"


class DerivationOptions(TypedDict, total=False):
    """What decides on a history beside the contract."""

    all_headers: bool
    values: ValueReader | None
    isolation: str


@dataclass(frozen=True)
class Derivation:
    """All that decides which records a history has, and which columns; contracts for which it is equal share one."""

    value_format: str
    key_type: str
    version: str | None = None
    event_id: str | None = None
    type: str | None = None
    correlation_id: str | None = None
    all_headers: bool = False
    values: ValueReader | None = None
    isolation: str = "read_committed"

    @classmethod
    def of(cls, topic: Topic, **wanted: Unpack[DerivationOptions]) -> Derivation:
        """Take it from a contract."""
        return cls(
            value_format=topic.format,
            key_type=topic.key.type,
            version=topic.version,
            event_id=topic.event_id,
            type=topic.type,
            correlation_id=topic.correlation_id,
            **wanted,
        )

    @property
    def digest(self) -> str:
        """A digest that differs where the columns do."""
        said = [_LAYOUT, *astuple(replace(self, values=None)), self.values and self.values.digest]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()

    @property
    def needs_headers(self) -> bool:
        """Whether the headers have to be read, which makes reading slower by a third."""
        return self.all_headers or any(locator.startswith(_HEADER) for locator in self._locators.values())

    @property
    def _locators(self) -> dict[str, str]:
        located = {
            c.VERSION: self.version,
            c.EVENT_ID: self.event_id,
            c.TYPE: self.type,
            c.CORRELATION_ID: self.correlation_id,
        }
        return {column: locator for column, locator in located.items() if locator is not None}

    @property
    def schema(self) -> str:
        """The stored columns, in Spark's DDL."""
        stored = c.STORED
        return f"{stored}, {c.STORED_HEADERS}" if self.all_headers else stored

    def stored(self, records: DataFrame) -> DataFrame:
        """Build the columns to store, of records as Kafka's source gives them."""
        text = formats.decoded(records, self.value_format, self.values)
        paths = [locator for locator in self._locators.values() if not locator.startswith(_HEADER)]
        parsed, at = json_objects.with_paths(text, formats.TEXT, paths, _READABLE)
        located = {
            column: _header(locator.removeprefix(_HEADER)) if locator.startswith(_HEADER) else at[locator]
            for column, locator in self._locators.items()
        }
        nothing = f.lit(None).cast("string")
        id_text = record_keys.decoded(f.col("key"), self.key_type, self.values)
        rebuilt = record_keys.encoded(f.lit(""), self.key_type) is not None
        tombstone = f.col("value").isNull()
        # So Connect's JSON converter writes a tombstone that has a schema, where it leaves schemas out.
        null = (f.col("value") == f.lit(b"null")) if self.values is None else f.lit(False)
        with_id = parsed.withColumn(c.ID, id_text)
        return with_id.select(
            f.col(c.ID),
            f.xxhash64(f.col(c.ID)).alias(c.ID_HASH),
            (f.when(f.col(c.ID).isNull(), f.col("key")) if rebuilt else f.col("key")).alias(c.KEY),
            f.col("partition").alias(c.PARTITION),
            f.col("offset").alias(c.OFFSET),
            c.holdable(f.col("timestamp")).alias(c.TIMESTAMP),
            located.get(c.VERSION, nothing).alias(c.VERSION),
            f.coalesce(located.get(c.EVENT_ID, nothing), f.col(formats.POSITION)).alias(c.EVENT_ID),
            located.get(c.TYPE, nothing).alias(c.TYPE),
            located.get(c.CORRELATION_ID, nothing).alias(c.CORRELATION_ID),
            tombstone.alias(c.TOMBSTONE),
            (tombstone | null | f.col(formats.DELETED)).alias(c.DELETES),
            f.when(f.col(_READABLE), f.col(formats.TEXT)).alias(c.VALUE),
            f.when(~f.col(_READABLE) & ~null, f.col("value")).alias(c.RAW),
            *([f.col("headers").alias(c.HEADERS)] if self.all_headers else []),
        )

    def shown(self, stored: DataFrame, topic: str) -> DataFrame:
        """Build the columns that a history shows, of those that are stored."""
        encoded = record_keys.encoded(f.col(c.ID), self.key_type)
        key = f.col(c.KEY) if encoded is None else f.coalesce(f.col(c.KEY), encoded)
        return stored.select(
            c.ID,
            key.alias(c.KEY),
            f.col(c.ID).isNotNull().alias(c.KEY_READABLE),
            c.PARTITION,
            c.OFFSET,
            c.TIMESTAMP,
            c.VERSION,
            f.coalesce(f.col(c.EVENT_ID), _origin(topic)).alias(c.EVENT_ID),
            c.TYPE,
            c.CORRELATION_ID,
            c.TOMBSTONE,
            c.DELETES,
            c.VALUE,
            c.RAW,
            f.col(c.RAW).isNull().alias(c.READABLE),
            *([c.HEADERS] if self.all_headers else []),
        )

    def shown_here(self, stored: pa.Table) -> pa.Table:
        """Build of stored columns that this process has KEY and READABLE as `shown` does; others stay."""
        encoded = record_keys.encoded_here(stored.column(c.ID).combine_chunks(), self.key_type)
        keys = stored.column(c.KEY)
        found = stored.set_column(
            stored.schema.get_field_index(c.KEY), c.KEY, keys if encoded is None else pc.coalesce(keys, encoded)
        )
        return found.append_column(c.READABLE, pc.is_null(stored.column(c.RAW)))


def is_origin(topic: str) -> Column:
    """Whether a record of a history is named by where it stands, as nothing else names it."""
    return f.col(c.EVENT_ID) == _origin(topic)


def _origin(topic: str) -> Column:
    return f.concat(f.lit(f"{topic}-"), f.col(c.PARTITION), f.lit("@"), f.col(c.OFFSET))


def _header(name: str) -> Column:
    """Build the text of a header, of the last one where there are several."""
    headers = f.reverse(f.col("headers"))
    place = f.array_position(headers.getField("key"), f.lit(name))
    value = f.get(headers.getField("value"), (place - 1).cast("int"))
    return f.try_validate_utf8(value.cast("string"))
