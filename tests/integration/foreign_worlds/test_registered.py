"""Topics by a schema registry: what was planted is found, and Confluent's own deserializers read what corrects it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from psycopg2 import sql

from reconcile.errors import UnreachableError
from reconcile.lab.schema_registry import Registry, serving
from reconcile.lab.services.consumer import Group
from reconcile.lab.services.database import connected
from reconcile.pipeline import stages as pipeline
from tests.integration.foreign_worlds.registered import Written, ways
from tests.integration.foreign_worlds.servers import Servers
from tests.integration.foreign_worlds.world import World
from tests.integration.runs import Runs, apply, findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("shelves", "parcels", "papers", "tanks")


@dataclass(frozen=True)
class Made:
    """The worlds, their registry, and what runs on them."""

    servers: Servers
    registry: Registry
    ways: Mapping[str, Written]
    worlds: Mapping[str, World]
    runs: Runs

    def contract(self, name: str) -> Path:
        """A world's contract."""
        return self.servers.contract(self.worlds[name])


@pytest.fixture(scope="module")
def made(servers: Servers, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """All worlds."""
    with serving(Registry()) as registry:
        settings = yaml.safe_load(servers.settings.read_text())
        settings["connections"]["schemas"] = {"registry": registry.url}
        servers.settings.write_text(yaml.safe_dump(settings))
        written = ways(registry.url)
        worlds = {name: written[name].world(name) for name in NAMES}
        servers.make(list(worlds.values()))
        runs = Runs(spark, servers.settings, tmp_path_factory.mktemp("registered"))
        yield Made(servers, registry, written, worlds, runs)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_planted_is_found_and_its_corrections_are_read(made: Made, name: str) -> None:
    """Exactly that, and each copy agrees once the topic's own consumer has taken them."""
    job, _ = made.runs.audited(made.contract(name), name)
    told = {
        key: (each["difference"], tuple(one["name"] for one in each["fields"])) for key, each in findings(job).items()
    }
    assert {key: (each.difference, each.fields) for key, each in made.worlds[name].truth.items()} == told
    plan = pipeline.plan(job)
    assert [] == plan.reasons
    corrections = list(plan.corrections)
    assert {id_text for _, id_text in told} == {each.aggregate_id for each in corrections}
    apply(job)
    _consume(made, name)
    assert {"converged": len(corrections)} == pipeline.verify(job).links[0].outcomes


def test_a_registry_that_fails_ends_the_run_and_spoils_nothing(made: Made, tmp_path: Path) -> None:
    """Its proxy's word is not its own, at first or while records are read: they are read once it answers."""
    # At an address of its own: schemas never change, so Spark's workers may have kept those of the other one.
    with serving(replace(made.registry)) as registry:
        settings = yaml.safe_load(made.runs.settings_file.read_text())
        settings["connections"]["schemas"] = {"registry": registry.url}
        file = tmp_path / "reconcile.yaml"
        file.write_text(yaml.safe_dump(settings))
        runs = Runs(made.runs.spark, file, tmp_path)
        for status, said, below in ((404, "<html>no such host</html>", "/"), (503, "{}", "/schemas/ids")):
            registry.answer, registry.answer_below = (status, said), below
            with pytest.raises(UnreachableError, match=f"schema registry at {registry.url} .*{status}"):
                runs.audited(made.contract("shelves"), f"down-{status}")
        registry.answer = None
        _, summary = runs.audited(made.contract("shelves"), "up")
    assert 60 == summary.links[0].compared


def _consume(made: Made, name: str) -> None:
    world = made.worlds[name]
    group = Group(made.servers.lab.bootstrap, f"{name}.shop", world.topic.name)
    changed = sql.SQL(
        "update {} set version = %(version)s, label = %(label)s, price = %(price)s, at = %(at)s where item = %(id)s"
    ).format(sql.Identifier(name, "shop"))
    with connected(made.servers.url("copies")) as cursor:
        for record in group.poll():
            assert record.value is not None
            row = made.ways[name].read(record.value)
            assert made.ways[name].key(row["id"]) == record.key
            cursor.execute(changed, row)
            assert 1 == cursor.rowcount
    group.commit()
