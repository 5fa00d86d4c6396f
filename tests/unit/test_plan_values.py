"""A correction's value looks like those of the topic's own records, in each format, digit by digit."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.contract.model import Topic
from reconcile.gather.log.value_reader import ValueReader
from reconcile.repair.avro_values import fitted as avro_fitted
from reconcile.repair.json_values import MisfitError, dumps, fitted, loads, types
from reconcile.repair.topic_form import Sample, learned
from reconcile.repair.value_codec import Codec

SCHEMA = {
    "type": "record",
    "name": "UserAccount",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "version", "type": "long"},
        {"name": "email", "type": ["null", "string"], "default": None},
        {"name": "balance", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
ROW = {
    "id": "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    "version": 7,
    "email": "zoe@x",
    "balance": Decimal("12.50"),
    "at": "2026-01-02T03:04:05.000006+00:00",
    "tags": ["a"],
}
AVRO = ValueReader("avro", schema=json.dumps(SCHEMA))
ENVELOPE: dict[str, Any] = {
    "before": {"id": 1},
    "after": {"id": 1, "email": "a@x"},
    "source": {
        "version": "3.0",
        "connector": "postgresql",
        "name": "users",
        "ts_ms": 1,
        "snapshot": "last",
        "db": "user",
        "schema": "public",
        "table": "user_account",
        "txId": 55,
        "lsn": 77,
    },
    "op": "u",
    "ts_ms": 2,
    "transaction": None,
}
TOPIC = Topic.model_validate({"cluster": "main", "name": "t", "type": "header:event-type"})


def fit(value: Any, *seen: Any) -> Any:
    """Bring a value into the types of others."""
    return fitted({"x": value}, (), types({"x": each} for each in seen))["x"]


@pytest.mark.parametrize(("value", "seen", "expected"), [
    (Decimal("12.50"), ["7.25"], "12.50"),
    (Decimal("12.00"), [7], 12),
    (Decimal("12.50"), [7], Decimal("12.50")),
    ("12.5", [Decimal("1.25")], Decimal("12.5")),
    ("42", [7], 42),
    (42, ["7"], "42"),
    ("true", [False], True),
    (True, ["false"], "true"),
    ({"a": 1}, ['{"a": 2}'], '{"a":1}'),
    ('["a"]', [["b"]], ["a"]),
    (None, ["a"], None),
    ("a", [None], "a"),
    (5, ["a", 7], 5),
    ([{"a": 1}], [[{"a": "2"}]], [{"a": "1"}]),
])  # fmt: skip
def test_a_value_takes_the_type_that_the_records_have(value: Any, seen: list[Any], expected: Any) -> None:
    """Numerics that the log carries as text stay text, and the other way round, down to the last digit."""
    found = fit(value, *seen)
    assert (expected, type(expected)) == (found, type(found))


def test_a_value_that_cannot_take_it_names_its_path() -> None:
    """The path and both types, and never the value."""
    with pytest.raises(MisfitError) as raised:
        fitted({"a": {"b": "secret"}}, (), types([{"a": {"b": 1}}]))
    assert "topic.value gives a string at $.a.b, where the topic's records have an integer" == str(raised.value)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.decimals(allow_nan=False, allow_infinity=False, places=4),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_written_json_reads_as_it_was(value: Any) -> None:
    """With every digit of its numbers."""
    assert value == loads(dumps(value))


@given(st.lists(JSON, min_size=1, max_size=3))
def test_a_topics_own_values_fit_it(values: list[Any]) -> None:
    """A value that stands in the topic is not changed."""
    assert values[0] == fitted(values[0], (), types(values))


@pytest.mark.parametrize("prefix", [b"", b"\x00\x00\x00\x00\x2a", b"\xc3\x01ABCDEFGH"])
def test_avro_is_framed_as_the_newest_record_is(prefix: bytes) -> None:
    """Bare, with Confluent's number, or as a single object; what is written reads as the row."""
    like = prefix + Codec("avro", AVRO, _bare(ROW)).write(ROW)
    written = Codec("avro", AVRO, like).write(ROW)
    assert written.startswith(prefix)
    assert {**ROW, "balance": "12.50", "at": "2026-01-02T03:04:05.000006Z", "note": None} == Codec("avro", AVRO).read(
        written
    )


def test_avro_without_a_place_for_a_value_names_it() -> None:
    """The schema knows what it has."""
    with pytest.raises(MisfitError, match=r"\$\.nickname, which the schema does not have"):
        Codec("avro", AVRO, _bare(ROW)).write({**ROW, "nickname": "Z"})


def test_avro_tells_no_value_of_what_it_cannot_take() -> None:
    """More digits than the schema has room for."""
    with pytest.raises(MisfitError, match="no room") as raised:
        Codec("avro", AVRO, _bare(ROW)).write({**ROW, "balance": Decimal("1.23456")})
    assert "1.23456" not in str(raised.value)


@pytest.mark.parametrize(("value", "branches"), [
    ("7", ["null", "long", "string"]),
    (7, ["null", "string", "long"]),
    (True, ["null", "string", "boolean"]),
    (Decimal("1.5"), ["null", "string", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}]),
    ([1], ["string", {"type": "array", "items": "long"}]),
    ({"a": 1}, ["string", {"type": "map", "values": "long"}]),
    ("2026-01-02", [{"type": "int", "logicalType": "date"}, "string"]),
])  # fmt: skip
def test_a_union_takes_the_branch_of_the_values_own_type(value: Any, branches: list[Any]) -> None:
    """Also where another one stands before it that the value could be cast to."""
    assert value == avro_fitted(value, branches)


def test_a_union_without_the_values_own_type_takes_what_it_can_be_cast_to() -> None:
    """Text that a number is written as."""
    assert 7 == avro_fitted("7", ["null", "long"])


def test_avro_that_lacks_a_value_names_it() -> None:
    """A field without a default has to be there."""
    with pytest.raises(MisfitError, match=r"no entry for \$\.version"):
        Codec("avro", AVRO, _bare(ROW)).write({name: value for name, value in ROW.items() if name != "version"})


@pytest.mark.parametrize("wrap", [lambda envelope: envelope, lambda envelope: {"schema": {}, "payload": envelope}])
def test_debezium_is_enveloped_as_the_newest_record_is(wrap: Any) -> None:
    """With or without its schema; the row is `after`, and nothing claims a place in the source's log."""
    codec = Codec("debezium-json", None, json.dumps(wrap(ENVELOPE)).encode())
    written = json.loads(codec.write({"id": 1, "email": "b@x"}))
    envelope = written.get("payload", written)
    assert wrap(ENVELOPE).keys() == written.keys()
    assert ENVELOPE.keys() == envelope.keys()
    assert (None, {"id": 1, "email": "b@x"}, "u") == tuple(envelope[name] for name in ("before", "after", "op"))
    source = envelope["source"]
    assert ENVELOPE["source"].keys() == source.keys()
    assert ("reconcile", "user_account", None, None) == tuple(
        source[name] for name in ("connector", "table", "lsn", "txId")
    )


def test_debezium_keeps_what_its_schema_wants() -> None:
    """A field of the source that must not be null stays as the newest record has it."""
    fields = [{"field": "source", "fields": [{"field": "lsn", "optional": False}, {"field": "txId", "optional": True}]}]
    like = {"schema": {"fields": fields}, "payload": ENVELOPE}
    source = json.loads(Codec("debezium-json", None, json.dumps(like).encode()).write({"id": 1}))["payload"]["source"]
    assert (77, None) == (source["lsn"], source["txId"])


@pytest.mark.parametrize("after", ["gibberish", [1], 7, False])
def test_a_debezium_value_whose_row_is_none_cannot_be_read(after: object) -> None:
    """It is no reason to stop: any topic may hold such a record."""
    assert Codec("debezium-json").read(json.dumps({"op": "u", "after": after}).encode()) is None


def test_a_debezium_value_reads_as_its_row() -> None:
    """Paths look into the row, as in the log history."""
    found = Codec("debezium-json").read(json.dumps(ENVELOPE).encode())
    assert {"id": 1, "email": "a@x", "__op": "u", "__source": ENVELOPE["source"]} == found


def test_what_all_records_say_is_taken_over() -> None:
    """A header that is the same in all, the commonest type, and the type of tombstones."""
    samples = [
        Sample(
            str(n).encode(),
            b'{"id": 1}',
            (("content-type", b"json"), ("event-type", b"Renamed"), ("n", str(n).encode())),
        )
        for n in range(6)
    ]
    gone = Sample(b"9", None, (("content-type", b"json"), ("event-type", b"Closed"), ("n", b"9")))
    form = learned(TOPIC, [*samples, gone], None)
    assert ((("content-type", b"json"),), "Renamed", "Closed") == (form.headers, form.usual_type, form.deleting_type)


def test_headers_of_connectors_are_not_taken_over() -> None:
    """They name the task and the place of another record; Spring's names of types are the publisher's own."""
    there = {"__debezium.context.task": b"0", "__connect.errors.topic": b"t", "__op": b"u", "__TypeId__": b"User"}
    samples = [Sample(str(n).encode(), b'{"id": 1}', tuple(there.items())) for n in range(6)]
    assert (("__TypeId__", b"User"),) == learned(TOPIC, samples, None).headers


def test_keys_that_their_ids_do_not_give_back_are_noticed() -> None:
    """Producers that write their JSON keys differently: an aggregate without a record has no known key."""
    topic = Topic.model_validate({"cluster": "main", "name": "t", "key": {"type": "json"}})
    assert learned(topic, [Sample(b'{"id": 1}', b"{}"), Sample(b'{"id":2}', b"{}")], None).keys is None


def test_the_newest_state_is_what_values_look_like() -> None:
    """By its time: the last one that was read may be of a partition that is quiet since long."""
    samples = [Sample(b"1", b'{"id": 1, "new": 1}', at=2), Sample(b"2", b'{"id": 2}', at=1)]
    assert b'{"id": 1, "new": 1}' == learned(TOPIC, samples, None).codec.like


def _bare(row: dict[str, Any]) -> bytes:
    """Give a record that bears no frame."""
    from io import BytesIO

    from fastavro import parse_schema, schemaless_writer

    schema = parse_schema(SCHEMA)
    out = BytesIO()
    schemaless_writer(out, schema, avro_fitted(row, schema))
    return out.getvalue()
