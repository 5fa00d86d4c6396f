"""One live line on a terminal: what a command is at, how far it is, and how long that has taken."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from reconcile.cli.output import visible

if TYPE_CHECKING:
    from rich.progress import Progress


class LiveLine(logging.Handler):
    """Shows the newest step of the log, and how much of it is done, until somebody else writes."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal
        self._shown: Progress | None = None
        self._one_at_a_time = threading.RLock()
        self._step = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Show a step at INFO, or how far the step is that is shown."""
        done = getattr(record, "done", None)
        if record.levelno == logging.INFO and record.name.startswith("reconcile"):
            self._step = _words(record)
            with self._one_at_a_time:
                self.erase()
                self._shown = _line(self._terminal)
                self._shown.add_task(self._step)
                self._shown.start()
        elif done is not None and (shown := self._shown) is not None:
            words = f"{self._step}: {done:,} of {getattr(record, 'total', 0):,}"
            shown.update(shown.task_ids[0], description=words)

    def erase(self) -> None:
        """Leave nothing of the line."""
        with self._one_at_a_time:  # Spark's words come from a thread of their own
            shown, self._shown = self._shown, None
            if shown is not None:
                shown.stop()


class _Erasing:
    """A stream before whose output the live line is erased."""

    def __init__(self, stream: TextIO, line: LiveLine) -> None:
        self._stream, self._line = stream, line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> Any:
        """What bytes are written to."""
        self._line.erase()
        return self._stream.buffer

    def flush(self) -> None:
        """Erase the line: somebody is about to write past the stream."""
        self._line.erase()
        self._stream.flush()

    def write(self, text: str) -> int:
        """Erase the line, and write."""
        self._line.erase()
        return self._stream.write(text)


@contextmanager
def live_line() -> Iterator[LiveLine | None]:
    """Build the live line, and have it erased before anything is printed; None where stderr is no terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    before = sys.stdout, sys.stderr
    line = LiveLine(sys.stderr)
    sys.stdout, sys.stderr = (_Erasing(each, line) for each in before)
    try:
        yield line
    finally:
        line.erase()
        sys.stdout, sys.stderr = before


def _words(record: logging.LogRecord) -> str:
    about: dict[str, str] = getattr(record, "about", {})
    stage = f"{about['stage']}{_of(about.get('step'))}: " if "stage" in about else ""
    return visible(f"{stage}{record.getMessage()}{_of(about.get('part'))}", lines=False)


def _of(part: str | None) -> str:
    return "" if part is None else f" ({part})"


def _line(terminal: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    text = TextColumn("{task.description} …", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
    return Progress(
        SpinnerColumn(),
        text,
        TimeElapsedColumn(),
        console=Console(file=terminal),
        refresh_per_second=4,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
