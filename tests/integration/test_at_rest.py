"""What is kept at rest: who may read it, for how long, and what is left of a person who is to be forgotten."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from reconcile.files import committed
from reconcile.gather.log import forgetting
from reconcile.gather.log.store import HistoryStore, Home
from reconcile.gather.stores.digest import ComparisonMode
from reconcile.lab import faults, world
from reconcile.lab.folder import Lab
from reconcile.pipeline import stages as pipeline
from reconcile.settings.references import Reference
from reconcile.workspace.manifest import ChangedInputsError
from reconcile.workspace.workspace import Workspace
from tests.integration.runs import Runs, findings
from tests.integration.worlds import seeded_world
from tests.ports import ports_of
from tests.schemas import valid_output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A world in which every fault has happened, made by somebody whose files anybody may read."""
    before = os.umask(0o000)
    try:
        with seeded_world(aggregates=200, ports=ports_of("at rest")) as made:
            faults.plant(made, faults.FAULTS, 1)
            yield made
    finally:
        os.umask(before)


def reconcile(
    lab: Lab, workspace: Path, *arguments: object, umask: int = 0o022, settings: str = "", code: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, with a control store in its workspace and more settings."""
    config = lab.root.parent / "at-rest.yaml"
    given = world.settings_file(lab).read_text("utf-8")
    config.write_text(re.sub(r"(?m)^control_store:.*\n(  .*\n)*", "", given) + settings, "utf-8")
    command = [sys.executable, "-m", "reconcile.cli", *map(str, arguments)]
    place = ["--config", str(config), "--workspace", str(workspace)]
    done = subprocess.run([*command, *place], capture_output=True, text=True, check=False, umask=umask)
    assert done.returncode in ((0, 1) if code is None else (code,)), done.stderr
    return done


@pytest.fixture(scope="module")
def sensitive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A contract in which all but the phone is sensitive."""
    text = committed("contracts", "user-account.yaml").read_text("utf-8")
    text = text.replace("- name: display_name", "- name: display_name\n        sensitive: true")
    text = text.replace("{name: email, ", "{name: email, sensitive: true, ")
    file = tmp_path_factory.mktemp("contracts") / "user-account.yaml"
    file.write_text(text, "utf-8")
    return file


def texts(folder: Path) -> dict[str, str]:
    """Give what the files below a folder say, also of what is compressed."""
    found = {}
    for path in (each for each in folder.rglob("*") if each.is_file()):
        said = path.read_bytes().decode("utf-8", "replace")
        if path.suffix == ".parquet":
            said = repr(pq.ParquetFile(path).read().to_pylist())
        found[str(path.relative_to(folder))] = said
    return found


def values(lab: Lab, query: str) -> set[str]:
    """Query texts of the source."""
    with closing(psycopg2.connect(lab.url("user"))) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        return {text for (text,) in cursor.fetchall() if text}


def mentions(folder: Path, wanted: Collection[str]) -> dict[str, list[str]]:
    """Give which of some texts stand in which files below a folder."""
    found = {name: [each for each in wanted if each in said] for name, said in texts(folder).items()}
    return {name: some for name, some in found.items() if some}


def rights(folder: Path) -> set[tuple[str, int]]:
    """Give the rights that are given to folders and files below one."""
    kinds = {(path, "folder" if path.is_dir() else "file") for path in folder.rglob("*")}
    return {(kind, path.stat().st_mode & 0o777) for path, kind in kinds}


PRIVATE = {("folder", 0o700), ("file", 0o600)}


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_nobody_else_may_read_a_workspace(lab: Lab, tmp_path: Path, umask: int) -> None:
    """Runs, histories with their states, reports and the control store, whatever the umask is."""
    runs = tmp_path / "runs"
    reconcile(lab, runs, "run", committed("contracts", "user-account.yaml"), "--run-id", "first", umask=umask)
    names = {path.name for path in runs.rglob("*")}
    assert {"_log", "first", "control.db", "report.html", "state", "manifest.json"} <= names
    assert PRIVATE == rights(runs)
    assert 0o700 == runs.stat().st_mode & 0o777


@pytest.fixture(scope="module")
def reported(lab: Lab, sensitive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a run of that contract, which was reported."""
    runs = tmp_path_factory.mktemp("reported") / "runs"
    reconcile(lab, runs, "run", sensitive, "--run-id", "first", code=1)
    return runs


EMAILS = "select address from email_address"


def test_a_reported_run_holds_no_sensitive_value(lab: Lab, reported: Path) -> None:
    """The rows that it compared are gone, and its cases, findings and reports are redacted."""
    names = {path.name for path in (reported / "first").iterdir()}
    assert {"cases.login", "findings", "parked.login"} <= names
    assert not {each for each in names if each.split(".")[0] in ("source", "copy", "suspects", "examined", "ledger")}
    assert {} == mentions(reported / "first", values(lab, EMAILS))
    assert mentions(reported / "first", values(lab, "select number from phone_number"))
    assert "hmac:" in "".join(said for name, said in texts(reported / "first").items() if "findings" in name)


@pytest.mark.parametrize("mode", ["digest", "full"])
def test_redaction_changes_no_finding(
    lab: Lab, sensitive: Path, spark: SparkSession, tmp_path: Path, mode: ComparisonMode
) -> None:
    """What differs and why is told the same of fields that are redacted as they are read; and they are, at once."""
    runs, plain = Runs.of(spark, lab, tmp_path), committed("contracts", "user-account.yaml")
    told = []
    for number, contract in enumerate((plain, sensitive)):
        job, _ = runs.audited(contract, f"run-{number}", mode=mode)
        names = {key: sorted(field["name"] for field in each["fields"]) for key, each in findings(job).items()}
        told.append({key: {**each, "run_id": "", "fields": names[key]} for key, each in findings(job).items()})
    assert told[0]
    assert told[0] == told[1]
    emails = values(lab, EMAILS)
    assert {"source.login", "copy.login", "suspects.login"} <= {path.name for path in (tmp_path / "run-1").iterdir()}
    assert ({}, True) == (mentions(tmp_path / "run-1", emails), bool(mentions(tmp_path / "run-0", emails)))


def test_a_run_stays_under_its_key(
    lab: Lab, sensitive: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was gathered under another one cannot be compared."""
    job = Runs.of(spark, lab, tmp_path).job(sensitive, "r1")
    pipeline.gather(job)
    key = Reference("env", "ANOTHER_KEY")
    other = replace(job, settings=job.settings.model_copy(update={"redaction_key": key}))
    monkeypatch.setenv("ANOTHER_KEY", "k" * 32)
    with pytest.raises(ChangedInputsError, match="another redaction_key"):
        pipeline.audit(other)


def test_cases_are_kept_of_findings_alone(reported: Path) -> None:
    """What was examined and agrees is nobody's business."""
    ids = {
        name: {each[column] for each in pq.read_table(reported / "first" / name / "data").to_pylist()}
        for name, column in (("cases.login", "id"), ("findings", "aggregate_id"))
    }
    assert ids["findings"] == ids["cases.login"]


def test_a_reported_run_can_be_explained(lab: Lab, reported: Path) -> None:
    """Its cases have what a story needs."""
    changed = pq.read_table(reported / "first" / "findings" / "data").to_pylist()
    id_text = next(each["aggregate_id"] for each in changed if each["difference"] == "changed")
    assert "•••" in reconcile(lab, reported, "explain", "first", id_text).stdout


def test_a_gate_that_comes_late_says_so(lab: Lab, reported: Path) -> None:
    """Expectations are about rows, which are gone."""
    done = reconcile(lab, reported, "quality", "--run", "first", code=2)
    assert "were dropped with its report: start a new run with --quality, or set `keep: snapshots`" in done.stderr


def test_snapshots_are_kept_if_that_is_set(lab: Lab, sensitive: Path, tmp_path: Path) -> None:
    """Sensitive values are redacted in them, under a key that is made on first use, for nobody else."""
    key = lab.root / "secrets" / "redaction.key"
    reconcile(lab, tmp_path, "run", sensitive, "--mode", "full", "--run-id", "kept", settings="keep: snapshots\n")
    assert {"source.login", "copy.login"} <= {path.name for path in (tmp_path / "kept").iterdir()}
    assert {} == mentions(tmp_path / "kept", values(lab, EMAILS))
    assert (0o600, True) == (key.stat().st_mode & 0o777, len(key.read_text("ascii").strip()) > 30)


PERSON = """
    select u.id::text || '|' || coalesce(e.address, '') || '|' || coalesce(p.number, '')
      from user_account u left join email_address e on e.user_id = u.id left join phone_number p on p.user_id = u.id
     where u.id::text = any(%s)
"""


@dataclass(frozen=True)
class Known:
    """A workspace that knows of two people, one of whom has something put aside."""

    runs: Path
    ids: list[str]
    said: set[str]
    """What only they say of themselves, with their ids."""


@pytest.fixture
def known(lab: Lab, reported: Path, tmp_path: Path) -> Known:
    """A copy of the workspace."""
    runs = tmp_path / "runs"
    shutil.copytree(reported, runs)
    found = pq.read_table(runs / "first" / "findings" / "data").to_pylist()
    causes = {each["cause"]: each["aggregate_id"] for each in found if each["difference"] == "changed"}
    ids = [causes["stashed"], causes["skipped"]]
    with closing(psycopg2.connect(lab.url("user"))) as connection, connection.cursor() as cursor:
        cursor.execute(PERSON, (ids,))
        said = {text for (row,) in cursor.fetchall() for text in row.split("|") if text}
    return Known(runs, ids, {*ids, *said})


def test_forgetting_leaves_nothing(lab: Lab, sensitive: Path, known: Known) -> None:
    """No file of the workspace has an id or a value of a forgotten person any more, nor has the control store."""
    before = mentions(known.runs, known.said)
    assert {"_log", "first", "control.db"} <= {name.split("/")[0] for name in before}
    assert known.said == {each for some in before.values() for each in some}
    assert any("stash" in name for name in before)
    others = len(pq.read_table(known.runs / "first" / "findings" / "data")) - 2
    done = reconcile(lab, known.runs, "forget", sensitive, *known.ids, "--json", code=0)
    told = valid_output("forget", done.stdout)
    assert ([], True) == (told["remaining"], told["runs"]["first"] > 3)
    assert {"finding": 2, "correction": 0, "request": 0} == told["control"]
    assert {} == mentions(known.runs, known.said)
    assert others == len(pq.read_table(known.runs / "first" / "findings" / "data"))
    assert PRIVATE == rights(known.runs)


def test_what_is_left_goes_on(lab: Lab, sensitive: Path, known: Known) -> None:
    """The run can be read and reported, and the history is extended and not read anew."""
    reconcile(lab, known.runs, "forget", sensitive, *known.ids, code=0)
    shown = json.loads(reconcile(lab, known.runs, "findings", "first", "--format", "jsonl").stdout.splitlines()[0])
    reconcile(lab, known.runs, "explain", "first", shown["aggregate_id"], code=0)
    reconcile(lab, known.runs, "audit", "--run", "first", code=1)
    reconcile(lab, known.runs, "run", sensitive, "--run-id", "second", code=1)
    assert {} == mentions(known.runs / "_log", known.said)


def test_forgetting_says_what_it_could_not_remove(lab: Lab, sensitive: Path, known: Known) -> None:
    """A damaged run is not looked into: it has to be pruned."""
    next((known.runs / "first" / "findings" / "data").glob("*.parquet")).write_bytes(b"torn")
    done = reconcile(lab, known.runs, "forget", sensitive, *known.ids, code=2)
    assert "something is still in first: " in done.stderr


def home_of(known: Known) -> Home:
    """Give the history of the topic."""
    (home,) = HistoryStore.of(Workspace(known.runs)).homes_of("main", "user-account")
    return home


class CutOffError(Exception):
    """Raised where a process would have been killed."""


@pytest.mark.parametrize("at", ["publish", "remove_past", "remove_state"])
def test_a_history_survives_being_cut_off(
    spark: SparkSession, known: Known, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """It has the records or has not, and the next call does the rest."""
    home, index = home_of(known), home_of(known).load()
    assert index is not None

    def cut_off(*_: object) -> None:
        raise CutOffError

    with monkeypatch.context() as patched:
        patched.setattr(Home, at, cut_off)
        with pytest.raises(CutOffError):
            forgetting.forget(spark, home, known.ids, "string")
    between = home.load()
    assert between is not None
    assert at != "publish" or between == index
    left = spark.read.parquet(*(home.uri(each.name) for each in between.segments)).count()
    assert sum(each.rows for each in between.segments) == left
    forgetting.forget(spark, home, known.ids, "string")
    assert 0 == forgetting.count(spark, home, known.ids, "string")
    assert {} == mentions(Path(home.folder), known.said)
    last = home.load()
    assert last is not None
    assert {each.name for each in last.segments} == set(home.stored_segments())
    assert [(each.start, each.end) for segment in index.segments for each in segment.partitions.values()] == [
        (each.start, each.end) for segment in last.segments for each in segment.partitions.values()
    ]


def test_nobody_else_may_read_a_lab(lab: Lab) -> None:
    """Its settings, secrets, truth, logs and its servers' data."""
    assert PRIVATE == rights(lab.root)
    assert 0o700 == lab.root.stat().st_mode & 0o777
