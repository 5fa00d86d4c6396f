"""Whether a contract's columns and SQL fit its stores, each named by its path, and the types that they give."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2
from psycopg2 import sql

from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import KeyPath, path_text, quoted
from reconcile.contract.model import Consumer, Contract, StashTable
from reconcile.contract.terms import Rows
from reconcile.domain.canonical import Layout
from reconcile.errors import Problem, ReconcileError, RefusedError
from reconcile.gather.stores import errors
from reconcile.gather.stores.contract_sql import require_whole
from reconcile.gather.stores.session import StoreSession

if TYPE_CHECKING:
    from reconcile.gather.stores.digest import Side

_IDENTIFIER = re.compile(r'(?:(?:"(?:[^"]|"")*"|[\w$]+)\s*\.\s*)*("(?:[^"]|"")*"|[\w$]+)')
_NO_COLUMN, _NO_TABLE = "42703", "42P01"
_OUR_FAULT = ("42", "22", "0A", "21", "2F", "38", "39", "P0", "3F")  # classes of errors that are in the text


@dataclass(frozen=True)
class Mismatches:
    """What a contract says and its stores do not have, gathered so that all of it is shown at once."""

    file: Path
    problems: list[Problem] = field(default_factory=list)

    def add(self, path: KeyPath, message: str) -> None:
        """Note one."""
        self.problems.append(Problem(path_text(path), message))

    def at(self, path: KeyPath, error: ReconcileError) -> ReconcileError:
        """Build an error that says which place of the contract it is about."""
        return type(error)(f"{self.file}: {path_text(path)}: {error}")

    def require_none(self) -> None:
        """Raise ContractMismatchError if there are any."""
        if self.problems:
            raise errors.ContractMismatchError(self.file, self.problems)


@dataclass(frozen=True)
class Part:
    """What a contract says over the rows of a store: a column's name, or SQL."""

    path: KeyPath
    sql: str = ""
    column: str | None = None  # the name, where the contract names a column
    test: bool = False


RelationOf = Callable[[KeyPath, Rows, Mismatches], "Relation"]
"""Builds the relation of a table or a query in one kind of store."""


def of_postgres(session: StoreSession) -> RelationOf:
    """Build relations of a Postgres."""
    return lambda here, rows, found: PostgresRelation(here, rows, found, session)


def source_types(relation_of: RelationOf, contract: Contract, found: Mismatches) -> Layout[str] | None:
    """Check all that the contract says of its source; return the types of what is compared, or add what is wrong."""
    source = contract.source
    parts, fields = source_parts(contract)
    types = relation_of(("source",), source, found).types(parts, fields)
    if source.outbox is not None:
        outbox = source.outbox
        here: KeyPath = ("source", "outbox")
        outbox_parts = [
            _column((*here, "id"), outbox.id),
            Part((*here, "published"), outbox.published, test=True),
            *([_column((*here, "at"), outbox.at)] if outbox.at else []),
        ]
        _table(relation_of, here, outbox.table, outbox_parts, found)
    return types


def consumer_types(relation_of: RelationOf, contract: Contract, index: int, found: Mismatches) -> Layout[str] | None:
    """Check all that the contract says of a consumer's store; return the types, or add what is wrong."""
    consumer: Consumer = contract.consumers[index]
    here: KeyPath = ("consumers", index)
    types = relation_of(here, consumer, found).types(*consumer_parts(contract, index))
    if (ledger := consumer.failure.ledger) is not None:
        path = (*here, "failure", "ledger")
        named = {"event_id": ledger.event_id, "partition": ledger.partition, "offset": ledger.offset, "at": ledger.at}
        _table(relation_of, path, ledger.table, [_column((*path, k), v) for k, v in named.items() if v], found)
    if isinstance(stash := consumer.failure.stash, StashTable):
        path = (*here, "failure", "stash")
        named = {"partition": stash.partition, "offset": stash.offset, "event_id": stash.event_id, "at": stash.at}
        parts = [_column((*path, "id"), name) for name in stash.id]
        parts += [_column((*path, k), v) for k, v in named.items() if v]
        if stash.resolved:
            parts.append(Part((*path, "resolved"), stash.resolved, test=True))
        _table(relation_of, path, stash.table, parts, found)
    return types


def source_parts(contract: Contract) -> tuple[list[Part], list[Part]]:
    """List what is said over the source's rows: of each row, and of the fields of all consumers in their order."""
    source = contract.source
    parts = list(_identity(source, ("source",)))
    if source.updated_at:
        parts.append(_column(("source", "updated_at"), source.updated_at))
    if source.deleted:
        parts.append(Part(("source", "deleted"), source.deleted, test=True))
    parts += [Part(("topic", "value", name), sql) for name, sql in (contract.topic.value or {}).items()]
    fields = [
        Part(("consumers", index, "fields", number, "source"), field.source)
        for index, consumer in enumerate(contract.consumers)
        for number, field in enumerate(consumer.fields)
    ]
    return parts, fields


def consumer_parts(contract: Contract, index: int) -> tuple[list[Part], list[Part]]:
    """List what is said over a copy's rows: of each row, and of the fields."""
    consumer, here = contract.consumers[index], ("consumers", index)
    fields = [Part((*here, "fields", n, "consumer"), field.consumer) for n, field in enumerate(consumer.fields)]
    return list(_identity(consumer, here)), fields


def _identity(rows: Rows, here: KeyPath) -> Iterator[Part]:
    for name in rows.id:
        yield _column((*here, "id"), name)
    if rows.version_column:
        yield _column((*here, "version"), rows.version_column)


def relation(rows: Rows | Side) -> sql.Composable:
    """Build what stands after `from` for a side of a contract; raise RefusedError for a query that breaks out of it."""
    if rows.table is not None:
        return sql.Identifier(*rows.table.split("."))
    return sql.SQL("{} as reconcile_rows").format(require_whole(rows.query or ""))


def _column(path: KeyPath, name: str) -> Part:
    return Part(path, column=name)


def _table(
    relation_of: RelationOf, here: KeyPath, table: str, parts: list[Part], found: Mismatches
) -> Layout[str] | None:
    rows = Rows.model_construct(table=table, query=None, id=(), version=None)
    return relation_of(here, rows, found).types(parts, [])


class Relation(ABC):
    """One table or query of a store, and the expressions over it."""

    def __init__(self, here: KeyPath, rows: Rows, found: Mismatches) -> None:
        self._rows = rows
        self._here = here
        self._found = found
        self._columns: list[str] = []

    def types(self, parts: list[Part], fields: list[Part]) -> Layout[str] | None:
        """Try each expression by itself, so that every wrong one is shown; then all at once."""
        before = len(self._found.problems)
        path = (*self._here, "table" if self._rows.table is not None else "query")
        if not self._whole(path, self._from):
            return None
        named = self._described(Part(path), ["*"])
        if named is None:
            return None
        self._columns = [name for name, _ in named]
        described, texts = [], []
        for part in (*parts, *fields):
            text = self._whole(part.path, lambda part=part: self._text(part))  # type: ignore[misc]
            if text is not None:
                texts.append(text)
                described.append(self._described(part, [text]))
        if len(self._found.problems) == before and texts:
            self._described(Part(self._here), texts)
        if len(self._found.problems) > before:
            return None
        forms = [form for each in described if each for _, form in each]
        ids = len(self._rows.id)
        version = forms[ids] if self._rows.version_column else None
        return Layout(tuple(forms[:ids]), version, tuple(forms[len(forms) - len(fields) :]))

    @abstractmethod
    def _from(self) -> Any:
        """Build what stands after `from`; raise RefusedError for a query that breaks out of it."""

    @abstractmethod
    def _text(self, part: Part) -> Any:
        """Build a column or an expression; raise RefusedError for one that breaks out of its place."""

    @abstractmethod
    def _described(self, part: Part, columns: Sequence[Any]) -> list[tuple[str, str]] | None:
        """Query names and types of columns; add what is wrong with them and return None."""

    def _whole(self, path: KeyPath, compose: Callable[[], Any]) -> Any:
        try:
            return compose()
        except RefusedError as error:
            self._found.add(path, str(error))
            return None

    def _unknown_column(self, name: str) -> str:
        owner = self._rows.table or "the query"
        hint = suggestion(name, self._columns) or f"; there are {', '.join(self._columns)}"
        return f"no column {quoted(name)} in {owner}{hint}"


class PostgresRelation(Relation):
    """One of a Postgres."""

    def __init__(self, here: KeyPath, rows: Rows, found: Mismatches, session: StoreSession) -> None:
        super().__init__(here, rows, found)
        self._session = session

    def _from(self) -> sql.Composable:
        return relation(self._rows)

    def _text(self, part: Part) -> sql.Composable:
        if part.column is not None:
            return sql.Identifier(part.column)
        return sql.SQL("{} is true").format(require_whole(part.sql)) if part.test else require_whole(part.sql)

    def _described(self, part: Part, columns: Sequence[Any]) -> list[tuple[str, str]] | None:
        listed = sql.SQL(", ").join(sql.SQL("*") if each == "*" else each for each in columns)
        statement = sql.SQL("select {} from {} limit 0").format(listed, self._from())
        try:
            return self._session.described(statement)
        except psycopg2.Error as error:
            if error.pgcode is None or error.pgcode[:2] not in _OUR_FAULT or error.pgcode in ("42501", "25006"):
                raise self._found.at(part.path, errors.running(self._session.name, error, False)) from None
            self._found.add(part.path, self._message(part, self._session.text(statement), error))
            return None

    def _message(self, part: Part, text: str, error: psycopg2.Error) -> str:
        name = part.column or _named_at(text, error)
        if name and error.pgcode == _NO_COLUMN:
            # What is wrong within the query itself is of tables that we do not know.
            return self._unknown_column(name) if self._columns else errors.primary(error)
        if name and error.pgcode == _NO_TABLE:
            return f"no table {quoted(name)} in {self._session.name}{suggestion(name, self._tables())}"
        return errors.primary(error)

    def _tables(self) -> Iterable[str]:
        found = self._session.rows(
            "select case when pg_table_is_visible(c.oid) then relname else nspname || '.' || relname end"
            " from pg_class c join pg_namespace n on n.oid = relnamespace"
            " where relkind in ('r', 'v', 'm', 'p', 'f') and nspname not in ('pg_catalog', 'information_schema')"
        )
        return [name for (name,) in found]


def _named_at(text: str, error: psycopg2.Error) -> str | None:
    """Find the name that the server points at; its message is in a language of its own choice."""
    position = error.diag.statement_position
    match = _IDENTIFIER.match(text, int(position) - 1) if position else None
    if match is None:
        return None
    whole = match[0]
    plain = match[1][1:-1].replace('""', '"') if match[1][0] == '"' else match[1].lower()
    return plain if error.pgcode == _NO_COLUMN else whole.replace('"', "")
