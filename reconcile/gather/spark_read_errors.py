"""What Spark says when a store fails it, raised as errors of the store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PythonException  # noqa: TID253

from reconcile.errors import ReconcileError
from reconcile.gather.fence.opening import OpenFence
from reconcile.gather.stores import errors
from reconcile.spark.java_causes import root_cause

_OURS = re.compile(rf"{re.escape(errors.__name__)}\.(\w+Error): (.*)")
_POSTGRES = re.compile(r"PSQLException: (?:ERROR|FATAL): (.*)")
_UNREACHABLE = re.compile(r"PSQLException: (Connection to .*|An I/O error.*|This connection has been closed.*)")
# How each message begins: what follows can be a name out of the contract.
_KINDS: tuple[tuple[str, type[ReconcileError], str], ...] = (
    ("permission denied", errors.StoreRefusedError, "grant select on it to the account that we use"),
    ("canceling statement due to statement timeout", errors.StatementTimeoutError, errors.TOO_LONG),
    ("canceling statement due to conflict with recovery", errors.SnapshotLostError, "read the primary, or start again"),
    ("invalid snapshot identifier", errors.SnapshotLostError, "start the run again"),
    ("could not import the requested snapshot", errors.SnapshotLostError, "start the run again"),
    ('snapshot "', errors.SnapshotLostError, "start the run again"),
    ("terminating connection", errors.SnapshotLostError, "start the run again"),
)
_FILE_GONE = re.compile(r"FILE_NOT_EXIST|FileNotFoundException|iceberg\.exceptions\.NotFoundException")
_EXPIRED = (
    "a file that was to be read is gone: the snapshot of a table has expired meanwhile, or somebody deleted the file;"
    " start the run again"
)
_ADDRESS = re.compile(r"jdbc:\S+|(?<=//)[^/@\s]*@")
# To the last quote, as a value may hold quotes; the apostrophe of "doesn't" is none.
_QUOTED = re.compile(r"""(?<!\w)['"].*['"](?!\w)""", re.DOTALL)
_TO_END = re.compile(r"""(?<!\w)['"].*""")
"""A value of several lines ends on another one."""
_IN_FUNCTION = "\n  Where: "
_OF_ROWS = re.compile(r"(?:\w+: )?(\[[A-Z][A-Z0-9_.]*\]).*SQLSTATE: 2[23]", re.DOTALL)
"""Conditions of Spark whose messages have values, numbers without quotation marks."""
_LONGEST = 300


@contextmanager
def explained(opened: OpenFence, consumer: str, link: str) -> Iterator[None]:
    """Raise the error of the store for what Spark raises during the block; what our own code raises stays as it is."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        opened.require_alive(consumer)
        if _FILE_GONE.search(str(error)):
            raise errors.SnapshotLostError(f"{link}: {_EXPIRED}") from None
        named = by_postgres(link, str(error))
        if named is None and isinstance(error, PythonException):
            raise
        raise named or by_spark(link, error) from None


def by_spark(link: str, error: Exception) -> errors.StoreReadError:
    """Build the error for what Spark or a driver says, without the values that it quotes: they may be data."""
    thrown = root_cause(error)
    # What Spark tells in Python's own classes begins with its condition.
    text = str(error) if thrown is None else f"{thrown.getClass().getSimpleName()}: {thrown.getMessage()}"
    match = _OF_ROWS.match(text)
    safe = _QUOTED.sub("…", _ADDRESS.sub("[address] ", text)) if match is None else match[1]
    first = next(iter(safe.strip().splitlines()), type(error).__name__)[:_LONGEST]
    return errors.StoreReadError(f"{link}: could not be read: {first}; correct the contract or the store, or try again")


def by_postgres(link: str, said: str) -> ReconcileError | None:
    """Build the error for what a Postgres, or a session of ours with one, says within a message of Spark's."""
    if match := _OURS.search(said):
        ours: type[ReconcileError] = getattr(errors, match[1], errors.StoreReadError)
        return ours(match[2].strip())
    if match := _UNREACHABLE.search(said):
        return errors.StoreUnreachableError(
            f"{link}: a store cannot be reached: {match[1]}; see that it is up, and try again"
        )
    if match := _POSTGRES.search(said):
        message = match[1].strip()
        if message.startswith(errors.ROW_SECURITY):
            return errors.RowSecurityError(f"{link}: {errors.row_security(message)}")
        for mark, kind, what_to_do in _KINDS:
            if message.startswith(mark):
                return kind(f"{link}: {message}; {what_to_do}")
        if message.endswith("does not exist"):
            safe = message
        elif _IN_FUNCTION in said[match.end() :]:
            safe = "with words of a function, which may be data"
        else:
            safe = _TO_END.sub("…", message)
        return errors.StoreReadError(f"{link}: a store refuses a statement: {safe}")
    return None
