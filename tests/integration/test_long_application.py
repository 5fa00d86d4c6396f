"""One Spark application that makes many runs, as a notebook or a worker does: the last is as quick as the first."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.integration.runs import CONTRACTS, Runs
from tests.integration.worlds import seeded_world
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = 18


@dataclass(frozen=True)
class Application:
    """What it took: for each run Java's seconds on a processor and milliseconds of compiling, and what was said."""

    cpu: list[float]
    compiling: list[int]
    filled: dict[str, float]
    """The most that was ever in use of each part of the code cache, as a share of its size."""
    stderr: str


@pytest.fixture(scope="module")
def application(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Application:
    """The three contracts in turn, gathered and audited."""
    jvm: Any = spark._jvm
    java = psutil.Process(jvm.java.lang.ProcessHandle.current().pid())
    beans = jvm.java.lang.management.ManagementFactory
    cpu, compiling = [], []
    gc.collect()  # clients that other tests have left would go on saying that their broker is gone
    with seeded_world(aggregates=200, ports=ports_of("long application")) as lab, _stderr() as stderr:
        runs = Runs.of(spark, lab, tmp_path_factory.mktemp("long-application"))
        for number in range(RUNS):
            used, compiled = java.cpu_times(), beans.getCompilationMXBean().getTotalCompilationTime()
            runs.audited(CONTRACTS[number % len(CONTRACTS)], f"run-{number}")
            now = java.cpu_times()
            cpu.append(now.user + now.system - used.user - used.system)
            compiling.append(beans.getCompilationMXBean().getTotalCompilationTime() - compiled)
        said = stderr()
    pools = [each for each in beans.getMemoryPoolMXBeans() if each.getName().startswith("Code")]
    filled = {each.getName(): each.getPeakUsage().getUsed() / each.getPeakUsage().getMax() for each in pools}
    return Application(cpu, compiling, filled, said)


def test_the_last_runs_take_no_longer(application: Application) -> None:
    """In processor time, whatever else the machine does; each six have the same contracts."""
    assert median(application.cpu[12:18]) <= 1.5 * median(application.cpu[3:9]), application.cpu


def test_java_still_compiles(application: Application) -> None:
    """Spark writes some code anew for each run: a compiler that was switched off would leave it.

    One run may compile for less than the millisecond that is counted; all three contracts in a row do not.
    """
    in_a_row = [sum(application.compiling[number : number + len(CONTRACTS)]) for number in range(9, 15)]
    assert min(in_a_row) > 0, application.compiling


def test_compiled_code_has_room_for_more(application: Application) -> None:
    """Java throws out compiled code long before its room is full, and compiles it once more when it is needed again."""
    assert application.filled
    assert max(application.filled.values()) < 0.5, application.filled


def test_nothing_is_said(application: Application) -> None:
    """Neither Java nor Spark warns of anything."""
    assert "" == application.stderr


@contextmanager
def _stderr() -> Iterator[Callable[[], str]]:
    """Take what is written to stderr, also by Java, and yield how to read it."""
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: os.pread(file.fileno(), 1_000_000, 0).decode("utf-8", "replace")
        finally:
            os.dup2(before, 2)
            os.close(before)
