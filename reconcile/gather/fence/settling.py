"""Waiting for a group to reach the end of the topic, until it has or its time is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from reconcile.contract.model import Consumer
from reconcile.gather.fence.group_position import PositionState, choose_state, compute_lag
from reconcile.kafka.client import ClusterClient, GroupState, Offsets, TopicDescription
from reconcile.kafka.reader import COMMITTED

POLL_EVERY = 0.2
NOBODY_FOR = 10.0
"""A group without members, whose commits stand still: after this long we do not wait for somebody to come."""

Progress = Callable[[str, int], None]

_LOG = logging.getLogger(__name__)


def lag_logged() -> Progress:
    """Build what logs the lag of each link whenever it has changed."""
    last: dict[str, int] = {}

    def progress(link: str, lag: int) -> None:
        if lag and last.get(link) != lag:
            _LOG.info(f"{link}: waiting, {lag:,} to go")
        last[link] = lag

    return progress


@dataclass
class Settling:
    """One group on its way to the ends of a topic."""

    cluster: ClusterClient
    consumer: Consumer
    link: str
    topic: TopicDescription
    begins: Offsets
    ends: Offsets
    timeout: float
    progress: Progress
    started: float = field(default_factory=time.monotonic)
    waited: float = 0.0
    _probed: dict[int, tuple[int, int | None]] = field(default_factory=dict)  # committed offset and next record
    _before: Mapping[int, int | None] = field(default_factory=dict)
    _high: Offsets = field(default_factory=dict)
    _members_queried: float = 0.0
    _nobody_since: float | None = None

    def over(self) -> bool:
        """Look once; tell whether to go on: the group has settled, its time is over, or nobody is there."""
        committed = self.committed()
        if committed != self._before:
            self._nobody_since = None
        states = self._states(committed)
        lag = sum(compute_lag(committed[p], self.begins[p], self.ends[p], states[p]) for p in states)
        self.progress(self.link, lag)
        self.waited = time.monotonic() - self.started
        settled = all(state is PositionState.CAUGHT_UP for state in states.values())
        return settled or self.waited >= self.timeout or self._deserted()

    def committed(self) -> dict[int, int | None]:
        """Query what the group has committed by now."""
        return self.cluster.committed(self.consumer.group, self.topic.name, self.topic.partitions)

    def next_records(self, committed: Mapping[int, int | None]) -> dict[int, int | None]:
        """Look up the first record that the group has not committed, where its offset is short of the end."""
        starts = {p: self.begins[p] if place is None else place for p, place in committed.items()}
        return self._probe({p: start for p, start in starts.items() if self.begins[p] <= start < self.ends[p]})

    def _states(self, committed: dict[int, int | None]) -> dict[int, PositionState]:
        seen = {partition: place for partition, place in committed.items() if place is not None}
        if any(place > self._high.get(partition, self.ends[partition]) for partition, place in seen.items()):
            self._high = self.cluster.high_watermarks(self.topic.name, self.topic.partitions)
        # What moves need not be looked at closely; what stands still may have read all there is.
        known = self.next_records({p: place for p, place in committed.items() if self._before.get(p, -1) == place})
        self._before = committed
        return {
            p: choose_state(committed[p], self.begins[p], end, self._high.get(p, end), known.get(p), p in known)
            for p, end in self.ends.items()
        }

    def _probe(self, places: Mapping[int, int]) -> dict[int, int | None]:
        new = {p: at for p, at in places.items() if self._probed.get(p, (None, None))[0] != at}
        # Where nobody says how the group reads: aborted records are nothing that a copy has to wait for.
        isolation = self.consumer.isolation or COMMITTED
        for partition, record in self.cluster.next_records(self.topic.name, new, isolation).items():
            self._probed[partition] = (new[partition], record)
        return {partition: self._probed[partition][1] for partition in places}

    def _deserted(self) -> bool:
        now = time.monotonic()
        if now < self._members_queried + 1:
            return False
        self._members_queried = now
        group = self.cluster.group(self.consumer.group, self.topic.name)
        if group.state not in (GroupState.EMPTY, GroupState.MISSING):
            self._nobody_since = None
            return False
        if self._nobody_since is None:
            self._nobody_since = now
        return now - self._nobody_since >= NOBODY_FOR
