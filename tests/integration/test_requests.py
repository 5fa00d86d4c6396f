"""Requests are read off a real topic, whoever sent them."""

from __future__ import annotations

from reconcile.pipeline import requests
from tests.integration.emission_world import emission_world


def test_a_request_that_was_sent_in_a_transaction_is_read_once() -> None:
    """Nobody waits for the marker after it, which takes an offset and is no record."""
    with emission_world() as world:
        topic = world.topic(1)
        with world.producer({"transactional.id": "theirs"}) as theirs:
            theirs.init_transactions()
            theirs.begin_transaction()
            theirs.produce(topic.name, b"a request")
            theirs.commit_transaction()
        assert [b"a request"] == [each.value() for each in topic.read()]
        read = [[each.value() for each in requests._unread(world.cluster, topic.name)] for _ in range(2)]
    assert [[b"a request"], []] == read
