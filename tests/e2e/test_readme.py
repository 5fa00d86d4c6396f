"""A newcomer who types what the README says gets what it promises."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from reconcile.files import committed
from reconcile.lab.faults import FAULTS
from tests.ports import ports_of

BIN = Path(sys.executable).parent
# The lab's own ports may be taken by a lab of the developer's.
OWN = ports_of("readme")
PORTS = f"--postgres-port {OWN.postgres} --kafka-port {OWN.kafka} --controller-port {OWN.controller}"


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command line as a newcomer would, with the virtual environment active."""
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
    )


def commands(page: str) -> dict[str, int]:
    """Give the `reconcile` commands of a page's console blocks, with the codes that they are said to exit with."""
    blocks = re.findall(r"```console\n(.*?)```", committed(page).read_text("utf-8"), flags=re.S)
    lines = [line[2:].partition("#") for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return {
        command.strip().replace("lab up", f"lab up {PORTS}"): 1 if "exits 1" in comment else 0
        for command, _, comment in lines
        if command.startswith("reconcile ")
    }


def left_running(folder: Path) -> list[str]:
    """Give the servers that still run in a folder."""
    left = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            line = process.cmdline()
            server = "kafka.Kafka" in line or (line[:1] and Path(line[0]).name == "postgres")
            if server and str(folder) in " ".join([process.cwd(), *line]):
                left.append(" ".join(line))
    return left


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder that is the same in each run, so that servers which a killed run left there are found and ended."""
    path = Path(tempfile.gettempdir()) / f"reconcile-{request.function.__name__}"
    path.mkdir(exist_ok=True)
    run("reconcile lab down --wipe", path)
    yield path
    run("reconcile lab down --wipe", path)
    shutil.rmtree(path)


def test_the_commands_of_the_readme_work(folder: Path) -> None:
    """Each command of the README succeeds, one after the other, in a folder that holds the contracts alone."""
    (folder / "contracts").unlink(missing_ok=True)
    (folder / "contracts").symlink_to(committed("contracts"))
    listed = commands("README.md")
    assert "reconcile lab down --wipe" in listed
    for command, code in listed.items():
        done = run(command, folder)
        assert code == done.returncode, f"{command}: {done.stderr}"
    assert [] == left_running(folder)


def test_the_demo_shows_every_fault_and_leaves_nothing(folder: Path) -> None:
    """The demo ends well, names each fault in its table, and no server and no file of it remain."""
    done = run("reconcile demo", folder)
    assert 0 == done.returncode, done.stderr
    assert [] == [fault.name for fault in FAULTS if fault.name not in done.stdout]
    assert ["0"] * 3 == re.findall(r"findings are left, (\d+) of them unexpected", done.stdout)
    assert [] == left_running(folder)
    assert [] == [path for path in folder.rglob("*") if path.is_file()]


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
