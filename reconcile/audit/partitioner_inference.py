"""Inferring which partitioner put a log's records where they stand.

Mostly one partitioner explains all of them. Where none does, a mixture may: the topic grew before anybody looked, or a
stray producer uses another partitioner than the one that prevails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconcile.domain.partitioner import EXPLAINS, Partitioner, candidates, explained_shares, partition_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reconcile.gather.log.index import Growth, Range
    from reconcile.gather.log.state import LogState

Shares = Mapping[Partitioner, float]
"""The part of the samples that each partitioner explains."""
Sample = tuple[bytes, int]
"""A key, and the partition in which it stands."""

INFER = "infer"
PREVAILS = 0.9
"""The share of the keys that the partitioner of all but a stray producer has to explain."""

_HALF = 0.5
_FEWEST = 50  # fewer pairs would fit one mixture or another by chance
_WHOLE = 1 << 32  # over so many partitions, a key's partition is its hash
_EVERYWHERE = 1 << 62


@dataclass(frozen=True)
class Inference:
    """Which partitioner puts keys into a topic's partitions, by its log and its contract."""

    partitions: int
    seen: int
    """How many samples count; empty keys and null keys do not."""
    shares: Shares
    candidates: tuple[Partitioner, ...] = ()
    """Those that the log leaves: more than one where it holds too few keys to tell them apart."""
    declared: Partitioner | None = None
    """What the contract says; None for `infer`."""
    former: int | None = None
    """Over how many partitions older keys are spread, where the topic grew before anybody looked."""
    prevailing: Partitioner | None = None
    """The partitioner of all but a stray producer, whose records it shows."""

    @property
    def partitioner(self) -> Partitioner | None:
        """The partitioner by the log; where the log shows too little, the contract's; None if neither names one."""
        if len(self.candidates) == 1:
            return self.candidates[0]
        return None if self.contradicted else self.declared

    @property
    def contradicted(self) -> bool:
        """Whether the log shows another partitioner than the contract says, or at least that it is not that one."""
        if self.declared is None or not self.seen:
            return False
        if self.candidates:
            return self.declared not in self.candidates
        if self.prevailing is not None:
            return self.declared is not self.prevailing
        return self.shares[self.declared] < _HALF

    @property
    def trusted(self) -> bool:
        """Whether a correction may rely on `placing`: not where producers differ, whatever the contract says."""
        return bool(self.candidates) or not self.seen

    @property
    def placing(self) -> tuple[Partitioner, ...]:
        """The partitioners that may have placed a record; where they agree on a key, its home is known."""
        if self.partitioner is not None:
            return (self.partitioner,)
        return (self.prevailing,) if self.prevailing is not None else self.candidates


def infer_from_log(state: LogState, growth: Sequence[Growth], declared: str = INFER) -> Inference:
    """Infer the partitioner from a sample of the log since its topic last grew.

    Where the topic holds nothing since then, the records from before decide, under the count of that time.
    """
    if not growth:
        return infer([], 1, declared)
    found = infer(state.read_keys(_era(growth, len(growth) - 1)), growth[-1].count, declared)
    if found.seen or len(growth) == 1:
        return found
    before = infer(state.read_keys(_era(growth, len(growth) - 2)), growth[-2].count, declared)
    return replace(before, partitions=growth[-1].count)


def infer(samples: Iterable[Sample], partitions: int, declared: str = INFER) -> Inference:
    """Infer the partitioner that explains 99 % of the samples: records that were written to this many partitions.

    A key that several partitioners put into the same partition shows nothing between them: where several explain
    enough, the keys on which they differ decide. A topic that grew before anybody looked still holds older keys over
    fewer partitions: one partitioner may explain all by one earlier count. A partitioner that prevails where another
    explains all the rest shows which records are stray, and no more.
    """
    keyed = [(key, partition) for key, partition in samples if key]
    shares = explained_shares(keyed, partitions)
    explaining = _candidates(keyed, shares, partitions)
    contracts = None if declared == INFER else Partitioner(declared)
    found = Inference(partitions, len(keyed), shares, explaining, contracts)
    mixed = None if explaining or not keyed else _mixture(keyed, partitions)
    if mixed is None:
        return found
    if mixed.stray:
        return replace(found, former=mixed.former, prevailing=mixed.partitioner)
    return replace(found, former=mixed.former, candidates=(mixed.partitioner,))


@dataclass(frozen=True)
class _Mixture:
    """What explains a log together: one partitioner, an earlier partition count, a stray producer's partitioner."""

    partitioner: Partitioner
    former: int | None = None
    stray: Partitioner | None = None


def _mixture(pairs: Iterable[tuple[bytes, int]], partitions: int) -> _Mixture | None:
    """Find the one mixture that explains 99 % of the distinct pairs, the simplest kind first; None if there is none."""
    import numpy as np

    distinct = list(dict.fromkeys(pairs))
    if len(distinct) < _FEWEST:
        return None
    stands = np.array([partition for _, partition in distinct], dtype=np.int64)
    hashes = {
        each: np.array([partition_of(key, _WHOLE, each) for key, _ in distinct], dtype=np.int64) for each in Partitioner
    }
    keys = _Hashed(stands, hashes, partitions)
    former = range(1, partitions)
    kinds = (
        [_Mixture(each, count) for each in Partitioner for count in former],
        [_Mixture(each, None, stray) for each in Partitioner for stray in Partitioner if stray is not each],
        [
            _Mixture(each, count, stray)
            for each in Partitioner
            for stray in Partitioner
            if stray is not each
            for count in former
        ],
    )
    for kind in kinds:
        missed = {each: keys.missed(each) for each in kind}
        least = min(missed.values(), default=1.0)
        found = [each for each, share in missed.items() if share == least]
        if least <= 1 - EXPLAINS and len(found) == 1:
            return found[0]
    return None


@dataclass(frozen=True)
class _Hashed:
    stands: NDArray[np.int64]
    hashes: dict[Partitioner, NDArray[np.int64]]
    partitions: int

    def missed(self, tried: _Mixture) -> float:
        """Compute the share of pairs that a mixture does not explain; all where its partitioner does not prevail."""
        explained = self._explained(tried.partitioner, tried.former)
        if explained.mean() < PREVAILS:
            return 1.0
        if tried.stray is not None:
            explained = explained | self._explained(tried.stray, tried.former)
        return 1.0 - float(explained.mean())

    def _explained(self, partitioner: Partitioner, former: int | None) -> NDArray[np.bool_]:
        hashes = self.hashes[partitioner]
        found: NDArray[np.bool_] = hashes % self.partitions == self.stands
        if former is not None:
            found |= hashes % former == self.stands
        return found


def _candidates(samples: Sequence[Sample], shares: Shares, partitions: int) -> tuple[Partitioner, ...]:
    # By keys too, so that a hot one does not speak for all the others.
    pairs = list(dict.fromkeys(samples))
    keys = explained_shares(pairs, partitions)
    found = tuple(each for each in candidates(shares) if keys[each] >= PREVAILS)
    if len(found) < 2:
        return found
    telling = [
        (key, partition) for key, partition in pairs if len({partition_of(key, partitions, each) for each in found}) > 1
    ]
    better = candidates(explained_shares(telling, partitions))
    decided = tuple(each for each in found if each in better)
    return decided or found


def _era(growth: Sequence[Growth], number: int) -> Mapping[int, Range]:
    """Compute the offsets that were surely written under one of a topic's partition counts."""
    starts = growth[number].ends if number else {}
    later = growth[number + 1].after if number + 1 < len(growth) else {}
    return {p: (starts.get(p, 0), later.get(p, _EVERYWHERE)) for p in range(growth[number].count)}
