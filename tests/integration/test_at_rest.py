"""What is kept at rest: who may read it, for how long, and what is left of a person who is to be forgotten."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from reconcile.files import committed
from reconcile.lab import faults, world
from reconcile.lab.folder import Lab
from tests.integration.worlds import seeded_world
from tests.ports import ports_of


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
    config = lab.root / "at-rest.yaml"
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
    """As is a key that is made on first use, for nobody else."""
    key = lab.root / "made.key"
    more = "keep: snapshots\nredaction_key: file:made.key\n"
    reconcile(lab, tmp_path, "run", sensitive, "--id", "no-such", "--run-id", "kept", settings=more)
    assert {"source.login", "copy.login"} <= {path.name for path in (tmp_path / "kept").iterdir()}
    assert (0o600, True) == (key.stat().st_mode & 0o777, len(key.read_text("ascii").strip()) > 30)


def test_nobody_else_may_read_a_lab(lab: Lab) -> None:
    """Its settings, secrets, truth, logs and its servers' data."""
    (lab.root / "at-rest.yaml").unlink(missing_ok=True)
    assert PRIVATE == rights(lab.root)
    assert 0o700 == lab.root.stat().st_mode & 0o777
