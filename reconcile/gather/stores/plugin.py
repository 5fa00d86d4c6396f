"""Stores of other kinds: what a plug-in has to offer, and how the plug-ins that are installed are found.

A package brings a kind of store by an entry point of the group `reconcile.stores`, named after the scheme of its URLs:
a function that opens a store by its URL. The schema that a store describes and the rows that it reads are Arrow's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Protocol, TypeVar

from reconcile.config.extras import extras_named
from reconcile.errors import ReconcileError
from reconcile.gather.stores.errors import StoreReadError, StoreRefusedError
from reconcile.settings.connections import PluginUrl, plugins

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

T = TypeVar("T")


class RowStore(Protocol):
    """A store that is open. It is opened anew in each process that reads it, and only reads.

    `relation` is what the contract has as its `table` or its `query`; what it means is the plug-in's. A store raises
    StoreUnreachableError, StoreRefusedError or StoreReadError of `reconcile.gather.stores.errors`, whose messages hold
    no password and no value of a row.
    """

    def describe(self, relation: str) -> pa.Schema:
        """Query which columns the rows have, and of which types."""

    def rows(
        self, relation: str, schema: pa.Schema, id_column: str, ids: Sequence[str] | None, cut: str | None
    ) -> Iterator[pa.RecordBatch]:
        """Read all rows, or those whose ids, as text, are among `ids`, with the columns that were described."""

    def cut(self) -> str | None:
        """Take the instant that rows are to be read of; None if the store can only be read as it is now."""

    def close(self) -> None:
        """Close it."""


def open_store(name: str, place: PluginUrl) -> RowStore:
    """Open a store by the plug-in of its URL's scheme."""
    found = plugins().get(place.scheme)
    if found is None:
        raise StoreRefusedError(f"the store {name}: no plug-in for {place.scheme}:// is installed")
    with extras_named(f"the store {name}"):
        opened: Callable[[str], RowStore] = found.load()
    return _explained(name, lambda: opened(place.url.get_secret_value()))


def take_cut(name: str, place: PluginUrl) -> str | None:
    """Take the instant of a store that its rows are to be read of."""
    with closing(open_store(name, place)) as store:
        return _explained(name, store.cut)


def _explained(name: str, ask: Callable[[], T]) -> T:
    """Ask a store; what its plug-in does not name is its own fault, and its words may hold anything."""
    try:
        return ask()
    except ReconcileError:
        raise
    except Exception as error:
        raise StoreReadError(f"the store {name}: its plug-in failed with {type(error).__name__}") from error


def schema_of(name: str, place: PluginUrl, relation: str) -> pa.Schema:
    """Query which columns a relation has."""
    with closing(open_store(name, place)) as store:
        return _explained(name, lambda: store.describe(relation))


def read(
    name: str,
    place: PluginUrl,
    relation: str,
    schema: pa.Schema,
    id_column: str,
    ids: Sequence[str] | None,
    cut: str | None,
) -> Iterator[pa.RecordBatch]:
    """Read rows of a relation."""
    with closing(open_store(name, place)) as store:
        batches = _explained(name, lambda: iter(store.rows(relation, schema, id_column, ids, cut)))
        while (batch := _explained(name, lambda: next(batches, None))) is not None:
            yield batch
