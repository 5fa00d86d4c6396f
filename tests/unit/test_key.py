import json
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconcile.domain.key import KeyType, decode, encode, rebuilds

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=4)


@pytest.mark.parametrize(
    ("id_text", "key_type", "key"),
    [
        ("user-42", "string", b"user-42"),
        ("zoë", "string", b"zo\xc3\xab"),
        ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", "uuid-bytes", bytes.fromhex("3f2504e04f8911d39a0c0305e82c3301")),
        ("1001", "int64", b"\x00\x00\x00\x00\x00\x00\x03\xe9"),
        ("-1", "int64", b"\xff" * 8),
        ("user-42", "json", b'"user-42"'),
        ("42", "json", b"42"),
        ("1.50", "json", b"1.50"),
        ("007", "json", b'"007"'),
        ("null", "json", b'"null"'),
        ("NaN", "json", b'"NaN"'),
        ("zoë", "json", b'"zo\xc3\xab"'),
        ('["eu",42]', "json", b'["eu",42]'),
        ('{"id":42}', "json", b'"{\\"id\\":42}"'),
    ],
)
def test_an_id_has_one_form_as_a_key(id_text: str, key_type: str, key: bytes) -> None:
    """The bytes for the id, and the id from the bytes."""
    assert key == encode(id_text, key_type)
    assert id_text == decode(key, key_type)


@given(TEXT)
def test_text_round_trips(id_text: str) -> None:
    """Any text is an id of the type string."""
    assert id_text == decode(encode(id_text, KeyType.STRING), KeyType.STRING)


@given(st.uuids())
def test_a_uuid_round_trips(value: UUID) -> None:
    """Upper case means the same bytes; lower case comes back."""
    assert str(value) == decode(encode(str(value).upper(), KeyType.UUID_BYTES), KeyType.UUID_BYTES)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_an_int64_round_trips(value: int) -> None:
    """The whole range, in decimal."""
    assert str(value) == decode(encode(str(value), KeyType.INT64), KeyType.INT64)


@given(TEXT.filter(lambda text: not text.strip().startswith(("[", "{"))))
@example("")
@example("42")
@example(" 42")
@example('"quoted"')
@example("null")
@example("1e3")
def test_a_scalar_id_round_trips_through_json(id_text: str) -> None:
    """Numbers stay numbers and all else is a string, without a change to the text."""
    assert id_text == decode(encode(id_text, KeyType.JSON), KeyType.JSON)


@given(st.lists(VALUES, min_size=1, max_size=3))
def test_a_composite_id_has_one_form_however_it_is_written(parts: list[object]) -> None:
    """Spaces and escapes fall away, and what is left is stable."""
    written = json.dumps(parts, indent=1, ensure_ascii=True)
    id_text = decode(written.encode(), KeyType.JSON)
    assert json.dumps(parts, separators=(",", ":"), ensure_ascii=False) == id_text
    assert id_text == decode(encode(id_text, KeyType.JSON), KeyType.JSON)


@pytest.mark.parametrize("number", ["1.0", "1e400", "-0", "12345678901234567890123", "0.1000", "9" * 5000])
def test_a_number_keeps_its_digits(number: str) -> None:
    """An id that went through a float would be another id."""
    assert f'["eu",{number}]' == decode(f'["eu", {number}]'.encode(), KeyType.JSON)


@pytest.mark.parametrize(
    ("key", "id_text"),
    [
        ('{"id": 101}', "101"),
        ('{"id": 1.50}', "1.50"),
        ('{"id": "zo\\u00eb"}', "zoë"),
        ('{"tenant": "a", "number": 7}', '["a",7]'),
        ('{"a": true, "b": [1, {"c": "d"}]}', '[true,[1,{"c":"d"}]]'),
        ('{"schema": {"type": "struct"}, "payload": {"id": 101}}', "101"),
        ('{"payload": "x", "schema": null}', "x"),
        ('{"payload": 5}', "5"),
        ('{"id": null}', None),
        ("{}", None),
    ],
)
def test_an_object_is_read_by_its_members(key: str, id_text: str | None) -> None:
    """Connectors name a key's columns; no id can be written as they do without knowing these names."""
    assert id_text == decode(key.encode(), KeyType.JSON)
    assert not rebuilds(key.encode(), KeyType.JSON)


@pytest.mark.parametrize("key_type", KeyType)
def test_a_null_key_has_no_id(key_type: KeyType) -> None:
    """A record without a key belongs to no aggregate."""
    assert decode(None, key_type) is None


@pytest.mark.parametrize(
    ("key", "key_type"),
    [
        (b"\xff\xfe", "string"),
        (b"", "uuid-bytes"),
        (b"3f2504e0-4f89-11d3-9a0c-0305e82c3301", "uuid-bytes"),
        (b"\x00" * 7, "int64"),
        (b"\x00" * 9, "int64"),
        (b"", "json"),
        (b"null", "json"),
        (b"NaN", "json"),
        (b'"\\ud800"', "json"),
        (b'"cut', "json"),
        (b"[" * 200_000, "json"),
        (b'\xef\xbb\xbf"bom"', "json"),
    ],
)
def test_an_unreadable_key_has_no_id(key: bytes, key_type: str) -> None:
    """Bytes of another type, cut short, or made to harm."""
    assert decode(key, key_type) is None


@given(st.binary(max_size=40), st.sampled_from(KeyType))
def test_hostile_bytes_never_raise(key: bytes, key_type: KeyType) -> None:
    """What can be read can be written, and reads the same again."""
    id_text = decode(key, key_type)
    if id_text is not None:
        assert id_text == decode(encode(id_text, key_type), key_type)


def test_bytes_of_a_mutable_kind_are_read_too() -> None:
    """Spark hands out byte arrays."""
    assert decode(bytearray(b"\xff" * 8), "int64") == "-1"
    assert str(UUID(int=1)) == decode(bytearray(UUID(int=1).bytes), "uuid-bytes")


@pytest.mark.parametrize(
    ("id_text", "key_type"),
    [
        ("user-42", "uuid-bytes"),
        ("3f2504e04f8911d39a0c0305e82c3301", "uuid-bytes"),
        ("{3f2504e0-4f89-11d3-9a0c-0305e82c3301}", "uuid-bytes"),
        ("user-42", "int64"),
        ("007", "int64"),
        ("-0", "int64"),
        ("٣", "int64"),
        ("9223372036854775808", "int64"),
        ("\ud800", "string"),
        ("\ud800", "json"),
        ("1", "int32"),
    ],
)
def test_an_id_without_such_a_form_is_refused(id_text: str, key_type: str) -> None:
    """An id whose text would come back changed is not encoded quietly."""
    with pytest.raises(ValueError):  # noqa: PT011 - codecs and enums word it themselves
        encode(id_text, key_type)


@pytest.mark.parametrize(
    ("key", "expected"), [(b'["eu",42]', True), (b'["eu", 42]', False), (b'"42"', False), (b"\xff", False)]
)
def test_a_key_that_cannot_be_rebuilt_is_known(key: bytes, expected: bool) -> None:
    """A correction has to carry the bytes of the aggregate's own records."""
    assert expected == rebuilds(key, "json")
