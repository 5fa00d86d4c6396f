"""What all aggregates of a link share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from reconcile.audit.link_facts import KnownLog, Reach, link_facts
from reconcile.contract.model import Contract
from reconcile.gather.fence.group_position import PartitionExtent
from reconcile.gather.log.index import Index
from reconcile.gather.stores.library_tables import LibraryTables, Registration
from tests.unit.test_topology import NOW, consumer, contract, facts, fence

_INDEX = Index(generation=1, cluster="main", topic="user", topic_id="id", derivation="d")


def ledger_begins(of: Contract) -> Mapping[int, int] | None:
    """Tell from where on a ledger is taken to know all, whose oldest entry stands at 5; the topic begins at 50."""
    registered = Registration("login-service", of.topic.name, "stash", "none", ledger=True)
    world = facts(replace(fence("login"), library=LibraryTables(True, (registered,))), of=of).fence
    extents = tuple(PartitionExtent(number, 50, 90, 90, 90) for number in range(2))
    world = replace(world, topic=replace(world.topic, partitions=extents))
    reach = Reach({0: 5}, NOW)
    return link_facts(of, of.consumers[0], (), KnownLog(_INDEX, False), reach, world, world).ledger_begins


@pytest.mark.parametrize(
    ("declared", "begins"),
    [(None, {0: 50, 1: 50}), ("reconcile.ledger", {0: 50, 1: 50}), ("public.applied", {0: 5})],
)
def test_of_the_librarys_ledger_all_may_be_pruned_that_the_topic_no_longer_has(
    declared: str | None, begins: Mapping[int, int]
) -> None:
    """What was given up stays in it, and does not show that it still knows what stood behind that."""
    ledger = None if declared is None else {"table": declared, "event_id": "event_id"}
    of = contract(consumer(failure={"policy": "block", "ledger": ledger}))
    assert begins == ledger_begins(of)
