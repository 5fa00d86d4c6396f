"""JSON text of values that may be nested deeper than Python's functions call each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any


class _Piece(str):
    """A part of the text that is written already."""

    __slots__ = ()


def write(
    value: Any, members: Callable[[Mapping[str, Any]], Iterable[tuple[str, Any]]], scalar: Callable[[Any], str]
) -> str:
    """Write compact JSON: the members of an object in the order that `members` gives, all else by `scalar`."""
    text: list[str] = []
    rest: list[Any] = [value]
    while rest:
        each = rest.pop()
        if isinstance(each, _Piece):
            text.append(each)
        elif isinstance(each, Mapping):
            inside: list[Any] = [_Piece("{")]
            for name, inner in members(each):
                inside += (_Piece(f"{',' if len(inside) > 1 else ''}{scalar(name)}:"), inner)
            rest += reversed([*inside, _Piece("}")])
        elif isinstance(each, (list, tuple)):
            inside = [_Piece("[")]
            for inner in each:
                inside += (_Piece(","), inner) if len(inside) > 1 else (inner,)
            rest += reversed([*inside, _Piece("]")])
        else:
            text.append(scalar(each))
    return "".join(text)
