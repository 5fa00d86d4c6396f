"""A world written down before it is made: tables, records, commits, and what is wrong with them.

Nothing of the lab is in it. Each world has a contract of its own, its schema in two databases, its topics and groups.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from reconcile.domain.partitioner import partition_of

Row = dict[str, Any]
Headers = list[tuple[str, bytes]]
Fold = Callable[[Row | None, "Record"], Row | None]


@dataclass(frozen=True)
class Told:
    """What an audit should say of one aggregate: the cause is the true one."""

    difference: str
    cause: str
    fields: tuple[str, ...] = ()
    status: str = "confirmed"
    certain: bool = False
    """Whether the evidence is there to be sure; where it is not, the true cause may be an alternative."""


@dataclass(frozen=True)
class Record:
    """A record, and what it was made of."""

    topic: str
    partition: int
    offset: int
    at: datetime
    key: bytes | None
    value: bytes | None
    headers: Headers
    event_id: str
    said: Row | None
    stamp: int | None = None
    """What its producer says is the time, in milliseconds, where that is no time that a clock shows."""


@dataclass
class Topic:
    """A topic and what is written to it; `grown` partitions come after some records."""

    name: str
    partitions: int
    partitioner: str = "murmur2"
    records: list[Record] = field(default_factory=list)
    grown: tuple[int, int] | None = None
    """After how many records it grew, and to how many partitions."""
    transactions: list[tuple[int, bool]] | None = None
    """How many records had been written when each transaction ended, and whether it was committed."""

    def ends(self) -> dict[int, int]:
        """Give the offset after the last record of each partition."""
        count = self.grown[1] if self.grown else self.partitions
        found = dict.fromkeys(range(count), 0)
        for record in self.records:
            found[record.partition] += 1
        return found

    def grow(self, partitions: int) -> None:
        """Add partitions: what is written from here on is spread over all of them."""
        self.grown = len(self.records), partitions

    def end_transaction(self, commit: bool = True) -> None:
        """End the transaction that holds what was written since the last one."""
        assert self.transactions is not None
        self.transactions.append((len(self.records), commit))

    def home(self, key: bytes) -> int:
        """Give the partition in which a producer puts a key now."""
        return partition_of(key, self.grown[1] if self.grown else self.partitions, self.partitioner)


@dataclass
class Table:
    """A table: rows by a name that the world has for them, and others that no name tells apart."""

    name: str
    columns: str
    rows: dict[str, Row] = field(default_factory=dict)
    loose: list[Row] = field(default_factory=list)

    def all(self) -> list[Row]:
        """Give all rows."""
        return [*self.rows.values(), *self.loose]


@dataclass
class Copy:
    """A consumer: its table, its ledger, and how it applies an event."""

    name: str
    group: str
    table: Table
    fold: Fold
    ledger: Table | None = None
    entry: Callable[[Record, datetime], Row] = lambda _record, _at: {}
    committed: dict[int, int] | None = field(default_factory=dict)
    """Where it stands, by partition, if that is not the end; None if its group never existed."""

    def apply(self, record: Record, name: str, at: datetime | None = None) -> None:
        """Apply an event and note that."""
        row = self.fold(self.table.rows.get(name), record)
        if row is None:
            self.table.rows.pop(name, None)
        else:
            self.table.rows[name] = row
        if self.ledger is not None:
            self.ledger.loose.append(self.entry(record, at or record.at + timedelta(milliseconds=200)))


@dataclass
class World:
    """A contract and the world that it speaks of."""

    name: str
    contract: str
    source: Table
    topic: Topic
    key: Callable[[str], bytes] = str.encode
    identity: Callable[[str], Row] = lambda name: {"id": name}
    value: Callable[[Row], Any] = lambda row: row
    headers: Callable[[Row, str], Headers] = lambda _row, _event_id: []
    version: str | None = "version"
    copies: dict[str, Copy] = field(default_factory=dict)
    extra: list[tuple[str, Table]] = field(default_factory=list)
    """Other tables, each with the database that holds it."""
    parking: dict[str, Topic] = field(default_factory=dict)
    readers: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)
    """What other groups have committed, by group and topic."""
    truth: dict[tuple[str, str | None], Told] = field(default_factory=dict)
    now: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0) - timedelta(hours=8))
    instants: bool = False
    """Whether versions are instants."""
    exit_code: int = 1
    files: dict[str, Callable[[Path], object]] = field(default_factory=dict)
    """What writes files beside the contract, by their names."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.name)  # noqa: S311
        self.removed: dict[str, Row] = {}

    @property
    def there(self) -> list[str]:
        """The ids that the source has, deleted ones apart."""
        return [
            name for name, row in self.source.rows.items() if row.get("gone") is not True and row.get("state") != "gone"
        ]

    def copy(self, name: str, columns: str, fold: Fold, ledger: str | None = None, **more: Any) -> Copy:
        """Add a consumer."""
        noted = Table(f"{name}_ledger", ledger) if ledger else None
        made = Copy(name, f"{self.name}.{name}", Table(name, columns), fold, noted, **more)
        self.copies[name] = made
        return made

    def put(
        self,
        key: bytes | None,
        value: Any,
        headers: Sequence[tuple[str, bytes]] = (),
        topic: Topic | None = None,
        partition: int | None = None,
        said: Row | None = None,
        event_id: str = "",
    ) -> Record:
        """Write a record; a value that is neither bytes nor None becomes JSON."""
        to = topic or self.topic
        self.now += timedelta(seconds=1)
        place = partition if partition is not None else to.home(key or b"")
        data = value if value is None or isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
        record = Record(to.name, place, to.ends()[place], self.now, key, data, list(headers), event_id, said)
        to.records.append(record)
        return record

    def write(self, name: str, /, **fields: Any) -> Row:
        """Change the source's row, and its version."""
        former = self.source.rows.get(name) or self.removed.pop(name, None) or {**self.identity(name)}
        row = {**former, **fields}
        if self.version:
            row[self.version] = self.next_version(former.get(self.version))
        self.source.rows[name] = row
        return row

    def next_version(self, former: Any) -> Any:
        """Give the version after another one."""
        return self.now + timedelta(microseconds=777) if self.instants else (former or 0) + 1

    def publish(
        self, name: str, said: Row | None = None, partition: int | None = None, key: bytes | None = None
    ) -> Record:
        """Tell what the source says, or something else, of an aggregate."""
        row = said if said is not None else self.source.rows[name]
        event_id = str(UUID(int=self.random.getrandbits(128), version=4))
        headers = self.headers(row, event_id)
        return self.put(
            key or self.key(name), self.value(row), headers, partition=partition, said=dict(row), event_id=event_id
        )

    def change(self, name: str, /, to: Iterable[Copy] | None = None, **fields: Any) -> Record:
        """Change, publish and apply: what happens on a good day."""
        self.write(name, **fields)
        return self.applied(self.publish(name), name, to)

    def applied(self, record: Record, name: str, to: Iterable[Copy] | None = None) -> Record:
        """Apply a record, in all copies unless told."""
        for each in self.copies.values() if to is None else to:
            each.apply(record, name)
        return record

    def bury(self, name: str, to: Iterable[Copy] | None = None) -> Record:
        """Delete the source's row, publish a tombstone and apply it."""
        self.removed[name] = self.source.rows.pop(name)
        event_id = str(UUID(int=self.random.getrandbits(128), version=4))
        record = self.put(self.key(name), None, self.headers(self.removed[name], event_id), event_id=event_id)
        return self.applied(record, name, to)

    def expect(self, copy: str, name: str | None, *told: Any, **more: Any) -> None:
        """Note what an audit should say."""
        self.truth[f"{self.name}/{copy}", name] = Told(*told, **more)


def taking(**columns: Callable[[Row], Any]) -> Fold:
    """Give a consumer that keeps some columns of each whole state, and deletes at a tombstone."""

    def fold(_: Row | None, record: Record) -> Row | None:
        return None if record.said is None else {name: read(record.said) for name, read in columns.items()}

    return fold


def compact(value: Any) -> bytes:
    """Give the JSON bytes of a key."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def text(value: Any) -> bytes:
    """Give a header's bytes."""
    return str(value).encode()
