"""An Airflow of its own in one folder: provided, started with everything wired, queried, and ended."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import psutil

from reconcile.errors import RefusedError, UnreachableError
from reconcile.files import committed
from reconcile.lab import process
from reconcile.lab.folder import write_atomically
from reconcile.workspace.filesystem import make_private_file

USER = "admin"

_TO_START, _TO_STOP = 240.0, 90.0
_PARTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
_PLUGIN = 'from reconcile.airflow.plugin import ReconcilePlugin\n\n__all__ = ["ReconcilePlugin"]\n'
# What is started in the background may have been started to ignore the interrupt by which we end it.
_DETACH = (
    "import signal, subprocess, sys; signal.signal(signal.SIGINT, signal.SIG_DFL);"
    " subprocess.Popen(sys.argv[1:], start_new_session=True)"
)
_MARK = "RECONCILE_AIRFLOW_HOME"


@dataclass(frozen=True)
class Standalone:
    """An Airflow in a folder, on three ports from `port` on, on loopback alone."""

    home: Path
    port: int

    @property
    def url(self) -> str:
        """Where its UI and its API answer."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def password(self) -> str:
        """The password of the one user."""
        found = json.loads((self.home / "passwords.json").read_text("utf-8"))
        return str(found[USER])

    @property
    def log(self) -> Path:
        """What all its parts say."""
        return self.home / "standalone.log"

    def environment(self) -> dict[str, str]:
        """Build the environment of every command of this Airflow."""
        paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
        return {
            **kept,
            "PATH": os.pathsep.join(paths),
            _MARK: str(self.home.resolve()),
            "SPT_NOENV": "1",  # or Airflow's parts would write their titles over the mark
            "AIRFLOW_HOME": str(self.home.resolve()),
            "AIRFLOW__CORE__DAGS_FOLDER": str(committed("dags")),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.home.resolve() / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__FERNET_KEY_CMD": f"cat {shlex.quote(str(self.home.resolve() / 'fernet.key'))}",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home.resolve() / "passwords.json"),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(self.port + 1),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(self.port + 2),
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
        }

    def provide(self, wanted: dict[str, Any]) -> None:
        """Make its folder and database, with pools, variables and connections; raise RefusedError if that fails."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.home.chmod(0o700)
        (self.home / "plugins").mkdir(exist_ok=True)
        write_atomically(self.home / "plugins" / "reconcile_plugin.py", _PLUGIN)
        if not (self.home / "passwords.json").exists():
            made = json.dumps({USER: secrets.token_urlsafe(12)})
            write_atomically(self.home / "passwords.json", made)
        if not (self.home / "fernet.key").exists():  # connections are encrypted with it
            made = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode("ascii")
            write_atomically(self.home / "fernet.key", made)
        done = subprocess.run(
            [sys.executable, "-m", "reconcile.lab.airflow.provide"],
            input=json.dumps(wanted),
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RefusedError(f"Airflow's database in {self.home} could not be provided: {done.stderr[-2000:]}")

    def start(self) -> None:
        """Start all its parts and wait until each is healthy; raise UnreachableError, and end them, if they are not."""
        for offset, what in enumerate(("Airflow", "Airflow's log server", "Airflow's trigger log server")):
            process.refuse_taken(self.port + offset, what, "--port")
        self.spawn(self.log, "-m", "airflow", "standalone")
        try:
            process.wait_until(self.healthy, "Airflow is not healthy", _TO_START, self.log, every=1)
        except BaseException:
            self.stop()
            raise

    def spawn(self, log: Path, *arguments: str) -> None:
        """Start a Python program that outlives us, in the environment of this Airflow, which ends with it."""
        make_private_file(log)
        with log.open("ab") as out:
            subprocess.run(
                [sys.executable, "-c", _DETACH, sys.executable, *arguments],
                env=self.environment(),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                check=True,
                umask=0o077,
            )

    def healthy(self) -> bool:
        """Query whether all parts are healthy."""
        try:
            found = self._query("GET", "/api/v2/monitor/health", None, {})
        except UnreachableError:
            return False
        return all(found.get(part, {}).get("status") == "healthy" for part in _PARTS)

    def stop(self) -> None:
        """Interrupt its parent, then end every process that remains."""
        for parent in self._parents():
            process.end(parent, signal.SIGINT, "Airflow", _TO_STOP)
        for pid in self.processes():
            process.end(pid, signal.SIGTERM, "a part of Airflow", 10)

    def processes(self) -> list[int]:
        """Find every process that was started by this Airflow, however deep."""
        home = str(self.home.resolve())
        return process.find(lambda each: each.pid != os.getpid() and each.environ().get(_MARK) == home)

    def ask(self, method: str, path: str, body: Any = None, token: str | None = None) -> dict[str, Any]:
        """Ask its REST API as its user; raise UnreachableError with its answer if it refuses.

        A caller with many queries signs in once and passes the token.
        """
        return self._query(method, path, body, {"Authorization": f"Bearer {token or self.token()}"})

    def token(self) -> str:
        """Sign in and return the token that a browser, or a program, then shows."""
        credentials = {"username": USER, "password": self.password}
        return str(self._query("POST", "/auth/token", credentials, {})["access_token"])

    def _query(self, method: str, path: str, body: Any, headers: dict[str, str]) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(  # noqa: S310 - the scheme is ours
            self.url + path, data, {"Content-Type": "application/json", **headers}, method=method
        )
        try:
            with urlopen(request, timeout=30) as answer:  # noqa: S310
                found: dict[str, Any] = json.loads(answer.read() or b"{}")
                return found
        except (URLError, OSError, ValueError) as error:
            said = error.read().decode("utf-8", "replace")[:500] if hasattr(error, "read") else ""
            raise UnreachableError(f"Airflow at {self.url} does not do {method} {path}: {error} {said}") from None

    def _parents(self) -> list[int]:
        ours = set(self.processes())
        return [pid for pid in ours if psutil.pid_exists(pid) and psutil.Process(pid).ppid() not in ours]
