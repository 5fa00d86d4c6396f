"""A read-only session with a Postgres store, and the one instant of it that all readers of a run see."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import BufferedWriter
from threading import RLock
from typing import Any, Protocol

import psycopg2
from psycopg2 import sql
from psycopg2.extensions import adapt, connection, cursor

from reconcile.domain.event import UUID
from reconcile.errors import RefusedError
from reconcile.gather.stores import errors, one_statement
from reconcile.gather.stores.load import Load, wait_while_busy
from reconcile.gather.stores.usage import Readers, Usage
from reconcile.settings.connections import StoreLimits
from reconcile.settings.urls import PostgresUrl

LONGEST_SNAPSHOT = timedelta(hours=6)
"""How long a snapshot is kept by a session that says nothing: one that hangs must not keep its rows for ever."""

_CONNECTION = {
    "connect_timeout": "10",
    "application_name": "reconcile",
    "client_encoding": "UTF8",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
# What is read, and what it looks like as text, must not depend on how the server or the account is set up.
_RULES = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
    # A row that a policy hides would count as deleted: then the server raises an error instead.
    "row_security": "off",
}
_DESCRIBE = (
    "select pg_export_snapshot(), clock_timestamp(), current_setting('server_version'), pg_is_in_recovery(),"
    " to_jsonb(d), pg_encoding_to_char(d.encoding) from pg_database d where d.datname = current_database()"
)
_SEES_LOAD = "select pg_has_role('pg_read_all_stats', 'usage')"
# What these views show stays as it is until the transaction ends, unless it is cleared.
_CLEARED = "select pg_stat_clear_snapshot()"
_LOAD = """
    select count(*),
           count(*) filter (where state = 'active' and backend_type = 'client backend'
                            and application_name is distinct from current_setting('application_name')),
           extract(epoch from greatest(
               (select max(replay_lag) from pg_stat_replication),
               case when pg_is_in_recovery() and pg_last_wal_receive_lsn() <> pg_last_wal_replay_lsn()
                    then clock_timestamp() - pg_last_xact_replay_timestamp() end, interval '0'))::float8
      from pg_stat_activity where datid is not null
"""


@dataclass(frozen=True)
class Collation:
    """How a database orders and compares text."""

    encoding: str
    provider: str
    """`c`: libc, `i`: ICU, `b`: built in; `m`: a MariaDB's own."""
    locale: str
    version: str | None


@dataclass(frozen=True)
class Snapshot:
    """One instant of a store, exported: any session that imports the id sees the same rows, while ours is open."""

    id: str
    taken_at: datetime
    server_version: str
    replica: bool
    collation: Collation


class SnapshotSession(Protocol):
    """A session with a database that keeps one instant of it."""

    name: str
    snapshot: Snapshot | None
    usage: Usage

    def looking_around(self) -> AbstractContextManager[None]:
        """Open a transaction for what is to be known before the snapshot is taken, and end it."""

    def take_snapshot(self) -> Snapshot:
        """Fix the instant that this session sees from now on."""

    def end_snapshot(self) -> None:
        """End the snapshot."""

    def require_alive(self) -> None:
        """Raise SnapshotLostError unless the snapshot still stands: call it when all has been read under it."""


class StoreSession:
    """A session whose every transaction is read only; the snapshot that it takes ends with it."""

    def __init__(self, name: str, database: connection, limits: StoreLimits, usage: Usage) -> None:
        self.name = name
        self.limits = limits
        self.usage = usage
        self.snapshot: Snapshot | None = None
        self._database = database
        self._in_snapshot = False
        # Threads may share it, and what parses a statement does so beside the driver and its lock.
        self._one_at_a_time = RLock()

    @contextmanager
    def looking_around(self) -> Iterator[None]:
        """Open a transaction for what is to be known before the snapshot is taken, and end it."""
        self._begin(timedelta(minutes=1))
        try:
            yield
        finally:
            self._roll_back()

    def take_snapshot(self, longest: timedelta = LONGEST_SNAPSHOT) -> Snapshot:
        """Fix the instant that this session sees from now on, and export it."""
        self._begin(longest)
        self._in_snapshot = True
        row = self.rows(_DESCRIBE)[0]
        self.snapshot = Snapshot(row[0], row[1], row[2], row[3], _collation(row[4], row[5]))
        self.usage.snapshot_began()
        return self.snapshot

    def import_snapshot(self, snapshot_id: str, longest: timedelta = LONGEST_SNAPSHOT) -> None:
        """See what the session that exported the snapshot sees; raise SnapshotLostError if it has ended."""
        self._in_snapshot = True
        self._begin(longest, f"set transaction snapshot {adapt(snapshot_id).getquoted().decode()}; ")

    def end_snapshot(self) -> None:
        """End the snapshot: nobody can import it any more, and the database may remove what only it still saw."""
        self._roll_back()
        self.usage.snapshot_ended()

    def load(self) -> Load:
        """Query how busy the server is; raise StoreRefusedError where the account may not see that."""
        pause = self.limits.pause
        if (pause.running or pause.replication_lag) and not self.rows(_SEES_LOAD)[0][0]:
            raise errors.StoreRefusedError(
                f"the store {self.name} does not show our account what it runs and how far its replicas are, which"
                " `pause` needs: grant it pg_read_all_stats, or set `pause.connections` alone"
            )
        self.rows(_CLEARED)
        connections, running, behind = self.rows(_LOAD)[0]
        return Load(connections, running, timedelta(seconds=behind))

    def wait_while_busy(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Wait while the server is busier than `pause` allows: call it before a heavy statement."""
        self.usage.add(paused=wait_while_busy(self.name, self.load, self.limits.pause, sleep))

    def rows(self, statement: str | sql.Composable, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and read its rows; raise RefusedError where the contract's SQL makes several of it."""
        with self._cursor() as cursor:
            self._execute_one(cursor, statement, parameters)
            found = cursor.fetchall()
        self.usage.add(rows=len(found))
        return found

    def run(self, statement: sql.Composable) -> None:
        """Run statements of our own, which give no rows."""
        with self._cursor() as cursor, self._one_at_a_time:
            cursor.execute(statement)

    def batches(self, statement: sql.Composable, size: int = 50_000) -> Iterator[list[tuple[Any, ...]]]:
        """Run a statement and read its rows batch by batch.

        Not by a server's cursor: for those Postgres plans as if only the first rows were wanted.
        """
        with self._cursor() as cursor:
            self._execute_one(cursor, statement)
            while batch := cursor.fetchmany(size):
                self.usage.add(rows=len(batch))
                yield batch

    def copy(self, statement: str, file: BufferedWriter) -> None:
        """Run a COPY of ours, and write what the server sends into a file."""
        with self._cursor() as cursor, self._one_at_a_time:
            one_statement.require_one(cursor, statement.encode())
            cursor.copy_expert(statement, file)
        file.flush()

    def text(self, statement: sql.Composable) -> str:
        """Build a statement as the server gets it."""
        return str(statement.as_string(self._database))

    def whole_text(self, statement: sql.Composable) -> str:
        """Build a statement that others run; raise RefusedError where the contract's SQL makes several of it."""
        text = self.text(statement)
        with self._cursor() as cursor, self._one_at_a_time:
            one_statement.require_one(cursor, text.encode())
        return text

    def described(self, statement: sql.Composable) -> list[tuple[str, str]]:
        """Query name and type of each column of a statement that is parsed and gives no row.

        A statement that the server does not take is for the caller, who knows where its text is from.
        """
        self.usage.add(statements=3)
        with self._one_at_a_time, self._database.cursor() as cursor:
            cursor.execute("savepoint described")
            try:
                self._execute_one(cursor, statement)
            except (psycopg2.Error, RefusedError):
                with suppress(psycopg2.Error):
                    cursor.execute("rollback to savepoint described")
                raise
            columns = cursor.description or ()
            forms = [(column.name, column.type_code, _modifier(column)) for column in columns]
            cursor.execute(
                "select format_type(t, m) from unnest(%s::oid[], %s::int[]) with ordinality as c (t, m, n) order by n",
                ([oid for _, oid, _ in forms], [modifier for _, _, modifier in forms]),
            )
            types = [name for (name,) in cursor.fetchall()]
        return [(name, form) for (name, _, _), form in zip(forms, types, strict=True)]

    def types(self, statement: sql.Composable) -> list[str]:
        """Query the type of each column of one of our own statements."""
        try:
            return [kind for _, kind in self.described(statement)]
        except psycopg2.Error as error:
            raise errors.running(self.name, error, self._in_snapshot) from None

    def count(self, relation: sql.Composable, where: sql.Composable) -> int:
        """Count rows of a table or a query."""
        return int(self.rows(sql.SQL("select count(*) from {} where {}").format(relation, where))[0][0])

    def estimate(self, relation: sql.Composable) -> int:
        """Query how many rows the planner expects of a table or a query."""
        plan = self.rows(sql.SQL("explain (format json) select 1 from {}").format(relation))
        return int(plan[0][0][0]["Plan"]["Plan Rows"])

    def require_alive(self) -> None:
        """Raise SnapshotLostError unless the snapshot still stands: call it when all has been read under it."""
        self.rows("select 1")

    def _begin(self, longest: timedelta, first: str = "") -> None:
        self._roll_back()
        timeouts = {"statement_timeout": _milliseconds(self.limits.statement_timeout)}
        timeouts["idle_in_transaction_session_timeout"] = _milliseconds(longest)
        if self._database.server_version >= 170000:
            timeouts["transaction_timeout"] = 0  # the server's own limit would end the snapshot under the readers
        rules = "; ".join(f"set local {name} = '{value}'" for name, value in {**timeouts, **_RULES}.items())
        with self._cursor() as cursor, self._one_at_a_time:
            cursor.execute(first + rules)

    def _roll_back(self) -> None:
        with suppress(psycopg2.Error), self._one_at_a_time:
            self._database.rollback()

    def _execute_one(self, cursor: cursor, statement: str | sql.Composable, parameters: Sequence[object] = ()) -> None:
        text = cursor.mogrify(statement, parameters or None)
        with self._one_at_a_time:
            one_statement.require_one(cursor, text)
            cursor.execute(text)

    @contextmanager
    def _cursor(self) -> Iterator[cursor]:
        self.usage.add(statements=1)
        try:
            with self._database.cursor() as cursor:
                yield cursor
        except psycopg2.Error as error:
            raise errors.running(self.name, error, self._in_snapshot) from None


@contextmanager
def open_session(
    name: str, url: PostgresUrl, limits: StoreLimits | None = None, usage: Usage | None = None
) -> Iterator[StoreSession]:
    """Connect for a block; raise StoreUnreachableError or StoreRefusedError where there is no session to be had.

    What it takes is added to `usage`.
    """
    limits = limits or StoreLimits()
    try:
        database = psycopg2.connect(**{**_CONNECTION, **url.libpq()})
    except psycopg2.Error as error:
        raise errors.connecting(name, error) from None
    try:
        database.set_session(isolation_level="REPEATABLE READ", readonly=True)
        yield StoreSession(name, database, limits, usage or Usage(name, "", Readers(limits.readers)))
    finally:
        database.close()


def uuid_texts(texts: Sequence[str]) -> list[str]:
    """Choose those texts that a uuid is written as: any other would end the statement with an error."""
    return [text for text in texts if re.fullmatch(UUID, text)]


def storable_texts(found: Iterable[str]) -> list[str]:
    """Choose those texts that a Postgres can hold: any other would end the statement with an error."""
    return [text for text in found if "\0" not in text]


def _milliseconds(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


def _modifier(column: Any) -> int | None:
    if column.precision is not None and column.scale is not None and column.precision != 65535:
        return int(((column.precision << 16) | column.scale) + 4)
    if column.type_code in _WITH_LENGTH and column.internal_size > 0:
        return int(column.internal_size + 4)
    return None


_WITH_LENGTH = (1042, 1043)
"""The oids of char(n) and varchar(n), of which the driver tells the length as their size."""


def _collation(database: dict[str, Any], encoding: str) -> Collation:
    provider = database.get("datlocprovider", "c")
    locale = database.get("datlocale") or database.get("daticulocale") or database["datcollate"]
    if provider == "c":
        locale = database["datcollate"]
    return Collation(encoding, provider, locale, database.get("datcollversion"))
