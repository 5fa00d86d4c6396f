"""Values that Confluent's own serializers wrote are read as they are, in each format; what is odd has no value."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from reconcile.gather.log.schema_registry import RegistryAddress
from reconcile.gather.log.value_reader import ValueReader
from reconcile.lab.schema_registry import Registry, serving
from tests import protobuf_schemas as proto

VALUE = SerializationContext("shop", MessageField.VALUE)
MONEY = {
    "type": "record",
    "name": "Money",
    "namespace": "shop",
    "fields": [{"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}],
}
PLACED = {
    "type": "record",
    "name": "Placed",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "string"}, {"name": "total", "type": ["null", "shop.Money"], "default": None}],
}
GONE = {
    "type": "record",
    "name": "Gone",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "why", "type": {"type": "enum", "name": "Why", "symbols": ["A", "B"]}},
    ],
}
GOOGLE = tuple(
    f"google/protobuf/{each}.proto" for each in ("timestamp", "wrappers", "struct", "duration", "any", "field_mask")
)
KINDS = proto.file(
    "kinds.proto",
    proto.message("Other", proto.field(1, "id", "string")),
    proto.message(
        "Kinds",
        *(proto.field(n, f"f_{k}", k) for n, k in enumerate(("bool", "int32", "int64", "uint64", "sint32"), 1)),
        *(proto.field(n, f"f_{k}", k) for n, k in enumerate(("fixed64", "float", "double", "string", "bytes"), 6)),
        proto.field(20, "colour", "#.shop.Colour"),
        proto.field(21, "names", "string", label="REPEATED"),
        proto.field(22, "others", ".shop.Other", label="REPEATED"),
        proto.field(23, "counts", ".shop.Kinds.CountsEntry", label="REPEATED"),
        proto.field(24, "other", ".shop.Other"),
        proto.field(25, "text", "string", more="oneof_index: 0"),
        proto.field(26, "number", "int64", more="oneof_index: 0"),
        proto.present(27, "maybe", "string", 1),
        proto.field(28, "at", ".google.protobuf.Timestamp"),
        proto.field(29, "wrapped", ".google.protobuf.Int64Value"),
        proto.field(30, "unwrapped", ".google.protobuf.StringValue"),
        proto.field(31, "free", ".google.protobuf.Struct"),
        proto.field(32, "took", ".google.protobuf.Duration"),
        proto.field(33, "day", ".google.type.Date"),
        proto.field(34, "any", ".google.protobuf.Any"),
        proto.field(35, "self", ".shop.Kinds"),
        proto.field(36, "mask", ".google.protobuf.FieldMask"),
        f'nested_type {{ name: "CountsEntry" options {{ map_entry: true }} {proto.field(1, "key", "int32")}'
        f" {proto.field(2, 'value', 'int64')} }}",
        f'nested_type {{ name: "Inner" {proto.field(1, "id", "string")} }}',
        'oneof_decl { name: "either" } oneof_decl { name: "_maybe" }',
    ),
    'enum_type { name: "Colour" value { name: "NONE" number: 0 } value { name: "RED" number: 3 } }',
    imports=(*GOOGLE, "google/type/date.proto"),
)
POOL = proto.pool(KINDS)
UNSET = {
    "f_bool": False,
    **dict.fromkeys(("f_int32", "f_int64", "f_uint64", "f_sint32", "f_fixed64"), 0),
    **{"f_float": 0.0, "f_double": 0.0, "f_string": "", "f_bytes": "", "colour": "NONE"},
    **{"names": [], "others": [], "counts": {}},
    **dict.fromkeys(("other", "text", "number", "maybe", "at", "wrapped", "unwrapped", "free", "took", "day", "any")),
    **dict.fromkeys(("self", "mask")),
}


@pytest.fixture
def held() -> Iterator[Registry]:
    """A registry."""
    with serving(Registry()) as held:
        yield held


def client(held: Registry) -> SchemaRegistryClient:
    """Confluent's client of it."""
    return SchemaRegistryClient({"url": held.url})


def read(held: Registry, form: str, data: bytes, **more: Any) -> Any:
    """What ours reads of a value; None for one that cannot be read."""
    found = ValueReader(form, registry=RegistryAddress(held.url), **more).read(data)
    return None if found is None else json.loads(found)


def test_a_union_of_types_of_other_subjects_names_which_one_a_value_is(held: Registry) -> None:
    """That is how Confluent puts several types of events on a topic."""
    held.register("money", json.dumps(MONEY))
    held.register("placed", json.dumps(PLACED), "AVRO", [{"name": "shop.Money", "subject": "money", "version": 1}])
    held.register("gone", json.dumps(GONE))
    references = [SchemaReference("shop.Placed", "placed", 1), SchemaReference("shop.Gone", "gone", 1)]
    client(held).register_schema("shop-value", Schema('["shop.Placed", "shop.Gone"]', "AVRO", references))
    serialize = AvroSerializer(client(held), conf={"auto.register.schemas": False, "use.latest.version": True})
    placed = serialize(("shop.Placed", {"id": "a", "total": {"amount": Decimal("1.50")}}), VALUE)
    gone = serialize(("shop.Gone", {"id": "b", "why": "B"}), VALUE)
    assert {"__type": "shop.Placed", "id": "a", "total": {"amount": "1.50"}} == read(held, "avro", placed)
    assert {"__type": "shop.Gone", "id": "b", "why": "B"} == read(held, "avro", gone)


def test_json_stays_as_it_is_behind_its_frame(held: Registry) -> None:
    """Every digit and every space of it."""
    schema = json.dumps({"title": "Order", "type": "object", "properties": {"n": {"type": "number"}}})
    serialize = JSONSerializer(schema, client(held))
    assert {"__type": "Order", "n": 1.5} == read(held, "json-schema", serialize({"n": 1.5}, VALUE))
    reader = ValueReader("json-schema", registry=RegistryAddress(held.url))
    frame = struct.pack(">bI", 0, 1)
    assert '{"__type":"Order","n": 1.10e2 , "m":[]}' == reader.read(frame + b'{"n": 1.10e2 , "m":[]}')
    assert '{"__type":"Order"}' == reader.read(frame + b" {}")
    assert [None, None] == [reader.read(each) for each in (b'{"n": 1}', frame + b'{"n": "\xff"}')]


def kinds() -> Any:
    """A message with a value of each kind."""
    found = proto.new(POOL, "Kinds")()
    found.f_bool, found.f_int32, found.f_int64, found.f_uint64, found.f_sint32 = True, -1, 2**53 + 1, 2**64 - 1, -7
    found.f_fixed64, found.f_float, found.f_double, found.f_string, found.f_bytes = 5, 0.1, 0.1, "Zoë", b"\0\xff"
    found.colour, found.text, found.maybe = 3, "", ""
    found.names.extend(["a", "b"])
    found.others.add(id="x")
    found.counts[7], found.counts[-1] = 70, 0
    found.other.SetInParent()
    found.at.FromJsonString("2026-01-02T03:04:05.000006Z")
    found.wrapped.value = 0
    found.free.update({"a": [1, 2.5, None, {"b": True}]})
    found.took.FromJsonString("1.5s")
    found.day.year, found.day.month, found.day.day = 2026, 2, 28
    found.any.Pack(proto.new(POOL, "Other")(id="in"))
    found.mask.paths.append("f_bool")
    return found


def test_a_message_is_read_as_its_readers_see_it(held: Registry) -> None:
    """Each kind of field, what is set and what is not."""
    serialize = ProtobufSerializer(proto.new(POOL, "Kinds"), client(held))
    found = read(held, "protobuf", serialize(kinds(), VALUE))
    expected = {
        **UNSET,
        "__type": "shop.Kinds",
        **{"f_bool": True, "f_int32": -1, "f_int64": 2**53 + 1, "f_uint64": 2**64 - 1, "f_sint32": -7, "f_fixed64": 5},
        **{"f_float": 0.1, "f_double": 0.1, "f_string": "Zoë", "f_bytes": "AP8=", "colour": "RED", "text": ""},
        **{"names": ["a", "b"], "others": [{"id": "x"}], "counts": {"7": 70, "-1": 0}, "other": {"id": ""}},
        **{"maybe": "", "at": "2026-01-02T03:04:05.000006Z", "wrapped": 0, "free": {"a": [1, 2.5, None, {"b": True}]}},
        **{"took": "1.500s", "day": "2026-02-28", "mask": "fBool"},
        "any": {"@type": "type.googleapis.com/shop.Other", "id": "in"},
    }
    assert expected == found
    empty = serialize(proto.new(POOL, "Kinds")(), VALUE)
    assert {"__type": "shop.Kinds", **UNSET} == read(held, "protobuf", empty)
    assert {"__type": "shop.Kinds"} == read(held, "protobuf", empty, patch=True)


def test_the_path_of_a_message_leads_to_nested_ones(held: Registry) -> None:
    """The first message of a schema has a short path, others have a long one."""
    inner, other = POOL.FindMessageTypeByName("shop.Kinds.Inner"), proto.new(POOL, "Other")
    from google.protobuf.message_factory import GetMessageClass

    nested = ProtobufSerializer(GetMessageClass(inner), client(held))(GetMessageClass(inner)(id="n"), VALUE)
    first = ProtobufSerializer(other, client(held))(other(id="o"), VALUE)
    assert {"__type": "shop.Kinds.Inner", "id": "n"} == read(held, "protobuf", nested)
    assert {"__type": "shop.Other", "id": "o"} == read(held, "protobuf", first)


def test_imports_are_taken_from_the_subjects_that_are_referred_to(held: Registry) -> None:
    """Also through several files."""
    base = proto.file("base.proto", proto.message("Base", proto.field(1, "id", "string")))
    top = proto.file("top.proto", proto.message("Top", proto.field(1, "base", ".shop.Base")), imports=("base.proto",))
    serialize = ProtobufSerializer(proto.new(pool := proto.pool(base, top), "Top"), client(held))
    value = proto.new(pool, "Top")()
    value.base.id = "b"
    data = serialize(value, VALUE)
    assert {"__type": "shop.Top", "base": {"id": "b"}} == read(held, "protobuf", data)


def test_a_message_that_is_odd_cannot_be_read_and_ends_nothing(held: Registry) -> None:
    """Cut off, of a path that leads nowhere, nested without end, of a million values in few bytes."""
    serialize = ProtobufSerializer(proto.new(POOL, "Kinds"), client(held))
    good = serialize(kinds(), VALUE)
    frame, body = good[:5], good[7:]
    assert b"\x02\x02" == good[5:7]
    deep = b""
    for _ in range(5000):
        length, size = len(deep), b""
        while length > 127:
            size, length = size + bytes([length & 127 | 128]), length >> 7
        deep = b"\x9a\x02" + size + bytes([length]) + deep
    many = b"\xb2\x01\x00" * 1_100_000
    for odd in (
        *(b"", b"\x02", b"\x02\x04" + body, b"\x01", b"\xff" * 30, b"\x06\x02\x00\x00" + body),
        *(b"\x02\x02" + body[:-1], b"\x02\x02" + b"\x4a\x02\xff\xfe", b"\x02\x02" + deep, b"\x02\x02" + many),
    ):
        assert read(held, "protobuf", frame + odd) is None
    assert read(held, "protobuf", body) is None


def test_a_key_gives_the_id_that_its_members_hold(held: Registry) -> None:
    """Whatever the format of its schema is, and that of the values."""
    reader = ValueReader("json", registry=RegistryAddress(held.url))
    key = SerializationContext("shop", MessageField.KEY)
    record = {
        "type": "record",
        "name": "K",
        "fields": [{"name": "tenant", "type": "string"}, {"name": "id", "type": "int"}],
    }
    text = AvroSerializer(client(held), '"string"')("é", key)
    pair = AvroSerializer(client(held), json.dumps(record))({"tenant": "eu", "id": 42}, key)
    plain = JSONSerializer('{"type": "object", "title": "K"}', client(held))({"id": 101}, key)
    message = ProtobufSerializer(proto.new(POOL, "Other"), client(held))(proto.new(POOL, "Other")(id="x"), key)
    assert ["é", '["eu",42]', "101", "x"] == [reader.key_id(each) for each in (text, pair, plain, message)]
    assert [None, None, None] == [reader.key_id(each) for each in (None, b"x", text[:-1])]


def test_what_was_read_by_older_rules_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another history is begun then; so it is for another registry, and for patches."""
    from reconcile.contract.model import Topic
    from reconcile.gather.log import value_reader
    from reconcile.gather.log.records import Derivation

    topic = Topic.model_validate({"cluster": "main", "name": "t", "format": "avro", "schema": {"registry": "r"}})

    def digest(url: str = "http://a", **more: Any) -> str:
        return Derivation.of(topic, values=ValueReader("avro", registry=RegistryAddress(url), **more)).digest

    now = digest()
    assert now == digest()
    others = {digest("http://b"), digest(patch=True)}
    monkeypatch.setattr(value_reader, "_RULES", 0)
    assert 3 == len({*others, digest()} - {now})
