"""The lab's servers as processes: which are ours, who they run as, how they end."""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from reconcile.errors import RefusedError, UnreachableError


def wait_until(condition: Callable[[], bool], what: str, seconds: float, log: Path | None = None) -> None:
    """Wait for a condition, or tell what did not happen and how the server's log ends."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise UnreachableError(f"{what} within {seconds:.0f} s{tail(log)}")
        time.sleep(0.05)


def tail(log: Path | None, lines: int = 15) -> str:
    """Give the end of a log as an addition to a message."""
    if log is None or not log.exists():
        return ""
    text = log.read_text("utf-8", errors="replace").splitlines()[-lines:]
    return f"; its log ({log}) ends:\n  " + "\n  ".join(text)


def listening(port: int) -> bool:
    """Tell whether something accepts connections on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def refuse_taken(port: int, server: str, option: str) -> None:
    """Raise when a port that a server of ours is to have is taken already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            owner = f" by {found}" if (found := _listener(port)) else ""
            raise RefusedError(
                f"port {port}, which {server} is to have, is in use{owner}: end that, or choose another with {option}"
            ) from None


def _listener(port: int) -> str | None:
    for connection in psutil.net_connections("tcp"):
        if connection.pid and connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,):
            return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return None


def find(is_ours: Callable[[list[str]], bool]) -> int | None:
    """Give the pid of the running server whose command line is ours, also one that a killed command left."""
    for process in psutil.process_iter(["cmdline", "status", "ppid"]):
        line = process.info["cmdline"]
        if line and process.info["status"] != psutil.STATUS_ZOMBIE and is_ours(line):
            return int(process.pid)
    return None


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
    """Give the account that a server which refuses to run as root runs as; None where we are not root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def reachable(path: Path) -> bool:
    """Tell whether an unprivileged account may walk down to a path."""
    return all(part.stat().st_mode & 0o001 for part in path.resolve().parents)


def walkable_home(folder: Path, account: pwd.struct_passwd) -> Path:
    """Give a folder of an account's own: inside `folder` where it can get there, else below /var/tmp."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if reachable(folder):
        home = folder
    else:
        name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
        home = Path("/var/tmp") / f"reconcile-lab-{name}"  # noqa: S108 - checked below to be ours
    if home.is_symlink() or (home.exists() and home.stat().st_uid not in (0, account.pw_uid)):
        raise RefusedError(f"{home} belongs to somebody else: remove it, or put the lab elsewhere with --dir")
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    os.chown(home, account.pw_uid, account.pw_gid)
    return home


def copy_tree(source: Path, target: Path) -> None:
    """Copy a tree once, so that a copy which was cut off is never taken for a whole one."""
    if target.exists():
        return
    beside = target.with_name(f"{target.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(source, beside, symlinks=True)
    beside.rename(target)
