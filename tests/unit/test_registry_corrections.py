"""A correction on a topic by a schema registry has its own type's schema, and takes nothing away that records carry."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

from reconcile.contract.model import Topic
from reconcile.gather.log.schema_registry import RegistryAddress
from reconcile.gather.log.value_reader import ValueReader
from reconcile.lab.schema_registry import Registry, serving
from reconcile.repair.connect_schema import LeftOut
from reconcile.repair.json_values import MisfitError, RowMisfitError, loads
from reconcile.repair.topic_form import Sample, TopicForm, learned
from reconcile.repair.value_codec import Codec
from tests import protobuf_schemas as proto
from tests.unit.test_wire_format import POOL, VALUE, kinds


@pytest.fixture
def held() -> Iterator[Registry]:
    """A registry."""
    with serving(Registry()) as held:
        yield held


def client(held: Registry) -> SchemaRegistryClient:
    """Confluent's client of it."""
    return SchemaRegistryClient({"url": held.url})


def codec(held: Registry, form: str, *values: bytes, patch: bool = False) -> Codec:
    """Learned of such records; the last one is the newest."""
    reader = ValueReader(form, registry=RegistryAddress(held.url), patch=patch)
    states = [Codec(form, reader).read(each) for each in values]
    return Codec(form, reader, values[-1], tuple(each for each in states if each is not None))


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    """A schema of Avro."""
    return {"type": "record", "name": name, "fields": [{"name": "id", "type": "string"}, *fields]}


def avro(held: Registry, schema: Any, value: Any) -> bytes:
    """Write a value with a schema that is registered for it."""
    from io import BytesIO

    from fastavro import parse_schema, schemaless_writer

    out = BytesIO()
    schemaless_writer(out, parse_schema(schema), value)
    return struct.pack(">bI", 0, held.register("t", json.dumps(schema))) + out.getvalue()


NOTE = {"name": "note", "type": ["null", "string"], "default": None}
AMOUNT = {"name": "amount", "type": "long", "default": 5}


def of_types(held: Registry, **more: Any) -> TopicForm:
    """What is learned of a topic with two types, the newest records of which are all of the one that tells nothing."""
    said = {"cluster": "main", "name": "t", "format": "avro", "schema": {"registry": "r"}, **more}
    item, seen = avro(held, record("Item"), {"id": "a"}), avro(held, record("Seen", NOTE), {"id": "b", "note": "x"})
    reader = ValueReader("avro", registry=RegistryAddress(held.url))
    samples = [Sample(b"a", item, at=1), *(Sample(b"b", seen, at=each) for each in (2, 3, 4))]
    return learned(Topic.model_validate(said), samples, reader)


@pytest.mark.parametrize("more", [{}, {"type": "$.__type", "ignore_types": ["Seen"]}])
def test_the_schema_is_that_of_its_own_type_and_not_of_the_newest_record(held: Registry, more: Any) -> None:
    """Readers would take it for another event."""
    data = of_types(held, **more).codec_of("Item", "Item").write({"id": "c"})
    assert struct.pack(">bI", 0, 1) == data[:5]
    assert {"id": "c"} == AvroDeserializer(client(held))(data, VALUE)


def test_a_type_of_which_no_record_is_seen_has_no_schema(held: Registry) -> None:
    """It is left out with that reason, as the topic has several types."""
    with pytest.raises(RowMisfitError, match="no record that is seen is of the type Gone"):
        of_types(held).codec_of("Gone", "Gone")


def test_a_default_takes_nothing_away_that_records_carry(held: Registry) -> None:
    """A field that is always at its default may be left out."""
    schema = record("Item", NOTE)
    told, untold = (avro(held, schema, {"id": "a", "note": each}) for each in ("x", None))
    with pytest.raises(MisfitError, match=r"topic.value leaves out \$.note, which records carry"):
        codec(held, "avro", told, untold).write({"id": "c"})
    plain = codec(held, "avro", untold)
    assert {"id": "c", "note": None} == AvroDeserializer(client(held))(plain.write({"id": "c"}), VALUE)
    with pytest.raises(RowMisfitError, match=r"leaves out \$.note, which its last record carries"):
        plain.write({"id": "c"}, own={"__type": "Item", "id": "c", "note": "y"})


def test_a_default_is_not_added(held: Registry) -> None:
    """And what an amount must not set is not set to its default."""
    schema = record("Item", NOTE, AMOUNT)
    found = codec(held, "avro", avro(held, schema, {"id": "a", "note": None, "amount": 1}))
    data = found.write({"id": "c"}, LeftOut(added=[("amount",)]))
    assert {"id": "c", "note": None, "amount": 0} == AvroDeserializer(client(held))(data, VALUE)
    with pytest.raises(RowMisfitError, match=r"\$.note, which an amount alone must not set"):
        found.write({"id": "c", "amount": 3}, LeftOut(unset=[("note",)]))


def test_a_message_comes_back_as_it_was_read(held: Registry) -> None:
    """Each kind of field, but for what is packed in `Any`."""
    sent = kinds()
    sent.ClearField("any")
    sent.at.nanos += 7
    data = ProtobufSerializer(proto.new(POOL, "Kinds"), client(held))(sent, VALUE)
    found = codec(held, "protobuf", data)
    body = found.read(data)
    assert body is not None
    again = ProtobufDeserializer(proto.new(POOL, "Kinds"), schema_registry_client=client(held))(
        found.write(body), VALUE
    )
    assert sent == again


def message(held: Registry, **fields: Any) -> bytes:
    """Write a message of few fields."""
    kind = proto.new(POOL, "Kinds")
    data: bytes = ProtobufSerializer(kind, client(held))(kind(**fields), VALUE)
    return data


def test_a_message_erases_nothing_that_records_carry(held: Registry) -> None:
    """Whether their fields have presence or not, and also in a message inside."""
    for fields, path in (
        ({"f_string": "x"}, "f_string"),
        ({"maybe": ""}, "maybe"),
        ({"names": ["a"]}, "names"),
        ({"counts": {1: 2}}, "counts"),
    ):
        found = codec(held, "protobuf", message(held, **fields), message(held))
        with pytest.raises(MisfitError, match=rf"leaves out \$.{path}, which records carry"):
            found.write({"f_int32": 1})
    inside = codec(held, "protobuf", message(held, self={"f_int32": 1, "f_string": "x"}))
    with pytest.raises(MisfitError, match=r"leaves out \$.self.f_string, which records carry"):
        inside.write({"self": {"f_int32": 2}})
    assert codec(held, "protobuf", message(held)).write({"f_int32": 1})


def test_an_amount_sets_nothing_in_a_message_of_a_patch_alone(held: Registry) -> None:
    """There a field with presence that is not set says nothing; elsewhere it says null."""
    amount, unset = {"f_int64": 3}, LeftOut(unset=[("maybe",)])
    patch = codec(held, "protobuf", message(held, f_int64=1), message(held, maybe="x"), patch=True)
    assert {"__type": "shop.Kinds", "f_int64": 3} == patch.read(patch.write(amount, unset))
    with pytest.raises(RowMisfitError, match=r"\$.maybe, which an amount alone must not set"):
        codec(held, "protobuf", message(held, f_int64=1)).write(amount, unset)


@pytest.mark.parametrize(("body", "path"), [
    ({"f_int32": 2**31}, "f_int32"),
    ({"f_int32": 1.5}, "f_int32"),
    ({"f_uint64": -1}, "f_uint64"),
    ({"f_bool": "maybe"}, "f_bool"),
    ({"f_float": 1e39}, "f_float"),
    ({"f_bytes": "?"}, "f_bytes"),
    ({"colour": "BLUE"}, "colour"),
    ({"at": "yesterday"}, "at"),
    ({"names": "a"}, "names"),
    ({"others": [7]}, r"others\['\[\]'\]"),
    ({"counts": {"x": 1}}, "counts"),
    ({"text": "a", "number": 1}, "text"),
    ({"any": {}}, "any"),
])  # fmt: skip
def test_what_a_message_cannot_hold_leaves_out_its_row(held: Registry, body: Any, path: str) -> None:
    """The place is named, and no value."""
    with pytest.raises(RowMisfitError, match=rf"\$.{path}"):
        codec(held, "protobuf", message(held)).write(loads(json.dumps(body)))


def test_a_json_schema_has_to_allow_what_is_written(held: Registry) -> None:
    """Its place is named, and no value; references are looked up."""
    held.register("money", '{"type": "number", "minimum": 0}', "JSON")
    schema = {"title": "P", "properties": {"price": {"$ref": "money.json"}}, "additionalProperties": False}
    reference = [{"name": "money.json", "subject": "money", "version": 1}]
    number = held.register("p", json.dumps(schema), "JSON", reference)
    found = codec(held, "json-schema", struct.pack(">bI", 0, number) + b'{"price": 1}')
    assert struct.pack(">bI", 0, number) + b'{"price":12.50}' == found.write(loads('{"__type": "P", "price": 12.50}'))
    for body in ({"price": -4917}, {"cost": -4917}):
        with pytest.raises(RowMisfitError, match="does not allow what stands at") as caught:
            found.write(body)
        assert "4917" not in str(caught.value)


def test_instants_of_a_database_become_those_of_a_message(held: Registry) -> None:
    """With an offset, without one, and as a day."""
    found = codec(held, "protobuf", message(held))
    texts = ("2026-01-02T03:04:05.5+02:00", "2026-01-02 03:04:05.5", "2026-01-02")
    said = [found.read(found.write({"at": each})) or {} for each in texts]
    assert ["2026-01-02T01:04:05.500Z", "2026-01-02T03:04:05.500Z", "2026-01-02T00:00:00Z"] == [
        each["at"] for each in said
    ]


def test_what_an_older_schema_requires_is_asked_for(held: Registry) -> None:
    """And it may not be null."""
    old = proto.file(
        "old.proto", proto.message("Old", proto.field(1, "id", "string", label="REQUIRED")), syntax="proto2"
    )
    kind = proto.new(proto.pool(old), "Old")
    found = codec(held, "protobuf", ProtobufSerializer(kind, client(held))(kind(id="a"), VALUE))
    with pytest.raises(MisfitError, match=r"no entry for \$.id, which the schema asks for"):
        found.write({})
    with pytest.raises(RowMisfitError, match=r"gives nothing at \$.id"):
        found.write({"id": None})
