"""Every process of an Airflow is found and ended, whatever became of its parent; its world comes and goes with it."""

from __future__ import annotations

import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from reconcile.airflow.installation import wiring
from reconcile.cli import cli
from reconcile.errors import UnreachableError
from reconcile.lab import process, world
from reconcile.lab.airflow import world as lab_airflow
from reconcile.lab.airflow.standalone import Standalone
from reconcile.lab.folder import Lab
from tests.ports import ports_of

PORTS = ports_of("airflow up")

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


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A lab that nobody has brought up, of which nothing is left."""
    found = Lab(Path(tempfile.gettempdir()) / f"reconcile-test-{PORTS.postgres}" / "lab")
    world.down(found, wipe=True)
    world.up(found, PORTS)
    world.down(found)
    yield found
    world.down(found, wipe=True)
    process.remove_tree(found.root.parent)


def test_a_world_comes_and_goes_with_its_airflow(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`up` seeds, damages, wires and serves it; `down` leaves nothing running, and the data."""
    pytest.importorskip("airflow.sdk", reason="Airflow is not installed")
    monkeypatch.setattr(lab_airflow, "AGGREGATES", 100)
    monkeypatch.setattr(lab_airflow, "begun", lambda *_: "night-1")  # the DAGs' tests begin one
    home = tmp_path / "home"
    airflow = Standalone(home, 18199)
    try:
        up = called("up", "--home", str(home), "--dir", str(lab.root), "--port", "18199")
        assert f"{airflow.url}/dags/nightly\n" in up
        assert "the run night-1 of nightly has begun" in up
        assert 1 == len(airflow.processes())
        with closing(sqlite3.connect(home / "airflow.db")) as database:
            known = {row[0] for row in database.execute("select conn_id from connection")}
            slots = dict(database.execute("select pool, slots from slot_pool"))
        assert {"spark_default", "reconcile_requests"} <= known
        assert 1 == slots["reconcile"]
        assert ("yes", True) == (lab.state().seeded, world.status(lab)["running"])
        called("down", "--home", str(home))
        assert ([], False) == (airflow.processes(), world.status(lab)["running"])
        assert "yes" == lab.state().seeded
    finally:
        airflow.stop()


def test_what_does_not_start_is_taken_down(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left running of an `up` that failed, and the error is told."""
    airflow = Standalone(tmp_path / "home", 18199)

    def provide(_: Standalone, __: object) -> None:
        raise UnreachableError("it does not answer")

    monkeypatch.setattr(lab_airflow, "AGGREGATES", 100)
    monkeypatch.setattr(Standalone, "provide", provide)
    with pytest.raises(UnreachableError, match="it does not answer"):
        lab_airflow.up(lab, airflow, wiring)
    assert ([], False) == (airflow.processes(), world.status(lab)["running"])


def called(*words: str) -> str:
    """Call the command, and give all that it says."""
    done = CliRunner().invoke(cli, ["airflow", *words], catch_exceptions=False)
    assert 0 == done.exit_code, done.output
    return done.output
