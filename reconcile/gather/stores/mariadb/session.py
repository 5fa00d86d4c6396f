"""A read-only session with a MariaDB, and the one instant of it that a run sees."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import RLock
from typing import Any

import pymysql
from pymysql.converters import encoders
from pymysql.cursors import Cursor, SSCursor

from reconcile.errors import ReconcileError
from reconcile.gather.stores.errors import StoreRefusedError
from reconcile.gather.stores.load import Load, wait_while_busy
from reconcile.gather.stores.mariadb import errors, one_instant
from reconcile.gather.stores.mariadb.one_instant import Place
from reconcile.gather.stores.session import LONGEST_SNAPSHOT, Collation, Snapshot
from reconcile.gather.stores.usage import Readers, Usage
from reconcile.settings.connections import StoreLimits
from reconcile.settings.urls import MariaUrl

_LOG = logging.getLogger(__name__)
_MOST_SESSIONS = 4  # the more there are, the longer until they begin at one instant
_MEMORY = 1 << 30
"""The largest table of groups that the server may keep in memory: a digest's has up to a million short rows."""
# What is read, and what it looks like as text, must not depend on how the server or the account is set up.
_RULES = {
    "time_zone": "'+00:00'",
    "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    "lc_messages": "'en_US'",
    "tmp_table_size": str(_MEMORY),
    "max_heap_table_size": str(_MEMORY),
    # Else a table is written anew before it is read.
    "optimizer_switch": "'derived_merge=on'",
    "wait_timeout": str(round(LONGEST_SNAPSHOT.total_seconds())),
    # A reader that is slow, because Spark is, must not be cut off.
    "net_write_timeout": str(round(LONGEST_SNAPSHOT.total_seconds())),
}
_RULES_OF_MARIADB = {
    "idle_transaction_timeout": str(round(LONGEST_SNAPSHOT.total_seconds())),
    "idle_readonly_transaction_timeout": str(round(LONGEST_SNAPSHOT.total_seconds())),
}
_DESCRIBE = (
    "select connection_id(), utc_timestamp(6), version(), @@character_set_database, @@collation_database, @@read_only"
)
_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


@dataclass(frozen=True)
class Column:
    """A column that a statement gives."""

    name: str
    type: str
    """By the name that Postgres has for it."""
    charset: str | None = None
    """How the table's column that it is stores text; None for what is computed."""
    collation: str | None = None


class MariaSession:
    """A session whose every transaction is read only; the snapshot that it takes ends with it.

    Its statements wait for each other: there is one connection. Sessions beside it may see the same instant.
    """

    def __init__(
        self,
        name: str,
        database: Any,
        limits: StoreLimits,
        usage: Usage,
        open_beside: Callable[[], list[MariaSession]] | None = None,
    ) -> None:
        self.name = name
        self.limits = limits
        self.usage = usage
        self.snapshot: Snapshot | None = None
        self.beside: list[MariaSession] = []
        """Sessions whose snapshots are proven to be of the same instant; often there are none."""
        self._open_beside = open_beside
        self.is_mariadb = "mariadb" in database.get_server_info().lower()
        self._database = database
        self._in_snapshot = False
        self._one_at_a_time = RLock()
        rules = {**_RULES, **(_RULES_OF_MARIADB if self.is_mariadb else {})}
        self._execute("set session transaction isolation level repeatable read")
        self._execute("set " + ", ".join(f"session {name} = {value}" for name, value in rules.items()))
        self._limit(limits.statement_timeout)

    @contextmanager
    def looking_around(self) -> Iterator[None]:
        """Open a transaction for what is to be known before the snapshot is taken, and end it."""
        self._limit(timedelta(minutes=1))
        self._execute("start transaction read only")
        try:
            yield
        finally:
            with suppress(pymysql.Error):
                self._database.rollback()
        self._limit(self.limits.statement_timeout)

    def take_snapshot(self, longest: timedelta = LONGEST_SNAPSHOT) -> Snapshot:  # noqa: ARG002
        """Fix the instant that this session sees from now on, and sessions beside it if it can be proven."""
        if self._open_beside is not None and self.is_mariadb:
            self._begin_beside(self._open_beside)
        if not self.beside:
            self.begin()
        for session in (self, *self.beside):
            session._in_snapshot = True
        number, at, version, charset, collation, _ = self.rows(_DESCRIBE)[0]
        taken_at = datetime.fromisoformat(at).replace(tzinfo=UTC)
        kind = Collation(charset, "m", collation, None)
        self.snapshot = Snapshot(f"connection {number}", taken_at, version, bool(self.replica_state()), kind)
        self.usage.snapshot_began()
        return self.snapshot

    def begin(self) -> None:
        """Begin a snapshot; the one before it ends."""
        self._execute("start transaction with consistent snapshot, read only")

    def place(self) -> Place:
        """Query which connection it is."""
        number, *server = self.rows("select connection_id(), @@hostname, @@port, @@server_id")[0]
        return Place(int(number), tuple(server))

    def status(self) -> str:
        """Query InnoDB's status; it needs the right PROCESS."""
        return "".join(text for *_, text in self.rows("show engine innodb status"))

    def close(self) -> None:
        """Close the connection."""
        _close(self._database)

    def _begin_beside(self, open_beside: Callable[[], list[MariaSession]]) -> None:
        """Begin snapshots of one instant in this session and in others; have none beside it if that is not proven."""
        opened: list[MariaSession] = []
        try:
            self.status()
            opened = open_beside()
            refused = one_instant.begin_together([*opened, self])
        except ReconcileError as error:
            refused = str(error)
        if refused is None:
            self.beside = opened
            return
        _LOG.debug(f"{self.name} is read by one session: {refused}")
        for session in opened:
            session.close()

    def replica_state(self) -> str | None:
        """Query what shows that it is a replica, or read only; None where nothing does."""
        with suppress(pymysql.Error), self._cursor_as_it_is() as cursor:
            cursor.execute("show replica status")
            if cursor.fetchall():
                return "is a replica: it may be behind its primary"
        if str(self.rows("select @@read_only")[0][0]) not in ("0", "OFF"):
            return "is read only, as replicas are: it may be behind its primary"
        return None

    def end_snapshot(self) -> None:
        """End the snapshot: the database may remove what only it still saw."""
        for session in (self, *self.beside):
            with suppress(pymysql.Error):
                session._database.rollback()
        self.usage.snapshot_ended()

    def load(self) -> Load:
        """Query how busy the server is; raise StoreRefusedError for a limit that nothing here can look at."""
        if self.limits.pause.replication_lag is not None:
            message = "`pause.replication_lag` is for Postgres: a MariaDB does not know how far its replicas are"
            raise StoreRefusedError(f"the store {self.name}: {message}; take it out of its connection")
        wanted = "show global status where variable_name in ('Threads_connected', 'Threads_running')"
        found = {name.lower(): int(value) for name, value in self.rows(wanted)}
        return Load(found["threads_connected"], found["threads_running"] - 1)

    def wait_while_busy(self) -> None:
        """Wait while the server is busier than `pause` allows: call it before a heavy statement."""
        self.usage.add(paused=wait_while_busy(self.name, self.load, self.limits.pause))

    def require_alive(self) -> None:
        """Raise SnapshotLostError unless the snapshot still stands: call it when all has been read under it."""
        self.rows("select 1")

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement and read its rows; all values are text, bytes or None."""
        with self._cursor() as cursor:
            cursor.execute(statement)
            found = list(cursor.fetchall())
        self.usage.add(rows=len(found))
        return found

    def batches(self, statement: str, size: int = 5000) -> Iterator[list[tuple[Any, ...]]]:
        """Run a statement and read its rows batch by batch, while nothing else runs in this session.

        It may last as long as the snapshot does: how long it takes depends on who reads.
        """
        with self._one_at_a_time, self.usage.readers.reading():
            self.wait_while_busy()
            self._limit(LONGEST_SNAPSHOT)
            with self._cursor(SSCursor) as cursor:
                cursor.execute(statement)
                while batch := cursor.fetchmany(size):
                    self.usage.add(rows=len(batch))
                    yield list(batch)
            self._limit(self.limits.statement_timeout)

    def described(self, statement: str) -> list[Column]:
        """Query name and type of each column of a statement that gives no row.

        A statement that the server does not take is for the caller, who knows where its text is from.
        """
        with self._cursor_as_it_is() as cursor:
            cursor.execute(statement)
            # No public name tells which column of a table it is.
            fields: list[Any] = list(cursor._result.fields)  # type: ignore[attr-defined]
        places = [(each.db.decode(), each.org_table, each.org_name) for each in fields]
        stored = self._stored({(schema, table) for schema, table, _ in places if table})
        return [_column(each, stored.get(place)) for each, place in zip(fields, places, strict=True)]

    def columns(self, statement: str) -> list[Column]:
        """Query name and type of each column of one of our own statements."""
        try:
            return self.described(statement)
        except pymysql.Error as error:
            raise errors.running(self.name, error, self._in_snapshot) from None

    def schema_and_name(self, table: str) -> tuple[str, str]:
        """Build SQL for the schema of a table, and for its name, as the catalog has them."""
        *schema, name = table.split(".")
        return self.quoted(schema[0]) if schema else "database()", self.quoted(name)

    def engine(self, table: str) -> str | None:
        """Query which engine keeps a table; None for a view."""
        schema, name = self.schema_and_name(table)
        found = self.rows(
            f"select engine from information_schema.tables where table_schema = {schema}"
            f" and table_name = {name} and table_type = 'BASE TABLE'"
        )
        return next((engine for (engine,) in found), None)

    def primary_key(self, table: str) -> str | None:
        """Query the first column of a table's primary key."""
        schema, name = self.schema_and_name(table)
        found = self.rows(
            f"select column_name from information_schema.statistics where table_schema = {schema}"
            f" and table_name = {name} and index_name = 'PRIMARY' and seq_in_index = 1"
        )
        return next((column for (column,) in found), None)

    def count(self, relation: str, where: str) -> int:
        """Count rows of a table or a query."""
        return int(self.rows(f"select count(*) from {relation} where {where}")[0][0])

    def estimate(self, relation: str) -> int:
        """Query how many rows the planner expects of a table or a query."""
        plan = self.rows(f"explain select 1 from {relation}")
        return max((int(line[8]) for line in plan if line[8] is not None), default=0)

    def quoted(self, text: str) -> str:
        """Build a literal."""
        with self._cursor_as_it_is() as cursor:
            return str(cursor.mogrify("%s", (text,)))

    def _stored(self, tables: set[tuple[str, str]]) -> dict[tuple[str, str, str], _Stored]:
        """Query what the protocol does not tell of tables' columns: uuid, JSON, and how text is stored."""
        if not tables:
            return {}
        wanted = ", ".join(f"({self.quoted(schema)}, {self.quoted(table)})" for schema, table in sorted(tables))
        columns = self.rows(
            "select table_schema, table_name, column_name, data_type, character_set_name, collation_name"
            f" from information_schema.columns where (table_schema, table_name) in ({wanted})"
        )
        found = {(schema, table, name): _Stored(*rest) for schema, table, name, *rest in columns}
        if self.is_mariadb:
            checks = self.rows(
                "select constraint_schema, table_name, check_clause from information_schema.check_constraints"
                f" where (constraint_schema, table_name) in ({wanted})"
            )
            # JSON is text there, which a check sees to.
            valid = {(schema, table, clause.lower()) for schema, table, clause in checks}
            for (schema, table, name), stored in list(found.items()):
                if (schema, table, f"json_valid(`{name}`)".lower()) in valid:
                    found[schema, table, name] = replace(stored, kind="json")
        return found

    def _limit(self, longest: timedelta) -> None:
        seconds = longest.total_seconds()
        if self.is_mariadb:
            self._execute(f"set session max_statement_time = {seconds}")
        else:
            self._execute(f"set session max_execution_time = {round(seconds * 1000)}")

    def _execute(self, statement: str) -> None:
        with self._cursor() as cursor:
            cursor.execute(statement)

    @contextmanager
    def _cursor(self, kind: type[Cursor] = Cursor) -> Iterator[Cursor]:
        try:
            with self._cursor_as_it_is(kind) as cursor:
                yield cursor
        except pymysql.Error as error:
            raise errors.running(self.name, error, self._in_snapshot) from None

    @contextmanager
    def _cursor_as_it_is(self, kind: type[Cursor] = Cursor) -> Iterator[Cursor]:
        self.usage.add(statements=1)
        with self._one_at_a_time, self._database.cursor(kind) as cursor:
            yield cursor


@contextmanager
def open_maria_session(
    name: str, url: MariaUrl, limits: StoreLimits | None = None, usage: Usage | None = None
) -> Iterator[MariaSession]:
    """Connect for a block; raise StoreUnreachableError or StoreRefusedError where there is no session to be had.

    What it takes is added to `usage`.
    """
    limits = limits or StoreLimits()
    taken = usage or Usage(name, "", Readers(limits.readers))
    with ExitStack() as stack:

        def connect(open_beside: Callable[[], list[MariaSession]] | None = None) -> MariaSession:
            database = _connect(name, url)
            stack.callback(_close, database)
            return MariaSession(name, database, limits, taken, open_beside)

        def open_beside() -> list[MariaSession]:
            return [connect() for _ in range(count - 1)]

        count = min(limits.readers, _MOST_SESSIONS)
        yield connect(open_beside if count > 1 else None)


def _close(database: Any) -> None:
    with suppress(pymysql.Error):
        database.close()


def _connect(name: str, url: MariaUrl) -> Any:
    try:
        # Without the driver's conversions, which make something else of dates that no calendar has.
        database: Any = pymysql.connect(
            **{"connect_timeout": 10, "program_name": "reconcile", "conv": encoders, **url.arguments()},
            charset="utf8mb4",
        )
    except (pymysql.Error, RuntimeError, OSError, ValueError) as error:
        raise errors.connecting(name, error) from None
    for option, value in _ALIVE.items():
        if hasattr(socket, option):
            database._sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return database


@dataclass(frozen=True)
class _Stored:
    """What the catalog says of a table's column."""

    kind: str
    charset: str | None
    collation: str | None


_BINARY, _UNSIGNED = 63, 32
_ENUM_OR_SET = 256 | 2048
_WHOLE = {1: "smallint", 2: "smallint", 9: "integer", 3: "integer", 8: "bigint", 13: "smallint"}
_WHOLE_UNSIGNED = {**_WHOLE, 2: "integer", 3: "bigint", 8: "numeric(20,0)"}
_PLAIN = {
    4: "real",
    5: "double precision",
    7: "timestamp with time zone",
    10: "date",
    11: "time without time zone",
    12: "timestamp without time zone",
    14: "date",
    245: "json",
    255: "geometry",
}
_LONGEST_CHARACTER = 4


def _column(field: Any, stored: _Stored | None) -> Column:
    if stored is None:
        return Column(field.name, _type(field))
    kind = stored.kind if stored.kind in ("uuid", "json") else _type(field)
    return Column(field.name, kind, stored.charset, stored.collation)


def _type(field: Any) -> str:
    """Choose the name that Postgres has for a type."""
    code, unsigned = field.type_code, bool(field.flags & _UNSIGNED)
    if code in _WHOLE:
        return (_WHOLE_UNSIGNED if unsigned else _WHOLE)[code]
    if code == 16:  # bits, which count as a number
        return "bigint" if field.length < 64 else "numeric(20,0)"
    if code in (0, 246):
        return f"numeric({field.length - (field.scale > 0) - (not unsigned)},{field.scale})"
    if code in _PLAIN:
        return _PLAIN[code]
    if code != 6 and field.charsetnr == _BINARY:
        return "bytea"
    if code in (253, 254, 15) and not field.flags & _ENUM_OR_SET and field.length:
        return f"{'character' if code == 254 else 'character varying'}({field.length // _LONGEST_CHARACTER})"
    return "text"
