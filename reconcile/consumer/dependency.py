"""Waits until other groups are done with what a message builds on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from reconcile.consumer.alerts import Alerts
from reconcile.consumer.errors import DependencyPendingError
from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.postgres import LibraryStore
from reconcile.errors import RefusedError

if TYPE_CHECKING:
    from confluent_kafka import Consumer as KafkaConsumer

_LOG = logging.getLogger(__name__)
_TO_ANSWER = 10.0
Where = Callable[[Message], RecordPlace | str | None]


class OpensStore(Protocol):
    """Where a group keeps its ledger."""

    def connect(self, group: str, owner: str, patience: float) -> LibraryStore:
        """Build the store as one group uses it."""


@dataclass(frozen=True)
class Dependency:
    """A group that has to be done with a message, or with what it builds on, before the message is applied."""

    group: str
    where: Where | None = None
    """Finds what a message waits for: a place in a topic that the group reads, or an event's id; None for nothing.

    Left out, it is the message itself, in the topic that both groups read.
    """
    store: OpensStore | None = None
    """The group's own store, with the ledger in which ids that `where` finds are looked up."""
    deadline: timedelta = timedelta(minutes=5)
    """How long a message may wait until people are told; it waits on."""


@dataclass
class _Wait:
    """A message that waits: since when, and whether people were told."""

    place: RecordPlace
    since: float
    told: bool = False


class Precedence:
    """What the groups that a consumer builds on have done; each is asked anew only where that is not enough."""

    def __init__(
        self,
        dependencies: Sequence[Dependency],
        options: Mapping[str, Any],
        alerts: Alerts,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dependencies = dependencies
        self._options = options
        self._alerts = alerts
        self._now = now
        self._asking = threading.Lock()
        self._clients: dict[str, KafkaConsumer] = {}
        self._stores: dict[str, LibraryStore] = {}
        self._committed: dict[tuple[str, str, int], int] = {}
        self._waiting: dict[tuple[str, int], _Wait] = {}

    def check(self, message: Message) -> None:
        """Raise DependencyPendingError for a message whose time has not come."""
        for each in self._dependencies:
            wanted = message.origin if each.where is None else each.where(message)
            if wanted is None:
                continue
            try:
                with self._asking:
                    done = self._is_past(each, wanted)
            except Exception as failure:
                # No answer is no message's fault: it waits.
                why = str(failure) if isinstance(failure, RefusedError) else type(failure).__name__
                error = DependencyPendingError(f"whether {each.group} is done with it is not known: {why}")
                self._wait(each, message, error)
                raise error from failure
            if not done:
                error = DependencyPendingError(f"{each.group} is not done with what {message.place} builds on")
                self._wait(each, message, error)
                raise error
        self._waiting.pop((message.place.topic, message.place.partition), None)

    def close(self) -> None:
        """Close what was opened to ask."""
        for client in self._clients.values():
            client.close()
        for store in self._stores.values():
            store.close()

    def _is_past(self, dependency: Dependency, wanted: RecordPlace | str) -> bool:
        if isinstance(wanted, str):
            return self._has_applied(dependency, wanted)
        place = (dependency.group, wanted.topic, wanted.partition)
        if self._committed.get(place, -1) <= wanted.offset:
            self._committed[place] = self._ask(*place)
        return self._committed[place] > wanted.offset

    def _ask(self, group: str, topic: str, partition: int) -> int:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        client = self._clients.get(group)
        if client is None:
            own = {"group.id": group, "enable.auto.commit": False, "log_level": 0}
            client = self._clients[group] = Consumer({**self._options, **own})
        (place,) = client.committed([TopicPartition(topic, partition)], _TO_ANSWER)
        if place.error is not None:
            raise KafkaException(place.error)
        return place.offset

    def _has_applied(self, dependency: Dependency, event_id: str) -> bool:
        if dependency.store is None:
            raise RefusedError(f"a dependency that finds events by their ids needs the store of {dependency.group}")
        if dependency.group not in self._stores:
            self._stores[dependency.group] = dependency.store.connect(dependency.group, "", _TO_ANSWER)
        return self._stores[dependency.group].has_applied(event_id)

    def _wait(self, dependency: Dependency, message: Message, error: DependencyPendingError) -> None:
        partition = (message.place.topic, message.place.partition)
        wait = self._waiting.get(partition)
        if wait is None or wait.place != message.place:
            wait = self._waiting[partition] = _Wait(message.place, self._now())
            _LOG.info("%s waits: %s", message.place, error)
        if not wait.told and self._now() - wait.since >= dependency.deadline.total_seconds():
            wait.told = True
            self._alerts.late(message, error)
