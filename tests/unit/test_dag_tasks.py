"""What the DAGs' first tasks take and refuse, before anything is looked at."""

from __future__ import annotations

import importlib.util
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from reconcile.airflow import installation
from reconcile.airflow.installation import Installation
from reconcile.files import committed

pytest.importorskip("airflow.sdk", reason="Airflow is not installed")

PARAMS = {
    "contract": "user-account",
    "consumers": None,
    "ids": ["a"],
    "mode": "auto",
    "apply": False,
    "max_corrections": None,
    "max_ratio": None,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation with two contracts."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    for name in ("user-account", "user-balance"):
        (tmp_path / f"{name}.yaml").touch()
    monkeypatch.setattr(installation, "installation", lambda: Installation(None, str(tmp_path), tmp_path))
    return tmp_path


def dag(name: str) -> ModuleType:
    """Import a DAG's file."""
    spec = importlib.util.spec_from_file_location(f"dag_{name}", committed("dags", f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(dag_id: str, run_type: str = "scheduled", user: str | None = None, **conf: Any) -> SimpleNamespace:
    """Build a run of a DAG, as its tasks see it."""
    at = datetime(2026, 11, 18, 1, tzinfo=UTC)
    return SimpleNamespace(
        dag_id=dag_id, run_id="r", run_after=at, run_type=run_type, triggering_user_name=user, conf=conf
    )


def test_a_night_takes_all_contracts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As their folder holds them when it runs, each with a run of its own."""
    nightly = dag("nightly")
    monkeypatch.setattr(nightly, "get_current_context", lambda: {"dag_run": run("nightly")})
    runs = nightly.contracts.function()
    assert ["user-account", "user-balance"] == [Path(each["contract"]).stem for each in runs]
    assert 2 == len({each["run_id"] for each in runs})


@pytest.mark.parametrize(
    ("run_type", "user", "requester"),
    [
        ("scheduled", None, {"name": "the scheduler", "way": "schedule", "sudo_user": None}),
        ("operator_triggered", None, {"name": "the scheduler", "way": "schedule", "sudo_user": None}),
        ("manual", "alice", {"name": "alice", "way": "airflow", "sudo_user": None}),
        ("operator_triggered", "alice", {"name": "alice", "way": "airflow", "sudo_user": None}),
        ("manual", None, None),
    ],
)
def test_a_night_knows_who_asked_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, run_type: str, user: str | None, requester: Any
) -> None:
    """The scheduler, unless somebody triggered it; nobody where Airflow does not know."""
    nightly = dag("nightly")
    monkeypatch.setattr(nightly, "get_current_context", lambda: {"dag_run": run("nightly", run_type, user)})
    assert requester == nightly.contracts.function()[0]["requester"]


def test_a_backfill_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a past night is left to compare; it is not tried again."""
    from airflow.sdk.exceptions import AirflowFailException

    nightly = dag("nightly")
    monkeypatch.setattr(nightly, "get_current_context", lambda: {"dag_run": run("nightly", "backfill")})
    with pytest.raises(AirflowFailException, match="nothing of a past night is left to compare"):
        nightly.contracts.function()


def test_what_the_form_asks_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers that were left out mean all."""
    on_demand = dag("on_demand")
    context = {"dag_run": run("on_demand", "manual", "alice", contract="user-account"), "params": PARAMS}
    monkeypatch.setattr(on_demand, "get_current_context", lambda: context)
    scheduled_run = on_demand.scheduled_run.function()
    assert ([], ["a"], False) == (scheduled_run["consumers"], scheduled_run["ids"], scheduled_run["apply"])
    assert "alice" == scheduled_run["requester"]["name"]


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"contract": "user-account", "aply": True}, "there is no parameter aply; there are contract, consumers"),
        ({"contract": "user-acount"}, 'did you mean "user-account"'),
    ],
)
def test_what_nobody_knows_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, conf: dict[str, Any], message: str
) -> None:
    """Airflow takes any key: a cap that is misspelt would be no cap."""
    from airflow.sdk.exceptions import AirflowFailException

    on_demand = dag("on_demand")
    context = {"dag_run": run("on_demand", "manual", **conf), "params": {**PARAMS, "contract": conf["contract"]}}
    monkeypatch.setattr(on_demand, "get_current_context", lambda: context)
    with pytest.raises(AirflowFailException, match=message):
        on_demand.scheduled_run.function()
