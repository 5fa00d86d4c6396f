"""What everybody on the machine can read while a run goes on: the command lines of all processes."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from reconcile.files import committed
from reconcile.lab import world
from tests.integration.worlds import seeded_world
from tests.ports import ports_of

SPARK_SECRET = "of-an-object-store"


def command_lines() -> dict[int, bytes]:
    """Read the command line of every process there is."""
    found = {}
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found[int(each.parent.name)] = each.read_bytes()
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="this machine has no /proc")
def test_no_secret_stands_on_a_command_line_while_a_run_goes_on(tmp_path: Path) -> None:
    """Neither those of connections nor those that `spark.conf` refers to, in no process of the machine."""
    with seeded_world(50, ports=ports_of("sql fence")) as lab:
        settings = yaml.safe_load(world.settings_file(lab).read_text("utf-8"))
        secrets = [each.read_text("utf-8").strip() for each in (lab.root / "secrets").glob("*.password")]
        settings["spark"]["conf"] |= {
            "spark.hadoop.fs.s3a.session": "env:SPARK_SECRET",
            "spark.executorEnv.A": "file:a",
        }
        (tmp_path / "a").write_text(SPARK_SECRET)
        (tmp_path / "reconcile.yaml").write_text(yaml.safe_dump(settings))
        contract = str(committed("contracts", "user-account.yaml"))
        arguments = [sys.executable, "-m", "reconcile.cli", "run", contract, "--workspace", str(tmp_path / "runs")]
        running = subprocess.Popen(
            [*arguments, "--config", str(tmp_path / "reconcile.yaml")],
            env={**os.environ, "SPARK_SECRET": SPARK_SECRET},
            stdout=subprocess.DEVNULL,
        )
        seen: set[bytes] = set()
        while running.poll() is None:
            seen.update(command_lines().values())
            with suppress(subprocess.TimeoutExpired):
                running.wait(0.1)
    assert running.returncode == 0
    assert any(b"org.apache.spark.deploy.SparkSubmit" in each for each in seen), "Spark was not seen at all"
    shown = b"\n".join(seen)
    assert [] == [each for each in [*secrets, SPARK_SECRET] if each.encode() in shown]
