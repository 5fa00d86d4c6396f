"""What Spark says of a store: named by what a person can do, and never with the data that it quotes."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

import pytest

from reconcile.gather.spark_read_errors import by_postgres, by_spark
from reconcile.gather.stores.errors import (
    SnapshotLostError,
    StatementTimeoutError,
    StoreReadError,
    StoreRefusedError,
    StoreUnreachableError,
)


@dataclass
class Thrown:
    """An exception of Java's as Py4J shows it."""

    kind: str
    message: str | None
    cause: Thrown | None = None

    def getClass(self) -> Thrown:  # noqa: N802
        return self

    def getSimpleName(self) -> str:  # noqa: N802
        return self.kind

    def getMessage(self) -> str | None:  # noqa: N802
        return self.message

    def getCause(self) -> Thrown | None:  # noqa: N802
        return self.cause


class JavaError(Exception):
    """An error as Py4J raises it."""

    def __init__(self, thrown: Thrown) -> None:
        super().__init__("An error occurred while calling o1.parquet.")
        self.java_exception = thrown


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("ERROR: permission denied for table snapshots", StoreRefusedError),
        ("ERROR: canceling statement due to statement timeout", StatementTimeoutError),
        ("ERROR: canceling statement due to conflict with recovery", SnapshotLostError),
        ("FATAL: terminating connection due to administrator command", SnapshotLostError),
        ('ERROR: snapshot "00000003-0000001B-1" does not exist', SnapshotLostError),
        ('ERROR: invalid snapshot identifier: "x"', SnapshotLostError),
        ("ERROR: could not import the requested snapshot", SnapshotLostError),
        ('ERROR: relation "snapshots" does not exist', StoreReadError),
        ('ERROR: column "permission denied" does not exist', StoreReadError),
        ("Connection to db:5432 refused.", StoreUnreachableError),
    ],
)
def test_a_postgres_is_named_by_how_its_message_begins(said: str, kind: type[Exception]) -> None:
    """What follows can be the name of a table."""
    found = by_postgres("user/login", f"Job aborted: org.postgresql.util.PSQLException: {said}\n\tat x")
    assert type(found) is kind
    assert "user/login" in str(found)


def test_an_error_of_ours_comes_back_from_a_task() -> None:
    """What a session of ours raises in a task of Spark's is a text by then, and is raised again as what it was."""
    raised = SnapshotLostError("the snapshot of login-db is gone; start the run again")
    found = by_postgres("user/login", "Traceback\n" + "".join(traceback.format_exception_only(raised)))
    assert (SnapshotLostError, str(raised)) == (type(found), str(found))


def test_what_a_postgres_quotes_of_a_row_is_not_told() -> None:
    """A name that is not there is: it stands in the contract."""
    said = "org.postgresql.util.PSQLException: ERROR: "
    text = by_postgres("user/login", said + 'invalid input syntax for type bigint: "+49 170 5550123"\n\tat x')
    assert "user/login: a store refuses a statement: invalid input syntax for type bigint: …" == str(text)
    assert 'column "mial" does not exist' in str(by_postgres("user/login", said + 'column "mial" does not exist'))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('invalid input syntax for type integer: "zoe\n8000 Town"\n  Position: 8', "for type integer: …"),
        (
            "no such person: zoe\n  Where: PL/pgSQL function f() line 3 at RAISE",
            "words of a function, which may be data",
        ),
    ],
)
def test_what_a_postgres_says_of_a_row_in_other_forms_is_not_told(said: str, told: str) -> None:
    """A value of several lines has no closing quotation mark on the first; what a function says has none at all."""
    text = str(by_postgres("user/login", f"Job aborted: org.postgresql.util.PSQLException: ERROR: {said}\n\tat x"))
    assert (True, False) == (text.endswith(told), "zoe" in text)


def test_other_drivers_are_no_postgres() -> None:
    """They have no messages that we know."""
    assert by_postgres("user/login", "java.sql.SQLException: ERROR: snapshot") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[CAST_INVALID_INPUT] The value \'a@x\' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018',
            "could not be read: [CAST_INVALID_INPUT];",
        ),
        (
            '[CAST_OVERFLOW] The value 5550123L (a@x) of the type "BIGINT" cannot be cast to "INT". SQLSTATE: 22003',
            "could not be read: [CAST_OVERFLOW];",
        ),
        ("[CAST_INVALID_INPUT] The value 'two\nlines, 'a@x'' is malformed\n== SQL ==\na", "… is malformed"),
        ("'a@x'", "…"),
    ],
)
def test_what_spark_says_is_told_without_its_values(text: str, expected: str) -> None:
    """The condition stays."""
    message = str(by_spark("user/login", ValueError(text)))
    assert expected in message
    assert "a@x" not in message


@pytest.mark.parametrize(
    ("kind", "said", "expected"),
    [
        ("SQLDataException", "Invalid character string format", "SQLDataException: Invalid character string format"),
        ("SQLException", "Table 'shop.users' doesn't exist", "SQLException: Table … doesn't exist"),
        ("SQLException", "no route to jdbc:oracle:thin:scott/tiger@db", "no route to [address]"),
        ("IOException", "s3a://key:secret@bucket/x is no file", "s3a://[address] bucket/x is no file"),
        ("NumberFormatException", 'For input string: "a@x"', "NumberFormatException: For input string: …"),
        ("NullPointerException", None, "NullPointerException: "),
    ],
)
def test_a_driver_is_told_by_its_root_cause(kind: str, said: str | None, expected: str) -> None:
    """With its class; without addresses, which hold passwords, and without values."""
    thrown = Thrown(
        "SparkException", "Job aborted: secret", Thrown("SparkException", "Task failed", Thrown(kind, said))
    )
    message = str(by_spark("user/login", JavaError(thrown)))
    assert message.startswith("user/login: could not be read: ")
    assert expected in message
    assert not [word for word in ("tiger", "secret", "a@x", "shop.users") if word in message]
