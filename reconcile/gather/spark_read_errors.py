"""What Spark says when a store fails it, told as errors of the store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from reconcile.errors import ReconcileError
from reconcile.gather import store_errors
from reconcile.gather.opening import OpenFence
from reconcile.gather.store_errors import (
    SnapshotLostError,
    StatementTimeoutError,
    StoreReadError,
    StoreRefusedError,
    StoreUnreachableError,
)

_OURS = re.compile(r"reconcile\.gather\.store_errors\.(\w+Error): (.*)")
_POSTGRES = re.compile(r"PSQLException: (?:ERROR|FATAL): (.*)")
_UNREACHABLE = re.compile(r"PSQLException: (Connection to .*|An I/O error.*|This connection has been closed.*)")
_KINDS: tuple[tuple[str, type[ReconcileError], str], ...] = (
    ("permission denied", StoreRefusedError, "grant select on it to the account that we use"),
    ("statement timeout", StatementTimeoutError, "add an index, or read less"),
    ("snapshot", SnapshotLostError, "start the run again"),
    ("terminating connection", SnapshotLostError, "start the run again"),
)


@contextmanager
def told(opened: OpenFence, link: str) -> Iterator[None]:
    """Raise the error of the store for what Spark raises during the block."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        opened.require_alive()
        raise _named(link, str(error)) or error from None


def _named(link: str, said: str) -> ReconcileError | None:
    if match := _OURS.search(said):
        ours: type[ReconcileError] = getattr(store_errors, match[1], StoreReadError)
        return ours(match[2].strip())
    if match := _UNREACHABLE.search(said):
        return StoreUnreachableError(f"{link}: a store cannot be reached: {match[1]}; see that it is up, and try again")
    if match := _POSTGRES.search(said):
        message = match[1].strip()
        for mark, kind, what_to_do in _KINDS:
            if mark in message:
                return kind(f"{link}: {message}; {what_to_do}")
        return StoreReadError(f"{link}: a store refuses a statement: {message}")
    return None
