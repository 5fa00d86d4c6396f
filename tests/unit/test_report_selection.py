"""Runs of selected aggregates or copies."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reconcile.domain.finding import Finding
from reconcile.pipeline.handoffs import RunScope
from reconcile.pipeline.result import report_of
from reconcile.pipeline.runs import run_line
from reconcile.pipeline.trend import trends
from reconcile.report.html import report_html
from reconcile.report.model import Report, Selection
from reconcile.report.prometheus import prometheus
from reconcile.settings.settings import Settings
from tests.unit.report_runs import AT, finding, made_run

CHANGED = RunScope(kind="changed", since="r0", ids=3, aggregates=1000, terms="t")
IDS = {"ids": ["a", "b", "c"], "compared": 2}


def told(folder: Path, *findings: Finding, **made: Any) -> Report:
    """Give the report of a run."""
    place, run = made_run(folder, findings, **made)
    return report_of(run, place, Settings(workspace=place.root))


@pytest.mark.parametrize(
    ("findings", "ids", "verdict"),
    [
        ((), ["a"], "The copy agrees with the source in the requested aggregate"),
        ((), ["a", "b", "a"], "The copy agrees with the source in the 2 requested aggregates"),
        ((finding("a"),), ["a", "b"], "The copy has drifted: 1 of 2 requested aggregates differ"),
    ],
)
def test_the_verdict_is_about_the_requested_aggregates_only(
    tmp_path: Path, findings: tuple[Finding, ...], ids: list[str], verdict: str
) -> None:
    """What was not looked at may be anything."""
    assert verdict == told(tmp_path, *findings, ids=ids, compared=len(ids)).verdict


def test_a_run_of_some_aggregates_stays_out_of_trends(tmp_path: Path) -> None:
    """Of others, and of its own report."""
    made_run(tmp_path, [finding()], run_id="few", at=AT - timedelta(days=1), **IDS)  # type: ignore[arg-type]
    place, whole = made_run(tmp_path, run_id="whole")
    settings = Settings(workspace=place.root)
    assert [["whole"]] == [
        [point.run_id for point in each.points] for each in trends(place, settings, "user-account")[0]
    ]
    assert () == report_of(place.run("few"), place, settings).trends
    assert 1 == len(report_of(whole, place, settings).trends)


def test_its_metrics_are_series_of_their_own(tmp_path: Path) -> None:
    """They overwrite nothing that whole runs told."""
    lines = prometheus(told(tmp_path, finding("a"), **IDS)).splitlines()
    assert [] == [each for each in lines if not each.startswith("#") and 'part="ids"' not in each]


def test_a_run_of_some_copies_has_their_own_series(tmp_path: Path) -> None:
    """Its exit code is not that of the contract; its copies were compared as a whole."""
    lines = prometheus(told(tmp_path, finding("a"), consumers=["login"])).splitlines()
    assert 'reconcile_run_exit_code{contract="user-account",part="consumers"} 1' in lines
    assert 'reconcile_drifted{link="user-account/login"} 1' in lines


def test_people_see_what_was_requested(tmp_path: Path) -> None:
    """In the report and in the list of runs."""
    report = told(tmp_path, finding("a"), consumers=["login"], **IDS)
    assert Selection(3, ("login",)) == report.selection
    assert "Requested: 3 aggregates of login only. This run is not part of drift over time." in "".join(
        report_html(report)
    )
    place, _ = made_run(tmp_path, run_id="r2", **IDS)  # type: ignore[arg-type]
    assert 3 == run_line(place, "r2").requested


def test_people_see_what_may_have_changed(tmp_path: Path) -> None:
    """In the verdict, the report and the list of runs; such a run is no point of the trend."""
    report = told(tmp_path, finding("a"), compared=3, scope=CHANGED)
    assert "The copy has drifted: 1 of 3 changed aggregates differ" == report.verdict
    assert ("changed", None, ()) == (report.kind, report.full_because, report.trends)
    html = "".join(report_html(report))
    assert "Looked at: 3 aggregates that may have changed since <code>r0</code>. This run is not part of" in html
    place, _ = made_run(tmp_path, run_id="r2", compared=3, scope=CHANGED)
    line = run_line(place, "r2")
    assert ("changed", "r0", 3) == (line.kind, line.since, line.requested)
    assert () == trends(place, Settings(workspace=place.root), "user-account")[0]


def test_a_changed_only_run_has_series_of_its_own(tmp_path: Path) -> None:
    """They overwrite nothing that whole runs told."""
    lines = prometheus(told(tmp_path, finding("a"), compared=3, scope=CHANGED)).splitlines()
    assert [] == [each for each in lines if not each.startswith("#") and 'part="changed"' not in each]


def test_what_escaped_is_said(tmp_path: Path) -> None:
    """In the notes and figures of the full run, its metrics, the list of runs and over time; and why it is one."""
    scope = RunScope(kind="full", reason="one run in 7 is a full one", terms="t", after=("r0",))
    report = told(tmp_path, finding("a"), scope=scope, escaped=1)
    assert ("full", "one run in 7 is a full one", 1) == (report.kind, report.full_because, report.links[0].escaped)
    assert (
        "All aggregates were compared, though only changes were asked for: one run in 7 is a full one.",
        "user-account/login: 1 differs that no changed-only run since the last full one could see.",
    ) == report.notes[:2]
    assert "<dt>escaped</dt><dd>1</dd>" in "".join(report_html(report))
    assert 'reconcile_escaped{link="user-account/login"} 1' in prometheus(report).splitlines()
    assert [1] == [point.escaped for each in report.trends for point in each.points]
    place, _ = made_run(tmp_path, run_id="r2", scope=scope, escaped=2)
    assert ("full", None, 2) == (run_line(place, "r2").kind, run_line(place, "r2").since, run_line(place, "r2").escaped)
