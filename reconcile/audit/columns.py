"""The columns that the audit adds to what was gathered, by the names that its modules use for them."""

from __future__ import annotations

ID = "id"
"""The aggregate's id; NULL for the rows that have none."""

# Of a comparison.
SOURCE_COUNT = "source_count"
"""How many rows the source has of the id."""
COPY_COUNT = "copy_count"
SOURCE_VERSION = "source_version"
COPY_VERSION = "copy_version"
SOURCE_FIELDS = "source_fields"
"""The compared fields' canonical texts, in the contract's order; NULL where there is no row."""
COPY_FIELDS = "copy_fields"
FIELDS_DIFFER = "fields_differ"
"""For each field whether it differs; NULL where a side has no row."""

# Of suspects.
DIFFERS = "differs"
"""Whether source and copy differed at the first reading; false for an id that agreed and may break."""
SETTLED_VERSION = "settled_version"
"""The source's version at the first reading."""
SETTLED_FIELDS = "settled_fields"
"""The source's fields at the first reading."""

# Of records: what they say of a consumer's fields, and whether they stand where their keys belong.
GONE = "gone"
"""Whether a record deletes, by itself or by the contract's tests."""
TELLS = "tells"
"""For each field whether the record says anything of it."""
VALUES = "values"
"""For each field its canonical text; of one that has none, as in a row, the text that is there."""
BAD = "bad"
"""For each field whether its value is there and cannot be read."""
UNTOLD = "untold"
"""For each field whether the record has a placeholder in its place, and tells nothing of it."""
ROUTING = "routing"
"""A value of `domain.case.Routing`."""
ROUTED_BY = "routed_by"
"""What else explains a record in a wrong partition."""

# Of versions: how many of an aggregate's are known, and how many there are from the lowest to the highest.
KNOWN = "known"
SPAN = "span"

# Of cases: what was read of one suspect, in one row.
SETTLED = "settled"
SOURCE = "source"
COPY = "copy"
EVENTS = "events"
EVENTS_TOTAL = "events_total"
"""How many events there are, where `events` holds the newest alone."""
PARKED = "parked"
LEDGER = "ledger"
PENDING = "pending"
"""How many of its events wait in the outbox."""
PENDING_SINCE = "pending_since"
"""When the oldest of them was written; NULL where that is not known."""
UNDECIDED = "undecided"
"""Its first record behind an open transaction."""
