"""Runs log in to a secure world with what Airflow keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from reconcile.lab.folder import AUDITOR, READER
from tests.integration.secure.world import SecureWorld, message

pytest.importorskip("airflow.sdk", reason="Airflow is not installed")
KAFKA, COPY = "AIRFLOW_CONN_SECURE_KAFKA", "AIRFLOW_CONN_SECURE_COPY"


@pytest.fixture
def settings(world: SecureWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Settings whose cluster and one of whose stores refer to connections of Airflow."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    lab = world.lab
    cluster = {"conn_type": "kafka", "password": lab.password(f"kafka-{AUDITOR}")}
    monkeypatch.setenv(KAFKA, json.dumps({**cluster, "extra": {"bootstrap.servers": str(lab.bootstrap)}}))
    monkeypatch.setenv(COPY, lab.url("login", READER).replace("postgresql://", "postgres://"))
    said = yaml.safe_load(world.settings.read_text("utf-8"))
    said["connections"]["main"] |= {"bootstrap": "airflow:secure_kafka"}
    said["connections"]["main"]["security"] |= {"sasl.password": "airflow:secure_kafka"}
    said["connections"]["login-db"] = {"url": "airflow:secure_copy"}
    file = world.folder / "by-airflow.yaml"
    file.write_text(yaml.safe_dump(said), "utf-8")
    return file


def test_connections_of_airflow_log_in(world: SecureWorld, settings: Path) -> None:
    """To Kafka with SCRAM over TLS, to Postgres with verify-full."""
    done = world.run("run", world.contract(), "--run-id", "by-airflow", "--json", settings=settings)
    assert 1 == done.exit_code, (done.exception, done.output)
    assert json.loads(done.stdout)["complete"]


def test_a_wrong_password_in_airflow_is_named(
    world: SecureWorld, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it stood in a file, and without it."""
    extra = {"bootstrap.servers": str(world.lab.bootstrap)}
    monkeypatch.setenv(KAFKA, json.dumps({"conn_type": "kafka", "password": "hunter2-secret", "extra": extra}))
    said = message(world.run("fence", world.contract(), settings=settings))
    assert "Check sasl.mechanism, sasl.username and sasl.password" in said
    assert "hunter2" not in said
