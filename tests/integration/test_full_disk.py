"""A disk on which no space is left: one name for it, nothing published in part, and the next attempt goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconcile.files import committed
from reconcile.lab import faults, world
from reconcile.lab.folder import Lab
from reconcile.workspace.full_disk import DiskFullError, full_disk_named
from tests.integration.worlds import seeded_world
from tests.ports import ports_of

# In a mount namespace of its own, with a file system of 256 KB that has no other user.
WORLD = """
mount -t tmpfs -o size=256k tmpfs "$1" || exit 99
"$2" -c "$3" "$1"
"""
FILLED = """
import random, subprocess, sys
from pathlib import Path
import pyarrow as pa
from reconcile.control.store import open_control
from reconcile.pipeline.logs import logged_to_stderr
from reconcile.settings.settings import Settings
from reconcile.workspace.full_disk import DiskFullError, full_disk_named
from reconcile.workspace.manifest import Inputs
from reconcile.workspace.workspace import Workspace

folder, inputs = sys.argv[1], Inputs(contract="c")
place = Workspace(folder)
run = place.run("r1")
run.publish_json("whole", ["x" * 100], inputs, stage="gather")
with open_control(Settings(workspace=folder)) as control:
    control.runs.begin("r0", "user-account", "c")

dice = random.Random(7)
rows = pa.table({"reconcile_id": [dice.randbytes(40).hex() for _ in range(9000)]})
attempts = {
    "json": lambda: run.publish_json("big", ["y" * 500_000], inputs, stage="gather"),
    "texts": lambda: run.publish_texts("big", ["reconcile_id"], [lambda take: take(rows)], inputs, stage="gather"),
    "report": lambda: run.write_file("report.html", ["z" * 500_000]),
}
for name, attempt in attempts.items():
    try:
        with full_disk_named(name):
            attempt()
    except DiskFullError as error:
        print(name, str(error).split(":")[0])
names = sorted(path.name for path in Path(run.folder).iterdir())
print("left", names, run.json("whole") == ["x" * 100], run.find("big"))

Path(folder, "ballast").write_bytes(b"")
with open(Path(folder, "ballast"), "wb", buffering=0) as ballast:
    try:
        while True:
            ballast.write(b"b" * 512)
    except OSError:
        pass
try:
    with full_disk_named("audit"), open_control(Settings(workspace=folder)) as control:
        for number in range(3000):
            control.runs.begin(f"r{number:0>90}", "user-account", "c")
except DiskFullError as error:
    print("control", str(error).split(":")[0])
subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
with open_control(Settings(workspace=folder)) as control:
    print("again", control.runs.find("r0").id, run.publish_json("big", ["y" * 500_000], inputs, stage="gather").rows)
"""


RUN = """
folder=$1 size=$2
shift 2
mount -t tmpfs -o size=$size tmpfs "$folder" || exit 99
python=$1
shift
"$python" -m reconcile.cli "$@"
echo "code $?"
mount -o remount,size=64m "$folder"
echo "-- more space --" >&2
"$python" -m reconcile.cli "$@"
echo "code $?"
"""


def in_namespace(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command that makes a file system of its own."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("this machine has no `unshare`")
    if done.returncode in (1, 99) and not done.stdout:
        pytest.skip(f"this machine gives nobody a file system of his own: {done.stderr}")
    return done


def test_what_is_published_is_whole_on_a_full_disk(tmp_path: Path) -> None:
    """Files, tables, reports and the control store say the same; nothing is left of them, and the next call goes on."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", WORLD, "sh", str(folder), sys.executable, FILLED]
    done = in_namespace(command)
    expected = [
        "json no space is left on a disk for `json`",
        "texts no space is left on a disk for `texts`",
        "report no space is left on a disk for `report`",
        "left ['whole'] True None",
        "control no space is left on a disk for `audit`",
        "again r0 1",
    ]
    assert expected == done.stdout.splitlines(), done.stderr


@full_disk_named("gather")
def failing() -> None:
    """Fail as a stage does of which Spark could not write a part."""
    try:
        raise ValueError("Job aborted.\nCaused by: java.io.IOException: No space left on device\n\tat org.apache")
    except ValueError as error:
        raise RuntimeError("the stage failed") from error


def test_what_spark_says_of_it_is_understood() -> None:
    """However deep it stands in what came of it."""
    with pytest.raises(
        DiskFullError, match=r"for `gather`: Caused by: java\.io\.IOException: No space left on device;"
    ):
        failing()


def test_other_failures_stay_what_they_are() -> None:
    """Only a full disk is one."""
    with pytest.raises(ZeroDivisionError), full_disk_named("gather"):
        raise ZeroDivisionError


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A world with a fault."""
    with seeded_world(aggregates=200, ports=ports_of("full disk")) as made:
        faults.plant(made, faults.named(["hand-edit"]), 1)
        yield made


@pytest.mark.parametrize("size", ["60k", "300k"])
def test_a_run_on_a_full_disk_is_told_so_and_goes_on(lab: Lab, tmp_path: Path, size: str) -> None:
    """In whichever stage the space ends: exit code 2 and one sentence; with more space the same run ends."""
    folder = tmp_path / "small"
    folder.mkdir()
    config, contract = str(world.settings_file(lab)), str(committed("contracts", "user-account.yaml"))
    words = ["run", contract, "--config", config, "--workspace", str(folder / "runs"), "--run-id", "full", "--json"]
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", RUN, "sh", str(folder), size, sys.executable]
    done = in_namespace([*command, *words])
    first, second = done.stderr.split("-- more space --")
    assert ["code 2", "code 1"] == [each for each in done.stdout.splitlines() if each.startswith("code ")], done.stderr
    assert "no space is left on a disk for `" in first, first
    assert "Traceback" not in first + second
