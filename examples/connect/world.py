"""The servers of an example: Postgres with a log that can be decoded, Kafka, and a worker of Kafka Connect."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from string import Template

from confluent_kafka.admin import NewTopic
from psycopg2 import sql
from psycopg2.extensions import encrypt_password

from examples.connect import jars
from examples.connect.worker import Connect
from reconcile.files import committed
from reconcile.lab import process
from reconcile.lab.folder import READER, Lab, Ports
from reconcile.lab.kafka import Kafka
from reconcile.lab.postgres import PostgresServer
from reconcile.lab.services import offsets
from reconcile.lab.services.database import connected

_LOG = logging.getLogger(__name__)
_LOGICAL = {"wal_level": "logical", "max_wal_senders": "8", "max_replication_slots": "8"}


@dataclass(frozen=True)
class World:
    """The servers of an example, in one folder."""

    folder: Path
    ports: Ports
    connect_port: int
    databases: tuple[str, ...]
    """Those that the audit reads."""
    roles: tuple[str, ...] = ("connect",)
    """Who logs in beside the audit."""

    @cached_property
    def lab(self) -> Lab:
        """The folder, as the lab's servers know it."""
        return Lab(self.folder / "servers")

    @cached_property
    def connect(self) -> Connect:
        """The worker of Kafka Connect."""
        return Connect(self.lab, self.connect_port, jars.fetched())

    @property
    def runs(self) -> Path:
        """The folder of the audits' runs."""
        return self.folder / "runs"

    def up(self) -> None:
        """Bring up servers and roles, new ones."""
        self.down()
        self.lab.refuse_foreign()
        for port, server in (
            (self.ports.postgres, "Postgres"),
            (self.ports.kafka, "Kafka"),
            (self.ports.controller, "Kafka's controller"),
            (self.connect_port, "Kafka Connect"),
        ):
            process.refuse_taken(port, server, f"--{server.lower().split()[-1]}-port")
        self.lab.root.mkdir(parents=True, exist_ok=True)
        self.lab.remember(ports=self.ports)
        connect = self.connect
        _LOG.info("starting Postgres and Kafka")
        self._postgres.up()
        self._kafka.up()
        store = {"cleanup.policy": "compact"}
        _provide(self.lab, {"connect.offsets": 1, "connect.configs": 1, "connect.status": 1}, store)
        _LOG.info("starting Kafka Connect")
        connect.up()
        self._provide_roles()

    def down(self) -> None:
        """Stop every server, and leave nothing of them."""
        Connect(self.lab, self.connect_port, Path()).down()
        for server in (self._kafka, self._postgres):
            server.down()
            server.wipe()
        if self.lab.made:  # what is in the folder is ours
            shutil.rmtree(self.runs, ignore_errors=True)
            for file in (self.folder / "environment", *self.folder.glob("truth-*.jsonl")):
                file.unlink(missing_ok=True)
            shutil.rmtree(self.lab.root)
            with suppress(OSError):
                self.folder.rmdir()

    def environment(self) -> dict[str, str]:
        """Build what `reconcile.yaml` refers to."""
        urls = {f"{each.upper()}_URL": self.lab.url(each, READER) for each in self.databases}
        return {**urls, "KAFKA_BOOTSTRAP": self.lab.bootstrap}

    def provide_database(self, name: str, tables: Path) -> None:
        """Create a database with its tables, which the audit may read."""
        with connected(self.lab.url("postgres"), autocommit=True) as cursor:
            cursor.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        with connected(self.lab.url(name, "postgres")) as cursor:
            cursor.execute(tables.read_text("utf-8"))
            cursor.execute(committed("sql", "lab", "reader.sql").read_text("utf-8"))

    def config(self, file: Path, **changes: str) -> dict[str, str]:
        """Read the committed configuration of a connector, with changes."""
        self.lab.password("connect")
        secret = f"${{secrets:{self.lab.root.resolve() / 'secrets'}:connect.password}}"
        filled = Template(file.read_text("utf-8")).substitute(postgres_port=self.ports.postgres, password=secret)
        config: dict[str, str] = json.loads(filled)
        return {**config, **changes}

    def reconfigure(self, connector: str, config: Mapping[str, str]) -> None:
        """Give a running connector another configuration."""
        self.connect.stop(connector)  # so that a task that runs has the new configuration
        self.connect.configure(connector, config)

    @property
    def _postgres(self) -> PostgresServer:
        return PostgresServer(self.lab, _LOGICAL)

    @property
    def _kafka(self) -> Kafka:
        return Kafka(self.lab)

    def _provide_roles(self) -> None:
        rights = {READER: "nosuperuser", **dict.fromkeys(self.roles, "nosuperuser"), "connect": "replication"}
        with connected(self.lab.url("postgres"), autocommit=True) as cursor:
            for role, right in rights.items():
                statement = sql.SQL("create role {} login " + right + " password {}")
                verifier = encrypt_password(self.lab.password(role), role, cursor.connection, "scram-sha-256")
                cursor.execute(statement.format(sql.Identifier(role), sql.Literal(verifier)))


def _provide(lab: Lab, wanted: Mapping[str, int], config: Mapping[str, str]) -> None:
    admin = offsets.admin_client(lab.bootstrap)
    topics = [NewTopic(name, count, 1, config=dict(config)) for name, count in wanted.items()]
    for future in admin.create_topics(topics).values():
        future.result(60)
