"""Secrets that Airflow keeps."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reconcile.errors import SecretError
from reconcile.settings.references import Reference

pytest.importorskip("airflow.sdk", reason="Airflow is not installed")


@pytest.fixture(autouse=True)
def _airflow_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("connection", "wanted", "expected"),
    [
        (
            "postgres://me:p%40ss-word@h:5433/d?sslmode=require",
            "url",
            "postgresql://me:p%40ss-word@h:5433/d?sslmode=require",
        ),
        ('{"conn_type": "kafka", "extra": {"bootstrap.servers": "a:9092"}}', "bootstrap", "a:9092"),
        ('{"conn_type": "kafka", "extra": {"sasl.password": "s3-secret"}}', "sasl.password", "s3-secret"),
        ('{"conn_type": "kafka", "password": "s3-secret"}', "sasl.password", "s3-secret"),
    ],
)
def test_a_connection_is_found_outside_of_a_task(
    monkeypatch: pytest.MonkeyPatch, connection: str, wanted: str, expected: str
) -> None:
    """A connection given by environment variable is enough."""
    monkeypatch.setenv("AIRFLOW_CONN_MY_CONNECTION", connection)
    assert Reference("airflow", "my_connection", wanted).resolve().get_secret_value() == expected


def test_what_airflow_logs_stays_off_stdout(tmp_path: Path) -> None:
    """Stdout is for data, and Airflow warns of secrets too short to be masked."""
    program = (
        "from reconcile.settings.references import Reference as R; "
        "print(R('airflow', 'my', 'x').resolve().get_secret_value())"
    )
    environ = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW_CONN_MY": '{"conn_type": "x", "password": "abc"}'}
    result = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert result.stdout == "abc\n"


def test_a_missing_connection_is_an_error() -> None:
    """The message says how to give one."""
    with pytest.raises(
        SecretError, match="there is no Airflow connection 'none'; add it in Airflow, or set AIRFLOW_CONN_NONE"
    ):
        Reference("airflow", "none", "url").resolve()


def test_a_connection_of_another_kind_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what the connection lacks."""
    monkeypatch.setenv("AIRFLOW_CONN_MY_CONNECTION", "mssql://me:s3-secret@h/d")
    with pytest.raises(SecretError, match="'my_connection' holds no url; add it there"):
        Reference("airflow", "my_connection", "url").resolve()


def test_a_malformed_connection_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Airflow cannot read is told without being shown."""
    monkeypatch.setenv("AIRFLOW_CONN_MY_CONNECTION", '{"conn_type": "kafka", "port": "s3-secret"}')
    with pytest.raises(SecretError) as caught:
        Reference("airflow", "my_connection", "url").resolve()
    assert "s3-secret" not in str(caught.value)
