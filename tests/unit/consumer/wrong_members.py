"""Members, stores and drains with one mistake each: what the model has to find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reconcile.consumer.decision import Facts
from reconcile.consumer.message import Message
from reconcile.consumer.store import HeldPartition, Letter, Stashed, Writes
from tests.consumer_memory import MemoryStash, MemoryStep, MemoryStore, MemoryTransaction, Tables
from tests.consumer_simulation import GROUP, TOPIC, Member


class _Unfenced(MemoryTransaction):
    def facts(self, messages: Sequence[Message], held: Sequence[HeldPartition]) -> list[Facts]:
        found = super().facts(messages, held)
        self.locks = {each for each in self.locks if isinstance(each, tuple) and each[0] != "fence"}
        return [replace(facts, epoch=each.epoch) for facts, each in zip(found, held, strict=True)]


class UnfencedStore(MemoryStore):
    """Does not look whose a partition is."""

    begun = _Unfenced


class _Parks(MemoryTransaction):
    def facts(self, messages: Sequence[Message], held: Sequence[HeldPartition]) -> list[Facts]:
        return [replace(facts, blocked=None) for facts in super().facts(messages, held)]


class ParkingStore(MemoryStore):
    """Puts a message aside, and lets what follows of its aggregate pass."""

    begun = _Parks


class _Forgets(MemoryTransaction):
    def written(self, writes: Writes) -> Tables:
        return super().written(replace(writes, noted=()))


class ForgetfulStore(MemoryStore):
    """Changes the copy, and notes nothing of it in the same transaction."""

    begun = _Forgets


class _BlocksLater(MemoryTransaction):
    def _stash(self, after: Tables, stashed: Stashed) -> None:
        before = dict(after.blocked)
        super()._stash(after, stashed)
        if stashed.error_class is not None:
            after.blocked = before


class HalfwayStore(MemoryStore):
    """Stashes a message without its aggregate's block."""

    begun = _BlocksLater


class _UnblocksEarly(MemoryStep):
    def take(self, letter: Letter, writes: Writes) -> None:
        super().take(letter, writes)
        self.tables.blocked.pop(letter.aggregate_id, None)


class HastyStash(MemoryStash):
    """Lets an aggregate flow before its stash is empty."""

    begun = _UnblocksEarly


class CommitsFirst(Member):
    """Commits a message before it is applied."""

    def _process(self, partition: int, message: Message) -> None:
        self.world.commit(self, partition, message.place.offset + 1)
        super()._process(partition, message)


class AcknowledgedEarly(Member):
    """Claims a partition that the group said was its own a moment ago."""

    def _claim(self, partition: int, position: int) -> bool:
        if not self.world.commit(self, partition, position):
            return False
        self.world.at("acknowledged")
        self.held[partition] = HeldPartition(GROUP, TOPIC, partition, self.store.claim(GROUP, TOPIC, partition))
        return True


class Unacknowledged(Member):
    """Claims a partition without asking the group."""

    def _claim(self, partition: int, position: int) -> bool:
        self.held[partition] = HeldPartition(GROUP, TOPIC, partition, self.store.claim(GROUP, TOPIC, partition))
        return position >= 0
