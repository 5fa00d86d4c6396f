"""The trace page: the way of records through all topics, out of what is kept, and nothing that may not be shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from reconcile.pipeline import trace
from reconcile.settings.settings import Settings
from reconcile.web.app import web_app
from reconcile.workspace.workspace import Workspace
from tests.unit.report_runs import CONTRACT, case, contract_file, finding, kept_history, logged, made_run, put_aside

SCRIPT = "<script>alert(1)</script>"


def asked(folder: Path, **wanted: str) -> Any:
    """Open the trace page of a run."""
    place = Workspace(folder / "runs")
    return TestClient(web_app(place, Settings(workspace=place.root))).get("/runs/r1/trace", params=wanted)


def world(folder: Path, contract: str = CONTRACT) -> None:
    """Make a run with the history that it has read: of an aggregate that differs, of another, and of a hostile one."""
    located = contract.replace("version: $.version\n", "version: $.version\n  type: header:type\n", 1)
    records = [logged("u1", offset) for offset in (15, 16, 17)]
    records += [logged("u2", 18, correlation_id="c-u1"), logged(SCRIPT, 19, correlation_id=SCRIPT, deletes=True)]
    history = kept_history(folder / "runs", records)
    parked = [put_aside("u1"), put_aside("u3", origin_offset=40)]
    file = contract_file(folder, located)
    made_run(folder / "runs", [finding("u1")], [case("u1")], contract=file, history=history, parked=parked)


def test_the_way_of_an_aggregate_is_one_timeline(tmp_path: Path) -> None:
    """Each record with its place, version and type, what was put aside, and what the audit says of it."""
    world(tmp_path)
    text = asked(tmp_path, id="u1").text
    assert "4 records" in text
    places = [text.index(f">{each}<") for each in ("1@15", "1@16", "1@17", "0@4")]
    assert sorted(places) == places
    assert "put aside from 1@17: Timeout; still there" in text
    assert "committed past it" in text
    assert "UserRenamed: display_name = &#34;Zoiee&#34;" in text
    assert "the source shows this" in text
    assert "3 offsets of user-account are not kept" in text


def test_values_of_sensitive_fields_are_not_there(tmp_path: Path) -> None:
    """The history has them in clear."""
    world(tmp_path)
    assert "zoe@example.org" not in asked(tmp_path, id="u1").text


@pytest.mark.parametrize(
    ("locator", "shown"), [("correlation_id: $.email", False), ("correlation_id: $.request", True)]
)
def test_a_column_that_says_a_sensitive_field_is_hidden(tmp_path: Path, locator: str, shown: bool) -> None:
    """Whatever the contract takes it for."""
    world(tmp_path, CONTRACT.replace("  key: {type: string}", f"  {locator}\n  key: {{type: string}}", 1))
    assert shown is (">c-u1<" in asked(tmp_path, id="u1").text)


def test_a_correlation_id_leads_to_all_its_records(tmp_path: Path) -> None:
    """Of all aggregates, and those put aside that keep no headers but their origin."""
    world(tmp_path)
    text = asked(tmp_path, correlation="c-u1").text
    assert "5 records" in text
    assert 'trace?id=u2">' in text
    assert "user-account.login.retry-1" in text.replace("<wbr>", "")


def test_what_is_kept_is_text(tmp_path: Path) -> None:
    """An id that is a script, in the page and in what is typed."""
    world(tmp_path)
    for wanted in ({"id": SCRIPT}, {"correlation": SCRIPT}, {"id": f'"{SCRIPT}'}):
        text = asked(tmp_path, **wanted).text
        assert SCRIPT not in text
        assert "&lt;script&gt;" in text


def test_a_record_that_is_not_there_is_said_to_be_none(tmp_path: Path) -> None:
    """And nothing typed is a page with the search alone."""
    world(tmp_path)
    assert "No record that is kept has this correlation id." in asked(tmp_path, correlation="nobody").text
    assert 'id="records"' not in asked(tmp_path).text


def test_many_records_are_cut_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones are shown."""
    monkeypatch.setattr(trace, "MOST_SHOWN", 1)
    world(tmp_path)
    text = asked(tmp_path, id="u1").text
    assert "4 records" in text
    assert "3 later records are not shown." in text


def test_not_all_of_a_topic_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One correlation id may be that of all records."""
    monkeypatch.setattr(trace, "_MOST_READ", 2)
    world(tmp_path)
    assert "user-account has more of them" in asked(tmp_path, correlation="c-u1").text


def test_what_came_after_the_run_is_marked(tmp_path: Path) -> None:
    """Its audit says nothing of it."""
    world(tmp_path)
    assert "after this run" in asked(tmp_path, id="u1").text  # the fence of these runs ends at offset 0


def test_without_a_history_it_says_where_to_look(tmp_path: Path) -> None:
    """The topic itself may have it."""
    made_run(tmp_path / "runs", [finding("u1")], contract=contract_file(tmp_path))
    answer = asked(tmp_path, id="u1")
    assert 409 == answer.status_code
    assert "`reconcile trace` reads the topic itself" in answer.text


def test_without_the_contract_nothing_is_shown(tmp_path: Path) -> None:
    """Nobody knows what it keeps hidden."""
    world(tmp_path)
    (tmp_path / "user-account.yaml").unlink()
    assert 409 == asked(tmp_path, id="u1").status_code


def test_each_finding_leads_to_its_trace(tmp_path: Path) -> None:
    """And a run to the search."""
    world(tmp_path)
    place = Workspace(tmp_path / "runs")
    app = TestClient(web_app(place, Settings(workspace=place.root)))
    assert 'href="/runs/r1/trace?id=u1"' in app.get("/runs/r1/aggregate?id=u1").text
    assert 'action="/runs/r1/trace"' in app.get("/runs/r1").text
