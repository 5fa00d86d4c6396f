"""Whether a contract's columns and SQL fit a MariaDB."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pymysql

from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import KeyPath, quoted
from reconcile.contract.terms import Rows
from reconcile.gather.stores.contract_check import Mismatches, Part, Relation, RelationOf
from reconcile.gather.stores.mariadb import errors, statements
from reconcile.gather.stores.mariadb.session import MariaSession

_WITH_SNAPSHOTS = ("InnoDB", "ROCKSDB")


def of_mariadb(session: MariaSession) -> RelationOf:
    """Build relations of a MariaDB."""
    return lambda here, rows, found: MariaRelation(here, rows, found, session)


class MariaRelation(Relation):
    """One of a MariaDB."""

    def __init__(self, here: KeyPath, rows: Rows, found: Mismatches, session: MariaSession) -> None:
        super().__init__(here, rows, found)
        self._session = session

    def _from(self) -> str:
        return statements.relation(self._rows)

    def _text(self, part: Part) -> str:
        if part.column is not None:
            return statements.identifier(part.column)
        whole = statements.require_whole(part.sql)
        return f"{whole} is true" if part.test else whole

    def _described(self, part: Part, columns: Sequence[str]) -> list[tuple[str, str]] | None:
        statement = f"select {', '.join(columns)} from {self._from()} limit 0"
        try:
            found = self._session.described(statement)
        except pymysql.Error as error:
            if not errors.is_of_the_text(error):
                raise self._found.at(part.path, errors.running(self._session.name, error, False)) from None
            self._found.add(part.path, self._message(part, error))
            return None
        if columns == ["*"] and (engine := self._engine()) is not None:
            self._found.add(part.path, engine)
        return [(each.name, each.type) for each in found]

    def _engine(self) -> str | None:
        """Say which engine of a table has no snapshots, and what to do."""
        table = self._rows.table
        if table is None:
            return None
        engine = self._session.engine(table)
        if engine is None or engine in _WITH_SNAPSHOTS:
            return None
        return f"{table} is a table of the engine {engine}, which has no snapshots: make it InnoDB, or read it by jdbc:"

    def _message(self, part: Part, error: pymysql.Error) -> str:
        said = errors.said(error)
        named = re.search(r"'([^']+)'", said)
        name = part.column or (named[1].rpartition(".")[2] if named else None)
        if name and errors.number(error) == errors.NO_COLUMN and self._columns:
            return self._unknown_column(name)
        if name and errors.number(error) == errors.NO_TABLE:
            return f"no table {quoted(name)} in {self._session.name}{suggestion(name, self._tables())}"
        return said

    def _tables(self) -> list[str]:
        found = self._session.rows("select table_name from information_schema.tables where table_schema = database()")
        return [name for (name,) in found]
