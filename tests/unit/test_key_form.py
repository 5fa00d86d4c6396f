"""The key of an id that the log never had looks like the keys that the topic has, byte by byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconcile.domain.key_form import learned

SCHEMA = {
    "type": "struct",
    "fields": [{"type": "int32", "optional": False, "field": "id"}],
    "optional": False,
    "name": "server1.public.account.Key",
}


def connect(id_: Any) -> bytes:
    """Give a key as Connect's JSON converter writes it."""
    return json.dumps({"schema": SCHEMA, "payload": {"id": id_}}, separators=(",", ":")).encode()


@pytest.mark.parametrize(("key_type", "keys", "id_text", "expected"), [
    ("json", [connect(1), connect(22)], "333", connect(333)),
    ("json", [b'{"id":1}', b'{"id":22}'], "333", b'{"id":333}'),
    ("json", [b'{"id": 1}', b'{"id": 22}'], "333", b'{"id": 333}'),
    ("json", [b'{"id":"1"}', b'{"id":"x"}'], "333", b'{"id":"333"}'),
    ("json", [b'{"tenant":"eu","id":1}', b'{"tenant":"us","id":2}'], '["eu",3]', b'{"tenant":"eu","id":3}'),
    ("json", [b'"1"', b'"2"'], "3", b'"3"'),
    ("json", [b"1", b"2"], "3", b"3"),
    ("json", [b'"\\u00e4"', b'"b"'], "ö", b'"\\u00f6"'),
    ("json", [], "3", b"3"),
    ("string", [b"a", b"b"], "c", b"c"),
    ("int64", [(1).to_bytes(8, "big")], "3", (3).to_bytes(8, "big")),
])  # fmt: skip
def test_a_key_is_built_as_all_others_are(key_type: str, keys: list[bytes], id_text: str, expected: bytes) -> None:
    """Connect's structs with their schema, JSON with one field or several, plain values."""
    form = learned(keys, key_type)
    assert form is not None
    assert expected == form.key(id_text)


@pytest.mark.parametrize("keys", [
    [b'{"id":1}', b"2"],
    [b'{"id":1}', b'{"id": 2}'],
    [b'{"id":1}', b'{"id":"2"}'],
    [b'{"id":1}', b'{"ID":2}'],
    [connect(1), b'{"id":2}'],
    [b"gibberish", b"1"],
])  # fmt: skip
def test_keys_of_several_forms_show_none(keys: list[bytes]) -> None:
    """Nobody knows which of them the next event of the id would have."""
    assert learned(keys, "json") is None


@pytest.mark.parametrize(("keys", "id_text"), [
    ([connect(1)], "abc"),
    ([b'{"id":1}'], "007"),
    ([b'{"id":1}'], "1.5"),
    ([b'{"tenant":"eu","id":1}'], '["eu","1"]'),
    ([b'{"tenant":"eu","id":1}'], "1"),
    ([b'"ab12cd"', b'"9fx"'], "12345678"),
    ([b'"ab12cd"', b'"9fx"'], "[1,2]"),
    ([b'"ab12cd"', b'"9fx"'], "ö"),
])  # fmt: skip
def test_an_id_without_that_form_has_no_key(keys: list[bytes], id_text: str) -> None:
    """A number's key is no text; and an id that these keys would write in two ways has none that is known."""
    form = learned(keys, "json")
    assert form is not None
    with pytest.raises(ValueError):  # noqa: PT011
        form.key(id_text)
