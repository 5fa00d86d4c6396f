"""One aggregate of one link, with all that is known of it: what its cause is decided by.

Values are canonical texts, as `domain.canonical` has them, by the contract's names of the compared fields.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from reconcile.domain.canonical import Kind

Fields = Mapping[str, str | None]
ParkedIn = Literal["retry", "dead_letter", "stash"]
Unapplied = Literal["older", "ignored", "damaged", "sent_on", "dead_lettered", "discarded"]
"""How the consumer library's ledger notes an event that was not applied."""


class Routing(StrEnum):
    """Whether a record stands in the partition that its key belongs to."""

    HOME = "home"
    """Where the aggregate's future events will stand."""
    FORMER = "former"
    """Where the key belonged before the topic grew."""
    WRONG = "wrong"
    """Where the topic's partitioner never put this key."""
    UNKNOWN = "unknown"
    """No partitioner explains the topic."""


@dataclass(frozen=True)
class FieldRule:
    """How one field is compared, and what events say of it."""

    name: str
    kind: Kind = Kind.TEXT
    add: bool = False
    """Whether events hold what is added to the field; otherwise they hold the field."""
    tolerance: Decimal = Decimal(0)
    carried: bool = True
    """Whether events carry it."""
    column: str | None = None
    """The type of the copy's column, with its length; None if that is not known."""


@dataclass(frozen=True)
class Place:
    """How the log and the group stand in one partition."""

    begin: int
    """The first offset of which we know: the log held others before, if it is above 0."""
    settled_end: int
    """What stands below it was in the log before the source was read."""
    log_end: int
    """The log is evidence up to here."""
    committed: int | None
    """The copy had its time to apply what stands below it; None if the group committed nothing."""
    open: int | None = None
    """Where the first open transaction begins, behind which nothing is decided; None if there is none."""
    unread: bool = False
    """Whether too much is behind it to be looked at."""


@dataclass(frozen=True)
class Link:
    """What all aggregates of a link share: the contract's words, and where log, group and ledger stand."""

    name: str
    topic: str
    fields: tuple[FieldRule, ...]
    places: Mapping[int, Place]
    patch: bool = False
    """Whether events carry the fields that changed alone."""
    records: bool = False
    """Whether the copy holds one immutable row for each event."""
    expires: bool = False
    """Whether rows of the copy may be gone, as those of a cache are that have expired."""
    event_versions: bool = False
    source_versions: bool = False
    copy_versions: bool = False
    dense_versions: bool = False
    """Whether the versions in this log grow by one, so that one that is missing was never published."""
    guarded: bool = False
    """Whether the consumer ignores events that are older than its copy."""
    compacted: bool = False
    """Whether the topic is compacted: older events of an id may be gone from anywhere in the log."""
    ledger: bool = False
    """Whether the consumer keeps a ledger."""
    ledger_begins: Mapping[int, int] | None = None
    """The first offset that the ledger knows of, by partition: what stands below may have been cleaned away."""
    ledger_since: datetime | None = None
    """The time of its oldest entry."""
    untold: Collection[str] = ()
    """What a copy holds that took for a value what events have in place of one that they do not tell."""
    ledger_by_position: bool = False
    """Whether it knows events by their position in the source alone, which snapshots and corrections do not have."""
    corrections: Collection[tuple[str | None, int, int]] = ()
    """Where corrections of earlier runs stand: id, partition, offset."""

    @property
    def versioned(self) -> bool:
        """Whether the versions of source and log can be compared."""
        return self.source_versions and self.event_versions

    @property
    def changes(self) -> bool:
        """Whether events carry changes, that are folded: the fields that changed alone, or what is added to one."""
        return self.patch or any(rule.add and rule.carried for rule in self.fields)


@dataclass(frozen=True)
class Row:
    """The aggregate's row on one side."""

    fields: Fields
    version: int | None = None
    count: int = 1
    """How often the id stands there."""


@dataclass(frozen=True)
class Event:
    """A record of the topic that carries the aggregate's id."""

    partition: int
    offset: int
    at: datetime
    event_id: str
    fields: Fields
    """The fields that it carries."""
    version: int | None = None
    type: str | None = None
    deletes: bool = False
    ignored: bool = False
    """Whether its type says nothing of the aggregate's state."""
    problem: str | None = None
    """Why it cannot be read, in words; None if it can."""
    bad_fields: tuple[str, ...] = ()
    """The fields whose value cannot be read, where the rest of it can."""
    unheld: tuple[str, ...] = ()
    """The fields of which it says what the source says, and what no column of the copy's type can hold."""
    untold: tuple[str, ...] = ()
    """The fields in whose place it has a placeholder: of these it tells nothing."""
    routing: Routing = Routing.UNKNOWN
    routed_by: str | None = None
    """The partitioner that explains a record in a wrong partition."""

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands."""
        return self.partition, self.offset


@dataclass(frozen=True)
class Parked:
    """A record of the aggregate in a retry, dead-letter or stash topic of the group, or in its table of problems."""

    kind: ParkedIn
    topic: str
    """The topic's name, or the table's."""
    partition: int | None
    offset: int | None
    at: datetime | None
    origin: tuple[int, int] | None
    """Partition and offset in the main topic."""
    event_id: str | None
    version: int | None = None
    resolved: str | None = None
    """Why it is done with, such as `its group has committed past it`; None if it may still be waiting."""
    error: str | None = None
    """The class of the error, as its headers name it."""


@dataclass(frozen=True)
class LedgerEntry:
    """One line of the consumer's ledger."""

    event_id: str | None
    place: tuple[int, int] | None
    """Partition and offset in the main topic."""
    at: datetime | None
    unapplied: Unapplied | None = None
    """What became of an event that was not applied; None for one that was."""
    because: str | None = None
    """Why, in the words of the person who discarded it or registered it as damaged."""


@dataclass(frozen=True)
class Undecided:
    """A record of the aggregate behind an open transaction: nobody knows yet whether it counts."""

    partition: int
    offset: int
    at: datetime


@dataclass(frozen=True)
class Case:
    """All that is known of one aggregate of a link."""

    link: Link
    id: str | None
    """None for the rows that have no id."""
    source: Row | None
    """The source's row as read last; None if there is none, or it counts as deleted."""
    copy: Row | None
    """The copy's row as read last, after the source's."""
    settled_source: Row | None = None
    """The source's row as read some time before: what it says had its time to be published."""
    settled_absent: bool = False
    """Whether there was no row then. If there is neither a row nor this, that reading is unknown."""
    agreed: bool = False
    """Whether source and copy agreed then, also where that reading is unknown."""
    events: tuple[Event, ...] = ()
    """By time of the log: inside a partition by offset, across partitions by timestamp. The newest are kept."""
    events_cut: int = 0
    """How many older ones are missing here because there are so many."""
    parked: tuple[Parked, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    """Its entries for these events, by time."""
    outbox_pending: int = 0
    """Rows of the source's outbox for this id that were not yet published."""
    outbox_since: datetime | None = None
    """When the oldest of them was written; None where that is not known."""
    undecided: Undecided | None = None
    """Its first record behind an open transaction; None if there is none that was looked at."""
    homes: tuple[int, ...] = ()
    """The partitions where its key belongs, now or before the topic grew; empty if nothing explains the topic."""
