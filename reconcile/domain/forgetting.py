"""What of a value is about aggregates that are to be forgotten."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Iterator, Set
from typing import Any

FORGOTTEN = "forgotten"
"""What stands in place of an id in what is about others."""
_LONG = 8
"""An id of fewer characters may mean anything."""
_BEHIND_ESCAPES = r"(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4})"
"""In JSON the end of a line is a letter."""


def words(ids: Collection[str]) -> str | None:
    """Build a pattern of the ids as words of a text, however it is written; None where all are short.

    Those mean anything.
    """
    forms = {form for each in ids if len(each) >= _LONG for form in _written(each)}
    listed = "|".join(map(re.escape, sorted(forms, key=lambda each: (-len(each), each))))
    return rf"(?:(?<![\w-])|{_BEHIND_ESCAPES})({listed})(?![\w-])" if listed else None


def without(value: Any, gone: Set[str]) -> Any:
    """Build a JSON value without the elements of its lists that are, or name, one of some texts."""
    if isinstance(value, list):
        return [without(each, gone) for each in value if not _names(each, gone)]
    if isinstance(value, dict):
        return {name: without(each, gone) for name, each in value.items()}
    return value


def blanked(value: Any, pattern: str | None) -> Any:
    """Build a value that says FORGOTTEN in place of all words that fit a pattern."""
    if pattern is None:
        return value
    if isinstance(value, list):
        return [blanked(each, pattern) for each in value]
    if isinstance(value, dict):
        return {name: blanked(each, pattern) for name, each in value.items()}
    return re.sub(pattern, FORGOTTEN, value) if isinstance(value, str) else value


def named_with(value: Any, gone: Set[str], key: str) -> Iterator[str]:
    """List what the objects in a JSON value that name one of some texts say under a key."""
    if isinstance(value, dict):
        if _names(value, gone) and isinstance(value.get(key), str):
            yield value[key]
        for each in value.values():
            yield from named_with(each, gone, key)
    elif isinstance(value, list):
        for each in value:
            yield from named_with(each, gone, key)


def mentions(text: str, ids: Collection[str]) -> bool:
    """Tell whether a text has one of some ids: as a word, or, of a short id, as a JSON string."""
    pattern = words(ids)
    short = (json.dumps(each, ensure_ascii=False) for each in ids if len(each) < _LONG)
    return any(each in text for each in short) or (pattern is not None and re.search(pattern, text) is not None)


def _written(text: str) -> set[str]:
    """Build how a text is written: as it is, in JSON, in JSON within JSON, in HTML and in CSV."""
    once = json.dumps(text, ensure_ascii=False)[1:-1]
    marked = html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    return {text, once, json.dumps(once, ensure_ascii=False)[1:-1], marked, text.replace('"', '""')}


def _names(value: Any, gone: Set[str]) -> bool:
    if isinstance(value, dict):
        return any(isinstance(each, str) and each in gone for each in value.values())
    return isinstance(value, str) and value in gone
