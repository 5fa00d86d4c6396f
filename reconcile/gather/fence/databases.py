"""Databases that have snapshots, as the fence opens them: what it asks of each kind, in one protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from psycopg2 import sql

from reconcile.config.extras import extras_named
from reconcile.contract.model import Contract, Outbox, Source
from reconcile.contract.terms import Rows
from reconcile.domain.canonical import Layout
from reconcile.gather.fence import nature
from reconcile.gather.fence.nature import SourceNature
from reconcile.gather.stores import contract_check
from reconcile.gather.stores.contract_check import Mismatches, relation
from reconcile.gather.stores.contract_sql import require_whole
from reconcile.gather.stores.library_tables import LibraryTables, library_tables
from reconcile.gather.stores.session import SnapshotSession, StoreSession, open_session
from reconcile.gather.stores.usage import Usage
from reconcile.settings.connections import StoreLimits
from reconcile.settings.urls import MariaUrl, PostgresUrl

if TYPE_CHECKING:
    from reconcile.gather.stores.mariadb.session import MariaSession


class Database(Protocol):
    """A database whose snapshot the fence takes."""

    @property
    def session(self) -> SnapshotSession:
        """The session that takes it and keeps it."""

    def source_types(self, contract: Contract, found: Mismatches) -> Layout[str] | None:
        """Check what the contract says of its source; return its types, or add what is wrong."""

    def consumer_types(self, contract: Contract, index: int, found: Mismatches) -> Layout[str] | None:
        """Check what the contract says of a consumer's store; return its types, or add what is wrong."""

    def library_tables(self) -> LibraryTables | None:
        """Query the tables of the consumer library; None for a store that has none."""

    def pending(self, outbox: Outbox) -> int:
        """Count what waits in an outbox."""

    def estimate(self, rows: Rows) -> int:
        """Query about how many rows a side has."""

    def nature(self, source: Source) -> SourceNature:
        """Query what the source is."""


@contextmanager
def open_database(name: str, address: PostgresUrl | MariaUrl, limits: StoreLimits, usage: Usage) -> Iterator[Database]:
    """Connect for a block; raise StoreUnreachableError or StoreRefusedError where there is no session to be had."""
    if isinstance(address, PostgresUrl):
        with open_session(name, address, limits, usage) as session:
            yield _Postgres(session)
        return
    with extras_named(f"the store {name}"):
        from reconcile.gather.stores.mariadb.session import open_maria_session
    with open_maria_session(name, address, limits, usage) as maria:
        yield _Maria(maria)


class _Postgres:
    def __init__(self, session: StoreSession) -> None:
        self.session = session

    def source_types(self, contract: Contract, found: Mismatches) -> Layout[str] | None:
        return contract_check.source_types(contract_check.of_postgres(self.session), contract, found)

    def consumer_types(self, contract: Contract, index: int, found: Mismatches) -> Layout[str] | None:
        return contract_check.consumer_types(contract_check.of_postgres(self.session), contract, index, found)

    def library_tables(self) -> LibraryTables | None:
        return library_tables(self.session)

    def pending(self, outbox: Outbox) -> int:
        table = sql.Identifier(*outbox.table.split("."))
        return self.session.count(table, sql.SQL("{} is not true").format(require_whole(outbox.published)))

    def estimate(self, rows: Rows) -> int:
        return self.session.estimate(relation(rows))

    def nature(self, source: Source) -> SourceNature:
        assert self.session.snapshot is not None
        return nature.of_postgres(self.session, source, self.session.snapshot)


class _Maria:
    def __init__(self, session: MariaSession) -> None:
        self.session = session

    def source_types(self, contract: Contract, found: Mismatches) -> Layout[str] | None:
        from reconcile.gather.stores.mariadb.contract_check import of_mariadb

        return contract_check.source_types(of_mariadb(self.session), contract, found)

    def consumer_types(self, contract: Contract, index: int, found: Mismatches) -> Layout[str] | None:
        from reconcile.gather.stores.mariadb.contract_check import of_mariadb

        return contract_check.consumer_types(of_mariadb(self.session), contract, index, found)

    def library_tables(self) -> LibraryTables | None:
        return None

    def pending(self, outbox: Outbox) -> int:
        from reconcile.gather.stores.mariadb import statements

        box = Rows.model_construct(table=outbox.table, query=None)
        published = statements.require_whole(outbox.published)
        return self.session.count(statements.relation(box), f"{published} is not true")

    def estimate(self, rows: Rows) -> int:
        from reconcile.gather.stores.mariadb import statements

        return self.session.estimate(statements.relation(rows))

    def nature(self, source: Source) -> SourceNature:
        return nature.of_mariadb(source.store, self.session.replica_state())
