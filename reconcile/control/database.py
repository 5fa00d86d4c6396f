"""The database of the control store: its transactions, its clock and its locks, on Postgres as on SQLite."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import (
    CTE,
    JSON,
    URL,
    ColumnElement,
    Connection,
    DateTime,
    Engine,
    Float,
    Table,
    Text,
    TypeDecorator,
    bindparam,
    cast,
    column,
    create_engine,
    event,
    func,
    literal,
    select,
    type_coerce,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from reconcile.control.errors import control_error
from reconcile.domain.key import is_keepable
from reconcile.settings.connections import SqliteFile
from reconcile.settings.urls import PostgresUrl

_POSTGRES = {
    "connect_timeout": "10",
    "application_name": "reconcile",
    "client_encoding": "UTF8",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "options": "-c statement_timeout=10min",
}
_LONGEST_WAIT = 60.0
BATCH = 5000
"""How many rows go to the server at once."""
_LOCKS = 0x7265636F
"""The first half of our advisory locks' keys, so that another program's in the same database are not ours."""


_Each = TypeVar("_Each")


class Instant(TypeDecorator[datetime]):
    """An instant, in UTC whatever the session's time zone is."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Turn it into UTC, which SQLite keeps without saying so."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Say that it is UTC."""
        if value is None:
            return None
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


class AggregateId(TypeDecorator[str]):
    """An aggregate's id; one that no index or no database holds is kept as its digest."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Choose what is kept."""
        return None if value is None else kept_id(value)


def kept_id(id_text: str) -> str:
    """Choose what the control store keeps of an aggregate's id."""
    if is_keepable(id_text):
        return id_text
    return f"sha256:{hashlib.sha256(id_text.encode(errors='surrogatepass')).hexdigest()}"


class now(FunctionElement[datetime]):  # noqa: N801 - it is written as a function of SQL
    """The instant of the database's clock, or one that lies a while after it; never that of ours."""

    type = Instant()
    inherit_cache = True

    def __init__(self, after: timedelta = timedelta()) -> None:
        super().__init__(literal(after.total_seconds(), Float))


@compiles(now, "postgresql")
def _now_of_postgres(element: now, compiler: Any, **options: Any) -> str:
    return f"(clock_timestamp() + make_interval(secs => {compiler.process(element.clauses, **options)}))"


@compiles(now, "sqlite")
def _now_of_sqlite(element: now, compiler: Any, **options: Any) -> str:
    delay = compiler.process(element.clauses, **options)
    return f"strftime('%Y-%m-%d %H:%M:%f000', 'now', {delay} || ' seconds')"


class Database:
    """Transactions with the control store; what fails in one raises a ReconcileError."""

    def __init__(self, engine: Engine, place: str) -> None:
        self._engine = engine
        self.place = place
        """Where it is, without user and password."""

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction; on SQLite it waits for others with its first change, which must not follow a read."""
        with self._transaction(writes=False) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that writes; SQLite has one of them at a time."""
        with self._transaction(writes=True) as connection:
            yield connection

    def lock(self, connection: Connection, name: str) -> None:
        """Let one transaction at a time be past this point for a name; SQLite has a lock of its own."""
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCKS, func.hashtext(name))))

    def insert(self, table: Table) -> postgresql.Insert | sqlite.Insert:
        """Build an insert that can say what happens where the row is there already."""
        return postgresql.insert(table) if self._engine.dialect.name == "postgresql" else sqlite.insert(table)

    def rows(self, columns: Iterable[ColumnElement[Any]], rows: Iterable[Mapping[str, object]]) -> CTE:
        """Build a table of given rows within one statement, to join and to insert from.

        A statement for each row takes the server several times as long, also where they are sent together.
        """
        document = bindparam("given", json.dumps(list(rows)), Text)
        if self._engine.dialect.name == "postgresql":
            named = (column(str(each.key), each.type) for each in columns)
            listed = func.json_to_recordset(cast(document, JSON)).table_valued(*named).render_derived(with_types=True)
            return select(*listed.c).cte("given")
        listed = func.json_each(document).table_valued("value")
        values = (
            type_coerce(func.json_extract(listed.c.value, f"$.{each.key}"), each.type).label(each.key)
            for each in columns
        )
        # Without the word, SQLite may read the document anew for each row that it is joined with.
        return select(*values).cte("given").prefix_with("materialized")

    def close(self) -> None:
        """Close its connections."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Connection]:
        try:
            with self._engine.execution_options(writes=writes).begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise control_error(self.place, error) from None


def connect(address: PostgresUrl | SqliteFile, *, read_only: bool = False) -> Database:
    """Build the access to the database at an address; it is reached when it is first used."""
    if isinstance(address, SqliteFile):
        return Database(_sqlite(address, read_only=read_only), str(address.path))
    arguments = {**_POSTGRES, **address.libpq()}
    if read_only:
        arguments["options"] += " -c default_transaction_read_only=on"
    engine = create_engine(
        "postgresql+psycopg2://",
        connect_args=arguments,
        executemany_mode="values_plus_batch",
        hide_parameters=True,
        pool_pre_ping=True,
        pool_size=4,
        pool_timeout=_LONGEST_WAIT,
    )
    return Database(engine, f"{address.host}:{address.port}/{address.database}")


def batches(items: Iterable[_Each], size: int) -> Iterator[list[_Each]]:
    """Cut items into lists of a size, the last one shorter."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def _sqlite(file: SqliteFile, *, read_only: bool) -> Engine:
    place = file.path.absolute()
    engine = create_engine(
        URL.create("sqlite", database=place.as_uri(), query={"mode": "ro", "uri": "true"})
        if read_only
        else URL.create("sqlite", database=str(place)),
        connect_args={"timeout": _LONGEST_WAIT},
        hide_parameters=True,
    )

    # Python's driver would begin transactions by itself, and not before a select or a create.
    @event.listens_for(engine, "connect")
    def _opened(connection: Any, record: object) -> None:  # noqa: ARG001
        connection.isolation_level = None
        connection.execute("pragma foreign_keys = on")
        connection.execute("pragma secure_delete = on")  # what is deleted is not in the file any more

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("begin immediate" if writes else "begin")

    return engine
