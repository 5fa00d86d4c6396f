"""Objects as Avro writes them: each value from a database brought into the type that the schema has at its place."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

from reconcile.gather.log.avro import WRAPPER, AvroType, name_of
from reconcile.repair.connect_schema import LeftOut
from reconcile.repair.json_values import (
    ELEMENT,
    MisfitError,
    Path,
    RowMisfitError,
    Type,
    dumps,
    type_of,
    written,
)

Named = Mapping[str, Any]


@dataclass(frozen=True)
class Fitting:
    """Builds what a schema takes, and notes which fields it had to fill in because nothing was given for them."""

    named: Named
    left_out: LeftOut = LeftOut()  # noqa: RUF009 - it is frozen
    filled: list[Path] = field(default_factory=list)

    def value(self, given: Any, schema: Any, path: Path = ()) -> Any:
        """Build a value; raise MisfitError, with the path, where the schema has no place for it."""
        if isinstance(schema, list):
            return self._of_union(given, schema, path)
        if isinstance(schema, str) and schema in self.named:
            schema = self.named[schema]
        kind = schema["type"] if isinstance(schema, Mapping) else schema
        if isinstance(kind, (list, Mapping)):
            return self.value(given, kind, path)
        if kind == "record":
            return self._record(given, schema, path)
        if kind == "array" and isinstance(given, list):
            return [self.value(each, schema["items"], (*path, ELEMENT)) for each in given]
        if kind == "map" and isinstance(given, Mapping):
            return {name: self.value(each, schema["values"], (*path, name)) for name, each in given.items()}
        if kind in ("array", "map"):
            raise _misfit(path, kind)
        logical = schema.get("logicalType") if isinstance(schema, Mapping) else None
        try:
            return _CASTS.get(logical or kind, _CASTS.get(kind, lambda same: same))(given)
        except (ValueError, ArithmeticError, TypeError, KeyError):
            raise _misfit(path, logical or kind) from None

    def _record(self, given: Any, schema: Mapping[str, Any], path: Path) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            raise _misfit(path, "record")
        found = {}
        for each in schema["fields"]:
            name, where = each["name"], (*path, each["name"])
            if name in given:
                found[name] = self.value(given[name], each["type"], where)
            elif where in self.left_out.added:
                found[name] = self.value(0, each["type"], where)  # a default would be added
            elif where in self.left_out.unset:
                raise RowMisfitError(f"the topic's schema has {written(where)}, which an amount alone must not set")
            elif "default" in each:
                self.filled.append(where)  # the writer knows it
            elif isinstance(each["type"], list) and "null" in each["type"]:
                self.filled.append(where)
                found[name] = None
            else:
                raise MisfitError(f"topic.value has no entry for {written(where)}, which the schema asks for")
        unknown = sorted(set(given) - {each["name"] for each in schema["fields"]})
        if unknown:
            raise MisfitError(f"topic.value gives {written((*path, unknown[0]))}, which the schema does not have")
        return found

    def _of_union(self, given: Any, branches: list[Any], path: Path) -> Any:
        if given is None and "null" in branches:
            return None
        failure: MisfitError | None = None
        several, fitting = sum(self._is_record(each) for each in branches) > 1, []
        for branch in sorted(branches, key=lambda each: not self._of_own_type(given, each)):
            if branch == "null":
                continue
            before = len(self.filled)
            try:
                found = self.value(given, branch, path)
            except MisfitError as error:
                del self.filled[before:]
                failure = failure or error
                continue
            if not (several and self._is_record(branch)):
                return found
            fitting.append((name_of(branch, self.named), found))
        if len(fitting) > 1:
            names = " and ".join(str(name) for name, _ in fitting)
            raise RowMisfitError(f"what topic.value gives at {written(path)} can be {names} alike")
        if fitting:  # the writer would choose among records by itself, and otherwise
            return fitting[0]
        raise failure or _misfit(path, "null")

    def _is_record(self, branch: Any) -> bool:
        found = self.named.get(branch) if isinstance(branch, str) else branch
        return isinstance(found, Mapping) and found["type"] == "record"

    def _of_own_type(self, given: Any, branch: Any) -> bool:
        """Decide whether a branch is of the very type that a value has in JSON, so that nothing is cast."""
        branch = self.named.get(branch, branch) if isinstance(branch, str) else branch
        kind = branch["type"] if isinstance(branch, Mapping) else branch
        logical = branch.get("logicalType") if isinstance(branch, Mapping) else None
        if logical is not None:
            return logical == "decimal" and type_of(given) is Type.NUMBER
        return kind in _OWN[type_of(given)]


def fitted(given: Any, schema: Any) -> Any:
    """Build the value that a schema, of which all is here, takes for one; raise MisfitError if it has no place."""
    return Fitting(_named(schema, {})).value(given, schema)


def write_avro(avro: AvroType, body: Mapping[str, Any], type_name: str | None, fitting: Fitting) -> bytes:
    """Build the bytes of an object, as one of a type's name where the schema is a union; raise MisfitError."""
    from fastavro import schemaless_writer

    schema, union = avro.schema, avro.is_union
    if union:
        schema = next((each for each in schema if name_of(each, avro.named) == type_name), None)
        if schema is None or type_name is None:
            raise MisfitError(f"the schema has no type {type_name}")
    value = fitting.value(body, schema)
    out = BytesIO()
    try:
        schemaless_writer(out, avro.wrapper, {WRAPPER: (type_name, value) if union else value})
    except _UNWRITABLE:
        raise RowMisfitError("topic.value gives something that the schema has no room for") from None
    return out.getvalue()


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


def _misfit(path: Path, kind: str) -> RowMisfitError:
    return RowMisfitError(f"topic.value gives nothing at {written(path)} that the schema takes for {kind}")


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
_UNWRITABLE = (ValueError, TypeError, LookupError, EOFError, ArithmeticError, MemoryError, RecursionError)
