"""A world's past, written in bulk: accounts with their history, copies that agree, and every offset committed."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from reconcile.errors import RefusedError
from reconcile.lab import past
from reconcile.lab.folder import Lab
from reconcile.lab.services import offsets
from reconcile.lab.services.copies import SERVICES
from reconcile.lab.services.database import connected
from reconcile.lab.world import require_running

_WORKERS = 2


@dataclass(frozen=True)
class Seeded:
    """What a seed made, and how long it took."""

    aggregates: int
    events: int
    seconds: float


def seed(lab: Lab, aggregates: int, number: int, progress: Callable[[int], None] = lambda _: None) -> Seeded:
    """Fill a new world; the same number gives the same accounts, events, partitions and offsets."""
    require_running(lab)
    with lab.alone("seed"):
        state = lab.state()
        if state.seeded != "no":
            found = (
                f"holds {state.aggregates:,} aggregates" if state.seeded == "yes" else "holds a seed that was cut off"
            )
            raise RefusedError(
                f"the world in {lab.root} {found}: `reconcile lab down --wipe` and `reconcile lab up` give a new one"
            )
        lab.remember(seed=number, aggregates=aggregates, seeded="begun")
        started = time.monotonic()
        with ProcessPoolExecutor(_WORKERS, multiprocessing.get_context("spawn"), past.leave_interrupts) as workers:
            done = [
                workers.submit(past.write_share, lab, aggregates, number, worker, _WORKERS)
                for worker in range(_WORKERS)
            ]
            try:
                while not all(future.done() for future in done):
                    time.sleep(0.2)
                    progress(_written(lab))
                events = sum(future.result() for future in done)
            except BaseException:
                for child in multiprocessing.active_children():
                    child.terminate()
                raise
        admin = offsets.admin_client(lab.bootstrap)
        for service in SERVICES:  # whose copies hold all that these topics do: nobody else has written yet
            offsets.commit(lab.bootstrap, service.group, service.topic, offsets.ends(admin, service.topic))
        for database in ("user", "login", "billing", "activity"):
            with connected(lab.url(database), autocommit=True) as cursor:
                cursor.execute("analyze")
        lab.remember(seeded="yes")
        return Seeded(aggregates, events, time.monotonic() - started)


def _written(lab: Lab) -> int:
    with connected(lab.url("user")) as cursor:
        cursor.execute("select n_tup_ins from pg_stat_user_tables where relname = 'user_account'")
        row = cursor.fetchone()
        return int(row[0]) if row else 0
