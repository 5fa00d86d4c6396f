"""A consumer as its contract declares it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reconcile.consumer import (
    Block,
    Consumer,
    Hooks,
    Ignore,
    Message,
    Policy,
    Postgres,
    RetryThenDeadLetter,
    RetryTopic,
    RetryTopics,
    Stash,
)
from reconcile.consumer.declared import Declared, declare
from reconcile.consumer.errors import PolicyRefusedError
from reconcile.contract.model import load_contract
from reconcile.errors import InvalidFileError, RefusedError, SecretError
from reconcile.files import committed
from reconcile.settings.settings import UnknownConnectionError

CONTRACT = """
version: 1
aggregate: user
source: {store: user-db, table: t, id: id}
topic: {cluster: main, name: user-topic, version: $.version, event_id: "header:event-id"}
consumers:
  - name: login
    group: login-service
    store: login-db
    table: u
    id: id
    fields: [{name: email, source: email, consumer: mail}]
"""
SETTINGS = """
connections:
  login-db: {url: env:LOGIN_DB}
  lake: {path: /data}
  oracle: {url: 'jdbc:oracle:thin:@db:1521/x'}
  main:
    bootstrap: broker:9092
    security: {security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.password: env:SASL}
"""


def nothing(_message: Message, _tx: Any) -> None:
    """Change nothing."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings, and the secrets that they refer to."""
    (tmp_path / "reconcile.yaml").write_text(SETTINGS)
    monkeypatch.setenv("LOGIN_DB", "postgresql://svc:topsecret@db:5432/login")
    monkeypatch.setenv("SASL", "verysecret")
    return tmp_path


def contract(folder: Path, more: str = "", text: str = CONTRACT) -> Path:
    file = folder / "user.yaml"
    file.write_text(text + "".join(f"    {line}\n" for line in more.splitlines()))
    return file


def built(folder: Path, more: str = "", text: str = CONTRACT, **changes: Any) -> Consumer:
    settings = folder / "reconcile.yaml"
    return Consumer.from_contract(contract(folder, more, text), "login", nothing, settings=settings, **changes)


def billing(more: str) -> str:
    fields = "fields: [{name: email, source: email, consumer: mail}]"
    return f"  - {{name: billing, group: billing-service, store: login-db, table: u, id: id, {fields}, {more}}}\n"


def declared(folder: Path, more: str = "") -> Declared:
    return declare(contract(folder, more), "login", folder / "reconcile.yaml")


@pytest.mark.parametrize(
    ("failure", "policy"),
    [
        ("{policy: ignore}", Ignore()),
        ("{policy: block}", Block()),
        ("{policy: block, dead_letter: dead}", Block("dead")),
        ("{policy: retry-then-dead-letter, dead_letter: dead}", RetryThenDeadLetter("dead")),
        ("{policy: stash, stash: aside}", Stash("aside")),
        ("{policy: stash, stash: aside, dead_letter: dead}", Stash("aside", dead_letter="dead")),
        (
            "{policy: stash, stash: {table: reconcile.stash, id: aggregate_id, partition: partition, offset: offset}}",
            Stash(),
        ),
    ],
)
def test_each_policy_is_taken_from_the_contract(folder: Path, failure: str, policy: Policy) -> None:
    """With its topics; a stash that is a table has none."""
    assert policy == built(folder, f"failure: {failure}").terms.policy


def test_retry_topics_have_the_delays_of_the_contract_or_growing_ones(folder: Path) -> None:
    """10 s, 1 min and so on, where the contract does not say."""
    retry = "[first, {topic: second, group: g}, {topic: third, delay: 5m}, fourth, fifth, sixth, seventh]"
    failure = f"failure: {{policy: retry-topics, dead_letter: dead, retry: {retry}}}"
    delays = [10, 60, 300, 3600, 21600, 86400, 86400]
    names = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh"]
    topics = [
        RetryTopic(name, timedelta(seconds=delay), "g" if name == "second" else None)
        for name, delay in zip(names, delays, strict=True)
    ]
    expected = RetryTopics(topics, "dead")
    assert expected == built(folder, f"semantics: records\n{failure}").terms.policy


def test_semantics_guard_and_group_are_taken_from_the_contract(folder: Path) -> None:
    """So that there is one place that says them."""
    consumer = built(folder, "semantics: records\nguard: newer")
    assert ("login-service", "records", "newer") == (consumer.group, consumer.terms.semantics, consumer.terms.guard)


def test_the_reading_is_the_topics(folder: Path) -> None:
    """Where ids and versions stand."""
    reading = built(folder).reading
    assert ("user-topic", "$.version", "header:event-id") == (reading.topic, reading.version, reading.event_id)


def test_isolation_becomes_librdkafkas(folder: Path) -> None:
    """Beside the options by which the cluster is reached, with their secrets."""
    expected = {
        "bootstrap.servers": "broker:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.password": "verysecret",
        "isolation.level": "read_uncommitted",
    }
    assert expected == declared(folder, "isolation: read_uncommitted").kafka


def test_an_isolation_that_is_not_declared_is_left_to_librdkafka(folder: Path) -> None:
    """It reads committed records then."""
    assert "isolation.level" not in declared(folder).kafka


def test_the_store_gives_way_to_its_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for all commands."""
    monkeypatch.setenv("RECONCILE_CONN_LOGIN_DB", "postgresql://other@elsewhere:5433/login")
    assert ("elsewhere", 5433) == (declared(folder).store.host, declared(folder).store.port)


def test_no_secret_is_printed(folder: Path) -> None:
    """Whatever is printed of a consumer, or of what is declared of it."""
    said = declared(folder)
    printed = f"{said!r} {Postgres(said.store)!r} {built(folder)!r}"
    assert [] == [secret for secret in ("topsecret", "verysecret") if secret in printed]


def test_changes_win_over_the_contract(folder: Path) -> None:
    """Fields of the terms, arguments of the consumer, and options of Kafka beside the cluster's."""
    consumer = built(
        folder, "failure: {policy: block}", policy=Stash(), retries_at_once=7, group="mine", kafka={"a": "b"}
    )
    assert ("mine", Stash(), 7) == (consumer.group, consumer.terms.policy, consumer.terms.retries_at_once)
    assert {"a": "b", "bootstrap.servers": "broker:9092"}.items() <= consumer._options("mine").items()


def test_b5_retry_topics_on_state_are_refused(folder: Path) -> None:
    """B5: with the place in the contract, and what to do."""
    failure = "failure: {policy: retry-topics, retry: [first]}"
    with pytest.raises(
        PolicyRefusedError, match=r"user\.yaml: consumers\[0\]\.failure\.policy: retry topics lose the order"
    ):
        built(folder, failure)
    assert Block() == built(folder, failure, policy=Block()).terms.policy


@pytest.mark.parametrize(("semantics", "said"), [("state", "in no order"), ("records", "commits no offsets")])
def test_a_share_group_is_refused(folder: Path, semantics: str, said: str) -> None:
    """It has no order for state, and for records this library has no use of one."""
    with pytest.raises(PolicyRefusedError, match=said):
        built(folder, f"semantics: {semantics}", kafka={"group.protocol": "share"})


def test_an_unknown_consumer_is_named_with_the_nearest(folder: Path) -> None:
    """As a misspelt name is the usual cause."""
    with pytest.raises(RefusedError, match=r'user\.yaml: the contract has no consumer "logn"; did you mean "login"\?'):
        declare(contract(folder), "logn", folder / "reconcile.yaml")


@pytest.mark.parametrize("store", ["lake", "oracle", "main"])
def test_a_store_that_is_no_postgres_is_refused(folder: Path, store: str) -> None:
    """The library's tables are in the copy's own database."""
    with pytest.raises(RefusedError, match=rf"consumers\[0\]\.store: {store} is no Postgres"):
        built(folder, text=CONTRACT.replace("login-db", store))


def test_an_unknown_store_and_a_missing_secret_name_their_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the contract, where a person looks first."""
    with pytest.raises(UnknownConnectionError, match=r'consumers\[0\]\.store: no connection "logn-db"'):
        built(folder, text=CONTRACT.replace("login-db", "logn-db"))
    monkeypatch.delenv("LOGIN_DB")
    with pytest.raises(SecretError, match=r"consumers\[0\]\.store: env:LOGIN_DB: the environment variable"):
        built(folder)


def test_a_guard_without_versions_is_refused(folder: Path) -> None:
    """It would let everything through."""
    with pytest.raises(RefusedError, match=r"consumers\[0\]\.guard: newer compares the events' versions"):
        built(folder, "guard: newer", text=CONTRACT.replace("version: $.version, ", ""))


def test_avro_wants_a_decoder_where_values_are_looked_into(folder: Path) -> None:
    """The handler's own is given as `decode`."""
    text = CONTRACT.replace("{cluster", "{format: avro, schema: {file: user.avsc}, cluster")
    with pytest.raises(RefusedError, match="values in avro are read with your own decoder: give `decode=`"):
        built(folder, text=text)
    assert "user-topic" == built(folder, text=text, decode=lambda _: {}).reading.topic


def test_a_malformed_url_is_refused_without_repeating_it() -> None:
    """It may hold a password."""
    with pytest.raises(ValueError, match="a URL begins with") as raised:
        Postgres("postgres://me:topsecret@host/db")
    assert "topsecret" not in str(raised.value)


def test_the_webhook_is_taken_from_the_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the hooks name another one; it is printed nowhere."""
    monkeypatch.setenv("ALERTS", "https://hooks.example/topsecret")
    (folder / "reconcile.yaml").write_text(f"alerts: {{webhook: env:ALERTS}}{SETTINGS}")
    assert "https://hooks.example/topsecret" == declared(folder).webhook
    assert "topsecret" not in repr(declared(folder))
    assert "topsecret" not in repr(Hooks(webhook="https://hooks.example/topsecret"))


@pytest.mark.parametrize(
    ("webhook", "said"),
    [
        ("ftp://hooks.example", "is no URL of a web service: https://..., nor a reference"),
        ("https://me:secret@hooks.example", "holds a password, and must be a reference then"),
    ],
)
def test_a_wrong_webhook_is_refused(folder: Path, webhook: str, said: str) -> None:
    """Before anything is consumed."""
    (folder / "reconcile.yaml").write_text(f"alerts: {{webhook: '{webhook}'}}{SETTINGS}")
    with pytest.raises(InvalidFileError, match=said):
        declared(folder)


def test_b17_dependencies_are_groups_also_where_they_are_named_by_their_consumers(folder: Path) -> None:
    """B17: a consumer of the same contract by its name, any other group by its own."""
    text = CONTRACT + "    depends_on: [billing, elsewhere]\n" + billing("")
    assert ("billing-service", "elsewhere") == declare(
        contract(folder, "", text), "login", folder / "reconcile.yaml"
    ).depends_on


@pytest.mark.parametrize("name", ["login", "login-service"])
def test_b17_a_consumer_that_waits_for_itself_is_refused(folder: Path, name: str) -> None:
    """B17: it would never go on."""
    with pytest.raises(RefusedError, match="the group login-service cannot wait for itself"):
        built(folder, f"depends_on: [{name}]")


def test_b17_consumers_that_wait_for_one_another_are_refused(folder: Path) -> None:
    """B17: none of them would ever go on."""
    text = CONTRACT + "    depends_on: [billing]\n" + billing("depends_on: [login]")
    with pytest.raises(
        RefusedError, match=r"consumers\[0\]\.depends_on: login-service, billing-service wait for one another"
    ):
        built(folder, text=text)


@pytest.mark.parametrize("name", ["user-account", "user-balance", "user-activity"])
def test_the_consumers_of_the_examples_are_built(name: str, folder: Path) -> None:
    """Each as its contract says."""
    stores = [f"{each}-db: {{url: 'postgresql://me@db/{each}'}}" for each in ("login", "billing", "activity")]
    (folder / "reconcile.yaml").write_text(f"connections: {{main: {{bootstrap: 'b:1'}}, {', '.join(stores)}}}")
    file = committed("contracts", f"{name}.yaml")
    (declared_there,) = load_contract(file).consumers
    built_there = Consumer.from_contract(file, declared_there.name, nothing, settings=folder / "reconcile.yaml")
    assert declared_there.failure.policy == built_there.terms.policy.name
