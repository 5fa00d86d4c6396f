"""The Zoë race: Zoey becomes Zoë and then Zoiee, and what delays Zoë must not make it the last word."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconcile.consumer.consumer import Consumer, Postgres
from reconcile.consumer.dead_letters import DeadLetters
from reconcile.consumer.errors import PolicyRefusedError
from reconcile.consumer.message import Message
from reconcile.consumer.policy import (
    Backoff,
    Block,
    Ignore,
    Policy,
    RetryThenDeadLetter,
    RetryTopic,
    RetryTopics,
    Stash,
)
from reconcile.consumer.postgres import Transaction
from reconcile.consumer.postgres_stash import PostgresStash
from reconcile.consumer.recovery import Recovery
from reconcile.lab.services import offsets
from tests.integration.consumer.world import PoisonError, Scenario, until

NAMES = ("Zoey", "Zoë", "Zoiee")
POLICIES = ("ignore", "block", "retry-then-dead-letter", "stash", "retry-topics", "every failure to a retry topic")
"""The last one is what a naive service does; it and retry topics run here only because they claim to keep records."""
_DELAY = timedelta(seconds=2)


@dataclass(frozen=True)
class Ids:
    """Three accounts, each in a partition of its own, and how Zoë fails."""

    once: str
    """Once, as from outside of the message."""
    waiting: str
    """It cannot be read, and that is not repaired."""
    repaired: str
    """It cannot be read, until that is repaired."""

    @classmethod
    def of(cls, scenario: Scenario) -> Ids:
        """Choose them."""
        by_partition = {scenario.partition(name): name for name in (f"zoe{number}" for number in range(50))}
        return cls(*by_partition.values())


@dataclass
class Cell:
    """One consumer, and its copy."""

    policy: str
    ledger: bool
    guard: str
    number: int
    scenario: Scenario
    """The one of all, with a group of this one's own."""
    ids: Ids
    is_repaired: threading.Event = field(default_factory=threading.Event)
    _failed_once: bool = False

    @property
    def name(self) -> str:
        """What the contract calls it."""
        return f"copy-{self.number}"

    @property
    def retry(self) -> str:
        """Its retry topic."""
        return f"{self.scenario.topic}.retry-{self.number}"

    @property
    def dead_letter(self) -> str:
        """Its dead-letter topic."""
        return f"{self.scenario.topic}.dlq-{self.number}"

    @property
    def sends_on(self) -> bool:
        """Whether it has retry topics."""
        return self.policy in POLICIES[-2:]

    def prepare(self) -> None:
        """Create its topics and its table."""
        for topic in [self.retry, self.dead_letter] if self.sends_on else [self.dead_letter]:
            self.scenario.create_topic(topic)
        self.scenario.rows(f"create table copy_{self.number} (id text primary key, version bigint, name text)")

    def consumer(self) -> Consumer:
        """Build it."""
        retry = RetryTopics([RetryTopic(self.retry, _DELAY)], self.dead_letter)
        known: Sequence[Policy] = (Ignore(), Block(), RetryThenDeadLetter(self.dead_letter, 2), Stash(), retry)
        naive = self.policy == POLICIES[-1]
        return self.scenario.consumer(
            retry if naive else next(each for each in known if each.name == self.policy),
            self,
            terms={
                "ledger": self.ledger,
                "guard": self.guard,
                "semantics": "records" if self.sends_on else "state",
                "backoff": Backoff(first=timedelta(milliseconds=20), limit=timedelta(milliseconds=500)),
            },
            recovery=Recovery(is_recoverable=lambda _: False) if naive else None,
        )

    def __call__(self, message: Message, tx: Transaction) -> None:
        """Apply a message, unless it is one that fails."""
        id_, name = message.aggregate_id, message.json()["name"]
        if name == "Zoë":
            if id_ == self.ids.once and not self._failed_once:
                self._failed_once = True
                raise TimeoutError("no answer")
            # Where messages are sent on the repair comes while Zoë waits in the retry topic.
            if id_ == self.ids.waiting or (
                id_ == self.ids.repaired and not self.is_repaired.is_set() and message.attempt == 0
            ):
                raise PoisonError("cannot be read")
        tx.execute(
            f"insert into copy_{self.number} values (%s, %s, %s)"
            " on conflict (id) do update set version = excluded.version, name = excluded.name",
            (id_, message.version, name),
        )

    def until_failed(self) -> None:
        """Wait until all is done that can be done before the repair."""
        waiting = {self.ids.waiting, self.ids.repaired} if self.policy == "block" else set()
        until(lambda: self._lag() == {self.scenario.partition(each) for each in waiting})
        if self.sends_on:
            failing = 3 if self.policy == POLICIES[-1] else 2
            until(lambda: len(self.scenario.records(self.retry)) == failing)
            until(lambda: not offsets.lag(self.scenario.world.lab.bootstrap, self.scenario.group, self.retry))
        elif self.policy == "retry-then-dead-letter":
            until(lambda: len(self.scenario.records(self.dead_letter)) == 2)

    def repair(self) -> None:
        """Make one of the messages readable, and do what the policy says that people do then; the consumer runs."""
        self.is_repaired.set()
        if self.policy == "retry-then-dead-letter":
            consumer = self.consumer()
            letters = DeadLetters(self.scenario.world.cluster, self.dead_letter, self.scenario.group, consumer.reading)
            with closing(Postgres(self.scenario.url).connect(self.scenario.group, "test", 60)) as store:
                stash = PostgresStash(store)
                found = [each for each in letters.read(stash) if self._is_repaired(each.message)]
                unsafe = not self.ledger and self.guard == "none"
                with pytest.raises(PolicyRefusedError) if unsafe else nullcontext():
                    letters.replay(found, stash, consumer.terms)
        if self.policy in ("retry-then-dead-letter", "stash"):
            self.consumer().drain([self.ids.repaired])
        if self.policy == "block":
            until(lambda: self._lag() == {self.scenario.partition(self.ids.waiting)})

    def ends(self) -> tuple[str, ...]:
        """Query what the copy says of each account at the end."""
        return tuple(map(self._end, (self.ids.once, self.ids.waiting, self.ids.repaired)))

    def declared(self) -> dict[str, Any]:
        """Build what the contract says of it."""
        failure: dict[str, Any] = {"policy": "retry-topics" if self.sends_on else self.policy}
        if self.sends_on:
            failure["retry"] = [self.retry]
        if self.sends_on or self.policy == "retry-then-dead-letter":
            failure["dead_letter"] = self.dead_letter
        if self.policy == "stash":
            failure["stash"] = self.dead_letter
        return {
            **{"name": self.name, "group": self.scenario.group, "store": "db", "table": f"copy_{self.number}"},
            **{"id": "id", "version": "version", "guard": self.guard, "isolation": "read_committed"},
            "fields": [{"name": "name", "source": "name", "consumer": "name", "event": "$.name"}],
            "failure": failure,
            "settle": {"timeout": "0s", "confirm_after": "0s"},
        }

    def _end(self, id_: str) -> str:
        ((name,),) = self.scenario.rows(f"select name from copy_{self.number} where id = %s", id_)
        if name == NAMES[0]:
            stashed = self.scenario.rows(
                "select 1 from reconcile.blocked where (consumer_group, aggregate_id) = (%s, %s)",
                *(self.scenario.group, id_),
            )
            assert stashed or self.scenario.partition(id_) in self._lag(), f"{id_} is behind, and nobody sees it"
            return f"{name}: it waits"
        return f"**{name}**" if name == NAMES[1] else str(name)

    def _is_repaired(self, message: Message) -> bool:
        return message.aggregate_id == self.ids.repaired

    def _lag(self) -> set[int]:
        return set(self.scenario.lag())


@dataclass(frozen=True)
class Row:
    """A line of the table: the first of all consumers that end alike, which has no ledger where one has none."""

    cell: Cell
    ledger: str
    guard: str
    ends: tuple[str, ...]

    def line(self, findings: dict[tuple[str, str], dict[str, Any]]) -> str:
        """Build it, with what an audit found."""
        ids, found = self.cell.ids, []
        for label, id_ in (("once", ids.once), ("unreadable", ids.waiting), ("repaired", ids.repaired)):
            if (each := findings.get((f"zoe/{self.cell.name}", id_))) is not None:
                latent = " (latent)" if each["difference"] == "latent" else ""
                found.append(f"{label}: `{each['cause']}`{latent}, {each['confidence']}")
        parts = (self.cell.policy, self.ledger, self.guard, *self.ends, "; ".join(found) or "nothing")
        return f"| {' | '.join(parts)} |"


def rows_of(cells: Sequence[Cell]) -> Iterator[Row]:
    """Query how the consumers of a policy ended, and put those that ended alike into one row."""
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for each in cells:
        groups.setdefault(each.ends(), []).append(each)
    for ends, alike in groups.items():
        ledgers, guards = {each.ledger for each in alike}, {each.guard for each in alike}
        assert len(alike) == len(ledgers) * len(guards), f"{alike[0].policy}: these are no row: {alike}"
        ledger = "any" if len(ledgers) > 1 else "yes" if alike[0].ledger else "no"
        yield Row(alike[0], ledger, "any" if len(guards) > 1 else alike[0].guard, ends)


@dataclass
class Race:
    """All consumers of one topic, once all is done."""

    scenario: Scenario
    rows: list[Row]

    @classmethod
    def run(cls, scenario: Scenario) -> Race:
        """Let each policy meet the race, with and without a ledger and a guard."""
        ids, rows = Ids.of(scenario), list[Row]()
        scenario.rows("create table source (id text primary key, version bigint, name text)")
        for id_ in (ids.once, ids.waiting, ids.repaired):
            scenario.publish(*[(id_, version, name) for version, name in enumerate(NAMES, 1)])
            scenario.rows("insert into source values (%s, 3, %s)", id_, NAMES[-1])
        kinds = list(product((False, True), ("none", "newer")))
        for turn, policy in enumerate(POLICIES):
            cells = [
                Cell(policy, *kind, number, replace(scenario, group=f"{scenario.topic}-{number}"), ids)
                for number, kind in enumerate(kinds, turn * len(kinds))
            ]
            rows += cls._met(scenario, cells)
        return cls(scenario, rows)

    @staticmethod
    def _met(scenario: Scenario, cells: list[Cell]) -> list[Row]:
        for each in cells:
            each.prepare()
        with scenario.running(*[each.consumer() for each in cells]):
            for each in cells:
                each.until_failed()
            for each in cells:
                each.repair()
        return list(rows_of(cells))

    def declare(self, folder: Path) -> tuple[Path, Path]:
        """Write the settings, and the contract of one consumer for each row."""
        contract, settings, url = folder / "zoe.yaml", folder / "reconcile.yaml", folder / "db.url"
        url.write_text(self.scenario.url)
        main = {"bootstrap": str(self.scenario.world.lab.bootstrap)}
        settings.write_text(yaml.safe_dump({"connections": {"db": {"url": f"file:{url}"}, "main": main}}))
        topic = {"cluster": "main", "name": self.scenario.topic, "partitioner": "crc32"}
        terms = {
            "version": 1,
            "aggregate": "zoe",
            "source": {"store": "db", "table": "source", "id": "id", "version": "version"},
            "topic": {**topic, "version": "header:version", "event_id": "header:event-id"},
            "consumers": [each.cell.declared() for each in self.rows],
        }
        contract.write_text(yaml.safe_dump(terms, sort_keys=False))
        return contract, settings

    def table(self, findings: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
        """Build the lines of the table, with what an audit found."""
        heads = (
            "policy",
            "ledger",
            "guard",
            "fails once",
            "unreadable",
            "unreadable, then repaired",
            "the audit finds",
        )
        return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(each.line(findings) for each in self.rows)]
