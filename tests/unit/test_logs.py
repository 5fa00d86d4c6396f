"""What our programs log on stderr, and how much of it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from reconcile.cli import cli
from reconcile.control.store import open_control
from reconcile.pipeline import logs, stages
from reconcile.pipeline import quality as quality_stage
from reconcile.settings.settings import Settings
from tests.unit.handoffs import expected
from tests.unit.report_runs import checked, contract_file, finding, made_run
from tests.unit.test_run_quality import World, world

__all__ = ["world"]

OURS, THEIRS = logging.getLogger("reconcile.some.stage"), logging.getLogger("sqlalchemy.engine")


@contextmanager
def logged(verbosity: int = 0, form: logs.Form = "text") -> Iterator[io.StringIO]:
    """Log into a text."""
    text = io.StringIO()
    with logs.logged_to_stderr(verbosity, form, logging.StreamHandler(text)):
        yield text


@pytest.mark.parametrize(
    ("verbosity", "lines"),
    [(0, ["a step"]), (1, ["a step", "a figure"]), (2, ["a step", "a figure", "a statement"])],
)
def test_verbosity_adds_figures_and_then_libraries(verbosity: int, lines: list[str]) -> None:
    """One plain line for each step; -v adds figures, -vv what libraries say."""
    with logged(verbosity) as text:
        OURS.info("a step")
        OURS.debug("a figure")
        THEIRS.info("a statement")
    assert lines == text.getvalue().splitlines()


def test_what_is_logged_makes_no_line_of_its_own() -> None:
    """An id may hold what would begin a line, or drive a terminal."""
    with logged() as text:
        OURS.warning("no copy of %s", "42\nall agrees\x1b[1A")
    assert ["no copy of 42\\nall agrees\\x1b[1A"] == text.getvalue().splitlines()


def test_a_json_line_says_what_it_is_about() -> None:
    """Time, level, logger and message, with run and link where they are known."""
    with logged(form="json") as text:
        with logs.about(run_id="r1", contract="user"), logs.about(link="user→login"):
            OURS.info("a step")
        OURS.warning("another")
    first, second = map(json.loads, text.getvalue().splitlines())
    assert first.pop("time").endswith("+00:00")
    about = {"run_id": "r1", "contract": "user", "link": "user→login"}
    assert {"level": "info", "logger": "reconcile.some.stage", "message": "a step", **about} == first
    assert ("warning", None) == (second["level"], second.get("run_id"))


def test_an_exception_stays_on_its_line() -> None:
    """What reads lines of JSON is not broken by a traceback."""
    with logged(form="json") as text:
        try:
            raise ValueError("oops")
        except ValueError:
            OURS.exception("it failed")
    (line,) = text.getvalue().splitlines()
    assert "ValueError: oops" in json.loads(line)["exception"]


def test_loggers_are_left_as_they_were() -> None:
    """Whoever embeds us keeps their own set-up."""
    ours = logging.getLogger("reconcile")
    before = (ours.level, ours.propagate, list(ours.handlers), list(logging.getLogger().handlers))
    with logged(2):
        pass
    assert before == (ours.level, ours.propagate, list(ours.handlers), list(logging.getLogger().handlers))


def test_a_stage_logs_its_name_and_its_duration(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line of it says which run and which stage it is about."""
    monkeypatch.undo()
    monkeypatch.setattr(quality_stage, "quality", lambda job: checked(job.run, expected()))
    with logged(1, "json") as text:
        stages.quality(world.job)
    last = json.loads(text.getvalue().splitlines()[-1])
    assert ("r1", "quality") == (last["run_id"], last["stage"])
    assert last["message"].startswith("quality: ")


@pytest.mark.parametrize(
    "words",
    [["-v", "--log-format", "json", "contract", "check"], ["contract", "check", "-v", "--log-format", "json"]],
)
def test_options_of_the_log_may_follow_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Where many people type them."""

    def summary(_: object) -> str:
        OURS.debug("a figure")
        return "ok"

    monkeypatch.setattr("reconcile.cli.contract._summary", summary)
    done = CliRunner().invoke(cli, [*words, str(contract_file(tmp_path))], catch_exceptions=False)
    assert "a figure" == json.loads(done.stderr)["message"]


def test_libraries_log_no_values(tmp_path: Path) -> None:
    """At -vv SQLAlchemy tells its statements, and hides what they carry."""
    settings = Settings(workspace=str(tmp_path / "runs"))
    with logged(2) as text, open_control(settings) as control:
        control.runs.begin("secret-run", "user", "0" * 64)
    assert "INSERT" in text.getvalue().upper()
    assert "secret-run" not in text.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_command_logs_no_values_of_rows(tmp_path: Path, form: str) -> None:
    """Neither ids nor values of fields, however verbose it is."""
    secret = finding("id-of-somebody")
    made_run(tmp_path / "runs", [secret], contract=contract_file(tmp_path))
    words = ["-vv", "--log-format", form, "report", "r1", "--workspace", str(tmp_path / "runs")]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    values = [value for each in secret.fields for value in (each.source, each.consumer) if value]
    assert "id-of-somebody" in done.stdout
    assert [] == [each for each in ("id-of-somebody", *values) if each in done.stderr]
