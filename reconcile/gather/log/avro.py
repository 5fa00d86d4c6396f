"""Avro values as JSON text, with the schema of a file, or of a registry that each value names by a number.

What JSON has no number or type for becomes text: decimals with all their digits, instants in ISO form, bytes in base64.
"""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

from pyspark.sql import Column  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253

from reconcile.contract.model import Topic
from reconcile.errors import InvalidFileError, Problem, RefusedError
from reconcile.gather.log import avro_bounds
from reconcile.gather.log.schema_registry import RegistryAddress, UnknownSchemaError
from reconcile.settings.connections import Registry
from reconcile.settings.settings import Settings

_CONFLUENT = struct.Struct(">bI")  # a zero byte and the schema's number
_SINGLE_OBJECT = b"\xc3\x01"  # and eight bytes of the schema's fingerprint
_UNREADABLE = (
    *(ValueError, TypeError, LookupError, EOFError, StopIteration, struct.error),
    *(OverflowError, MemoryError, RecursionError, UnknownSchemaError),
)


@dataclass(frozen=True)
class Decoded:
    """A value, where it begins behind its frame, and the parsed schema that reads it."""

    start: int
    schema: Any
    value: Any


@dataclass(frozen=True)
class _ParsedSchema:
    schema: Any
    named: avro_bounds.Named
    unbounded: bool
    """Whether a value has to be looked at before it is read."""

    def read(self, data: bytes, start: int) -> Any:
        """Read a value to the last byte."""
        from fastavro import schemaless_reader

        if self.unbounded:
            avro_bounds.require(data, start, self.schema, self.named)
        stream = BytesIO(data)
        stream.seek(start)
        found = schemaless_reader(stream, self.schema, None)
        if stream.tell() != len(data):
            raise ValueError("something stands behind it")
        return found


@dataclass(frozen=True)
class AvroSchema:
    """Where the schema of a topic's values is: here, or in a registry."""

    schema: str | None = None
    registry: RegistryAddress | None = None

    @property
    def digest(self) -> str:
        """A digest that differs where the schema does."""
        said = self.schema if self.registry is None else self.registry.url
        return hashlib.sha256(str(said).encode()).hexdigest()

    def text(self, value: Column) -> Column:
        """Decode values as JSON text; NULL for those that cannot be read."""

        def decode(data: bytes | None) -> str | None:
            return None if data is None else self.read(bytes(data))

        return f.udf(decode, "string", useArrow=True)(value)

    def read(self, data: bytes) -> str | None:
        """Decode one value as JSON text; None where the schema does not read it to its last byte."""
        try:
            found = self.decoded(data)
            return None if found is None else json.dumps(_plain(found.value), ensure_ascii=False, allow_nan=False)
        except _UNREADABLE:
            return None

    def decoded(self, data: bytes) -> Decoded | None:
        """Decode one value; None where no schema reads it to its last byte."""
        try:
            for start, schema in self._ways(data):
                try:
                    return Decoded(start, schema.schema, schema.read(data, start))
                except _UNREADABLE:
                    continue
        except _UNREADABLE:
            pass
        return None

    def _ways(self, data: bytes) -> Iterator[tuple[int, _ParsedSchema]]:
        """Choose where the value may begin, and with which schema."""
        framed = len(data) >= _CONFLUENT.size and data[0] == 0
        if self.registry is not None:
            if framed:
                _, number = _CONFLUENT.unpack_from(data)
                yield _CONFLUENT.size, _parsed(self.registry.schema(number))
            return
        assert self.schema is not None
        schema = _parsed((self.schema,))
        if framed:
            yield _CONFLUENT.size, schema
        if data[:2] == _SINGLE_OBJECT:
            yield 10, schema
        yield 0, schema


def avro_schema(topic: Topic, folder: Path, settings: Settings) -> AvroSchema | None:
    """Take the schema that a contract names, None if its format needs none.

    `folder` is the contract's. Raises InvalidFileError for a file that is no schema, UnreachableError for a registry
    that does not answer.
    """
    if topic.format != "avro" or topic.value_schema is None:
        return None
    if topic.value_schema.registry is not None:
        registry = settings.connection(topic.value_schema.registry)
        if not isinstance(registry, Registry):
            raise RefusedError(f"the registry {topic.value_schema.registry} is no connection to a schema registry")
        address = RegistryAddress.of(registry)
        address.check()
        return AvroSchema(registry=address)
    file = folder / str(topic.value_schema.file)
    try:
        text = file.read_text("utf-8")
        _parsed((text,))
    except OSError as error:
        raise InvalidFileError(file, [Problem("", f"cannot be read: {error.strerror}")]) from None
    except _schema_errors() as error:
        raise InvalidFileError(file, [Problem("", f"is no Avro schema: {error}")]) from None
    return AvroSchema(schema=text)


def _schema_errors() -> tuple[type[Exception], ...]:
    from fastavro.schema import SchemaParseException, UnknownType

    return ValueError, SchemaParseException, UnknownType


@functools.lru_cache(maxsize=256)
def _parsed(schemas: tuple[str, ...]) -> _ParsedSchema:
    """Parse a schema that stands behind those that it refers to."""
    from fastavro import parse_schema

    named: dict[str, Any] = {}
    parsed = [parse_schema(json.loads(each), named_schemas=named) for each in schemas][-1]
    return _ParsedSchema(parsed, named, avro_bounds.needed(parsed, named))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)
