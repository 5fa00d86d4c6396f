"""Tables of a lake as copies and as a source: real Iceberg and Delta tables, each read at one of its snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.contract.model import load_contract
from reconcile.errors import ReconcileError, RefusedError
from reconcile.files import committed
from reconcile.gather.fence.fence import Fence
from reconcile.gather.fence.opening import OpenFence, open_fence
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.stores import lake as lakes
from reconcile.gather.stores.errors import (
    ContractMismatchError,
    NoSnapshotError,
    SnapshotLostError,
    StoreUnreachableError,
)
from reconcile.gather.stores.lake import LakeTable
from reconcile.lab.folder import Lab
from reconcile.lab.services import offsets
from reconcile.lab.services.database import connected
from reconcile.lab.world import settings_file
from reconcile.pipeline import findings_table
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.apply import PlanRefusedError
from reconcile.pipeline.job import Job
from reconcile.settings.connections import LakePlace
from reconcile.settings.settings import FindingsTable, Settings, load_settings
from reconcile.workspace.workspace import Workspace
from tests.integration.runs import Runs, apply, findings
from tests.integration.worlds import seeded_world
from tests.ports import ports_of
from tests.unit.handoffs import summary
from tests.unit.report_runs import contract_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORTS = ports_of("lakes")
TABLE = "db.profile"
TOPIC = "user-account"
FORMATS = ("iceberg", "delta")
ROW = "id string, version bigint, name string, mail string"
FIELDS = yaml.safe_load("""
[{name: email, source: email, consumer: mail, event: $.email},
 {name: display_name, source: "first_name || ' ' || last_name", consumer: name,
  event: "$.first_name || ' ' || $.last_name"}]
""")
Row = dict[str, Any]


@dataclass(frozen=True)
class Warehouse:
    """A folder with tables of one format, as a service would write them."""

    spark: SparkSession
    format: str
    folder: Path

    @property
    def place(self) -> LakePlace:
        """Where it is, as the settings have it."""
        return LakePlace(self.format, str(self.folder))  # type: ignore[arg-type]

    def table(self, name: str = TABLE) -> LakeTable:
        """Give a table as the audit reads it."""
        return LakeTable(self.spark, self.format, self.place, name)

    def write(self, rows: list[Row], name: str = TABLE, mode: str = "overwrite") -> str:
        """Replace the rows, or append some; give the snapshot."""
        frame = self.spark.createDataFrame([tuple(each.values()) for each in rows], ROW).coalesce(1)
        if self.format == "delta":
            frame.write.format("delta").mode(mode).save(f"{self.folder}/{name.replace('.', '/')}")
        elif mode == "append":
            frame.writeTo(self.table(name).identifier).append()
        else:
            self.create(name)
            from pyspark.sql import functions as f

            frame.writeTo(self.table(name).identifier).overwrite(f.lit(True))
        return self.table(name).current_snapshot()

    def create(self, name: str) -> None:
        """Make a table of Iceberg's that has no snapshot yet."""
        self.spark.sql(f"create table if not exists {self.table(name).identifier} ({ROW}) using iceberg")

    def expire(self, snapshot: str) -> None:
        """Let go of a snapshot of Iceberg's."""
        tables = self.spark._jvm.org.apache.iceberg.spark.Spark3Util  # type: ignore[union-attr]
        table = tables.loadIcebergTable(self.spark._jsparkSession, self.table().identifier)
        table.expireSnapshots().expireSnapshotId(int(snapshot)).commit()


def test_findings_are_in_a_table_for_sql(spark: SparkSession, tmp_path: Path) -> None:
    """Those of each run once, however often its audit is called, and without values; a lake that takes none is told."""
    lake = {"warehouse": str(tmp_path / "lake"), "format": "iceberg"}
    connections = {"lake": lake, "files": {"path": str(tmp_path)}}
    settings = Settings.model_validate(
        {"connections": connections, "findings_table": {"store": "lake", "table": "a.f"}}
    )
    file = contract_file(tmp_path)

    def written(run_id: str, *ids: str, settings: Settings = settings) -> None:
        place = Workspace(tmp_path / "runs", spark)
        job = Job(load_contract(file), file, settings, place, place.run(run_id), spark_session=spark)
        rows = [("user-account/login", each, "changed", "confirmed", "skipped", ["email"], '{"Zoë"}') for each in ids]
        names = "link string, aggregate_id string, difference string, status string, cause string, fields array<string>"
        found = spark.createDataFrame(rows, f"{names}, finding string").selectExpr(
            "*", "'certain' as confidence", "cast(null as string) as hop", "timestamp '2026-01-01' as since"
        )
        job.run.publish_parquet("findings", found, job.inputs(), stage="audit")
        job.run.publish(summary(), job.inputs())
        for _ in range(2):
            findings_table.append(job)

    written("r1", "u1", "u2")
    written("r2")
    written("r3", "u1")
    table = Warehouse(spark, "iceberg", tmp_path / "lake").table("a.f")
    rows = table.rows().orderBy("run_id", "aggregate_id").collect()
    assert [("r1", "u1"), ("r1", "u2"), ("r3", "u1")] == [(each.run_id, each.aggregate_id) for each in rows]
    assert ("user-account", "skipped", ["email"]) == (rows[0].contract, rows[0].cause, rows[0].fields)
    assert "Zoë" not in str(rows)
    wrong = settings.model_copy(update={"findings_table": FindingsTable(store="files", table="a.f")})
    with pytest.raises(RefusedError, match="files is no connection to a lake of Iceberg's tables"):
        written("r4", settings=wrong)
    assert {"lake", "files"} == settings.reading([]).connections.keys()


@dataclass(frozen=True)
class World:
    """A world without faults, whose accounts are also in an Iceberg and in a Delta table."""

    lab: Lab
    spark: SparkSession
    people: Mapping[str, Row]
    warehouses: Mapping[str, Warehouse]
    settings: Path
    folder: Path

    def fill(self, **changed: list[Row]) -> dict[str, str]:
        """Write both tables, what is changed in one under its format; give the snapshots."""
        rows = list(self.people.values())
        return {each: self.warehouses[each].write(changed.get(each, rows)) for each in FORMATS}

    def contract(
        self,
        *formats: str,
        source: Row | None = None,
        snapshots: Mapping[str, str] = MappingProxyType({}),
        **consumer: Any,
    ) -> Path:
        """Write a contract whose copies are the tables of some formats, both unless they are named."""
        said = yaml.safe_load(committed("contracts", "user-account.yaml").read_text("utf-8"))
        said["consumers"] = [
            {
                "name": each,
                "group": f"{each}-service",
                "store": each,
                "table": TABLE,
                "id": "id",
                "version": "version",
                "isolation": "read_committed",
                "fields": FIELDS,
                "settle": {"timeout": "10s", "confirm_after": "0s"},
                "repair": {"max_ratio": 1.0},
                **({"snapshot": int(snapshots[each])} if each in snapshots else {}),
                **consumer,
            }
            for each in formats or FORMATS
        ]
        if source is not None:
            said["source"] = source
            del said["topic"]["value"]
        file = self.folder / f"contract-{len(list(self.folder.glob('contract-*')))}.yaml"
        file.write_text(yaml.safe_dump(said, sort_keys=False), "utf-8")
        return file

    @contextmanager
    def fence(self, contract: Path) -> Iterator[OpenFence]:
        """Open the fence of a contract."""
        settings = load_settings(self.settings)
        with open_fence(load_contract(contract), contract, settings, timeout=timedelta(0)) as opened:
            yield opened

    def unread(self, contract: Path) -> list[tuple[str, str]]:
        """Give what a fence could not read."""
        with self.fence(contract) as opened:
            return [(each.kind, each.message) for each in opened.fence.unread]

    def copies(self, contract: Path, opened: OpenFence) -> dict[str, dict[str, str | None]]:
        """Read the copies' names by their ids, at the instants of a fence."""
        agreed, settings = load_contract(contract), load_settings(self.settings)
        readers = {each.name: LinkReader(self.spark, agreed, each, settings, opened) for each in agreed.consumers}
        return {
            name: {row["reconcile_id"]: row["field_1"] for row in reader.rows[1].all(self.spark).collect()}
            for name, reader in readers.items()
        }

    def consume(self) -> None:
        """Let the groups have consumed all."""
        ends = offsets.ends(offsets.admin_client(self.lab.bootstrap), TOPIC)
        for each in FORMATS:
            offsets.commit(self.lab.bootstrap, f"{each}-service", TOPIC, ends)


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The groups have consumed all that there is."""
    folder = tmp_path_factory.mktemp("lakes")
    with seeded_world(aggregates=20, ports=PORTS) as lab:
        known = yaml.safe_load(settings_file(lab).read_text("utf-8"))
        warehouses = {each: Warehouse(spark, each, folder / each) for each in FORMATS}
        for each, warehouse in warehouses.items():
            known["connections"][each] = {"warehouse": str(warehouse.folder), "format": each}
            known["connections"][f"{each}-away"] = {"warehouse": str(folder / "away"), "format": each}
        known["connections"]["rest"] = {
            "warehouse": "prod",
            "format": "iceberg",
            "catalog": {"type": "rest", "uri": "http://127.0.0.1:1", "token": "env:LAKE_TOKEN"},
        }
        settings = folder / "reconcile.yaml"
        settings.write_text(yaml.safe_dump(known), "utf-8")
        with connected(lab.url("user")) as cursor:
            cursor.execute(
                "select a.id::text, a.version, a.first_name || ' ' || a.last_name, e.address from user_account a"
                " left join email_address e on e.user_id = a.id and e.position = 1"
                " where a.deleted_at is null order by 1"
            )
            names = ("id", "version", "name", "mail")
            people = {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}
        found = World(lab, spark, people, warehouses, settings, folder)
        found.consume()
        yield found


def drifted(people: Mapping[str, Row]) -> tuple[list[Row], dict[str, str]]:
    """Edit a row, leave one out, and add one of nobody; give the rows, and what is to be found."""
    edited, gone, *_ = people
    rows = [row | {"name": "Someone Else"} if id_ == edited else row for id_, row in people.items() if id_ != gone]
    return [*rows, {**people[gone], "id": "nobody"}], {edited: "changed", gone: "missing", "nobody": "orphan"}


def test_drift_is_found_at_the_snapshot_of_the_fence_and_repaired(world: World) -> None:
    """Exactly what was planted; a correction is verified by the table as it is then."""
    rows, planted = drifted(world.people)
    snapshots = world.fill(iceberg=rows, delta=rows)
    runs = Runs(world.spark, world.settings, world.folder / "runs")
    job, summary = runs.audited(world.contract(), "drift")
    assert summary.complete
    found = {(link, id_): each["difference"] for (link, id_), each in findings(job).items()}
    assert {(f"{TOPIC}/{form}", id_): what for form in FORMATS for id_, what in planted.items()} == found
    fence = job.run.read(Fence)
    assert snapshots == {each.name: each.cut for each in fence.consumers}
    assert [2, 2] == [len(link.corrections) for link in pipeline.plan(job).links]
    apply(job)
    world.fill()
    world.consume()
    assert [{"converged": 2}] * 2 == [link.outcomes for link in pipeline.verify(job).links]


def test_what_is_written_after_the_fence_is_not_seen(world: World) -> None:
    """The next fence sees it."""
    world.fill()
    contract = world.contract()
    late = {"id": "late", "version": 1, "name": "Late Comer", "mail": None}
    with world.fence(contract) as opened:
        for warehouse in world.warehouses.values():
            warehouse.write([late], mode="append")
        assert [set(world.people)] * 2 == [set(each) for each in world.copies(contract, opened).values()]
    with world.fence(contract) as opened:
        assert [{*world.people, "late"}] * 2 == [set(each) for each in world.copies(contract, opened).values()]


def test_a_named_snapshot_is_compared_and_never_repaired(world: World) -> None:
    """The tables agree by now."""
    rows, planted = drifted(world.people)
    past = world.fill(iceberg=rows, delta=rows)
    world.fill()
    contract = world.contract(snapshots=past)
    job, summary = Runs(world.spark, world.settings, world.folder / "runs").audited(contract, "past")
    assert summary.complete
    found = {(link, id_): each["difference"] for (link, id_), each in findings(job).items()}
    assert {(f"{TOPIC}/{form}", id_): what for form in FORMATS for id_, what in planted.items()} == found
    assert [None, None] == [link.over_time for link in summary.links]
    refused = {link.consumer: link.refused[0] for link in pipeline.plan(job).links}
    for form, snapshot in past.items():
        assert refused[form].startswith(f"the contract names the past snapshot {snapshot} of {TABLE}")
    with pytest.raises(PlanRefusedError, match="names the past snapshot"):
        apply(job)


@pytest.mark.parametrize("form", FORMATS)
def test_a_snapshot_that_is_not_there_is_named(world: World, form: str) -> None:
    """With those that are."""
    current = world.fill()[form]
    ((kind, message),) = world.unread(world.contract(form, snapshot=12345))
    assert NoSnapshotError.__name__ == kind
    assert f"consumers[0].snapshot: the table {TABLE} of {form} has no snapshot 12345" in message
    assert f"the newest are {current}" in message


def test_an_expired_snapshot_is_named(world: World) -> None:
    """It was there."""
    warehouse = world.warehouses["iceberg"]
    past, _ = world.fill()["iceberg"], world.fill()
    contract = world.contract("iceberg", snapshot=int(past))
    assert [] == world.unread(contract)
    warehouse.expire(past)
    ((kind, message),) = world.unread(contract)
    assert NoSnapshotError.__name__ == kind
    assert "it has expired, or never was" in message


def test_a_table_without_a_snapshot_is_named(world: World) -> None:
    """Nothing was ever written to it."""
    world.warehouses["iceberg"].create("db.fresh")
    ((kind, message),) = world.unread(world.contract("iceberg", table="db.fresh"))
    assert (NoSnapshotError.__name__, True) == (kind, "has no snapshot yet" in message)


def test_a_table_without_rows_is_a_copy_that_lacks_all(world: World) -> None:
    """It has a snapshot."""
    world.warehouses["iceberg"].write([], "db.empty")
    contract = world.contract("iceberg", table="db.empty")
    with world.fence(contract) as opened:
        assert {"iceberg": {}} == world.copies(contract, opened)


def test_a_snapshot_whose_files_are_gone_is_lost(world: World) -> None:
    """Somebody cleaned up while it was read; the next run may do better."""
    world.fill()
    contract = world.contract()
    agreed, settings = load_contract(contract), load_settings(world.settings)
    with world.fence(contract) as opened:
        for file in world.folder.glob("*/db/profile/**/*.parquet"):
            file.unlink()
        for each in agreed.consumers:
            reader = LinkReader(world.spark, agreed, each, settings, opened)
            with pytest.raises(SnapshotLostError, match="the snapshot of a table has expired"), reader.reading():
                reader.rows[1].all(world.spark).collect()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"table": "db.profil"}, 'consumers[0].table: no table "db.profil" in FORM; did you mean "db.profile"?'),
        ({"table": "other.profile"}, 'consumers[0].table: no table "other.profile" in FORM'),
        ({"version": "versoin"}, 'consumers[0].version: no column "versoin" in db.profile; did you mean "version"?'),
        (
            {"fields": [FIELDS[0] | {"consumer": "lower(mial)"}]},
            'consumers[0].fields[0].consumer: no column "mial" in db.profile; did you mean "mail"?',
        ),
    ],
)
def test_what_the_lake_does_not_have_is_named(world: World, form: str, changed: Row, said: str) -> None:
    """With the nearest name."""
    if not world.warehouses[form].folder.exists():
        world.fill()
    with pytest.raises(ContractMismatchError) as raised, world.fence(world.contract(form, **changed)):
        pass
    assert said.replace("FORM", form) in str(raised.value)


@pytest.mark.parametrize(
    ("store", "changed", "error", "said"),
    [
        ("iceberg-away", {}, StoreUnreachableError, "the warehouse of the store iceberg-away is not there"),
        ("delta-away", {}, StoreUnreachableError, "the warehouse of the store delta-away is not there"),
        ("rest", {}, StoreUnreachableError, "the store rest cannot be reached"),
    ],
)
def test_a_lake_that_is_away_is_named(
    world: World, store: str, changed: Row, error: type[ReconcileError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its secrets."""
    monkeypatch.setenv("LAKE_TOKEN", "a word that nobody may see")
    ((kind, message),) = world.unread(world.contract("iceberg", store=store, **changed))
    assert (error.__name__, True) == (kind, said in message)
    assert "nobody may see" not in message


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"table": None, "query": "select 1"}, "consumers[0].query: iceberg is a lake, where a query has no single"),
        ({"store": "login-db", "snapshot": 1}, "consumers[0].snapshot: login-db is no lake, and has no past snapshots"),
    ],
)
def test_what_no_single_snapshot_answers_is_refused(world: World, changed: Row, said: str) -> None:
    """Before anything is read."""
    with pytest.raises(RefusedError) as raised, world.fence(world.contract("iceberg", **changed)):
        pass
    assert said in str(raised.value)


def test_commands_end_with_two_where_a_snapshot_is_not_there(world: World) -> None:
    """And show at which snapshot they read what is there."""
    snapshots = world.fill()
    asked = ["--config", str(world.settings)]
    shown = CliRunner().invoke(cli, ["fence", str(world.contract()), *asked])
    assert 0 == shown.exit_code, shown.output
    for form, snapshot in snapshots.items():
        assert f"{form} is read at {snapshot} of {form}" in shown.output
    asked += ["--workspace", str(world.folder / "runs"), "--run-id", "gone"]
    contract = world.contract("delta", snapshot=999)
    result = CliRunner().invoke(cli, ["run", str(contract), *asked], obj={"spark": world.spark})
    assert 2 == result.exit_code, result.output
    assert "has no snapshot 999" in result.output


def test_a_lake_is_a_source_and_never_the_primary(world: World) -> None:
    """Its snapshot is the fence's, and no deletion follows from it."""
    rows, planted = drifted(world.people)
    warehouse = world.warehouses["iceberg"]
    snapshot = warehouse.write(list(world.people.values()))
    warehouse.write(rows, "db.copy")
    source = {"store": "iceberg", "table": TABLE, "id": "id", "version": "version"}
    fields = [{"name": each, "source": each, "consumer": each, "event": f"$.{each}"} for each in ("mail", "name")]
    repair = {"deletes": True, "max_ratio": 1.0}
    contract = world.contract("iceberg", source=source, table="db.copy", fields=fields, repair=repair)
    job, summary = Runs(world.spark, world.settings, world.folder / "runs").audited(contract, "source")
    assert summary.complete
    assert planted == {id_: each["difference"] for (_, id_), each in findings(job).items()}
    fence = job.run.read(Fence)
    assert snapshot == fence.source.cut
    assert ("iceberg is not proven to be the primary: it is no Postgres",) == fence.source.limits


def test_catalogs_of_one_name_are_refused_and_others_kept_apart(world: World) -> None:
    """One Spark serves many contracts."""
    spark, here = world.spark, str(world.folder / "iceberg")
    first = lakes._catalog(spark, "lake", LakePlace("iceberg", here))
    second = lakes._catalog(spark, "lake", LakePlace("iceberg", here, {"io-impl": "another"}))
    assert first != second
    assert "prod" == lakes._catalog(spark, "lake", LakePlace("iceberg", here, {}, "prod"))
    with pytest.raises(RefusedError, match=r"a catalog prod with other properties .*prod\.token.* another `name`"):
        lakes._catalog(spark, "other", LakePlace("iceberg", here, {"token": "a secret"}, "prod"))
