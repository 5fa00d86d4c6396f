"""Repairs of worlds that are nothing like the lab's: their own consumers take corrections for what they are used to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
import yaml
from confluent_kafka.admin import NewTopic
from psycopg2 import sql

from reconcile.domain.plan import Plan
from reconcile.domain.plan_rules import Action
from reconcile.lab.process import wait_until
from reconcile.lab.services.consumer import Group
from reconcile.lab.services.copies import Record
from reconcile.lab.services.database import connected
from reconcile.lab.services.offsets import admin_client, led
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.handoffs import Verified
from tests.integration.foreign_worlds import keyed, named, orders, written
from tests.integration.foreign_worlds.servers import Servers
from tests.integration.foreign_worlds.world import Row, Table, Topic, World, taking
from tests.integration.runs import Runs, apply, findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


RACKS = """
version: 1
aggregate: racks
source: {store: origin, table: racks.rack, id: id}
topic:
  cluster: main
  name: foreign.racks
  delete: $.gone == true
  value: {id: id, gone: id = 'rack 2', width: height}
consumers:
  - name: plan
    group: racks.plan
    isolation: read_committed
    store: copies
    table: racks.plan
    id: rack
    fields:
      - {name: width, source: width, consumer: width, event: $.width, tolerance: 0.5}
      - {name: height, source: height, consumer: height, event: cast($.height as int)}
    settle: {timeout: 0s, confirm_after: 0s}
    repair: {max_ratio: 1}
"""


@dataclass(frozen=True)
class Way:
    """How a world's records are written and heard."""

    build: Callable[[], World]
    value: Mapping[str, str]
    """What the contract says of `topic.value`."""
    row: Callable[[str, Record], Row | None]
    """What the consumer makes of a record that carries a state: columns of its row; None where it deletes it."""
    entry: Callable[[Record], Row] | None = None
    """What the consumer notes in its ledger."""
    id_of: Callable[[bytes], str] = bytes.decode
    topic: str | None = None
    """The topic that corrections take, where that is not the main one."""


def wagon(name: str, record: Record) -> Row:
    """Read Avro behind the frame, or without one, with the library that any service would use."""
    from fastavro import parse_schema, schemaless_reader

    value = record.value or b""
    body: Any = schemaless_reader(BytesIO(value[5 * (value[:1] == b"\0") :]), parse_schema(written.WAGON), None)
    owner = body["owner"] and body["owner"]["name"]
    return {"wagon": name, "rev": body["rev"].replace(tzinfo=None), "load": body["load"], "owner": owner} | {
        "due": body["due"]
    }


def car(name: str, record: Record) -> Row:
    """Read what Debezium's consumers read."""
    envelope = record.body()
    after = envelope.get("payload", envelope)["after"]
    assert name == str(after["id"])
    return {"car": after["id"], "plate": after["plate"], "seats": after["seats"]}


def source_position(record: Record) -> str:
    """Name an event as Debezium's consumers do; all corrections have one name."""
    envelope = record.body()
    source = envelope.get("payload", envelope)["source"]
    return ":".join(str(source[name]) for name in ("connector", "name", "lsn", "txId"))


def order(name: str, record: Record) -> Row | None:
    """Read an order as billing does: labels in capitals."""
    if record.body()["meta"]["is-gone"]:
        return None
    tenant, number = json.loads(name)
    said = record.body()["order"]
    kept = {"org": tenant, "order_no": number, "rev": int(record.headers["rev"]), "label": said["name"].upper()}
    title = f"{said['name']} / {said['x-city']}"
    return {**kept, "city": said["x-city"] or "?", "title": title, "total": said["money"]["total"]}


def part(name: str, record: Record) -> Row:
    """Read a part as the stock does: no event tells of its tags."""
    said = record.body()
    made = datetime.fromisoformat(said["made"])
    assert made.utcoffset() == timedelta(hours=2)
    told = {each: said[each] for each in ("weight", "active", "due", "remark")}
    return {
        **told,
        "part": name,
        "price_text": said["price"],
        "made": made.replace(tzinfo=None) - timedelta(hours=2),
        "maker_text": said["maker"],
        "specs": json.dumps(said["specs"]),
    }


def person(name: str, record: Record) -> Row:
    """Read a card."""
    return {"person": name, "name": record.body()["name"], "nick": record.body()["nick"]}


WAYS = {
    "wagons": Way(
        written.wagons,
        {
            "rev": "changed_at",
            "load": "load",
            "owner": "case when owner is not null then json_build_object('name', owner) end",
            "due": "due",
        },
        wagon,
    ),
    "cars": Way(
        written.cars,
        {"id": "id", "version": "version", "plate": "plate", "seats": "seats"},
        car,
        entry=lambda record: {"event": source_position(record), "noted": datetime.now(UTC)},
    ),
    "orders": Way(
        orders.orders,
        {
            "meta": "json_build_object('type', 'changed', 'is-gone', gone)",
            "order": "json_build_object('name', name, 'x-city', city, 'money', json_build_object('total', total))",
        },
        order,
        entry=lambda record: {"message_id": record.headers["message-id"].decode(), "noted": datetime.now(UTC)},
    ),
    "parts": Way(
        keyed.parts,
        {
            **{name: name for name in ("id", "price", "weight", "active", "specs", "maker", "due", "remark")},
            "made": "to_char(made at time zone interval '2 hours', 'YYYY-MM-DD\"T\"HH24:MI:SS.US') || '+02:00'",
        },
        part,
        id_of=lambda key: str(UUID(bytes=key)),
    ),
    "people": Way(
        named.people,
        {"id": "id", "version": "version", "name": "name", "nick": "nick"},
        person,
        topic="foreign.people.repair",
    ),
}


@dataclass(frozen=True)
class Repaired:
    """A repair, and the run after it."""

    plan: Plan
    verified: Verified
    after: dict[tuple[str, str], dict[str, Any]]


class Repairs:
    """The worlds, each repaired when it is first asked for."""

    def __init__(self, servers: Servers, runs: Runs) -> None:
        self.servers, self.runs = servers, runs
        self.worlds = {name: way.build() for name, way in WAYS.items()}
        servers.make(list(self.worlds.values()))
        self._done: dict[str, Repaired] = {}

    def of(self, name: str) -> Repaired:
        """Repair a world."""
        if name not in self._done:
            contract = self._contract(name)
            job, _ = self.runs.audited(contract, name)
            plan = pipeline.plan(job)
            assert [] == plan.reasons
            apply(job)
            self._consume(name)
            verified = pipeline.verify(job)
            again, _ = self.runs.audited(contract, f"{name}-again")
            self._done[name] = Repaired(plan, verified, findings(again))
        return self._done[name]

    def _contract(self, name: str) -> Path:
        file, topic = self.servers.contract(self.worlds[name]), WAYS[name].topic
        said = yaml.safe_load(file.read_text("utf-8"))
        said["topic"]["value"] = dict(WAYS[name].value)
        said["consumers"][0]["repair"] = {"deletes": True, "max_ratio": 1.0}
        if topic is not None:
            said["consumers"][0]["repair"]["route"] = {"topic": topic}
            admin = admin_client(self.servers.lab.bootstrap)
            admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
            wait_until(lambda: led(admin, topic, 3), f"{topic} has no leaders", 30)
        file.write_text(yaml.safe_dump(said, sort_keys=False))
        return file

    def _consume(self, name: str) -> None:
        world, way = self.worlds[name], WAYS[name]
        (copy,) = world.copies.values()
        group = Group(self.servers.lab.bootstrap, copy.group, way.topic or world.topic.name)
        with connected(self.servers.url("copies")) as cursor:
            for record in group.poll():
                assert record.key is not None
                id_text = way.id_of(record.key)
                self._apply(cursor, world, id_text, None if record.value is None else way.row(id_text, record))
                if copy.ledger is not None and way.entry is not None and record.value is not None:
                    self._insert(cursor, sql.Identifier(world.name, copy.ledger.name), way.entry(record))
        group.commit()

    def _apply(self, cursor: Any, world: World, id_text: str, row: Row | None) -> None:
        (consumer,) = yaml.safe_load(world.contract)["consumers"]
        several = isinstance(consumer["id"], list)
        columns = consumer["id"] if several else [consumer["id"]]
        ids = [str(each) for each in (json.loads(id_text) if several else [id_text])]
        table = sql.Identifier(world.name, consumer["name"])
        same = sql.SQL(" and ").join(sql.SQL("{}::text = %s").format(sql.Identifier(column)) for column in columns)
        if row is None:
            cursor.execute(sql.SQL("delete from {} where {}").format(table, same), ids)
            return
        named = sql.SQL(", ").join(map(sql.Identifier, row))
        values = sql.SQL(", ").join(sql.Placeholder() * len(row))
        changed = sql.SQL("update {} set ({}) = row({}) where {}").format(table, named, values, same)
        cursor.execute(changed, [*row.values(), *ids])
        if not cursor.rowcount:
            self._insert(cursor, table, row)

    def _insert(self, cursor: Any, table: sql.Composable, row: Row) -> None:
        named = sql.SQL(", ").join(map(sql.Identifier, row))
        values = sql.SQL(", ").join(sql.Placeholder() * len(row))
        cursor.execute(sql.SQL("insert into {} ({}) values ({})").format(table, named, values), list(row.values()))


@pytest.fixture(scope="module")
def repairs(servers: Servers, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Repairs:
    """All worlds, made."""
    return Repairs(servers, Runs(spark, servers.settings, tmp_path_factory.mktemp("repairs")))


@pytest.mark.parametrize("name", WAYS)
def test_every_correction_converges(repairs: Repairs, name: str) -> None:
    """The copy agrees once its consumer has taken what came."""
    done = repairs.of(name)
    corrections = list(done.plan.corrections)
    assert corrections
    assert {"converged": len(corrections)} == done.verified.links[0].outcomes


@pytest.mark.parametrize("name", WAYS)
def test_the_next_run_finds_what_was_left(repairs: Repairs, name: str) -> None:
    """And nothing that the repair has brought about."""
    done = repairs.of(name)
    left = {
        (link.link, each.aggregate_id): each.cause
        for link in done.plan.links
        for each in link.items
        if each.action in (Action.ADVICE, Action.NOT_REPAIRED)
    }
    assert left == {key: each["cause"] for key, each in done.after.items()}


def racks() -> World:
    """Three of which the consumer has missed the last event."""
    world = World(
        "racks", RACKS, Table("rack", "id text, width float, height int"), Topic("foreign.racks", 2), version=None
    )
    columns = taking(rack=lambda row: row["id"], width=lambda row: row["width"], height=lambda row: row["height"])
    world.copy("plan", "rack text, width float, height int", columns)
    for number in range(20):
        world.change(f"rack {number}", width=float(number), height=number)
    for number in range(3):
        world.change(f"rack {number}", to=(), width=9.0, height=9 + number)
    return world


@pytest.fixture(scope="module")
def racked(servers: Servers) -> Path:
    """The contract of the racks, which are there."""
    world = racks()
    servers.make([world])
    return servers.contract(world)


def test_a_value_that_says_something_else_refuses_the_plan(
    racked: Path, servers: Servers, spark: SparkSession, tmp_path: Path
) -> None:
    """What a correction would bring is read as an event, and held against the source, before anything is emitted."""
    job, _ = Runs(spark, servers.settings, tmp_path).audited(racked, "racks")
    lacking, deleting, width, height = pipeline.plan(job).reasons
    assert "topic.value leaves out $.height, which all records carry" in lacking
    assert "1 of 3 corrections would be taken for deletions: topic.value fulfils topic.delete" in deleting
    assert "2 of 3 corrections would bring another width than the source's" in width
    assert "3 of 3 corrections would bring another height than the source's" in height


@pytest.mark.parametrize(("text", "condition"), [
    ("(width * 49123456789)::int", "numeric value out of range (SQLSTATE 22003)"),
    ("now() at time zone (id || ' at 49123456789')", "invalid parameter value (SQLSTATE 22023)"),
    ("(id || ' at 49123456789')::int", "invalid text representation (SQLSTATE 22P02)"),
])  # fmt: skip
def test_what_the_store_cannot_compute_is_told_without_the_value(
    racked: Path, servers: Servers, spark: SparkSession, tmp_path: Path, text: str, condition: str
) -> None:
    """A database's own message holds the row's values; a plan's file must not."""
    said = yaml.safe_load(racked.read_text("utf-8"))
    said["topic"]["value"]["width"] = text
    contract = racked.with_name("racks-refused.yaml")
    contract.write_text(yaml.safe_dump(said, sort_keys=False))
    job, _ = Runs(spark, servers.settings, tmp_path).audited(contract, "racks-refused")
    (reason,) = pipeline.plan(job).reasons
    assert f"refuses what topic.value.width gives for a row: {condition}" in reason
    assert "49123456789" not in reason
