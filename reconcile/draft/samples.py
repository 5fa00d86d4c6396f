"""What a draft is guessed from: bounded samples of tables, of a topic, and of what stands beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reconcile.domain.canonical import Kind, canonical_type

Id = tuple[str, ...]
"""The id of an aggregate: the text of each of its columns."""
Row = Mapping[str, str | None]
"""A row by its columns, all of them text."""

_TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    """By the name that Postgres has for it."""
    sql: str
    """How SQL of its store names it."""

    @property
    def kind(self) -> Kind:
        """What its values are compared as."""
        return canonical_type(self.type).kind


@dataclass(frozen=True)
class Table:
    """A table or a view."""

    name: str
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...] = ()
    """The columns of its primary key, if it has one, and of what else is unique."""

    def __post_init__(self) -> None:
        # A contract cannot name the others.
        object.__setattr__(self, "columns", tuple(each for each in self.columns if is_nameable(each.name)))

    def column(self, name: str) -> Column:
        """Choose a column by its name."""
        return next(each for each in self.columns if each.name == name)


@dataclass(frozen=True)
class TableSample:
    """A table, which of its columns make up the id, and rows by id."""

    store: str
    """The name of the connection."""
    table: Table
    id: tuple[str, ...]
    rows: Mapping[Id, Row]
    maria: bool = False
    """Whether the store speaks MariaDB's SQL, and not Postgres'."""
    doubled: int = 0
    """How many of the sampled ids have several rows."""


@dataclass(frozen=True)
class Record:
    """A record of a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    text: str | None = None
    """The value as JSON text, where a registry's schema reads it."""


@dataclass(frozen=True)
class TopicSample:
    """Records of a topic, the oldest of each partition first."""

    cluster: str
    name: str
    partitions: int
    records: Sequence[Record] = ()
    ids: Sequence[Id | None] = ()
    """The id of each record, by its key; None where it cannot be read."""
    key_type: str = "string"
    known: int = 0
    """How many of the ids that were looked up are ids of the source."""
    looked_up: int = 0
    format: str = "json"
    registry: str | None = None
    """The name of the connection to the registry that has the schemas."""


@dataclass(frozen=True)
class FailureSample:
    """A topic that looks as if failed events lay in it."""

    name: str
    origins: Mapping[tuple[str, str | None], int] = field(default_factory=dict)
    """How many of its newest records name an origin in a dialect, and for which group."""
    records: int | None = 0
    """How many of them were looked at; None where we may not read it."""
    readers: tuple[str, ...] = ()
    """The groups that have committed offsets in it."""


@dataclass(frozen=True)
class SideTable:
    """A table beside one that was named: an outbox beside the source, a ledger beside a copy."""

    table: Table
    rows: Sequence[Row] = ()
    looked_up: int = 0
    """How many of the sampled records were looked up in it; 0 where these are any rows."""


@dataclass(frozen=True)
class CopySample:
    """A copy, and what is known of the group that keeps it."""

    group: str
    rows: TableSample
    known: int
    """How many of the sampled rows have an id of the source."""
    looked_up: int
    ledgers: tuple[SideTable, ...] = ()
    failures: tuple[FailureSample, ...] = ()
    committed: int = 0
    """In how many partitions the group has committed."""


@dataclass(frozen=True)
class Sampled:
    """All that a draft is guessed from."""

    source: TableSample
    topic: TopicSample
    copies: tuple[CopySample, ...]
    outboxes: tuple[SideTable, ...] = ()


def is_nameable(name: str) -> bool:
    """Decide whether a file that people write can hold a name."""
    return bool(name) and name == name.strip() and name.isprintable()


def tokens(name: str) -> tuple[str, ...]:
    """Parse the words in a name, however they are joined: `first_name`, `firstName` and `first-name` have the same."""
    return tuple(each.lower() for each in _TOKEN.findall(name))


def is_alike(one: str, other: str) -> bool:
    """Decide whether two names say the same, or one says it more closely: `price` and `price_cents`."""
    left, right = tokens(one), tokens(other)
    if not left or not right:
        return one == other
    return "".join(left) == "".join(right) or set(left) <= set(right) or set(right) <= set(left)
