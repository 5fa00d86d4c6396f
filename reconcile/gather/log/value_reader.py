"""Values by their schemas, as JSON text: the schema of a file, or of a registry that each value names by a number.

A value of a registry has the name of its own type as `$.__type`, and so has one whose schema is a union: that tells the
types of a topic apart that carries several.
"""

from __future__ import annotations

import functools
import hashlib
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import Column  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253

from reconcile.contract.model import Topic
from reconcile.domain import key as domain_key
from reconcile.domain.key import KeyType
from reconcile.errors import InvalidFileError, Problem, RefusedError
from reconcile.gather.log import avro, protobuf
from reconcile.gather.log.avro import AvroType
from reconcile.gather.log.plain_values import plain
from reconcile.gather.log.protobuf import MessageType
from reconcile.gather.log.schema_registry import Reference, RegistryAddress, UnknownSchemaError
from reconcile.settings.connections import Registry
from reconcile.settings.settings import Settings

TYPE = "__type"
"""Where a value has the name of its type."""
FORMATS = ("avro", "json-schema", "protobuf")
"""What is read by a schema."""

_RULES = 2  # grows when the same value would be read as something else
_CONFLUENT = struct.Struct(">bI")  # a zero byte and the schema's number
_SINGLE_OBJECT = b"\xc3\x01"  # and eight bytes of the schema's fingerprint
_KINDS = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}
_UNREADABLE = (
    *(ValueError, TypeError, LookupError, EOFError, StopIteration, struct.error, ArithmeticError),
    *(MemoryError, RecursionError, UnknownSchemaError),
)


@dataclass(frozen=True)
class JsonType:
    """A JSON Schema, with all that it refers to; a value is read without it."""

    text: str
    references: tuple[Reference, ...] = ()

    @property
    def name(self) -> str | None:
        """Its title, if it has any."""
        return _title(self.text)


ValueType = AvroType | MessageType | JsonType


@dataclass(frozen=True)
class Decoded:
    """A value: where it begins behind its frame, what reads it, the name of its type, and what it says."""

    start: int
    type: ValueType
    name: str | None
    value: Any


@dataclass(frozen=True)
class ValueReader:
    """Reads a topic's values by their schemas."""

    form: str
    """The contract's `topic.format`; empty for any of FORMATS."""
    schema: str | None = None
    registry: RegistryAddress | None = None
    patch: bool = False
    """Whether events tell only what changed."""

    @property
    def digest(self) -> str:
        """A digest that differs where the same records would be read as something else."""
        said = self.schema if self.registry is None else self.registry.url
        return hashlib.sha256(json.dumps([_RULES, self.form, self.patch, said]).encode()).hexdigest()

    def text(self, value: Column) -> Column:
        """Decode values as JSON text; NULL for those that cannot be read."""

        def decode(data: bytes | None) -> str | None:
            return None if data is None else self.read(bytes(data))

        return f.udf(decode, "string", useArrow=True)(value)

    def read(self, data: bytes) -> str | None:
        """Decode one value as JSON text; None where its schema does not read it to its last byte.

        Raises UnreachableError or RefusedError where the registry does not say whether it has the schema.
        """
        found = self.decoded(data)
        if found is None:
            return None
        try:
            if isinstance(found.type, JsonType):
                return _with_name(found.value, found.name)
            value = plain(found.value)
            named = found.name is not None and isinstance(value, dict) and TYPE not in value
            if named and (self.registry is not None or (isinstance(found.type, AvroType) and found.type.is_union)):
                value = {TYPE: found.name, **value}
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
            text.encode()
            return text
        except _UNREADABLE:
            return None

    def key_id(self, key: bytes | None) -> str | None:
        """Decode the id in a key, whose schema may be of any format; None where it cannot be read."""
        found = None if key is None else replace(self, form="", patch=False).decoded(key)
        if found is None:
            return None
        try:
            text = found.value if isinstance(found.type, JsonType) else json.dumps(plain(found.value), allow_nan=False)
            return domain_key.decode(text.encode(), KeyType.JSON)
        except _UNREADABLE:
            return None

    def decoded(self, data: bytes) -> Decoded | None:
        """Decode one value; None where no schema reads it to its last byte."""
        try:
            for start, found in self._ways(data):
                try:
                    return _decoded(data, start, found)
                except _UNREADABLE:
                    continue
        except _UNREADABLE:
            pass
        return None

    def _ways(self, data: bytes) -> Iterator[tuple[int, ValueType]]:
        """Choose where the value may begin, and with which schema."""
        framed = len(data) >= _CONFLUENT.size and data[0] == 0
        if self.registry is not None:
            if framed:
                _, number = _CONFLUENT.unpack_from(data)
                yield self._registered(data, number)
            return
        assert self.schema is not None
        schema = avro.parsed((self.schema,))
        if framed:
            yield _CONFLUENT.size, schema
        if data[:2] == _SINGLE_OBJECT:
            yield 10, schema
        yield 0, schema

    def _registered(self, data: bytes, number: int) -> tuple[int, ValueType]:
        assert self.registry is not None
        found, start = self.registry.schema(number), _CONFLUENT.size
        if self.form and found.kind != _KINDS[self.form]:
            raise UnknownSchemaError(f"schema {number} is none of {self.form}")
        if found.kind == _KINDS["avro"]:
            return start, _avro((*(each.text for each in found.references), found.text))
        if found.kind == _KINDS["json-schema"]:
            return start, JsonType(found.text, found.references)
        start, index = protobuf.frame(data, start)
        return start, protobuf.message_type(found.text, found.references, index, patch=self.patch)


def value_reader(topic: Topic, folder: Path, settings: Settings) -> ValueReader | None:
    """Take the schema that a contract names, None if its format needs none.

    `folder` is the contract's. Raises InvalidFileError for a file that is no schema, UnreachableError for a registry
    that does not answer, RefusedError for one that does not let us in, or is none.
    """
    if (topic.format not in FORMATS and topic.key.type != "schema") or topic.value_schema is None:
        return None
    if topic.value_schema.registry is not None:
        registry = settings.connection(topic.value_schema.registry)
        if not isinstance(registry, Registry):
            raise RefusedError(f"the registry {topic.value_schema.registry} is no connection to a schema registry")
        address = RegistryAddress.of(registry)
        address.check()
        return ValueReader(topic.format, registry=address, patch=topic.state == "patch")
    file = folder / str(topic.value_schema.file)
    try:
        text = file.read_text("utf-8")
        avro.parsed((text,))
    except OSError as error:
        raise InvalidFileError(file, [Problem("", f"cannot be read: {error.strerror}")]) from None
    except avro.schema_errors() as error:
        raise InvalidFileError(file, [Problem("", f"is no Avro schema: {error}")]) from None
    return ValueReader(topic.format, schema=text)


def key_reader(topic: Topic, values: ValueReader | None) -> Callable[[bytes | None], str | None]:
    """Choose how the ids in a topic's keys are read."""
    if topic.key.type == "schema" and values is not None:
        return values.key_id
    return functools.partial(domain_key.decode, key_type=topic.key.type)


def _decoded(data: bytes, start: int, found: ValueType) -> Decoded:
    if isinstance(found, AvroType):
        return Decoded(start, found, *found.read(data, start))
    if isinstance(found, MessageType):
        return Decoded(start, found, found.name, found.read(data[start:]))
    return Decoded(start, found, found.name, data[start:].decode())


@functools.lru_cache(maxsize=256)
def _avro(schemas: tuple[str, ...]) -> AvroType:
    try:
        return avro.parsed(schemas)
    except avro.schema_errors() as error:
        raise UnknownSchemaError(f"it is no Avro schema: {error}") from None


@functools.lru_cache(maxsize=256)
def _title(schema: str) -> str | None:
    found = json.loads(schema)
    title = found.get("title") if isinstance(found, dict) else None
    return title if isinstance(title, str) else None


def _with_name(text: str, name: str | None) -> str:
    """Put the name of its type into the text of an object, every other character of which stays as it is."""
    body = text.lstrip(" \t\r\n")
    if name is None or not body.startswith("{") or f'"{TYPE}"' in body:
        return text
    rest = body[1:].lstrip(" \t\r\n")
    comma = "" if rest.startswith("}") else ","
    return f"{{{json.dumps(TYPE)}:{json.dumps(name, ensure_ascii=False)}{comma}{rest}"
