"""How long the control store takes to keep the findings of a run, and how much memory: new, seen again, gone, back.

python bench/control.py --findings 250000
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import psycopg2

from reconcile.control.corrections import CorrectionOutcome, CorrectionState, Emitted, Intent
from reconcile.control.store import ControlStore, open_control
from reconcile.lab.folder import Lab, Ports
from reconcile.lab.postgres import PostgresServer
from reconcile.settings.settings import Settings

PORTS = Ports(postgres=15522, kafka=19522, controller=19523)
LINK = "user-account/login"
CAUSES = ("skipped", "out_of_order", "stashed", "foreign_write")


def id_of(number: int) -> str:
    """Give the id of an aggregate; they do not come in order."""
    return str(UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC834 % (1 << 128)))


def findings(first: int, last: int) -> Iterator[tuple[str, str, str, str]]:
    """Give findings as a run's audit does, one by one."""
    for number in range(first, last):
        yield id_of(number), "changed", CAUSES[number % len(CAUSES)], f"{number:064x}"


def timed(what: str, work: Callable[[], object]) -> None:
    """Print the seconds that it takes, and the most memory that this process has held."""
    started = time.monotonic()
    work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what:<48}{time.monotonic() - started:8.2f} s {peak:8.0f} MB", flush=True)


def measure(control: ControlStore, number: int) -> None:
    """Keep the findings of four runs, ask for them, and keep corrections."""
    half = number // 2
    runs = {"r1": (0, number), "r2": (0, number), "r3": (half, number + half), "r4": (0, number)}
    names = ("all new", "all seen again", "half gone, half new", "half back, half gone")
    for name, (run_id, (first, last)) in zip(names, runs.items(), strict=True):
        control.runs.begin(run_id, "user-account", "c" * 64)
        record = partial(control.findings.record, run_id, LINK, findings(first, last), complete=True)
        timed(f"{number:,} findings, {name}", record)
    some = [id_of(each) for each in range(0, number, 25)]
    timed(f"what is known of {len(some):,} of them", lambda: control.findings.seen(LINK, some))
    many = min(10_000, number)
    lease = control.leases.acquire(LINK, "bench", timedelta(hours=1))
    intents = (Intent(f"c{each}", LINK, id_of(each), each, each % 12, "r4") for each in range(many))
    timed(f"{many:,} corrections intended", lambda: control.corrections.intend(lease, intents))
    emitted = [Emitted(f"c{each}", each % 12, each) for each in range(many)]
    timed(f"{many:,} corrections emitted", lambda: control.corrections.mark_emitted(lease, "r4", emitted))
    verified = [CorrectionOutcome(f"c{each}", CorrectionState.CONVERGED) for each in range(many)]
    timed(f"{many:,} corrections verified", lambda: control.corrections.mark_verified(lease, "r4", verified))


def main() -> None:
    """Measure on SQLite and on Postgres, and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--findings", type=int, default=250_000)
    number = arguments.parse_args().findings
    with tempfile.TemporaryDirectory() as folder:
        print("SQLite")
        with open_control(Settings(workspace=folder)) as control:
            measure(control, number)
        lab = Lab(Path(folder) / "lab")
        lab.root.mkdir()
        lab.remember(ports=PORTS)
        postgres = PostgresServer(lab)
        postgres.up()
        try:
            connection = psycopg2.connect(lab.url("postgres", "postgres"))
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("create database control")
            connection.close()
            (Path(folder) / "url").write_text(lab.url("control", "postgres"))
            url = f"file:{folder}/url"
            print("Postgres")
            with open_control(Settings.model_validate({"control_store": {"url": url}})) as control:
                measure(control, number)
        finally:
            postgres.down()


if __name__ == "__main__":
    main()
