"""Why a copy differs from its source: a closed list."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """What made a copy differ from its source."""

    IN_FLIGHT = "in_flight"
    STASHED = "stashed"
    RETRYING = "retrying"
    DEAD_LETTERED = "dead_lettered"
    SKIPPED = "skipped"
    OUT_OF_ORDER = "out_of_order"
    DUPLICATE_APPLIED = "duplicate_applied"
    NEVER_PUBLISHED = "never_published"
    EXPIRED = "expired"
    MISROUTED = "misrouted"
    SOURCE_REGRESSED = "source_regressed"
    PAYLOAD_DIVERGENCE = "payload_divergence"
    SCHEMA_VIOLATION = "schema_violation"
    PHANTOM = "phantom"
    FOREIGN_WRITE = "foreign_write"
    UNDETERMINED = "undetermined"

    @property
    def meaning(self) -> str:
        """Say what it is in one sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Cause.IN_FLIGHT: (
        "The event that would bring the copy up to date has not been consumed yet, or came after the snapshot."
    ),
    Cause.STASHED: "The missing event waits in the consumer's stash.",
    Cause.RETRYING: "The missing event waits in a retry topic.",
    Cause.DEAD_LETTERED: "The missing event was given up and lies in the dead-letter topic.",
    Cause.SKIPPED: "The consumer went past an event without applying it.",
    Cause.OUT_OF_ORDER: "An older event was applied after a newer one.",
    Cause.DUPLICATE_APPLIED: "One event was applied more than once.",
    Cause.NEVER_PUBLISHED: "The source changed and no event of it ever reached the topic.",
    Cause.EXPIRED: "The events that would tell are no longer in the topic.",
    Cause.MISROUTED: "The aggregate's events stand in more than one partition.",
    Cause.SOURCE_REGRESSED: "The topic is ahead of the source: it was restored, or rolled back after publishing.",
    Cause.PAYLOAD_DIVERGENCE: "The event of the source's version says something else than the source.",
    Cause.SCHEMA_VIOLATION: "The record that should carry the state cannot be read.",
    Cause.PHANTOM: "The copy holds an id that neither the source nor the topic ever had.",
    Cause.FOREIGN_WRITE: "Something other than the events wrote the copy.",
    Cause.UNDETERMINED: "Nothing could be shown with the evidence that there is.",
}
