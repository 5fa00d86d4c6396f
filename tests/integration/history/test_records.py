"""The log history tells of each record what its bytes say, and keeps the bytes that say nothing."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import UTC
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastavro import parse_schema, schemaless_writer

from reconcile.gather.log.plain_log import KeptLog, NeedsSparkError, PlainLog
from reconcile.gather.log.records import Derivation
from reconcile.gather.log.value_reader import value_reader
from reconcile.kafka.client import ClusterClient
from reconcile.lab import schema_registry
from reconcile.settings.connections import Registry
from reconcile.settings.settings import Settings
from tests.integration.history.log_world import WAYS, LogWorld, event, read_by

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

SCHEMA = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "name", "type": "string"}, {"name": "version", "type": "long"}],
}


def test_each_record_is_kept_with_its_marks(world: LogWorld) -> None:
    """What cannot be read is kept with a mark: values, keys, and tombstones, which are no errors."""
    world.create()
    world.produce(
        ("a", b'{"version": 5, "name": "x", "nested": {"version": 6}}'),
        ("a", b'{"nested": {"version": 6}}'),
        ("a", b'{"version": 5, "name": "cut o'),
        ("a", b"\xff\xfe"),
        ("a", None),
        (None, event(1)),
        (b"\xff", event(2)),
        headers=[("event-id", "e-1")],
    )
    history = world.extend()
    rows = world.rows(history)
    assert ["5", None, None, None, None, "1", "2"] == [row["version"] for row in rows]
    assert [True, True, False, False, True, True, True] == [row["readable"] for row in rows]
    assert [4] == [row["offset"] for row in rows if row["tombstone"]]
    assert ["a"] * 5 + [None, None] == [row["id"] for row in rows]
    assert [b"a"] * 5 + [None, b"\xff"] == [row["key"] and bytes(row["key"]) for row in rows]
    assert [b'{"version": 5, "name": "cut o', b"\xff\xfe"] == [bytes(row["raw"]) for row in rows if row["raw"]]
    assert {"e-1"} == {row["event_id"] for row in rows}
    (segment,) = history.index.segments
    assert (1, 1, 2) == (segment.null_keys, segment.unreadable_keys, segment.unreadable_values)


ODD_VALUES = (
    *(
        b'{"version": 5}',
        b'{"version": "5", "type": null}',
        b'{"version": "\\u00e9"}',
        b'{"version": 123456789012345678901}',
    ),
    *(b'{"version": 5.0}', b'{"version": 1e2}', b'{"version": true}', b'{"version": {"a": 1}}', b'{"version": [1]}'),
    *(b'{"version": 1, "version": 2}', b'{"version": "\\ud800"}', b'{"a": NaN}', b'{"version": 01}', b'{"a": "\x01"}'),
    *(b"[1]", b"7", b"null", b"", b"{", b"{} {}", b"\xff", b'\xef\xbb\xbf{"version": 1}', b' {"version": 1}\n', None),
    *(b'{"type": {"name": "T"}}', b'{"type": "T"}', b'{"a": ' + b"[" * 1500 + b"]" * 1500 + b"}"),
    *(b'{"a": ' + b"1" * 1001 + b"}", b'{"a": 1.' + b"1" * 1001 + b"}"),
)


def test_records_read_without_spark_say_the_same(world: LogWorld) -> None:
    """Of the topic and of the history's files: what Spark makes of them, or that only Spark can tell."""
    world.options = {"type": "$.type.name", "correlation_id": "header:correlation"}
    world.create()
    world.produce(*(("a", value) for value in ODD_VALUES), headers=[("event-id", "e-1"), ("event-id", "e-2")])
    world.produce((None, event(1)), (b"\xff", event(2)), ("é", event(3)), partition=1)
    world.produce(("a", event(4)), headers=[("correlation", b"\xff"), ("event-id", None)], partition=1)
    derivation = Derivation.of(world.topic, all_headers=True)
    with closing(ClusterClient("main", world.cluster.resolve())) as cluster:
        log = PlainLog.of(cluster, world.topic, world.store, derivation)
        fresh = {}
        for place in ((partition, offset) for partition, end in world.ends().items() for offset in range(end)):
            with suppress(NeedsSparkError):
                (fresh[place],) = log.at(cluster, {place})
    history = world.extend(all_headers=True)
    kept = KeptLog(world.name, derivation, history.home, history.index)
    expected = {(row["partition"], row["offset"]): columns(row) for row in world.rows(history)}
    assert expected == {each.place: columns(vars(each)) for each in kept.all()}
    assert {place: expected[place] for place in fresh} == {place: columns(vars(each)) for place, each in fresh.items()}
    assert {(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)} <= fresh.keys()
    wanted = {place for place, row in expected.items() if row["id"] == "é"}
    assert wanted == {each.place for each in kept.with_value("id", "é")} == {each.place for each in kept.at(wanted)}


def columns(record: Row | Mapping[str, Any]) -> dict[str, Any]:
    """Give what both ways read of a record."""
    at = record["timestamp"]
    micros = at if isinstance(at, int) else round(at.astimezone(UTC).timestamp() * 1_000_000)
    names = ("id", "version", "event_id", "type", "correlation_id", "tombstone", "deletes", "readable")
    key, headers = record["key"], [tuple(each) for each in record["headers"] or ()]
    listed = [(name, value and bytes(value)) for name, value in headers]
    return {**{name: record[name] for name in names}, "key": key and bytes(key), "at": micros, "headers": listed}


def test_jsons_null_deletes_as_a_tombstone_does(world: LogWorld) -> None:
    """Connect's JSON converter without schemas writes so the tombstones that `ExtractNewRecordState` gives a schema."""
    world.create()
    world.produce(("a", event(1)), ("a", b"null"))
    rows = world.rows(world.extend())
    marks = [(row["readable"], row["deletes"], row["tombstone"], row["value"]) for row in rows[1:]]
    assert [(True, True, False, None)] == marks


@pytest.mark.parametrize(
    "value",
    ["[1]", "7", '"text"', "null", "", " ", "{", "{}}", "{} {}", "{'a': 1}", '{"a": NaN}', '{} ] {"b": 1}', "{}, {}"],
)
def test_a_value_that_is_no_json_object_cannot_be_read(world: LogWorld, value: str) -> None:
    """Only what the standard calls one object, and nothing behind it, counts as read."""
    from reconcile.gather.log import json_objects

    frame = world.spark.createDataFrame([(value,), ('{"version": 1}\n',)], "text string")
    read, at = json_objects.with_paths(frame, "text", ["$.version"], "readable")
    rows = read.select("readable", at["$.version"].alias("version")).collect()
    assert [(False, None), (True, "1")] == [(row["readable"], row["version"]) for row in rows]


@pytest.mark.parametrize("way", WAYS)
def test_headers_are_kept_as_they_are(world: LogWorld, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """All headers, in their order, with their bytes, also repeated ones and those without a value."""
    read_by(way, monkeypatch)
    world.create()
    told: list[tuple[str, bytes | None]] = [("event-id", b"e-1"), ("x", b"\xff\x00"), ("none", None), ("x", b"")]
    world.produce(("a", event(1)), headers=told)
    world.produce(("a", event(2)))
    rows = world.rows(world.extend(all_headers=True))
    found = [[(each["key"], each["value"] and bytes(each["value"])) for each in row["headers"] or ()] for row in rows]
    assert [[(name, value and bytes(value)) for name, value in told], []] == found


def test_of_repeated_headers_the_last_one_tells(world: LogWorld) -> None:
    """A located header gives its last value, one that is no text gives none, and nobody pays for the others."""
    world.create()
    world.options = {"type": "header:type"}
    world.produce(("a", event(1)), headers=[("event-id", "first"), ("event-id", "last"), ("type", b"\xff")])
    world.produce(("a", event(2)), headers=[("other", "x")])
    history = world.extend()
    rows = [(row["event_id"], row["type"]) for row in world.rows(history)]
    assert [("last", None), (f"{world.name}-0@1", None)] == rows
    assert "headers" not in history.records(world.spark).columns


def test_records_of_some_ids(world: LogWorld) -> None:
    """A few ids, many ids and a DataFrame of ids give these ids' records and no others."""
    world.create()
    world.produce(*((f"k{i % 40}", event(i)) for i in range(120)))
    history = world.extend()
    wanted = [f"k{i}" for i in range(20)]
    for ids in (wanted[:3], wanted, world.spark.createDataFrame([(each,) for each in wanted * 2], "id string")):
        found = [row["id"] for row in history.records(world.spark, ids).collect()]
        expected = set(ids) if isinstance(ids, list) else set(wanted)
        assert (3 * len(expected), expected) == (len(found), set(found))


def test_records_from_some_offsets_on(world: LogWorld) -> None:
    """Those at or past the offset of their partition; a segment that holds none of them is not read."""
    world.create()
    for turn in range(3):
        world.produce(*((f"k{turn}{i}", event(i)) for i in range(4)), partition=turn % 2)
        history = world.extend()
    newer = history.records_from(world.spark, {0: 6, 1: 4})
    assert {row["id"] for row in newer.collect()} == {
        row["id"] for row in history.ids_from(world.spark, {0: 6, 1: 4}).collect()
    }
    assert [(0, 6), (0, 7)] == sorted((row["partition"], row["offset"]) for row in newer.collect())
    assert 1 == len({name.split("/segments/")[1].split("/")[0] for name in newer.inputFiles()})
    assert 0 == history.records_from(world.spark, {0: 8, 1: 4}).count()


def test_debezium_rows_are_read_like_any_other(world: LogWorld) -> None:
    """An envelope, bare or with its schema, gives the row; a delete deletes; its position names the event."""
    world.create()
    world.options = {"format": "debezium-json", "version": "$.version", "event_id": None, "type": "$.__op"}
    source = {"connector": "postgresql", "name": "db", "lsn": 77, "txId": 5, "snapshot": "false"}
    row = {"id": 1, "version": 3, "tags": {"a": "}"}}
    change = {"op": "u", "before": None, "after": row, "source": source}
    world.produce(
        ("1", change),
        ("1", {"schema": {"type": "struct"}, "payload": change}),
        ("1", {"op": "d", "before": {"id": 1, "version": 3}, "after": None, "source": source}),
        ("1", None),
        ("1", {"version": 3}),
    )
    rows = world.rows(world.extend())
    assert ["3", "3", None, None, None] == [row["version"] for row in rows]
    assert ["u", "u", "d", None, None] == [row["type"] for row in rows]
    assert [False, False, True, True, False] == [row["deletes"] for row in rows]
    assert [True, True, True, True, False] == [row["readable"] for row in rows]
    assert ["postgresql:db:77:5"] * 3 == [row["event_id"] for row in rows[:3]]
    assert f"{world.name}-0@3" == rows[3]["event_id"]
    assert {**row, "__source": source, "__op": "u"} == json.loads(rows[1]["value"])


def test_a_position_that_is_none_names_nothing(world: LogWorld) -> None:
    """Whatever stands where an envelope has its source: the row is read if it can be, and the history goes on."""
    world.create()
    world.options = {"format": "debezium-json", "version": "$.version", "event_id": None}
    change = {"op": "u", "after": {"id": 1, "version": 3}}
    world.produce(
        ("1", {**change, "source": "by hand"}),
        ("1", {**change, "source": [1]}),
        ("1", {**change, "source": '{"lsn": ' + "9" * 5000 + "}"}),
    )
    rows = world.rows(world.extend())
    assert ["3", "3", None] == [row["version"] for row in rows]
    assert [True, True, False] == [row["readable"] for row in rows]
    assert [f"{world.name}-0@{offset}" for offset in range(3)] == [row["event_id"] for row in rows]


def test_avro_is_read_with_the_schema_of_a_file(world: LogWorld, tmp_path: Path) -> None:
    """Values become JSON text; what the schema does not read is kept with a mark."""
    (tmp_path / "user.avsc").write_text(json.dumps(SCHEMA), "utf-8")
    world.create()
    world.options = {"format": "avro", "schema": {"file": "user.avsc"}}
    world.produce(("a", _avro("Zoë", 2**53 + 1)), ("a", b"\x01"), ("a", None))
    rows = world.rows(world.extend(values=value_reader(world.topic, tmp_path, Settings())))
    assert [str(2**53 + 1), None, None] == [row["version"] for row in rows]
    assert [True, False, True] == [row["readable"] for row in rows]
    assert [{"name": "Zoë", "version": 2**53 + 1}] == [json.loads(row["value"]) for row in rows if row["value"]]
    assert [b"\x01"] == [bytes(row["raw"]) for row in rows if row["raw"] is not None]


def test_avro_is_read_with_the_schema_that_a_registry_gives(world: LogWorld, registry: Registry) -> None:
    """Each value names its schema by number; one that the registry does not know cannot be read."""
    world.create()
    world.options = {"format": "avro", "schema": {"registry": "registry"}}
    world.produce(*(("a", struct.pack(">bI", 0, number) + _avro("Zoë", 4)) for number in (1, 99)))
    rows = world.rows(
        world.extend(values=value_reader(world.topic, Path(), Settings(connections={"registry": registry})))
    )
    assert [("4", True), (None, False)] == [(row["version"], row["readable"]) for row in rows]


@pytest.mark.parametrize(
    ("key_type", "keys"),
    [
        ("string", [b"", "Zoë".encode(), b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80"]),
        ("uuid-bytes", [bytes(range(16)), bytes(15), bytes(17), b"\xff" * 16]),
        ("int64", [bytes(8), b"\xff" * 8, b"\x80" + bytes(7), b"\x7f" + b"\xff" * 7, bytes(7), bytes(range(8))]),
        ("json", [b'"a"', b"1.50", b'["a", 1]', b"null", b"{", b'{"id" : 7}']),
    ],
)
def test_keys_give_the_ids_that_the_domain_reads(spark: SparkSession, key_type: str, keys: list[bytes]) -> None:
    """Spark's ids are those of `domain.key`, and give the key's bytes back wherever they are left out."""
    from pyspark.sql import functions as f

    from reconcile.domain.key import decode
    from reconcile.gather.log import record_keys

    frame = spark.createDataFrame([(bytearray(each),) for each in keys] + [(None,)], "key binary")
    found = frame.select("key", record_keys.decoded(f.col("key"), key_type).alias("id"))
    back = record_keys.encoded(f.col("id"), key_type)
    rows = found.withColumn("back", f.lit(None).cast("binary") if back is None else back).collect()
    assert [decode(each, key_type) for each in [*keys, None]] == [row["id"] for row in rows]
    if back is not None:
        assert [row["key"] for row in rows if row["id"] is not None] == [
            row["back"] for row in rows if row["back"] is not None
        ]


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A connection to a registry with one schema."""
    held = schema_registry.Registry()
    held.register("user-value", json.dumps(SCHEMA))
    with schema_registry.serving(held):
        yield Registry.model_validate({"registry": held.url})


def _avro(name: str, version: int) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, parse_schema(SCHEMA), {"name": name, "version": version})
    return stream.getvalue()
