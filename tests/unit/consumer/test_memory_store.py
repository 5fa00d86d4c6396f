"""The store in memory, on which the model runs, keeps what every store has to."""

from __future__ import annotations

from typing import Any

import pytest

from reconcile.consumer.store import ConsumerStore, StashStore
from tests.consumer_behaviour import PolicyBehaviour, StashBehaviour, StoreBehaviour, Subject
from tests.consumer_memory import Database, MemoryStash, MemoryStore


class MemorySubject:
    """A group in memory."""

    def __init__(self, database: Database, group: str = "service") -> None:
        self.group = group
        self._database = database

    def connect(self) -> ConsumerStore:
        """Open one more connection of the group."""
        return MemoryStore(self._database, self.group)

    def other_group(self) -> Subject:
        """Choose another group on the same database."""
        return MemorySubject(self._database, "another")

    def stash(self, store: ConsumerStore) -> StashStore:
        """Open the stash over a connection."""
        assert isinstance(store, MemoryStore)
        return MemoryStash(store)

    def put(self, handle: Any, id_: str, value: str | None) -> None:
        """Write a row of the copy."""
        handle.put(id_, value)

    def copy(self) -> dict[str, str]:
        """Read the copy."""
        return self._database.tables(self.group).copy


@pytest.fixture
def subject() -> Subject:
    """A group that nobody used before."""
    return MemorySubject(Database())


class TestMemoryStore(StoreBehaviour):
    """The promises of a store."""


class TestMemoryStash(StashBehaviour):
    """The promises of a stash."""


class TestPoliciesInMemory(PolicyBehaviour):
    """The policies, over it."""
