"""Why a copy differs from its source: a closed list."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """What made a copy differ from its source."""

    IN_FLIGHT = "in_flight"
    """The event that would bring the copy up to date has not been consumed yet, or came after the snapshot."""
    STASHED = "stashed"
    """The missing event waits in the consumer's stash."""
    RETRYING = "retrying"
    """The missing event waits in a retry topic."""
    DEAD_LETTERED = "dead_lettered"
    """The missing event was given up and lies in the dead-letter topic."""
    SKIPPED = "skipped"
    """The consumer went past an event without applying it."""
    OUT_OF_ORDER = "out_of_order"
    """An older event was applied after a newer one."""
    DUPLICATE_APPLIED = "duplicate_applied"
    """One event was applied more than once."""
    NEVER_PUBLISHED = "never_published"
    """The source changed and no event of it ever reached the topic."""
    EXPIRED = "expired"
    """The events that would tell are no longer in the topic."""
    MISROUTED = "misrouted"
    """The aggregate's events stand in more than one partition."""
    SOURCE_REGRESSED = "source_regressed"
    """The topic is ahead of the source: it was restored, or rolled back after publishing."""
    PAYLOAD_DIVERGENCE = "payload_divergence"
    """The event of the source's version says something else than the source."""
    SCHEMA_VIOLATION = "schema_violation"
    """The record that should carry the state cannot be read."""
    PHANTOM = "phantom"
    """The copy holds an id that neither the source nor the topic ever had."""
    FOREIGN_WRITE = "foreign_write"
    """Something other than the events wrote the copy."""
    UNDETERMINED = "undetermined"
    """Nothing could be shown with the evidence that there is."""
