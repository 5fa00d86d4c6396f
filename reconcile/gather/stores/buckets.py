"""Which buckets of two digests differ: computed inside both databases at once, compared here."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from psycopg2 import sql

from reconcile.gather.stores import digest
from reconcile.gather.stores.digest import NO_ID, Reading
from reconcile.gather.stores.postgres_store import PostgresStore, ids_are_unique
from reconcile.gather.stores.session import StoreSession, open_session

_TOO_MANY = 0.5


@dataclass(frozen=True)
class Differing:
    """How many rows both sides have, and the buckets in which they are not the same."""

    source_rows: int
    copy_rows: int
    buckets: tuple[int, ...]
    count: int
    """How many buckets there are."""

    @property
    def most(self) -> bool:
        """Whether reading all is cheaper than reading what differs."""
        return len(self.buckets) > self.count * _TOO_MANY


def compare(source: PostgresStore, source_reading: Reading, copy: PostgresStore, copy_reading: Reading) -> Differing:
    """Digest both sides, and compare bucket by bucket; rows without an id, and ids that stand twice, always differ."""
    with ThreadPoolExecutor(2) as pool:
        of_source = pool.submit(_digest, source, source_reading)
        of_copy = pool.submit(_digest, copy, copy_reading)
        (own, own_unique), (other, other_unique) = of_source.result(), of_copy.result()
    unequal = (own != other).any(axis=1)
    unequal[NO_ID] = own[NO_ID, 0] > 0 or other[NO_ID, 0] > 0
    if not (own_unique or other_unique):  # an id that stands twice on one side alone has made a difference by now
        with _session(source) as session:
            for batch in session.batches(digest.repeated(source_reading)):
                unequal[[bucket for (bucket,) in batch]] = True
    count = source_reading.buckets
    found = tuple(NO_ID if bucket == count else int(bucket) for bucket in np.flatnonzero(unequal))
    return Differing(int(own[:, 0].sum()), int(other[:, 0].sum()), found, count)


def _digest(store: PostgresStore, reading: Reading) -> tuple[Any, bool]:
    """Query rows, high and low by bucket, those without an id last; and whether no id can stand twice."""
    found = np.zeros((reading.buckets + 1, 3), dtype=np.int64)
    with _session(store) as session:
        for batch in session.batches(digest.digest(reading)):
            lines = np.array(batch, dtype=np.int64)
            found[lines[:, 0]] = lines[:, 1:]
        return found, ids_are_unique(session, reading)


@contextmanager
def _session(store: PostgresStore) -> Iterator[StoreSession]:
    with open_session(store.name, store.url) as session:
        session.import_snapshot(store.snapshot)
        session.run(sql.SQL(digest.FORMATS + digest.PLANNING))
        yield session
