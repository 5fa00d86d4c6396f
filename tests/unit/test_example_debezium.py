"""The example of Debezium is whole: its contracts are valid, and its page says what they say."""

from __future__ import annotations

import json

import pytest

from reconcile.contract.consumer import EncodedValue
from reconcile.contract.model import load_contract
from reconcile.files import committed
from reconcile.settings.settings import load_settings

FOLDER = committed("examples", "debezium")
VARIANTS = {"full": "contract.yaml", "flat": "contract-flat.yaml"}


@pytest.mark.parametrize(("variant", "name"), VARIANTS.items())
def test_the_contract_and_the_sink_agree(variant: str, name: str) -> None:
    """Topic, dead letters and isolation are those that the sink is set up with, and the settings have the stores."""
    contract = load_contract(FOLDER / name)
    sink = json.loads((FOLDER / "connectors" / f"sink-{variant}.json").read_text("utf-8"))
    (consumer,) = contract.consumers
    assert [] == list(contract.warnings())
    assert (sink["topics"], sink["consumer.override.isolation.level"]) == (contract.topic.name, consumer.isolation)
    assert sink["errors.deadletterqueue.topic.name"] in [topic for _, topic in consumer.failure.topics()]
    assert {contract.source.store, consumer.store, contract.topic.cluster} <= load_settings(
        FOLDER / "reconcile.yaml"
    ).connections.keys()


def test_the_page_shows_the_expressions_of_the_contract() -> None:
    """Whoever copies an expression from docs/debezium.md has one that the example runs."""
    page = committed("docs", "debezium.md").read_text("utf-8")
    contract = load_contract(FOLDER / "contract.yaml")
    assert contract.topic.value
    for field in contract.consumers[0].fields:
        if field.name in ("total", "due", "ship_by", "placed_at", "paid"):
            event = field.event
            shown = f"{{path: {event.path}, as: {_quoted(event.as_)}}}" if isinstance(event, EncodedValue) else event
            assert f"`{shown}` | `{contract.topic.value[field.name]}`" in page


def _quoted(encoding: str) -> str:
    """Write it as YAML needs it within braces."""
    return f'"{encoding}"' if "," in encoding else encoding
