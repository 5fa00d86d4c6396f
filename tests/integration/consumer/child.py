"""A member in a process of its own, which dies or stops at a named step: `python -m … child PLAN`, the plan in JSON."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, Literal

from reconcile.consumer import consumer
from reconcile.consumer.decision import Facts
from reconcile.consumer.handling import BatchHandler
from reconcile.consumer.member import Member
from reconcile.consumer.message import Message
from reconcile.consumer.policy import Backoff, Block, Policy, Stash, Terms
from reconcile.consumer.postgres import LibraryStore, Transaction
from reconcile.consumer.store import HeldPartition
from tests.integration.consumer.world import PoisonError, apply_copy, brief, reading_of

How = Literal["", "SIGKILL", "SIGSTOP"]
Wrong = Literal["", "no fence", "commits first", "parks without blocking"]


@dataclass(frozen=True)
class Plan:
    """What a member consumes, how it fails, and where it ends."""

    url: str
    topic: str
    group: str
    log: str
    kafka: dict[str, Any]
    policy: str = "stash"
    ledger: bool = True
    step: str = ""
    """Where it ends: at the nth time that it comes to this step; without a name, at the nth step of any name."""
    nth: int = 1
    how: How = ""
    wrong: Wrong = ""
    """What this member does wrong, so that a test shows that it would be found."""
    seed: int | None = None
    """Its handler fails at random by this seed; without one it fails at what is called poison."""
    batch: int = 1
    """How many messages it takes into one transaction; above 1, its handler gets all of them at once."""
    drains: bool = False
    """It drains the stash instead, and ends."""

    def json(self) -> str:
        """Build what the child is started with."""
        return json.dumps(asdict(self))


@dataclass
class Ending:
    """Ends or holds the process at a step."""

    plan: Plan
    seen: int = 0

    def __call__(self, step: str) -> None:
        if not self.plan.how or self.plan.step not in ("", step):
            return
        self.seen += 1
        if self.seen == self.plan.nth:
            logging.getLogger().info("ends at %s", step)
            os.kill(os.getpid(), signal.Signals[self.plan.how])
            logging.getLogger().info("goes on at %s", step)


def refuse_poison(message: Message, tx: Transaction) -> None:
    """Keep the copy, and fail at what is called poison."""
    if message.value is not None and message.json()["name"].startswith("poison"):
        raise PoisonError("cannot be read")
    apply_copy(message, tx)


def failing_at_random(seed: int) -> Callable[[Message, Transaction], None]:
    """Build a handler that fails now and then, before or after what it writes, in both ways."""
    chance = Random(seed)  # noqa: S311

    def fail() -> None:
        drawn = chance.random()
        if drawn < 0.003:
            raise PoisonError("cannot be read, today")
        if drawn < 0.01:
            raise ConnectionError("a service that this one needs does not answer")

    def handle(message: Message, tx: Transaction) -> None:
        fail()
        apply_copy(message, tx)
        fail()

    return handle


def all_at_once(handler: Callable[[Message, Transaction], None]) -> BatchHandler:
    """Build a batch handler that fails where a message of it does."""

    def handle(messages: Sequence[Message], tx: Transaction) -> None:
        for each in messages:
            handler(each, tx)

    return BatchHandler(handle)


class CommittingFirst(Member):
    """Commits a message's offset, and then applies it."""

    def _process(self, message: Message) -> None:
        from confluent_kafka import TopicPartition

        topic, partition, offset = message.place
        if self._holds(message):
            self._consumer.commit(offsets=[TopicPartition(topic, partition, offset + 1)], asynchronous=False)
        super()._process(message)


@contextmanager
def _with_facts(changed: Callable[[Facts, HeldPartition], Facts], store: LibraryStore) -> Any:
    with LibraryStore.transaction(store) as transaction:
        read = transaction.facts

        def facts(messages: Sequence[Message], held: Sequence[HeldPartition]) -> list[Facts]:
            return [changed(*each) for each in zip(read(messages, held), held, strict=True)]

        transaction.facts = facts  # type: ignore[method-assign]
        yield transaction


class Unfenced(LibraryStore):
    """Takes for granted that each partition is still its own."""

    def transaction(self) -> Any:
        return _with_facts(lambda facts, held: replace(facts, epoch=held.epoch), self)


class Unblocked(LibraryStore):
    """Takes no aggregate for blocked."""

    def transaction(self) -> Any:
        return _with_facts(lambda facts, _: replace(facts, blocked=None), self)


WRONG: dict[str, tuple[type, type]] = {
    "commits first": (Member, CommittingFirst),
    "no fence": (LibraryStore, Unfenced),
    "parks without blocking": (LibraryStore, Unblocked),
}
"""What a wrong member has in place of a class of the library."""


def main(plan: Plan) -> None:
    """Consume until SIGTERM."""
    logging.basicConfig(filename=plan.log, level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    policy: Policy = Stash() if plan.policy == "stash" else Block()
    if plan.wrong:
        replaced, wrong_one = WRONG[plan.wrong]
        if getattr(consumer, replaced.__name__) is not replaced:
            raise LookupError(f"{consumer.__name__} has no {replaced.__name__} that could do it wrong")
        setattr(consumer, replaced.__name__, wrong_one)
    handler = refuse_poison if plan.seed is None else failing_at_random(plan.seed)
    made = consumer.Consumer(
        topic=reading_of(plan.topic),
        group=plan.group,
        policy=policy,
        store=consumer.Postgres(plan.url),
        handler=handler if plan.batch == 1 else all_at_once(handler),
        batch=plan.batch,
        kafka=plan.kafka,
        terms=Terms(policy, ledger=plan.ledger, backoff=brief(Backoff())),
        at=Ending(plan),
    )
    if plan.drains:
        made.drain()
    else:
        made.run()


if __name__ == "__main__":
    main(Plan(**json.loads(sys.argv[1])))
