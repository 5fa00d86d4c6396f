"""The lab's servers as processes: which are ours, who they run as, how they end."""

from __future__ import annotations

import errno
import hashlib
import os
import pwd
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import psutil

from reconcile.errors import RefusedError, UnreachableError
from reconcile.workspace.filesystem import make_private_file


def wait_until(
    condition: Callable[[], bool], what: str, seconds: float, log: Path | None = None, every: float = 0.05
) -> None:
    """Wait for a condition; the error says what did not happen and how the server's log ends."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise UnreachableError(f"{what} within {seconds:.0f} s{tail(log)}")
        time.sleep(every)


def tail(log: Path | None, lines: int = 15) -> str:
    """Read the end of a log, as an addition to a message."""
    if log is None or not log.exists():
        return ""
    text = log.read_text("utf-8", errors="replace").splitlines()[-lines:]
    return f"; its log ({log}) ends:\n  " + "\n  ".join(text)


def listening(port: int) -> bool:
    """Check whether something accepts connections on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def refuse_taken(port: int, server: str, option: str) -> None:
    """Raise when a port that a server of ours is to have is taken already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise RefusedError(
                    f"port {port}, which {server} is to have: {error.strerror}; choose another with {option}"
                ) from None
            raise RefusedError(
                f"port {port}, which {server} is to have, is in use by {_listener(port)}:"
                f" end that, or choose another with {option}"
            ) from None


def _listener(port: int) -> str:
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.pid and connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,):
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return "a process of another account"


def find(is_ours: Callable[[psutil.Process], bool]) -> list[int]:
    """Query the pids of the running processes that are ours, also those of a killed command."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ended meanwhile, or is another account's and so not ours
            if process.status() != psutil.STATUS_ZOMBIE and is_ours(process):
                found.append(process.pid)
    return found


def running(pid: int) -> bool:
    """Check whether a process has not ended. While one begins its program, nothing but its pid tells which it is."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def java() -> str:
    """Choose the Java that the lab's servers run on."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if found is None:
        raise RefusedError("the lab needs Java 17 or newer on the PATH, or JAVA_HOME")
    return found


def environment() -> dict[str, str]:
    """Build the environment of a Java server."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}  # Java reads names of files by the locale


def started(server: Sequence[str], folder: Path, log: Path, secrets: Mapping[str, str] = MappingProxyType({})) -> int:
    """Start a server in its folder, with a log that it appends to and secrets in its environment; give its pid."""
    command = ["/bin/sh", "-c", 'umask 077 && cd "$0" && exec "$@"', str(folder), *server]
    make_private_file(log)
    with log.open("ab") as file:
        return os.posix_spawn(
            command[0],
            command,
            {**environment(), **secrets},
            setsid=True,  # so that Ctrl-C at the terminal does not reach the server
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                *((os.POSIX_SPAWN_DUP2, file.fileno(), fd) for fd in (1, 2)),
            ],
        )


def end(pid: int, stop: signal.Signals, what: str, seconds: float = 30) -> None:
    """End one process of ours, politely first."""
    try:
        process = psutil.Process(pid)
        process.send_signal(stop)
        try:
            process.wait(seconds)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(seconds)
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired:
        raise UnreachableError(f"{what} (process {pid}) does not end, not even by kill -9") from None


def unprivileged() -> pwd.struct_passwd | None:
    """Choose the account for a server that refuses to run as root; None if we are not root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def reachable(path: Path) -> bool:
    """Check whether an unprivileged account may walk down to a path."""
    return all(part.stat().st_mode & 0o001 for part in path.resolve().parents if part.exists())


def walkable_home(folder: Path) -> Path:
    """Choose where an unprivileged account can keep files for `folder`: there, or else below /var/tmp."""
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    elsewhere = Path("/var/tmp") / f"reconcile-lab-{name}"  # noqa: S108 - `own` checks whose it is
    return folder if reachable(folder) and not elsewhere.exists() else elsewhere


def own(home: Path, account: pwd.struct_passwd | None) -> None:
    """Make a folder, unless it is there, that only one account may enter, by default ours."""
    uid, gid = (account.pw_uid, account.pw_gid) if account else (os.geteuid(), os.getegid())
    if home.is_symlink() or (home.exists() and home.stat().st_uid not in (os.geteuid(), uid)):
        raise RefusedError(f"{home} belongs to somebody else: remove it, or put the lab elsewhere with --dir")
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    os.chown(home, uid, gid)


def copy_tree(source: Path, target: Path, account: pwd.struct_passwd) -> None:
    """Copy a tree for an account once, so that a copy which was cut off is never taken for a whole one."""
    if target.exists():
        return
    beside = target.with_name(f"{target.name}.partial")
    remove_tree(beside)
    shutil.copytree(source, beside, symlinks=True)
    for path in (beside, *beside.rglob("*")):
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
    beside.rename(target)


def remove_tree(path: Path) -> None:
    """Remove a tree if it is there."""
    if path.exists():
        shutil.rmtree(path)
