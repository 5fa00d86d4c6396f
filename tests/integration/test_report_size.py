"""Reports of large runs, made by the command line in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.domain.cause import Cause
from reconcile.pipeline.result import MOMENTS, SHOWN
from tests.unit.report_runs import AT, case, contract_file, finding, made_run

MANY = 100_000
LONG = 1000
MEASURED = """
import json, sys, time
from reconcile.cli import cli

rows = [{"id": str(number), "version": number, "tells": [True, False]} for number in range(20_000)]

def timed(work):
    began = time.process_time()
    work()
    return time.process_time() - began

def yardstick():
    for _ in range(25):
        sorted(json.loads(json.dumps(rows)), key=lambda row: row["id"])

before = timed(yardstick)
seconds = timed(lambda: cli(sys.argv[1:], standalone_mode=False))
yard = (before + timed(yardstick)) / 2
highest = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(seconds / yard, highest.split()[1], file=sys.stderr)
"""


def measured(*words: str) -> tuple[float, int]:
    """Run a command; give its processor time, and the most memory that it held, in kilobytes.

    The time is in units of a fixed piece of work that is done before and after it: half a second of an idle core. So
    it says the same on a machine that is slower, or busy.
    """
    done = subprocess.run([sys.executable, "-c", MEASURED, *words], capture_output=True, text=True, check=True)
    yards, kilobytes = done.stderr.splitlines()[-1].split()
    return float(yards), int(kilobytes)


def test_a_hundred_thousand_findings_take_seconds_and_little_memory(tmp_path: Path) -> None:
    """Every rendering within 5 s of an idle core and 500 MB; the most affected are shown, and the rest is linked."""
    causes = [each for each in Cause if each != Cause.IN_FLIGHT]
    findings = (
        finding(f"{number:08d}", cause=causes[number % len(causes)], since=AT - timedelta(seconds=number))
        for number in range(MANY)
    )
    file = contract_file(tmp_path)
    cases = (case(f"{number:08d}") for number in range(MANY))
    _, run = made_run(tmp_path, findings, cases, compared=10_000_000, contract=file)
    yards, kilobytes = measured("report", run.id, "--workspace", str(tmp_path))
    assert yards < 9
    assert kilobytes < 500 * 1024
    text = (Path(run.folder) / "report.html").read_text("utf-8")
    assert "The 500 most affected of 100,000 findings are shown." in text
    assert '<a href="findings.csv">All of them as CSV</a>' in text
    assert MANY + 1 == len((Path(run.folder) / "findings.csv").read_text("utf-8").splitlines())


def test_long_histories_take_seconds_and_little_memory(tmp_path: Path) -> None:
    """The newest of a thousand moments of each finding are told; `explain` tells them all."""
    file = contract_file(tmp_path)
    ids = [f"{number:04d}" for number in range(SHOWN)]
    _, run = made_run(tmp_path, map(finding, ids), (_long(each) for each in ids), contract=file)
    yards, kilobytes = measured("report", run.id, "--workspace", str(tmp_path))
    assert yards < 12
    assert kilobytes < 500 * 1024
    page = Path(run.folder) / "report.html"
    assert page.stat().st_size < 20_000_000
    assert f"{LONG + 3 - MOMENTS:,} older events are not listed here" in page.read_text("utf-8")
    done = CliRunner().invoke(cli, ["explain", run.id, ids[0], "--workspace", str(tmp_path), "--json"])
    assert LONG + 3 == len(json.loads(done.stdout)["stories"][0]["moments"])


def _long(aggregate_id: str) -> dict[str, Any]:
    told = case(aggregate_id)
    first = told["events"][0]
    events = [
        {**first, "offset": number, "timestamp": first["timestamp"] - number * 1_000_000, "version": str(number)}
        for number in range(LONG)
    ]
    return {**told, "events": events, "events_total": LONG}
