"""Copies in a real Redis: the plug-in conforms, and a cache is audited like any other copy."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

import pytest
import redis
import yaml
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.files import committed
from reconcile.gather.stores.conformance import shortcomings
from reconcile.gather.stores.errors import StoreReadError, StoreRefusedError
from reconcile.gather.stores.redis_store import RedisStore, open_redis
from reconcile.lab.folder import Lab
from reconcile.lab.services.database import connected
from reconcile.lab.world import settings_file
from tests.integration.runs import Runs, findings
from tests.integration.worlds import seeded_world, until
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORTS, PORT = ports_of("redis"), ports_of("redis server").postgres
PASSWORD = "a word that nobody may see"
ROWS: list[dict[str, str | None]] = [
    {"id": "1", "email": "a@x", "balance": "12.50"},
    {"id": "b:2", "email": "ü@x", "balance": None},
    {"id": "*[3]", "email": "", "balance": "0.10"},
]
FIELDS = """
[{name: email, source: email, consumer: email, event: $.email},
 {name: display_name, source: "first_name || ' ' || last_name", consumer: "concat(first_name, ' ', last_name)",
  event: "$.first_name || ' ' || $.last_name"}]
"""


@dataclass(frozen=True)
class Server:
    """A Redis that a test has for itself."""

    client: redis.Redis

    @property
    def url(self) -> str:
        """Where it is, with the password."""
        return f"redis://:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{PORT}/0"

    def open(self) -> RedisStore:
        """Open it as the audit does."""
        return open_redis(self.url)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Start one, and leave nothing of it."""
    program = which("redis-server")
    assert program, "these tests need redis-server (Debian: apt-get install redis-server)"
    options = ["--bind", "127.0.0.1", "--save", "", "--requirepass", PASSWORD, "--loglevel", "warning"]
    with subprocess.Popen([program, "--port", str(PORT), *options]) as process:
        client = redis.Redis("127.0.0.1", PORT, password=PASSWORD)

        def answers() -> bool:
            assert process.poll() is None, "redis-server has ended"
            try:
                return bool(client.ping())
            except (redis.ConnectionError, redis.BusyLoadingError):
                return False

        try:
            until(answers)
            yield Server(client)
        finally:
            client.close()
            process.terminate()


@pytest.fixture(autouse=True)
def _emptied(server: Server) -> None:
    server.client.flushdb()


def put_hash(client: redis.Redis, key: str, row: dict[str, str | None]) -> None:
    """Keep a row as a hash."""
    client.hset(key, mapping={name: value for name, value in row.items() if value is not None and name != "id"})


def put_json(client: redis.Redis, key: str, row: dict[str, str | None]) -> None:
    """Keep a row as a JSON object, numbers as numbers."""
    members = [f"{json.dumps(name)}: {_written(name, value)}" for name, value in row.items() if name != "id"]
    client.set(key, f"{{{', '.join(members)}}}")


def _written(name: str, value: str | None) -> str:
    return value if name == "balance" and value is not None else json.dumps(value)


Put = Callable[[redis.Redis, str, dict[str, str | None]], None]


@pytest.mark.parametrize("put", [put_hash, put_json])
@pytest.mark.parametrize(
    ("relation", "key"), [("profile", "profile:{}"), ("app:[1]:*:v2 email, balance", "app:[1]:{}:v2")]
)
def test_hashes_and_json_conform(server: Server, put: Put, relation: str, key: str) -> None:
    """Whatever the keys look like; keys of others are not read."""
    for row in ROWS:
        put(server.client, key.format(row["id"]), row)
    server.client.hset("profiles:1", mapping={"email": "of another"})
    server.client.hset("app:1:9:v2", mapping={"email": "of another"})
    away = lambda: open_redis("redis://127.0.0.1:1/0")  # noqa: E731
    assert [] == shortcomings(server.open, relation, "id", ROWS, away=away)


def test_columns_are_those_of_a_sample_unless_they_are_named(server: Server) -> None:
    """A field that few keys have can be named."""
    put_hash(server.client, "profile:1", {"email": "a@x"})
    with closing(server.open()) as store:
        assert ["id", "email"] == store.describe("profile").names
        assert ["id", "email", "rare"] == store.describe("profile:* email rare").names
        relation = "profile:* rare"
        (batch,) = store.rows(relation, store.describe(relation), "id", None, None)
        assert [{"id": "1", "rare": None}] == batch.to_pylist()


def test_a_table_without_keys_is_empty(server: Server) -> None:
    """No key, no row, and no error."""
    with closing(server.open()) as store:
        assert [] == list(store.rows("nothing", store.describe("nothing"), "id", None, None))


def test_what_has_expired_is_no_row(server: Server) -> None:
    """A key may go while it is read."""
    put_hash(server.client, "profile:1", {"email": "a@x"})
    with closing(server.open()) as store:
        batches = store.rows("profile", store.describe("profile"), "id", ["1", "2"], None)
        assert [{"id": "1", "email": "a@x"}] == [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("key", "value", "relation", "id_column", "error"),
    [
        ("profile:1", "a list", "profile", "id", StoreRefusedError),
        ("profile:1", b"no json", "profile", "id", StoreReadError),
        ("profile:1", b"[1]", "profile", "id", StoreReadError),
        ("profile:1", b"{}", "profile", "user_id", StoreRefusedError),
        ("profile:1", b"{}", "*:*", "id", StoreRefusedError),
    ],
)
def test_what_cannot_be_read_is_named(
    server: Server, key: str, value: Any, relation: str, id_column: str, error: type[Exception]
) -> None:
    """Each is an error of stores, without a value in it."""
    if value == "a list":
        server.client.rpush(key, "a", "b")
    else:
        server.client.set(key, value)
    with closing(server.open()) as store, pytest.raises(error) as raised:
        list(store.rows(relation, store.describe(f"{relation} name"), id_column, None, None))
    assert "no json" not in str(raised.value)


def test_a_wrong_password_is_named_and_not_shown(server: Server) -> None:
    """Check user and password."""
    wrong = server.url.replace("nobody", "everybody")
    with closing(open_redis(wrong)) as store, pytest.raises(StoreRefusedError, match="user and password") as raised:
        store.describe("profile")
    assert "everybody" not in str(raised.value)


@dataclass(frozen=True)
class Cached:
    """A world whose accounts are also in a cache."""

    lab: Lab
    people: dict[str, dict[str, Any]]
    contract: Path
    settings: Path


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A small world without faults."""
    with seeded_world(aggregates=40, ports=PORTS) as seeded:
        yield seeded


@pytest.fixture
def cached(server: Server, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cached:
    """The cache holds what its source says, as the group that has consumed all would have written it."""
    original = yaml.safe_load(committed("contracts", "user-account.yaml").read_text("utf-8"))
    login = original["consumers"][0]
    cache = {name: login[name] for name in ("group", "isolation", "failure")} | {
        "name": "cache",
        "store": "cache",
        "table": "account",
        "id": "id",
        "version": "version",
        "expires": True,
        "fields": yaml.safe_load(FIELDS),
        "settle": {"timeout": "60s", "confirm_after": "0s"},
    }
    cache["failure"] = {name: value for name, value in cache["failure"].items() if name != "ledger"}
    contract, settings = tmp_path / "cache.yaml", tmp_path / "reconcile.yaml"
    contract.write_text(yaml.safe_dump(original | {"consumers": [cache]}), "utf-8")
    known = yaml.safe_load(settings_file(lab).read_text("utf-8"))
    known["connections"]["cache"] = {"url": "env:CACHE_URL"}
    settings.write_text(yaml.safe_dump(known), "utf-8")
    monkeypatch.setenv("CACHE_URL", server.url)
    with connected(lab.url("user")) as cursor:
        cursor.execute(
            "select a.id::text, a.version::text, a.first_name, a.last_name, e.address from user_account a"
            " left join email_address e on e.user_id = a.id and e.position = 1 where a.deleted_at is null order by 1"
        )
        names = ("id", "version", "first_name", "last_name", "email")
        people = {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}
    for person in people.values():
        put_hash(server.client, f"account:{person['id']}", person)
    return Cached(lab, people, contract, settings)


def test_a_cache_is_audited_like_any_other_copy(
    server: Server, cached: Cached, spark: SparkSession, tmp_path: Path
) -> None:
    """An edited value, a key of nobody, and one that is gone, which the contract tolerates."""
    edited, gone, *_ = cached.people
    server.client.hset(f"account:{edited}", "email", "edited@example.org")
    server.client.delete(f"account:{gone}")
    put_hash(server.client, "account:nobody", {"email": "nobody@example.org", "version": "1"})
    job, summary = Runs(spark, cached.settings, tmp_path / "runs").audited(cached.contract, "cache")
    assert summary.complete
    found = {id_: (each["difference"], each["cause"], each["status"]) for (_, id_), each in findings(job).items()}
    assert {
        edited: ("changed", "foreign_write", "confirmed"),
        "nobody": ("orphan", "phantom", "confirmed"),
        gone: ("missing", "foreign_write", "tolerated"),
    } == found


def test_a_cache_that_agrees_has_no_findings(cached: Cached, spark: SparkSession, tmp_path: Path) -> None:
    """All rows are compared."""
    job, summary = Runs(spark, cached.settings, tmp_path / "runs").audited(cached.contract, "cache")
    assert {} == findings(job)
    assert [len(cached.people)] == [link.compared for link in summary.links]


def test_a_cache_that_is_away_leaves_the_run_incomplete(
    cached: Cached, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named, without its password."""
    monkeypatch.setenv("CACHE_URL", f"redis://:{PASSWORD.replace(' ', '%20')}@127.0.0.1:1/0")
    asked = ["--config", str(cached.settings), "--workspace", str(tmp_path / "runs"), "--run-id", "away", "--json"]
    result = CliRunner().invoke(cli, ["run", str(cached.contract), *asked], obj={"spark": spark})
    assert 2 == result.exit_code
    assert "Redis does not answer" in result.output
    assert "nobody may see" not in result.output
