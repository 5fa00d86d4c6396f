"""The settings of an installation: where runs are kept, what contracts connect to, and how Spark runs."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Discriminator, Field, SecretStr, Tag, ValidationInfo

from reconcile.config.durations import Duration
from reconcile.config.text import Text
from reconcile.config.validation import Contradiction, Model, suggestion, validated
from reconcile.config.yamlfile import quoted, read
from reconcile.errors import InvalidFileError, Problem, ReconcileError, RefusedError
from reconcile.settings.connections import (
    Alerting,
    AnyConnection,
    ClusterConnection,
    Connection,
    ControlDatabase,
    DataHub,
    Lake,
    Metrics,
    SecretReference,
    SqliteFile,
)
from reconcile.settings.references import Given, Reference, reference
from reconcile.settings.urls import PostgresUrl

DEFAULT_FILE = Path("reconcile.yaml")
FILE_VARIABLE = "RECONCILE_CONFIG"
OVERRIDE_PREFIX = "RECONCILE_CONN_"
CONTROL_FILE = "control.db"
_KEY = Reference("file", "redaction.key", "redaction_key")

_ON_COMMAND_LINES = frozenset(
    [*(f"spark.{role}.extraJavaOptions" for role in ("driver", "executor")), "spark.jars", "spark.sql.extensions"]
)
_URI = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):/")


class UnknownConnectionError(ReconcileError):
    """Raised when a contract names a connection that the settings do not have: add it, or correct the name."""


def _folder(value: Any) -> Any:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("expected the path of a folder, or a URI such as s3a://bucket/runs")
    return value


def _or_reference(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        return reference(value, "password", (info.context or {}).get("folder", Path())) or value
    return value


_TextOrReference = Annotated[
    Annotated[Reference, Tag("<kind:reference>")] | Annotated[Text, Tag("<kind:text>")],
    Discriminator(lambda value: "<kind:reference>" if isinstance(value, Reference) else "<kind:text>"),
    BeforeValidator(_or_reference),
]


class Spark(Model):
    """How Spark runs."""

    master: Text = "local[*]"
    """Where Spark runs: local[*], spark://host:port, k8s://..., or yarn."""
    conf: Mapping[Text, _TextOrReference] = Field(default_factory=dict)
    """Settings for Spark, as it names them; a secret is a reference."""

    def contradictions(self) -> Iterator[Contradiction]:
        """List what does not fit together."""
        told = "has to stand on a command line, which everybody on the machine can read: it can be no reference"
        yield from ((("conf", key), told) for key in self.references() if key in _ON_COMMAND_LINES)

    def references(self) -> frozenset[str]:
        """List the settings whose values are kept elsewhere: they stand on no command line."""
        return frozenset(key for key, value in self.conf.items() if isinstance(value, Reference))

    def resolve(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Resolve what is set, secrets included; raise SecretError if one is missing."""
        return {
            key: value.resolve(environ).get_secret_value() if isinstance(value, Reference) else value
            for key, value in self.conf.items()
        }

    def listed(self, key: str) -> list[str]:
        """Build the list that one of its settings holds, such as spark.jars."""
        value = self.conf.get(key, "")
        return [] if isinstance(value, Reference) else [each.strip() for each in value.split(",") if each.strip()]


def mirror_url(text: Any) -> str:
    """Check the URL of a mirror; raise ValueError for one that Ivy cannot use, or that holds a password."""
    parts = urlsplit(text) if isinstance(text, str) else None
    if parts is None or parts.scheme not in ("http", "https", "file") or not (parts.hostname or parts.path):
        raise ValueError("expected the URL of a Maven repository, such as https://mirror.internal/maven")
    if parts.username or parts.password:
        raise ValueError("a mirror that wants a password is not supported: fetch the jars elsewhere, and copy them")
    return str(text)


class Setup(Model):
    """Where `reconcile setup` fetches from."""

    mirror: Annotated[str, BeforeValidator(mirror_url)] | None = None
    """A copy of Maven's repository; left out, Maven's own."""


class RunRequests(Model):
    """What may be asked for by `reconcile request` and on the request topic."""

    waiting: Annotated[int, Field(ge=1)] = 20
    """At most so many requests of a contract wait or run at a time."""
    waiting_of_one: Annotated[int, Field(ge=1)] = 10
    """At most so many of them are one requester's; the topic, which does not say who writes, is one."""
    apply: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    """The contracts for which a record on the topic may ask for corrections."""


class FindingsTable(Model):
    """The table of a lake that gets the findings of all runs."""

    store: Text
    """The name of a connection to a lake of Iceberg's tables."""
    table: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+$")]
    """The table, with its namespace: `audit.findings`. It is made if it is not there."""


class LogHistory(Model):
    """How long the histories of topics are kept."""

    keep: Duration | None = None
    """Records that are older are given up, a reading at a time; left out, all are kept."""


class Pruning(Model):
    """What the nightly DAG prunes."""

    older_than: Duration
    """What is older goes, as by `reconcile prune --older-than`."""


class Settings(Model):
    """What an installation sets once for all contracts."""

    workspace: Annotated[str, BeforeValidator(_folder)] = "runs"
    """The folder in which runs are kept: a path, or a URI of a file system that Spark reaches."""
    control_store: ControlDatabase | None = None
    """The database that keeps runs, findings over time and corrections."""
    connections: dict[Text, AnyConnection] = Field(default_factory=dict)
    """What contracts connect to, by name."""
    alerts: Alerting = Alerting()
    """Whom consumers tell of what they cannot settle alone."""
    metrics: Metrics = Metrics()
    """Where the figures of runs are sent."""
    datahub: DataHub | None = None
    """The catalogue that is told of each copy whether it agrees with its source; left out, none is."""
    findings_table: FindingsTable | None = None
    """The table of a lake that gets the findings of all runs, without values of fields; left out, none does."""
    spark: Spark = Spark()
    """How Spark runs."""
    requests: RunRequests = RunRequests()
    """What may be asked for by `reconcile request` and on the request topic."""
    history: LogHistory = LogHistory()
    """How long the histories of topics are kept."""
    keep: Literal["snapshots"] | None = None
    """`snapshots`: the rows that a run compared stay after its report; left out, they go."""
    prune: Pruning | None = None
    """What the nightly DAG prunes; left out, nothing."""
    redaction_key: SecretReference = _KEY
    """The key under which values of sensitive fields are hashed. A file that is missing is made on first use."""
    setup: Setup = Setup()
    """Where `reconcile setup` fetches from."""

    def contradictions(self) -> Iterator[Contradiction]:
        """List what does not fit together."""
        first: dict[str, str] = {}
        for name in self.connections:
            variable = override_variable(name)
            if variable in first:
                yield (
                    ("connections", name),
                    f"shares the variable {variable} with {quoted(first[variable])}: rename one",
                )
            first.setdefault(variable, name)
        for name in self.datahub.stores if self.datahub is not None else ():
            if name not in self.connections:
                yield ("datahub", "stores", name), f"is no connection{suggestion(name, self.connections)}"

    def control_address(self) -> PostgresUrl | SqliteFile | None:
        """Choose where the control store is: as set, else in a file of the workspace; None where that cannot hold one.

        Raises SecretError if the address that is set is missing or malformed.
        """
        if self.control_store is not None:
            return self.control_store.resolve()
        return None if needs_spark(self.workspace) else SqliteFile(Path(self.workspace) / CONTROL_FILE)

    def connection(self, name: str) -> Connection:
        """Return a connection; raise UnknownConnectionError with the nearest name if there is none."""
        if name in self.connections:
            return self.connections[name]
        if not self.connections:
            how = f"no connection is set: write {DEFAULT_FILE}, or name a file with --config or {FILE_VARIABLE}"
            raise UnknownConnectionError(f"no connection {quoted(name)}; {how}")
        valid = f"; there are {', '.join(sorted(self.connections))}"
        raise UnknownConnectionError(f"no connection {quoted(name)}{suggestion(name, self.connections) or valid}")

    def reading(self, stores: Collection[str]) -> Settings:
        """Leave out the lakes that are none of these stores, so that Spark is not started with what they need."""
        needed = {*stores, *([] if self.findings_table is None else [self.findings_table.store])}
        kept = {name: each for name, each in self.connections.items() if name in needed or not isinstance(each, Lake)}
        return self.model_copy(update={"connections": kept})

    def cluster(self, name: str) -> ClusterConnection:
        """Return the connection to a cluster; raise RefusedError for one to something else."""
        connection = self.connection(name)
        if not isinstance(connection, ClusterConnection):
            raise RefusedError(f"the connection {name} is no Kafka cluster")
        return connection


def needs_spark(workspace: str | Path) -> bool:
    """Tell whether a workspace is a URI, which can only be reached through Spark."""
    return _URI.match(str(workspace)) is not None


def load_settings(
    config: Path | None = None, workspace: str | None = None, environ: Mapping[str, str] = os.environ
) -> Settings:
    """Read the settings: `config`, else what RECONCILE_CONFIG names, else ./reconcile.yaml, else the defaults.

    Raises InvalidFileError with every problem. A connection's address gives way to RECONCILE_CONN_<NAME>.
    """
    file = _file(config, environ)
    folder = file.parent if file else Path()
    settings = Settings()
    if file:
        settings = validated(Settings, read(file), file, context={"folder": folder}, secretive=True)
    connections = {
        name: _overridden(name, connection, folder, environ) for name, connection in settings.connections.items()
    }
    update: dict[str, object] = {"connections": connections}
    if settings.redaction_key == _KEY:
        update["redaction_key"] = replace(_KEY, folder=folder)
    if workspace is not None:
        update["workspace"] = workspace
    return settings.model_copy(update=update)


def override_variable(name: str) -> str:
    """Name the environment variable that overrides a connection: RECONCILE_CONN_USER_DB for user-db."""
    return OVERRIDE_PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())


def _file(config: Path | None, environ: Mapping[str, str]) -> Path | None:
    if config is not None:
        return config
    if FILE_VARIABLE in environ:
        if not environ[FILE_VARIABLE]:
            raise InvalidFileError(FILE_VARIABLE, [Problem("", "is set but empty: name a file, or unset it")])
        return Path(environ[FILE_VARIABLE])
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def _overridden(name: str, connection: Connection, folder: Path, environ: Mapping[str, str]) -> Connection:
    variable = override_variable(name)
    value = environ.get(variable)
    if value is None:
        return connection
    if not value.strip():
        raise InvalidFileError(variable, [Problem("", "is set but empty: give an address, or unset it")])
    try:
        wanted = "url" if connection.address == "registry" else connection.address
        address = reference(value, wanted, folder) or Given(SecretStr(value), variable)
    except ValueError as error:
        raise InvalidFileError(variable, [Problem("", str(error))]) from None
    return connection.model_copy(update={connection.address: address})
