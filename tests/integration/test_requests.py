"""Requests out of a topic: each is kept once, also from a sender that writes in transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconcile.control.store import ControlStore
from reconcile.lab.services import offsets
from reconcile.pipeline.requests import KEEPERS, RequestRecord, drain, send
from reconcile.settings.settings import RunRequests
from tests.integration.emission_world import World, emission_world, until

RULES = RunRequests()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A control store, and a broker that has found out who coordinates the group."""
    with emission_world() as started:
        offsets.commit(started.lab.bootstrap, KEEPERS, started.topic().name, {0: 0})
        yield started


@pytest.fixture
def control(world: World) -> Iterator[ControlStore]:
    """The control store."""
    with world.control() as opened:
        yield opened


def test_requests_are_kept_once(world: World, control: ControlStore) -> None:
    """What was kept counts as read; what holds no request is passed by, and told."""
    topic, told = world.topic().name, list[str]()
    send(world.cluster, RequestRecord("one", "user"), topic)
    send(world.cluster, RequestRecord("two", "user"), topic)
    with world.producer({}) as producer:
        producer.produce(topic, b"nothing of the kind")
    kept = [drain(world.cluster, control, told.append, RULES, ["user"], topic) for _ in range(2)]
    assert ([2, 0], 1) == (kept, len(told))


def test_a_sender_with_transactions_is_no_reason_to_wait(world: World, control: ControlStore) -> None:
    """The marker behind the last request is passed, though no record stands there."""
    topic = world.topic()
    with world.producer({"transactional.id": "sender"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic.name, RequestRecord("three", "user").value())
        producer.commit_transaction()
    until(lambda: topic.ends() == topic.ends(committed_only=True), "the transaction is open")
    assert 1 == drain(world.cluster, control, pytest.fail, RULES, ["user"], topic.name)
