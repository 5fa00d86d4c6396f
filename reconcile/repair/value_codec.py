"""A topic's values as objects, and objects as values: JSON, Avro, and Debezium's envelope.

An object is what paths such as `$.email` look into: of Debezium's envelope that is the row, as the log history has it.
"""

from __future__ import annotations

import base64
import datetime
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from typing import Any, Literal
from uuid import UUID

from reconcile.errors import RefusedError
from reconcile.gather.log.avro import AvroSchema
from reconcile.repair.json_values import ELEMENT, MisfitError, Path, Type, dumps, loads, type_of, written

_BESIDE_ROW = ("__op", "__source")
_PLACES = frozenset({"version", "name", "db", "schema", "table", "keyspace", "collection"})
_UNREADABLE = (
    *(ValueError, TypeError, LookupError, EOFError, StopIteration, struct.error),
    *(OverflowError, MemoryError, RecursionError),
)


@dataclass(frozen=True)
class Codec:
    """Reads and writes the values of one topic; `like` is one of its newest values, whose outer form is taken over."""

    form: Literal["json", "avro", "debezium-json"]
    avro: AvroSchema | None = None
    like: bytes | None = None

    def read(self, data: bytes) -> dict[str, Any] | None:
        """Parse a value to an object; None where it cannot be read."""
        if self.form == "avro":
            assert self.avro is not None
            text = self.avro.read(data)
            found = None if text is None else loads(text)
        else:
            try:
                found = loads(data)
            except (ValueError, RecursionError):
                return None
        if self.form == "debezium-json":
            found = _row(found)
        return found if isinstance(found, dict) else None

    def write(self, body: Mapping[str, Any]) -> bytes:
        """Build the value of an object, for Debezium as a deletion if `__op` says so.

        Raises MisfitError where the schema has no place for it.
        """
        if self.form == "avro":
            return self._avro(body)
        if self.form == "debezium-json":
            return dumps(self._envelope(body)).encode()
        return dumps(body).encode()

    def _avro(self, body: Mapping[str, Any]) -> bytes:
        from fastavro import schemaless_writer

        prefix, schema = self._framed()
        out = BytesIO()
        out.write(prefix)
        try:
            schemaless_writer(out, schema, avro_fitted(body, schema))
        except _UNREADABLE:
            raise MisfitError("topic.value gives something that the schema has no room for") from None
        return out.getvalue()

    def _framed(self) -> tuple[bytes, Any]:
        """Find the prefix of the newest value, and the schema that reads what is behind it."""
        assert self.avro is not None
        like = self.like or b""
        found = self.avro.decoded(like)
        if found is None:
            raise RefusedError("no record of the topic can be read: nothing shows which schema a correction would name")
        return like[: found.start], found.schema

    def _envelope(self, body: Mapping[str, Any]) -> dict[str, Any]:
        whole = loads(self.like) if self.like else {}
        wrapped = isinstance(whole.get("payload"), dict)
        like: Mapping[str, Any] = whole["payload"] if wrapped else whole
        now = int(time.time() * 1000)
        row = {name: value for name, value in body.items() if name not in _BESIDE_ROW}
        gone = body.get("__op") == "d"
        said = {"before": row if gone else None, "after": None if gone else row, "op": "d" if gone else "u"}
        # Nothing but what tells where the row lives: our event has no place in the source's log.
        kept = _PLACES | _required(whole.get("schema"))
        source: dict[str, Any] = {
            name: "false" if name == "snapshot" else value if name in kept else None
            for name, value in (like.get("source") or {}).items()
        }
        source |= {"connector": "reconcile", "ts_ms": now}
        payload = dict.fromkeys(like) | said | {"ts_ms": now, "source": source}
        return {**whole, "payload": payload} if wrapped else payload


def avro_fitted(value: Any, schema: Any) -> Any:
    """Build the value that a parsed schema takes for one from a database: of texts, numbers, instants and bytes.

    Raises MisfitError, with the path, where the schema has no place for it.
    """
    return _fitted(value, schema, (), _named(schema, {}))


def _required(schema: Any) -> frozenset[str]:
    """List the fields of `source` that must not be null, as the schema beside the payload says."""
    fields = schema.get("fields", ()) if isinstance(schema, dict) else ()
    source: dict[str, Any] = next((each for each in fields if each.get("field") == "source"), {})
    return frozenset(each["field"] for each in source.get("fields", ()) if not each.get("optional"))


def _row(found: Any) -> Any:
    """Unwrap Debezium's envelope as the log history does."""
    payload = found.get("payload") if isinstance(found, dict) else None
    envelope = payload if isinstance(payload, dict) else found
    if not isinstance(envelope, dict) or envelope.get("op") is None:
        return None
    row = envelope.get("after")
    if not isinstance(row, dict | None):
        return None
    beside = dict(zip(_BESIDE_ROW, (envelope["op"], envelope.get("source")), strict=True))
    return {**(row or {}), **beside}


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
        return _CASTS.get(logical or kind, _CASTS.get(kind, lambda same: same))(value)
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
    """Decide whether a branch is of the very type that a value has in JSON, so that nothing is cast."""
    branch = named.get(branch, branch) if isinstance(branch, str) else branch
    kind = branch["type"] if isinstance(branch, Mapping) else branch
    logical = branch.get("logicalType") if isinstance(branch, Mapping) else None
    if logical is not None:
        return logical == "decimal" and type_of(value) is Type.NUMBER
    return kind in _OWN[type_of(value)]


def _named(schema: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Collect the schemas inside one that are referred to by their names."""
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


def _time(value: Any) -> Any:
    return value if isinstance(value, int) else datetime.time.fromisoformat(value)


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
    **dict.fromkeys(("int", "long"), _whole),
    **dict.fromkeys(("float", "double"), _float),
    **dict.fromkeys(("string", "enum"), _text),
    **dict.fromkeys(("bytes", "fixed"), _bytes),
    "decimal": lambda value: Decimal(str(value)),
    "uuid": lambda value: str(UUID(str(value))),
    "date": lambda value: value if isinstance(value, int) else datetime.date.fromisoformat(value[:10]),
    **dict.fromkeys(("time-millis", "time-micros"), _time),
    **dict.fromkeys(("timestamp-millis", "timestamp-micros"), _instant),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros"), _local),
}
