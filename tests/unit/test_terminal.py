"""What people see at a terminal: nothing that drives it, and nothing cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from reconcile.cli import cli, tables
from reconcile.cli.output import visible
from tests.unit.report_runs import case, contract_file, finding, made_run

LONG = "0193e6c4-58a1-7d3e-9f00-5a5a5a5a5a5a"
HOSTILE = "\x1b[2J\x1b]0;title\x07\u202egnp\x9b1m\nThe copies agree."
COMMANDS = (
    ("report", "r1"),
    ("findings", "r1", "--format", "table"),
    ("runs",),
    ("history", "user-account.yaml"),
    ("explain", "r1", LONG),
)


def shown(folder: Path, *words: str) -> str:
    """Give what a command prints."""
    words = tuple(str(folder / each) if each.endswith(".yaml") else each for each in words)
    done = CliRunner().invoke(cli, [*words, "--workspace", str(folder / "runs")], catch_exceptions=False)
    assert 0 == done.exit_code
    return done.stdout


@pytest.mark.parametrize("words", COMMANDS, ids=lambda each: each[0])
@pytest.mark.parametrize("width", [40, 80, 160])
def test_nothing_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], width: int) -> None:
    """Numbers, ids and dates least of all; and nothing is wider than the terminal."""
    monkeypatch.setattr(tables, "_WIDE", width)
    file, run_id = contract_file(tmp_path), "r1"
    made_run(tmp_path / "runs", [finding(LONG)], [case(LONG)], run_id=run_id, contract=file, compared=123_456_789)
    told = shown(tmp_path, *words)
    assert "…" not in told
    assert width >= max(map(len, told.splitlines()))
    flat = "".join(told.split())
    expected = {"report": ["123,456,789", LONG], "findings": [LONG], "history": ["123,456,789", "2026-03-0112:00"]}
    for each in expected.get(words[0], ["r1"] if words[0] == "runs" else [LONG, "2026-02-2712:00:00.000"]):
        assert each in flat


@pytest.mark.parametrize("words", COMMANDS[:2], ids=lambda each: each[0])
def test_no_name_drives_the_terminal(tmp_path: Path, words: tuple[str, ...]) -> None:
    """It is shown letter by letter."""
    made_run(tmp_path / "runs", [finding(HOSTILE)], contract=contract_file(tmp_path))
    told = shown(tmp_path, *words)
    assert not {"\x1b", "\x07", "\u202e", "\x9b"} & set(told)
    assert r"\x1b[2J\x1b]0;title\x07\u202egnp\x9b1m\x0aThe copies agree." in told


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_data_stay_as_they_are(tmp_path: Path, form: str) -> None:
    """What a program reads is not escaped once more."""
    made_run(tmp_path / "runs", [finding(HOSTILE)], contract=contract_file(tmp_path))
    told = shown(tmp_path, "findings", "r1", "--format", form)
    assert HOSTILE == json.loads(told)["aggregate_id"] if form == "jsonl" else HOSTILE in told


@pytest.mark.parametrize(
    ("text", "lines", "expected"),
    [
        ("Zoë \U0001f980 日本", False, "Zoë \U0001f980 日本"),
        ("two\nlines", True, "two\nlines"),
        ("two\nlines", False, r"two\x0alines"),
        ("\x1b[31m\r", True, r"\x1b[31m\x0d"),
        ("\u2066\ud800", True, r"\u2066\ud800"),
    ],
)
def test_what_drives_a_terminal_is_visible(text: str, lines: bool, expected: str) -> None:
    """And everything else stays."""
    assert expected == visible(text, lines=lines)
