"""Members as processes that a test starts, wakes and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from tests.integration.consumer.child import Plan
from tests.integration.consumer.world import PATIENCE, PROTOCOLS, Scenario, until


@dataclass(eq=False)
class MemberProcess:
    """One member."""

    plan: Plan
    _popen: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        """What it has logged."""
        path = Path(self.plan.log)
        return path.read_text("utf-8") if path.exists() else ""

    @property
    def pid(self) -> int:
        """Its process."""
        return self._popen.pid

    @property
    def is_stopped(self) -> bool:
        """Whether it stands still."""
        return self._popen.poll() is None and psutil.Process(self._popen.pid).status() == psutil.STATUS_STOPPED

    @property
    def is_dead(self) -> bool:
        """Whether it has ended."""
        return self._popen.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """How it has ended; None while it runs."""
        return self._popen.poll()

    @property
    def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        path = Path(f"{self.plan.log}.err")
        return path.read_text("utf-8")[-2000:] if path.exists() else ""

    def until_stopped(self) -> None:
        """Wait until it stands still at its step."""
        until(lambda: self.is_stopped or self.is_dead, f"{self.plan.step} was not reached: {self.log}")
        assert not self.is_dead, self.log

    def until_killed(self) -> None:
        """Wait until it has killed itself at its step."""
        until(lambda: self.is_dead, f"{self.plan.step} was not reached: {self.log}")
        assert -signal.SIGKILL == self._popen.returncode, self.log

    def until_logged(self, text: str) -> None:
        """Wait until it has logged something."""
        until(lambda: text in self.log or self.is_dead, f"it never logged {text!r}: {self.log}")
        assert text in self.log, self.log

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self._popen.poll() is None:
            self._popen.send_signal(number)

    def end(self) -> int:
        """End it as an operator does, and return its exit code."""
        self.send(signal.SIGTERM)

        def is_over() -> bool:
            self.send(signal.SIGCONT)  # also where it only now comes to the step at which it stops
            return self.is_dead

        until(is_over, f"it did not end: {self.log}")
        return self._popen.returncode

    def kill(self) -> None:
        """End it as a power cut does."""
        self.send(signal.SIGKILL)
        self._popen.wait(PATIENCE)


@dataclass
class Members:
    """Starts members, each with a log in a folder."""

    folder: Path
    started: list[MemberProcess] = field(default_factory=list)

    def start(self, scenario: Scenario, protocol: str = "classic", **plan: Any) -> MemberProcess:
        """Start a member of a scenario's group."""
        cluster = {**scenario.world.cluster, "fetch.wait.max.ms": 20, **PROTOCOLS[protocol], **plan.pop("kafka", {})}
        url = plan.pop("url", scenario.url)
        log = str(self.folder / f"{uuid4().hex}.log")
        made = Plan(url=url, topic=scenario.topic, group=scenario.group, log=log, kafka=cluster, **plan)
        command = [sys.executable, "-m", "tests.integration.consumer.child", made.json()]
        with Path(f"{log}.err").open("wb") as errors:
            popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=os.environ)
        member = MemberProcess(made, popen)
        self.started.append(member)
        return member


@contextmanager
def members_in(folder: Path) -> Iterator[Members]:
    """Start members for a block, and leave none."""
    members = Members(folder)
    try:
        yield members
    finally:
        for each in members.started:
            each.kill()
