"""Each right that is missing in Kafka is named with its resource, by whatever needs it first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType, ScramCredentialInfo, ScramMechanism
from confluent_kafka.admin import UserScramCredentialUpsertion as Upsertion

from reconcile.consumer import Consumer, Message, Transaction
from reconcile.contract.model import load_contract
from reconcile.control.store import open_control
from reconcile.domain.correction import Correction
from reconcile.errors import RefusedError
from reconcile.kafka.client import ClusterClient
from reconcile.lab import world as lab_world
from reconcile.lab.folder import AUDITOR, CONTROL
from reconcile.lab.services.database import connected
from reconcile.lab.services.offsets import admin_client
from reconcile.lab.services.relay import producer
from reconcile.pipeline import grants
from reconcile.pipeline.grants import Purpose
from reconcile.pipeline.requests import GROUP, KEEPERS, TOPIC, RequestRecord, drain, send
from reconcile.repair.transaction import EmissionRefusedError, Transactions, transactional_ids
from reconcile.settings.settings import load_settings
from tests.integration.secure.test_refusals import SOON, soon
from tests.integration.secure.world import ACCOUNT, SecureWorld, message
from tests.integration.worlds import until

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CONFIGS = AclOperation.DESCRIBE_CONFIGS
SERVICE, ROLE = "login-consumer", "login_consumer"
LINK = "user-account/login"


@pytest.fixture(scope="module")
def read(world: SecureWorld) -> SecureWorld:
    """A world whose history was read, so that a command is about its own rights."""
    assert world.run("doctor", world.contract()).exit_code in (0, 1)
    return world


def test_a_log_that_may_not_be_read_is_named(world: SecureWorld, tmp_path: Path) -> None:
    """Before Spark takes its time to find that out."""
    with world.without(ResourceType.TOPIC, ACCOUNT, READ):
        words = ("run", world.contract(), "--workspace", tmp_path)
        done = world.run(*words, workspace=False)
    assert "grant Read on the topic user-account" in message(done)


@pytest.mark.parametrize(
    ("kind", "name", "operation", "command", "lacking"),
    [
        (ResourceType.GROUP, "login-service", DESCRIBE, "fence", "grant Describe on the group login-service"),
        (ResourceType.TOPIC, ACCOUNT, CONFIGS, "doctor", "grant DescribeConfigs on the topic user-account"),
        (ResourceType.TOPIC, "user-account.login.dlq", READ, "doctor", "on the topic user-account.login.dlq"),
    ],
)
def test_what_a_command_may_not_see_is_named(
    read: SecureWorld, kind: ResourceType, name: str, operation: AclOperation, command: str, lacking: str
) -> None:
    """A fence and doctor show the rest, where the rest can be seen."""
    with read.without(kind, name, operation), soon():
        done = read.run(command, read.contract())
    assert lacking in f"{done.output} {message(done)}".replace("\n         ", " "), (done.output, message(done))


@pytest.mark.parametrize(
    ("kind", "name", "operation", "lacking"),
    [
        (ResourceType.TOPIC, ACCOUNT, WRITE, "Grant Write on the topic user-account"),
        *(
            (ResourceType.TRANSACTIONAL_ID, each, WRITE, "Grant Write and Describe on the transactional ids that begin")
            for each in transactional_ids(LINK)
        ),
    ],
)
def test_an_emission_that_is_not_allowed_is_named(
    world: SecureWorld, kind: ResourceType, name: str, operation: AclOperation, lacking: str
) -> None:
    """Before anything is committed."""
    correction = Correction("one", "e", LINK, "nobody", "skipped", ACCOUNT, 0, b"nobody", b"{}", (), None, 0)
    options = {"bootstrap.servers": str(world.lab.bootstrap), **world.lab.security(AUDITOR)}
    with (
        world.without(kind, name, operation),
        closing(ClusterClient("main", options)) as client,
        soon(),
        pytest.raises(EmissionRefusedError, match=lacking),
        closing(Transactions(client, LINK, ACCOUNT)) as transactions,
    ):
        transactions.send([correction], lambda: None)


def test_requests_that_may_not_be_sent_or_kept_are_named(world: SecureWorld) -> None:
    """Who asks needs Write, who keeps them Read on topic and group."""
    lab_world.provide_topics(world.lab, {TOPIC: 1})
    options = {"bootstrap.servers": str(world.lab.bootstrap), **world.lab.security(AUDITOR)}
    may_not = pytest.raises(RefusedError, match=r"grant Write on the topic reconcile\.requests")
    with world.without(ResourceType.TOPIC, TOPIC, WRITE), soon(), may_not:
        send(options, RequestRecord("refused", ACCOUNT))
    settings, contracts = load_settings(world.settings), {ACCOUNT}
    with open_control(settings) as control:
        drain(options, control, print, settings.requests, contracts)  # what other tests have sent
        send(options, RequestRecord("kept", ACCOUNT))
        for kind, name, lacking in (
            (ResourceType.TOPIC, TOPIC, "the topic reconcile.requests"),
            (ResourceType.GROUP, KEEPERS, "the group reconcile-requests"),
        ):
            with world.without(kind, name, READ), soon(), pytest.raises(RefusedError, match=lacking):
                drain(options, control, pytest.fail, settings.requests, contracts)
        assert 1 == drain(options, control, print, settings.requests, contracts)
    assert GROUP  # the trigger's own, which Airflow's provider reads with


@pytest.fixture(scope="module")
def service(world: SecureWorld, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Settings of a service that has the rights of the purpose `consumer`, and no more."""
    contract = load_contract(world.contract())
    password = world.lab.password(f"kafka-{SERVICE}")
    credential = Upsertion(SERVICE, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode())
    for each in admin_client(world.lab.bootstrap).alter_user_scram_credentials([credential]).values():
        each.result(30)
    lab_world.allow(world.lab, SERVICE, grants.kafka_grants(contract, Purpose.CONSUMER))
    with connected(world.lab.url("login", "postgres")) as cursor:
        cursor.execute(f"create role {ROLE} login password '{world.lab.password(ROLE)}'")
        cursor.execute(grants.store_sql(contract, Purpose.CONSUMER, ROLE)["login-db"])
    secret = world.lab.authority.with_name(f"kafka-{SERVICE}.password")
    settings = world.changed(sasl_username=SERVICE, sasl_password=f"file:{secret}")
    url = tmp_path_factory.mktemp("service") / "url"
    url.write_text(world.lab.url("login", ROLE))
    text = settings.read_text("utf-8").replace(str(world.lab.authority.with_name("login-db.url")), str(url))
    settings.write_text(text)
    yield settings
    with connected(world.lab.url("login", "postgres")) as cursor:
        cursor.execute(f"drop owned by {ROLE}; drop role {ROLE}")


def consumed(world: SecureWorld, settings: Path, wanted: str | None = None) -> list[str]:
    """Consume until an aggregate's message came, or for as long as people wait."""
    seen: list[str] = []

    def handle(message: Message, _: Transaction) -> None:
        seen.append(str(message.aggregate_id))
        if message.aggregate_id == wanted:
            consumer.stop()

    consumer = Consumer.from_contract(world.contract(), "login", handle, settings=settings)
    ending = threading.Timer(SOON + 5, consumer.stop)
    ending.start()
    try:
        consumer.run()
    finally:
        ending.cancel()
    return seen


def test_a_service_runs_with_what_was_granted(world: SecureWorld, service: Path) -> None:
    """It consumes, and shows, drains and replays what it put aside."""
    sender = producer(world.lab.bootstrap)
    sender.produce(ACCOUNT, key="somebody", value='{"version": 1}', headers={"event-id": "granted"})
    assert 0 == sender.flush(30)
    assert "somebody" in consumed(world, service, wanted="somebody")
    for words in (("stash", "list"), ("dead-letters", "list"), ("stash", "show")):
        more = ("somebody",) if "show" in words else ()
        done = world.run(*words, world.contract(), *more, settings=service)
        assert 0 == done.exit_code, (words, done.exception)


@pytest.mark.parametrize(
    ("kind", "name", "lacking"),
    [
        (ResourceType.TOPIC, ACCOUNT, "grant Read on the topic user-account"),
        (ResourceType.GROUP, "login-service", "grant Read on the group login-service"),
    ],
)
def test_a_service_that_may_not_read_ends(
    world: SecureWorld, service: Path, kind: ResourceType, name: str, lacking: str
) -> None:
    """With the right that it lacks."""
    with world.without(kind, name, READ, SERVICE), soon(), pytest.raises(RefusedError, match=lacking):
        consumed(world, service)


def test_a_control_store_that_may_not_be_written_is_named(world: SecureWorld) -> None:
    """The account has to own its tables."""
    with connected(world.lab.url("control", "postgres")) as cursor:
        cursor.execute(f"alter table request owner to postgres; revoke all on request from {CONTROL}")
    try:
        with soon():
            done = world.run("request", world.contract())
        assert "permission denied for table request" in message(done)
    finally:
        with connected(world.lab.url("control", "postgres")) as cursor:
            cursor.execute(f"alter table request owner to {CONTROL}")
    until(lambda: world.run("request", world.contract()).exit_code == 0)
