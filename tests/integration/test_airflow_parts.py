"""Every process of an Airflow is found and ended, whatever became of its parent."""

from __future__ import annotations

import signal
from pathlib import Path

from reconcile.airflow.standalone import Standalone
from reconcile.lab import process

PART = """
import setproctitle, signal, sys, time
ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
setproctitle.setproctitle("airflow api_server" + "-" * 5000)
open("ready", "w").write(str(ignored))
time.sleep(600)
"""


def test_a_part_with_a_title_of_its_own_is_found(tmp_path: Path) -> None:
    """Airflow's parts write titles over what a process was started with; those of nohup ignore interrupts."""
    airflow, ready = Standalone(tmp_path, 18199), tmp_path / "ready"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        airflow.spawn(airflow.log, "-c", PART)
    finally:
        signal.signal(signal.SIGINT, before)
    process.wait_until(lambda: ready.exists() and bool(ready.read_text()), "the part did not start", 30, airflow.log)
    assert "False" == ready.read_text()
    assert 1 == len(airflow.processes())
    airflow.stop()
    assert [] == airflow.processes()
