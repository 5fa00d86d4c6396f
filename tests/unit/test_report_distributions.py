"""What a report shows of how values were distributed: out of the control store, up to its run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconcile.contract.model import load_contract
from reconcile.control.store import open_control
from reconcile.domain.distribution import Distribution, FieldDistribution, Side
from reconcile.pipeline.distributions import checked
from reconcile.pipeline.result import report_of
from reconcile.report.html import report_html
from reconcile.report.model import Report
from reconcile.report.prometheus import prometheus
from reconcile.settings.settings import Settings
from tests.unit.report_runs import CONTRACT, LINK, contract_file, made_run

HOSTILE = "<script>"
NUMBERS = tuple(float(each) for each in range(1, 50))
FIELDS = (
    FieldDistribution("display_name", 0.0, None, {HOSTILE: 0.75, "Zoë": 0.25}),
    FieldDistribution("phone", 0.1, NUMBERS, None),
)
USUAL = Distribution(1000, 1000, FIELDS)
FEWER = replace(USUAL, rows=400)
WORDS = "    distributions: {severity: critical}\n"


def nights(folder: Path, *found: Distribution, words: str = WORDS) -> tuple[Report, list[tuple[str, bool, bool]]]:
    """Build the report of the last of some nights, and how its expectations went."""
    file = contract_file(folder, CONTRACT.rstrip("\n") + "\n" + words)
    contract, settings = load_contract(file), Settings(workspace=str(folder / "runs"))
    for number, each in enumerate(found):
        sides: dict[Side, Distribution] = {"source": each, "copy": each}
        place, run = made_run(folder / "runs", contract=file, run_id=f"r{number}", distributions=sides)
        with open_control(settings) as control:
            control.runs.begin(run.id, contract.aggregate, contract.digest)
            control.distributions.record(run.id, LINK, sides)
    with open_control(settings) as control:
        results = checked(control, contract, contract.consumers[0], run.id)
    return report_of(run, place, settings, contract), [(each.words, each.success, each.stops) for each in results]


def test_the_first_night_has_figures_and_nothing_to_be_held_against(tmp_path: Path) -> None:
    """It says what is usual from now on."""
    report, results = nights(tmp_path, USUAL)
    assert [] == results
    assert "1,000 rows in the source, for the first time" == report.distributions[0].said
    assert not any(each.drifted for each in report.distributions)


def test_a_night_that_moved_is_told_and_shown(tmp_path: Path) -> None:
    """With each night's point, and a contract that says so stops a repair."""
    report, results = nights(tmp_path, USUAL, USUAL, FEWER)
    assert [("400 rows in the source, usually 1,000", False, True)] == [each for each in results if not each[1]]
    moved = [each for each in report.distributions if each.drifted]
    assert [("rows", [1000, 1000, 400])] == [(each.measure, [point.level for point in each.points]) for each in moved]
    text = "".join(report_html(report))
    assert "<b>moved:</b> 400 rows in the source, usually 1,000" in text
    assert (1, 1) == (text.count("<script>"), text.count('<figure class="moved">'))
    assert f'reconcile_distributions_moved{{link="{LINK}"}} 1' in prometheus(report).splitlines()


@pytest.mark.parametrize("words", ["", "    distributions: {rows: 0.7}\n"])
def test_a_contract_says_what_is_too_far(tmp_path: Path, words: str) -> None:
    """One that asks for nothing is held against nothing."""
    _, results = nights(tmp_path, USUAL, FEWER, words=words)
    assert [] == [each for each in results if not each[1]]
    assert bool(words) == bool(results)


def test_a_past_report_looks_as_it_did(tmp_path: Path) -> None:
    """Later nights are none of its points."""
    nights(tmp_path, USUAL, USUAL, FEWER)
    file, settings = tmp_path / "user-account.yaml", Settings(workspace=str(tmp_path / "runs"))
    from reconcile.workspace.workspace import Workspace

    place = Workspace(tmp_path / "runs")
    report = report_of(place.run("r1"), place, settings, load_contract(file))
    assert ["r0", "r1"] == [each.run_id for each in report.distributions[0].points]
