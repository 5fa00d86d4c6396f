"""A newcomer who types what the README says gets what it promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from reconcile.files import committed
from reconcile.lab.faults import FAULTS

BIN = Path(sys.executable).parent
# The lab's own ports may be taken by a lab of the developer's.
PORTS = "--postgres-port 15492 --kafka-port 19492 --controller-port 19493"


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line as a newcomer would, with the virtual environment active."""
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def commands(page: str) -> list[str]:
    """Give the `reconcile` commands of a page's console blocks."""
    blocks = re.findall(r"```console\n(.*?)```", committed(page).read_text("utf-8"), flags=re.S)
    lines = [
        line[2:].split(" #")[0].strip() for block in blocks for line in block.splitlines() if line.startswith("$ ")
    ]
    return [line.replace("lab up", f"lab up {PORTS}") for line in lines if line.startswith("reconcile ")]


def left_running(folder: Path) -> list[str]:
    """Give the servers that still run in a folder."""
    lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if str(folder) in line and ("postgres -D" in line or "kafka.Kafka" in line)]


def test_the_commands_of_the_readme_work(tmp_path: Path) -> None:
    """Each command of the README succeeds, one after the other, in an empty folder."""
    (tmp_path / "contracts").symlink_to(committed("contracts"))
    listed = commands("README.md")
    assert "reconcile lab down --wipe" in listed
    try:
        for command in listed:
            done = run(command, tmp_path)
            assert 0 == done.returncode, f"{command}: {done.stderr}"
    finally:
        run("reconcile lab down --wipe", tmp_path)
    assert [] == left_running(tmp_path)


def test_the_demo_shows_every_fault_and_leaves_nothing(tmp_path: Path) -> None:
    """The demo ends well, names each fault in its table, and no server and no file of it remain."""
    done = run("COLUMNS=200 reconcile demo", tmp_path)
    assert 0 == done.returncode, done.stderr
    assert [] == [fault.name for fault in FAULTS if fault.name not in done.stdout]
    assert [] == left_running(tmp_path)
    assert [] == [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("reconcile --help", 0),
        ("reconcile --version", 0),
        ("reconcile lab status", 2),
        ("reconcile nonsense", 2),
        ("reconcile contract check nowhere.yaml", 2),
        ("reconcile lab fault", 2),
    ],
)
def test_exit_codes(tmp_path: Path, command: str, code: int) -> None:
    """Exit codes are as the README's table has them, and no one is shown a traceback."""
    done = run(command, tmp_path)
    assert code == done.returncode
    assert "Traceback" not in done.stderr
