"""Whether the audit tells the truth of large worlds and of busy ones: exits 1 where it does not.

First a world in which every fault was planted: what was missed, made up or misnamed. Then a world without a fault whose
people make so many changes a second: what runs confirm, one after the other, though all of it is only on its way.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reconcile.files import committed
from reconcile.lab import faults, truth, world
from reconcile.lab.folder import Lab, Ports
from reconcile.lab.seed import seed
from reconcile.lab.traffic import Traffic, traffic
from reconcile.lab.verdict import verdicts

CONTRACTS = ("user-account", "user-balance", "user-activity")
PORTS = Ports(postgres=15632, kafka=19482, controller=19483)
FOLDER = Path(tempfile.gettempdir()) / "reconcile-bench-worlds"


class Over(Exception):  # noqa: N818 - it ends the traffic, and is no error
    """Raised when there have been runs enough."""


@contextmanager
def filled(aggregates: int) -> Iterator[Lab]:
    """Bring a world up and fill it; leave nothing of it but its runs."""
    lab = Lab(FOLDER / "lab")
    world.down(lab, wipe=True)
    FOLDER.mkdir(exist_ok=True)
    world.up(lab, PORTS)
    try:
        seed(lab, aggregates, 7)
        yield lab
    finally:
        world.down(lab, wipe=True)


def reconcile(lab: Lab, *words: str) -> dict[str, Any]:
    """Run a command in a process of its own, and give what it prints."""
    given = ["--config", str(world.settings_file(lab)), "--workspace", str(FOLDER / "runs"), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "reconcile.cli", *words, *given], capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr[-2000:])
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def found(lab: Lab, contract: str) -> list[dict[str, Any]]:
    """Run a contract and give its findings."""
    run_id = f"{contract}-{time.time_ns()}"
    reconcile(lab, "run", str(committed("contracts", f"{contract}.yaml")), "--run-id", run_id)
    listed: list[dict[str, Any]] = reconcile(lab, "findings", run_id)["findings"]
    return listed


def damaged(aggregates: int) -> bool:
    """Hold the findings of a damaged world against its truth."""
    with filled(aggregates) as lab:
        faults.plant(lab, faults.FAULTS, 3)
        began = time.perf_counter()
        findings = [each for contract in CONTRACTS for each in found(lab, contract)]
        seconds = time.perf_counter() - began
        lines, surplus = verdicts(truth.read(lab.truth), findings)
    missed = sum(each.planted - each.found for each in lines)
    misnamed = [each.fault for each in lines if each.named != each.planted]
    planted = sum(each.planted for each in lines)
    sys.stdout.write(f"{aggregates:,} aggregates, every fault planted: {planted} differences in {seconds:.0f} s;")
    sys.stdout.write(f" {missed} missed, {surplus} made up, misnamed: {', '.join(misnamed) or 'none'}\n")
    return not (missed or surplus or misnamed)


def busy(aggregates: int, rate: float, runs: int) -> bool:
    """Run again and again while everything changes; nothing may be confirmed."""
    over, seen = threading.Event(), Traffic()

    def note(now: Traffic) -> None:
        nonlocal seen
        seen = now
        if over.is_set():
            raise Over

    def change() -> None:
        try:
            traffic(lab, rate, 24 * 3600, note)
        except Over:
            return

    confirmed: list[dict[str, Any]] = []
    with filled(aggregates) as lab:
        changing = threading.Thread(target=change)
        changing.start()
        try:
            for number in range(runs):
                some = [each for contract in CONTRACTS for each in found(lab, contract)]
                wrong = [each for each in some if each["status"] == "confirmed"]
                told = f"run {number + 1}: {len(some)} in flight or tolerated, {len(wrong)} confirmed"
                sys.stdout.write(f"{told}; {seen} so far\n")
                sys.stdout.flush()
                confirmed += wrong
        finally:
            over.set()
            changing.join()
    for each in confirmed:
        sys.stdout.write(json.dumps(each, ensure_ascii=False) + "\n")
    return not confirmed


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aggregates", type=int, default=200_000)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--runs", type=int, default=10)
    asked = parser.parse_args()
    fine = [damaged(asked.aggregates)] if asked.aggregates else []
    fine += [busy(10_000, asked.rate, asked.runs)] if asked.runs else []
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
