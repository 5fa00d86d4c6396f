"""Values from a database as Avro wants them: what JSON writes as text becomes a number, an instant or bytes."""

from __future__ import annotations

import base64
import datetime
import functools
import json
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from reconcile.errors import RefusedError
from reconcile.repair.json_values import ELEMENT, MisfitError, Path, Type, dumps, type_of, written

UNREADABLE = (
    *(ValueError, TypeError, LookupError, EOFError, StopIteration, struct.error),
    *(OverflowError, MemoryError, RecursionError),
)


def fitted(value: Any, schema: Any) -> Any:
    """Give a value as a parsed schema has it; raise MisfitError, with its path, where it has no place for it."""
    return _fitted(value, schema, (), _named(schema, {}))


@functools.lru_cache(maxsize=64)
def parsed(schemas: tuple[str, ...]) -> Any:
    """Parse a schema that stands behind those that it refers to."""
    from fastavro import parse_schema

    named: dict[str, Any] = {}
    return [parse_schema(json.loads(each), named_schemas=named) for each in schemas][-1]


def no_example() -> RefusedError:
    """Say that no record of the topic shows how Avro is framed there."""
    return RefusedError("no record of the topic can be read: nothing shows which schema a correction would name")


def _fitted(value: Any, schema: Any, path: Path, named: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return _of_union(value, schema, path, named)
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    kind = schema["type"] if isinstance(schema, Mapping) else schema
    if isinstance(kind, (list, Mapping)):
        return _fitted(value, kind, path, named)
    if kind == "record":
        return _record(value, schema, path, named)
    if kind == "array" and isinstance(value, list):
        return [_fitted(each, schema["items"], (*path, ELEMENT), named) for each in value]
    if kind == "map" and isinstance(value, Mapping):
        return {name: _fitted(each, schema["values"], (*path, name), named) for name, each in value.items()}
    if kind in ("array", "map"):
        raise _misfit(path, kind)
    logical = schema.get("logicalType") if isinstance(schema, Mapping) else None
    try:
        return _CASTS.get(logical or kind, _CASTS.get(kind, _same))(value)
    except (ValueError, ArithmeticError, TypeError, KeyError):
        raise _misfit(path, logical or kind) from None


def _record(value: Any, schema: Mapping[str, Any], path: Path, named: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _misfit(path, "record")
    found = {}
    for field in schema["fields"]:
        name = field["name"]
        if name in value:
            found[name] = _fitted(value[name], field["type"], (*path, name), named)
        elif "default" in field:
            continue  # the writer knows it
        elif isinstance(field["type"], list) and "null" in field["type"]:
            found[name] = None
        else:
            raise MisfitError(f"topic.value has no entry for {written((*path, name))}, which the schema asks for")
    unknown = sorted(set(value) - {field["name"] for field in schema["fields"]})
    if unknown:
        raise MisfitError(f"topic.value gives {written((*path, unknown[0]))}, which the schema does not have")
    return found


def _of_union(value: Any, branches: list[Any], path: Path, named: Mapping[str, Any]) -> Any:
    if value is None and "null" in branches:
        return None
    failure: MisfitError | None = None
    for branch in sorted(branches, key=lambda each: not _of_own_type(value, each, named)):
        if branch != "null":
            try:
                return _fitted(value, branch, path, named)
            except MisfitError as error:
                failure = failure or error
    raise failure or _misfit(path, "null")


def _of_own_type(value: Any, branch: Any, named: Mapping[str, Any]) -> bool:
    """Tell whether a branch is of the very type that a value has in JSON, so that nothing is cast."""
    branch = named.get(branch, branch) if isinstance(branch, str) else branch
    kind = branch["type"] if isinstance(branch, Mapping) else branch
    logical = branch.get("logicalType") if isinstance(branch, Mapping) else None
    if logical is not None:
        return logical == "decimal" and type_of(value) is Type.NUMBER
    return kind in _OWN[type_of(value)]


def _named(schema: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Give the schemas inside one that are referred to by their names."""
    if isinstance(schema, list):
        for each in schema:
            _named(each, found)
    elif isinstance(schema, Mapping):
        if "name" in schema and schema.get("type") in ("record", "enum", "fixed"):
            found[schema["name"]] = schema
        for each in schema.get("fields", ()):
            _named(each["type"], found)
        for inner in ("items", "values", "type"):
            _named(schema.get(inner), found)
    return found


def _misfit(path: Path, kind: str) -> MisfitError:
    return MisfitError(f"topic.value gives nothing at {written(path)} that the schema takes for {kind}")


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    if value is None:
        raise ValueError("null")
    return value if isinstance(value, str) else dumps(value)


def _whole(value: Any) -> int:
    found = Decimal(str(value))
    if isinstance(value, bool) or found != int(found):
        raise ValueError("no whole number")
    return int(found)


def _float(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("no number")
    return float(value)


def _boolean(value: Any) -> bool:
    return {"true": True, "false": False}[str(value).lower()]


def _null(value: Any) -> None:
    if value is not None:
        raise ValueError("not null")


def _bytes(value: Any) -> bytes:
    text = _text(value)
    return bytes.fromhex(text[2:]) if text.startswith("\\x") else base64.b64decode(text, validate=True)


def _instant(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = datetime.datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _local(value: Any) -> Any:
    return value if isinstance(value, int) else datetime.datetime.fromisoformat(value).replace(tzinfo=None)


_OWN: Mapping[Type, tuple[str, ...]] = {
    Type.NULL: ("null",),
    Type.BOOLEAN: ("boolean",),
    Type.INTEGER: ("int", "long"),
    Type.NUMBER: ("float", "double"),
    Type.STRING: ("string",),
    Type.OBJECT: ("record", "map"),
    Type.ARRAY: ("array",),
}
_CASTS: Mapping[str, Callable[[Any], Any]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole,
    "long": _whole,
    "float": _float,
    "double": _float,
    "string": _text,
    "enum": _text,
    "bytes": _bytes,
    "fixed": _bytes,
    "decimal": lambda value: Decimal(str(value)),
    "uuid": lambda value: str(UUID(str(value))),
    "date": lambda value: value if isinstance(value, int) else datetime.date.fromisoformat(value[:10]),
    "time-millis": lambda value: value if isinstance(value, int) else datetime.time.fromisoformat(value),
    "time-micros": lambda value: value if isinstance(value, int) else datetime.time.fromisoformat(value),
    "timestamp-millis": _instant,
    "timestamp-micros": _instant,
    "local-timestamp-millis": _local,
    "local-timestamp-micros": _local,
}
