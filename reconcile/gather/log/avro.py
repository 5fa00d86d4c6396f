"""Avro values by their schema, with the types that it refers to."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from reconcile.gather.log import avro_bounds

WRAPPER = "value"
"""The one field of the record that stands round each schema: it has no bytes of its own, and names resolve in it."""


@dataclass(frozen=True)
class AvroType:
    """A parsed schema."""

    wrapper: Any
    named: avro_bounds.Named
    unbounded: bool
    """Whether a value has to be looked at before it is read."""

    @property
    def schema(self) -> Any:
        """The schema itself."""
        return self.wrapper["fields"][0]["type"]

    @property
    def is_union(self) -> bool:
        """Whether its values are of one of several types."""
        return isinstance(self.schema, list)

    def read(self, data: bytes, start: int) -> tuple[str | None, Any]:
        """Read a value to the last byte: the name of its type, and what it says."""
        from fastavro import schemaless_reader

        if self.unbounded:
            avro_bounds.require(data, start, self.wrapper, self.named)
        stream = BytesIO(data)
        stream.seek(start)
        found = schemaless_reader(stream, self.wrapper, None)
        if stream.tell() != len(data):
            raise ValueError("something stands behind it")
        return self._name(data, start), found[WRAPPER]

    def _name(self, data: bytes, start: int) -> str | None:
        schema = self.schema
        if self.is_union:
            schema = schema[avro_bounds.number_at(data, start)]
        return name_of(schema, self.named)


def name_of(schema: Any, named: Mapping[str, Any]) -> str | None:
    """Look up the full name of a type; None for one that has none."""
    if isinstance(schema, str):
        return schema if schema in named else None
    return str(schema["name"]) if isinstance(schema, Mapping) and "name" in schema else None


@functools.lru_cache(maxsize=256)
def parsed(schemas: tuple[str, ...]) -> AvroType:
    """Parse a schema that stands behind those that it refers to; raise one of `schema_errors` for what is none."""
    from fastavro import parse_schema

    named: dict[str, Any] = {}
    *referred, own = map(json.loads, schemas)
    for each in referred:
        parse_schema(each, named_schemas=named)
    around = {"type": "record", "name": "reconcile_around", "fields": [{"name": WRAPPER, "type": own}]}
    wrapper: Any = parse_schema(around, named_schemas=named)
    return AvroType(wrapper, named, avro_bounds.needed(wrapper, named))


def schema_errors() -> tuple[type[Exception], ...]:
    """List what `parsed` raises."""
    from fastavro.schema import SchemaParseException, UnknownType

    return ValueError, TypeError, LookupError, RecursionError, SchemaParseException, UnknownType
