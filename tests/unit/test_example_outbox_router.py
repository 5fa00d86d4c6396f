"""The example of the outbox event router is whole: its contract is valid, and says what the connector does."""

from __future__ import annotations

import json

from reconcile.contract.consumer import StashTable
from reconcile.contract.model import load_contract
from reconcile.files import committed
from reconcile.settings.settings import load_settings

FOLDER = committed("examples", "outbox_router")


def test_the_contract_and_the_router_agree() -> None:
    """Topic, headers and slot are those that the connector is set up with, and the settings have the stores."""
    contract = load_contract(FOLDER / "contract.yaml")
    source = json.loads((FOLDER / "source.json").read_text("utf-8"))
    (consumer,) = contract.consumers
    outbox, topic = contract.source.outbox, contract.topic
    placed = dict(each.split(":header:") for each in source[f"{_ROUTER}.table.fields.additional.placement"].split(","))
    assert [] == list(contract.warnings())
    assert outbox
    assert outbox.table == source["table.include.list"].removeprefix("public.")
    assert f"slot_name = '{source['slot.name']}'" in outbox.published
    assert ("header:id", f"header:{placed['type']}", f"header:{placed['version']}") == (
        topic.event_id,
        topic.type,
        topic.version,
    )
    assert topic.name == source[f"{_ROUTER}.route.topic.replacement"].replace("$${routedByValue}", "order")
    assert ("tombstone", "true") == (topic.delete, source[f"{_ROUTER}.route.tombstone.on.empty.payload"])
    assert isinstance(consumer.failure.stash, StashTable)
    assert {contract.source.store, consumer.store, topic.cluster} <= load_settings(
        FOLDER / "reconcile.yaml"
    ).connections.keys()


def test_the_page_shows_what_the_example_runs() -> None:
    """Whoever copies from docs/outbox-router.md has what the example runs."""
    page = committed("docs", "outbox-router.md").read_text("utf-8")
    contract = load_contract(FOLDER / "contract.yaml")
    source = json.loads((FOLDER / "source.json").read_text("utf-8"))
    assert contract.source.outbox
    tests = contract.source.outbox.published.split(" or ")
    shown = [f"`{name}: {source[name]}`" for name in (*_OF_THE_ROUTER, "heartbeat.interval.ms")]
    assert [] == [each for each in (*tests, *shown) if each.replace("$${", "${") not in page]


_ROUTER = "transforms.outbox"
_OF_THE_ROUTER = tuple(
    f"{_ROUTER}.{each}"
    for each in ("table.fields.additional.placement", "route.tombstone.on.empty.payload", "route.topic.replacement")
)
