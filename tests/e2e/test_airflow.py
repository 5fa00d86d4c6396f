"""The DAGs on a world of the lab: a rejected plan, a night on a cluster that a person approves, requests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import pytest

from reconcile.control.store import open_control
from reconcile.lab import process
from reconcile.lab.airflow import world as lab_airflow
from reconcile.lab.airflow.spark_cluster import cluster
from reconcile.lab.airflow.world import awaited
from reconcile.pipeline.handoffs import snapshots
from reconcile.pipeline.requests import RequestRecord
from reconcile.settings.settings import load_settings
from tests.e2e.airflows import CONTRACT, DrivenAirflow, driven_airflow

pytest.importorskip("airflow.sdk", reason="Airflow is not installed")

_A_STAGE, _A_RUN = 420, 900


@dataclass(frozen=True)
class Night:
    """A night under a scheduler, as the REST API tells it."""

    dag_run: str
    state: str
    tasks: dict[str, dict[str, Any]]
    link: str
    page: str
    verdict: str
    """What the report says when it is opened from Airflow's UI."""
    unknown_visitor: int
    before: dict[str, Any]
    """The manifests that the first attempt had published when it was killed."""
    after: dict[str, Any]
    events: list[dict[str, Any]]
    second_answer: str
    figures: dict[str, Any]
    log: str
    """What the audit's last attempt logged."""
    master: str


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrivenAirflow]:
    """An Airflow on a damaged world."""
    with driven_airflow(tmp_path_factory.mktemp("airflow")) as found:
        yield found


@dataclass(frozen=True)
class Rejected:
    """A run of which the corrections were rejected, on threads of this machine."""

    tasks: dict[str, Any]
    figures: dict[str, Any]


@pytest.fixture(scope="module")
def rejected(driven: DrivenAirflow) -> Rejected:
    """A run on demand of which a person rejects the corrections."""
    return Rejected(driven.test("on_demand", "Reject", contract=CONTRACT, apply=True), _figures(_newest(driven)))


@pytest.fixture(scope="module")
def night(driven: DrivenAirflow, rejected: Rejected, tmp_path_factory: pytest.TempPathFactory) -> Night:
    """A night under a scheduler, on a cluster of Spark; it looks at the world in which nothing was repaired."""
    with cluster(18090, tmp_path_factory.mktemp("cluster")) as master:
        driven.wire(master)
        found = _night(driven, master)
    driven.wire()
    return found


def _night(driven: DrivenAirflow, master: str) -> Night:
    """Kill the first attempt in mid stage, approve by REST, and look at what came of it."""
    try:
        dag_run = lab_airflow.begun(driven.airflow)
        run = f"/api/v2/dags/nightly/dagRuns/{dag_run}"
        before = _killed_in_mid_stage(driven)
        approval = f"{run}/taskInstances/reconciliation.approve/0/hitlDetails"
        awaited(lambda: "awaiting_input" == _states(driven, run).get("approve"), "nobody was asked", _A_RUN)
        time.sleep(2)  # Airflow fails a task that is answered in the moment of its asking
        answer = {"chosen_options": ["Approve"], "params_input": {}}
        driven.ask("PATCH", approval, answer)
        second = _said(driven, "PATCH", approval, answer)
        awaited(lambda: driven.ask("GET", run)["state"] in ("success", "failed"), "the night did not end", _A_RUN)
        link = driven.ask("GET", f"{run}/taskInstances/reconciliation.report/links?map_index=0")["extra_links"]
        address = driven.airflow.url + str(link["Reconciliation report"])
        events = driven.ask("GET", "/api/v2/assets/events?source_dag_id=nightly")["asset_events"]
        return Night(
            dag_run,
            driven.ask("GET", run)["state"],
            _tasks(driven, run),
            link["Reconciliation report"],
            driven.page(address),
            driven.opened_report(dag_run),
            _status_of_a_stranger(address),
            before,
            _manifests(_newest(driven)),
            events,
            second,
            _figures(_newest(driven)),
            _last_log(driven, "reconciliation.audit"),
            master,
        )
    finally:
        driven.stop_airflow()


def test_what_was_rejected_is_not_applied(rejected: Rejected) -> None:
    """The run ends well, and nothing was emitted."""
    states = {name.rpartition(".")[2]: state for name, state in rejected.tasks["tasks"].items()}
    expected = ("success", "skipped", "skipped", "success")
    assert expected == (rejected.tasks["state"], states["apply"], states["verify"], states["report"])


def test_what_was_approved_is_repaired(driven: DrivenAirflow, night: Night) -> None:
    """Every task succeeds, and every correction converged."""
    assert ("success", {"success"}) == (night.state, {each["state"] for each in night.tasks.values()})
    outcomes = json.loads((_newest(driven) / "verified" / "data.json").read_text())["links"][0]["outcomes"]
    assert ["converged"] == list(outcomes)


def test_a_night_keeps_who_asked_and_who_approved(driven: DrivenAirflow, night: Night) -> None:
    """The scheduler that began it, and the user of Airflow who answered by REST."""
    applied = json.loads((_newest(driven) / "applied" / "data.json").read_text())
    people = [applied["requester"], applied["approvals"][0]["approver"]]
    expected = [("the scheduler", "schedule"), ("admin", "airflow")]
    assert expected == [(each["name"], each["way"]) for each in people]


def test_a_killed_attempt_is_continued(night: Night) -> None:
    """The next attempt keeps what the first had gathered, and makes the rest; rows go when it is reported."""
    assert night.tasks["audit"]["try_number"] > 1
    assert "summary" not in night.before
    gathered = {name: each for name, each in night.before.items() if each["stage"] == "gather"}
    kept = gathered.keys() & night.after.keys()
    assert {"fence", "gathered"} <= kept
    assert {name: gathered[name] for name in kept} == {name: night.after[name] for name in kept}
    assert gathered.keys() - kept <= set(snapshots("login"))
    assert {"summary", "quality", "plan", "applied", "verified"} <= night.after.keys()


def test_a_second_answer_is_refused(night: Night) -> None:
    """Who answers first decides."""
    assert "409" in night.second_answer


def test_the_report_opens_from_the_task(night: Night) -> None:
    """The task's link leads to the report of its run, inside Airflow."""
    assert night.link.startswith("/reconcile/runs/user-account-")
    assert "user-account/login" in night.page


def test_the_report_opens_in_a_browser(night: Night) -> None:
    """The link stands among the task's details."""
    assert night.verdict.startswith("The copy has drifted")


def test_a_stranger_sees_no_report(night: Night) -> None:
    """Whoever is not signed in to Airflow gets nothing."""
    assert 401 == night.unknown_visitor


def test_the_asset_holds_the_figures(night: Night) -> None:
    """The report updates its asset with what the run found and repaired."""
    extra = night.events[0]["extra"]
    assert ("user-account", True, 1) == (extra["contract"], extra["complete"], extra["exit_code"])
    assert 0 == extra["repair"]["exit_code"]


def test_the_next_night_finds_nothing(driven: DrivenAirflow, night: Night) -> None:
    """What was repaired is repaired: nobody is asked, and nothing is applied."""
    found = driven.test("nightly", "Reject")
    states = {name.partition("[")[0].rpartition(".")[2]: state for name, state in found["tasks"].items()}
    assert ("success", "skipped") == (found["state"], states["apply"])
    assert 0 == json.loads((_newest(driven) / "summary" / "data.json").read_text())["exit_code"]


def test_a_cluster_runs_the_same_job(rejected: Rejected, night: Night) -> None:
    """By the connection alone: a master and two workers compute what local threads do."""
    assert f"--master {night.master}" in night.log
    assert rejected.figures == night.figures


def test_requests_are_answered_once(driven: DrivenAirflow, night: Night) -> None:
    """Sent twice and asked for twice, or by a record alone, each is run once and done; nonsense is passed by."""
    from click.testing import CliRunner

    from reconcile.cli import cli

    config = driven.airflow.home / "reconcile.yaml"
    arguments = ["request", str(driven.airflow.home / "contracts" / f"{CONTRACT}.yaml"), "--config", str(config)]
    arguments += ["--workspace", str(driven.runs), "--request-id", "r-1", "--id", "nobody"]
    sent = [CliRunner().invoke(cli, arguments).exit_code for _ in range(2)]
    for value in (
        b'{"id": "\\u0000", "contract": "x"}',
        RequestRecord("r-2", CONTRACT, ("no one",)).value(),
        b"[" * 100_000,
    ):
        driven.send(value)
    before = len(_runs(driven))
    first, second = driven.test("on_request"), driven.test("on_request")
    with open_control(load_settings(config, str(driven.runs))) as control:
        requests = [control.requests.find(each).state for each in ("r-1", "r-2")]
    finished = [state for name, state in first["tasks"].items() if ".finish[" in name]
    assert ([0, 0], ["success"] * 2, "success") == (sent, finished, second["state"])
    assert (["done", "done"], before + 2) == (requests, len(_runs(driven)))


def test_no_secret_stands_in_what_airflow_keeps(driven: DrivenAirflow, night: Night) -> None:
    """No password is in a log, an XCom, a rendered field or a run."""
    secrets = driven.secrets()
    assert secrets
    assert all(secrets)
    found = []
    places = [file for folder in (driven.airflow.home, driven.runs) for file in folder.rglob("*") if file.is_file()]
    for file in places:
        with suppress(OSError):
            text = file.read_bytes()
            found += [file.name for secret in secrets if secret.encode() in text]
    assert [] == found


def _killed_in_mid_stage(driven: DrivenAirflow) -> dict[str, Any]:
    """Kill the first attempt, its Spark and its driver while it audits what it has gathered; give what it published."""
    known = set(_runs(driven))

    def gathered() -> list[Path]:
        return [each for each in set(_runs(driven)) - known if (each / "gathered" / "manifest.json").exists()]

    process.wait_until(lambda: bool(gathered()), "nothing was gathered", _A_STAGE)
    run = gathered()[0]
    for attempt in _attempts(driven, run.name):
        for each in [attempt, *attempt.children(recursive=True)]:
            with suppress(psutil.Error):
                each.kill()
    return _manifests(run)


def _attempts(driven: DrivenAirflow, run: str) -> list[psutil.Process]:
    """Give the tasks that have submitted a run's application."""
    found = []
    for pid in driven.airflow.processes():
        with suppress(psutil.Error):
            submitted = psutil.Process(pid)
            if submitted.name() == "java" and run in submitted.cmdline():
                found.append(psutil.Process(submitted.ppid()))
    return found


def _last_log(driven: DrivenAirflow, task: str) -> str:
    logs = (driven.airflow.home / "logs").rglob(f"task_id={task}/**/attempt=*.log")
    return max(logs, key=lambda each: each.stat().st_mtime).read_text()


def _figures(run: Path) -> dict[str, Any]:
    link = json.loads((run / "summary" / "data.json").read_text())["links"][0]
    return {name: link[name] for name in ("compared", "agreeing", "drifted", "by_cause")}


def _newest(driven: DrivenAirflow) -> Path:
    return max(_runs(driven), key=lambda each: (each / "request").stat().st_mtime)


def _runs(driven: DrivenAirflow) -> list[Path]:
    return [each for each in driven.runs.iterdir() if not each.name.startswith("_") and each.is_dir()]


def _manifests(run: Path) -> dict[str, Any]:
    return {file.parent.name: json.loads(file.read_text()) for file in run.glob("*/manifest.json")}


def _tasks(driven: DrivenAirflow, run: str) -> dict[str, dict[str, Any]]:
    found = driven.ask("GET", f"{run}/taskInstances")["task_instances"]
    return {each["task_id"].rpartition(".")[2]: each for each in found}


def _states(driven: DrivenAirflow, run: str) -> dict[str, str]:
    return {name: str(each["state"]) for name, each in _tasks(driven, run).items()}


def _said(driven: DrivenAirflow, method: str, path: str, body: Any) -> str:
    from reconcile.errors import UnreachableError

    try:
        return str(driven.ask(method, path, body))
    except UnreachableError as error:
        return str(error)


def _status_of_a_stranger(address: str) -> int:
    try:
        with urlopen(Request(address), timeout=30) as answer:  # noqa: S310 - it is ours
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code
