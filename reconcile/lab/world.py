"""The lab's world: its servers up and down, its databases, topics and settings provided."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from reconcile.errors import RefusedError
from reconcile.files import committed
from reconcile.lab.folder import CONTROL, DATABASES, READER, Lab, Ports, write_atomically
from reconcile.lab.kafka import Kafka
from reconcile.lab.postgres import Postgres

PARTITIONS = 12
TOPICS = {
    "user-account": PARTITIONS,
    "user-balance": PARTITIONS,
    "user-activity": PARTITIONS,
    "user-account.login.retry-1": 3,
    "user-account.login.retry-2": 3,
    "user-account.login.dlq": 3,
    "user-account.login.stash": 3,
    "user-activity.activity.retry-1": 3,
    "user-activity.activity.dlq": 3,
}
_WRITTEN_BY_US = "# Written by `reconcile lab up`; it is written anew whenever the lab comes up.\n"


def up(lab: Lab, ports: Ports | None = None, say: Callable[[str], None] = lambda _: None) -> None:
    """Bring the world up, whatever an earlier command left: afterwards both servers answer and hold what they need."""
    with lab.alone("up"):
        postgres, kafka = Postgres(lab), Kafka(lab)
        if ports and ports != lab.state().ports and (postgres.pid or kafka.pid):
            raise RefusedError(f"the lab in {lab.root} runs on other ports: `reconcile lab down` first")
        lab.remember(**({"ports": ports} if ports else {}))
        say("starting Postgres")
        postgres.up()
        say("starting Kafka")
        kafka.up()
        say("providing databases, roles and topics")
        _provide_databases(lab)
        _provide_topics(lab)
        _write_settings(lab)


def down(lab: Lab, wipe: bool = False) -> None:
    """Stop what runs of the world; with `wipe`, forget it too."""
    if not lab.root.is_dir():
        return
    with lab.alone("down"):
        servers = (Kafka(lab), Postgres(lab))
        for server in servers:
            server.down()
        if wipe:
            for server in servers:
                server.wipe()
    if wipe:
        config = settings_file(lab)
        if config.is_file():
            config.unlink()
        shutil.rmtree(lab.root)


def status(lab: Lab) -> dict[str, Any]:
    """Tell where the world stands and how to reach it."""
    if not (lab.root / "state.json").exists():
        return {"running": False, "folder": str(lab.root.resolve())}
    state = lab.state()
    pids = {"postgres": Postgres(lab).pid, "kafka": Kafka(lab).pid}
    return {
        "running": all(pids.values()),
        "folder": str(lab.root.resolve()),
        "postgres": lab.url("postgres"),
        "kafka": lab.bootstrap,
        "databases": {name: lab.url(name) for name in DATABASES},
        "config": str(settings_file(lab).resolve()),
        "truth": str(lab.truth.resolve()),
        "processes": pids,
        "seed": state.seed,
        "aggregates": state.aggregates,
        "seeded": state.seeded,
    }


def require_running(lab: Lab) -> None:
    """Raise unless the world is up."""
    if not status(lab)["running"]:
        raise RefusedError(f"the lab in {lab.root} is not up: `reconcile lab up` first")


def settings_file(lab: Lab) -> Path:
    """Give the settings that the lab writes: reconcile.yaml beside its folder, unless a team's own stands there."""
    beside = lab.root.resolve().parent / "reconcile.yaml"
    if not beside.exists() or beside.read_text("utf-8", errors="replace").startswith(_WRITTEN_BY_US):
        return beside
    return lab.root / "reconcile.yaml"


def _write_settings(lab: Lab) -> None:
    config = settings_file(lab)
    secrets = lab.root.resolve() / "secrets"
    urls = {f"{name}-db": lab.url(name, READER) for name in DATABASES if name != "control"}
    urls["control"] = lab.url("control")
    references = {}
    for name, url in urls.items():
        write_atomically(secrets / f"{name}.url", url + "\n", mode=0o600)
        references[name] = {"url": f"file:{(secrets / f'{name}.url')}"}
    settings = {
        "workspace": "runs",
        "control_store": references.pop("control"),
        "connections": {**references, "main": {"bootstrap": lab.bootstrap}},
    }
    write_atomically(config, _WRITTEN_BY_US + yaml.safe_dump(settings, sort_keys=False))


def _provide_databases(lab: Lab) -> None:
    from psycopg2 import sql

    from reconcile.lab.services.database import connected

    def role(cursor: Any, name: str) -> None:
        cursor.execute("select 1 from pg_roles where rolname = %s", (name,))
        verb = "alter" if cursor.fetchone() else "create"
        statement = sql.SQL(verb + " role {} login password {}")
        cursor.execute(statement.format(sql.Identifier(name), sql.Literal(lab.password(name))))

    with connected(lab.url("postgres"), autocommit=True) as cursor:
        for name in (READER, CONTROL, *(f"{database}_service" for database in DATABASES[:-1])):
            role(cursor, name)
        cursor.execute("select datname from pg_database")
        present = {name for (name,) in cursor.fetchall()}
        for database in DATABASES:
            if database not in present:
                statement = sql.SQL("create database {} owner {}")
                owner = sql.Identifier(CONTROL if database == "control" else f"{database}_service")
                cursor.execute(statement.format(sql.Identifier(database), owner))
    for database in DATABASES:
        with connected(lab.url(database, "postgres")) as cursor:
            if database == "control":
                cursor.execute(committed("sql", "roles", "control.sql").read_text("utf-8"))
                continue
            cursor.execute("select 1 from pg_tables where schemaname = 'public'")
            if cursor.fetchone() is None:
                owner = sql.Identifier(f"{database}_service")
                cursor.execute(sql.SQL("alter schema public owner to {0}; set role {0}").format(owner))
                cursor.execute(committed("sql", "lab", f"{database}.sql").read_text("utf-8"))
                cursor.execute("reset role")
            cursor.execute(committed("sql", "roles", "reader.sql").read_text("utf-8"))


def _provide_topics(lab: Lab) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    made = admin.create_topics([NewTopic(name, partitions, 1) for name, partitions in TOPICS.items()])
    for future in made.values():
        try:
            future.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
