"""A session with a store: what it can be asked, and how it fails."""

from __future__ import annotations

from typing import Any

import psycopg2
import pytest
from psycopg2 import sql

from reconcile.contract.model import Ledger
from reconcile.domain.canonical import Layout, agreed_layout
from reconcile.gather.evidence import ledger
from reconcile.gather.stores import digest
from reconcile.gather.stores.digest import DigestReading, Mode, Side
from reconcile.gather.stores.errors import SnapshotLostError, StoreUnreachableError, running
from reconcile.gather.stores.session import StoreSession, storable_texts
from reconcile.gather.stores.usage import Readers, Usage
from reconcile.settings.connections import StoreLimits


class LostDatabase:
    """A connection whose server is gone."""

    def cursor(self) -> Any:
        """Fail as psycopg2 does."""
        raise psycopg2.OperationalError("server closed the connection unexpectedly")

    def rollback(self) -> None:
        """Fail as psycopg2 does."""
        raise psycopg2.InterfaceError("connection already closed")


@pytest.mark.parametrize(("in_snapshot", "kind"), [(False, StoreUnreachableError), (True, SnapshotLostError)])
def test_a_store_that_is_lost_while_a_table_is_looked_at_is_named(in_snapshot: bool, kind: type[Exception]) -> None:
    """As it is while rows are read."""
    session = StoreSession("login-db", LostDatabase(), StoreLimits(), Usage("login-db", "login", Readers(1)))  # type: ignore[arg-type]
    session._in_snapshot = in_snapshot
    with pytest.raises(kind, match="login-db was lost"):
        session.types(sql.SQL("select 1"))


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("22P02", "invalid text representation (SQLSTATE 22P02)"),
        ("23505", "unique violation (SQLSTATE 23505)"),
        ("54001", "stack depth limit exceeded: 49170"),
    ],
)
def test_what_rows_hold_is_not_told(code: str, told: str) -> None:
    """Messages about a row's values quote them."""

    class Refused(psycopg2.DataError):
        pgcode = code

    error = running("user-db", Refused("stack depth limit exceeded: 49170"), in_snapshot=False)
    assert f"the store user-db refuses a statement: {told}" == str(error)


def test_a_snapshot_that_is_gone_can_be_let_go() -> None:
    """There is nothing left to do."""
    StoreSession("login-db", LostDatabase(), StoreLimits(), Usage("login-db", "login", Readers(1))).end_snapshot()  # type: ignore[arg-type]


def test_no_postgres_is_asked_for_what_it_cannot_hold() -> None:
    """A key or a header may hold NUL; no text of Postgres does, and the driver refuses to write it."""
    assert ["a", ""] == storable_texts(["a", "b\0", "", "\0"])
    types: Layout[str] = Layout(("text",), None, ("text",))
    reading = DigestReading(Side(("id",), ("x",), table="t"), types, agreed_layout(types, types), Mode.FULL)
    assert "\\x00" not in repr(digest.rows(reading, ids=["a", "b\0"]))
    asked = ledger._ways(Ledger(table="done", event_id="event"), "text", [("b\0", "c\0", 0, 0), ("d", "e", 0, 1)])
    assert "\\x00" not in repr(asked)


def test_a_column_of_text_is_asked_for_each_spelling_of_a_uuid() -> None:
    """It is looked up as it stands there; any other id has one spelling."""
    uuid = "3F2504E0-4f89-11d3-9A0C-0305E82C3301"
    asked = repr(ledger._ways(Ledger(table="done", event_id="event"), "text", [("a", uuid, 0, 0), ("b", "E-1", 0, 1)]))
    assert all(each in asked for each in (uuid, uuid.lower(), uuid.upper(), "E-1"))
    assert "e-1" not in asked
