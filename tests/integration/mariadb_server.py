"""A MariaDB of Debian's that tests have for themselves: on loopback, in a folder that goes with it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

import pymysql

from reconcile.lab import process
from reconcile.settings.urls import MariaUrl, parse_mariadb

PASSWORD = "a word that nobody may see"
_TO_START = 120


@dataclass(frozen=True)
class MariaServer:
    """A running server; `audit` may read the database `shop`, and root may do all."""

    port: int
    process: subprocess.Popen[bytes]

    def url(self, database: str = "shop", user: str = "audit", password: str = PASSWORD) -> str:
        """Where a database of it is, with the password."""
        account = f"{user}:{password.replace(' ', '%20')}"
        return f"mariadb://{account}@127.0.0.1:{self.port}/{database}"

    def address(self, **parts: Any) -> MariaUrl:
        """The same, parsed."""
        return parse_mariadb(self.url(**parts))

    def run(self, statement: str, parameters: Sequence[Any] = (), database: str | None = "shop") -> list[Any]:
        """Run a statement as root, and commit it."""
        with (
            pymysql.connect(
                host="127.0.0.1", port=self.port, user="root", database=database, charset="utf8mb4", autocommit=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("set time_zone = '+00:00'")
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall())

    def stop(self) -> None:
        """Stop it, and wait until it has ended."""
        self.run("shutdown")
        self.process.wait(_TO_START)

    def many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows as root."""
        with (
            pymysql.connect(
                host="127.0.0.1", port=self.port, user="root", database="shop", charset="utf8mb4", autocommit=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("set time_zone = '+00:00', sql_mode = ''")
            cursor.executemany(statement, rows)


@contextmanager
def mariadb_server(port: int, *options: str) -> Iterator[MariaServer]:
    """Start one, and leave nothing of it."""
    program = which("mariadbd", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    assert program, "these tests need mariadbd (Debian: apt-get install mariadb-server)"
    with TemporaryDirectory() as folder:
        data, log = Path(folder) / "data", Path(folder) / "log"
        account = ["--user=root"] if process.unprivileged() else []
        made = ["mariadb-install-db", "--no-defaults", *account, f"--datadir={data}", "--skip-test-db"]
        subprocess.run([*made, "--auth-root-authentication-method=normal"], check=True, capture_output=True)
        settings = [f"--datadir={data}", f"--socket={folder}/socket", f"--pid-file={folder}/pid", f"--port={port}"]
        settings += ["--bind-address=127.0.0.1", "--innodb-flush-log-at-trx-commit=0", *options]
        with (
            log.open("w") as written,
            subprocess.Popen([program, "--no-defaults", *account, *settings], stdout=written, stderr=written) as server,
        ):
            try:
                found = MariaServer(port, server)
                process.wait_until(lambda: _answers(server, found, log), "MariaDB did not answer", _TO_START, log)
                found.run("create database shop character set utf8mb4", database=None)
                found.run(f"create user audit@localhost identified by '{PASSWORD}'")
                found.run("grant select on shop.* to audit@localhost")
                yield found
            finally:
                server.kill()


def _answers(server: subprocess.Popen[bytes], found: MariaServer, log: Path) -> bool:
    assert server.poll() is None, f"mariadbd has ended{process.tail(log)}"
    try:
        return bool(found.run("select 1", database=None))
    except pymysql.OperationalError:
        return False
