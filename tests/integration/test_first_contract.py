"""From an empty folder to a first contract: the commands of docs/first-contract.md, on a shop that is not the lab's."""

from __future__ import annotations

import gc
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from psycopg2 import sql
from psycopg2.extras import execute_values

from reconcile.cli.contract import contract
from reconcile.contract.model import load_contract
from reconcile.errors import ReconcileError
from reconcile.files import committed
from reconcile.lab.folder import Lab
from reconcile.lab.kafka import Kafka
from reconcile.lab.postgres import PostgresServer
from reconcile.lab.process import remove_tree, wait_until
from reconcile.lab.schema_registry import Registry, serving
from reconcile.lab.services import offsets
from reconcile.lab.services.database import connected
from reconcile.lab.world import provide_topics
from reconcile.settings.settings import load_settings
from tests.ports import ports_of

Headers = list[tuple[str, str | bytes | None]]

TEN_MINUTES = 600
TOPICS = {"product": 3, "product.search.dlq": 1, "stranger": 1, "silent": 1}
DATABASES = ("shop", "search", "orders")
SHOP = """
    create table product (id bigint primary key, name text, maker text, price numeric(10,2), country char(2),
        weight real, on_sale boolean, released date, "order" integer, version integer, created_at timestamptz,
        updated_at timestamptz, deleted_at timestamptz);
    create table outbox (position bigserial primary key, aggregate_id text, topic text, payload jsonb,
        created_at timestamptz default now(), published_at timestamptz default now());
    create table variant (product_id bigint, size text, stock integer, primary key (product_id, size));
    create table nothing (id bigint primary key, name text);
    create view price_list as select id, name, price from product where deleted_at is null;
"""
SEARCH = """
    create table search_document (product_id bigint primary key, title text, label text, price_cents bigint,
        country text, released date, views integer, indexed_at timestamptz default now(), version integer);
    create table variant (product_id bigint, size text, stock integer, primary key (product_id, size));
    create table nothing (product_id bigint primary key, title text);
"""
ORDERS = """
    create table ordered_product (sku text primary key, name text, price numeric(10,2), weight real, on_sale boolean);
    create table processed_message (event_id text primary key, processed_at timestamptz default now());
"""
LATE, EDITED = "17", "42"
"""The product whose last event was given up, and the one that somebody edited in the copy of the orders."""


@dataclass
class Shop:
    """A service of products, a search index and the service of the orders, on servers of their own."""

    lab: Lab
    events: list[str] = field(default_factory=list)

    def url(self, database: str, role: str = "postgres") -> str:
        """A database's URL."""
        return self.lab.url(database, role)

    def environment(self) -> dict[str, str]:
        """What a user would have exported."""
        urls = {f"{name.upper()}_URL": self.url(name) for name in DATABASES}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, **urls, "PATH": path}

    def run(self, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a command line in a folder; the page's cluster is ours."""
        command = command.replace("localhost:9092", str(self.lab.bootstrap))
        return subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=900,
        )

    def drafted(self, folder: Path, **given: str) -> Result:
        """Draft for the search index, with some things said otherwise."""
        sides = {"source": "env:SHOP_URL:product", "copy": "env:SEARCH_URL:search_document@search-indexer"}
        said = {"cluster": str(self.lab.bootstrap), "topic": "product", **sides, **given}
        (folder / "none.yaml").write_text("workspace: runs")
        options = ["--config", str(folder / "none.yaml")]
        options += [part for name, value in said.items() for part in (f"--{name}", value)]
        return CliRunner().invoke(contract, ["draft", *options], env=self.environment())


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """The world, with two products that drifted."""
    ports = ports_of("first contract")
    lab = Lab(Path(tempfile.gettempdir()) / f"reconcile-test-{ports.postgres}" / "lab")
    postgres, kafka = PostgresServer(lab), Kafka(lab)

    def clear() -> None:
        for server in (kafka, postgres):
            server.down()
            server.wipe()
        remove_tree(lab.root.parent)

    clear()
    lab.root.mkdir(parents=True)
    lab.remember(ports=ports)
    try:
        postgres.up()
        kafka.up()
        yield made(Shop(lab))
    finally:
        clear()
        gc.collect()  # the clients in the frames of errors would go on asking for this broker


def made(shop: Shop) -> Shop:
    """Fill the world: each product is published twice, and both copies took all but what was planted."""
    with connected(shop.url("postgres"), autocommit=True) as cursor:
        for name in DATABASES:
            cursor.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    for name, statements in zip(DATABASES, (SHOP, SEARCH, ORDERS), strict=True):
        with connected(shop.url(name)) as cursor:
            cursor.execute(statements)
    provide_topics(shop.lab, TOPICS)
    admin = offsets.admin_client(shop.lab.bootstrap)
    for topic, count in TOPICS.items():
        wait_until(partial(offsets.led, admin, topic, count), f"{topic} has no leaders", 60)
    rows = [product(number, version) for version in (1, 2) for number in range(1, 301)]
    places = publish(shop, rows)
    newest = {row["id"]: row for row in rows}
    gone = newest.pop(300)
    write(shop, "shop", "product", [*newest.values(), {**gone, "deleted_at": "2026-02-01T00:00:00Z"}])
    write(shop, "shop", "outbox", [{"aggregate_id": str(row["id"]), "topic": "product"} for row in rows[:20]])
    former = {int(LATE): rows[int(LATE) - 1]}
    write(shop, "search", "search_document", [document({**newest, **former}[number]) for number in newest])
    edited = {str(number): ordered(row) for number, row in newest.items()}
    edited[EDITED]["price"] = "0.01"
    write(shop, "orders", "ordered_product", list(edited.values()))
    write(shop, "orders", "processed_message", [{"event_id": each} for each in shop.events])
    give_up(shop, rows[300 + int(LATE) - 1], places[300 + int(LATE) - 1])
    for group in ("search-indexer", "orders"):
        offsets.commit(shop.lab.bootstrap, group, "product", offsets.ends(admin, "product"))
    offsets.commit(shop.lab.bootstrap, "search-indexer", "silent", {0: 0})
    offsets.commit(shop.lab.bootstrap, "search-indexer", "stranger", {0: 1})
    return shop


def product(number: int, version: int) -> dict[str, Any]:
    """A product as the shop has it."""
    return {
        "id": number,
        "name": f"Thing {number * 7919 % 1000} of {version}",
        "maker": f"Maker{number % 23}",
        "price": f"{number * 37 % 900 + version}.{number % 100:02}",
        "country": ("DE", "FR", "IT", "PL")[number % 4],
        "weight": number / 8,
        "on_sale": number % 3 == 0,
        "released": f"2025-{number % 12 + 1:02}-{number % 28 + 1:02}",
        "order": number % 50,
        "version": version,
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": f"2026-01-{version:02}T10:{number // 60:02}:{number % 60:02}Z",
    }


def document(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the search index keeps of it."""
    return {
        "product_id": row["id"],
        "title": row["name"],
        "label": f"{row['maker']}: {row['name']}",
        "price_cents": int(row["price"].replace(".", "")),
        "country": row["country"].lower(),
        "released": row["released"],
        "views": row["id"] * 31 % 7,
        "version": row["version"],
    }


def ordered(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the service of the orders keeps of it."""
    return {"sku": str(row["id"]), "name": row["name"].upper()} | {e: row[e] for e in ("price", "weight", "on_sale")}


def publish(shop: Shop, rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Publish each row as a plain producer does, then a tombstone for the last one; give the places."""
    producer = Producer({"bootstrap.servers": str(shop.lab.bootstrap)})
    places: dict[int, tuple[int, int]] = {}

    def sent(topic: str, number: int, key: bytes, value: bytes | None) -> None:
        def delivered(error: object, message: Any) -> None:
            assert error is None
            if topic == "product":
                places[number] = message.partition(), message.offset()

        headers: Headers = [("event-id", f"e-{number}".encode()), ("event-type", b"ProductChanged")]
        producer.produce(topic, key=key, value=value, headers=headers, on_delivery=delivered)
        if topic == "product":
            shop.events.append(f"e-{number}")

    for number, row in enumerate(rows):
        told = {"price": float(row["price"]), "attributes": {"weight": row["weight"], "country": row["country"]}}
        plain = {name: row[name] for name in ("id", "name", "maker", "version", "released")}
        told |= {**plain, "onSale": row["on_sale"]}
        sent("product", number, str(row["id"]).encode(), json.dumps(told).encode())
    sent("product", len(rows), b"300", None)
    sent("stranger", 0, b"somebody", b'{"name": "else"}')
    assert not producer.flush(60)
    return [places[number] for number in range(len(rows))]


def give_up(shop: Shop, row: Mapping[str, Any], place: tuple[int, int]) -> None:
    """Dead-letter an event as Spring does."""
    partition, offset = place
    headers: Headers = [
        ("kafka_dlt-original-topic", b"product"),
        ("kafka_dlt-original-partition", partition.to_bytes(4, "big")),
        ("kafka_dlt-original-offset", offset.to_bytes(8, "big")),
        ("kafka_dlt-original-consumer-group", b"search-indexer"),
        ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
    ]
    producer = Producer({"bootstrap.servers": str(shop.lab.bootstrap)})
    producer.produce("product.search.dlq", key=str(row["id"]).encode(), value=b"{}", headers=headers)
    assert not producer.flush(60)


def write(shop: Shop, database: str, table: str, rows: list[dict[str, Any]]) -> None:
    """Insert rows."""
    with connected(shop.url(database)) as cursor:
        by_columns: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
        for row in rows:
            by_columns.setdefault(tuple(row), []).append(tuple(row.values()))
        for columns, values in by_columns.items():
            named = sql.SQL(", ").join(map(sql.Identifier, columns))
            statement = sql.SQL("insert into {} ({}) values %s").format(sql.Identifier(table), named)
            execute_values(cursor, statement, values)


def commands() -> dict[str, int]:
    """Read the commands of the page, each with the code that it is said to exit with."""
    blocks = re.findall(r"```console\n(.*?)```", committed("docs", "first-contract.md").read_text("utf-8"), flags=re.S)
    lines = [line[2:].partition("#") for block in blocks for line in block.splitlines()]
    return {command.strip(): 1 if "exits 1" in comment else 0 for command, _, comment in lines}


def worked() -> float:
    """The seconds that a processor has worked for commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_from_an_empty_folder_to_a_first_contract(shop: Shop, tmp_path: Path) -> None:
    """The page's commands draft a contract that finds what was planted and nothing else, in less than ten minutes.

    The minutes are those that the commands work, however busy the machine is with others.
    """
    began = worked()
    for command, code in commands().items():
        done = shop.run(command, tmp_path)
        assert code == done.returncode, f"{command}: {done.stdout}{done.stderr}"
    assert worked() - began < TEN_MINUTES
    found = shop.run("reconcile findings first --format jsonl", tmp_path).stdout.splitlines()
    assert {
        ("product/search-indexer", LATE, "dead_lettered", ("label", "price_cents", "title")),
        ("product/orders", EDITED, "foreign_write", ("price",)),
    } == {
        (each["link"], each["aggregate_id"], each["cause"], tuple(sorted(f["name"] for f in each["fields"])))
        for each in map(json.loads, found)
    }
    drafted = load_contract(tmp_path / "product.yaml")
    search, orders = drafted.consumers
    assert [
        ("title", "name", "$.name"),
        ("label", "maker || ': ' || name", "$.maker || ': ' || $.name"),
        ("price_cents", "price * 100", "cast($.price as decimal(28,6)) * 100"),
        ("country", "lower(country)", "lower($.attributes.country)"),
        ("released", "released", "$.released"),
    ] == [(each.name, each.source, each.event) for each in search.fields]
    assert [
        ("name", "upper(name)", "upper($.name)"),
        ("price", "price", "$.price"),
        ("weight", "weight", "$.attributes.weight"),
        ("on_sale", "on_sale", "$.onSale"),
    ] == [(each.name, each.source, each.event) for each in orders.fields]
    assert ("sku",) == orders.id
    assert drafted.source.outbox is not None
    assert orders.failure.ledger is not None
    assert search.failure.dead_letter is not None
    settings = load_settings(tmp_path / "reconcile.yaml")
    assert {"shop-db", "search-db", "orders-db", "main"} == settings.connections.keys()
    written = "".join(each.read_text("utf-8") for each in tmp_path.glob("*.yaml"))
    assert shop.lab.password("postgres") not in written
    assert "Thing" not in written
    assert "Maker" not in written
    again = shop.run(next(iter(commands())), tmp_path)
    assert (2, True) == (again.returncode, "is there already, and nothing is overwritten" in again.stderr)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"source": "env:SHOP_URL:produkt"}, 'no table "produkt" in shop-db; did you mean "product"?'),
        (
            {"copy": "env:SEARCH_URL:search_dokument@search-indexer"},
            'no table "search_dokument" in search-db; did you mean "search_document"?',
        ),
        ({"topic": "produkt"}, 'the cluster main has no topic "produkt"; did you mean "product"?'),
        (
            {"copy": "env:SEARCH_URL:search_document@searchindexer"},
            'has never committed an offset in product; did you mean "search-indexer"?',
        ),
        ({"source": "env:SHOP_URL:nothing"}, "the table nothing in shop-db holds no row that we see"),
        ({"copy": "env:SEARCH_URL:nothing@search-indexer"}, "the table nothing in search-db holds no row that we see"),
        ({"topic": "stranger"}, "none of the 1 sampled keys of stranger is an id (id) of product, read as any type"),
        (
            {"copy": "env:ORDERS_URL:processed_message@search-indexer"},
            "no column of processed_message has the ids (id) of product",
        ),
        ({"source": "env:NOWHERE_URL:product"}, "the environment variable NOWHERE_URL is not set"),
    ],
)
def test_what_is_missing_is_named(shop: Shop, tmp_path: Path, given: dict[str, str], said: str) -> None:
    """The command line says it and exits with 2; nothing is on stdout."""
    done = shop.drafted(tmp_path, **given)
    assert isinstance(done.exception, ReconcileError)
    assert ("", True) == (done.stdout, said in str(done.exception)), done.exception


def test_an_empty_topic_gives_fields_without_events(shop: Shop, tmp_path: Path) -> None:
    """The draft says so in its first lines and on stderr, and is valid."""
    done = shop.drafted(tmp_path, topic="silent")
    assert 0 == done.exit_code, done.exception
    assert "look here: the topic silent is empty" in done.stderr
    (tmp_path / "c.yaml").write_text(done.stdout)
    assert {None} == {each.event for each in load_contract(tmp_path / "c.yaml").consumers[0].fields}


def test_values_of_a_registry_are_read(shop: Shop, tmp_path: Path) -> None:
    """Their schema tells the format, and the settings have the registry's connection; without it, it is asked for."""
    import fastavro

    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}, {"name": "maker", "type": "string"}]
    schema = {"type": "record", "name": "Product", "fields": fields}
    admin = offsets.admin_client(shop.lab.bootstrap)
    provide_topics(shop.lab, {"product-avro": 2})
    wait_until(partial(offsets.led, admin, "product-avro", 2), "product-avro has no leaders", 60)
    with serving(Registry()) as registry:
        number = registry.register("product-avro-value", json.dumps(schema))
        producer = Producer({"bootstrap.servers": str(shop.lab.bootstrap)})
        for each in range(1, 61):
            written = BytesIO()
            fastavro.schemaless_writer(written, fastavro.parse_schema(schema), product(each, 2))
            frame = b"\0" + number.to_bytes(4, "big")
            producer.produce("product-avro", key=each.to_bytes(8, "big"), value=frame + written.getvalue())
        assert not producer.flush(60)
        offsets.commit(shop.lab.bootstrap, "search-indexer", "product-avro", offsets.ends(admin, "product-avro"))
        missing = shop.drafted(tmp_path, topic="product-avro")
        done = shop.drafted(tmp_path, topic="product-avro", registry=registry.url)
    assert "name its connection, or its URL, with --registry" in str(missing.exception)
    assert 0 == done.exit_code, done.exception
    (tmp_path / "c.yaml").write_text(done.stdout)
    topic = load_contract(tmp_path / "c.yaml").topic
    assert ("avro", "int64", "schemas") == (
        topic.format,
        topic.key.type,
        topic.value_schema and topic.value_schema.registry,
    )
    events = [each.event for each in load_contract(tmp_path / "c.yaml").consumers[0].fields]
    assert ["$.name", "$.maker || ': ' || $.name", None, None, None] == events
    assert 'schemas: {registry: "env:SCHEMAS_URL"}' in done.stdout


def test_an_id_of_two_columns(shop: Shop, tmp_path: Path) -> None:
    """Keys that are arrays in JSON have it, and the copy names its columns alike."""
    admin = offsets.admin_client(shop.lab.bootstrap)
    provide_topics(shop.lab, {"variant": 1})
    wait_until(partial(offsets.led, admin, "variant", 1), "variant has no leaders", 60)
    rows = [
        {"product_id": number, "size": size, "stock": 7 * number} for number in range(40) for size in ("L", "it's M")
    ]
    for database in ("shop", "search"):
        write(shop, database, "variant", rows)
    producer = Producer({"bootstrap.servers": str(shop.lab.bootstrap)})
    for row in rows:
        producer.produce("variant", key=json.dumps([row["product_id"], row["size"]]), value=json.dumps(row))
    assert not producer.flush(60)
    offsets.commit(shop.lab.bootstrap, "search-indexer", "variant", offsets.ends(admin, "variant"))
    copy = "env:SEARCH_URL:variant@search-indexer"
    done = shop.drafted(tmp_path, source="env:SHOP_URL:variant", topic="variant", copy=copy)
    assert 0 == done.exit_code, done.exception
    (tmp_path / "c.yaml").write_text(done.stdout)
    drafted = load_contract(tmp_path / "c.yaml")
    assert (("product_id", "size"), ("product_id", "size"), "json", ["$.stock"]) == (
        drafted.source.id,
        drafted.consumers[0].id,
        drafted.topic.key.type,
        [each.event for each in drafted.consumers[0].fields],
    )


def test_a_view_has_the_id_that_the_keys_are(shop: Shop, tmp_path: Path) -> None:
    """Nothing is declared of it; what is unique in it and stands in the keys is its id."""
    done = shop.drafted(tmp_path, source="env:SHOP_URL:price_list")
    assert 0 == done.exit_code, done.exception
    (tmp_path / "c.yaml").write_text(done.stdout)
    assert ("id",) == load_contract(tmp_path / "c.yaml").source.id


def test_a_reader_with_select_on_two_tables_is_enough(shop: Shop, tmp_path: Path) -> None:
    """Outboxes and ledgers that it may not read are passed over."""
    for database, table in (("shop", "product"), ("search", "search_document")):
        with connected(shop.url(database)) as cursor:
            if database == "shop":
                cursor.execute("create role narrow login password 'narrow'")
            cursor.execute(sql.SQL("grant select on {} to narrow").format(sql.Identifier(table)))
    here = f"postgresql://narrow:narrow@127.0.0.1:{shop.lab.state().ports.postgres}"
    copy = f"{here}/search:search_document@search-indexer"
    done = shop.drafted(tmp_path, source=f"{here}/shop:product", copy=copy)
    assert 0 == done.exit_code, done.exception
    assert "outbox" not in done.stdout.replace("# outbox", "")
    assert "narrow:narrow" not in done.stdout + done.stderr
    assert '{url: "env:SHOP_DB_URL"}' in done.stdout
