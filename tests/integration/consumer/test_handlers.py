"""Handlers of all kinds: coroutines, and those that work with a library of their own."""

from __future__ import annotations

import asyncio
import gc
import threading

from sqlalchemy import text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from reconcile.consumer import Block, Message, Stash, Transaction
from tests.integration.consumer.world import PoisonError, Scenario, apply_copy, sequence_oracle, until


class Base(DeclarativeBase):
    """The models of a service."""


class Copied(Base):
    """A row of the copy."""

    __tablename__ = "copy"
    id: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int]
    name: Mapped[str | None]


class Applied(Base):
    """A row that says what was applied, which the oracle looks at."""

    __tablename__ = "applied"
    number: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str]
    version: Mapped[int]
    event_id: Mapped[str]


def copied(message: Message) -> Copied:
    return Copied(id=message.aggregate_id, version=message.version, name=message.json()["name"])


def applied(message: Message) -> Applied:
    return Applied(id=message.aggregate_id, version=message.version, event_id=message.event_id)


def test_a_coroutine_that_fails_is_stashed_and_others_flow(scenario: Scenario) -> None:
    """As with a plain handler; what it has written before it failed is rolled back."""

    async def apply(message: Message, tx: Transaction) -> None:
        apply_copy(message, tx)
        await asyncio.sleep(0)
        if message.json()["name"] == "Zoë":
            raise PoisonError("cannot be read")

    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"), ("zoe", 3, "Zoiee"), ("max", 1, "Max"))
    with scenario.running(scenario.consumer(Stash(), apply)):
        scenario.until_consumed()
    assert {"zoe": "Zoey", "max": "Max"} == scenario.copy()
    assert [("zoe", "zoe-2"), ("zoe", "zoe-3")] == scenario.stashed()


def test_nothing_is_committed_while_a_coroutine_runs(scenario: Scenario) -> None:
    """However long it takes: neither its changes nor its offset."""
    began, goes_on = threading.Event(), threading.Event()

    async def apply(message: Message, tx: Transaction) -> None:
        apply_copy(message, tx)
        began.set()
        while not goes_on.is_set():
            await asyncio.sleep(0.01)

    scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"))
    with scenario.running(scenario.consumer(Stash(), apply)):
        until(began.is_set)
        until(lambda: scenario.rows("select 1 from pg_stat_activity where state = 'idle in transaction'"))
        found = (scenario.copy(), scenario.lag())
        goes_on.set()
        scenario.until_consumed()
    assert ({}, {scenario.partition("zoe"): (0, 2)}) == found
    assert [] == sequence_oracle(scenario)


def test_what_sessions_hold_is_kept_with_the_message(scenario: Scenario) -> None:
    """Committed or not, in a block or not; in batches too, each message after the other."""

    def apply(message: Message, tx: Transaction) -> None:
        with tx.session() as session:
            session.merge(copied(message))
        waiting = tx.session(autoflush=False)
        waiting.add(applied(message))
        if (message.version or 0) % 2:
            waiting.commit()

    scenario.publish(*[(f"user-{number % 7}", number, f"name {number}") for number in range(1, 60)])
    with scenario.running(scenario.consumer(Block(), apply, batch=20)):
        scenario.until_consumed()
    gc.collect()
    assert [] == sequence_oracle(scenario)
    assert {f"user-{number % 7}": f"name {number}" for number in range(53, 60)} == scenario.copy()


def test_a_session_that_commits_does_not_keep_what_fails_later(scenario: Scenario) -> None:
    """The library ends the transaction, and nobody else does."""

    def apply(message: Message, tx: Transaction) -> None:
        session = tx.session()
        session.add(copied(message))
        session.commit()
        if message.aggregate_id == "zoe":
            raise PoisonError("too late")

    scenario.publish(("zoe", 1, "Zoey"), ("max", 1, "Max"))
    with scenario.running(scenario.consumer(Stash(), apply)):
        scenario.until_consumed()
    gc.collect()
    assert ({"max": "Max"}, [("zoe", "zoe-1")]) == (scenario.copy(), scenario.stashed())


def test_a_session_that_rolls_back_undoes_what_it_did_alone(scenario: Scenario) -> None:
    """What was done before and after it in the same transaction is kept."""

    def apply(message: Message, tx: Transaction) -> None:
        tx.execute("insert into applied (id, event_id) values (%s, %s)", (message.aggregate_id, message.event_id))
        session = tx.session()
        session.execute(text("delete from applied"))
        session.rollback()
        session.add(copied(message))

    scenario.publish(("zoe", 1, "Zoey"))
    with scenario.running(scenario.consumer(Block(), apply)):
        scenario.until_consumed()
    assert {"zoe": "Zoey"} == scenario.copy()
    assert [] == sequence_oracle(scenario)


def test_what_the_database_refuses_when_a_session_is_flushed_is_the_messages_fault(scenario: Scenario) -> None:
    """As if the handler had raised it."""

    def apply(message: Message, tx: Transaction) -> None:
        row = copied(message)
        row.name = None if message.aggregate_id == "zoe" else row.name
        tx.session().add(row)

    scenario.publish(("zoe", 1, "Zoey"), ("max", 1, "Max"))
    with scenario.running(scenario.consumer(Stash(), apply)):
        scenario.until_consumed()
    gc.collect()
    assert ({"max": "Max"}, [("zoe", "zoe-1")]) == (scenario.copy(), scenario.stashed())
    assert [("IntegrityError",)] == scenario.rows("select error_class from reconcile.stash")
