"""The columns of a log history, by the names that every stage uses for them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

ID = "id"
"""The aggregate's id; NULL where the key is null or unreadable."""
ID_HASH = "id_hash"
"""The hash by which the files are sorted."""
KEY = "key"
"""The key's bytes; kept only where the id does not give them back."""
PARTITION = "partition"
OFFSET = "offset"
TIMESTAMP = "timestamp"
"""Its producer's time, or the broker's; one that no calendar of Python's holds is EARLIEST or LATEST."""
VERSION = "version"
"""What the contract's `version` gives, as text."""
EVENT_ID = "event_id"
"""What the contract's `event_id` gives, else Debezium's position in the source, else topic-partition@offset."""
TYPE = "type"
CORRELATION_ID = "correlation_id"
TOMBSTONE = "tombstone"
"""Whether the record has a null value."""
DELETES = "deletes"
"""Whether the record's format says by itself that the aggregate is gone: a null value, or Debezium's `op: d`."""
VALUE = "value"
"""The value as a JSON object in text; NULL for a tombstone, and where the value cannot be read."""
RAW = "raw"
"""The bytes of a value that cannot be read."""
READABLE = "readable"
"""Whether the value could be read; true for a tombstone."""
KEY_READABLE = "key_readable"
"""Whether the key could be read; a null key cannot."""
HEADERS = "headers"
"""All headers in their order; kept only where that is wanted."""

# A day inside of what Python holds, so that it does in every time zone; in milliseconds since 1970.
EARLIEST = int(datetime(1, 1, 2, tzinfo=UTC).timestamp()) * 1000
LATEST = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp()) * 1000

STORED = (
    f"{ID} string, {ID_HASH} bigint, {KEY} binary, {PARTITION} int, {OFFSET} bigint, {TIMESTAMP} timestamp,"
    f" {VERSION} string, {EVENT_ID} string, {TYPE} string, {CORRELATION_ID} string,"
    f" {TOMBSTONE} boolean, {DELETES} boolean, {VALUE} string, {RAW} binary"
)
STORED_HEADERS = f"{HEADERS} array<struct<key: string, value: binary>>"


def holdable(at: Column) -> Column:
    """Build an instant that all readers hold: EARLIEST or LATEST for one that lies beyond."""
    from pyspark.sql import functions as f

    earliest, latest = (f.timestamp_millis(f.lit(each)) for each in (EARLIEST, LATEST))
    return f.when(at.isNotNull(), f.greatest(earliest, f.least(latest, at)))


def is_beyond(at: Column) -> Column:
    """Whether an instant stands for one that lies beyond what can be held."""
    from pyspark.sql import functions as f

    return f.unix_millis(at).isin(EARLIEST, LATEST)


def by_partition(offsets: Mapping[int, int | None]) -> Column:
    """Build for each record the offset of its partition; NULL for a partition that has none."""
    from pyspark.sql import functions as f

    known = {partition: offset for partition, offset in offsets.items() if offset is not None}
    if not known:
        return f.lit(None).cast("bigint")
    pairs = [each for pair in sorted(known.items()) for each in (f.lit(pair[0]), f.lit(pair[1]).cast("bigint"))]
    return f.try_element_at(f.create_map(*pairs), f.col(PARTITION))
