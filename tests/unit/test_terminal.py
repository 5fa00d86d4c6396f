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


@pytest.mark.parametrize("words", [("runs",), ("report", "r1")], ids=lambda each: each[0])
def test_an_outcome_has_its_colour_unless_nobody_wants_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Drift is red on a terminal, and never where it is piped, or NO_COLOR is set."""
    made_run(tmp_path / "runs", [finding("u1")], contract=contract_file(tmp_path))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    piped = shown(tmp_path, *words)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    in_colour = shown(tmp_path, *words)
    monkeypatch.setenv("NO_COLOR", "1")
    assert [False, True, False] == ["\x1b[31m" in each for each in (piped, in_colour, shown(tmp_path, *words))]


@pytest.mark.parametrize("words", COMMANDS[:4], ids=lambda each: each[0])
def test_eighty_columns_are_enough_for_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """One line for each, with its id whole, and not a list of its columns."""
    monkeypatch.setattr(tables, "_WIDE", 80)
    run_id = "user-account-20260301T120000Z-6dxz"
    words = tuple(run_id if each == "r1" else each for each in words)
    file = contract_file(tmp_path)
    made_run(tmp_path / "runs", [finding(LONG)], [case(LONG)], run_id=run_id, contract=file, compared=9_867)
    told = shown(tmp_path, *words)
    wanted = LONG if words[0] in ("findings", "report") else run_id
    row = next(line for line in told.splitlines() if line.startswith(f" {wanted} "))
    assert len(row.split()) > 2
