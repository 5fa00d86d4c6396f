"""The form that all keys of a topic have, to write the key of an id that the log never had."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from reconcile.domain.key import KeyType, decode, encode

_SEPARATORS = ((",", ":"), (", ", ": "))
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class KeyForm:
    """How ids become keys: as their type says, or as JSON like another key."""

    key_type: str
    like: Any = None
    """A JSON key; None where the type alone says all."""
    separators: tuple[str, str] = _SEPARATORS[0]
    ascii_only: bool = False

    def key(self, id_text: str) -> bytes:
        """Build the key of an id; ValueError where the id has no such form."""
        if self.like is None:
            return encode(id_text, self.key_type)
        found = _filled(self.like, id_text)
        return json.dumps(found, ensure_ascii=self.ascii_only, separators=self.separators).encode()


@dataclass(frozen=True)
class KeyForms:
    """All forms that a topic's keys may have."""

    forms: tuple[KeyForm, ...]

    def key(self, id_text: str) -> bytes:
        """Build the key of an id; ValueError where the forms write it in several ways, or have none for it."""
        first, *others = dict.fromkeys(form.key(id_text) for form in self.forms)
        if others:
            raise ValueError(f"the topic's keys do not show how {id_text!r} is written")
        return first


def learned(keys: Iterable[bytes], key_type: str) -> KeyForms | None:
    """Find the forms that give each of these keys byte by byte; None where there is no such form."""
    all_keys = list(dict.fromkeys(keys))
    forms = [KeyForm(key_type)]
    if all_keys and key_type == KeyType.JSON:
        with suppress(ValueError, RecursionError):
            like = json.loads(all_keys[-1])
            forms += [KeyForm(key_type, like, each, ascii_only) for each in _SEPARATORS for ascii_only in (False, True)]
    fitting = tuple(form for form in forms if _gives(form, all_keys))
    return KeyForms(fitting) if fitting else None


def _gives(form: KeyForm, keys: Iterable[bytes]) -> bool:
    """Decide whether a form gives these keys for their own ids."""
    try:
        return all((id_text := decode(key, form.key_type)) is not None and form.key(id_text) == key for key in keys)
    except (ValueError, RecursionError):
        return False


def _filled(like: Any, id_text: str) -> Any:
    """Build a key like another one, with an id in place of its own."""
    if not isinstance(like, Mapping):
        return _leaf(like, id_text)
    if like.keys() == {"schema", "payload"}:
        return {**like, "payload": _filled(like["payload"], id_text)}
    if len(like) == 1:
        ((name, inner),) = like.items()
        return {name: _filled(inner, id_text)}
    values = json.loads(id_text)
    if not isinstance(values, list) or len(values) != len(like):
        raise ValueError(f"{id_text!r} is no id of {len(like)} columns")
    if any(type(value) is not type(own) for value, own in zip(values, like.values(), strict=True)):
        raise ValueError(f"{id_text!r} has other types than the topic's keys")
    return dict(zip(like, values, strict=True))


def _leaf(like: Any, id_text: str) -> Any:
    if isinstance(like, str):
        return id_text
    if isinstance(like, bool) or not isinstance(like, (int, float)) or _NUMBER.fullmatch(id_text) is None:
        raise ValueError(f"{id_text!r} has another type than the topic's keys")
    found = json.loads(id_text)
    if json.dumps(found) != id_text or type(found) is not type(like):
        raise ValueError(f"{id_text!r} is not written as the topic's keys are")
    return found
