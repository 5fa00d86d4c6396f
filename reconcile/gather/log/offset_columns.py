"""Offsets by partition, as a column of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from reconcile.gather.log.history_columns import PARTITION

if TYPE_CHECKING:
    from pyspark.sql import Column


def by_partition(offsets: Mapping[int, int | None]) -> Column:
    """Give for each record the offset of its partition; NULL for a partition that has none."""
    from pyspark.sql import functions as f

    known = {partition: offset for partition, offset in offsets.items() if offset is not None}
    if not known:
        return f.lit(None).cast("bigint")
    pairs = [each for pair in sorted(known.items()) for each in (f.lit(pair[0]), f.lit(pair[1]).cast("bigint"))]
    return f.try_element_at(f.create_map(*pairs), f.col(PARTITION))
