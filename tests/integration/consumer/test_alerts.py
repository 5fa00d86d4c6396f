"""Whom a consumer that runs tells of what it cannot settle."""

from __future__ import annotations

import pytest

from reconcile.consumer import Hooks, Message, Stash, Transaction
from reconcile.consumer.errors import StashFullError
from tests.integration.consumer.world import PoisonError, Scenario
from tests.web_service import service


def fail(_message: Message, _tx: Transaction) -> None:
    """Process nothing."""
    raise PoisonError("what it holds")


def test_a_webhook_hears_why_a_consumer_ended(scenario: Scenario) -> None:
    """Also of its last alert, before its process is gone; nothing in it is of the message."""
    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"))
    with service() as (url, posted), pytest.raises(StashFullError):
        scenario.consumer(Stash(per_aggregate=1), fail, hooks=Hooks(webhook=url)).run()
    stashed, bound = posted
    assert ("stashed", scenario.group, "PoisonError") == (stashed["alert"], stashed["group"], stashed["error"])
    place = (scenario.topic, scenario.partition("zoe"), 0)
    assert place == (stashed["topic"], stashed["partition"], stashed["offset"])
    assert ("bound", scenario.group) == (bound["alert"], bound["group"])
    assert "what it holds" not in str(posted)
    assert "Zo" not in str(posted)
