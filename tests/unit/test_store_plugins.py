"""Plug-ins of stores: found by their URLs, and checked by what every store has to do."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pydantic import SecretStr

from reconcile.config.extras import MissingExtraError
from reconcile.files import committed
from reconcile.gather.stores import conformance, plugin
from reconcile.gather.stores.errors import StoreReadError, StoreRefusedError, StoreUnreachableError
from reconcile.settings.connections import JdbcUrl, PluginUrl, Store, plugins

ROWS: list[dict[str, str | None]] = [{"id": "1", "mail": "a@x"}, {"id": "2", "mail": None}, {"id": "ü", "mail": ""}]


class Shelf:
    """A store in memory, whose rows a test may get wrong."""

    def __init__(self, rows: Sequence[dict[str, str | None]] = ROWS) -> None:
        self.held = list(rows)

    def describe(self, relation: str) -> pa.Schema:
        """List the columns."""
        assert relation == "shelf"
        return pa.schema([("id", pa.string()), ("mail", pa.string())])

    def rows(
        self, relation: str, schema: pa.Schema, id_column: str, ids: Sequence[str] | None, cut: str | None
    ) -> Iterator[pa.RecordBatch]:
        """Read them."""
        assert ("shelf", None) == (relation, cut)
        chosen = [row for row in self.held if ids is None or row[id_column] in ids]
        yield pa.RecordBatch.from_pylist(chosen, schema)

    def cut(self) -> str | None:
        """There is no past."""
        return None

    def close(self) -> None:
        """Nothing is open."""


class Forgetful(Shelf):
    """Reads all rows, whichever are asked for."""

    def rows(self, relation: str, schema: Any, id_column: str, ids: Sequence[str] | None, cut: str | None) -> Any:
        """Read them."""
        del ids
        return super().rows(relation, schema, id_column, None, cut)


class Talkative(Shelf):
    """Reads more columns than it described."""

    def rows(self, relation: str, schema: Any, id_column: str, ids: Sequence[str] | None, cut: str | None) -> Any:
        """Read them."""
        for batch in super().rows(relation, schema, id_column, ids, cut):
            yield batch.append_column("more", pa.array(["x"] * batch.num_rows))


class Undated(Shelf):
    """Says that it has a cut, and reads what is there now."""

    def cut(self) -> str | None:
        """Take it."""
        return "yesterday"

    def rows(self, relation: str, schema: Any, id_column: str, ids: Sequence[str] | None, cut: str | None) -> Any:
        """Read them."""
        del cut
        return super().rows(relation, schema, id_column, ids, None)


def shortcomings(store: Shelf, **more: Any) -> list[str]:
    """List what is wrong with a store."""
    return conformance.shortcomings(lambda: store, "shelf", "id", ROWS, **more)


def test_a_right_store_conforms() -> None:
    """Nothing is found."""
    assert [] == shortcomings(Shelf())


@pytest.mark.parametrize(
    ("store", "what"),
    [
        (Forgetful(), "rows of one id"),
        (Talkative(), "rows: a batch has other columns"),
        (Shelf(ROWS[:2]), "rows: expected"),
        (Shelf([*ROWS, ROWS[0]]), "rows: expected"),
    ],
)
def test_what_a_store_does_wrong_is_found(store: Shelf, what: str) -> None:
    """Each wrong store is found, by what it does wrong."""
    assert any(each.startswith(what) for each in shortcomings(store))


def test_a_cut_that_is_none_is_found() -> None:
    """What has changed since must not be seen."""
    store = Undated()
    assert [] != shortcomings(store, change=lambda: store.held.pop())


def test_a_server_that_is_away_is_an_error_of_stores() -> None:
    """A plug-in's own exception says nothing to a person."""

    def away() -> Shelf:
        raise OSError

    def explained() -> Shelf:
        raise StoreUnreachableError("the shelf does not answer")

    assert ["a server that is not there: raises OSError, and no error of stores"] == shortcomings(Shelf(), away=away)
    assert ["a server that is not there: nothing is raised"] == shortcomings(Shelf(), away=lambda: Nothing())
    assert [] == shortcomings(Shelf(), away=explained)


class Nothing(Shelf):
    """Describes anything."""

    def describe(self, relation: str) -> pa.Schema:  # noqa: ARG002
        """List no columns."""
        return pa.schema([])


def test_the_store_of_the_docs_conforms(tmp_path: Path) -> None:
    """The fifty lines of docs/stores.md read a SQLite file."""
    (code,) = re.findall(r"```python\n(import sqlite3.*?)```", committed("docs", "stores.md").read_text("utf-8"), re.S)
    written: dict[str, Any] = {}
    exec(code, written)  # noqa: S102 - it is our own
    file = tmp_path / "rows.db"
    with sqlite3.connect(file) as database:
        database.execute("create table profile (id text, mail text)")
        database.executemany("insert into profile values (:id, :mail)", ROWS)
    database.close()
    opened: Callable[[], plugin.RowStore] = lambda: written["open_sqlite"](f"sqlite-file://{file}")  # noqa: E731
    assert [] == conformance.shortcomings(opened, "profile", "id", ROWS)
    with pytest.raises(StoreUnreachableError):
        written["open_sqlite"]("sqlite-file:///nowhere/rows.db")
    assert 60 > len([line for line in code.splitlines() if line])


def test_the_scheme_of_a_url_chooses_the_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the URL is a reference."""
    monkeypatch.setenv("CACHE", "redis://:secret@127.0.0.1:1/0")
    resolved = Store.model_validate({"url": "env:CACHE"}).resolve()
    assert PluginUrl(SecretStr("redis://:secret@127.0.0.1:1/0"), "redis") == resolved
    assert "secret" not in repr(resolved)
    monkeypatch.setenv("CACHE", "jdbc:h2:mem:x")
    assert isinstance(Store.model_validate({"url": "env:CACHE"}).resolve(), JdbcUrl)


@pytest.mark.parametrize("url", ["redis://:secret@127.0.0.1/0", "mongo://127.0.0.1/0"])
def test_what_a_url_must_not_be(url: str) -> None:
    """A password stands in no file, and a scheme needs a plug-in."""
    with pytest.raises(ValueError, match=r"holds a password|is none of"):
        Store.model_validate({"url": url})


class Entry:
    """A plug-in that is installed."""

    def __init__(self, opened: Callable[[str], Any]) -> None:
        self._opened = opened

    def load(self) -> Callable[[str], Any]:
        """Import it."""
        return self._opened


PLACE = PluginUrl(SecretStr("shelf://here"), "shelf")


def installed(monkeypatch: pytest.MonkeyPatch, opened: Callable[[str], Any]) -> None:
    """Install a plug-in."""
    monkeypatch.setattr(plugin, "plugins", lambda: {"shelf": Entry(opened)})


def test_a_plug_in_that_fails_is_named_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says may hold anything; an error of stores is raised as it is."""

    def fail(url: str) -> Shelf:
        raise LookupError(f"somebody's mail, {url}")

    def refuse(_: str) -> Shelf:
        raise StoreRefusedError("no right to read it")

    installed(monkeypatch, fail)
    with pytest.raises(StoreReadError, match=r"^the store shelf: its plug-in failed with LookupError$"):
        plugin.schema_of("shelf", PLACE, "shelf")
    installed(monkeypatch, refuse)
    with pytest.raises(StoreRefusedError, match="no right"):
        plugin.take_cut("shelf", PLACE)


def test_a_plug_in_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither it nor what it needs."""
    with pytest.raises(StoreRefusedError, match="no plug-in for shelf://"):
        plugin.open_store("shelf", PLACE)

    def missing(_: str) -> Shelf:
        raise AssertionError("it is not imported")

    class Lacking(Entry):
        def load(self) -> Callable[[str], Any]:
            raise ImportError("no redis", name="redis")

    monkeypatch.setattr(plugin, "plugins", lambda: {"shelf": Lacking(missing)})
    with pytest.raises(MissingExtraError, match=r"reconcile-kafka\[redis\]"):
        plugin.open_store("shelf", PLACE)


def test_redis_comes_with_the_package() -> None:
    """Its two schemes are registered."""
    assert {"redis", "rediss"} <= plugins().keys()
