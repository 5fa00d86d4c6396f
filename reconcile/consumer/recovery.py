"""Which errors pass by themselves: a whitelist, for in doubt it is the message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reconcile.consumer.decision import FailureKind
from reconcile.consumer.errors import EndedTransactionError, SwallowedError
from reconcile.consumer.store import ContendedError
from reconcile.errors import UnreachableError

_BY_NAME = {
    "psycopg2": {"OperationalError", "InterfaceError"},
    "psycopg": {"OperationalError", "InterfaceError"},
    "sqlalchemy.exc": {"OperationalError", "InterfaceError", "TimeoutError", "DisconnectionError"},
    "requests.exceptions": {"ConnectionError", "Timeout", "ConnectTimeout", "ReadTimeout", "ChunkedEncodingError"},
    "httpx": {"TimeoutException", "NetworkError", "RemoteProtocolError", "ProxyError"},
}
"""By the package that defines a class and its name, so that none is imported for this."""

_KAFKA = {
    *("_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_MSG_TIMED_OUT", "_WAIT_COORD"),
    *("REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "BROKER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE"),
    *("NOT_LEADER_FOR_PARTITION", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
    *("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
}
"""Errors of Kafka by name: connections, time-outs, and brokers that change places."""

_CONTENDED = ("40001", "40P01")
_PASSING = ("08", "40", "53", "57P", "58")
_PASSING_CODES = ("55P03", "25P03")
"""SQLSTATEs: connections, rollbacks, resources, operators, the system; a lock that is not available; a session ended
because it was idle for too long."""


@dataclass(frozen=True)
class Recovery:
    """What a team adds to the whitelist."""

    classes: tuple[type[BaseException], ...] = ()
    is_recoverable: Callable[[BaseException], bool | None] | None = None
    """Decides first; None leaves it to the whitelist."""

    def kind(self, error: BaseException) -> FailureKind:
        """Choose where an error comes from, by it and by what caused it."""
        if self.is_recoverable is not None and (decided := self.is_recoverable(error)) is not None:
            return FailureKind.RECOVERABLE if decided else FailureKind.NON_RECOVERABLE
        if isinstance(error, (EndedTransactionError, SwallowedError)):
            return FailureKind.NON_RECOVERABLE
        for each in _chain(error):
            if isinstance(each, ContendedError) or _sqlstate(each) in _CONTENDED:
                return FailureKind.CONTENDED
            if isinstance(each, self.classes) or _passes(each):
                return FailureKind.RECOVERABLE
        return FailureKind.NON_RECOVERABLE


def is_the_messages(error: BaseException) -> bool:
    """Whether a failure at the end of a transaction is about what the handler did, and not about our own tables."""
    if isinstance(error, SwallowedError):
        return True
    code, schema = _sqlstate(error), getattr(getattr(error, "diag", None), "schema_name", None)
    return code is not None and code.startswith(("23", "P0")) and schema != "reconcile"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """List an error and what it was raised from, or wraps: not what it was merely raised beside."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        wrapped = getattr(current, "orig", None)
        current = wrapped if isinstance(wrapped, BaseException) else current.__cause__


def _passes(error: BaseException) -> bool:
    if isinstance(error, (UnreachableError, ConnectionError, TimeoutError)):
        return True
    code = _sqlstate(error)
    if code is not None:
        return code.startswith(_PASSING) or code in _PASSING_CODES
    return _is_listed(error) or _kafka_passes(error)


def _sqlstate(error: BaseException) -> str | None:
    """Find what the database said, also through SQLAlchemy, whose classes are coarser."""
    driver = getattr(error, "orig", None) or error
    code = getattr(driver, "pgcode", None) or getattr(driver, "sqlstate", None)
    return code if isinstance(code, str) else None


def _is_listed(error: BaseException) -> bool:
    return any(
        each.__name__ in names and (each.__module__ == package or each.__module__.startswith(f"{package}."))
        for each in type(error).__mro__
        for package, names in _BY_NAME.items()
    )


def _kafka_passes(error: BaseException) -> bool:
    if type(error).__name__ != "KafkaException" or not error.args:
        return False
    name, retriable = (getattr(error.args[0], each, None) for each in ("name", "retriable"))
    return bool(callable(name) and name() in _KAFKA) or bool(callable(retriable) and retriable())
