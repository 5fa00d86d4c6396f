"""Secrets are references to where they are kept: in the environment, in a file, or in an Airflow connection."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlencode

from pydantic import SecretStr

from reconcile.errors import SecretError
from reconcile.settings.urls import MARIADB_PARAMETERS, PARAMETERS, SCHEME

FORMS = "env:NAME, file:path or airflow:conn_id"
LARGEST_SECRET = 64 * 1024

_REFERENCE = re.compile(r"(env|file|airflow):(.*)", re.DOTALL)
_TARGETS = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII),
    "file": re.compile(r"[^\x00-\x1f]+"),
    "airflow": re.compile(r"[\w.-]+", re.ASCII),
}


@dataclass(frozen=True)
class Reference:
    """Where a secret is kept; printing it shows the place and never the secret."""

    scheme: Literal["env", "file", "airflow"]
    target: str
    wanted: str = "password"
    """What to take of an Airflow connection: url, bootstrap, or a setting's name such as sasl.password."""
    folder: Path = field(default_factory=Path)
    """The folder that a file's path is seen from."""

    def __repr__(self) -> str:
        return f"{self.scheme}:{self.target}"

    def resolve(self, environ: Mapping[str, str] = os.environ) -> SecretStr:
        """Read the secret; raise SecretError if it is not there."""
        if self.scheme == "env":
            secret = self._from_environment(environ)
        elif self.scheme == "file":
            secret = self._from_file()
        else:
            secret = self._from_airflow()
        return SecretStr(secret)

    def _from_environment(self, environ: Mapping[str, str]) -> str:
        secret = environ.get(self.target)
        if not secret:
            state = "is empty" if secret == "" else "is not set"
            raise SecretError(f"{self!r}: the environment variable {self.target} {state}; export it and start again")
        return secret

    def _from_file(self) -> str:
        path = self.folder / self.target
        try:
            if not path.is_file():
                raise SecretError(f"{self!r}: there is no file {path}; write the secret into it")
            with path.open("rb") as stream:
                data = stream.read(LARGEST_SECRET + 1)
        except OSError as error:
            raise SecretError(f"{self!r}: the file {path} cannot be read: {error.strerror}") from None
        try:
            secret = data.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise SecretError(f"{self!r}: the file {path} is not UTF-8 text") from None
        if not secret or len(data) > LARGEST_SECRET:
            state = "is empty" if not secret else f"is larger than {LARGEST_SECRET // 1024} KiB"
            raise SecretError(f"{self!r}: the file {path} {state}; write the secret into it")
        return secret

    def _from_airflow(self) -> str:
        # Airflow logs to stdout, which belongs to the command's data.
        with redirect_stdout(sys.stderr):
            connection = self._airflow_connection()
        secret = from_airflow(connection, self.wanted)
        if not secret:
            raise SecretError(f"{self!r}: the Airflow connection {self.target!r} holds no {self.wanted}; add it there")
        return secret

    def _airflow_connection(self) -> Any:
        try:
            from airflow.sdk import Connection
            from airflow.sdk.exceptions import AirflowException, AirflowRuntimeError
        except ImportError:
            raise SecretError(f"{self!r}: Airflow is not installed here; install it, or use env: or file:") from None
        try:
            return Connection.get(self.target)
        except (AirflowException, ValueError):
            how = f"add it in Airflow, or set AIRFLOW_CONN_{self.target.upper()} where this is not an Airflow task"
            raise SecretError(f"{self!r}: there is no Airflow connection {self.target!r}; {how}") from None
        except AirflowRuntimeError as error:
            raise SecretError(f"{self!r}: Airflow does not give its connection: {error.error.error}") from None


@dataclass(frozen=True)
class Given:
    """A value that stands for itself; printing it shows where it was given, and not the value."""

    value: SecretStr
    place: str = "the settings"

    def __repr__(self) -> str:
        return f"<given in {self.place}>"

    def resolve(self, environ: Mapping[str, str] = os.environ) -> SecretStr:  # noqa: ARG002
        """Return the value."""
        return self.value


Secret = Reference | Given


def reference(text: str, wanted: str, folder: Path) -> Reference | None:
    """Read a reference; give None if the text is none, raise ValueError if it is a malformed one."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        return None
    scheme, target = match.groups()
    if _TARGETS[scheme].fullmatch(target) is None:
        raise ValueError(f"is a reference that leads nowhere: write {FORMS}")
    return Reference(scheme, target, wanted, folder)  # type: ignore[arg-type]


def from_airflow(connection: Any, wanted: str) -> str | None:
    """Take a URL, the bootstrap servers or one setting of an Airflow connection; give None if it has none."""
    extra = _extra(connection.extra)
    if wanted == "url":
        return _url(connection, extra)
    if wanted == "bootstrap":
        host = connection.host and (f"{connection.host}:{connection.port}" if connection.port else connection.host)
        return extra.get("bootstrap.servers") or host or None
    if wanted == "path":
        return extra.get("path")
    return extra.get(wanted) or connection.password or None


def _extra(text: str | None) -> dict[str, str]:
    try:
        extra = json.loads(text or "{}")
    except ValueError:
        return {}
    return {name: str(value) for name, value in extra.items()} if isinstance(extra, dict) else {}


def _url(connection: Any, extra: Mapping[str, str]) -> str | None:
    if connection.host and connection.host.startswith("jdbc:"):
        return str(connection.host)
    if connection.conn_type in ("http", "https") and connection.host:
        netloc = f"{connection.host}:{connection.port}" if connection.port else str(connection.host)
        return netloc if "://" in netloc else f"{connection.schema or connection.conn_type}://{netloc}"
    kinds = {"postgres": SCHEME, "postgresql": SCHEME, "mysql": "mariadb://", "mariadb": "mariadb://"}
    if connection.conn_type not in kinds or not connection.host:
        return None
    scheme = kinds[connection.conn_type]
    credentials = ":".join(quote(each, safe="") for each in (connection.login, connection.password) if each)
    host = f"[{connection.host}]" if ":" in connection.host else connection.host
    port = f":{connection.port}" if connection.port else ""
    valid = PARAMETERS if scheme == SCHEME else MARIADB_PARAMETERS
    parameters = {name: value for name, value in extra.items() if name in valid}
    query = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
    at = f"{credentials}@" if credentials else ""
    return f"{scheme}{at}{host}{port}/{quote(connection.schema or '', safe='')}{query}"
