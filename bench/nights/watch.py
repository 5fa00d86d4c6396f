"""A command in a process of its own: how long it took, and how much memory it and its children held."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

import psutil

EVERY = 0.5
"""Seconds between two looks at the memory: one look at a JVM takes some hundredths of a second."""
LIMIT = 3600.0
"""Seconds after which a command is ended: what hangs must not hold up all that follows."""
_TO_END = 30.0


class Watched(NamedTuple):
    """What a command took and printed."""

    seconds: float
    megabytes: float
    stdout: str


class CommandError(Exception):
    """Raised when a command does not end, or with a code that it should not: holds how its words end."""


def watch(command: Sequence[str], codes: Collection[int] = (0,), limit: float = LIMIT) -> Watched:
    """Run a command to its end; the memory is the largest sum of shares (PSS) over the tree of its processes."""
    most = 0.0
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(EVERY)
                    break
                most = max(most, held(process.pid))
                if time.perf_counter() - began > limit:
                    raise CommandError(f"it did not end within {limit:.0f} s")
        except KeyboardInterrupt:  # the command heard it too, and may be taking its servers down
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TO_END)
            raise
        finally:
            _end(process)
        seconds = time.perf_counter() - began
        stdout.seek(0)
        stderr.seek(0)
        if code not in codes:
            lines = stderr.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise CommandError(f"it ended with {code}: {lines[-1][-300:]}")
        return Watched(seconds, most, stdout.read().decode())


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process as Ctrl-C does, so that it takes its own servers down; kill it where that does not help."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def held(pid: int) -> float:
    """Read how many MB the tree of a process holds now; pages that several share count once."""
    found = 0.0
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for each in [root, *root.children(recursive=True)]:
            with suppress(psutil.Error):
                found += each.memory_full_info().pss / 2**20
    return found
