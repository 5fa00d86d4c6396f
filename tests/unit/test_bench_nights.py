"""The results of `make bench`: how they are read, judged and shown; and that pages show the committed ones."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from bench import scale
from bench.nights.__main__ import Bench, corrections, findings, found_by_reladiff, of_bare_loop, of_bare_producer
from bench.nights.result import Machine, Result, Work, page
from bench.nights.watch import CommandError, held, watch
from bench.nights.world import Estate
from bench.pages import pages
from reconcile.files import committed

MACHINE = Machine(cpu="A CPU", cores=2, memory_gb=16, load_before=0.1)


def result(*works: Work, rows: int = 5_000_000) -> Result:
    return Result(
        date="2026-01-01",
        rows=rows,
        differing=rows // 1000,
        new=0.01,
        machine=MACHINE,
        versions={"reconcile": "1"},
        works=works,
    )


def took(key: str, taken: float, /, **figures: float) -> Work:
    return Work(key=key, seconds=taken, megabytes=100, figures=figures)


def goals(of: Result) -> dict[str, list[str]]:
    """Read the table of goals, by what each is of."""
    table = page(of).partition("| goal |")[2].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table if line.startswith("|")]
    return {what: rest for what, *rest in rows}


def test_pages_show_the_committed_results() -> None:
    """Nobody edits a figure by hand: `python -m bench.pages` writes README.md, docs/scale.md and bench/results/*.md."""
    shown = pages()
    assert shown == {path: path.read_text("utf-8") for path in shown}


@pytest.mark.parametrize("page", ["README.md", "docs/scale.md"])
def test_a_page_has_room_for_its_table(page: str) -> None:
    """Without these marks a new result would not be shown."""
    assert ["<!-- bench -->", "<!-- /bench -->"] == re.findall("<!-- /?bench -->", committed(page).read_text("utf-8"))


def test_a_ratio_is_held_against_its_goal() -> None:
    """Both sides of a ratio come from the same result."""
    told = goals(result(took("second", 15), took("reladiff", 60), took("datacompy", 100)))
    assert ["≤ 0.25", "0.25", "yes"] == told["second night / reladiff"]
    assert ["≤ 0.1", "0.15", "**no**"] == told["second night / datacompy with its extraction"]


def test_a_goal_for_one_size_does_not_judge_another() -> None:
    """What is fast on few rows is not thereby good."""
    told = goals(result(took("first", 20), rows=1000))
    assert ["≤ 32 s", "20.0 s", "set for 5,000,000 rows"] == told["first night"]


def test_what_was_not_run_says_why_and_is_no_figure() -> None:
    """A peer that is missing leaves a line with the reason, in both tables."""
    found = result(took("second", 15), Work(key="reladiff", why_not="it is not there"))
    assert "| reladiff | not run: it is not there | " in page(found)
    assert ["≤ 0.25", "not measured: reladiff: it is not there", ""] == goals(found)["second night / reladiff"]


def test_a_command_that_fails_is_a_line_and_no_abort() -> None:
    """The bench goes on, and keeps how the words of the command end."""
    bench = Bench()
    bench.measure("second", [sys.executable, "-c", "import sys; sys.exit('no | such store')"])
    bench.measure("first", [sys.executable, "-c", "pass"])
    assert ["it ended with 1: no / such store", None] == [each.why_not for each in bench.works]


def test_a_program_that_is_not_there_is_a_line_too() -> None:
    """A peer need not be installed."""
    bench = Bench()
    bench.measure("reladiff", ["/nowhere/reladiff"])
    assert "No such file" in str(bench.works[0].why_not)


def test_memory_is_that_of_all_processes() -> None:
    """What a child holds counts, as Spark's JVM is one."""
    child = "held = b'x' * 200_000_000; print('ready', flush=True); input()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert "ready" == process.stdout.readline().strip()
        assert held(process.pid) > 190
        process.communicate("\n")


def test_what_hangs_is_ended() -> None:
    """As Ctrl-C ends it, so that it can take down what it started."""
    with pytest.raises(CommandError, match="did not end within 0 s"):
        watch([sys.executable, "-c", "import signal; signal.pause()"], limit=0)


def test_a_code_that_was_not_expected_is_an_error() -> None:
    """Exit code 1 of a run means drift, and 2 that it could not tell."""
    assert "" == watch([sys.executable, "-c", "raise SystemExit(1)"], (0, 1)).stdout
    with pytest.raises(CommandError, match="it ended with 2"):
        watch([sys.executable, "-c", "raise SystemExit(2)"], (0, 1))


@pytest.mark.parametrize(
    ("reading", "stdout", "figures"),
    [
        (found_by_reladiff, '["-", ["a1", "1", \n"x"]]\n["+", ["a1", "1", "y"]]\n["-", ["b2", "z"]]\n', {"found": 2}),
        (findings, '{"links": [{"findings": 3}, {"findings": 4}]}', {"findings": 7}),
        (corrections, '{"links": [{"emitted": [1, 2]}]}', {"corrections": 2}),
        (
            of_bare_producer,
            "{'bare': '20,000 corrections/s', 'emission': '16,500 corrections/s'}\nemission is at 0.80 of the bare",
            {"of_bare": 0.8, "a_second": 16500},
        ),
        (
            of_bare_loop,
            "bare    4,067 messages/s\none by one    3,100 messages/s,  0.77 of bare; the goal is 0.5\n"
            "batch    9,000 messages/s,  8.20 of one by one; the goal is 5.0\n",
            {"of_bare": 0.77, "of_one": 8.2},
        ),
    ],
)  # fmt: skip
def test_figures_are_read_from_what_commands_print(reading: Any, stdout: str, figures: dict[str, float]) -> None:
    """Each tool says in its own way what it found."""
    assert figures == reading(stdout)


def test_a_tool_that_does_not_say_its_ratio_was_not_measured() -> None:
    """No figure is made up."""
    with pytest.raises(ValueError, match="did not say"):
        of_bare_producer("")


def test_an_estate_knows_how_many_differ() -> None:
    """A third each is changed, missing and an orphan; with several events each copy is behind."""
    assert 3 * 200 == Estate("e", 600_000, drift=0.001).differing
    assert 600 == Estate("e", 600, events=5).differing


HISTORY = took("history", 20, seconds=15, records=5_000_000, bytes=500_000_000)
MEASURED = result(
    took("few", 10),
    took("agreeing", 24, findings=0),
    took("audit", 70, findings=250_000),
    took("tenth", 25, findings=25_000),
    took("digests", 5, seconds=4),
    took("stores", 40, fetch=1, buckets=5_000, snapshot=15),
    HISTORY,
    took("emission", 9, of_bare=0.8, a_second=20_000),
)


def test_units_are_the_measured_divided_by_how_many_there_were() -> None:
    """What a start takes does not count into what grows."""
    units = scale.Units(MEASURED)
    found = {each.name: each.seconds for each in units.all()}
    expected = {
        "start of a run, whatever its size": 10,
        "row digested, on both sides at once": 4 / 5_000_000,
        "differing bucket fetched": 1 / 5_000,
        "row read whole, on both sides": 15 / 5_000_000,
        "record read into the history": 15 / 5_000_000,
        "record in the history, each night": 10 / 5_000_000,
        "suspect attributed": 45 / 225_000,
        "correction emitted": 1 / 20_000,
    }
    assert expected == pytest.approx(found)


def test_a_model_of_the_measured_size_gives_what_was_measured() -> None:
    """The line goes through its own point."""
    found = scale.stages(scale.Units(MEASURED), 5_000_000, 0.001, 0.001)
    seconds = {each.name: each.seconds for each in found}
    assert (4, 15, 10) == pytest.approx(
        (seconds["digests"], seconds["the log for the first time"], seconds["the history, each night"])
    )


def test_without_a_unit_nothing_is_computed() -> None:
    """A bench of which a part failed still writes its pages."""
    assert "audit: not tried" in scale.page(result(took("few", 10), took("stores", 1, buckets=1), HISTORY))


def test_more_rows_than_buckets_have_room_for_are_fetched_whole_at_most() -> None:
    """With all buckets differing it costs what reading all costs, and no more."""
    units = scale.Units(MEASURED)
    fetched = next(each for each in scale.stages(units, 10**10, 1, 0.001) if each.name == "differing buckets")
    assert 10**10 * units.whole.seconds == pytest.approx(fetched.seconds, rel=0.01)
