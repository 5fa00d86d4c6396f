"""Drift over the runs of a contract."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from reconcile.control.findings import Sighting
from reconcile.control.run_record import LinkFigures
from reconcile.control.store import open_control
from reconcile.pipeline.result import report_of
from reconcile.pipeline.trend import sparkline, trends
from reconcile.settings.settings import CONTROL_FILE, Settings
from tests.unit.report_runs import AT, LINK, finding, made_run


def test_past_runs_of_the_workspace_are_enough(tmp_path: Path) -> None:
    """Without a control store, and none is made by looking."""
    for number in range(3):
        at = AT - timedelta(days=number)
        place, _ = made_run(tmp_path, [finding(f"u{each}") for each in range(number)], run_id=f"r{number}", at=at)
    told, notes = trends(place, Settings(workspace=str(tmp_path)), "user-account")
    assert [(LINK, [("r2", 2), ("r1", 1), ("r0", 0)])] == [
        (each.link, [(point.run_id, point.drifted) for point in each.points]) for each in told
    ]
    assert () == notes
    assert not (tmp_path / CONTROL_FILE).exists()


def test_a_past_run_does_not_know_what_came_after_it(tmp_path: Path) -> None:
    """Its report renders as it was."""
    made_run(tmp_path, [finding()], run_id="later", at=AT + timedelta(days=1))
    place, run = made_run(tmp_path, run_id="now")
    told = report_of(run, place, Settings(workspace=str(tmp_path)))
    assert ["now"] == [point.run_id for point in told.trends[0].points]


def test_a_damaged_run_is_told_and_left_out(tmp_path: Path) -> None:
    """Of every report but its own."""
    made_run(tmp_path, [finding()], run_id="damaged", at=AT - timedelta(days=1))
    (tmp_path / "damaged" / "summary" / "data.json").unlink()
    place, run = made_run(tmp_path, run_id="now")
    told = report_of(run, place, Settings(workspace=str(tmp_path)))
    assert ["now"] == [point.run_id for point in told.trends[0].points]
    assert ("Damaged runs are not in the trend: damaged.",) == told.notes


def test_runs_of_other_contracts_do_not_count(tmp_path: Path) -> None:
    """A trend is of one contract."""
    place, _ = made_run(tmp_path)
    assert ((), ()) == trends(place, Settings(workspace=str(tmp_path)), "user-balance")


def test_the_control_store_adds_runs_that_are_gone_and_what_changed(tmp_path: Path) -> None:
    """What is new, came back, is gone and is open."""
    place, _ = made_run(tmp_path, [finding()], run_id="r1", at=AT + timedelta(days=3650))
    settings = Settings(workspace=str(tmp_path))
    with open_control(settings) as control:
        for run_id in ("r0", "r1"):
            control.runs.begin(run_id, "user-account", "0" * 64)
            control.findings.record(run_id, LINK, [Sighting("u1", "changed", "skipped")], complete=True)
            figures = LinkFigures(LINK, True, 1000, 998, 2, {"skipped": 2}, {"changed": 1, "latent": 1}, 0)
            control.runs.end(run_id, complete=True, exit_code=1, links=[figures])
    told, _ = trends(place, settings, "user-account")
    assert [("r0", 1, 1), ("r1", 1, 0)] == [(each.run_id, each.drifted, each.opened) for each in told[0].points]


def test_a_finding_says_what_earlier_runs_knew_of_it(tmp_path: Path) -> None:
    """When it was seen first, and how often since."""
    place, run = made_run(tmp_path, [finding()])
    settings = Settings(workspace=str(tmp_path))
    with open_control(settings) as control:
        for run_id in ("r0", "r1"):
            control.runs.begin(run_id, "user-account", "0" * 64)
            control.findings.record(run_id, LINK, [Sighting("u1", "changed", "skipped")], complete=True)
    known = report_of(run, place, settings).shown[0].known
    assert known is not None
    assert ("r0", 1, 0) == (known.first_seen_run, known.recurrences, known.returned)


def test_a_control_store_that_does_not_answer_is_told_and_stops_nothing(tmp_path: Path) -> None:
    """The report of a run needs its artifacts alone."""
    file = tmp_path / "reconcile.yaml"
    file.write_text(f"workspace: {tmp_path}\ncontrol_store: {{url: 'postgresql://nobody@127.0.0.1:1/none'}}\n", "utf-8")
    from reconcile.settings.settings import load_settings

    place, run = made_run(tmp_path, [finding()])
    told = report_of(run, place, load_settings(file))
    assert ["The control store did not answer: the trend shows only runs that are still in the workspace."] == [
        *told.notes
    ]


@pytest.mark.parametrize(("numbers", "line"), [([], ""), ([0, 0], "▁▁"), ([0, 1, 7], "▁▂█"), ([5], "█")])
def test_a_sparkline_is_as_high_as_its_highest(numbers: list[int], line: str) -> None:
    """What is not nothing does not look like nothing."""
    assert line == sparkline(numbers)
