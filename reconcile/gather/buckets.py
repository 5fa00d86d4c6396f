"""Which buckets of two digests differ: computed inside both databases at once, compared here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from psycopg2 import sql

from reconcile.gather import digest, store_session
from reconcile.gather.digest import NO_ID, Reading
from reconcile.gather.postgres_rows import PostgresStore

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
    """Digest both sides, and compare bucket by bucket; rows without an id always count as different."""
    import numpy as np

    with ThreadPoolExecutor(2) as pool:
        ours = pool.submit(_digest, source, source_reading)
        theirs = pool.submit(_digest, copy, copy_reading)
        left, right = ours.result(), theirs.result()
    unequal = (left != right).any(axis=1)
    unequal[NO_ID] = left[NO_ID, 0] > 0 or right[NO_ID, 0] > 0
    count = source_reading.buckets
    found = tuple(NO_ID if bucket == count else int(bucket) for bucket in np.flatnonzero(unequal))
    return Differing(int(left[:, 0].sum()), int(right[:, 0].sum()), found, count)


def _digest(store: PostgresStore, reading: Reading) -> Any:
    """Give rows, high and low by bucket; the last line is that of the rows without an id."""
    import numpy as np

    found = np.zeros((reading.buckets + 1, 3), dtype=np.int64)
    with store_session.connect(store.name, store.url) as session:
        session.import_snapshot(store.snapshot)
        session.run(sql.SQL(digest.FORMATS + digest.PLANNING))
        for batch in session.batches(digest.digest(reading)):
            lines = np.array(batch, dtype=np.int64)
            found[lines[:, 0]] = lines[:, 1:]
    return found
