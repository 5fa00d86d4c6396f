"""Looks from time to time at what a group has yet to do: its lag and its stash, for who measures it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from typing import Any

from reconcile.consumer.observer import Observer
from reconcile.consumer.postgres import LibraryStore
from reconcile.consumer.postgres_stash import PostgresStash

_LOG = logging.getLogger(__name__)


class BacklogWatch:
    """Looks in a thread of its own; what fails is logged, and looked at again: it never ends a consumer."""

    def __init__(
        self,
        observer: Observer,
        connect: Callable[[], LibraryStore],
        options: Mapping[str, Any],
        groups: Mapping[str, Iterable[str]],
    ) -> None:
        self.wake = threading.Event()
        """Is set when it has to end."""
        self._observer = observer
        self._connect = connect
        self._options = options
        self._groups = groups

    def run(self, going: threading.Event) -> None:
        """Look until `going` is cleared."""
        with closing(self._connect()) as store:
            while going.is_set():
                try:
                    self._observer.backlog(store.group, PostgresStash(store).size(), self._lag())
                except Exception as error:  # noqa: BLE001 - whatever a look fails with, the consumer goes on
                    _LOG.warning("lag and stash of %s were not measured: %s", store.group, type(error).__name__)
                self.wake.wait(self._observer.every)

    def _lag(self) -> int:
        """Query how many records the groups have yet to commit, from their brokers: partitions that wait count too."""
        from reconcile.kafka.client import ClusterClient

        lag = 0
        with closing(ClusterClient("of the consumer", self._options)) as cluster:
            for group, topics in self._groups.items():
                for topic in topics:
                    partitions = cluster.topic(topic).partitions
                    ends = cluster.ends(topic, partitions)
                    begins = cluster.begins(topic, partitions)
                    committed = cluster.committed(group, topic, partitions)
                    for number, end in ends.items():
                        lag += max(end - (committed.get(number) or begins[number]), 0)
        return lag
