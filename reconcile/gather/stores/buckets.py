"""Which buckets of two digests differ: computed inside both databases at once, compared here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from reconcile.gather.stores.digest import NO_ID
from reconcile.gather.stores.link_rows import DigestedRows

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


def compare(source: DigestedRows, copy: DigestedRows) -> Differing:
    """Digest both sides, and compare bucket by bucket; rows without an id, and ids that stand twice, always differ."""
    with ThreadPoolExecutor(2) as pool:
        (own, own_unique), (other, other_unique) = pool.map(_digest, (source, copy))
    unequal = (own != other).any(axis=1)
    unequal[NO_ID] = own[NO_ID, 0] > 0 or other[NO_ID, 0] > 0
    if not (own_unique or other_unique):  # an id that stands twice on one side alone has made a difference by now
        unequal[list(source.repeated())] = True
    count = source.reading.buckets
    found = tuple(NO_ID if bucket == count else int(bucket) for bucket in np.flatnonzero(unequal))
    return Differing(int(own[:, 0].sum()), int(other[:, 0].sum()), found, count)


def _digest(rows: DigestedRows) -> tuple[Any, bool]:
    """Query rows, high and low by bucket, those without an id last; and whether no id can stand twice."""
    found = np.zeros((rows.reading.buckets + 1, 3), dtype=np.int64)
    lines, unique = rows.digest()
    if lines:
        read = np.array(lines, dtype=np.int64)
        found[read[:, 0]] = read[:, 1:]
    return found, unique
