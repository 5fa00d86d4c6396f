"""What DataHub is told of a run: assertions about the copies, by their datasets' names."""

from __future__ import annotations

import json
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from reconcile.contract.model import load_contract
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Finding, Status
from reconcile.errors import InvalidFileError, RefusedError
from reconcile.pipeline import datahub as telling
from reconcile.pipeline import report as stage
from reconcile.pipeline.handoffs import Verified
from reconcile.pipeline.scope import Ids
from reconcile.quality.suites import Checked
from reconcile.settings.connections import DataHub, Folder, Lake, Store
from reconcile.settings.settings import Settings, load_settings
from tests.unit.handoffs import expected, verified, verified_link
from tests.unit.report_runs import AT, CONTRACT, LINK, checked, contract_file, finding, made_run
from tests.web_service import service

DATASET = "urn:li:dataset:(urn:li:dataPlatform:postgres,login.public.login_profile,PROD)"
URL = "postgresql://reader@login-db:5432/login"


def written(
    folder: Path,
    datahub: dict[str, Any],
    *findings: Finding,
    results: tuple[Checked, ...] = (),
    ended: Verified | None = None,
    readable: bool = True,
    text: str = CONTRACT,
    **run_options: Any,
) -> int:
    """Write the report of a run under settings with a DataHub; give the exit code that it has."""
    file = contract_file(folder, text)
    place, run = made_run(folder, findings, contract=file, **run_options)
    if results:
        checked(run, *results)
    if ended is not None:
        run.publish(ended, run.inputs("0" * 64, made_of=[]))
    settings = Settings.model_validate(
        {"workspace": place.root, "connections": {"login-db": {"url": URL}}, "datahub": datahub},
        context={"folder": folder},
    )
    return stage.publish(run, place, settings, load_contract(file) if readable else None).exit_code


def told(folder: Path, *findings: Finding, **changes: Any) -> list[dict[str, Any]]:
    """Write the report; give what DataHub was told, each with its aspect read."""
    with service() as (url, posted):
        written(folder, {"url": url, **changes.pop("datahub", {})}, *findings, **changes)
    return [{**each["proposal"], "aspect": json.loads(each["proposal"]["aspect"]["value"])} for each in posted]


def results_of(proposals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Choose the results among what was told."""
    return [each["aspect"]["result"] for each in proposals if each["aspectName"] == "assertionRunEvent"]


def test_a_copy_that_drifted_is_an_assertion_that_failed(tmp_path: Path) -> None:
    """On the copy's dataset, with the figures of the run, at the instant at which it compared."""
    info, platform, event = told(tmp_path, finding(), finding("u2", status=Status.IN_FLIGHT, cause=Cause.IN_FLIGHT))
    assert {"assertion"} == {each["entityType"] for each in (info, platform, event)}
    assert {"UPSERT"} == {each["changeType"] for each in (info, platform, event)}
    assert ["assertionInfo", "dataPlatformInstance", "assertionRunEvent"] == [
        each["aspectName"] for each in (info, platform, event)
    ]
    (urn,) = {each["entityUrn"] for each in (info, platform, event)}
    assert urn.startswith("urn:li:assertion:")
    assert {
        "type": "CUSTOM",
        "customAssertion": {"type": "Agreement with the source", "entity": DATASET},
        "source": {"type": "EXTERNAL"},
        "description": "The copy agrees with its source, but for what user-account/login tolerates",
        "customProperties": {"contract": "user-account", "consumer": "login"},
    } == info["aspect"]
    assert {"platform": "urn:li:dataPlatform:reconcile"} == platform["aspect"]
    figures = {"compared": "1000", "agreeing": "999", "drifted": "1", "latent": "0", "tolerated": "0", "in_flight": "1"}
    assert {
        "timestampMillis": int(AT.timestamp()) * 1000,
        "runId": "r1",
        "assertionUrn": urn,
        "asserteeUrn": DATASET,
        "status": "COMPLETE",
        "result": {
            "type": "FAILURE",
            "rowCount": 1000,
            "unexpectedCount": 1,
            "nativeResults": {"run": "r1", **figures, "cause.skipped": "1", "settled": "yes", "scope": "full"},
        },
    } == event["aspect"]


def test_a_proposal_is_posted_as_datahub_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the token that a reference leads to, and nothing of the rows' values."""
    monkeypatch.setenv("TOKEN", "let-me-in")
    asked: list[tuple[str, dict[str, str]]] = []
    with service(asked=asked) as (url, posted):
        written(tmp_path, {"url": f"{url}/", "token": "env:TOKEN"}, finding())
    assert {"/topsecret/aspects?action=ingestProposal"} == {path for path, _ in asked}
    assert {("Bearer let-me-in", "2.0.0", "application/json")} == {
        (had["Authorization"], had["X-Restli-Protocol-Version"], had["Content-Type"]) for _, had in asked
    }
    assert {"proposal"} == {name for each in posted for name in each}
    assert {"application/json"} == {each["proposal"]["aspect"]["contentType"] for each in posted}
    assert not [word for word in ("Zoiee", "Zoë", "u1", "let-me-in", "reader@") if word in json.dumps(posted)]


def test_without_a_token_none_is_sent(tmp_path: Path) -> None:
    """A DataHub without authentication wants no header."""
    asked: list[tuple[str, dict[str, str]]] = []
    with service(asked=asked) as (url, _):
        written(tmp_path, {"url": url})
    assert asked
    assert not any("Authorization" in headers for _, headers in asked)


def test_an_assertion_stays_the_same_from_night_to_night(tmp_path: Path) -> None:
    """Its URN is that of contract, consumer and dataset: another table's is another."""
    first, second, other = (tmp_path / name for name in ("1", "2", "3"))
    for each in (first, second, other):
        each.mkdir()
    one, two = told(first, finding()), told(second, run_id="r2")
    three = told(other, datahub={"env": "DEV"})
    assert one[0] == two[0]
    assert ["FAILURE", "SUCCESS"] == [results_of(each)[0]["type"] for each in (one, two)]
    assert one[0]["entityUrn"] != three[0]["entityUrn"]


def test_what_was_repaired_agrees(tmp_path: Path) -> None:
    """The result is what the verification makes of it."""
    (result,) = results_of(told(tmp_path, finding(), ended=verified(verified_link({"converged": 1}))))
    assert ("SUCCESS", 0, "1", "0") == (
        result["type"],
        result["unexpectedCount"],
        result["nativeResults"]["drifted"],
        result["nativeResults"]["still_different"],
    )


def test_a_copy_that_could_not_be_read_is_an_error(tmp_path: Path) -> None:
    """Without the message, which may name hosts."""
    (result,) = results_of(told(tmp_path, unread={LINK: "login-db.internal: connection refused"}))
    assert {"type": "ERROR", "error": {"type": "UNKNOWN_ERROR"}, "nativeResults": {"run": "r1"}} == result


def test_each_suite_of_the_copy_is_an_assertion(tmp_path: Path) -> None:
    """Met, failed, or not evaluated; those of the source and of the findings are about no copy."""
    results = (
        expected("copy", success=True),
        expected("own"),
        expected("own", success=True),
        expected("broken", exception="no such column: Zoë"),
        expected("source"),
        expected("findings"),
        expected("log", link=None),
    )
    proposals = told(tmp_path, finding(), results=results)
    infos = [each["aspect"] for each in proposals if each["aspectName"] == "assertionInfo"]
    assert [None, "copy", "own", "broken"] == [each["customProperties"].get("suite") for each in infos]
    assert {DATASET} == {each["customAssertion"]["entity"] for each in infos}
    assert 4 == len({each["entityUrn"] for each in proposals})
    _, *suites = results_of(proposals)
    assert ["SUCCESS", "FAILURE", "ERROR"] == [each["type"] for each in suites]
    assert {"run": "r1", "expectations": "2", "failed": "1"} == suites[1]["nativeResults"]
    assert "Zoë" not in json.dumps(proposals, ensure_ascii=False)


def test_results_link_to_the_web_app(tmp_path: Path) -> None:
    """The assertion to the contract's history, which stays, and each result to its run."""
    info, _, event = told(tmp_path, datahub={"web": "https://reconcile.internal/"})
    assert "https://reconcile.internal/history/user-account" == info["aspect"]["externalUrl"]
    assert "https://reconcile.internal/runs/r1" == event["aspect"]["result"]["externalUrl"]


def test_ids_that_were_named_say_nothing_of_the_copy(tmp_path: Path) -> None:
    """A run of them is not told: what agreed would stand for the whole copy."""
    assert [] == told(tmp_path, ids=Ids.of(["u1"]).ids)


def test_a_dataset_can_be_named(tmp_path: Path) -> None:
    """Where it is another than store and table say; what a query gives needs that."""
    text = CONTRACT.replace("table: login_profile", "query: select * from login_profile")
    dataset = "urn:li:dataset:(urn:li:dataPlatform:dbt,shop.login,PROD)"
    *_, event = told(tmp_path, text=text, datahub={"datasets": {LINK: dataset}})
    assert dataset == event["aspect"]["asserteeUrn"]


def test_a_copy_without_a_dataset_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With what to set."""
    with caplog.at_level(logging.WARNING):
        assert [] == told(tmp_path, text=CONTRACT.replace("table: login_profile", "query: select 1"))
    assert f"DataHub is not told of {LINK}: a query has no table; set `datahub.datasets`" in caplog.text


def test_without_a_contract_the_tables_are_not_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged."""
    with caplog.at_level(logging.WARNING):
        assert [] == told(tmp_path, readable=False)
    assert "DataHub was not told of r1: its contract cannot be read" in caplog.text


def test_a_datahub_that_refuses_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged with its status, asked for nothing more, and the run is what it is."""
    monkeypatch.setenv("TOKEN", "let-me-in")
    with service(lambda: 401) as (url, posted), caplog.at_level(logging.WARNING):
        assert 1 == written(tmp_path, {"url": url, "token": "env:TOKEN"}, finding())
    assert "DataHub was not told of r1: it answered 401" in caplog.text
    assert 1 == len(posted)
    assert not [word for word in ("topsecret", "let-me-in") if word in caplog.text]
    assert (tmp_path / "r1" / "report.html").exists()


def test_a_datahub_that_is_not_there_fails_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged with the reason."""
    with caplog.at_level(logging.WARNING):
        assert 0 == written(tmp_path, {"url": "http://127.0.0.1:9"})
    assert "DataHub was not told of r1: ConnectionRefusedError" in caplog.text


def test_a_datahub_that_does_not_answer_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the connection and says nothing: the first proposal's time is all that is waited for."""
    monkeypatch.setattr(telling, "_TO_ANSWER", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, caplog.at_level(logging.WARNING):
        assert 1 == written(tmp_path, {"url": f"http://127.0.0.1:{silent.getsockname()[1]}"}, finding())
    assert "DataHub was not told of r1: TimeoutError" in caplog.text


def test_one_that_is_slow_each_time_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All proposals have one deadline."""
    monkeypatch.setattr(telling, "_FOR_ALL", 0.0)
    with service() as (url, posted), caplog.at_level(logging.WARNING):
        assert 0 == written(tmp_path, {"url": url})
    assert "DataHub was not told of r1: TimeoutError" in caplog.text
    assert [] == posted


@pytest.mark.parametrize("token", ["", "let-me-in\r\nX-Other: y"])
def test_a_token_that_is_none_is_not_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """Missing, or nothing that a header can hold."""
    monkeypatch.setenv("TOKEN", token)
    with service() as (url, posted), caplog.at_level(logging.WARNING):
        assert 0 == written(tmp_path, {"url": url, "token": "env:TOKEN"})
    assert "DataHub was not told of r1" in caplog.text
    assert "let-me-in" not in caplog.text
    assert [] == posted


@pytest.mark.parametrize(
    ("url", "table", "store", "name"),
    [
        (URL, "login_profile", {}, "postgres,login.public.login_profile"),
        (URL, "app.login_profile", {"instance": "eu"}, "postgres,eu.login.app.login_profile"),
        ("mysql://reader@db/login", "profile", {}, "mysql,login.profile"),
        ("mariadb://reader@db/login", "profile", {"platform": "mysql"}, "mysql,login.profile"),
        ("postgresql://reader@db/a,b", "t", {}, "postgres,a%2Cb.public.t"),
        ("jdbc:oracle:thin:@db:1521/x", "app.t", {"platform": "oracle"}, "oracle,app.t"),
    ],
)
def test_tables_have_the_names_that_datahub_gives_them(url: str, table: str, store: dict[str, str], name: str) -> None:
    """Database, schema and table; the instance before them."""
    datahub = DataHub.model_validate({"url": "https://datahub", "stores": {"db": store}})
    urn = datahub.dataset("db", Store.model_validate({"url": url}), table)
    assert f"urn:li:dataset:(urn:li:dataPlatform:{name},PROD)" == urn


@pytest.mark.parametrize(
    "connection", [Folder.model_validate({"path": "x"}), Lake.model_validate({"warehouse": "x", "format": "iceberg"})]
)
def test_other_stores_need_a_platform(connection: Folder | Lake) -> None:
    """Nothing says what DataHub calls them."""
    datahub = DataHub.model_validate({"url": "https://datahub"})
    with pytest.raises(RefusedError, match=r"set `datahub\.stores\.files\.platform`"):
        datahub.dataset("files", connection, "t")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{url: 'https://datahub', token: plain}", "token"),
        ("{url: datahub}", "url"),
        ("{url: 'https://me:secret@datahub'}", "url"),
        ("{url: 'https://datahub', datasets: {a/b: login}}", "expected a dataset's URN"),
        (f"{{url: 'https://datahub', datasets: {{login: '{DATASET}'}}}}", "is no link: write contract/consumer"),
        ("{url: 'https://datahub', web: 'https://me:secret@here'}", "web"),
        ("{url: 'https://datahub', stores: {login-bd: {platform: x}}}", 'did you mean "login-db"'),
    ],
)
def test_settings_that_lead_nowhere_are_problems(tmp_path: Path, text: str, where: str) -> None:
    """Said with their path, and without a value."""
    file = tmp_path / "reconcile.yaml"
    file.write_text(f"connections: {{login-db: {{url: '{URL}'}}}}\ndatahub: {text}\n")
    with pytest.raises(InvalidFileError, match=where) as caught:
        load_settings(file, environ={})
    assert "secret@" not in str(caught.value)
