"""A consumer as a contract declares it, on real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconcile.consumer import Consumer, Message, Transaction
from tests.integration.consumer.world import PoisonError, Scenario, apply_copy

CONTRACT = """
version: 1
aggregate: user
source: {{store: copy-db, table: t, id: id}}
topic: {{cluster: main, name: {topic}, version: "header:version", event_id: "header:event-id"}}
consumers:
  - name: login
    group: {group}
    store: copy-db
    table: copy
    id: id
    isolation: read_committed
    fields: [{{name: name, source: name, consumer: name}}]
    failure: {{policy: stash, stash: {aside}}}
"""
SETTINGS = """
connections:
  copy-db: {{url: env:COPY_DB}}
  main: {{bootstrap: "{bootstrap}"}}
"""


def declared(scenario: Scenario, folder: Path, aside: str) -> tuple[Path, Path]:
    """Write a contract and settings for a scenario."""
    contract, settings = folder / "user.yaml", folder / "reconcile.yaml"
    contract.write_text(CONTRACT.format(topic=scenario.topic, group=scenario.group, aside=aside))
    settings.write_text(SETTINGS.format(bootstrap=scenario.world.lab.bootstrap))
    return contract, settings


def test_a_service_runs_by_its_contract(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B14: the one library for all; it stashes what fails, and shows it in the topic that the contract names."""

    def refuse_zoe(message: Message, tx: Transaction) -> None:
        if (message.json() or {}).get("name") == "Zoë":
            raise PoisonError("cannot be read")
        apply_copy(message, tx)

    aside = scenario.create_topic(f"{scenario.topic}.stash")
    contract, settings = declared(scenario, tmp_path, aside)
    monkeypatch.setenv("COPY_DB", scenario.url)
    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"), ("max", 1, "Max"))
    with scenario.running(Consumer.from_contract(contract, "login", refuse_zoe, settings=settings)):
        scenario.until_consumed()
    assert {"zoe": "Zoey", "max": "Max"} == scenario.copy()
    assert [("zoe", "zoe-2")] == scenario.stashed()
    assert [b"zoe"] == [record.key() for record in scenario.records(aside)]
