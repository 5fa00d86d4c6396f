"""The report as HTML, CSV, JSON and Prometheus text."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from reconcile.contract.model import load_contract
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Evidence, FieldDifference, Finding
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.report import FORMATS
from reconcile.pipeline.result import report_of
from reconcile.report.csv import csv_of
from reconcile.report.html import report_html
from reconcile.report.json import report_data
from reconcile.report.model import Report
from reconcile.report.prometheus import prometheus
from reconcile.settings.settings import Settings
from tests.unit.report_runs import AT, LINK, case, contract_file, finding, made_run

HOSTILE = "<script>alert('x')</script>\"&"


class Tags(HTMLParser):
    """Collects what a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.found.append((tag, dict(attrs)))


def told(folder: Path, *findings: Finding) -> Report:
    """Give the report of a run with these findings, each with a story."""
    file = contract_file(folder)
    cases = [case(each.aggregate_id) for each in findings if each.aggregate_id is not None]
    place, run = made_run(folder / "runs", findings, cases, contract=file)
    return report_of(run, place, Settings(workspace=place.root), load_contract(file))


def page(report: Report) -> str:
    """Give the one-file report."""
    return "".join(report_html(report, "findings.csv"))


def test_the_file_asks_nobody_for_anything(tmp_path: Path) -> None:
    """No address but its own parts, the file beside it and the icon that it holds."""
    tags = Tags(page(told(tmp_path, finding())))
    addresses = {value for _, attributes in tags.found for name, value in attributes.items() if name in ("src", "href")}
    outside = {each for each in addresses if each and not each.startswith(("#", "data:image/svg+xml;base64,"))}
    assert set() == outside - {"findings.csv"}


def test_the_file_forbids_all_but_its_own_style_and_script(tmp_path: Path) -> None:
    """By a policy in itself, which names both by their hashes, and no attribute holds either."""
    tags = Tags(page(told(tmp_path, finding())))
    policy = next(each["content"] for tag, each in tags.found if tag == "meta" and "http-equiv" in each)
    assert policy is not None
    assert re.match(r"default-src 'none'; style-src 'sha256-\S+'; script-src 'sha256-\S+'; img-src data:;", policy)
    attributes = {name for _, each in tags.found for name in each}
    assert set() == {name for name in attributes if name == "style" or name.startswith("on")}


def test_what_is_hostile_is_text(tmp_path: Path) -> None:
    """An aggregate, a value and a note named <script> make no tag."""
    hostile = finding(
        HOSTILE,
        fields=(FieldDifference("phone", HOSTILE, None),),
        evidence=(Evidence("event", HOSTILE, HOSTILE, 1, 2),),
    )
    text = page(told(tmp_path, hostile))
    assert 1 == sum(tag == "script" for tag, _ in Tags(text).found)
    assert "alert(&#39;x&#39;)" in text


def test_a_sensitive_value_is_nowhere(tmp_path: Path) -> None:
    """In none of the files that people see."""
    file = contract_file(tmp_path)
    apart = finding("u1", fields=(FieldDifference("email", "zoe@example.org", "old@example.org"),))
    place, run = made_run(tmp_path / "runs", [apart], [case("u1")], contract=file)
    pipeline.report(run, place, Settings(workspace=place.root), load_contract(file))
    for name in FORMATS.values():
        assert "example.org" not in (Path(run.folder) / name).read_text("utf-8")


def test_the_stage_leaves_every_rendering_and_can_be_run_again(tmp_path: Path) -> None:
    """Beside the artifacts, which stay as they are."""
    place, run = made_run(tmp_path, [finding()])
    for _ in range(2):
        pipeline.report(run, place, Settings(workspace=place.root), None)
    files = {each.name for each in Path(run.folder).iterdir() if each.is_file()}
    assert set(FORMATS.values()) == files
    assert "findings" in [each.name for each in run.manifests()]


def test_a_rendering_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    """A file is seen whole or not at all."""
    _, run = made_run(tmp_path)
    run.write_file("report.html", ["whole"])

    def broken() -> Iterator[str]:
        yield "half"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run.write_file("report.html", broken())
    assert ["report.html"] == [each.name for each in Path(run.folder).iterdir() if each.is_file()]
    assert "whole" == (Path(run.folder) / "report.html").read_text("utf-8")


def test_csv_holds_every_finding_and_no_formula() -> None:
    """One line each, and spreadsheets take none for a formula."""
    fields = (FieldDifference("a", None, ""), FieldDifference("b", None, ""))
    each = finding("=1+1", hop=None, since=None, fields=fields)
    lines = list(csv.reader("".join(csv_of([each] * 2500)).splitlines()))
    assert 2501 == len(lines)
    assert [LINK, "'=1+1", "changed", "confirmed", "skipped", "certain", "", "a b", ""] == lines[-1]


def test_json_is_one_object(tmp_path: Path) -> None:
    """With the version of its schema."""
    data = json.loads(json.dumps(report_data(told(tmp_path, finding())), allow_nan=False))
    assert (1, "drift", 1) == (data["schema_version"], data["level"], data["total"])


def test_prometheus_tells_the_figures(tmp_path: Path) -> None:
    """By link and cause, whole numbers as they are."""
    lines = prometheus(told(tmp_path, finding("a"), finding("b", cause=Cause.PHANTOM))).splitlines()
    assert 'reconcile_drifted{link="user-account/login"} 2' in lines
    assert 'reconcile_findings{link="user-account/login",cause="phantom"} 1' in lines
    assert 'reconcile_run_exit_code{contract="user-account"} 1' in lines
    assert f'reconcile_run_timestamp_seconds{{contract="user-account"}} {AT.timestamp():.3f}' in lines


def test_prometheus_text_is_well_formed(tmp_path: Path) -> None:
    """Each family has its help and type once, before its samples."""
    families: list[str] = []
    for line in prometheus(told(tmp_path, finding())).splitlines():
        if line.startswith("# HELP"):
            families.append(line.split()[2])
        elif not line.startswith("#"):
            assert re.fullmatch(rf"{families[-1]}\{{[^{{}}]*\}} \d+(\.\d+)?", line)
    assert len(families) == len(set(families))
