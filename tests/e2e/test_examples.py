"""The examples run whole: every fault is found and named, and what can be repaired is."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from reconcile.files import committed
from tests.ports import connect_port_of, ports_of


@pytest.mark.parametrize(
    ("module", "variant"), [("debezium", "full"), ("debezium", "flat"), ("outbox_router", "orders")]
)
def test_the_example_runs_whole(module: str, variant: str, tmp_path: Path) -> None:
    """It finds what was planted, repairs it through the copy's own consumer, and leaves nothing running."""
    owner = module.replace("_", " ")
    ports = ports_of(owner)
    command = [
        *(sys.executable, "-m", f"examples.{module}", "run", "--variant", variant, "--dir", str(tmp_path / "world")),
        *("--postgres-port", str(ports.postgres), "--kafka-port", str(ports.kafka)),
        *("--controller-port", str(ports.controller), "--connect-port", str(connect_port_of(owner))),
    ]
    done = subprocess.run(
        command, cwd=committed("README.md").parent, capture_output=True, text=True, timeout=1800, check=False
    )
    left = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(tmp_path) in " ".join(process.cmdline()):
                left.append(process.pid)
    assert ([], 0) == (left, done.returncode), done.stdout[-6000:] + done.stderr[-3000:]
