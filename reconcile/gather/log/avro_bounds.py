"""How deep an Avro value is and how many items it has, found out before anything is built of it.

A few bytes can name millions of items that take no room, and a schema that refers to itself lets a value be as deep as
it likes: fastavro's reader, which is compiled, then takes all memory, or ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_DEEPEST = 400
_WITHOUT_ROOM = 1000
"""How many items more than bytes a value may have."""
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS = ("int", "long", "enum")

Named = Mapping[str, Any]
"""Schemas by the names that others refer to them by."""


def needed(schema: Any, named: Named) -> bool:
    """Decide whether a value's own length does not bound it: the schema is recursive, or has items without width."""
    return _needed(schema, named, frozenset())


def require(data: bytes, start: int, schema: Any, named: Named) -> None:
    """Raise ValueError for a value that is too deep or has too many items, IndexError for one that is cut off."""
    _Walk(data, start, named).to_end(schema)


def number_at(data: bytes, start: int) -> int:
    """Read the number of variable length at a place; raise IndexError for one that is cut off."""
    return _Walk(data, start, {}).number()


def _needed(schema: Any, named: Named, inside: frozenset[str]) -> bool:
    if isinstance(schema, list):
        return any(_needed(each, named, inside) for each in schema)
    if isinstance(schema, str):
        if schema in inside:
            return True
        return schema in named and _needed(named[schema], named, inside)
    kind = schema["type"]
    if kind == "array":
        return _width(schema["items"], named) == 0 or _needed(schema["items"], named, inside)
    if kind == "map":
        return _needed(schema["values"], named, inside)
    if kind in ("record", "error"):
        return any(_needed(each["type"], named, inside | {schema["name"]}) for each in schema["fields"])
    return isinstance(kind, (dict, list)) and _needed(kind, named, inside)


def _width(schema: Any, named: Named) -> int:
    """Compute whether a value takes room: 0 if it takes none, else 1."""
    if isinstance(schema, str):
        return _width(named[schema], named) if schema in named else int(schema != "null")
    if isinstance(schema, list):
        return 1
    if schema["type"] in ("record", "error"):
        return max((_width(each["type"], {**named, schema["name"]: "bytes"}) for each in schema["fields"]), default=0)
    if schema["type"] == "fixed":
        return int(schema["size"] > 0)
    return int(schema["type"] != "null")


class _Walk:
    """Goes over a value's bytes as its schema says, without building anything."""

    def __init__(self, data: bytes, start: int, named: Named) -> None:
        self._data, self._at, self._named = data, start, named
        self._items_left = len(data) + _WITHOUT_ROOM

    def to_end(self, schema: Any) -> None:
        """Walk over a whole value."""
        inside: list[Iterator[Any]] = [iter((schema,))]
        while inside:
            part = next(inside[-1], None)
            if part is None:
                inside.pop()
            elif (parts := self._parts(part)) is not None:
                inside.append(parts)
                if len(inside) > _DEEPEST:
                    raise ValueError(f"it is nested more than {_DEEPEST} deep")

    def _parts(self, schema: Any) -> Iterator[Any] | None:
        """Pass over a value that has no parts, or list the schemas of its parts."""
        if isinstance(schema, list):
            return iter((schema[self.number()],))
        kind = schema["type"] if isinstance(schema, dict) else self._named.get(schema, schema)
        if isinstance(kind, (dict, list)):
            return iter((kind,))
        if kind in ("record", "error"):
            return iter([each["type"] for each in schema["fields"]])
        if kind in ("array", "map"):
            return self._items(*(["string", schema["values"]] if kind == "map" else [schema["items"]]))
        if kind in _NUMBERS:
            self.number()
        elif kind == "fixed":
            self._at += schema["size"]
        elif kind in ("bytes", "string"):
            length = self.number()
            self._at += length
        else:
            self._at += _WIDTHS[kind]
        return None

    def _items(self, *parts: Any) -> Iterator[Any]:
        while count := self.number():
            if count < 0:
                count = -count
                self.number()
            self._items_left -= count
            if self._items_left < 0:
                raise ValueError("it has more items than bytes")
            for _ in range(count):
                yield from parts

    def number(self) -> int:
        """Read a number of variable length."""
        found = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (found >> 1) ^ -(found & 1)
