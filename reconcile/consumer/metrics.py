"""Metrics for Prometheus, with the group as the only name: no ids, and nothing of what a message holds."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from reconcile.config.extras import extras_named
from reconcile.consumer.decision import FailureKind
from reconcile.consumer.postgres_stash import StashSize

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter

_PREFIX = "reconcile_consumer"


class Metrics:
    """The metrics of all consumers of a process; `Consumer(..., metrics=Metrics())`."""

    def __init__(self, registry: CollectorRegistry | None = None, *, every: float = 15.0) -> None:
        """Register them, by default in Prometheus' own registry; stash and lag are looked up every so many seconds."""
        with extras_named("reconcile.consumer.Metrics"):
            import prometheus_client as prometheus
        into = prometheus.REGISTRY if registry is None else registry
        self.every = every
        self._waiting: dict[tuple[str, str, int], float] = {}
        self._changing = threading.Lock()
        self._open: set[str] = set()
        self._counters: dict[tuple[str, str], Counter] = {}
        """Looked up once, as they are needed for each message."""
        self._messages = prometheus.Counter(
            f"{_PREFIX}_messages", "Messages done with.", ["group", "outcome"], registry=into
        )
        self._failures = prometheus.Counter(
            f"{_PREFIX}_failures", "Failures, of messages and of the store.", ["group", "kind", "error"], registry=into
        )
        self._backoff = prometheus.Gauge(
            f"{_PREFIX}_backoff_seconds", "The longest delay of a partition that waits.", ["group"], registry=into
        )
        self._waits = prometheus.Gauge(
            f"{_PREFIX}_waiting_partitions", "Partitions that wait.", ["group"], registry=into
        )
        self._breaker = prometheus.Gauge(
            f"{_PREFIX}_breaker_open", "1 while the breaker is open.", ["group"], registry=into
        )
        self._lag = prometheus.Gauge(
            f"{_PREFIX}_lag_messages", "Messages that the whole group has yet to commit.", ["group"], registry=into
        )
        self._stashed = prometheus.Gauge(
            f"{_PREFIX}_stashed_messages", "Messages in the stash of the whole group.", ["group"], registry=into
        )
        self._blocked = prometheus.Gauge(
            f"{_PREFIX}_stashed_aggregates", "Aggregates in the stash of the whole group.", ["group"], registry=into
        )
        self._oldest = prometheus.Gauge(
            f"{_PREFIX}_stash_age_seconds", "For how long an aggregate has been stashed.", ["group"], registry=into
        )

    def done(self, group: str, topic: str, partition: int, how: str) -> None:
        """Note a message that is done with."""
        counter = self._counters.get((group, how))
        if counter is None:
            counter = self._counters[group, how] = self._messages.labels(group, how)
        counter.inc()
        if how == "applied" and group in self._open:
            self._open.discard(group)
            self._breaker.labels(group).set(0)
        if (group, topic, partition) in self._waiting:
            self.lost(group, topic, partition)

    def failed(self, group: str, kind: FailureKind, error: BaseException) -> None:
        """Note a failure, of a message or of the store."""
        self._failures.labels(group, kind.value, type(error).__name__).inc()

    def waits(self, group: str, topic: str, partition: int, seconds: float, probing: bool) -> None:
        """Note that a partition waits; `probing`: because the breaker is open."""
        with self._changing:
            self._waiting[group, topic, partition] = seconds
        if probing:
            self._open.add(group)
            self._breaker.labels(group).set(1)
        self._show_waiting(group)

    def lost(self, group: str, topic: str, partition: int) -> None:
        """Note that a partition waits no longer, or is no longer this member's."""
        with self._changing:
            self._waiting.pop((group, topic, partition), None)
        self._show_waiting(group)

    def backlog(self, group: str, stash: StashSize, lag: int) -> None:
        """Note what is stashed, and how many messages the group has yet to commit."""
        self._lag.labels(group).set(lag)
        self._stashed.labels(group).set(stash.messages)
        self._blocked.labels(group).set(stash.aggregates)
        age = 0.0 if stash.oldest is None else (datetime.now(UTC) - stash.oldest).total_seconds()
        self._oldest.labels(group).set(max(age, 0.0))

    def _show_waiting(self, group: str) -> None:
        with self._changing:
            delays = [seconds for (each, _, _), seconds in self._waiting.items() if each == group]
        self._waits.labels(group).set(len(delays))
        self._backoff.labels(group).set(max(delays, default=0.0))
