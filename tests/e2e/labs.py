"""Labs driven from outside: the real command line in a process of its own, in any folder and as any account."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from reconcile.lab.process import wait_until
from tests.schemas import valid_output

SECONDS = 120
# A shell's foreground commands hear Ctrl-C, also where what runs the tests was told to ignore it.
_PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from reconcile.cli import main; main()"
)


@dataclass(frozen=True)
class DrivenLab:
    """A lab's folder and ports, and the commands on it."""

    folder: Path
    ports: tuple[int, int, int]
    python: str = sys.executable
    environment: dict[str, str] = field(default_factory=dict)
    account: pwd.struct_passwd | None = None
    """The account that runs the commands; ours unless told."""

    def start(self, command: str, *arguments: object, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, as a shell would."""
        return subprocess.Popen(
            [self.python, "-c", _PROGRAM, "lab", command, *map(str, arguments)],
            cwd=cwd or self.folder.parent,
            env={**os.environ, "RECONCILE_LAB": str(self.folder), **self.environment},
            user=self.account.pw_uid if self.account else None,
            group=self.account.pw_gid if self.account else None,
            extra_groups=[] if self.account else None,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, command: str, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        with self.start(command, *arguments, cwd=cwd) as process:
            try:
                out, err = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start_up(self) -> subprocess.Popen[str]:
        """Start `up` on the lab's ports."""
        postgres, kafka, controller = self.ports
        ports = ("--postgres-port", postgres, "--kafka-port", kafka, "--controller-port", controller)
        return self.start("up", *ports)

    def up(self) -> None:
        """Bring the lab up."""
        with self.start_up() as process:
            _, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, err

    def status(self) -> dict[str, Any]:
        """Give what `status --json` prints."""
        found = valid_output("lab status", self.run("status", "--json").stdout)
        assert isinstance(found, dict)
        return found

    def servers(self) -> set[int]:
        """Give every process that listens on the lab's ports, is a child of one that does, or names its folder."""
        found = set()
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                family = [process, *process.parents()]
                if process.status() != psutil.STATUS_ZOMBIE and any(map(self._concerns, family)):
                    found.add(process.pid)
        return found - {os.getpid()}

    def _concerns(self, process: psutil.Process) -> bool:
        if process.name() not in ("postgres", "initdb", "java"):
            return False
        listening = {one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
        return bool(listening & set(self.ports)) or str(self.folder.resolve()) in " ".join(process.cmdline())

    def kill_servers(self) -> None:
        """Kill the servers as in a power cut."""
        for pid in self.servers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.servers(), "the servers did not die", 20)

    def wipe(self) -> None:
        """Remove the lab in a hurry."""
        self.kill_servers()
        done = self.run("down", "--wipe")
        assert done.returncode == 0, done.stderr


def begun(process: subprocess.Popen[str], program: str) -> None:
    """Wait until a command runs a program of this name or Java class."""

    def runs() -> bool:
        assert process.poll() is None, f"ended before it ran {program}"
        with suppress(psutil.Error):
            for child in psutil.Process(process.pid).children(recursive=True):
                if child.name() == program or any(each.endswith(program) for each in child.cmdline()):
                    return True
        return False

    wait_until(runs, f"the command did not run {program}", 60)


@contextmanager
def wiped(lab: DrivenLab) -> Iterator[DrivenLab]:
    """Give a lab, and leave nothing of it."""
    try:
        yield lab
    finally:
        lab.wipe()
