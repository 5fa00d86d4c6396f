"""The lab's world: its servers up and down, its databases, topics and settings provided."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import astuple
from pathlib import Path
from typing import Any

import yaml

from reconcile.contract.model import Contract, load_contract
from reconcile.errors import RefusedError
from reconcile.files import committed
from reconcile.lab import process
from reconcile.lab.folder import AUDITOR, CONTROL, DATABASES, READER, Lab, Ports, write_atomically
from reconcile.lab.kafka import Kafka
from reconcile.lab.postgres import PostgresServer
from reconcile.lab.services.offsets import admin_client, passes
from reconcile.pipeline import grants
from reconcile.pipeline.grants import KafkaGrant, Purpose

_LOG = logging.getLogger(__name__)

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
_CONSUMERS = ("login", "billing", "activity")
"""The databases of the services that consume by the library."""
_WRITTEN_BY_US = "# Written by `reconcile lab up`; it is written anew whenever the lab comes up.\n"


def up(lab: Lab, ports: Ports | None = None, *, secure: bool = False) -> None:
    """Bring the world up, also after a command that was cut off: then both servers answer and hold what they need.

    A secure one lets nobody in without TLS and a password, and stays so.
    """
    if not lab.made:
        _stop(lab)  # what still runs of a lab whose folder was removed
        lab.refuse_foreign()
    with lab.alone("up"):
        servers = postgres, kafka = PostgresServer(lab), Kafka(lab)
        if not lab.made:
            for server in servers:
                server.wipe()
        before = [server for server in servers if server.pid]
        state = lab.state()
        if ports and ports != state.ports and before:
            raise RefusedError(f"the lab in {lab.root} runs on other ports: `reconcile lab down` first")
        lost = [server.name for server in servers if not server.holds_data]
        if state.seeded != "no" and lost:
            raise RefusedError(
                f"the lab in {lab.root} was seeded, and the data of {' and '.join(lost)} are gone:"
                " `reconcile lab down --wipe` and `reconcile lab up` give a new one"
            )
        if secure and not state.secure and any(server.holds_data for server in servers):
            raise RefusedError(f"the lab in {lab.root} is not secure: `reconcile lab down --wipe` first")
        _refuse_taken(ports or state.ports, postgres, kafka)
        lab.remember(ports=ports or state.ports, secure=secure or state.secure)
        try:
            _LOG.info("starting Postgres")
            postgres.up()
            _LOG.info("starting Kafka")
            kafka.up()
            _LOG.info("providing databases, roles and topics")
            _provide_databases(lab)
            provide_topics(lab, TOPICS)
            _provide_rights(lab)
            _write_settings(lab)
        except BaseException:
            for server in servers:
                if server not in before:
                    server.down()
            raise


def down(lab: Lab, wipe: bool = False) -> None:
    """Stop what runs of the world, also where its folder is gone; with `wipe`, forget it too."""
    with lab.alone("down") if lab.made else nullcontext():
        _stop(lab)
        if wipe:
            lab.refuse_foreign()
            _wipe(lab)


def _stop(lab: Lab) -> None:
    for server in (Kafka(lab), PostgresServer(lab)):
        ran = server.pid is not None
        server.down()
        if ran and not lab.made:  # a server whose folder is removed writes there again as it ends
            server.wipe()


def _wipe(lab: Lab) -> None:
    if lab.made:
        lab.forget()  # first: a wipe that is cut off must not leave a world that counts as seeded
        config = _beside(lab)
        if _written_for(lab, config):
            config.unlink()
    for server in (Kafka(lab), PostgresServer(lab)):
        server.wipe()
    lab.remove()


def status(lab: Lab) -> dict[str, Any]:
    """Query the state of the world and how to reach it."""
    if not (lab.root / "state.json").exists():
        return {"running": False, "folder": str(lab.root.resolve())}
    state = lab.state()
    pids = {"postgres": PostgresServer(lab).pid, "kafka": Kafka(lab).pid}
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
    """Choose where the lab writes its settings: reconcile.yaml beside its folder, unless a team has its own there."""
    beside = _beside(lab)
    if _written_by_us(beside) or (not beside.exists() and os.access(beside.parent, os.W_OK)):
        return beside
    return lab.root / "reconcile.yaml"


def _beside(lab: Lab) -> Path:
    return lab.root.resolve().parent / "reconcile.yaml"


def _written_by_us(config: Path) -> bool:
    if not (config.is_file() and os.access(config, os.R_OK | os.W_OK)):
        return False
    return config.read_text("utf-8", errors="replace").startswith(_WRITTEN_BY_US)


def _written_for(lab: Lab, config: Path) -> bool:
    return _written_by_us(config) and _as_yaml(_reference(lab, "control")) in config.read_text("utf-8")


def _reference(lab: Lab, name: str) -> dict[str, str]:
    return {"url": f"file:{lab.root.resolve() / 'secrets' / f'{name}.url'}"}


def _as_yaml(data: object) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=float("inf"))


def _refuse_taken(ports: Ports, postgres: PostgresServer, kafka: Kafka) -> None:
    wanted = (
        (postgres, ports.postgres, "Postgres", "--postgres-port"),
        (kafka, ports.kafka, "Kafka", "--kafka-port"),
        (kafka, ports.controller, "Kafka's controller", "--controller-port"),
    )
    if len(set(astuple(ports))) < len(wanted):
        raise RefusedError(f"each server needs a port of its own: {', '.join(f'{one[2]} {one[1]}' for one in wanted)}")
    for server, port, what, option in wanted:
        if server.pid is None:
            process.refuse_taken(port, what, option)


def _write_settings(lab: Lab) -> None:
    config = settings_file(lab)
    secrets = lab.root.resolve() / "secrets"
    urls = {f"{name}-db": lab.url(name, READER) for name in DATABASES if name != "control"}
    urls["control"] = lab.url("control")
    references = {}
    for name, url in urls.items():
        write_atomically(secrets / f"{name}.url", url + "\n")
        references[name] = _reference(lab, name)
    settings = {
        "workspace": "runs",
        "control_store": references.pop("control"),
        "connections": {**references, "main": _cluster(lab, secrets)},
        "spark": {"conf": SPARK_OF_SMALL_WORLDS},
        "redaction_key": f"file:{secrets / 'redaction.key'}",
    }
    write_atomically(config, _WRITTEN_BY_US + _as_yaml(settings))


def _cluster(lab: Lab, secrets: Path) -> dict[str, object]:
    bootstrap: dict[str, object] = {"bootstrap": str(lab.bootstrap)}
    if not (security := lab.security(AUDITOR)):
        return bootstrap
    return {**bootstrap, "security": {**security, "sasl.password": f"file:{secrets / f'kafka-{AUDITOR}.password'}"}}


# A run on a small world is over before a thorough compiler has earned what it costs: it halves the work of a run. The
# room for young objects grows slowly from next to nothing, unless it is given at once.
SPARK_OF_SMALL_WORLDS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn600m",
    "spark.sql.shuffle.partitions": "4",
}


def _provide_databases(lab: Lab) -> None:
    from psycopg2 import sql
    from psycopg2.extensions import encrypt_password

    from reconcile.consumer.postgres import migrate
    from reconcile.lab.services.database import connected
    from reconcile.settings import urls

    def role(cursor: Any, name: str) -> None:
        cursor.execute("select 1 from pg_roles where rolname = %s", (name,))
        verb = "alter" if cursor.fetchone() else "create"
        statement = sql.SQL(verb + " role {} login password {}")
        # As a verifier: the server logs a statement that fails.
        verifier = encrypt_password(lab.password(name), name, cursor.connection, "scram-sha-256")
        cursor.execute(statement.format(sql.Identifier(name), sql.Literal(verifier)))

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
        if database in _CONSUMERS:
            migrate(urls.parse(lab.url(database)))
        with connected(lab.url(database, "postgres")) as cursor:
            if not lab.state().secure:
                cursor.execute(committed("sql", "lab", "reader.sql").read_text("utf-8"))
                continue
            cursor.execute(f"alter role {READER} set default_transaction_read_only = on")
            for contract in _contracts():
                if statements := grants.store_sql(contract, Purpose.AUDIT, READER).get(f"{database}-db"):
                    cursor.execute(statements)


def _contracts() -> Iterator[Contract]:
    for file in sorted(committed("contracts").glob("*.yaml")):
        yield load_contract(file)


def _provide_rights(lab: Lab) -> None:
    """Let the auditor do in a secure Kafka what the lab's contracts need, and no more."""
    if not lab.state().secure:
        return
    for contract in _contracts():
        for purpose in (Purpose.AUDIT, Purpose.APPLY, Purpose.REQUEST, Purpose.AIRFLOW):
            allow(lab, AUDITOR, grants.kafka_grants(contract, purpose))


def allow(lab: Lab, user: str, wanted: Iterable[KafkaGrant]) -> None:
    """Grant rights in a secure Kafka to a user."""
    from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    kinds = {"cluster": ResourceType.BROKER, "transactional-id": ResourceType.TRANSACTIONAL_ID}
    bindings = [
        AclBinding(
            kinds.get(each.resource) or ResourceType[each.resource.upper()],
            each.name or "kafka-cluster",
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()],
            AclPermissionType.ALLOW,
        )
        for each in wanted
        for operation in each.operations
    ]
    for future in admin_client(lab.bootstrap).create_acls(bindings).values():
        future.result(30)


def provide_topics(lab: Lab, wanted: Mapping[str, int]) -> None:
    """Make topics of so many partitions each, unless they are there."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    admin = admin_client(lab.bootstrap)

    def provided() -> bool:
        topics = [NewTopic(name, partitions, 1) for name, partitions in wanted.items()]
        try:
            for future in admin.create_topics(topics).values():
                try:
                    future.result(30)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
            return wanted.keys() <= admin.list_topics(timeout=10).topics.keys()
        except TimeoutError:
            return False
        except KafkaException as error:
            if passes(error):
                return False
            raise

    process.wait_until(provided, "Kafka did not take the lab's topics", 60)
