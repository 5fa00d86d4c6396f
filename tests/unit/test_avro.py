"""Avro values become JSON text that says the same, or nothing where they cannot be read."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from reconcile.contract.model import Topic
from reconcile.errors import InvalidFileError, RefusedError, SecretError, UnreachableError
from reconcile.gather.log.schema_registry import RegistryAddress
from reconcile.gather.log.value_reader import ValueReader, value_reader
from reconcile.lab import schema_registry
from reconcile.settings.connections import Registry
from reconcile.settings.settings import Settings

USER: dict[str, Any] = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "version", "type": "long"},
        {"name": "email", "type": ["null", "string"]},
        {"name": "balance", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 4}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "picture", "type": "bytes"},
    ],
}
ID = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
ROW = {
    "id": ID,
    "version": 2**53 + 1,
    "email": None,
    "balance": Decimal("12345678901234567890.1200"),
    "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "picture": b"\x00\xff",
}
TOLD = {
    "id": ID,
    "version": 2**53 + 1,
    "email": None,
    "balance": "12345678901234567890.1200",
    "at": "2026-01-02T03:04:05.000006Z",
    "picture": "AP8=",
}


def written(schema: Any = USER, row: Any = ROW) -> bytes:
    """A value as a producer encodes it, without any frame."""
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(schema), row)
    return stream.getvalue()


def framed(data: bytes, number: int = 1) -> bytes:
    """A value in Confluent's frame."""
    return struct.pack(">bI", 0, number) + data


@pytest.fixture
def held() -> Iterator[schema_registry.Registry]:
    """A registry with a few schemas, for those who log in."""
    held = schema_registry.Registry("svc", "secret")
    held.register("user/value", json.dumps(USER))
    both = {"type": "record", "name": "Both", "fields": [{"name": "user", "type": "User"}]}
    held.register("both", json.dumps(both), "AVRO", [{"name": "User", "subject": "user/value", "version": 1}])
    held.register("text", '{"type": "object"}', "JSON")
    with schema_registry.serving(held):
        yield held


@pytest.fixture
def url(held: schema_registry.Registry) -> str:
    """A registry's address."""
    return held.url


def registry(url: str, monkeypatch: pytest.MonkeyPatch, given: str = "secret") -> ValueReader:
    """Take the schema as a contract names it."""
    monkeypatch.setenv("REGISTRY_PASSWORD", given)
    security = {"sasl.username": "svc", "sasl.password": "env:REGISTRY_PASSWORD"}
    topic = {"cluster": "main", "name": "t", "format": "avro", "schema": {"registry": "r"}}
    settings = Settings.model_validate({"connections": {"r": {"registry": url, "security": security}}})
    found = value_reader(Topic.model_validate(topic), Path(), settings)
    assert found is not None
    return found


def test_values_keep_every_digit() -> None:
    """Long integers, decimals, instants and bytes lose nothing on the way into JSON."""
    text = ValueReader("avro", schema=json.dumps(USER)).read(written())
    assert text is not None
    assert json.loads(text) == TOLD


def test_a_frame_does_not_matter_to_a_schema_from_a_file() -> None:
    """The same schema reads values with and without the frame of a registry."""
    schema = ValueReader("avro", schema=json.dumps(USER))
    assert schema.read(written()) == schema.read(framed(written()))


@pytest.mark.parametrize("data", [b"", b"\x01", written()[:-1], written() + b"x", b"\xff" * 40])
def test_what_is_not_read_to_its_last_byte_cannot_be_read(data: bytes) -> None:
    """Bytes that are missing or left over mean another schema."""
    assert ValueReader("avro", schema=json.dumps(USER)).read(data) is None


def test_a_registry_gives_the_schema_that_a_value_names(
    held: schema_registry.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schemas are asked for once, with those that they refer to; unknown ones make a value unreadable."""
    schema = registry(held.url, monkeypatch)
    text = schema.read(framed(written()))
    assert text is not None
    assert json.loads(text) == {"__type": "User", **TOLD}
    both = schema.read(framed(written(), 2))
    assert both is not None
    assert json.loads(both) == {"__type": "Both", "user": TOLD}
    held.asked.clear()
    assert schema.read(framed(written())) == text
    assert [] == held.asked
    assert [None, None, None] == [schema.read(each) for each in (framed(written(), 99), framed(b"", 3), written())]


def test_a_registry_that_does_not_answer_is_no_unreadable_value(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong password and a dead registry have names, and neither shows the password."""
    with pytest.raises(RefusedError, match="401"):
        registry(url, monkeypatch, "wrong")
    with pytest.raises(UnreachableError) as caught:
        registry("http://127.0.0.1:1", monkeypatch)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(registry(url, monkeypatch))


def test_who_logs_in_may_stand_in_the_address(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is used, and never shown."""

    def address(given: str) -> RegistryAddress:
        monkeypatch.setenv("REGISTRY", given)
        return RegistryAddress.of(Registry.model_validate({"registry": "env:REGISTRY"}))

    found = address(url.replace("://", "://svc:s%65cret@") + "/")
    assert (url, "svc", "secret") == (found.url, found.user, found.password)
    found.check()
    with pytest.raises(UnreachableError) as caught:
        address("http://svc:secret@127.0.0.1:1/path").check()
    assert "http://127.0.0.1:1/path" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("content", "problem"), [(None, "No such file"), (b"\xff", "no text"), (b"x", "PEM form")])
def test_a_certificate_that_cannot_be_read_is_a_missing_secret(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    """The file is named before anything is asked."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    registry = {"registry": "https://127.0.0.1:1", "security": {"ssl.ca.location": str(file)}}
    with pytest.raises(SecretError, match=problem):
        RegistryAddress.of(Registry.model_validate(registry)).check()


def test_a_file_that_is_no_schema_is_told(tmp_path: Path) -> None:
    """The contract's file is named, and what is wrong with it."""
    topic = {"cluster": "main", "name": "t", "format": "avro", "schema": {"file": "user.avsc"}}
    contract = Topic.model_validate(topic)
    with pytest.raises(InvalidFileError, match="cannot be read"):
        value_reader(contract, tmp_path, Settings())
    for text in ("{", '{"type": "recrd"}', '{"type": "record", "name": "A", "fields": [{"name": "b", "type": "B"}]}'):
        (tmp_path / "user.avsc").write_text(text)
        with pytest.raises(InvalidFileError, match=r"user\.avsc: is no Avro schema"):
            value_reader(contract, tmp_path, Settings())


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "nothing", "type": "null"}]}


def nodes(depth: int) -> bytes:
    """A chain of so many nodes."""
    return b"\x02" * depth + b"\x00"


def number(value: int) -> bytes:
    """A number as Avro writes it."""
    zigzag, found = value << 1, b""
    while zigzag > 127:
        found += bytes([zigzag & 127 | 128])
        zigzag >>= 7
    return found + bytes([zigzag])


def test_a_value_that_is_nested_without_end_cannot_be_read() -> None:
    """Its reader, which is compiled, would end the process; one that is as deep as data are is read."""
    schema = ValueReader("avro", schema=json.dumps(NODE))
    assert schema.read(nodes(100)) is not None
    assert [None, None] == [schema.read(nodes(depth)) for depth in (5_000, 1_000_000)]


@pytest.mark.parametrize(
    "items", ["null", EMPTY, {"type": "fixed", "name": "F", "size": 0}], ids=["null", "record", "fixed"]
)
def test_five_bytes_do_not_become_millions_of_items(items: Any) -> None:
    """Items that take no room can be as many as a number says."""
    schema = ValueReader("avro", schema=json.dumps({"type": "array", "items": items}))
    assert 3 == len(json.loads(schema.read(number(3) + b"\x00") or ""))
    assert schema.read(number(2_500_000) + b"\x00") is None


def test_all_kinds_of_values_are_walked_over_alike() -> None:
    """What is looked at before it is read is read as it is: each type, in a schema that refers to itself."""
    kinds: dict[str, tuple[Any, Any]] = {
        "flag": ("boolean", True),
        "whole": ("int", -7),
        "long": ("long", 2**40),
        "real": ("float", 0.5),
        "double": ("double", 0.25),
        "text": ("string", "Zoë"),
        "raw": ("bytes", b"\x00\xff"),
        "mark": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        "code": ({"type": "fixed", "name": "Code", "size": 2}, b"ab"),
        "map": ({"type": "map", "values": "long"}, {"a": 1, "b": 300}),
        "list": ({"type": "array", "items": ["null", "string"]}, ["x", None]),
        "at": ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 1, 2, tzinfo=UTC)),
        "other": (["null", "Whole"], None),
    }
    schema = {"type": "record", "name": "Whole", "fields": [{"name": n, "type": t} for n, (t, _) in kinds.items()]}
    row = {name: value for name, (_, value) in kinds.items()}
    read = ValueReader("avro", schema=json.dumps(schema)).read(written(schema, {**row, "other": row}))
    assert read is not None
    assert {**json.loads(read)["other"], "other": None} == json.loads(read)["other"]
    assert [-7, "Zoë", "B", {"a": 1, "b": 300}, ["x", None]] == [
        json.loads(read)["other"][name] for name in ("whole", "text", "mark", "map", "list")
    ]
