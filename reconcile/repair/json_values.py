"""JSON with every digit of its numbers, and values brought into the types that a topic's records have."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any

from reconcile.domain import json_text, mapping
from reconcile.errors import RefusedError

Path = tuple[str, ...]
ELEMENT = "[]"
"""The step from an array into its elements."""


class MisfitError(RefusedError):
    """Raised when corrections would not be as the topic's records are: correct topic.value."""


class RowMisfitError(MisfitError):
    """Raised when the value of one row cannot be written: that row is left out, and no other one."""


class Type(StrEnum):
    """The types of JSON; a number without a fraction is an integer."""

    NULL = "null"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    STRING = "string"
    OBJECT = "object"
    ARRAY = "array"


Types = Mapping[Path, frozenset[Type]]


def loads(text: str | bytes) -> Any:
    """Read JSON; numbers with a fraction become decimals."""
    return json.loads(text, parse_float=Decimal)


def dumps(value: Any) -> str:
    """Write compact JSON, with the digits that numbers have; NaN and infinities as `loads` reads them."""
    return json_text.write(value, _members, _scalar)


def type_of(value: Any) -> Type:
    """Choose the type of a value that `loads` returned."""
    if value is None:
        return Type.NULL
    for python, name in ((bool, Type.BOOLEAN), (int, Type.INTEGER), ((Decimal, float), Type.NUMBER)):
        if isinstance(value, python):
            return name
    return Type.STRING if isinstance(value, str) else Type.OBJECT if isinstance(value, Mapping) else Type.ARRAY


def types(values: Iterable[Any]) -> Types:
    """Collect the types that are at each path of some values."""
    found: dict[Path, set[Type]] = {}
    rest: list[tuple[Path, Any]] = [((), value) for value in values]
    while rest:
        path, value = rest.pop()
        found.setdefault(path, set()).add(type_of(value))
        if isinstance(value, Mapping):
            rest += [((*path, name), each) for name, each in value.items()]
        elif isinstance(value, list):
            rest += [((*path, ELEMENT), each) for each in value]
    return {path: frozenset(each) for path, each in found.items()}


def fitted(value: Any, path: Path, seen: Types) -> Any:
    """Convert a value to the type that the topic's records have at a path; raise MisfitError if it has none."""
    if isinstance(value, float) and not math.isfinite(value):
        raise RowMisfitError(f"topic.value gives a number at {written(path)} that JSON has no way to write")
    wanted = seen.get(path, frozenset()) - {Type.NULL}
    if value is None or not wanted:
        return value
    own = type_of(value)
    if own is Type.NUMBER and Type.INTEGER in wanted and Type.NUMBER not in wanted and value == int(value):
        return int(value)
    if own in wanted or (own in _NUMBERS and wanted & _NUMBERS):
        return _inside(value, path, seen)
    for each in _TRIED:
        if each in wanted:
            try:
                return _inside(_CASTS[each](value), path, seen)
            except (ValueError, ArithmeticError, TypeError, KeyError):
                continue
    there = " or ".join(sorted(wanted))
    raise RowMisfitError(f"topic.value gives {_a(own)} at {written(path)}, where the topic's records have {_a(there)}")


def put(body: dict[str, Any], path: Path, value: Any) -> None:
    """Set what stands at a path, with the objects above it; raise MisfitError where something else stands above it."""
    *above, last = path
    for number, step in enumerate(above, 1):
        body = body.setdefault(step, {})
        if not isinstance(body, dict):
            raise MisfitError(f"{written(path)} has no place: what stands at {written(path[:number])} is no object")
    body[last] = value


def take_out(body: Any, path: Path) -> None:
    """Remove what stands at a path, if anything does."""
    above = at(body, path[:-1])
    if isinstance(above, dict):
        above.pop(path[-1], None)


def at(body: Any, path: Path) -> Any:
    """Look up what is at a path; None if nothing is."""
    for step in path:
        body = body.get(step) if isinstance(body, Mapping) else None
    return body


def path_of(name: str) -> Path:
    """Parse the path that an entry of topic.value, or a place such as `$.a.b`, stands for."""
    return mapping.steps(name) if mapping.is_path(name) else (name,)


def written(path: Path) -> str:
    """Write a path for people."""
    return "$" + "".join(f".{step}" if step.isidentifier() else f"['{step}']" for step in path)


def _inside(value: Any, path: Path, seen: Types) -> Any:
    if isinstance(value, Mapping):
        return {name: fitted(each, (*path, name), seen) for name, each in value.items()}
    if isinstance(value, list):
        return [fitted(each, (*path, ELEMENT), seen) for each in value]
    return value


def _members(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(str(name), each) for name, each in value.items()]


def _scalar(value: Any) -> str:
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _number(value: Any) -> Any:
    found = loads(value) if isinstance(value, str) else value
    if type_of(found) not in _NUMBERS or not math.isfinite(found):
        raise ValueError("no number")
    return found


def _integer(value: Any) -> int:
    found = _number(value)
    if found != int(found):
        raise ValueError("no integer")
    return int(found)


def _boolean(value: Any) -> bool:
    return {"true": True, "false": False, "t": True, "f": False}[str(value).lower()]


def _structured(wanted: Type) -> Any:
    def read(value: Any) -> Any:
        found = loads(value) if isinstance(value, str) else value
        if type_of(found) is not wanted:
            raise ValueError("another type")
        return found

    return read


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


_NUMBERS = frozenset({Type.INTEGER, Type.NUMBER})
# Text last: everything can be written as text.
_TRIED = (Type.BOOLEAN, Type.INTEGER, Type.NUMBER, Type.OBJECT, Type.ARRAY, Type.STRING)
_CASTS: Mapping[Type, Any] = {
    Type.BOOLEAN: _boolean,
    Type.INTEGER: _integer,
    Type.NUMBER: _number,
    Type.OBJECT: _structured(Type.OBJECT),
    Type.ARRAY: _structured(Type.ARRAY),
    Type.STRING: _text,
}
