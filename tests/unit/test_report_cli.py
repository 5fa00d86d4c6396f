"""`reconcile report`, `reconcile history` and `reconcile web`."""

from __future__ import annotations

import json
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from click.testing import CliRunner, Result
from fastapi.testclient import TestClient

from reconcile.cli import cli
from reconcile.cli.findings import SHOWN
from reconcile.cli.web import is_loopback
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Confidence, Difference, Finding, Status
from reconcile.errors import RefusedError
from reconcile.settings.settings import Settings
from reconcile.web.app import web_app
from reconcile.workspace.workspace import UnknownRunError, Workspace
from tests.schemas import valid_output
from tests.unit.report_runs import AT, case, contract_file, finding, made_run


def world(folder: Path, *findings: Finding) -> Path:
    """Make a workspace with a run; give the contract's file."""
    file = contract_file(folder)
    made_run(folder / "runs", findings, contract=file)
    return file


def reconcile(folder: Path, *words: str) -> Result:
    """Run a command on it."""
    return CliRunner().invoke(cli, [*words, "--workspace", str(folder / "runs")], catch_exceptions=False)


def test_report_shows_the_verdict_and_names_the_file(tmp_path: Path) -> None:
    """Data on stdout, words on stderr."""
    world(tmp_path, finding())
    done = reconcile(tmp_path, "report", "r1")
    assert 0 == done.exit_code
    assert done.stdout.startswith("The copy has drifted: 1 of 1,000 aggregates differ\n")
    following = f"next: reconcile findings r1 --workspace {tmp_path}/runs\n"
    assert f"written to {tmp_path}/runs/r1/report.html\n{following}" == done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["report", "last", "--json"],
        ["report", "--run", "last", "--json"],
        ["findings", "last", "--json"],
        ["findings", "--run", "r2", "--json"],
        ["explain", "last", "u1", "--json"],
        ["explain", "--run", "r2", "u1", "--json"],
    ],
)
def test_a_run_is_named_first_or_by_its_option_and_the_newest_is_last(tmp_path: Path, words: list[str]) -> None:
    """What is printed has its id."""
    file = world(tmp_path, finding())
    made_run(tmp_path / "runs", [finding()], [case("u1")], contract=file, run_id="r2")
    assert "r2" == json.loads(reconcile(tmp_path, *words).stdout)["run_id"]


def test_a_workspace_without_runs_has_no_last(tmp_path: Path) -> None:
    """It is said what makes one."""
    with pytest.raises(RefusedError, match="`reconcile run CONTRACT` makes one"):
        reconcile(tmp_path, "report", "last")


@pytest.mark.parametrize("command", ["audit", "quality", "plan", "apply", "verify", "report", "findings"])
def test_every_stage_takes_a_run_in_the_same_way(tmp_path: Path, command: str) -> None:
    """First, or by its option: both find that there is none of this name."""
    world(tmp_path)
    for words in (["none"], ["--run", "none"]):
        with pytest.raises(UnknownRunError, match='no run "none"'):
            reconcile(tmp_path, command, *words)


@pytest.mark.parametrize("words", [[], ["--cause", "skipped"], ["--cause", "expired", "--cause", "skipped"]])
def test_findings_are_chosen_by_their_cause(tmp_path: Path, words: list[str]) -> None:
    """Causes are written as findings have them."""
    world(tmp_path, finding())
    found = valid_output("findings", reconcile(tmp_path, "findings", "r1", "--json", *words).stdout)["findings"]
    assert ["skipped"] == [each["cause"] for each in found]


def test_findings_of_another_cause_are_left_out(tmp_path: Path) -> None:
    """And one that is none is refused with those that there are."""
    world(tmp_path, finding())
    assert (
        [] == json.loads(reconcile(tmp_path, "findings", "r1", "--json", "--cause", "out_of_order").stdout)["findings"]
    )
    assert "out_of_order" in reconcile(tmp_path, "findings", "r1", "--cause", "nonsense").stderr


ORDERED = ("lost", "wrong", "unsure", "surplus", "latent", "late")


def unordered() -> list[Finding]:
    """Give findings whose ids say how much they matter, in another order."""
    return [
        finding("late", status=Status.IN_FLIGHT, difference=Difference.MISSING),
        finding("latent", difference=Difference.LATENT, since=AT - timedelta(days=90)),
        finding("surplus", difference=Difference.ORPHAN, cause=Cause.PHANTOM),
        finding("unsure", confidence=Confidence.PROBABLE, since=AT - timedelta(days=80)),
        finding("wrong"),
        finding("lost", difference=Difference.MISSING),
    ]


def test_what_matters_most_is_first_everywhere(tmp_path: Path) -> None:
    """In the terminal, the report and the web app alike."""
    world(tmp_path, *unordered())
    told = reconcile(tmp_path, "findings", "r1", "--format", "table").stdout
    assert list(ORDERED) == [
        line.split()[0] for line in told.splitlines() if line.startswith(tuple(f" {each} " for each in ORDERED))
    ]
    report = json.loads(reconcile(tmp_path, "report", "r1", "--json").stdout)
    assert list(ORDERED) == [each["finding"]["aggregate_id"] for each in report["shown"]]
    place = Workspace(tmp_path / "runs")
    page = TestClient(web_app(place, Settings(workspace=place.root))).get("/runs/r1/findings").text
    assert sorted(ORDERED, key=lambda each: page.index(f"<code>{each}</code>")) == list(ORDERED)


def test_findings_begin_with_their_causes(tmp_path: Path) -> None:
    """Each with its number, what it is, and the commands that mend it."""
    world(tmp_path, *unordered())
    told = reconcile(tmp_path, "findings", "r1", "--format", "table", "--limit", "2")
    assert "5   skipped   The consumer went past an event without applying it." in told.stdout
    assert "skipped, phantom:\n  reconcile plan r1\n  reconcile apply r1\n" in told.stdout
    assert "4 more: `--limit 6` shows all" in told.stderr


def test_a_terminal_gets_a_screenful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is told how to see the rest; what a program reads is whole."""
    world(tmp_path, *(finding(f"u{number:02}") for number in range(SHOWN + 5)))
    assert SHOWN + 5 == len(reconcile(tmp_path, "findings", "r1").stdout.splitlines())
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    told = reconcile(tmp_path, "findings", "r1")
    assert "5 more: `--limit 35` shows all" in told.stderr
    assert SHOWN == sum(line.startswith(" u") for line in told.stdout.splitlines())


def test_report_as_json_names_its_artifacts(tmp_path: Path) -> None:
    """One object, with the path of each rendering."""
    world(tmp_path, finding())
    data = valid_output("report", reconcile(tmp_path, "report", "--run", "r1", "--json").stdout)
    assert (1, "r1", "drift") == (data["schema_version"], data["run_id"], data["level"])
    assert {"html", "csv", "json", "prometheus"} == set(data["artifacts"])


@pytest.mark.parametrize(
    ("form", "begins"),
    [
        ("html", "<!doctype html>"),
        ("csv", "link,aggregate_id,"),
        ("json", '{"schema_version": 1,'),
        ("prometheus", "# HELP"),
    ],
)
def test_one_format_goes_to_stdout_and_leaves_the_run_alone(tmp_path: Path, form: str, begins: str) -> None:
    """So that it can be piped."""
    world(tmp_path, finding())
    assert reconcile(tmp_path, "report", "r1", "--format", form).stdout.startswith(begins)
    assert [] == [each for each in (tmp_path / "runs" / "r1").iterdir() if each.is_file()]


def test_one_format_goes_to_a_file(tmp_path: Path) -> None:
    """Anywhere."""
    world(tmp_path, finding())
    reconcile(tmp_path, "report", "r1", "--format", "csv", "--output", str(tmp_path / "x.csv"))
    assert 2 == len((tmp_path / "x.csv").read_text("utf-8").splitlines())


@pytest.mark.parametrize("words", [["report"], ["report", "r1", "--run", "r1"], ["report", "r1", "--output", "x"]])
def test_what_is_asked_for_twice_or_not_at_all_is_refused(tmp_path: Path, words: list[str]) -> None:
    """With how to use it."""
    assert "Usage:" in CliRunner().invoke(cli, words).stderr


def test_history_shows_runs_and_a_sparkline(tmp_path: Path) -> None:
    """Newest first, beneath the line of all."""
    file = world(tmp_path, finding())
    lines = reconcile(tmp_path, "history", str(file)).stdout.splitlines()
    assert "user-account/login  █" == lines[0]
    assert ["r1", "2026-03-01", "12:00", "1,000", "1", "-", "-", "-", "-", "-"] == lines[4].split()


def test_history_is_also_one_html_file(tmp_path: Path) -> None:
    """Which stands alone as the report does."""
    file = world(tmp_path, finding())
    reconcile(tmp_path, "history", str(file), "--html", str(tmp_path / "h.html"))
    text = (tmp_path / "h.html").read_text("utf-8")
    assert "Content-Security-Policy" in text
    assert "user-account/login" in text


def test_history_as_json(tmp_path: Path) -> None:
    """One object."""
    file = world(tmp_path, finding())
    data = valid_output("history", reconcile(tmp_path, "history", str(file), "--json").stdout)
    assert [["r1"]] == [[point["run_id"] for point in link["points"]] for link in data["links"]]


def test_a_history_of_nothing_is_told(tmp_path: Path) -> None:
    """In words, and no table."""
    done = reconcile(tmp_path, "history", str(contract_file(tmp_path)))
    assert ("", "no run of user-account is known\n") == (done.stdout, done.stderr)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_of_this_machine_alone(host: str) -> None:
    """Only this machine reaches it."""
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "127.0.0.1.example.org"])  # noqa: S104
def test_elsewhere_is_not_loopback(host: str) -> None:
    """Others reach it."""
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104
def test_the_web_app_makes_a_token_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """32 bytes by chance: in an address that lets one browser in; others are told of only where they can be there."""
    made: dict[str, Any] = {}

    def app(*_: Any, **access: Any) -> None:
        made.update(access)

    monkeypatch.setattr("reconcile.web.app.web_app", app)
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    said = [reconcile(tmp_path, "web", "--host", host, "--port", "19482").stderr for _ in range(2)][-1]
    assert f"/?token={made['ticket']}\n" in said
    assert (host != "127.0.0.1") == (made["token"] in said)
    assert made["ticket"] != made["token"]
    assert [43, 43] == [len(made[each]) for each in ("ticket", "token")]


def test_a_token_that_is_given_stands_in_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it said."""
    monkeypatch.setenv("RECONCILE_WEB_TOKEN", "s3cret-of-ours")
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    said = reconcile(tmp_path, "web", "--port", "19483", "--token", "env:RECONCILE_WEB_TOKEN").stderr
    assert "http://127.0.0.1:19483/\n" == said


def test_a_visitor_chooses_no_address_of_his_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each guess at the token would come from another one, and nobody would have to wait."""
    served: list[uvicorn.Config] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, **_: served.append(server.config))
    reconcile(tmp_path, "web", "--port", "19484")
    served[0].load()
    visitor = TestClient(served[0].loaded_app, base_url="http://localhost", client=("127.0.0.1", 1))
    guesses = [
        visitor.post("/token", data={"token": "guess"}, headers={"x-forwarded-for": f"192.0.2.{number}"}).status_code
        for number in range(11)
    ]
    assert [*[401] * 10, 429] == guesses


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    """With what to do, and not with the exit code of drift."""
    with socket.create_server(("127.0.0.1", 19481)), pytest.raises(RefusedError, match="choose another --port"):
        reconcile(tmp_path, "web", "--port", "19481")


def test_a_token_is_a_reference(tmp_path: Path) -> None:
    """A secret on a command line is everybody's, and is not said again."""
    with pytest.raises(RefusedError) as refused:
        reconcile(tmp_path, "web", "--token", "s3cret")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("beside", [True, False])
def test_one_file_tells_where_all_findings_are(tmp_path: Path, beside: bool) -> None:
    """It links to the CSV only where that stands beside it, and always names the command."""
    world(tmp_path, *(finding(f"{number:04d}") for number in range(501)))
    file = tmp_path / ("runs/r1" if beside else "") / "elsewhere.html"
    reconcile(tmp_path, "report", "r1", "--format", "html", "--output", str(file))
    text = file.read_text("utf-8")
    assert "<code>reconcile findings r1 --format csv</code> lists all of them." in text
    assert beside == ('<a href="findings.csv">' in text)
