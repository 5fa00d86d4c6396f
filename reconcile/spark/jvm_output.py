"""What Spark's JVM says, passed on to stderr as it comes, without the one line that nobody can switch off.

Java prints some of its own warnings to stdout, which is for data.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Java says this of a module that Spark's launcher always adds, before any log is configured.
NOISE = b"WARNING: Using incubator modules: jdk.incubator.vector\n"


class JvmOutput:
    """A pipe for what a JVM says. Until `release` its words are held back, so that an error can tell them instead."""

    def __init__(self, stderr: int = 2) -> None:
        self._stderr = stderr
        self._lock = threading.Lock()
        self._held: list[bytes] | None = []
        self._thread: threading.Thread | None = None

    @contextmanager
    def pipe(self) -> Iterator[int]:
        """Give the descriptor to start the JVM with."""
        reading, writing = os.pipe()
        self._thread = threading.Thread(target=self._read, args=(reading,), name="jvm-stderr", daemon=True)
        self._thread.start()
        try:
            yield writing
        finally:
            os.close(writing)

    def release(self) -> None:
        """Pass on what was held back, and from now on all that comes."""
        with self._lock:
            held, self._held = self._held or [], None
            for line in held:
                self._write(line)

    def held(self) -> str:
        """Give what was held back. A JVM that failed has closed its end: what it said last is in it."""
        if self._thread is not None:
            self._thread.join(timeout=2)
        with self._lock:
            return b"".join(self._held or []).decode("utf-8", "replace").strip()

    def _read(self, reading: int) -> None:
        pending = b""
        with open(reading, "rb", buffering=0) as pipe:
            while chunk := pipe.read(65536):
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self._take(line + b"\n")
                if pending and not NOISE.startswith(pending):  # a progress bar does not end its line
                    self._take(pending)
                    pending = b""
            self._take(pending)

    def _take(self, line: bytes) -> None:
        if line == NOISE:
            return
        with self._lock:
            if self._held is None:
                self._write(line)
            else:
                self._held.append(line)

    def _write(self, line: bytes) -> None:
        with suppress(OSError, ValueError):  # our stderr may be closed; Spark goes on
            sys.stderr.flush()  # what was written before stands before it, and a live line is erased
            os.write(self._stderr, line)
