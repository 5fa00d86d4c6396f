"""What goes wrong with a store, of Postgres by its SQLSTATE, in terms of what a person can do."""

from __future__ import annotations

import re

import psycopg2
from psycopg2 import errorcodes

from reconcile.errors import InvalidFileError, ReconcileError, RefusedError, UnreachableError
from reconcile.settings import urls

_AGAIN = "start the run again"
_HOW_TO_GRANT = "`reconcile contract grants` prints all that is needed"
TOO_LONG = "raise `statement_timeout` of its connection, add an index, or read less"
ROW_SECURITY = "query would be affected by row-level security policy"
_OF_ROWS = ("22", "23", "P0")  # the classes of errors whose messages quote what rows hold


class StoreUnreachableError(UnreachableError):
    """Raised when a database does not answer: see to it that it is up and that the address is right; try again."""


class StoreRefusedError(RefusedError):
    """Raised when a database refuses the account, or what it may read: correct the connection, or grant the right.

    `code` is the SQLSTATE of a statement that it does not take.
    """

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class RowSecurityError(StoreRefusedError):
    """Raised when policies would hide rows of a table from the account: let it see all of them."""


class NoTableError(StoreRefusedError):
    """Raised when a lake has no such table: correct the name."""


class NoSnapshotError(StoreRefusedError):
    """Raised when a table of a lake has no such snapshot, or none yet: name one that it has, or wait for a write."""


class ContractMismatchError(InvalidFileError):
    """Raised when a contract names what its stores do not have: edit the contract; every mismatch is listed."""


class StatementTimeoutError(UnreachableError):
    """Raised when a database takes too long over one statement: let it do less, or give it more time."""


class StatementCancelledError(UnreachableError):
    """Raised when somebody has ended a statement of ours: ask who runs the database, and run again."""


class StoreBusyError(UnreachableError):
    """Raised when a database is busier than we may add to, for longer than we may wait: run at a quieter time."""


class SnapshotLostError(UnreachableError):
    """Raised when a snapshot is gone before all was read: what was read of it is no longer one instant; run again."""


class StoreReadError(UnreachableError):
    """Raised when Spark could not read a store: what it said is in the message; try again."""


def connecting(store: str, error: psycopg2.Error) -> StoreUnreachableError | StoreRefusedError:
    """Build the error for a connection that was not made."""
    said = _one_line(error)
    if (what_to_do := urls.to_correct(said)) is None:
        return StoreUnreachableError(f"the store {store} cannot be reached: {said}. See that it is up, and try again")
    return StoreRefusedError(f"the store {store} refuses us: {said}. {what_to_do}")


def running(store: str, error: psycopg2.Error, in_snapshot: bool) -> ReconcileError:
    """Build the error for a statement that failed for a reason that lies outside of its text."""
    code, said = error.pgcode, _one_line(error)
    if code == "42501" and (error.diag.source_function == "check_enable_rls" or ROW_SECURITY in said):
        return RowSecurityError(f"the store {store}: {row_security(said)}")
    if code == "42501":
        return StoreRefusedError(
            f"the store {store}: {said}; grant select on it to the account that we use; {_HOW_TO_GRANT}"
        )
    if code == "25006":
        return StoreRefusedError(f"the store {store}: {said}; contracts only read: take out what writes")
    if code == "57014" and in_snapshot and "recovery" in said:
        return SnapshotLostError(f"the replica {store} ended our snapshot: {said}; read the primary, or {_AGAIN}")
    if code == "57014" and "user request" in said:
        return StatementCancelledError(f"somebody ended a statement of ours in {store}: {said}; {_AGAIN}")
    if code == "57014":
        return StatementTimeoutError(f"the store {store} took too long: {said}; {TOO_LONG}")
    if code == "40001":
        return SnapshotLostError(f"the replica {store} ended our snapshot: {said}; read the primary, or {_AGAIN}")
    if code in ("22023", "42704") and "snapshot" in said:
        return SnapshotLostError(f"the snapshot of {store} is gone: {said}; {_AGAIN}")
    if is_lost(error):
        if in_snapshot:
            return SnapshotLostError(f"the connection to {store} was lost, and its snapshot with it: {said}; {_AGAIN}")
        return StoreUnreachableError(f"the connection to {store} was lost: {said}; see that it is up, and {_AGAIN}")
    # What a function says, it may say of a row.
    told = code is None or not (code.startswith(_OF_ROWS) or error.diag.context)
    safe = said if told else condition(code or "")
    return StoreRefusedError(f"the store {store} refuses a statement: {safe}", code)


def row_security(said: str) -> str:
    """Build what is wrong with a table whose policies the account is subject to, and what to do about it."""
    name = re.search(r'"(.+)"', said)
    of = said if name is None else f"the table {name[1]}"
    return (
        f"the reader is under row-level security: {of} would show it some of its rows only, and the others would count"
        " as deleted; grant it BYPASSRLS, or use a role that owns the table or may see all its rows"
    )


def condition(code: str) -> str:
    """Look up the name of a SQLSTATE, where the message may quote what rows hold."""
    try:
        return f"{errorcodes.lookup(code).lower().replace('_', ' ')} (SQLSTATE {code})"
    except KeyError:
        return f"SQLSTATE {code}"


def is_lost(error: psycopg2.Error) -> bool:
    """Whether the connection is gone."""
    code = error.pgcode
    if code is None:
        return isinstance(error, (psycopg2.OperationalError, psycopg2.InterfaceError, psycopg2.DatabaseError))
    return code[:2] == "08" or code in ("57P01", "57P02", "57P03", "25P03", "25P04")


def primary(error: psycopg2.Error) -> str:
    """Choose what the server said first, with its hint."""
    said = error.diag.message_primary or _one_line(error)
    return f"{said} ({error.diag.message_hint})" if error.diag.message_hint else said


def _one_line(error: psycopg2.Error) -> str:
    return re.sub(r"\s+", " ", error.diag.message_primary or str(error)).strip().rstrip(".") or type(error).__name__
