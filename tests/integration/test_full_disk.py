"""A disk on which no space is left: one name for it, nothing published in part, and the next attempt goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reconcile.workspace.full_disk import DiskFullError, full_disk_named

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


def test_what_is_published_is_whole_on_a_full_disk(tmp_path: Path) -> None:
    """Files, tables, reports and the control store say the same; nothing is left of them, and the next call goes on."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", WORLD, "sh", str(folder), sys.executable, FILLED]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("this machine has no `unshare`")
    if done.returncode in (1, 99) and not done.stdout:
        pytest.skip(f"this machine gives nobody a file system of his own: {done.stderr}")
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
