"""A sample of a log's keys, by which its partitioner is known: so drawn that what is new adds to what was drawn before.

A record belongs to it by the hash of its place alone. Where the log has grown, every other one of them goes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from reconcile.gather.log.history_columns import KEY, OFFSET, PARTITION, by_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reconcile.gather.log.index import Index, Range, Segment

SAMPLE = 20_000
"""About so many records are looked at at most."""

SampledKey = tuple[str, int, int, int]
"""A key in base64, its partition and offset, and the hash of these two."""


def share(segments: Iterable[Segment], within: Mapping[int, Range]) -> int:
    """Compute of how many records in these offsets one is drawn: a power of two; 0 if there are none."""
    rows = sum(
        min(held.rows, max(0, min(held.end, within[partition][1]) - max(held.start, within[partition][0])))
        for segment in segments
        for partition, held in segment.partitions.items()
        if partition in within
    )
    return 1 << (-(-rows // SAMPLE) - 1).bit_length() if rows else 0


def query(records: DataFrame, within: Mapping[int, Range], share: int) -> list[SampledKey]:
    """Query the keys of one record in so many."""
    from pyspark.sql import functions as f

    place = f.xxhash64(f.col(PARTITION), f.col(OFFSET))
    starts, ends = (by_partition({partition: bounds[end] for partition, bounds in within.items()}) for end in (0, 1))
    there = (f.col(OFFSET) >= starts) & (f.col(OFFSET) < ends) & (f.pmod(place, f.lit(share)) == 0)
    found = records.where(there).where(f.col(KEY).isNotNull()).select(f.base64(KEY), PARTITION, OFFSET, place)
    return [(text, partition, offset, drawn) for text, partition, offset, drawn in found.collect()]


def thinned(keys: Iterable[SampledKey], share: int, index: Index) -> list[SampledKey]:
    """Choose of keys that were drawn those which still are: one in so many, of records that the history still has."""
    held = {partition: index.held(partition) for partition in {partition for _, partition, _, _ in keys}}
    return [
        each for each in keys if each[3] % share == 0 and any(start <= each[2] < end for start, end in held[each[1]])
    ]


def pairs(keys: Iterable[SampledKey]) -> list[tuple[bytes, int]]:
    """Build what the partitioner is inferred from: keys, and the partitions in which they stand."""
    return [(base64.b64decode(text), partition) for text, partition, _, _ in keys]
