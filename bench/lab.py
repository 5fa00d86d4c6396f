"""How long the lab takes to come up, how much memory it holds, and how fast it is filled.

python bench/lab.py --aggregates 1000000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import psutil

from reconcile.lab import world
from reconcile.lab.folder import Lab, Ports
from reconcile.lab.seed import seed

PORTS = Ports(postgres=15482, kafka=19482, controller=19483)


def memory(pid: int) -> float:
    """Give the resident memory of a server and its children in MB; pages that they share are counted once."""
    server = psutil.Process(pid)
    return sum(process.memory_full_info().pss for process in [server, *server.children(recursive=True)]) / 2**20


def timed_up(lab: Lab) -> float:
    """Bring the lab up; gives the seconds that it took."""
    started = time.monotonic()
    world.up(lab, PORTS)
    return time.monotonic() - started


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--aggregates", type=int, default=1_000_000)
    aggregates = arguments.parse_args().aggregates
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder) / "lab")
        try:
            print(f"lab up, new world      {timed_up(lab):6.1f} s")
            for server, pid in world.status(lab)["processes"].items():
                print(f"{server:<10} memory      {memory(pid):6.0f} MB")
            made = seed(lab, aggregates, 42)
            rate = made.events / made.seconds
            print(f"seed of {aggregates:>9,}      {made.seconds:6.1f} s, {made.events:,} events, {rate:,.0f} events/s")
            for server, pid in world.status(lab)["processes"].items():
                print(f"{server:<10} memory      {memory(pid):6.0f} MB after the seed")
            world.down(lab)
            print(f"lab up, that world     {timed_up(lab):6.1f} s")
        finally:
            world.down(lab, wipe=True)


if __name__ == "__main__":
    main()
