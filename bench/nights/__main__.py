"""Nights over two tables, side by side with other ways to compare them: seconds, memory, and how that is to our goals.

Builds its world, runs all of it one after the other, and writes bench/results/nights-ROWS.json and .md, then the tables
of the README and of docs/scale.md. What cannot be run is a line that says why; if it is ours, the bench exits 1.

python -m bench.nights --rows 200000
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import md5
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from bench.history import ConsumerPerformance
from bench.nights import result as results
from bench.nights.result import OURS, Machine, Result, Work
from bench.nights.watch import CommandError, watch
from bench.nights.world import FIELDS, SIDES, Estate, World, built, program
from bench.pages import write_pages
from reconcile.files import committed, jars
from reconcile.lab.services.database import connected

RELADIFF = committed(".venv-bench", "bin", "reladiff")
FEW = 2_000
SUSPECTS_PER_ROW = 0.05
CORRECTIONS = 10_000
NO_SINCE = "this reconcile has no `--since`"

Read = Callable[[str], dict[str, float]]


def nothing(_: str) -> dict[str, float]:
    """Read no figures of what a command printed."""
    return {}


def own_figures(stdout: str) -> dict[str, float]:
    """Read the figures of one of our programs."""
    found: dict[str, float] = json.loads(stdout.splitlines()[-1])
    return found


def findings(stdout: str) -> dict[str, float]:
    """Read how many findings a run has."""
    links = json.loads(stdout)["links"]
    return {"findings": sum(each["findings"] for each in links)}


class Bench:
    """Measures one work after the other."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def measure(self, key: str, command: Sequence[str], read: Read = nothing, codes: Collection[int] = (0,)) -> None:
        """Run a command and keep what it took; what fails is kept as not run."""
        busy = psutil.cpu_percent(1) * os.cpu_count() / 100  # type: ignore[operator]
        try:
            watched = watch(command, codes)
            figures = read(watched.stdout)
        except (CommandError, OSError, ValueError, LookupError) as error:
            self.add(Work(key=key, why_not=str(error).replace("|", "/")))
            return
        work = Work(
            key=key,
            seconds=round(watched.seconds, 2),
            megabytes=round(watched.megabytes),
            busy_before=round(busy, 2),
            load_after=round(os.getloadavg()[0], 2),
            figures={name: round(value, 4) for name, value in figures.items()},
        )
        self.add(work)

    def add(self, work: Work) -> None:
        """Keep a work, and say it."""
        self.works.append(work)
        said = work.why_not or f"{work.seconds:8.2f} s {work.megabytes:8,.0f} MB  {work.figures or ''}"
        print(f"{datetime.now(UTC):%H:%M:%S}  {work.key:<22}{said}", flush=True)


class Nights:
    """All that is measured in one world."""

    def __init__(self, world: World, bench: Bench, rows: int, drift: float, new: float) -> None:
        self._world, self._bench, self._new = world, bench, new
        self.nights = Estate("nights", rows, drift=drift)
        self.few = Estate("few", FEW, drift=0.01)
        self.suspects = Estate("suspects", max(round(rows * SUSPECTS_PER_ROW), 1_000), events=5)
        self._urls = [world.url(side) for side in SIDES]
        self._id = str(uuid.UUID(md5(str(self.nights.period).encode()).hexdigest()))  # noqa: S324 - as the world makes them

    def measure(self) -> None:
        """Fill the world, and measure; the log's first reading comes before all that needs it read."""
        for estate in (self.nights, self.few, self.suspects):
            self._world.fill(estate)
            print(f"{datetime.now(UTC):%H:%M:%S}  {estate.rows:,} rows of {estate.name}", flush=True)
        self._ours()
        self._peers()
        self._attribution()
        self._changed_only()
        self._corrections()

    def _ours(self) -> None:
        measure, contract = self._bench.measure, str(self._world.contract("nights", self.nights))
        measure("start", program("start"))
        self._run("first", contract)
        self._world.change(self.nights, 1, self._new)
        self._run("second", contract)
        self._run("agreeing", str(self._world.contract("agreeing", self.nights, copy="source")))
        self._run("id", contract, "--id", self._id)
        measure("trace", self._reconcile("trace", contract, self._id))
        measure("fence", self._reconcile("fence", contract))
        for key in ("doctor", "doctor_again"):
            measure(key, self._reconcile("doctor", contract), codes=(0, 1))
        self._run("unchanged", contract)
        self._run("full", contract, "--mode", "full")
        self._run("few", str(self._world.contract("few", self.few)))
        bootstrap, folder = self._world.lab.bootstrap, self._world.folder / "history"
        measure("history", program("history", bootstrap=bootstrap, topic="nights", folder=str(folder)), own_figures)
        measure("stores", self._of_tables("stores", rows=self.nights.rows), own_figures)

    def _peers(self) -> None:
        measure = self._bench.measure
        columns = [word for name in ("version", *FIELDS) for word in ("-c", name)]
        sides = [word for url in self._urls for word in (url, "nights")]
        if RELADIFF.exists():
            measure("reladiff", [str(RELADIFF), *sides, "-k", "id", *columns, "-j", "4", "--json"], found_by_reladiff)
        else:
            self._bench.add(Work(key="reladiff", why_not=f"{RELADIFF} is not there: `make bench` installs it"))
        for name in ("datacompy", "join", "copies"):
            measure(name, self._of_tables(name), own_figures)
        measure("digests", self._of_tables("digests", rows=self.nights.rows), own_figures)
        try:
            consumer = ConsumerPerformance(self._world.folder)
        except (subprocess.CalledProcessError, OSError, LookupError, StopIteration) as error:
            self._bench.add(Work(key="consumer_performance", why_not=f"it could not be fetched: {error}"))
            return
        command = consumer.command(self._world.lab.bootstrap, "nights", self.nights.rows)
        rows = self.nights.rows
        measure("consumer_performance", command, lambda stdout: {"seconds": consumer.seconds_of(stdout, rows)})

    def _attribution(self) -> None:
        tenth = self.suspects.rows // 10
        some = f"select * from suspects where changed_at <= timestamptz '2026-01-01' + {tenth} * interval '1 second'"
        contracts = {
            "audit": self._world.contract("suspects", self.suspects),
            "tenth": self._world.contract("tenth", self.suspects, query=some),
        }
        for key, contract in contracts.items():
            try:
                watch(self._reconcile("gather", "--run", key, "--contract", str(contract)))
            except CommandError as error:
                self._bench.add(Work(key=key, why_not=f"what it needs was not gathered: {error}"))
                continue
            self._bench.measure(key, self._reconcile("audit", "--run", key, "--json"), findings, (0, 1))

    def _changed_only(self) -> None:
        if "--since" not in watch(self._reconcile("run", "--help")).stdout:
            self._bench.add(Work(key="since", why_not=NO_SINCE))
            return
        self._world.change(self.nights, 2, self._new)
        self._run("since", str(self._world.folder / "nights.yaml"), "--since", "last")

    def _corrections(self) -> None:
        try:
            watch(self._reconcile("plan", "--run", "second"))
        except CommandError as error:
            self._bench.add(Work(key="apply", why_not=f"no plan was made: {error}"))
            return
        self._bench.measure("apply", self._reconcile("apply", "--run", "second", "--yes", "--json"), corrections)

    def _run(self, key: str, contract: str, *more: str) -> None:
        command = self._reconcile("run", contract, "--run-id", key, "--json", *more)
        self._bench.measure(key, command, findings, (0, 1))

    def _reconcile(self, *words: str) -> list[str]:
        on = [] if "--help" in words else ["--config", str(self._world.settings)]
        return [sys.executable, "-m", "reconcile.cli", *words, *on]

    def _of_tables(self, name: str, **more: Any) -> list[str]:
        return program(name, urls=self._urls, table="nights", **more)


def found_by_reladiff(stdout: str) -> dict[str, float]:
    """Read how many ids reladiff names: a changed row has two lines, and lines are broken at 80."""
    return {"found": len(set(re.findall(r'^\["[-+]",\s*\["([^"]+)"', stdout, re.MULTILINE)))}


def corrections(stdout: str) -> dict[str, float]:
    """Read how many corrections were emitted."""
    return {"corrections": sum(len(each["emitted"]) for each in json.loads(stdout)["links"])}


def of_bare_producer(stdout: str) -> dict[str, float]:
    """Read what bench.emission says."""
    rate = _ratio(r"'emission': '([\d,]+) corrections/s'", stdout)
    return {"of_bare": _ratio(r"emission is at ([\d.]+) of", stdout), "a_second": rate}


def of_bare_loop(stdout: str) -> dict[str, float]:
    """Read what bench.consumer_throughput says."""
    return {
        "of_bare": _ratio(r"^one by one .* ([\d.]+) of bare", stdout),
        "of_one": _ratio(r"^batch .* ([\d.]+) of one by one", stdout),
    }


def _ratio(pattern: str, stdout: str) -> float:
    found = re.search(pattern, stdout, re.MULTILINE)
    if found is None:
        raise ValueError("it did not say its ratio")
    return float(found[1].replace(",", ""))


def measure_libraries(bench: Bench) -> None:
    """Measure what has servers of its own."""
    emission = [sys.executable, "-m", "bench.emission", "--corrections", str(CORRECTIONS)]
    bench.measure("emission", emission, of_bare_producer)
    consumer = [sys.executable, "-m", "bench.consumer_throughput", "--only"]
    bench.measure("consumer", [*consumer, "bare", "one by one", "batch"], of_bare_loop, (0, 1))


def machine() -> Machine:
    """Look at what all of it runs on."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "an unknown CPU")
    memory = psutil.virtual_memory().total / 2**30
    return Machine(cpu=cpu, cores=os.cpu_count() or 1, memory_gb=round(memory, 1), load_before=os.getloadavg()[0])


def versions(world: World) -> Mapping[str, str]:
    """Look up the versions of what is measured, and of what it runs on."""
    with connected(world.url("source")) as cursor:
        cursor.execute("show server_version")
        (postgres,) = cursor.fetchone() or ("",)
    kafka = next(jar.stem.partition("-")[2] for jar in jars("broker") if jar.name.startswith("kafka_"))
    packages = {"reconcile": "reconcile-kafka", "pyspark": "pyspark", "datacompy": "datacompy"}
    pinned = re.search(r"^reladiff\S*==(\S+)", committed("bench", "requirements.txt").read_text("utf-8"), re.MULTILINE)
    return {
        **{name: version(package) for name, package in packages.items()},
        "Postgres": postgres.split()[0],
        "Kafka": kafka,
        "reladiff": pinned[1] if pinned else "unknown",
    }


def main() -> int:
    """Measure, write, and give the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows a side")
    parser.add_argument("--drift", type=float, default=0.001, help="the share of the aggregates that differ")
    parser.add_argument("--new", type=float, default=0.01, help="the share that changes between two nights")
    parser.add_argument("--keep", action="store_true", help="leave the world up afterwards")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that the servers end too
    bench, on = Bench(), machine()
    with built(keep=asked.keep) as world:
        of = versions(world)
        nights = Nights(world, bench, asked.rows, asked.drift, asked.new)
        nights.measure()
    measure_libraries(bench)
    found = Result(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        rows=asked.rows,
        differing=nights.nights.differing,
        new=asked.new,
        machine=on,
        versions=dict(of),
        works=tuple(bench.works),
    )
    results.write(found)
    write_pages()
    print(results.page(found))
    ours = [each for each in found.works if each.key in OURS and each.why_not != NO_SINCE]
    return 0 if all(each.seconds is not None for each in ours) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing is written\n")
        sys.exit(130)
