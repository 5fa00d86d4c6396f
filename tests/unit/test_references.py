"""Secrets by reference."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from reconcile.errors import SecretError
from reconcile.settings.references import Given, Reference, from_airflow, reference


def refer(text: str, folder: Path = Path()) -> Reference:
    found = reference(text, "password", folder)
    assert found is not None
    return found


def airflow_connection(**parts: Any) -> SimpleNamespace:
    nothing = dict.fromkeys(("conn_type", "host", "port", "login", "password", "schema", "extra"))
    return SimpleNamespace(**{**nothing, **parts})


def test_an_environment_variable_is_read_when_asked() -> None:
    """The value comes from the environment at that moment."""
    assert refer("env:TOKEN").resolve({"TOKEN": "s3"}).get_secret_value() == "s3"


@pytest.mark.parametrize(("environ", "state"), [({}, "is not set"), ({"TOKEN": ""}, "is empty")])
def test_a_missing_variable_is_an_error(environ: dict[str, str], state: str) -> None:
    """A variable that is missing never becomes an empty secret."""
    with pytest.raises(SecretError) as caught:
        refer("env:TOKEN").resolve(environ)
    expected = f"env:TOKEN: the environment variable TOKEN {state}; export it and start again"
    assert str(caught.value) == expected


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_file_is_read_without_its_last_line_break(tmp_path: Path, ending: str) -> None:
    """Only one line break at the end goes; spaces stay."""
    (tmp_path / "secret").write_bytes(f" s3 {ending}".encode())
    assert refer("file:secret", tmp_path).resolve().get_secret_value() == " s3 "


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"\n", "is empty"), (b"\xff", "is not UTF-8 text"), (b"x" * 70_000, "is larger than 64 KiB")],
)
def test_a_useless_file_is_an_error(tmp_path: Path, content: bytes, message: str) -> None:
    """The message names the file and not its content."""
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(SecretError, match=message):
        refer("file:secret", tmp_path).resolve()


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """The message says which file was looked for."""
    with pytest.raises(SecretError, match=r"file:none: there is no file .*none; write the secret into it"):
        refer("file:none", tmp_path).resolve()


def test_printing_shows_the_reference() -> None:
    """What is printed is the place, whatever it leads to."""
    assert f"{refer('env:TOKEN')!r} {refer('airflow:my_db')}" == "env:TOKEN airflow:my_db"


def test_printing_a_given_value_shows_where_it_was_given() -> None:
    """What is printed never holds the value."""
    assert repr(Given(SecretStr("s3"), "RECONCILE_CONN_X")) == "<given in RECONCILE_CONN_X>"


def test_other_text_is_no_reference() -> None:
    """A URL is not taken for a reference."""
    assert reference("postgresql://h/d", "url", Path()) is None


@pytest.mark.parametrize("text", ["env:", "env:A B", "env:1A", "file:", "airflow:", "airflow:a/b", "env:A\n"])
def test_a_malformed_reference_is_refused(text: str) -> None:
    """A reference that cannot lead anywhere is told at once."""
    with pytest.raises(ValueError, match="leads nowhere"):
        reference(text, "url", Path())


@pytest.mark.parametrize(
    ("parts", "wanted", "expected"),
    [
        (
            {"conn_type": "postgres", "host": "h", "login": "u", "password": "p@", "schema": "d", "port": 1},
            "url",
            "postgresql://u:p%40@h:1/d",
        ),
        (
            {"conn_type": "postgres", "host": "::1", "schema": "d", "extra": '{"sslmode": "require", "x": 1}'},
            "url",
            "postgresql://[::1]/d?sslmode=require",
        ),
        ({"conn_type": "generic", "host": "jdbc:mysql://h/d"}, "url", "jdbc:mysql://h/d"),
        ({"conn_type": "http", "host": "h", "port": 8081, "schema": "https"}, "url", "https://h:8081"),
        ({"conn_type": "mysql", "host": "h", "schema": "d"}, "url", "mariadb://h/d"),
        ({"conn_type": "oracle", "host": "h", "schema": "d"}, "url", None),
        ({"conn_type": "kafka", "extra": '{"bootstrap.servers": "a:1"}'}, "bootstrap", "a:1"),
        ({"conn_type": "kafka", "host": "a", "port": 1}, "bootstrap", "a:1"),
        ({"conn_type": "kafka", "extra": '{"sasl.password": "s"}', "password": "x"}, "sasl.password", "s"),
        ({"conn_type": "kafka", "password": "x"}, "sasl.password", "x"),
        ({"conn_type": "kafka", "extra": "not json"}, "sasl.password", None),
        ({"conn_type": "kafka", "extra": "[1]"}, "bootstrap", None),
    ],
)
def test_an_airflow_connection_gives_what_is_wanted_of_it(
    parts: dict[str, Any], wanted: str, expected: str | None
) -> None:
    """A URL, the brokers or one setting are taken of the connection's parts."""
    assert from_airflow(airflow_connection(**parts), wanted) == expected
