"""A Spark cluster on loopback: a standalone master and two workers, to run jobs as a cluster runs them.

    python -m reconcile.lab.airflow.spark_cluster 18090

Runs until it is interrupted; the master is spark://127.0.0.1:18090, and the next three ports show web pages.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from urllib.error import URLError
from urllib.request import urlopen

from reconcile.lab import process

WORKERS = 2

_CORES, _MEMORY = 1, "1g"
_TO_START = 120.0
_CLASS = "org.apache.spark.deploy"


@contextmanager
def cluster(port: int, folder: Path) -> Iterator[str]:
    """Start a master, whose URL it yields, and two workers; they end with the block and log and work in `folder`."""
    url = f"spark://127.0.0.1:{port}"
    for number in range(WORKERS + 2):
        process.refuse_taken(port + number, "Spark's cluster", "another first port")
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_daemon(folder, "master", "master.Master", "--port", str(port), "--webui-port", str(port + 1)))
        process.wait_until(
            lambda: _alive(port) == 0, "Spark's master does not answer", _TO_START, folder / "master.log"
        )
        for number in range(WORKERS):
            name = f"worker-{number + 1}"
            limits = ("--cores", str(_CORES), "--memory", _MEMORY, "--work-dir", str(folder / name))
            started.append(_daemon(folder, name, "worker.Worker", "--webui-port", str(port + 2 + number), *limits, url))
        process.wait_until(lambda: _alive(port) == WORKERS, "Spark's workers do not come", _TO_START)
        yield url
    finally:
        for each in reversed(started):
            process.end(each.pid, signal.SIGTERM, "a part of Spark's cluster", 20)
            each.wait()


def main() -> None:
    """Run a cluster until SIGTERM or SIGINT."""
    over = Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: over.set())
    with tempfile.TemporaryDirectory() as folder, cluster(int(sys.argv[1]), Path(folder)) as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        over.wait()


def _daemon(folder: Path, name: str, daemon: str, *arguments: str) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    binary = Path(sys.executable).parent / "spark-class"
    environment = {
        **os.environ,
        "PATH": f"{binary.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
    }
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(binary), f"{_CLASS}.{daemon}", "--host", "127.0.0.1", *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _alive(port: int) -> int | None:
    """Query how many workers the master knows; None as long as it does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port + 1}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (URLError, OSError, ValueError, KeyError):
        return None


if __name__ == "__main__":
    main()
