"""A log that no partitioner explains alone: its topic grew before anybody looked, or two producers differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconcile.domain.partitioner import EXPLAINS, Partitioner, partition_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PREVAILS = 0.9
"""The share of the keys that the partitioner of all but a stray producer has to explain."""

_FEWEST = 50  # fewer pairs would fit one mixture or another by chance
_WHOLE = 1 << 32  # over so many partitions, a key's partition is its hash


@dataclass(frozen=True)
class Mixture:
    """What explains a log together: one partitioner, an earlier partition count, a stray producer's partitioner."""

    partitioner: Partitioner
    former: int | None = None
    stray: Partitioner | None = None


def mixture(pairs: Iterable[tuple[bytes, int]], partitions: int) -> Mixture | None:
    """Find the one mixture that explains 99 % of the distinct pairs, the simplest kind first; None if there is none."""
    import numpy as np

    distinct = list(dict.fromkeys(pairs))
    if len(distinct) < _FEWEST:
        return None
    stands = np.array([partition for _, partition in distinct], dtype=np.int64)
    hashes = {
        each: np.array([partition_of(key, _WHOLE, each) for key, _ in distinct], dtype=np.int64) for each in Partitioner
    }
    log = _Log(stands, hashes, partitions)
    former = range(1, partitions)
    kinds = (
        [Mixture(each, count) for each in Partitioner for count in former],
        [Mixture(each, None, stray) for each in Partitioner for stray in Partitioner if stray is not each],
        [
            Mixture(each, count, stray)
            for each in Partitioner
            for stray in Partitioner
            if stray is not each
            for count in former
        ],
    )
    for kind in kinds:
        missed = {each: log.missed(each) for each in kind}
        least = min(missed.values(), default=1.0)
        found = [each for each, share in missed.items() if share == least]
        if least <= 1 - EXPLAINS and len(found) == 1:
            return found[0]
    return None


@dataclass(frozen=True)
class _Log:
    stands: NDArray[np.int64]
    hashes: dict[Partitioner, NDArray[np.int64]]
    partitions: int

    def missed(self, told: Mixture) -> float:
        """Give the share of the pairs that a mixture leaves unexplained; all where its partitioner does not prevail."""
        explained = self._explained(told.partitioner, told.former)
        if explained.mean() < PREVAILS:
            return 1.0
        if told.stray is not None:
            explained = explained | self._explained(told.stray, told.former)
        return 1.0 - float(explained.mean())

    def _explained(self, partitioner: Partitioner, former: int | None) -> NDArray[np.bool_]:
        hashes = self.hashes[partitioner]
        found: NDArray[np.bool_] = hashes % self.partitions == self.stands
        if former is not None:
            found |= hashes % former == self.stands
        return found
