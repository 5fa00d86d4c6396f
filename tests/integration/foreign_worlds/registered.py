"""Worlds whose values name their schema in a registry, written and read by Confluent's own serializers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests import protobuf_schemas as proto
from tests.integration.foreign_worlds.world import Row, Table, Topic, World, taking

CONTRACT = """
version: 1
aggregate: {name}
source: {{store: origin, table: {name}.item, id: id, version: version}}
topic:
  cluster: main
  name: foreign.{name}
  format: {form}
  schema: {{registry: schemas}}
  version: $.version
{more}
  value: {{id: id, version: version, label: label, at: at, price: "{price}"}}
consumers:
  - name: shop
    group: {name}.shop
    isolation: read_committed
    store: copies
    table: {name}.shop
    id: item
    version: version
    fields:
      - {{name: label, source: label, consumer: label, event: $.label}}
      - {{name: price, source: price, consumer: price, event: $.{path}}}
      - {{name: at, source: at, consumer: at, event: $.at}}
    settle: {{timeout: 0s, confirm_after: 0s}}
    repair: {{max_ratio: 1.0}}
"""
BESIDE = "  type: $.__type\n  ignore_types: [{0}]"
MONEY = {
    "type": "record",
    "name": "Money",
    "namespace": "shop",
    "fields": [{"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}}],
}
ITEM = {
    "type": "record",
    "name": "Item",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "version", "type": "long"},
        {"name": "label", "type": ["null", "string"], "default": None},
        {"name": "price", "type": "shop.Money"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
SEEN = {
    "type": "record",
    "name": "Seen",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "string"}, {"name": "times", "type": "int"}],
}
PAPER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Paper",
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "version": {"type": "integer"},
        "label": {"type": ["string", "null"]},
        "price": {"type": "number"},
        "at": {"type": "string"},
    },
    "required": ["id", "version", "price"],
    "additionalProperties": False,
}
_MONEY = proto.file("money.proto", proto.message("Money", proto.field(1, "amount", "string")))
_ITEM = proto.file(
    "item.proto",
    proto.message("Seen", proto.field(1, "id", "string"), proto.field(2, "times", "int32")),
    proto.message(
        "Item",
        *(proto.field(1, "id", "string"), proto.field(2, "version", "int64"), proto.present(3, "label", "string", 0)),
        *(proto.field(4, "price", ".shop.Money"), proto.field(5, "at", ".google.protobuf.Timestamp")),
        'oneof_decl { name: "_label" }',
    ),
    imports=("money.proto", "google/protobuf/timestamp.proto"),
)
POOL = proto.pool(_MONEY, _ITEM)
Item, Seen = proto.new(POOL, "Item"), proto.new(POOL, "Seen")


@dataclass(frozen=True)
class Written:
    """How values of a topic are written and read by those who own it."""

    form: str
    price: str
    """How `topic.value` gives the price."""
    path: str
    write: Callable[[Row], bytes]
    see: Callable[[str], bytes] | None
    """Writes an event of another type, of which copies keep nothing."""
    read: Callable[[bytes], Row]
    """What the consumer keeps of a value."""
    seen: str = ""
    key: Callable[[str], bytes] = str.encode

    def world(self, name: str) -> World:
        """Build a world: what was lost, never told, not readable, and written by somebody else."""
        more = BESIDE.format(self.seen) if self.seen else ""
        more += "" if self.key is str.encode else "  key: {type: schema}"
        text = CONTRACT.format(name=name, form=self.form, more=more, price=self.price, path=self.path)
        world = World(
            name,
            text,
            Table("item", "id text, version bigint, label text, price numeric(12,2), at timestamptz"),
            Topic(f"foreign.{name}", 3),
            value=self.write,
            key=self.key,
        )
        columns = {"item": "id", **{each: each for each in ("version", "label", "price", "at")}}
        shop = world.copy(
            "shop",
            "item text, version bigint, label text, price numeric, at timestamptz",
            taking(**{ours: (lambda row, theirs=theirs: row[theirs]) for ours, theirs in columns.items()}),
        )
        names = [f"item {number}" for number in range(60)]

        def fields() -> Row:
            draw, day = world.random, datetime(2026, 1, 1, tzinfo=UTC)
            at = day + timedelta(microseconds=draw.randrange(10**13))
            return {
                "label": draw.choice([None, "Öl", "Tee"]),
                "price": Decimal(draw.randrange(1, 10**6)) / 100,
                "at": at,
            }

        for _ in range(2):
            for each in names:
                world.change(each, **fields())
        skipped, never, broken, unknown, foreign = names[:5]
        world.change(skipped, to=(), price=Decimal("1.25"))
        world.expect("shop", skipped, "changed", "skipped", ("price",))
        world.write(never, price=Decimal("2.50"))
        world.expect("shop", never, "changed", "never_published", ("price",))
        for each, value in ((broken, b"no magic"), (unknown, b"\0\0\x0f\xff\xff\x02")):
            world.now += timedelta(minutes=1)
            world.write(each, price=Decimal("3.75"))
            world.put(world.key(each), value)
            world.expect("shop", each, "changed", "schema_violation", ("price",))
        shop.table.rows[foreign]["price"] += 1
        world.expect("shop", foreign, "changed", "foreign_write", ("price",))
        if self.see is not None:
            for each in names[5:] * 4:  # all of the newest records are of the other type
                world.put(world.key(each), self.see(each))
        return world


def ways(url: str) -> Mapping[str, Written]:
    """Build the topics' schemas in a registry, with what writes and reads them."""
    client = SchemaRegistryClient({"url": url})
    money = SchemaReference("shop.Money", "money", 1)
    client.register_schema("money", Schema(json.dumps(MONEY), "AVRO"))
    client.register_schema("foreign.shelves-value", Schema(json.dumps(ITEM), "AVRO", [money]))
    client.register_schema("item", Schema(json.dumps(ITEM), "AVRO", [money]))
    client.register_schema("seen", Schema(json.dumps(SEEN), "AVRO"))
    both = [SchemaReference(f"shop.{each.title()}", each, 1) for each in ("item", "seen")]
    client.register_schema("foreign.parcels-value", Schema('["shop.Item", "shop.Seen"]', "AVRO", both))
    as_registered = {"auto.register.schemas": False, "use.latest.version": True}
    avro, read_avro = AvroSerializer(client, conf=as_registered), AvroDeserializer(client)
    union, read_union = AvroSerializer(client, conf=as_registered), AvroDeserializer(client, return_record_name=True)
    paper, read_paper = JSONSerializer(json.dumps(PAPER), client), JSONDeserializer(json.dumps(PAPER))
    tank, sight = ProtobufSerializer(Item, client), ProtobufSerializer(Seen, client)
    read_tank = ProtobufDeserializer(Item, schema_registry_client=client)

    keys = AvroSerializer(client, '"string"')

    def at(name: str) -> SerializationContext:
        return SerializationContext(f"foreign.{name}", MessageField.VALUE)

    def item(row: Row) -> Row:
        return {**row, "price": {"amount": row["price"]}}

    def kept(row: Any) -> Row:
        return {**row, "price": row["price"]["amount"]}

    def message(row: Row) -> Any:
        found = Item(id=row["id"], version=row["version"], label=row["label"])
        found.price.amount = str(row["price"])
        found.at.FromDatetime(row["at"])
        return found

    def of_message(value: bytes) -> Row:
        found: Any = read_tank(value, at("tanks"))
        label = found.label if found.HasField("label") else None
        when = found.at.ToDatetime(UTC)
        return {
            "id": found.id,
            "version": found.version,
            "label": label,
            "price": Decimal(found.price.amount),
            "at": when,
        }

    def of_union(value: bytes) -> Row:
        name, row = read_union(value, at("parcels"))
        assert name == "shop.Item"
        return kept(row)

    def printed(row: Row) -> Row:
        return {**row, "price": float(row["price"]), "at": row["at"].isoformat()}

    def of_paper(value: bytes) -> Row:
        row: Any = read_paper(value, at("papers"))
        return {**row, "price": Decimal(str(row["price"])), "at": datetime.fromisoformat(row["at"])}

    amount = "json_build_object('amount', price)"
    return {
        "shelves": Written(
            *("avro", amount, "price.amount", lambda row: avro(item(row), at("shelves")), None),
            lambda value: kept(read_avro(value, at("shelves"))),
        ),
        "parcels": Written(
            *("avro", amount, "price.amount", lambda row: union(("shop.Item", item(row)), at("parcels"))),
            lambda name: union(("shop.Seen", {"id": name, "times": 3}), at("parcels")),
            of_union,
            "shop.Seen",
        ),
        "papers": Written(
            *("json-schema", "price", "price", lambda row: paper(printed(row), at("papers")), None, of_paper),
            key=lambda name: keys(name, SerializationContext("foreign.papers", MessageField.KEY)),
        ),
        "tanks": Written(
            *("protobuf", amount, "price.amount", lambda row: tank(message(row), at("tanks"))),
            lambda name: sight(Seen(id=name, times=3), at("tanks")),
            of_message,
            "shop.Seen",
        ),
    }
