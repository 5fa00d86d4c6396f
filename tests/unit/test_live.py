"""The live line of a terminal, as a pseudo-terminal sees it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.report_runs import contract_file

STEP = "reading both stores of login (1 of 3) …"
ERASED = "\x1b[2K"
# A command that logs a step, and goes on when it is told to.
COMMAND = """
import logging, os, sys
import reconcile.cli.contract as module
from reconcile.cli import main
from reconcile.pipeline.logs import about, at_stage, planned
from reconcile.spark.jvm_output import JvmOutput

def spark():
    output = JvmOutput()
    with output.pipe() as pipe:
        os.write(pipe, b"a warning\\n")
    output.release()

def summary(_):
    log = logging.getLogger("reconcile.gather")
    with planned("gather", "audit"), at_stage("gather"), about(part="1 of 3"):
        log.info("reading both stores of login")
    sys.stdin.readline()
    log.debug("counting", extra={"done": 1234, "total": 5000})
    sys.stdin.readline()
    return "the result"

module._summary = summary
main()
"""


@dataclass
class Terminal:
    """A process whose stderr is a terminal, and whose stdout is a pipe."""

    process: subprocess.Popen[str]
    screen: int
    seen: str = ""

    def await_text(self, text: str) -> None:
        """Read what the terminal is sent until it holds a text."""
        while text not in self.seen:
            ready, _, _ = select.select([self.screen], [], [], 30)
            assert ready, f"{text!r} was not shown, but {self.seen!r}"
            self.seen += os.read(self.screen, 65536).decode()

    def go_on(self) -> None:
        """Tell the command to go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ended(self) -> str:
        """Let it end; return what it printed on stdout."""
        out, _ = self.process.communicate("\n\n", timeout=30)
        while select.select([self.screen], [], [], 0)[0]:
            try:
                self.seen += os.read(self.screen, 65536).decode()
            except OSError:  # the other side is closed, and all is read
                break
        os.close(self.screen)
        return out


def terminal(folder: Path, *words: str, kind: str = "xterm", command: str = COMMAND) -> Terminal:
    """Start the command at a terminal."""
    screen, stderr = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", command, *words, "contract", "check", str(contract_file(folder))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**os.environ, "TERM": kind, "COLUMNS": "120", "LINES": "40"},
    )
    os.close(stderr)
    return Terminal(process, screen)


def test_it_shows_the_step_and_its_time(tmp_path: Path) -> None:
    """And the stage, and which of how many both are; what is counted is added."""
    shown = terminal(tmp_path)
    shown.await_text(f"gather (1 of 2): {STEP}")
    shown.await_text("0:00:01")
    shown.go_on()
    shown.await_text("(1 of 3): 1,234 of 5,000 …")
    assert "the result" in shown.ended()


def test_it_is_gone_before_anything_is_printed(tmp_path: Path) -> None:
    """Of what was shown no part stays beside the result."""
    shown = terminal(tmp_path)
    shown.await_text(STEP)
    assert shown.ended().endswith("the result\n")
    assert ERASED in shown.seen.rpartition(" …")[2]
    assert "the result" not in shown.seen


@pytest.mark.parametrize(("words", "kind"), [(["--log-format", "json"], "xterm"), ([], "dumb")])
def test_it_is_not_shown_where_it_does_not_belong(tmp_path: Path, words: list[str], kind: str) -> None:
    """Neither beside JSON, nor at a terminal that cannot erase a line."""
    shown = terminal(tmp_path, *words, kind=kind)
    shown.await_text("reading both stores of login")
    shown.ended()
    assert "\x1b" not in shown.seen
    assert 1 == len(shown.seen.splitlines())


def test_words_of_spark_begin_on_a_line_of_their_own(tmp_path: Path) -> None:
    """They come from a thread, past Python's stderr."""
    shown = terminal(tmp_path, command=COMMAND.replace("    log.debug", "    spark()\n    log.debug"))
    shown.await_text(STEP)
    shown.go_on()
    shown.await_text("a warning")
    assert ERASED in shown.seen.rpartition(" …")[2].partition("a warning")[0]
    shown.ended()


def test_it_is_not_shown_without_a_terminal(tmp_path: Path) -> None:
    """A file gets one plain line for each step."""
    words = [sys.executable, "-c", COMMAND, "contract", "check", str(contract_file(tmp_path))]
    done = subprocess.run(words, input="\n\n", capture_output=True, text=True, check=True)
    assert "reading both stores of login\n" == done.stderr
