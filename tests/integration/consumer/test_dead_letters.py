"""Dead letters: copied with a key of their own, replayed to the consumer that parked them, cleaned by day."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from reconcile.consumer.consumer import Postgres
from reconcile.consumer.dead_letters import DeadLetters
from reconcile.consumer.decision import Outcome
from reconcile.consumer.errors import PolicyRefusedError, UnresolvedLettersError
from reconcile.consumer.message import Message
from reconcile.consumer.policy import Backoff, RetryThenDeadLetter, Terms
from reconcile.consumer.postgres import Transaction
from reconcile.consumer.postgres_stash import PostgresStash
from reconcile.consumer.reading import Reading
from tests.integration.consumer.world import PoisonError, Scenario, apply_copy

QUICK = {"backoff": Backoff(first=timedelta(milliseconds=5))}


@dataclass(frozen=True)
class Parked:
    """A scenario with a dead-letter topic."""

    scenario: Scenario
    policy: RetryThenDeadLetter
    letters: DeadLetters

    @contextmanager
    def stash(self) -> Iterator[PostgresStash]:
        """Open the group's stash."""
        with closing(Postgres(self.scenario.url).connect(self.scenario.group, "test", 60)) as store:
            yield PostgresStash(store)

    def consume(self, handler: Callable[[Message, Transaction], None] = apply_copy) -> None:
        """Consume all that the topic holds, and send what is to be sent."""
        with self.scenario.running(self.scenario.consumer(self.policy, handler, terms=QUICK)):
            self.scenario.until_consumed()

    def replay(self, **terms: Any) -> int:
        """Replay all dead letters, and drain."""
        with self.stash() as stash:
            replayed = self.letters.replay(self.letters.read(stash), stash, Terms(self.policy, **terms))
        self.scenario.consumer(self.policy).drain()
        return replayed


@pytest.fixture
def parked(scenario: Scenario) -> Parked:
    """A consumer that tries twice, and then gives up."""
    topic = scenario.create_topic(f"{scenario.topic}.dlq")
    reading = Reading(scenario.topic, version="header:version", event_id="header:event-id")
    return Parked(
        scenario,
        RetryThenDeadLetter(topic, tries=2),
        DeadLetters({**scenario.world.cluster}, topic, scenario.group, reading),
    )


def refuse(*names: str | None) -> Callable[[Message, Transaction], None]:
    """Build a handler that cannot process some names."""

    def handle(message: Message, tx: Transaction) -> None:
        if (None if message.deletes else message.json()["name"]) in names:
            raise PoisonError("cannot be read")
        apply_copy(message, tx)

    return handle


def test_b3_a_message_is_tried_and_then_copied_to_the_dead_letters(parked: Parked) -> None:
    """D7: its key begins with the day and names its place; the partition goes on."""
    parked.scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"), ("zoe", 3, "Zoiee"))
    parked.consume(refuse("Zoë"))
    (letter,) = parked.letters.read()
    place = letter.message.origin
    key = f"{letter.day}/{place.topic}/{place.partition}/{place.offset}/{parked.scenario.group}"
    assert key == letter.key
    assert ("zoe", 2, "PoisonError") == (letter.message.aggregate_id, letter.message.version, letter.error_class)
    assert [1, 3] == parked.scenario.applied("zoe")


def test_d7_a_replayed_letter_that_was_overtaken_changes_nothing(parked: Parked) -> None:
    """A newer state was applied since: the older one is noted, and not applied over it."""
    parked.scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"), ("zoe", 3, "Zoiee"))
    parked.consume(refuse("Zoë"))
    assert 1 == parked.replay()
    with parked.stash() as stash:
        assert [Outcome.OLDER] == [each.outcome for each in parked.letters.read(stash)]
    assert ([1, 3], {"zoe": "Zoiee"}) == (parked.scenario.applied("zoe"), parked.scenario.copy())


def test_d7_nothing_is_replayed_where_nobody_knows_what_was_overtaken(parked: Parked) -> None:
    """B15: without a ledger and a guard an old event would be the last word."""
    parked.scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"), ("zoe", 3, "Zoiee"))
    parked.consume(refuse("Zoë"))
    with pytest.raises(PolicyRefusedError, match="neither a ledger nor a version guard"):
        parked.replay(ledger=False)
    assert [] == parked.scenario.stashed()
    exempt = (
        Terms(parked.policy, ledger=False, guard="newer"),
        Terms(parked.policy, ledger=False, semantics="records"),
        Terms(parked.policy, ledger=False, events="patch"),
    )
    assert all(terms.knows_what_was_overtaken for terms in exempt)


def test_d7_the_newest_event_of_an_aggregate_is_replayed_once(parked: Parked) -> None:
    """It comes to the consumer that parked it, and never to the main topic; twice replayed, it is applied once."""
    parked.scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, "Zoë"))
    parked.consume(refuse("Zoë"))
    before = len(parked.scenario.records(parked.scenario.topic))
    assert [1, 0] == [parked.replay(), parked.replay()]
    assert [1, 2] == parked.scenario.applied("zoe")
    assert before == len(parked.scenario.records(parked.scenario.topic))


def test_a_dead_letter_of_a_deletion_is_replayed_as_a_deletion(parked: Parked) -> None:
    """It has a value in its topic, where compaction would take it away without one."""
    parked.scenario.publish(("zoe", 1, "Zoey"), ("zoe", 2, None))
    parked.consume(refuse(None))
    assert [b""] == [record.value() for record in parked.scenario.records(parked.letters.topic)]
    parked.replay()
    assert {} == parked.scenario.copy()


def test_d7_a_day_is_cleaned_once_it_is_resolved(parked: Parked) -> None:
    """One tombstone for each letter; what is not resolved yet is kept, unless it is given up."""
    parked.scenario.publish(("zoe", 1, "Zoey"), ("ida", 1, "Ída"))
    parked.consume(refuse("Zoey", "Ída"))
    with parked.stash() as stash, pytest.raises(UnresolvedLettersError, match="2 of 2 dead letters are not resolved"):
        parked.letters.clean(parked.letters.read(stash))
    parked.replay()
    with parked.stash() as stash:
        assert 2 == parked.letters.clean(parked.letters.read(stash))
    assert [] == parked.letters.read()
    tombstones = [record.key() for record in parked.scenario.records(parked.letters.topic) if record.value() is None]
    assert 2 == len(set(tombstones))
