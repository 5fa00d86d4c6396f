"""What is kept at rest: who may read it, for how long, and what is left of a person who is to be forgotten."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def reconcile(lab: Lab, workspace: Path, *arguments: object, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, with a control store in its workspace."""
    config = lab.root / "at-rest.yaml"
    given = world.settings_file(lab).read_text("utf-8")
    config.write_text(re.sub(r"(?m)^control_store:.*\n(  .*\n)*", "", given), "utf-8")
    command = [sys.executable, "-m", "reconcile.cli", *map(str, arguments)]
    place = ["--config", str(config), "--workspace", str(workspace)]
    done = subprocess.run([*command, *place], capture_output=True, text=True, check=False, umask=umask)
    assert done.returncode in (0, 1), done.stderr
    return done


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


def test_nobody_else_may_read_a_lab(lab: Lab) -> None:
    """Its settings, secrets, truth, logs and its servers' data."""
    (lab.root / "at-rest.yaml").unlink(missing_ok=True)
    assert PRIVATE == rights(lab.root)
    assert 0o700 == lab.root.stat().st_mode & 0o777
