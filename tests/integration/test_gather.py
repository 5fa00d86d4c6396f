"""Gathering: everything at one instant, whole or not at all, and every failure by its name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pydantic import SecretStr

from reconcile.files import committed
from reconcile.gather.fence.opening import open_fence
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.stores import postgres_store
from reconcile.gather.stores.digest import ComparisonMode, Side
from reconcile.gather.stores.errors import SnapshotLostError, StoreBusyError
from reconcile.gather.stores.session import StoreSession
from reconcile.gather.stores.spark_store import SparkStore
from reconcile.kafka.errors import ClusterRefusedError
from reconcile.lab import world
from reconcile.lab.folder import Lab
from reconcile.lab.services.database import connect
from reconcile.pipeline import gather as stage
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.handoffs import Gathered
from reconcile.pipeline.job import Job
from reconcile.settings.connections import JdbcUrl
from reconcile.workspace.manifest import ChangedInputsError
from tests.integration.runs import Runs, findings
from tests.integration.worlds import seeded_world
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGGREGATES = 400


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A world of our own, in which one profile has been edited by hand."""
    with seeded_world(aggregates=AGGREGATES, ports=ports_of("gather")) as lab:
        first = "select user_id from login_profile order by user_id limit 1"
        sql(lab, "login", f"update login_profile set mail = 'other@x' where user_id in ({first})")
        yield lab


@pytest.fixture
def runs(lab: Lab, spark: SparkSession, tmp_path: Path) -> Runs:
    """Runs in a workspace of the test's own."""
    return Runs.of(spark, lab, tmp_path / "runs")


def sql(lab: Lab, database: str, statement: str, user: str | None = None) -> list[tuple[Any, ...]]:
    """Do something as the owner of a database."""
    url = lab.url(database) if user is None else lab.url(database, user)
    with closing(connect(url)) as session, session, session.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []


def names(job: Job) -> dict[str, bool]:
    """Give the artifacts that a run has of its gathering, and whether each is complete."""
    return {each.name: each.complete for each in job.run.manifests() if each.stage == "gather"}


def test_a_snapshot_is_one_instant_for_all_readers(lab: Lab, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes after the fence is not seen, however many tasks read and whenever they start."""
    monkeypatch.setattr(postgres_store, "_PART_BLOCKS", 1)
    job = runs.job("user-account", "instant")
    consumer = job.contract.consumers[0]
    with open_fence(job.contract, job.file, job.settings, timeout=timedelta(0)) as opened:
        reader = LinkReader(job.spark, job.contract, consumer, job.settings, opened)
        before = {tuple(row) for row in reader.rows[1].all(job.spark).collect()}
        sql(lab, "login", "create table kept as table login_profile; update login_profile set phone = 'changed'")
        sql(lab, "login", "delete from login_profile where mail = 'other@x'")
        try:
            after = {tuple(row) for row in reader.rows[1].all(job.spark).collect()}
            some = job.spark.createDataFrame([(row[0],) for row in before], "reconcile_id string")
            looked_up = {tuple(row) for row in reader.rows[1].among(some).collect()}
        finally:
            sql(
                lab, "login", "delete from login_profile; insert into login_profile select * from kept; drop table kept"
            )
    assert before == after == looked_up


def test_all_rows_are_read_once(lab: Lab, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """In ranges of blocks that do not overlap and leave nothing out."""
    monkeypatch.setattr(postgres_store, "_PART_BLOCKS", 1)
    job = runs.job("user-account", "parts")
    with open_fence(job.contract, job.file, job.settings, timeout=timedelta(0)) as opened:
        reader = LinkReader(job.spark, job.contract, job.contract.consumers[0], job.settings, opened)
        frame = reader.rows[1].all(job.spark)
        ids = sorted(row[0] for row in frame.select("reconcile_id").collect())
        parts = frame.rdd.getNumPartitions()
    assert parts > 1
    assert sorted(str(row[0]) for row in sql(lab, "login", "select user_id from login_profile")) == ids


def test_what_a_run_leaves(lab: Lab, runs: Runs) -> None:
    """All artifacts, all complete; the same again does nothing; something else is refused with what changed."""
    job = runs.job("user-account", "whole")
    pipeline.gather(job)
    expected = {"fence", "gathered", "source.login", "copy.login", "ledger.login", "parked.login", "outbox"}
    assert dict.fromkeys(expected, True) == names(job)
    fields = [(each["name"], each["sensitive"]) for each in job.run.json("gathered")["links"][0]["fields"]]
    assert [("display_name", False), ("email", False), ("phone", False)] == fields
    made = job.run.manifest("gathered").created_at
    pipeline.gather(runs.job("user-account", "whole"))
    assert made == job.run.manifest("gathered").created_at
    with pytest.raises(ChangedInputsError, match='mode: "auto" → "full"'):
        pipeline.gather(runs.job("user-account", "whole", mode="full"))


def test_no_session_outlives_the_stage(lab: Lab, runs: Runs) -> None:
    """Snapshots that stay would keep dead rows for as long."""
    pipeline.gather(runs.job("user-account", "sessions"))
    left = "select count(*) from pg_stat_activity where usename = 'reconcile_reader' and xact_start is not null"
    assert [(0,)] == sql(lab, "postgres", left, "postgres")


def test_what_is_taken_of_each_database_is_told(lab: Lab, runs: Runs) -> None:
    """No more readers than the connection allows, and what they read."""
    job = limited(lab, runs, readers=1).job("user-account", "taken", mode="full")
    pipeline.gather(job)
    taken = {each.of: each for each in job.run.read(Gathered).taken}
    assert {"source": "user-db", "login": "login-db"} == {each.of: each.store for each in taken.values()}
    assert [1, 1] == [each.readers for each in taken.values()]
    link = job.run.read(Gathered).links[0]
    assert taken["login"].rows >= link.copy_rows
    assert taken["source"].rows >= link.source_rows
    assert all(each.statements > 0 and each.snapshot_seconds > 0 for each in taken.values())


def test_rows_that_are_not_read_take_no_readers(lab: Lab, runs: Runs) -> None:
    """Where all buckets agree, each side has its digest, and the copy its ledger."""
    job = runs.job("user-balance", "agrees")
    pipeline.gather(job)
    assert [0] == [each.differing for each in job.run.read(Gathered).links]
    assert all(each.readers <= 2 for each in job.run.read(Gathered).taken)


def test_a_store_that_stays_busy_ends_the_run(lab: Lab, runs: Runs) -> None:
    """By name, and nothing looks as if all had been gathered."""
    job = limited(lab, runs, pause={"connections": 1, "at_most": "0s"}).job("user-account", "busy")
    with pytest.raises(StoreBusyError, match="was busy for longer than"):
        pipeline.gather(job)
    assert "gathered" not in names(job)


@pytest.mark.parametrize("mode", ["digest", "full"])
def test_spark_on_a_cluster_reads_the_same(
    lab: Lab, runs: Runs, mode: ComparisonMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own tasks, of which no more read at a time than may."""
    here = runs.job("user-account", f"here-{mode}", mode=mode)
    pipeline.gather(here)
    monkeypatch.setattr(Job, "is_local", False)
    there = limited(lab, runs, readers=1).job("user-account", f"there-{mode}", mode=mode)
    pipeline.gather(there)
    for table in ("source.login", "copy.login"):
        made = [job.run.manifest(table) for job in (here, there)]
        assert (made[0].rows, made[0].digest) == (made[1].rows, made[1].digest)
    taken = [{each.of: each for each in job.run.read(Gathered).taken} for job in (here, there)]
    assert [1, 1] == [each.readers for each in taken[1].values()]
    assert (True, False) == tuple(each["login"].bytes > 0 for each in taken)


def limited(lab: Lab, runs: Runs, **limits: object) -> Runs:
    """Give runs whose databases have limits."""
    file = world.settings_file(lab)
    settings = yaml.safe_load(file.read_text())
    for name in ("user-db", "login-db"):
        settings["connections"][name] |= limits
    with_limits = file.parent / "limited.yaml"
    with_limits.write_text(yaml.safe_dump(settings))
    return Runs(runs.spark, with_limits, runs.folder)


def test_a_store_that_is_down_makes_the_run_incomplete(lab: Lab, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The link is named, nothing is found, and everything made of it is incomplete too."""
    monkeypatch.setenv("RECONCILE_CONN_LOGIN_DB", "postgresql://nobody@127.0.0.1:1/login")
    job, told = runs.audited("user-account", "down")
    assert 2 == told.exit_code
    assert [("user-account/login", True)] == [(each.link, each.may_pass) for each in told.unread]
    assert [False, False] == [job.run.manifest(name).complete for name in ("gathered", "findings")]


def test_a_right_that_is_missing_is_named(lab: Lab, runs: Runs) -> None:
    """The account may read the copy, and not its ledger."""
    sql(lab, "login", "revoke select on processed_message from reconcile_reader")
    try:
        _, told = runs.audited("user-account", "denied")
    finally:
        sql(lab, "login", "grant select on processed_message to reconcile_reader")
    assert "processed_message" in told.unread[0].message
    assert not told.unread[0].may_pass
    assert 2 == told.exit_code


def test_a_snapshot_that_is_lost_ends_the_stage(lab: Lab, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends the source's session: what was read is no instant any more."""
    ended = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'reconcile_reader'"
    job = runs.job("user-account", "lost")
    original = LinkReader.compared

    def compared(self: LinkReader, asked: Any) -> Any:
        found = original(self, asked)
        sql(lab, "postgres", ended, "postgres")
        return found

    monkeypatch.setattr(LinkReader, "compared", compared)
    with pytest.raises(SnapshotLostError, match="start the run again"):
        pipeline.gather(job)
    assert "gathered" not in names(job)


def test_a_copys_snapshot_that_is_lost_leaves_out_its_link(
    lab: Lab, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are read, and nobody keeps a snapshot for longer than its link is read."""
    file = two_consumers(tmp_path)
    original, open_since = LinkReader.compared, []
    sessions = "select count(*) from pg_stat_activity where datname = 'login' and xact_start is not null"

    def compared(self: LinkReader, asked: Any) -> Any:
        found = original(self, asked)
        session = self.opened.consumers[self.consumer.name]
        assert isinstance(session, StoreSession)
        open_since.append(sql(lab, "postgres", sessions, "postgres")[0][0])
        if self.consumer.name == "login":
            sql(
                lab,
                "postgres",
                f"select pg_terminate_backend({session.rows('select pg_backend_pid()')[0][0]})",
                "postgres",
            )
        return found

    monkeypatch.setattr(LinkReader, "compared", compared)
    job = runs.job(file, "one-lost")
    pipeline.gather(job)
    gathered = job.run.json("gathered")
    assert [("user-account/login", "SnapshotLostError")] == [
        (each["link"], each["kind"]) for each in gathered["unread"]
    ]
    assert ["user-account/again"] == [each["link"] for each in gathered["links"]]
    assert [2, 1] == open_since
    assert not job.run.manifest("gathered").complete
    assert job.run.manifest("fence").complete


def test_failure_topics_that_may_not_be_read_leave_out_their_link(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are compared all the same."""
    original = stage.parked_of

    def parked_of(job: Job, consumer: Any, history: Any, **more: Any) -> Any:
        if consumer.name == "login":
            raise ClusterRefusedError("the cluster main refuses the dead letters")
        return original(job, consumer, history, **more)

    monkeypatch.setattr(stage, "parked_of", parked_of)
    _, told = runs.audited(two_consumers(tmp_path), "no-right")
    assert {"user-account/login": "the cluster main refuses the dead letters"} == {
        each.link: each.message for each in told.unread
    }
    assert 1 == told.links[-1].drifted
    assert 2 == told.exit_code


def test_a_store_that_is_down_makes_the_fence_incomplete(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so itself, to whoever reads it alone."""
    monkeypatch.setenv("RECONCILE_CONN_LOGIN_DB", "postgresql://nobody@127.0.0.1:1/login")
    job = runs.job("user-account", "fence-down")
    pipeline.gather(job)
    manifest = job.run.manifest("fence")
    assert not manifest.complete
    assert "user-account/login" in manifest.notes[0]


def test_operators_that_are_question_marks(lab: Lab, runs: Runs, tmp_path: Path) -> None:
    """In every place of a contract for SQL, whoever reads it: the driver would take them for parameters."""
    operators = """('{"?": 1}'::jsonb ? '?' and '["a"]' ?| array['a'] /* ? */)"""
    shown = "case when " + operators.replace("{", "{{").replace("}", "}}") + " then {} else '?' end"
    file = changed_contract(
        tmp_path,
        ("deleted: deleted_at is not null", "deleted: " + yaml_text(f"deleted_at is not null or not {operators}")),
        ("source: email,", f"source: {yaml_text(shown.format('email'))},"),
        ("consumer: mail,", f"consumer: {yaml_text(shown.format('mail'))},"),
    )
    for mode in ("auto", "full"):
        job, told = runs.audited(file, f"operators-{mode}", mode=mode)
        assert () == told.unread
        assert [["email"]] == [[field["name"] for field in each["fields"]] for each in findings(job).values()]
    url, properties = lab_jdbc(lab)
    address = JdbcUrl(SecretStr(f"{url}?user={properties['user']}&password={properties['password']}"))
    side = Side(("user_id",), (operators,), table="login_profile")
    frame = SparkStore("login-db", address).frame(runs.spark, side)
    assert {(True,)} == {tuple(row) for row in frame.select("f0").distinct().collect()}


def test_a_killed_attempt_leaves_nothing_that_is_read(lab: Lab, runs: Runs, tmp_path: Path) -> None:
    """kill -9 as soon as the first artifact stands; the next attempt takes everything anew."""
    program = (
        "import sys; from reconcile.cli import main; sys.argv = ['reconcile', 'gather', '--run', 'killed',"
        f" '--contract', {str(committed('contracts', 'user-account.yaml'))!r}, '--config',"
        f" {str(world.settings_file(lab))!r}, '--workspace', {str(runs.folder)!r}]; main()"
    )
    attempt = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (runs.folder / "killed" / "source.login").exists() and time.monotonic() < deadline:
        assert attempt.poll() is None
        time.sleep(0.02)
    os.killpg(attempt.pid, signal.SIGKILL)
    attempt.wait()
    job = runs.job("user-account", "killed")
    assert "gathered" not in names(job)
    pipeline.gather(job)
    assert all(names(job).values())
    assert "gathered" in names(job)


@pytest.mark.parametrize("kind", ["parquet", "jdbc"])
def test_stores_that_are_no_postgres(
    lab: Lab, runs: Runs, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy in Parquet, or behind JDBC, gives the same findings, but for what only the database's tables tell."""
    text = committed("contracts", "user-account.yaml").read_text()
    ledger = next(line for line in text.splitlines() if "ledger:" in line)
    file = tmp_path / "contract.yaml"
    file.write_text(text.replace(ledger + "\n", "").replace("store: login-db", "store: other-db"))
    settings = world.settings_file(lab).read_text()
    reader = world.settings_file(lab).parent / "with-other.yaml"
    jdbc, properties = lab_jdbc(lab)
    if kind == "parquet":
        rows = runs.spark.read.format("jdbc").options(url=jdbc, dbtable="login_profile", **properties).load()
        rows.write.parquet(str(tmp_path / "files" / "login_profile"))
        place = f"other-db: {{path: {tmp_path / 'files'}}}"
    else:
        monkeypatch.setenv("OTHER", f"{jdbc}?user={properties['user']}&password={properties['password']}")
        place = "other-db: {url: 'env:OTHER'}"
    reader.write_text(settings.replace("connections:\n", f"connections:\n  {place}\n"))
    job, told = Runs(runs.spark, reader, runs.folder).audited(file, f"as-{kind}")
    assert () == told.unread
    assert "full" == job.run.json("gathered")["links"][0]["mode"]
    found = findings(job)
    assert ["changed"] == [each["difference"] for each in found.values()]
    assert [["email"]] == [[field["name"] for field in each["fields"]] for each in found.values()]
    assert 1 == told.exit_code


def test_what_spark_cannot_read_is_named_and_leaves_out_its_link(lab: Lab, runs: Runs, tmp_path: Path) -> None:
    """A copy whose values the contract's SQL cannot cast, and one whose files are damaged; values are not told."""
    jdbc, properties = lab_jdbc(lab)
    rows = runs.spark.read.format("jdbc").options(url=jdbc, dbtable="login_profile", **properties).load()
    rows.coalesce(1).write.parquet(str(tmp_path / "files" / "login_profile"))
    settings = world.settings_file(lab)
    with_files = settings.parent / "with-files.yaml"
    place = f"  files: {{path: {tmp_path / 'files'}}}\n"
    with_files.write_text(settings.read_text().replace("connections:\n", f"connections:\n{place}"))
    spark_runs = Runs(runs.spark, with_files, runs.folder)
    ledger = next(
        line for line in committed("contracts", "user-account.yaml").read_text().splitlines() if "ledger:" in line
    )
    away = ((ledger + "\n", ""), ("store: login-db", "store: files"))
    cast = changed_contract(tmp_path, *away, ("consumer: mail,", 'consumer: "cast(mail as int)",'))
    _, told = spark_runs.audited(cast, "no-cast")
    assert "[CAST_INVALID_INPUT]" in told.unread[0].message
    assert "@" not in told.unread[0].message
    assert 2 == told.exit_code
    (file,) = (tmp_path / "files" / "login_profile").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1000] + b"x" * 1000)
    file.with_name(f".{file.name}.crc").unlink()
    whole = changed_contract(tmp_path, *away)
    job = spark_runs.job(whole, "damaged")
    pipeline.gather(job)
    (unread,) = job.run.json("gathered")["unread"]
    assert ("user-account/login", "StoreReadError") == (unread["link"], unread["kind"])


def changed_contract(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the accounts' contract with some of its text replaced."""
    text = committed("contracts", "user-account.yaml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = folder / "contract.yaml"
    file.write_text(text)
    return file


def yaml_text(said: str) -> str:
    """Quote text for a contract."""
    return "'" + said.replace("'", "''") + "'"


def two_consumers(folder: Path) -> Path:
    """Write the accounts' contract with its consumer twice: `login`, and `again`."""
    text = committed("contracts", "user-account.yaml").read_text()
    consumer = text.partition("consumers:\n")[2]
    assert 1 == consumer.count("- name: login")
    file = folder / "contract.yaml"
    file.write_text(text + consumer.replace("- name: login", "- name: again"))
    return file


def lab_jdbc(lab: Lab) -> tuple[str, dict[str, str]]:
    """Give login's database for Spark."""
    from reconcile.settings.urls import parse

    url, properties = parse(lab.url("login")).jdbc()
    return url, {**properties, "driver": "org.postgresql.Driver"}
