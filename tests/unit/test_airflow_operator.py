"""`ReconcileOperator`, in any team's DAG: what it runs, when it fails, whom it tells, and what lineage it leaves."""

from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from pydoc import locate
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from reconcile.airflow.installation import Installation
from reconcile.airflow.provider import get_provider_info
from reconcile.airflow.scheduled_run import run_id_of
from reconcile.contract.model import load_contract
from reconcile.pipeline.handoffs import Plan, Summary
from reconcile.quality.suites import Checked
from reconcile.workspace.run import Run
from tests.unit.handoffs import expected
from tests.unit.report_runs import CONTRACT, LINK, checked, contract_file, finding, made_run

pytest.importorskip("airflow.sdk", reason="Airflow is not installed")

AT = datetime(2026, 3, 1, tzinfo=UTC)
DAG_RUN = SimpleNamespace(dag_id="d", run_id="m", run_after=AT, triggering_user_name="alice", run_type="manual")
TASK = SimpleNamespace(dag_id="d", run_id="m", task_id="t", map_index=-1)
UNASKED = CONTRACT.replace("policy: ignore}", "policy: ignore}\n    repair: {approval: none}")
MET = expected("source", success=True)


@dataclass
class Told:
    """A notifier that keeps what its template was rendered with."""

    contexts: list[dict[str, Any]] = field(default_factory=list)
    fails: bool = False

    def __call__(self, context: dict[str, Any]) -> None:
        """Take an incident, or fail."""
        if self.fails:
            raise OSError("no network")
        self.contexts.append(context["incident"])


@pytest.fixture
def submitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Keep what is submitted to Spark in place of running it."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    monkeypatch.setenv("RECONCILE_JARS", str(tmp_path))
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "some.jar").touch()
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from reconcile.airflow import lineage, operators, review

    place = Installation(None, str(tmp_path / "runs"), tmp_path)
    for each in (operators, review, lineage):
        monkeypatch.setattr(each, "installation", lambda: place)
    commands: list[list[str]] = []
    monkeypatch.setattr(
        SparkSubmitHook, "submit", lambda hook, script: commands.append(hook._build_spark_submit_command(script))
    )
    return commands


def audited(folder: Path, *results: Checked, drifted: bool = True, contract: str = UNASKED) -> Run:
    """Make the run that the operator's applications would leave."""
    file = contract_file(folder, contract)
    run_id = run_id_of(file, "d", "m", AT, "t[-1]")
    _, run = made_run(folder / "runs", [finding()] if drifted else [], contract=file, run_id=run_id)
    checked(run, *(results or (MET,)))
    digest = load_contract(file).digest
    plan = Plan.sealed(run_id=run_id, contract="user-account", contract_digest=digest, made_of={})
    run.publish(plan, run.inputs("0" * 64, made_of=[Summary.ARTIFACT]))
    return run


def execute(folder: Path, contract: str = "user-account", **given: Any) -> Any:
    """Run the operator as a task would."""
    from reconcile.airflow.operators import ReconcileOperator

    operator = ReconcileOperator(task_id="t", contract=contract, **given)
    context: Any = {"dag_run": DAG_RUN, "ti": TASK, "outlet_events": {}}
    return operator, operator.execute(context)


def test_a_dry_run_returns_the_figures_and_tells_one_incident(tmp_path: Path, submitted: list[list[str]]) -> None:
    """Whatever a notifier raises is no failure of the run; its key is the contract's, so that a pager groups nights."""
    run, told = audited(tmp_path), Told()
    _, figures = execute(tmp_path, ids=["u1"], consumers=["login"], notifiers=[Told(fails=True), told])
    (command,) = submitted
    assert "gather,audit,quality,plan" == command[command.index("--stages") + 1]
    assert ("login", "alice") == (
        command[command.index("--consumer") + 1],
        json.loads(command[command.index("--requester") + 1])["name"],
    )
    assert (run.id, 1) == (figures["run_id"], figures["exit_code"])
    (incident,) = told.contexts
    assert ("reconcile/user-account", "warning", f"{LINK}: 1 of 1,000 differ") == (
        incident["key"],
        incident["severity"],
        incident["text"],
    )
    assert incident["title"].startswith("user-account: The copy has drifted")
    assert (Path(run.folder) / "report.html").exists()


@pytest.mark.parametrize(
    ("given", "results", "drifted", "why"),
    [
        ({"fail_on_drift": True}, (MET,), True, "1 of 1,000 differ"),
        ({}, (expected(),), False, "phone: 3 of 1,000 rows are missing"),
    ],
)
def test_it_fails_after_it_has_reported(
    tmp_path: Path, submitted: list[list[str]], given: dict[str, Any], results: Any, drifted: bool, why: str
) -> None:
    """On drift if that is asked for, and on data that cannot be trusted always."""
    from airflow.sdk.exceptions import AirflowFailException

    run = audited(tmp_path, *results, drifted=drifted)
    with pytest.raises(AirflowFailException, match=why):
        execute(tmp_path, **given)
    assert 1 == len(submitted)
    assert (Path(run.folder) / "report.html").exists()


def test_agreement_tells_nobody(tmp_path: Path, submitted: list[list[str]]) -> None:
    """Neither does a file in place of a name make a difference."""
    audited(tmp_path, drifted=False)
    told = Told()
    execute(tmp_path, str(tmp_path / "user-account.yaml"), fail_on_drift=True, notifiers=[told], apply=True)
    assert ([], 1) == (told.contexts, len(submitted))


@pytest.mark.parametrize(
    ("contract", "text", "why"),
    [("user-account", CONTRACT, "a person approves corrections of login"), ("user", UNASKED, 'no contract "user"')],
)
def test_what_cannot_be_is_refused_before_spark(
    tmp_path: Path, submitted: list[list[str]], contract: str, text: str, why: str
) -> None:
    """A repair that needs a person, and a contract that is not there."""
    from airflow.sdk.exceptions import AirflowFailException

    contract_file(tmp_path, text)
    with pytest.raises(AirflowFailException, match=why):
        execute(tmp_path, contract, apply=True)
    assert [] == submitted


def test_without_openlineage_there_is_no_lineage(tmp_path: Path, submitted: list[list[str]]) -> None:
    """And nothing of it is imported with the operator."""
    assert None is find_spec("openlineage")
    assert not submitted
    audited(tmp_path)
    operator, _ = execute(tmp_path)
    assert None is operator.get_openlineage_facets_on_complete(None)


def test_lineage_says_what_was_expected_of_each_table(
    tmp_path: Path, submitted: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names that OpenLineage gives to databases; what it is told of a copy is that it agrees, too."""
    assert not submitted
    _openlineage(monkeypatch)
    monkeypatch.setenv("RECONCILE_CONN_USER_DB", "postgresql://me:secret@db:5433/users")
    monkeypatch.setenv("RECONCILE_CONN_LOGIN_DB", "mariadb://me:secret@db2/login")
    monkeypatch.setenv("RECONCILE_CONN_MAIN", "kafka:9092")
    settings = tmp_path / "reconcile.yaml"
    urls = {"user-db": {"url": "env:RECONCILE_CONN_USER_DB"}, "login-db": {"url": "env:RECONCILE_CONN_LOGIN_DB"}}
    settings.write_text(json.dumps({"workspace": str(tmp_path / "runs"), "connections": urls}))
    place = Installation(settings, str(tmp_path / "runs"), tmp_path)
    monkeypatch.setattr("reconcile.airflow.lineage.installation", lambda: place)
    audited(tmp_path, MET, expected("own", severity="warning"))
    operator, _ = execute(tmp_path)
    source, copy = operator.get_openlineage_facets_on_complete(None).inputs
    assert ("postgres://db:5433", "users.public.user_account") == (source.namespace, source.name)
    assert ("mysql://db2:3306", "login.login_profile") == (copy.namespace, copy.name)
    told = [
        [(each.assertion, each.success, each.column) for each in one.inputFacets["dataQualityAssertions"].assertions]
        for one in (source, copy)
    ]
    assert [
        [("source.not_be_null", True, "phone")],
        [("agrees_with_source", False, None), ("own.not_be_null", False, "phone")],
    ] == told


def _openlineage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put modules in place of OpenLineage's client and of Airflow's provider, with the names that they have."""

    def made(name: str, **content: Any) -> ModuleType:
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    facet = made(
        "openlineage.client.facet_v2.data_quality_assertions_dataset",
        Assertion=SimpleNamespace,
        DataQualityAssertionsDatasetFacet=SimpleNamespace,
    )
    made("openlineage")
    made("openlineage.client")
    made("openlineage.client.event_v2", InputDataset=SimpleNamespace)
    made("openlineage.client.facet_v2", data_quality_assertions_dataset=facet)
    made("airflow.providers.openlineage")
    made("airflow.providers.openlineage.extractors", OperatorLineage=SimpleNamespace)


def test_airflow_takes_what_the_provider_says() -> None:
    """By its own schema; and each thing that is named is there."""
    from airflow.providers_manager import _create_provider_info_schema_validator

    info = get_provider_info()
    _create_provider_info_schema_validator().validate(info)  # type: ignore[no-untyped-call]
    for each in (*info["notifications"], *info["extra-links"], "reconcile.airflow.operators.ReconcileOperator"):
        assert locate(each)


def test_the_package_names_its_provider() -> None:
    """Airflow finds it by the entry point."""
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    named = scripts["project"]["entry-points"]["apache_airflow_provider"]["provider_info"]
    assert get_provider_info is EntryPoint("provider_info", named, "apache_airflow_provider").load()
