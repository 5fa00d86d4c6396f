"""What the source says of an aggregate as its events would say it: `topic.value`, evaluated where the rows are."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from psycopg2 import sql

from reconcile.domain.canonical import CanonicalType, Kind, Layout, is_whole, version_number
from reconcile.domain.correction import content_digest
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.stores import canonical_columns, digest, row_columns, spark_store
from reconcile.gather.stores.contract_sql import require_whole
from reconcile.gather.stores.digest import Side
from reconcile.gather.stores.errors import StoreRefusedError, condition
from reconcile.gather.stores.link_rows import PostgresRows, SparkRows
from reconcile.gather.stores.session import StoreSession, open_session
from reconcile.gather.stores.spark_store import SparkStore
from reconcile.repair.json_values import dumps, loads
from reconcile.settings.connections import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AT_ONCE = 2000
_TEXT = CanonicalType(Kind.TEXT)
_OF_THE_TEXT = "42"  # the class of what is wrong with a statement, whatever the rows say


@dataclass(frozen=True)
class SourceRow:
    """One row of the source."""

    id: str
    version: int | None
    gone: bool
    """Whether the contract counts it as deleted."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """By the entries of topic.value, as JSON."""
    numbered: bool = True
    """Whether its version is a plain number, and not an instant."""
    too_deep: bool = False
    """Whether a value of it is nested deeper than JSON can be read; it has no values then."""
    key: bytes = field(default=b"", repr=False, compare=False)
    """The installation's key where some of its values are sensitive: then its digest says nothing without that."""

    @property
    def basis(self) -> str:
        """The digest of what it says."""
        said = content_digest([self.id, self.version, dumps(dict(self.values))])
        return hmac.digest(self.key, said.encode(), "sha256").hex() if self.key else said


def current_row(rows: Iterable[SourceRow]) -> SourceRow | None:
    """Choose the row that an aggregate has now: one that counts as deleted only where there is no other."""
    return min(rows, key=lambda each: each.gone, default=None)


@dataclass(frozen=True)
class SourceValues:
    """Reads the source's rows by their ids."""

    reader: LinkReader
    key: bytes = field(default=b"", repr=False)
    """The installation's key, where the contract has sensitive fields."""

    def of(self, ids: Iterable[str]) -> dict[str, list[SourceRow]]:
        """Read the rows of each id that has any."""
        found: dict[str, list[SourceRow]] = {}
        wanted = sorted(set(ids))
        for start in range(0, len(wanted), _AT_ONCE):
            for id_text, version, *texts in self._rows(wanted[start : start + _AT_ONCE]):
                assert id_text is not None
                found.setdefault(id_text, []).append(self._row(id_text, version, texts))
        return found

    def _row(self, id_text: str, version: str | None, texts: Sequence[str | None]) -> SourceRow:
        gone, *values = texts
        try:
            read = (None if each is None else loads(each)[0] for each in values)
            said, too_deep = dict(zip(self._entries, read, strict=True)), False
        except RecursionError:
            said, too_deep = {}, True
        numbered = version is None or is_whole(version)
        is_gone = gone is not None and bool(loads(gone)[0])
        return SourceRow(id_text, version_number(version), is_gone, said, numbered, too_deep, self.key)

    def _rows(self, ids: Sequence[str]) -> Iterable[Sequence[str | None]]:
        rows = self.reader.rows[0]
        if isinstance(rows, SparkRows):
            return self._by_spark(ids)
        if not isinstance(rows, PostgresRows):
            return self._of_mariadb(ids)
        # In a session of its own: what a value makes of its transaction must not end the run's snapshot.
        with open_session(rows.store.name, rows.store.url, rows.store.limits) as session:
            try:
                return _read(session, rows, self._side(self._texts), ids)
            except StoreRefusedError as error:
                if error.code is None or error.code.startswith(_OF_THE_TEXT):
                    raise StoreRefusedError(f"{error}; see topic.value") from None
                where = self._refused_entry(session, rows, ids)
                raise StoreRefusedError(
                    f"the store {rows.store.name} refuses what {where} gives for a row: {condition(error.code)}"
                ) from None

    def _refused_entry(self, session: StoreSession, rows: PostgresRows, ids: Sequence[str]) -> str:
        """Find the expression that the store refuses; what it says of it holds the row's values."""
        for name, text in zip(("source.deleted", *self._entries), self._texts, strict=True):
            try:
                _read(session, rows, self._side((text,)), ids)
            except StoreRefusedError:
                return name if name == "source.deleted" else f"topic.value.{name}"
        return "topic.value"

    def _of_mariadb(self, ids: Sequence[str]) -> Iterable[Sequence[str | None]]:
        from reconcile.gather.stores.mariadb.rows import MariaRows

        rows = self.reader.rows[0]
        assert isinstance(rows, MariaRows)
        try:
            return rows.values(self._expressions, ids)
        except StoreRefusedError as error:
            raise StoreRefusedError(f"{error}; see topic.value") from None

    def _by_spark(self, ids: Sequence[str]) -> Iterable[Sequence[str | None]]:
        from pyspark.sql import functions as f

        with self.reader.reading():
            frame = self._frame
            wanted = self.reader.spark.createDataFrame([(each,) for each in ids], f"{row_columns.ID} string")
            return [tuple(row) for row in frame.join(f.broadcast(wanted), row_columns.ID, "left_semi").collect()]

    @cached_property
    def _frame(self) -> DataFrame:
        from pyspark.sql import functions as f

        reader, source = self.reader, self.reader.contract.source
        side = self._side(self._expressions)
        names = spark_store.columns(side)
        connection = reader.settings.connection(source.store)
        address = connection.resolve() if isinstance(connection, Store) else connection
        plain = SparkStore.of(source.store, address).frame(reader.spark, side)
        written = plain.withColumns({name: f.to_json(f.array(name)) for name in names.fields})
        form = Layout(reader.rows[0].form.id, None, (_TEXT,) * len(names.fields))
        return canonical_columns.rows(written, names, form)

    def _side(self, texts: tuple[str, ...]) -> Side:
        source = self.reader.contract.source
        return Side(source.id, texts, source.table, source.query, source.version_column)

    @property
    def _texts(self) -> tuple[str, ...]:
        # An array takes a value of any type, also one that has none yet, such as 'basic'.
        return tuple(f"json_build_array{require_whole(each).string}::text" for each in self._expressions)

    @property
    def _entries(self) -> tuple[str, ...]:
        return tuple(self.reader.contract.topic.value or ())

    @property
    def _expressions(self) -> tuple[str, ...]:
        """Whether the row counts as deleted, and the entries' SQL."""
        contract = self.reader.contract
        deleted = contract.source.deleted or "1 = 0"
        return f"case when (\n{deleted}\n) then 1 else 0 end", *(contract.topic.value or {}).values()


def _read(session: StoreSession, rows: PostgresRows, side: Side, ids: Sequence[str]) -> list[tuple[Any, ...]]:
    reading, texts = rows.reading, len(side.fields)
    types = Layout(reading.types.id, reading.types.version, ("text",) * texts)
    form = Layout(reading.form.id, None, (_TEXT,) * texts)
    session.import_snapshot(rows.store.snapshot)
    session.run(sql.SQL(digest.FORMATS))
    full = replace(reading, side=side, types=types, form=form, mode=digest.Mode.FULL)
    return session.rows(digest.rows(full, ids=ids))
