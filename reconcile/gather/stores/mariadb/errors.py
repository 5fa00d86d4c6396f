"""What goes wrong with a MariaDB, by its error number, in terms of what a person can do."""

from __future__ import annotations

import re

import pymysql

from reconcile.errors import ReconcileError
from reconcile.gather.stores.errors import (
    TOO_LONG,
    SnapshotLostError,
    StatementTimeoutError,
    StoreRefusedError,
    StoreUnreachableError,
)

NO_COLUMN, NO_TABLE = 1054, 1146
_REFUSED = (1044, 1045, 1049, 1130, 1698, 1251, 2026, 2049, 2059)
_DENIED = (1142, 1143, 1227, 1370, 1345)
_WRITES = (1290, 1792, 1836)
_TOO_LONG = (1317, 1969, 3024)
_CHANGED, _TOO_LARGE = 1412, 1153
_LOST = (0, 1053, 1152, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, 2055, 4031)
_OF_THE_TEXT = {
    *(NO_COLUMN, 1046, 1051, 1052, 1055, 1056, 1060, 1064, 1066, 1103, 1109, 1111, 1115, 1140, NO_TABLE, 1149, 1191),
    *(1222, 1234, 1235, 1240, 1241, 1242, 1247, 1248, 1250, 1253, 1267, 1270, 1271, 1272, 1273, 1305, 1318, 1327),
    *(1356, 1449, 1580, 1582, 1583, 1630, 4078, 4079, 4107),
}
"""Numbers of errors that are in a statement's text, whatever the rows say: their messages quote no values of rows."""
_TEXT_CLASS = "42000"
_AGAIN = "start the run again"


def number(error: BaseException) -> int:
    """Look up the server's number of an error; 0 where the connection is gone without a word."""
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) else 0


def said(error: BaseException) -> str:
    """Choose what the server said, on one line, where it quotes no values of rows."""
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    return re.sub(r"\s+", " ", text).strip().rstrip(".") or type(error).__name__


def is_of_the_text(error: pymysql.Error) -> bool:
    """Whether a statement is wrong whatever the rows say."""
    return number(error) in _OF_THE_TEXT


def connecting(store: str, error: Exception) -> StoreUnreachableError | StoreRefusedError:
    """Build the error for a connection that was not made."""
    if isinstance(error, pymysql.Error) and number(error) not in _REFUSED:
        reason = f"the store {store} cannot be reached: {said(error)}"
        return StoreUnreachableError(f"{reason}. See that it is up, and try again")
    if isinstance(error, pymysql.Error):
        return StoreRefusedError(
            f"the store {store} refuses us: {said(error)}. Check user, password and database of its url"
        )
    # The driver's own checks: what the account's way to log in needs, or files of TLS.
    return StoreRefusedError(f"the store {store}: its driver cannot log in: {said(error)}. Check its url")


def running(store: str, error: pymysql.Error, in_snapshot: bool) -> ReconcileError:
    """Build the error for a statement that failed for a reason that lies outside of its text."""
    code, words = number(error), said(error)
    if code in _DENIED:
        return StoreRefusedError(f"the store {store}: {words}; grant select on it to the account that we use")
    if code in _WRITES:
        return StoreRefusedError(f"the store {store}: {words}; contracts only read: take out what writes")
    if code in _TOO_LONG:
        return StatementTimeoutError(f"the store {store} took too long: {words}; {TOO_LONG}")
    if code == _CHANGED:
        return SnapshotLostError(f"a table of {store} was altered, and its snapshot is gone: {words}; {_AGAIN}")
    if code in _LOST:
        words = words if words.strip("0 ") else "it was closed"
        if in_snapshot:
            return SnapshotLostError(f"the connection to {store} was lost, and its snapshot with it: {words}; {_AGAIN}")
        return StoreUnreachableError(f"the connection to {store} was lost: {words}; see that it is up, and {_AGAIN}")
    if code == _TOO_LARGE:
        return StoreRefusedError(f"the store {store}: {words}; raise max_allowed_packet of the server")
    if is_of_the_text(error):
        return StoreRefusedError(f"the store {store} refuses a statement: {words}", _TEXT_CLASS)
    return StoreRefusedError(f"the store {store} refuses a statement: error {code}", str(code))
