"""One aggregate with very many events among others with one: it gets the right finding, and no more of it is held."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from reconcile.lab import world
from reconcile.lab.folder import Lab
from reconcile.lab.services import offsets
from reconcile.lab.services.database import connected
from reconcile.pipeline import handoffs
from tests.integration.runs import Runs, findings
from tests.integration.worlds import seeded_world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 100_000
OTHERS = 50
CONTRACT = {
    "version": 1,
    "aggregate": "skewed",
    "source": {"store": "user-db", "table": "skewed", "id": "id", "version": "version"},
    "topic": {"cluster": "main", "name": "skewed", "version": "$.version", "event_id": "$.event_id"},
    "consumers": [
        {
            "name": "login",
            "group": "skewed-login",
            "store": "login-db",
            "table": "skewed",
            "id": "id",
            "version": "version",
            "isolation": "read_committed",
            "fields": [{"name": "name", "source": "name", "consumer": "name", "event": "$.name"}],
            "settle": {"confirm_after": "0s"},
        }
    ],
}


@pytest.fixture(scope="module")
def skewed() -> Iterator[Lab]:
    """A world where the copy of the one with all the events lacks the last of them."""
    with seeded_world(aggregates=10) as lab:
        world.provide_topics(lab, {"skewed": 3})
        for side, version in (("user", EVENTS), ("login", EVENTS - 1)):
            with connected(lab.url(side)) as cursor:
                cursor.execute("create table skewed (id text primary key, version bigint, name text)")
                cursor.execute(
                    "insert into skewed select 'other-' || n, 1, 'name 1' from generate_series(1, %s) n", (OTHERS,)
                )
                cursor.execute("insert into skewed values ('many', %s, %s)", (version, f"name {version}"))
                cursor.execute("grant select on skewed to reconcile_reader")
        producer = Producer({"bootstrap.servers": lab.bootstrap, "queue.buffering.max.messages": EVENTS + OTHERS})
        events = [*((f"other-{n}", 1) for n in range(1, OTHERS + 1)), *(("many", n) for n in range(1, EVENTS + 1))]
        for name, version in events:
            value = {"version": version, "event_id": f"{name}/{version}", "name": f"name {version}"}
            producer.produce("skewed", json.dumps(value), name)
        assert 0 == producer.flush(60)
        offsets.commit(
            lab.bootstrap, "skewed-login", "skewed", offsets.ends(offsets.admin_client(lab.bootstrap), "skewed")
        )
        yield lab


@pytest.fixture(scope="module")
def audited(skewed: Lab, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Its run."""
    folder = tmp_path_factory.mktemp("skew")
    contract = folder / "skewed.yaml"
    contract.write_text(json.dumps(CONTRACT), "utf-8")
    return Runs.of(spark, skewed, folder).audited(contract, "skew")[0]


def test_the_one_with_very_many_events_is_the_only_finding(audited: Any) -> None:
    """Its copy lacks the last event, and the finding says that this one was skipped."""
    found = findings(audited)
    assert {("skewed/login", "many"): ("changed", "skipped", str(EVENTS))} == {
        key: (each["difference"], each["cause"], str(each["source_version"])) for key, each in found.items()
    }


def test_a_bounded_number_of_its_events_is_held(audited: Any, spark: SparkSession) -> None:
    """What decides are the newest, so that one aggregate does not fill a worker's memory."""
    path = Path(audited.run.folder) / handoffs.cases("login") / "data"
    (row,) = spark.read.parquet(str(path)).selectExpr("id", "size(events) as events").collect()
    assert ("many", 1000) == tuple(row)
