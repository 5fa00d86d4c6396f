"""Which partitioner explains a log, and whether a record stands where its key belongs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from reconcile.audit.mixture import PREVAILS, mixture
from reconcile.domain.case import Routing
from reconcile.domain.partitioner import Partitioner, candidates, explained_shares, partition_of

if TYPE_CHECKING:
    from reconcile.gather.log.history_index import Growth

Shares = Mapping[Partitioner, float]
"""The part of the samples that each partitioner explains."""
Sample = tuple[bytes, int]
"""A key, and the partition in which it stands."""

INFER = "infer"

_HALF = 0.5


@dataclass(frozen=True)
class Inference:
    """Which partitioner puts keys into a topic's partitions, as its log and its contract tell."""

    partitions: int
    seen: int
    """How many samples told; empty keys and null keys do not tell."""
    shares: Shares
    candidates: tuple[Partitioner, ...] = ()
    """Those that the log leaves: more than one where it holds too few keys to tell them apart."""
    declared: Partitioner | None = None
    """What the contract says; None for `infer`."""
    former: int | None = None
    """Over how many partitions older keys are spread, where the topic grew before anybody looked."""
    prevailing: Partitioner | None = None
    """The partitioner of all but a stray producer, whose records it tells."""

    @property
    def partitioner(self) -> Partitioner | None:
        """The partitioner by the log; where the log does not tell, the contract's; None if neither does."""
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


def infer(samples: Iterable[Sample], partitions: int, declared: str = INFER) -> Inference:
    """Tell which partitioner explains 99 % of the samples: records that were written to this many partitions.

    A key that several partitioners put into the same partition tells nothing between them: where several explain
    enough, the keys on which they differ decide. A topic that grew before anybody looked still holds older keys over
    fewer partitions: if one partitioner explains all by one earlier count, that is told too. So is a partitioner that
    prevails where another explains all the rest: it tells which records are stray, and no more.
    """
    told = [(key, partition) for key, partition in samples if key]
    word = None if declared == INFER else Partitioner(declared)
    shares = explained_shares(told, partitions)
    found = _candidates(told, shares, partitions)
    if found or not told:
        return Inference(partitions, len(told), shares, found, word)
    mixed = mixture(told, partitions)
    if mixed is None:
        return Inference(partitions, len(told), shares, (), word)
    trusted = () if mixed.stray else (mixed.partitioner,)
    prevailing = mixed.partitioner if mixed.stray else None
    return Inference(partitions, len(told), shares, trusted, word, mixed.former, prevailing)


@dataclass(frozen=True)
class Former:
    """An earlier partition count, and the offsets below which records may have been written under it."""

    count: int
    ends: Mapping[int, int]


@dataclass(frozen=True)
class Router:
    """Tells for a key where its future records will stand, and for a record whether it stands there."""

    partitions: int
    candidates: tuple[Partitioner, ...]
    """The partitioners that may place a record: usually one."""
    former: tuple[Former, ...] = ()
    trusted: bool = True
    """Whether a correction may rely on them."""

    @classmethod
    def of(cls, inference: Inference, growth: Sequence[Growth]) -> Router:
        """Take it from what the log tells, and from how its topic grew."""
        former = tuple(Former(before.count, after.ends) for before, after in pairwise(growth))
        if inference.former is not None:
            # Nobody saw it grow: it was before the history's first look at the log.
            former = (Former(inference.former, growth[0].ends if growth else {}), *former)
        return cls(inference.partitions, inference.placing, former, inference.trusted)

    def home(self, key: bytes | None) -> int | None:
        """Give the partition of the key's next record; None where that is not known."""
        return self._home(key, self.partitions) if self.trusted else None

    def homes(self, key: bytes | None) -> tuple[int, ...]:
        """Give the partitions in which the key belongs, or did before the topic grew."""
        counts = (self.partitions, *(era.count for era in self.former))
        found = (self._home(key, count) for count in counts)
        return tuple(dict.fromkeys(home for home in found if home is not None))

    def routing(self, key: bytes | None, partition: int, offset: int) -> tuple[Routing, str | None]:
        """Tell whether a record stands where its key belongs, and what else explains one that does not."""
        home = self._home(key, self.partitions)
        if key is None or home is None:
            return (Routing.UNKNOWN, None) if home != partition else (Routing.HOME, None)
        if partition == home:
            return Routing.HOME, None
        earlier = [each.count for each in self.former if offset < each.ends.get(partition, 0)]
        if any(partition == self._home(key, count) for count in earlier):
            return Routing.FORMER, None
        return Routing.WRONG, self._stray(key, partition, earlier)

    def _home(self, key: bytes | None, count: int) -> int | None:
        if count == 1:
            return 0
        if key is None or (not key and Partitioner.CRC32 in self.candidates):
            return None  # no hash places these
        homes = {partition_of(key, count, each) for each in self.candidates}
        return homes.pop() if len(homes) == 1 else None

    def _stray(self, key: bytes, partition: int, earlier: Sequence[int]) -> str | None:
        others = [each for each in Partitioner if each not in self.candidates]
        for count in (self.partitions, *earlier):
            for each in others:
                if partition_of(key, count, each) == partition:
                    return each.value
        for era in self.former:
            # A producer that had not heard of the growth, long after it.
            if self._home(key, era.count) == partition:
                return f"{self.candidates[0]} over {era.count} partitions"
        return None


def _candidates(
    samples: Sequence[Sample], shares: Mapping[Partitioner, float], partitions: int
) -> tuple[Partitioner, ...]:
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
