"""The columns that the audit adds, by the names that its modules use for them."""

from __future__ import annotations

ID = "id"
"""The aggregate's id; NULL for the rows that have none."""
SOURCE_COUNT = "source_count"
"""How many rows the source has of it."""
COPY_COUNT = "copy_count"
SOURCE_VERSION = "source_version"
COPY_VERSION = "copy_version"
SOURCE_FIELDS = "source_fields"
"""The compared fields' canonical texts, in the contract's order; NULL where there is no row."""
COPY_FIELDS = "copy_fields"
DIFFERS = "differs"
"""For each field whether it differs; NULL where a side has no row."""
