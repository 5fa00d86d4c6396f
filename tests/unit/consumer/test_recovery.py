"""Which errors pass by themselves: each class and SQLSTATE of the whitelist, and what must not be taken for one."""

from __future__ import annotations

import psycopg2
import pytest
import sqlalchemy.exc
from confluent_kafka import KafkaError, KafkaException

from reconcile.consumer.decision import FailureKind
from reconcile.consumer.errors import DependencyPendingError, EndedTransactionError, SwallowedError
from reconcile.consumer.recovery import Recovery, is_the_messages
from reconcile.consumer.store import ContendedError

LISTED = [
    ("psycopg2", "OperationalError"),
    ("psycopg2", "InterfaceError"),
    ("psycopg", "OperationalError"),
    ("psycopg.errors", "InterfaceError"),
    ("sqlalchemy.exc", "OperationalError"),
    ("sqlalchemy.exc", "InterfaceError"),
    ("sqlalchemy.exc", "TimeoutError"),
    ("sqlalchemy.exc", "DisconnectionError"),
    ("requests.exceptions", "ConnectionError"),
    ("requests.exceptions", "Timeout"),
    ("requests.exceptions", "ConnectTimeout"),
    ("requests.exceptions", "ReadTimeout"),
    ("requests.exceptions", "ChunkedEncodingError"),
    ("httpx", "TimeoutException"),
    ("httpx", "NetworkError"),
    ("httpx._exceptions", "RemoteProtocolError"),
    ("httpx", "ProxyError"),
]
KAFKA = [
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
]


def kind(error: BaseException) -> FailureKind:
    """Choose by the whitelist alone."""
    return Recovery().kind(error)


def of_class(module: str, name: str, base: type[Exception] = Exception) -> type[Exception]:
    """Build a class as a package defines it."""
    return type(name, (base,), {"__module__": module})


def with_state(code: str) -> Exception:
    """Build what psycopg2 raises for a SQLSTATE."""
    refused: type[Exception] = type("Refused", (psycopg2.Error,), {"pgcode": code})
    return refused()


@pytest.mark.parametrize(("module", "name"), LISTED)
def test_b7_what_is_listed_passes(module: str, name: str) -> None:
    """B7: connection errors and time-outs, by the package and the name."""
    assert FailureKind.RECOVERABLE is kind(of_class(module, name)())


@pytest.mark.parametrize(("module", "name"), LISTED)
def test_b7_what_is_derived_from_it_passes_too(module: str, name: str) -> None:
    """B7: a package's finer classes, and a team's."""
    assert FailureKind.RECOVERABLE is kind(of_class("service.errors", "Mine", of_class(module, name))())


@pytest.mark.parametrize("module", ["service.errors", "psycopg2x", "myhttpx"])
def test_b7_a_name_alone_says_nothing(module: str) -> None:
    """B7: the package has to be the one that is meant."""
    assert FailureKind.NON_RECOVERABLE is kind(of_class(module, "OperationalError")())


@pytest.mark.parametrize("error", [ConnectionError(), ConnectionResetError(), TimeoutError(), DependencyPendingError()])
def test_b7_what_python_calls_so_passes(error: Exception) -> None:
    """B7: sockets, and a message whose time has not come."""
    assert FailureKind.RECOVERABLE is kind(error)


@pytest.mark.parametrize("error", [ValueError(), KeyError(), OSError(), AssertionError(), EOFError(), MemoryError()])
def test_b7_in_doubt_it_is_the_message(error: Exception) -> None:
    """B6, B7: what nobody listed does not pass by itself."""
    assert FailureKind.NON_RECOVERABLE is kind(error)


@pytest.mark.parametrize(
    "code", ["08000", "08006", "40002", "40003", "53100", "53300", "55P03", "25P03", "57P01", "57P03", "58030"]
)
def test_b7_sqlstates_that_pass(code: str) -> None:
    """B7: connections, rollbacks, resources, operators, the system, and a lock that is not available."""
    assert FailureKind.RECOVERABLE is kind(with_state(code))


@pytest.mark.parametrize(
    "code", ["22001", "23505", "23503", "25P02", "42P01", "54000", "55006", "57014", "P0001", "XX000"]
)
def test_b7_sqlstates_that_do_not(code: str) -> None:
    """B7: data, constraints, syntax, limits, what a function raised, a statement that took too long."""
    assert FailureKind.NON_RECOVERABLE is kind(with_state(code))


def test_b7_a_sqlstate_says_more_than_its_class() -> None:
    """B7: psycopg2 derives from OperationalError also what will never fit into an index."""
    error = psycopg2.errors.lookup("54000")
    assert issubclass(error, psycopg2.OperationalError)
    assert FailureKind.NON_RECOVERABLE is kind(type("Refused", (error,), {"pgcode": "54000"})())


@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_b7_a_deadlock_is_tried_again_at_once(code: str) -> None:
    """B7: two transactions met, and the same one succeeds."""
    assert FailureKind.CONTENDED is kind(with_state(code))


def test_what_the_store_calls_contended_is() -> None:
    """Two noted the same message."""
    assert FailureKind.CONTENDED is kind(ContendedError())


@pytest.mark.parametrize(
    ("code", "expected"),
    [("40P01", FailureKind.CONTENDED), ("54000", FailureKind.NON_RECOVERABLE), ("57P01", FailureKind.RECOVERABLE)],
)
def test_b7_what_sqlalchemy_wraps_decides(code: str, expected: FailureKind) -> None:
    """B7: its OperationalError is as fine as the database's SQLSTATE."""
    wrapped = sqlalchemy.exc.OperationalError("select 1", {}, with_state(code))
    assert expected is kind(wrapped)


def test_b7_without_a_sqlstate_sqlalchemys_class_decides() -> None:
    """B7: nothing answered that could have told one."""
    wrapped = sqlalchemy.exc.OperationalError("select 1", {}, psycopg2.OperationalError("no route to host"))
    assert FailureKind.RECOVERABLE is kind(wrapped)


@pytest.mark.parametrize("code", KAFKA, ids=lambda code: KafkaError(code).name())
def test_b7_kafkas_connections_and_time_outs_pass(code: int) -> None:
    """B7: a handler that produces or reads meets them."""
    assert FailureKind.RECOVERABLE is kind(KafkaException(KafkaError(code)))


def test_b7_what_kafka_calls_retriable_passes() -> None:
    """B7: errors of transactions say so themselves."""
    assert FailureKind.RECOVERABLE is kind(KafkaException(KafkaError(KafkaError._STATE, retriable=True)))


@pytest.mark.parametrize(
    "code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._FATAL]
)
def test_b7_kafkas_other_errors_do_not(code: int) -> None:
    """B7: a record that is too large stays so."""
    assert FailureKind.NON_RECOVERABLE is kind(KafkaException(KafkaError(code)))


def test_b7_a_cause_passes() -> None:
    """B7: an error that was raised from a lost connection."""
    error = ValueError("could not load the customer")
    error.__cause__ = ConnectionError()
    assert FailureKind.RECOVERABLE is kind(error)


def test_b7_what_was_handled_meanwhile_says_nothing() -> None:
    """B7: an error that was raised while a lost connection was handled is one of its own."""
    error = ValueError("no such field")
    error.__context__ = ConnectionError()
    assert FailureKind.NON_RECOVERABLE is kind(error)


def test_b7_a_circle_of_causes_ends() -> None:
    """B7: whoever built it."""
    first, second = ValueError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    assert FailureKind.NON_RECOVERABLE is kind(first)


def test_b7_a_team_adds_classes() -> None:
    """B7: and what is derived from them."""
    mine = of_class("service", "Busy")
    assert FailureKind.RECOVERABLE is Recovery(classes=(mine,)).kind(of_class("service", "VeryBusy", mine)())


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (True, FailureKind.RECOVERABLE),
        (False, FailureKind.NON_RECOVERABLE),
        (None, FailureKind.RECOVERABLE),
    ],
)
def test_b7_a_teams_function_decides_first(decision: bool | None, expected: FailureKind) -> None:
    """B7: and may leave it to the whitelist."""
    assert expected is Recovery(is_recoverable=lambda _: decision).kind(ConnectionError())


@pytest.mark.parametrize("error", [EndedTransactionError("e"), SwallowedError("s")])
def test_a_handler_that_ends_transactions_does_so_again(error: Exception) -> None:
    """Whatever it was raised from."""
    error.__cause__ = ConnectionError()
    assert FailureKind.NON_RECOVERABLE is kind(error)


@pytest.mark.parametrize(
    ("code", "schema", "expected"),
    [("23503", "public", True), ("P0001", None, True), ("23505", "reconcile", False), ("57P01", None, False)],
)
def test_what_a_commit_is_refused_for_may_be_the_messages(code: str, schema: str | None, expected: bool) -> None:
    """A constraint of the team's tables is, one of the library's is not."""
    error = with_state(code)
    diagnostics = type("Diagnostics", (), {"schema_name": schema})()
    assert expected is is_the_messages(type("Refused", (type(error),), {"diag": diagnostics})())


def test_a_swallowed_error_is_the_messages() -> None:
    """Its handler will swallow it again."""
    assert is_the_messages(SwallowedError("s"))
