"""What any plug-in's store has to do: the author of one puts rows into it, and has it checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from reconcile.errors import ReconcileError
from reconcile.gather.stores.plugin import RowStore

Opened = Callable[[], RowStore]
Row = Mapping[str, str | None]
_NOBODY = "no such id"


def shortcomings(
    opened: Opened,
    relation: str,
    id_column: str,
    rows: Sequence[Row],
    *,
    away: Opened | None = None,
    change: Callable[[], None] | None = None,
) -> list[str]:
    """List what a store does wrong that holds just these rows, values as text; at least two, each id once.

    `away` opens one whose server is not there; `change` changes a row, in a store that has a cut.
    """
    with closing(opened()) as store:
        schema = store.describe(relation)
    if missing := {name for row in rows for name in row} - set(schema.names):
        return [f"describe: lacks the columns {sorted(missing)}"]
    check = _Check(opened, relation, schema, id_column, {str(row[id_column]): row for row in rows})
    return [*check.read(), *check.chosen(), *_unreachable(away), *check.kept(change)]


@dataclass(frozen=True)
class _Check:
    opened: Opened
    relation: str
    schema: pa.Schema
    id_column: str
    expected: Mapping[str, Row]

    def read(self) -> Iterator[str]:
        """Look at all rows, and at the batches in which they come."""
        batches = self._batches(None, self._cut())
        if any(not batch.schema.equals(self.schema) for batch in batches):
            yield "rows: a batch has other columns or types than were described"
        yield from self._differing("rows", batches, self.expected)

    def chosen(self) -> Iterator[str]:
        """Look at rows that are chosen by their ids."""
        first, *_ = self.expected
        for ids, name in (
            ([first], "one id"),
            ([*self.expected, _NOBODY], "all ids, and one that it has not"),
            ([_NOBODY], "an id that it has not"),
            ([], "no ids"),
        ):
            wanted = {each: row for each, row in self.expected.items() if each in ids}
            yield from self._differing(f"rows of {name}", self._batches(ids, self._cut()), wanted)

    def kept(self, change: Callable[[], None] | None) -> Iterator[str]:
        """Look at the rows of a cut, after one has changed."""
        if change is None:
            return
        cut = self._cut()
        if cut is None:
            yield "cut: there is none, so that nothing can be read as it was"
            return
        change()
        yield from self._differing("rows of a cut", self._batches(None, cut), self.expected)
        if not [*self._differing("", self._batches(None, self._cut()), self.expected)]:
            yield "cut: a new one does not show what has changed"

    def _cut(self) -> str | None:
        with closing(self.opened()) as store:
            return store.cut()

    def _batches(self, ids: Sequence[str] | None, cut: str | None) -> list[pa.RecordBatch]:
        """Read rows as another process does, with a store of its own."""
        with closing(self.opened()) as store:
            return list(store.rows(self.relation, self.schema, self.id_column, ids, cut))

    def _differing(self, what: str, batches: Sequence[pa.RecordBatch], wanted: Mapping[str, Row]) -> Iterator[str]:
        names = sorted({name for row in self.expected.values() for name in row})
        found = [row for batch in batches for row in _texts(batch, names)]
        expected = [[row.get(name) for name in names] for row in wanted.values()]
        if sorted(found, key=str) != sorted(expected, key=str):
            yield f"{what}: expected {expected} of {names}, found {found}"


def _texts(batch: pa.RecordBatch, names: Sequence[str]) -> list[list[str | None]]:
    columns = [pc.cast(batch.column(name), pa.string()).to_pylist() for name in names]
    return [list(row) for row in zip(*columns, strict=True)]


def _unreachable(away: Opened | None) -> Iterator[str]:
    if away is None:
        return
    try:
        with closing(away()) as store:
            store.describe("anything")
    except ReconcileError:
        return
    except Exception as error:  # noqa: BLE001 - whatever a plug-in raises
        yield f"a server that is not there: raises {type(error).__name__}, and no error of stores"
        return
    yield "a server that is not there: nothing is raised"
