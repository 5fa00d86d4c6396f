"""The home partition of a key: where its next record will stand, and whether a record stands where its key belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from reconcile.audit.columns import ROUTED_BY, ROUTING
from reconcile.audit.partitioner_inference import Inference
from reconcile.domain.case import Routing
from reconcile.domain.partitioner import Partitioner, murmur2_many, partition_of
from reconcile.gather.log.history_columns import KEY, OFFSET, PARTITION

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa  # type: ignore[import-untyped]
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

    from reconcile.gather.log.index import Growth

_NOWHERE = -1


@dataclass(frozen=True)
class Former:
    """An earlier partition count, and the offsets below which records may have been written under it."""

    count: int
    ends: Mapping[int, int]


@dataclass(frozen=True)
class Router:
    """Computes for a key where its future records will stand, and for a record whether it stands there."""

    partitions: int
    candidates: tuple[Partitioner, ...]
    """The partitioners that may place a record: usually one."""
    former: tuple[Former, ...] = ()
    trusted: bool = True
    """Whether a correction may rely on them."""

    @classmethod
    def of(cls, inference: Inference, growth: Sequence[Growth]) -> Router:
        """Build it from what was inferred, and from how the topic grew."""
        former = tuple(Former(before.count, after.ends) for before, after in pairwise(growth))
        if inference.former is not None:
            # Nobody saw it grow: it was before the history's first look at the log.
            former = (Former(inference.former, growth[0].ends if growth else {}), *former)
        return cls(inference.partitions, inference.placing, former, inference.trusted)

    @property
    def rules(self) -> list[Any]:
        """All that decides on where a key belongs, as JSON can hold it."""
        former = [[era.count, sorted(era.ends.items())] for era in self.former]
        return [self.partitions, [each.value for each in self.candidates], former]

    def home(self, key: bytes | None) -> int | None:
        """Compute the partition of the key's next record; None where that is not known."""
        return self._home(key, self.partitions) if self.trusted else None

    def homes(self, key: bytes | None) -> tuple[int, ...]:
        """Compute the partitions in which the key belongs, or did before the topic grew."""
        counts = (self.partitions, *(era.count for era in self.former))
        found = (self._home(key, count) for count in counts)
        return tuple(dict.fromkeys(home for home in found if home is not None))

    def routing(self, key: bytes | None, partition: int, offset: int) -> tuple[Routing, str | None]:
        """Decide whether a record stands where its key belongs, and what else explains one that does not."""
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


def with_routing(records: DataFrame, router: Router) -> DataFrame:
    """Add ROUTING and ROUTED_BY to records with the columns key, partition and offset."""
    from pyspark.sql import functions as f

    struct = _computed(f"{ROUTING} string, {ROUTED_BY} string", routed, router)
    added = (f.col("_routed").getField(name).alias(name) for name in (ROUTING, ROUTED_BY))
    return records.withColumn("_routed", struct).select(*records.columns, *added)


def astray(router: Router) -> Column:
    """Build whether the routing of a record with the columns key, partition and offset is WRONG."""
    return _computed("boolean", astray_here, router)


def _computed(kind: str, compute: Callable[..., pa.Array], router: Router) -> Column:
    import pyarrow as pa
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf

    def route(keys: pa.Array, partitions: pa.Array, offsets: pa.Array) -> pa.Array:
        return compute(router, keys, partitions, offsets)

    # Spark tells the kind of a function by its hints, and cannot read those that name what is imported here.
    route.__annotations__ = dict.fromkeys(route.__annotations__, pa.Array)
    udf: Any = arrow_udf(route, kind)  # type: ignore[call-overload]
    column: Column = udf(f.col(KEY), f.col(PARTITION), f.col(OFFSET))
    return column


def routed(router: Router, keys: pa.Array, partitions: pa.Array, offsets: pa.Array) -> pa.Array:
    """Compute the routing of each record, as structs of ROUTING and ROUTED_BY."""
    import numpy as np
    import pyarrow as pa

    home, former, stands = _placed(router, keys, partitions, offsets)
    result = np.where(home == _NOWHERE, Routing.UNKNOWN.value, Routing.WRONG.value).astype(object)
    result[former & (home != _NOWHERE)] = Routing.FORMER.value
    result[home == stands] = Routing.HOME.value
    stray: list[str | None] = [None] * len(stands)
    for place in np.flatnonzero(result == Routing.WRONG.value):
        offset = offsets[int(place)].as_py()
        _, stray[place] = router.routing(keys[int(place)].as_py(), int(stands[place]), offset)
    return pa.StructArray.from_arrays(
        [pa.array(result.tolist(), pa.string()), pa.array(stray, pa.string())], names=[ROUTING, ROUTED_BY]
    )


def astray_here(router: Router, keys: pa.Array, partitions: pa.Array, offsets: pa.Array) -> pa.Array:
    """Compute whether the routing of each record is WRONG."""
    import pyarrow as pa

    home, former, stands = _placed(router, keys, partitions, offsets)
    return pa.array((home != _NOWHERE) & (home != stands) & ~former)


def _placed(
    router: Router, keys: pa.Array, partitions: pa.Array, offsets: pa.Array
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.int32]]:
    """Compute each record's home, whether it is at one that it had before the topic grew, and where it stands."""
    import numpy as np

    encoded = keys.dictionary_encode(null_encoding="encode")
    distinct, which = encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)
    stands, offset = partitions.to_numpy(zero_copy_only=False), offsets.to_numpy(zero_copy_only=False)
    former = np.zeros(len(stands), dtype=bool)
    for era in router.former:
        size = max([*stands.tolist(), *era.ends, 0]) + 1
        ends = np.zeros(size, dtype=np.int64)
        ends[list(era.ends)] = list(era.ends.values())
        former |= (_agreed(router, distinct, era.count)[which] == stands) & (offset < ends[stands])
    return _agreed(router, distinct, router.partitions)[which], former, stands


def homes(keys: Iterable[bytes | None], partitions: int, partitioner: str) -> NDArray[np.int64]:
    """Compute the partition of each key under a partitioner; -1 for null keys, and where no hash places the key."""
    import numpy as np

    listed = list(keys)
    found = np.full(len(listed), _NOWHERE, dtype=np.int64)
    if Partitioner(partitioner) is not Partitioner.MURMUR2:
        for place, key in enumerate(listed):
            if key or (key is not None and partitioner != Partitioner.CRC32):
                found[place] = partition_of(key, partitions, partitioner)
        return found
    by_length: dict[int, list[int]] = {}
    for place, key in enumerate(listed):
        if key is not None:
            by_length.setdefault(len(key), []).append(place)
    for length, places in by_length.items():
        joined = b"".join(listed[place] or b"" for place in places)
        rows = np.frombuffer(joined, dtype=np.uint8).reshape(len(places), length)
        found[places] = (murmur2_many(rows) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)
    return found


def _agreed(router: Router, keys: list[bytes | None], count: int) -> NDArray[np.int64]:
    import numpy as np

    if count == 1:
        return np.zeros(len(keys), dtype=np.int64)
    if not router.candidates:
        return np.full(len(keys), _NOWHERE, dtype=np.int64)
    each = [homes(keys, count, partitioner) for partitioner in router.candidates]
    return reduce(lambda one, other: np.where(one == other, one, _NOWHERE), each)
