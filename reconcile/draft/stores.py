"""Samples of tables, read from Postgres and MariaDB in read-only sessions; every statement is bounded."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING

from psycopg2 import sql

from reconcile.config.extras import extras_named
from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import quoted
from reconcile.domain.canonical import Kind
from reconcile.domain.event import UUID
from reconcile.domain.key import is_keepable
from reconcile.draft.samples import Column, Id, Row, Table
from reconcile.errors import RefusedError
from reconcile.gather.stores.errors import NoTableError
from reconcile.gather.stores.session import StoreSession, open_session
from reconcile.settings.connections import Store
from reconcile.settings.urls import MariaUrl, PostgresUrl

if TYPE_CHECKING:
    from reconcile.gather.stores.mariadb.session import MariaSession

AT_EACH_END = 100
"""So many rows with the lowest ids are read, and so many with the highest."""

_LONGEST_TEXT = 10_000
_PATIENCE = timedelta(minutes=1)
_RANGES = {"smallint": 15, "integer": 31, "bigint": 63}
_TABLES = (
    "select case when pg_table_is_visible(c.oid) then relname else nspname || '.' || relname end,"
    " has_table_privilege(c.oid, 'select') and has_schema_privilege(n.oid, 'usage')"
    " from pg_class c join pg_namespace n on n.oid = relnamespace where relkind in ('r', 'v', 'm', 'p', 'f')"
    " and nspname not in ('pg_catalog', 'information_schema') order by 1"
)
_KEYS = """
    select i.indexrelid::bigint, a.attname from pg_index i
      cross join unnest(i.indkey::int2[]) with ordinality as k (attnum, place)
      join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
     where i.indrelid = to_regclass(%s) and i.indisunique and i.indisvalid and i.indpred is null
       and i.indexprs is null and k.place <= i.indnkeyatts
     order by not i.indisprimary, i.indexrelid, k.place
"""


class SampledStore(ABC):
    """A database of which samples are read."""

    maria = False
    """Whether it speaks MariaDB's SQL, and not Postgres'."""

    def __init__(self, name: str) -> None:
        self.name = name

    def table(self, name: str) -> Table:
        """Describe a table; raise NoTableError with the nearest name."""
        tables = [each for each, _ in self.tables()]
        if name not in tables and name.rpartition(".")[2] not in tables and not self._exists(name):
            hint = suggestion(name, tables) or (f"; there are {', '.join(tables[:20])}" if tables else "; it has none")
            raise NoTableError(f"no table {quoted(name)} in {self.name}{hint}")
        return Table(name, tuple(self._columns(name)), tuple(self._keys(name)))

    @abstractmethod
    def tables(self) -> list[tuple[str, bool]]:
        """List the tables and views that there are, each with whether we may read it."""

    def ends(self, table: Table) -> list[Row]:
        """Read the rows with the lowest ids and those with the highest; any rows where nothing orders them."""
        if not table.keys:
            return self._rows(table, limit=2 * AT_EACH_END)
        found = [
            row
            for descending in (False, True)
            for row in self._rows(table, order=table.keys[0], descending=descending, limit=AT_EACH_END)
        ]
        return list({tuple(row.items()): row for row in found}.values())

    def among(self, table: Table, names: Sequence[str], ids: Sequence[Id]) -> list[Row]:
        """Read the rows whose columns have one of these values; values that the columns cannot hold are left out."""
        kinds = [table.column(each) for each in names]
        fitting = [each for each in dict.fromkeys(ids) if all(map(_fits, each, kinds))]
        return self._rows(table, among=(names, fitting), limit=4 * max(len(fitting), 1)) if fitting else []

    def any(self, table: Table, limit: int = 2 * AT_EACH_END) -> list[Row]:
        """Read some rows, the newest by their key if there is one."""
        order = table.keys[0] if table.keys else ()
        return self._rows(table, order=order, descending=True, limit=limit)

    @abstractmethod
    def _exists(self, name: str) -> bool: ...

    @abstractmethod
    def _columns(self, table: str) -> list[Column]: ...

    @abstractmethod
    def _keys(self, table: str) -> Iterator[tuple[str, ...]]: ...

    @abstractmethod
    def _rows(
        self,
        table: Table,
        *,
        limit: int,
        order: Sequence[str] = (),
        descending: bool = False,
        among: tuple[Sequence[str], Sequence[Id]] | None = None,
    ) -> list[Row]: ...


@contextmanager
def open_store(name: str, connection: Store) -> Iterator[SampledStore]:
    """Connect for a block; raise RefusedError for a store that is neither a Postgres nor a MariaDB."""
    address = connection.resolve()
    limits = connection.limits
    limits = limits.model_copy(update={"statement_timeout": min(limits.statement_timeout, _PATIENCE), "readers": 1})
    if isinstance(address, PostgresUrl):
        with open_session(name, address, limits) as session, session.looking_around():
            yield _Postgres(name, session)
        return
    if not isinstance(address, MariaUrl):
        raise RefusedError(f"{name} is neither a Postgres nor a MariaDB: write its part of the contract by hand")
    with extras_named(f"the store {name}"):
        from reconcile.gather.stores.mariadb.session import open_maria_session
    with open_maria_session(name, address, limits) as maria, maria.looking_around():
        yield _Maria(name, maria)


class _Postgres(SampledStore):
    def __init__(self, name: str, session: StoreSession) -> None:
        super().__init__(name)
        self._session = session

    def tables(self) -> list[tuple[str, bool]]:
        return [(name, readable) for name, readable in self._session.rows(_TABLES)]

    def _exists(self, name: str) -> bool:
        found = self._session.rows("select to_regclass(%s) is not null", (self._regclass(name),))
        return bool(found[0][0])

    def _columns(self, table: str) -> list[Column]:
        from psycopg2 import Error

        from reconcile.gather.stores import errors

        statement = sql.SQL("select * from {} limit 0").format(_named(table))
        try:
            found = self._session.described(statement)
        except Error as error:
            raise errors.running(self.name, error, False) from None
        quoted_names = self._session.rows(
            "select quote_ident(n) from unnest(%s::text[]) with ordinality as u (n, o) order by o",
            ([name for name, _ in found],),
        )
        return [Column(name, form, said) for (name, form), (said,) in zip(found, quoted_names, strict=True)]

    def _keys(self, table: str) -> Iterator[tuple[str, ...]]:
        found = self._session.rows(_KEYS, (self._regclass(table),))
        for _, columns in groupby(found, key=lambda row: row[0]):
            yield tuple(name for _, name in columns)

    def _rows(
        self,
        table: Table,
        *,
        limit: int,
        order: Sequence[str] = (),
        descending: bool = False,
        among: tuple[Sequence[str], Sequence[Id]] | None = None,
    ) -> list[Row]:
        read = [each for each in table.columns if each.kind is not Kind.BYTEA]
        listed = sql.SQL(", ").join(
            sql.SQL("left({}::text, {})").format(sql.Identifier(each.name), sql.Literal(_LONGEST_TEXT)) for each in read
        )
        parts = [sql.SQL("select {} from {}").format(listed, _named(table.name))]
        if among is not None:
            names, ids = among
            columns = sql.SQL(", ").join(map(sql.Identifier, names))
            values = (sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, each))) for each in ids)
            parts.append(sql.SQL("where ({}) in ({})").format(columns, sql.SQL(", ").join(values)))
        if order:
            way = sql.SQL(" desc" if descending else "")
            parts.append(
                sql.SQL("order by {}").format(sql.SQL(", ").join(sql.Identifier(each) + way for each in order))
            )
        parts.append(sql.SQL("limit {}").format(sql.Literal(limit)))
        found = self._session.rows(sql.SQL(" ").join(parts))
        return [dict(zip((each.name for each in read), row, strict=True)) for row in found]

    def _regclass(self, table: str) -> str:
        return self._session.text(_named(table))


class _Maria(SampledStore):
    maria = True

    def __init__(self, name: str, session: MariaSession) -> None:
        super().__init__(name)
        self._session = session

    def tables(self) -> list[tuple[str, bool]]:
        # It shows only those on which the account has some right.
        wanted = "select table_name from information_schema.tables where table_schema = database() order by 1"
        return [(name, True) for (name,) in self._session.rows(wanted)]

    def _exists(self, name: str) -> bool:
        schema, table = self._session.schema_and_name(name)
        wanted = f"select 1 from information_schema.tables where table_schema = {schema} and table_name = {table}"  # noqa: S608
        return bool(self._session.rows(wanted))

    def _columns(self, table: str) -> list[Column]:
        from reconcile.gather.stores.mariadb.statements import identifier

        found = self._session.columns(f"select * from {self._named(table)} limit 0")  # noqa: S608
        return [Column(each.name, each.type, identifier(each.name)) for each in found]

    def _keys(self, table: str) -> Iterator[tuple[str, ...]]:
        schema, name = self._session.schema_and_name(table)
        found = self._session.rows(
            "select index_name, column_name from information_schema.statistics"  # noqa: S608
            f" where table_schema = {schema} and table_name = {name} and non_unique = 0"
            " order by index_name <> 'PRIMARY', index_name, seq_in_index"
        )
        for _, columns in groupby(found, key=lambda row: row[0]):
            yield tuple(column for _, column in columns)

    def _rows(
        self,
        table: Table,
        *,
        limit: int,
        order: Sequence[str] = (),
        descending: bool = False,
        among: tuple[Sequence[str], Sequence[Id]] | None = None,
    ) -> list[Row]:
        from reconcile.gather.stores.mariadb.statements import identifier

        read = [each for each in table.columns if each.kind is not Kind.BYTEA]
        listed = ", ".join(f"left({each.sql}, {_LONGEST_TEXT})" for each in read)
        statement = f"select {listed} from {self._named(table.name)}"  # noqa: S608
        if among is not None:
            names, ids = among
            kinds = [table.column(each).kind for each in names]
            values = (f"({', '.join(map(self._literal, each, kinds))})" for each in ids)
            statement += f" where ({', '.join(map(identifier, names))}) in ({', '.join(values)})"
        if order:
            way = " desc" if descending else ""
            statement += f" order by {', '.join(identifier(each) + way for each in order)}"
        found = self._session.rows(f"{statement} limit {limit}")
        return [
            {each.name: value for each, value in zip(read, row, strict=True) if not isinstance(value, bytes)}
            for row in found
        ]

    def _literal(self, text: str, kind: Kind) -> str:
        # A number in quotes would be compared as a float, without the index.
        return text if kind in (Kind.INTEGER, Kind.NUMERIC) else self._session.quoted(text)

    def _named(self, table: str) -> str:
        from reconcile.gather.stores.mariadb.statements import identifier

        return ".".join(map(identifier, table.split(".")))


def _named(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split("."))


def _fits(text: str, column: Column) -> bool:
    """Decide whether a column can hold a value: any other would end the statement with an error."""
    match column.kind:
        case Kind.INTEGER:
            bits = _RANGES.get(column.type, 63)
            return re.fullmatch(r"-?\d{1,19}", text, re.ASCII) is not None and -(1 << bits) <= int(text) < 1 << bits
        case Kind.NUMERIC:
            return re.fullmatch(r"-?\d{1,100}(\.\d{1,100})?", text, re.ASCII) is not None
        case Kind.UUID:
            return re.fullmatch(UUID, text) is not None
        case Kind.TEXT:
            return is_keepable(text)
        case _:
            return False
