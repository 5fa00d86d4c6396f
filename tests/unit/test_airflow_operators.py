"""The tasks on Spark: what they refuse, and what spark-submit is asked for on each kind of cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from reconcile.airflow.installation import Installation
from reconcile.airflow.review import APPROVE
from reconcile.airflow.scheduled_run import ScheduledRun
from reconcile.control.store import open_control
from reconcile.domain.approval import Actor
from reconcile.files import committed

pytest.importorskip("airflow.sdk", reason="Airflow is not installed")

if TYPE_CHECKING:
    from reconcile.airflow.operators import StageApplication

SCHEDULED = ScheduledRun("contracts/user-account.yaml", "user-account-1", ids=("a", "b")).data()
TABLE = committed("docs", "cluster.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| ([^|]+) \| `(\{.+\})` \|$", TABLE, flags=re.M))
WAITS = {"skipped": None, "needs_approval": True, "run_id": "r1", "digest": "d1", "two_people": False}


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make tasks whose commands are kept in place of being run."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "some.jar").touch()
    monkeypatch.setenv("RECONCILE_JARS", str(tmp_path))
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from reconcile.airflow import operators

    commands: list[list[str]] = []
    monkeypatch.setattr(operators, "installation", lambda: Installation(None, str(tmp_path), tmp_path))
    monkeypatch.setattr(
        SparkSubmitHook, "submit", lambda hook, script: commands.append(hook._build_spark_submit_command(script))
    )

    def made(connection: str, stages: Sequence[str] = ("gather",), **given: Any) -> tuple[StageApplication, Any]:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
        return operators.StageApplication(task_id="t", scheduled_run=SCHEDULED, stages=stages, **given), commands

    return made


@pytest.mark.parametrize("decision", [None, {"chosen_options": ["Reject"]}, {"chosen_options": []}])
def test_nothing_is_submitted_without_a_yes(application: Any, decision: dict[str, Any] | None) -> None:
    """Airflow ignores skips inside mapped groups, so that the task itself looks at the answer."""
    from airflow.sdk.exceptions import AirflowSkipException

    task, commands = application(ROWS["this machine"], ("apply", "verify"), plan=WAITS, decision=decision)
    with pytest.raises(AirflowSkipException, match="the corrections were not approved"):
        task.execute({})
    assert [] == commands


def test_a_yes_is_submitted(application: Any) -> None:
    """The application finds in the control store who said it."""
    decision = {"chosen_options": [APPROVE]}
    task, commands = application(ROWS["this machine"], ("apply", "verify"), plan=WAITS, decision=decision)
    task.execute({})
    assert "apply,verify" == _given(commands[0], "--stages")


@pytest.mark.parametrize(("run_id", "waits"), [("another", True), (SCHEDULED["run_id"], False)])
def test_a_run_that_has_to_wait_takes_no_slot(application: Any, tmp_path: Path, run_id: str, waits: bool) -> None:
    """Another run has the lease of its contract: so a flood for one contract leaves the pool to the night."""
    from airflow.sdk.exceptions import AirflowRescheduleException

    task, commands = application(ROWS["this machine"])
    place = Installation(None, str(tmp_path), tmp_path)
    with open_control(place.settings()) as control, control.leases.hold_contract("user-account", run_id):
        if waits:
            with pytest.raises(AirflowRescheduleException):
                task.execute({})
        else:
            task.execute({})
    assert waits != bool(commands)
    assert task.reschedule


ALICE = {"id": "7", "name": "alice"}


def event(user: dict[str, str] | None = ALICE, answer: str = APPROVE) -> dict[str, Any]:
    """Build what Airflow resumes the question with, after somebody answered by its UI or its API."""
    return {
        "chosen_options": [answer], "params_input": {}, "responded_at": datetime(2026, 11, 18, tzinfo=UTC),
        "responded_by_user": user, "timedout": False,
    }  # fmt: skip


@pytest.fixture
def answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Answers the question that waits; returns the approvals that are kept then."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    from reconcile.airflow import review
    from reconcile.airflow.operators import PlanApproval

    place = Installation(None, str(tmp_path), tmp_path)
    monkeypatch.setattr(review, "installation", lambda: place)
    with open_control(place.settings()) as control:
        control.runs.begin("r1", "user-account", "c", Actor("carol", "airflow"))

    def answer(event: dict[str, Any], plan: dict[str, Any] = WAITS) -> list[tuple[str, Actor]]:
        PlanApproval(task_id="approve", plan=plan).execute_complete({}, event)
        with open_control(place.settings()) as control:
            return [(each.plan_digest, each.approver) for each in control.approvals.of_run("r1")]

    return answer


def test_an_approval_is_kept_with_the_user_who_gave_it(answered: Callable[..., Any]) -> None:
    """Of the plan that was shown, whatever the run's plan is by now."""
    assert [("d1", Actor("alice", "airflow"))] == answered(event())


def test_a_user_without_a_name_is_kept_by_its_id(answered: Callable[..., Any]) -> None:
    """Some of Airflow's managers of users know no names."""
    assert [("d1", Actor("7", "airflow"))] == answered(event({"id": "7", "name": ""}))


def test_a_rejection_keeps_nothing(answered: Callable[..., Any]) -> None:
    """Neither does a question that nobody answered in time."""
    assert [] == answered(event(answer="Reject"))
    assert [] == answered({**event(None, "Reject"), "timedout": True})


@pytest.mark.parametrize("plan", [WAITS, {**WAITS, "two_people": True}])
def test_another_user_than_who_triggered_the_run_approves(answered: Callable[..., Any], plan: Any) -> None:
    """Whatever the contract says."""
    assert [("d1", Actor("alice", "airflow"))] == answered(event(), plan)


def test_the_user_who_triggered_the_run_does_not_approve_it(answered: Callable[..., Any]) -> None:
    """Where the contract wants two people; the task fails, and asks again once it is cleared."""
    from airflow.sdk.exceptions import AirflowFailException

    told = r"carol \(airflow\) asked for the run r1.* clear this task to ask again"
    with pytest.raises(AirflowFailException, match=told):
        answered(event({"id": "1", "name": "carol"}), {**WAITS, "two_people": True})
    assert [("d1", Actor("carol", "airflow"))] == answered(event({"id": "1", "name": "carol"}))


def test_an_approval_by_nobody_fails(answered: Callable[..., Any]) -> None:
    """It is not tried again: that would ask again at once."""
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="does not say by whom; clear this task to ask again"):
        answered(event(None))


@pytest.mark.parametrize("where", ROWS)
def test_every_place_of_the_docs_is_submitted_to(application: Any, where: str) -> None:
    """The connections that the docs give are such as Airflow takes."""
    connection = json.loads(ROWS[where])
    if connection["host"].startswith("k8s") and not _is_there("airflow.providers.cncf.kubernetes"):
        pytest.skip("apache-airflow-providers-cncf-kubernetes is not installed")
    task, commands = application(ROWS[where])
    task.execute({})
    command = commands[0]
    mode = connection.get("extra", {}).get("deploy-mode")
    assert _given(command, "--master").startswith(connection["host"])
    assert mode == _given(command, "--deploy-mode")
    assert _given(command, "--files") == (_given(command, "--ids") if mode == "cluster" else None)


@pytest.mark.parametrize(
    ("base", "path"),
    [("https://host/airflow", "/airflow"), ("https://host/airflow/", "/airflow"), ("http://host:8080", "")],
)
def test_a_report_stands_below_airflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, base: str, path: str) -> None:
    """Wherever its UI is served, the link of a task leads there, and so does the menu."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", base)
    from reconcile.airflow.link import ReportLink, address

    task: Any = SimpleNamespace(scheduled_run={"run_id": "user-account-1"})
    assert f"{path}/reconcile/runs/user-account-1" == ReportLink().get_link(task, ti_key=None)
    assert f"{path}/reconcile/" == address("/")


def test_no_place_is_missing() -> None:
    """The table of the docs is read here."""
    hosts = {json.loads(each)["host"].partition(":")[0] for each in ROWS.values()}
    assert {"local[*]", "spark", "yarn", "k8s"} == hosts


def _given(command: Sequence[str], option: str) -> Any:
    return dict(pairwise(command)).get(option)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
