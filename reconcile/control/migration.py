"""Bring the control store's schema up to this program's: the files of sql/control, in their order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import Connection, func, insert, inspect, select

from reconcile.control.database import Database, now
from reconcile.control.errors import NewerSchemaError, OlderSchemaError
from reconcile.control.tables import schema_migration
from reconcile.files import committed


def migrations() -> list[Path]:
    """List the migrations that this program knows, in their order."""
    return sorted(committed("sql", "control").glob("[0-9]*.sql"))


def migrate(database: Database, files: Sequence[Path] | None = None) -> None:
    """Apply the migrations that are not applied yet, each in one transaction, one process at a time.

    Raises NewerSchemaError if more of them are applied than this program knows.
    """
    known = migrations() if files is None else files
    with database.reading() as connection:
        missing = known[_applied(database, connection, known) :]
    for _ in missing:
        with database.writing() as connection:
            database.lock(connection, "migration")
            applied = _applied(database, connection, known)
            if applied == len(known):
                return
            _apply(connection, applied + 1, known[applied])


def require_current(database: Database) -> None:
    """Raise OlderSchemaError if a migration is not applied yet, NewerSchemaError if one is not known."""
    known = migrations()
    with database.reading() as connection:
        applied = _applied(database, connection, known)
    if applied < len(known):
        raise OlderSchemaError(
            f"the control store {database.place} has the schema {applied}, and this program reads {len(known)}:"
            " the next `reconcile run` brings it up to date"
        )


def _applied(database: Database, connection: Connection, known: Sequence[Path]) -> int:
    if not inspect(connection).has_table(schema_migration.name):
        return 0
    applied: int = connection.execute(select(func.coalesce(func.max(schema_migration.c.number), 0))).scalar_one()
    if applied > len(known):
        raise NewerSchemaError(
            f"the control store {database.place} has the schema {applied}, and this program knows {len(known)}:"
            " a newer reconcile uses it; install that one here too"
        )
    return applied


def _apply(connection: Connection, number: int, file: Path) -> None:
    for statement in _statements(file.read_text("utf-8")):
        connection.exec_driver_sql(statement)
    connection.execute(insert(schema_migration).values(number=number, name=file.stem, applied_at=now()))


def _statements(text: str) -> Iterator[str]:
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
