"""What the report says of the expectations that a run was held against."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.domain.finding import Finding
from reconcile.pipeline.handoffs import Summary, results_of
from reconcile.pipeline.result import report_of
from reconcile.pipeline.runs import run_line
from reconcile.quality.gate import GateClosedError, require_open
from reconcile.quality.suites import Checked
from reconcile.report.html import report_html
from reconcile.report.json import report_data
from reconcile.report.model import Level, Report
from reconcile.report.prometheus import prometheus
from reconcile.settings.settings import Settings
from tests.unit.handoffs import expected, verified, verified_link
from tests.unit.report_runs import LINK, checked, finding, made_run

HOSTILE = "<script>alert('x')</script>"
MET = expected("source", success=True)
DRIFT = expected("findings", columns=["drift"], said="more differ than the contract tolerates")


def told(folder: Path, *results: Checked, findings: tuple[Finding, ...] = (), **made: Any) -> Report:
    """Give the report of a run of which these expectations were checked."""
    place, run = made_run(folder, findings, **made)
    checked(run, *results)
    return report_of(run, place, Settings(workspace=place.root))


def page(report: Report) -> str:
    """Give the one-file report."""
    return "".join(report_html(report))


class Cells(HTMLParser):
    """Collects the texts of the cells of tables with a caption, and whether each header says what it heads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.unscoped = 0
        self._within = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a caption or a cell."""
        self._within = self._within or tag == "caption"
        if self._within and tag in ("caption", "th", "td"):
            self.texts.append("")
            self.unscoped += tag == "th" and "scope" not in dict(attrs)

    def handle_endtag(self, tag: str) -> None:
        """Leave the table."""
        self._within = self._within and tag != "table"

    def handle_data(self, data: str) -> None:
        """Take what stands in it."""
        if self._within and self.texts:
            self.texts[-1] += data


def test_a_run_without_a_gate_says_nothing_of_expectations(tmp_path: Path) -> None:
    """None, and not that all are met."""
    place, run = made_run(tmp_path)
    report = report_of(run, place, Settings(workspace=place.root))
    assert (None, 0) == (report.quality, report.exit_code)
    assert "No expectations were checked." in page(report)


def test_expectations_are_counted_and_those_that_failed_are_kept(tmp_path: Path) -> None:
    """With all that is known of each."""
    quality = told(tmp_path, MET, expected()).quality
    assert quality is not None
    assert (2, 1) == (quality.total, quality.passed)
    assert [("own", LINK, ("phone",), "critical", 3, 1000, True)] == [
        (each.suite, each.link, each.columns, each.severity, each.unexpected, each.rows, each.stops)
        for each in quality.failed
    ]


@pytest.mark.parametrize(
    ("result", "findings", "level", "code", "verdict"),
    [
        (MET, (), Level.AGREES, 0, "The copy agrees with the source"),
        (
            expected(),
            (),
            Level.UNMET,
            1,
            "The copy agrees with the source, but 1 expectation of the data failed",
        ),
        (
            expected(),
            (finding(),),
            Level.DRIFT,
            1,
            "The copy has drifted: 1 of 1,000 aggregates differ, and 1 expectation of the data failed",
        ),
        (expected(severity="warning"), (), Level.AGREES, 0, "The copy agrees with the source"),
        (DRIFT, (finding(),), Level.DRIFT, 1, "The copy has drifted: 1 of 1,000 aggregates differ"),
    ],
    ids=["met", "failed", "failed beside drift", "a warning", "drift itself"],
)
def test_the_verdict_and_the_exit_code_tell_what_stops_a_repair(
    tmp_path: Path, result: Checked, findings: tuple[Finding, ...], level: Level, code: int, verdict: str
) -> None:
    """A warning stops nothing, and drift is told once."""
    report = told(tmp_path, result, findings=findings)
    assert (level, code, verdict) == (report.level, report.exit_code, report.verdict)


@pytest.mark.parametrize(("left", "failed", "said"), [(0, 0, "All 2"), (1, 1, "1 of 2")])
def test_what_was_repaired_does_not_fail_any_more(tmp_path: Path, left: int, failed: int, said: str) -> None:
    """Drift that was there before the corrections were verified is told as repaired; what still differs fails."""
    place, run = made_run(tmp_path, (finding(),))
    checked(run, MET, DRIFT)
    inputs = run.inputs("0" * 64, made_of=[Summary.ARTIFACT])
    run.publish(verified(verified_link({"converged": 1}, left), exit_code=left), inputs)
    report = report_of(run, place, Settings(workspace=place.root))
    assert report.quality is not None
    assert (failed, 1 - failed) == (len(report.quality.failed), report.quality.repaired)
    assert f"{said} expectations of the data" in page(report)
    done = CliRunner().invoke(cli, ["report", "r1", "--workspace", str(tmp_path)], catch_exceptions=False)
    assert ("more differ than" in done.stdout) == bool(failed)
    assert ("of them since the repair" in done.stdout) == (not failed)


def test_drift_that_is_tolerated_does_not_hide_what_failed(tmp_path: Path) -> None:
    """The contract tolerates drift, and no data that cannot be trusted."""
    report = told(tmp_path, expected(), expected(columns=["email"]), findings=(finding(),), exit_code=0)
    assert (Level.UNMET, 1) == (report.level, report.exit_code)
    assert "The copy agrees within the contract's tolerance, but 2 expectations of the data failed" == report.verdict


def test_a_run_that_could_not_tell_still_could_not(tmp_path: Path) -> None:
    """2 stays 2."""
    report = told(tmp_path, expected(), unread={LINK: "the store does not answer"})
    assert (Level.UNKNOWN, 2) == (report.level, report.exit_code)
    assert "login could not be compared with the source, and 1 expectation of the data failed" == report.verdict


def test_that_all_are_met_is_a_line(tmp_path: Path) -> None:
    """And no table."""
    text = page(told(tmp_path, MET, MET))
    assert "All 2 expectations of the data are met." in text
    assert [] == Cells(text).texts


def test_how_many_rows_were_read_is_said(tmp_path: Path) -> None:
    """That all expectations of no rows are met says little."""
    results = [expected(suite, success=True, rows=rows) for suite, rows in (("source", 0), ("copy", 7), ("copy", 5))]
    results += [expected("log", link=None, success=True, rows=1204), expected("findings", success=True, rows=3)]
    report = told(tmp_path, *results)
    assert report.quality is not None
    counted = [(f"{LINK} source", 0), (f"{LINK} copy", 7), ("log", 1204)]
    assert counted == [(each.name, each.number) for each in report.quality.read]
    text = page(report)
    assert f"Rows checked: 0 of {LINK} source, 7 of {LINK} copy, 1,204 of log." in text
    assert "--mode full" in text


def test_what_failed_is_a_table(tmp_path: Path) -> None:
    """In words, with a caption, and headers that say what they head."""
    bare = expected("log", link=None, columns=[], rows=None, why=None)
    cells = Cells(page(told(tmp_path, MET, expected(), bare)))
    texts = [" ".join(each.split()) for each in cells.texts]
    assert "2 of 3 expectations of the data failed. Nothing is repaired until they are met." == texts[0]
    assert "phone: 3 of 1,000 rows are missingsuite own" == texts[5]
    assert [LINK, "critical stops a repair", "everybody can be called"] == texts[6:9]
    assert ["user-account", "critical stops a repair", ""] == texts[10:]
    assert 0 == cells.unscoped


@pytest.mark.parametrize("name", ["why", "exception", "said", "suite", "severity", "link"])
def test_what_is_hostile_is_text(tmp_path: Path, name: str) -> None:
    """Suites are written by people, and exceptions quote what they met."""
    text = page(told(tmp_path, expected().model_copy(update={"severity": "warning", name: HOSTILE})))
    assert 1 == text.count("<script>")
    assert "&lt;script&gt;" in text


def test_an_exception_is_told(tmp_path: Path) -> None:
    """In place of an answer."""
    text = page(told(tmp_path, expected(rows=None, unexpected=None, exception="no column nowhere")))
    assert "phone: expect column values to not be null: could not be evaluated: no column nowhere" in text


def test_json_holds_what_failed(tmp_path: Path) -> None:
    """As the model has it."""
    data = json.loads(json.dumps(report_data(told(tmp_path, MET, expected())), allow_nan=False))
    assert ("unmet", 1) == (data["level"], data["exit_code"])
    assert (2, 1, ["phone"]) == (
        data["quality"]["total"],
        data["quality"]["passed"],
        data["quality"]["failed"][0]["columns"],
    )


def test_prometheus_counts_expectations(tmp_path: Path) -> None:
    """All of them, those that failed, and those that stop a repair."""
    lines = prometheus(told(tmp_path, MET, DRIFT, expected())).splitlines()
    assert 'reconcile_expectations{contract="user-account"} 3' in lines
    assert 'reconcile_expectations_failed{contract="user-account"} 2' in lines
    assert 'reconcile_expectations_stopping{contract="user-account"} 1' in lines
    assert 'reconcile_run_exit_code{contract="user-account"} 1' in lines


def test_prometheus_has_no_figures_of_a_gate_that_was_not_held(tmp_path: Path) -> None:
    """Nothing looks like zero failures."""
    place, run = made_run(tmp_path)
    assert "reconcile_expectations" not in prometheus(report_of(run, place, Settings(workspace=place.root)))


def test_a_report_that_is_rendered_again_knows_what_was_checked_since(tmp_path: Path) -> None:
    """The terminal names it too."""
    _, run = made_run(tmp_path)
    words = ["report", "r1", "--workspace", str(tmp_path)]
    before = CliRunner().invoke(cli, words, catch_exceptions=False)
    checked(run, expected(why=HOSTILE))
    after = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert "3 of 1,000 rows are missing" not in before.stdout
    assert "but 1 expectation of the data failed" in after.stdout.splitlines()[0]
    assert "3 of 1,000 rows are missing" in after.stdout
    assert "critical, stops a repair" in after.stdout
    assert "Data quality" in (Path(run.folder) / "report.html").read_text("utf-8")


def test_a_list_of_runs_tells_what_failed(tmp_path: Path) -> None:
    """An exit code of 1 that is not drift is not called drift."""
    place, run = made_run(tmp_path)
    checked(run, expected())
    line = run_line(place, "r1")
    assert (1, Level.UNMET, 0) == (line.exit_code, line.level, line.drifted)


def test_a_closed_gate_names_every_reason(tmp_path: Path) -> None:
    """Drift is none."""
    _, run = made_run(tmp_path)
    checked(run, DRIFT, expected(), expected("log", link=None, columns=[]))
    with pytest.raises(GateClosedError) as refused:
        require_open(results_of(run))
    assert [
        "nothing is planned or emitted:",
        f"  an expectation failed: {LINK}: phone: 3 of 1,000 rows are missing",
        "  an expectation failed: log: phone: 3 of 1,000 rows are missing",
    ] == str(refused.value).splitlines()


@pytest.mark.parametrize("results", [None, (), (MET,), (DRIFT,), (expected(severity="warning"),)])
def test_an_open_gate_refuses_nothing(tmp_path: Path, results: tuple[Checked, ...] | None) -> None:
    """Neither does one that was not held."""
    _, run = made_run(tmp_path)
    if results is not None:
        checked(run, *results)
    require_open(results_of(run))
