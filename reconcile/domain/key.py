"""How an aggregate's id becomes the bytes of a record's key, and back.

Ids are text and are compared as text: a uuid is lower-case with hyphens, an int64 is decimal. A JSON key is compact
JSON in UTF-8 whose numbers keep their digits; a composite id is an array. An object is read by its members' values, as
connectors write keys that name their columns: the value of the one member, or an array of all of them in their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any
from uuid import UUID


class KeyType(StrEnum):
    """The encodings of a key that a contract can name."""

    STRING = "string"
    UUID_BYTES = "uuid-bytes"
    INT64 = "int64"
    JSON = "json"
    SCHEMA = "schema"
    """By a schema elsewhere: nothing here reads or writes it."""


def encode(id_text: str, key_type: str) -> bytes:
    """The key's bytes for an id; ValueError where the id has no such form."""
    return _ENCODE[KeyType(key_type)](id_text)


def decode(key: bytes | bytearray | None, key_type: str) -> str | None:
    """The id that a key holds; None for a null key and for bytes that cannot be read as the type."""
    kind = KeyType(key_type)
    if key is None:
        return None
    try:
        return _DECODE[kind](bytes(key))
    except (ValueError, RecursionError):
        return None


def rebuilds(key: bytes | bytearray, key_type: str) -> bool:
    """Whether encoding the id read from a key gives the same bytes again.

    Where it does not (a producer that writes JSON with spaces, or a number as a JSON string), the key of a correction
    has to be copied from a record of the aggregate.
    """
    id_text = decode(key, key_type)
    return id_text is not None and encode(id_text, key_type) == bytes(key)


def is_keepable(id_text: str) -> bool:
    """Whether databases and their indexes hold an id: text of up to 1,000 bytes without NUL."""
    try:
        return "\0" not in id_text and len(id_text.encode()) <= _LONGEST
    except UnicodeEncodeError:
        return False


_LONGEST = 1000
"""Bytes; an index of Postgres holds at most 2,704 of all its columns."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
_CONNECT = {"schema", "payload"}  # what Connect's converter puts round a key
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[ \t\r\n]+')


def _encode_string(id_text: str) -> bytes:
    return id_text.encode()


def _decode_string(key: bytes) -> str:
    return key.decode()


def _encode_uuid(id_text: str) -> bytes:
    if not _UUID.fullmatch(id_text):
        raise ValueError(f"{id_text!r} is no uuid; expected 3f2504e0-4f89-11d3-9a0c-0305e82c3301 or the like")
    return UUID(id_text).bytes


def _decode_uuid(key: bytes) -> str:
    return str(UUID(bytes=key))


def _encode_int64(id_text: str) -> bytes:
    if not _DECIMAL.fullmatch(id_text) or not -(1 << 63) <= int(id_text) < 1 << 63:
        raise ValueError(f"{id_text!r} is no int64 in decimal form")
    return int(id_text).to_bytes(8, "big", signed=True)


def _decode_int64(key: bytes) -> str:
    if len(key) != 8:
        raise ValueError(f"an int64 has 8 bytes, not {len(key)}")
    return str(int.from_bytes(key, "big", signed=True))


def _encode_json(id_text: str) -> bytes:
    try:
        compact = _compact(id_text)
    except (ValueError, RecursionError):
        return _encode_json_string(id_text)
    number = compact == id_text and compact != "null" and not compact.startswith(('"', "{"))
    return compact.encode() if compact.startswith("[") or number else _encode_json_string(id_text)


def _encode_json_string(id_text: str) -> bytes:
    return json.dumps(id_text, ensure_ascii=False).encode()


def _decode_json(key: bytes) -> str | None:
    compact = _compact(key.decode())
    if compact.startswith("{"):
        return _of_members(json.loads(compact, object_pairs_hook=_Members, parse_int=_Digits, parse_float=_Digits))
    if compact == "null":
        return None
    if not compact.startswith('"'):
        return compact
    id_text: str = json.loads(compact)
    return id_text


class _Members(list[tuple[str, Any]]):
    """An object's members, in their order."""


class _Digits(str):
    """A number as it is written."""


def _of_members(value: Any) -> str | None:
    """Compute the id that an object's members hold; ValueError for one that has none."""
    while isinstance(value, _Members):
        if _CONNECT == {name for name, _ in value}:
            value = dict(value)["payload"]
            continue
        values = [member for _, member in value]
        if not values:
            raise ValueError("an object without members holds no id")
        value = values[0] if len(values) == 1 else values
    if value is None:
        return None
    return value if isinstance(value, str) else _written(value)


def _written(value: Any) -> str:
    if isinstance(value, _Members):
        return "{" + ",".join(f"{_written(name)}:{_written(member)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return value if isinstance(value, _Digits) else json.dumps(value, ensure_ascii=False)


def _compact(text: str) -> str:
    """The same JSON without spaces and needless escapes; ValueError for what is not JSON, or has no UTF-8 form."""
    json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse)
    compact = _JSON_TOKEN.sub(_respell, text)
    compact.encode()
    return compact


def _respell(token: re.Match[str]) -> str:
    text = token.group()
    return json.dumps(json.loads(text), ensure_ascii=False) if text.startswith('"') else ""


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _encode_nothing(_: str) -> bytes:
    raise ValueError("a key by a schema is only known from records")


def _decode_nothing(_: bytes) -> str | None:
    return None


_ENCODE: Mapping[KeyType, Callable[[str], bytes]] = {
    KeyType.STRING: _encode_string,
    KeyType.UUID_BYTES: _encode_uuid,
    KeyType.INT64: _encode_int64,
    KeyType.JSON: _encode_json,
    KeyType.SCHEMA: _encode_nothing,
}

_DECODE: Mapping[KeyType, Callable[[bytes], str | None]] = {
    KeyType.STRING: _decode_string,
    KeyType.UUID_BYTES: _decode_uuid,
    KeyType.INT64: _decode_int64,
    KeyType.JSON: _decode_json,
    KeyType.SCHEMA: _decode_nothing,
}
