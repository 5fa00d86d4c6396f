"""C8: handlers that get all messages of a batch at once."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Sequence
from typing import Any

import pytest
from psycopg2.extras import execute_values

from reconcile.consumer import BatchHandler, Consumer, Message, Stash, Transaction
from reconcile.files import committed
from tests.integration.consumer.world import PATIENCE, PoisonError, Scenario, World, apply_copy, sequence_oracle

EVENTS = [(f"user-{number % 7}", number, f"name {number}") for number in range(1, 60)]


def apply_each(messages: Sequence[Message], tx: Transaction) -> None:
    """Keep the copy, one message after the other."""
    for each in messages:
        apply_copy(each, tx)


def example(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> Consumer:
    """Run the example of docs/consumer.md up to where it consumes."""
    page = committed("docs", "consumer.md").read_text("utf-8").split("## Batch mode")[1]
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    built = list[Consumer]()

    def from_contract(_contract: str, _name: str, handler: Any, *, settings: str, batch: int) -> Consumer:
        assert "reconcile.yaml" == settings
        built.append(scenario.consumer(Stash(), handler, batch=batch))
        return built[0]

    monkeypatch.setattr(Consumer, "from_contract", from_contract)
    monkeypatch.setattr(Consumer, "run", lambda _: None)
    exec(found.group(1), {"__name__": "__main__"})  # noqa: S102 - it is our own page
    monkeypatch.undo()
    return built[0]


def test_c8_the_example_of_the_docs_keeps_a_copy(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """C8: also where a batch has several messages of one aggregate, deletions, and a re-creation."""
    scenario, producer = world.scenario(1), world.producer()
    scenario.rows("create table profile (user_id text primary key, mail text)")
    said = [("zoe", "a"), ("max", "b"), ("zoe", "c"), ("max", None), ("ida", "d"), ("ida", None), ("ida", "e")]
    for number, (key, mail) in enumerate(said):
        value = None if mail is None else json.dumps({"email": mail})
        producer.produce(scenario.topic, key=key, value=value, headers={"event-id": str(number)}, partition=0)
    assert 0 == producer.flush(PATIENCE)
    with scenario.running(example(scenario, monkeypatch)):
        scenario.until_consumed()
    assert [("ida", "e"), ("zoe", "c")] == scenario.rows("select * from profile order by 1")
    assert [(7, True)] == scenario.rows("select count(*), count(distinct xmin::text) < 7 from reconcile.ledger")


def test_c8_a_batch_that_fails_is_done_one_by_one(world: World) -> None:
    """C8: the bad message is found and stashed, nothing is applied twice, and a drain calls it with one at a time."""
    scenario, calls, poison = world.scenario(1), list[list[str]](), {"user-3-24"}

    @BatchHandler
    def apply(messages: Sequence[Message], tx: Transaction) -> None:
        calls.append([str(each.event_id) for each in messages])
        apply_each(messages, tx)
        if poison & {*calls[-1]}:
            raise PoisonError("cannot be read")

    scenario.publish(*EVENTS)
    consumer = scenario.consumer(Stash(), apply, batch=100)
    with scenario.running(consumer):
        scenario.until_consumed()
    before = [("user-3", f"user-3-{number}") for number in range(24, 60, 7)]
    in_a_batch, alone = [len(each) for each in calls if "user-3-24" in each]
    assert (True, 1, before) == (in_a_batch > 1, alone, scenario.stashed())
    poison.clear()
    assert 6 == consumer.drain().applied
    assert [[event_id] for _, event_id in before] == calls[-6:]
    assert [] == sequence_oracle(scenario)


@pytest.mark.parametrize("guard", ["none", "newer"])
def test_c8_a_batch_handler_gets_what_is_to_be_applied(world: World, guard: str) -> None:
    """C8: in order, without what is twice in the log, blocked, or older than a guard allows; also a coroutine."""
    scenario, got = world.scenario(1), list[str]()

    @BatchHandler
    async def apply(messages: Sequence[Message], tx: Transaction) -> None:
        await asyncio.sleep(0)
        got.extend(str(each.event_id) for each in messages)
        apply_each(messages, tx)

    scenario.rows(
        "insert into reconcile.blocked (consumer_group, aggregate_id, messages) values (%s, 'ida', 0)", scenario.group
    )
    scenario.publish(
        ("zoe", 1, "a"), ("max", 5, "b"), ("zoe", 1, "a"), ("ida", 1, "c"), ("max", 4, "d"), ("zoe", 2, "e")
    )
    with scenario.running(scenario.consumer(Stash(), apply, batch=50, terms={"guard": guard})):
        scenario.until_consumed()
    assert ["zoe-1", "max-5", *(["max-4"] if guard == "none" else []), "zoe-2"] == got
    assert [("ida", "ida-1")] == scenario.stashed()


def upsert_all(messages: Sequence[Message], tx: Transaction) -> None:
    """Write two rows of one key in one statement, as the database refuses it."""
    rows = [(each.aggregate_id, each.version, each.json()["name"]) for each in messages]
    upsert = (
        "insert into copy values %s on conflict (id) do update set version = excluded.version, name = excluded.name"
    )
    execute_values(tx.connection.cursor(), upsert, rows)


def test_c8_an_upsert_that_forgets_repeated_aggregates_loses_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """C8: each such batch is done one by one, and the log says why."""
    scenario = world.scenario(1)
    scenario.publish(*EVENTS)
    with (
        caplog.at_level(logging.WARNING),
        scenario.running(scenario.consumer(Stash(), BatchHandler(upsert_all), batch=99)),
    ):
        scenario.until_consumed()
    assert {f"user-{number % 7}": f"name {number}" for number in range(53, 60)} == scenario.copy()
    assert [] == scenario.stashed()
    assert re.search(r"a batch of \d+ failed, and is done one by one: CardinalityViolation", caplog.text)
