"""The routing of a whole log's records, by Spark; and the sample by which its partitioner is inferred."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from reconcile.audit.partitioning import Inference, Router, infer
from reconcile.domain.case import Routing
from reconcile.domain.partitioner import Partitioner, murmur2_many, partition_of
from reconcile.gather.log.history_columns import KEY, OFFSET, PARTITION

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa  # type: ignore[import-untyped]
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

    from reconcile.contract.model import Topic
    from reconcile.gather.log.history_index import Growth, Index, Range

ROUTING = "routing"
"""Whether a record stands where its key belongs: a value of `Routing`."""
ROUTED_BY = "routed_by"
"""What else explains a record in a wrong partition."""

SAMPLE = 20_000
"""At most so many records tell which partitioner there is."""

_NOWHERE = -1
_EVERYWHERE = 1 << 62


def with_routing(records: DataFrame, router: Router) -> DataFrame:
    """Add ROUTING and ROUTED_BY to records with the columns key, partition and offset."""
    import pyarrow as pa
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf

    def route(keys: pa.Array, partitions: pa.Array, offsets: pa.Array) -> pa.Array:
        return routed(router, keys, partitions, offsets)

    # Spark tells the kind of a function by its hints, and cannot read those that name what is imported here.
    route.__annotations__ = dict.fromkeys(route.__annotations__, pa.Array)
    told = arrow_udf(route, f"{ROUTING} string, {ROUTED_BY} string")  # type: ignore[call-overload]
    struct = told(f.col(KEY), f.col(PARTITION), f.col(OFFSET))
    added = (f.col("_routed").getField(name).alias(name) for name in (ROUTING, ROUTED_BY))
    return records.withColumn("_routed", struct).select(*records.columns, *added)


def infer_from_log(records: DataFrame, index: Index, topic: Topic) -> Inference:
    """Infer the partitioner from at most SAMPLE records, spread over the log since its topic last grew.

    A topic that holds nothing since then tells by the records from before, under the count of that time.
    """
    growth = index.partitions
    declared = topic.partitioner
    if not growth:
        return infer([], 1, declared)
    found = infer(_sample(records, index, _era(growth, len(growth) - 1)), growth[-1].count, declared)
    if found.seen or len(growth) == 1:
        return found
    before = infer(_sample(records, index, _era(growth, len(growth) - 2)), growth[-2].count, declared)
    return replace(before, partitions=growth[-1].count)


def routed(router: Router, keys: pa.Array, partitions: pa.Array, offsets: pa.Array) -> pa.Array:
    """Give the routing of each record, as structs of ROUTING and ROUTED_BY."""
    import numpy as np
    import pyarrow as pa

    encoded = keys.dictionary_encode(null_encoding="encode")
    distinct, which = encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)
    stands, offset = partitions.to_numpy(zero_copy_only=False), offsets.to_numpy(zero_copy_only=False)
    home = _agreed(router, distinct, router.partitions)[which]
    result = np.where(home == _NOWHERE, Routing.UNKNOWN.value, Routing.WRONG.value).astype(object)
    former = np.zeros(len(stands), dtype=bool)
    for era in router.former:
        size = max([*stands.tolist(), *era.ends, 0]) + 1
        ends = np.zeros(size, dtype=np.int64)
        ends[list(era.ends)] = list(era.ends.values())
        former |= (_agreed(router, distinct, era.count)[which] == stands) & (offset < ends[stands])
    result[former & (home != _NOWHERE)] = Routing.FORMER.value
    result[home == stands] = Routing.HOME.value
    stray: list[str | None] = [None] * len(stands)
    for place in np.flatnonzero(result == Routing.WRONG.value):
        _, stray[place] = router.routing(distinct[which[place]], int(stands[place]), int(offset[place]))
    return pa.StructArray.from_arrays(
        [pa.array(result.tolist(), pa.string()), pa.array(stray, pa.string())], names=[ROUTING, ROUTED_BY]
    )


def homes(keys: Iterable[bytes | None], partitions: int, partitioner: str) -> NDArray[np.int64]:
    """Give the partition that a partitioner gives each key; -1 for a null key, and where no hash places the key."""
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
    return reduce(lambda left, right: np.where(left == right, left, _NOWHERE), each)


def _era(growth: tuple[Growth, ...], number: int) -> Mapping[int, Range]:
    """Give the offsets that were surely written under one of a topic's partition counts."""
    starts = growth[number].ends if number else {}
    later = growth[number + 1].after if number + 1 < len(growth) else {}
    return {p: (starts.get(p, 0), later.get(p, _EVERYWHERE)) for p in range(growth[number].count)}


def _sample(records: DataFrame, index: Index, era: Mapping[int, Range]) -> list[tuple[bytes, int]]:
    from pyspark.sql import functions as f

    rows = sum(
        min(held.rows, max(0, min(held.end, era[partition][1]) - max(held.start, era[partition][0])))
        for segment in index.segments
        for partition, held in segment.partitions.items()
        if partition in era
    )
    if not rows:
        return []
    chosen = f.pmod(f.xxhash64(f.col(PARTITION), f.col(OFFSET)), f.lit(-(-rows // SAMPLE))) == 0
    found = records.where(f.col(KEY).isNotNull() & _within(era) & chosen).select(KEY, PARTITION).limit(SAMPLE)
    return [(bytes(row[KEY]), row[PARTITION]) for row in found.collect()]


def _within(era: Mapping[int, Range]) -> Column:
    from pyspark.sql import functions as f

    starts, ends = (
        f.create_map(*(f.lit(each) for partition, bounds in era.items() for each in (partition, bounds[side])))
        for side in (0, 1)
    )
    offset = f.col(OFFSET)
    return (offset >= f.try_element_at(starts, f.col(PARTITION))) & (offset < f.try_element_at(ends, f.col(PARTITION)))
