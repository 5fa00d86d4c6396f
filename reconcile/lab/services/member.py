"""The services that do it right: each consumes by the library, with the policy of its contract."""

from __future__ import annotations

import threading
from datetime import timedelta

from reconcile.consumer import Block, Consumer, Message, Postgres, Reading, RetryTopic, RetryTopics, Stash, Transaction
from reconcile.consumer.decision import FailureKind
from reconcile.consumer.policy import Policy, Terms
from reconcile.consumer.postgres_stash import StashSize
from reconcile.lab.services import offsets
from reconcile.lab.services.broker import client_options
from reconcile.lab.services.copies import ACTIVITY, BILLING, LOGIN, Record, Service

_POLICIES: dict[str, Policy] = {
    LOGIN.name: Stash("user-account.login.stash"),
    BILLING.name: Block(),
    ACTIVITY.name: RetryTopics(
        [RetryTopic("user-activity.activity.retry-1", timedelta(seconds=1), "activity-retry")],
        "user-activity.activity.dlq",
    ),
}


def stop(member: ServiceConsumer, thread: threading.Thread) -> None:
    """End the thread in which a consumer runs, also where that has yet to begin."""
    while thread.is_alive():
        member.stop()
        thread.join(0.1)


class ServiceConsumer:
    """One consumer of one service, as it runs all day."""

    every = 3600.0

    def __init__(self, bootstrap: str, service: Service, database_url: str) -> None:
        self.service = service
        self.applied = 0
        self._bootstrap = bootstrap
        self._waiting: set[int] = set()
        policy = _POLICIES[service.name]
        self._consumer = Consumer(
            topic=Reading(service.topic, event_id="header:event-id"),
            group=service.group,
            policy=policy,
            store=Postgres(database_url),
            handler=self._apply,
            kafka={**client_options(bootstrap), "session.timeout.ms": 10_000, "fetch.wait.max.ms": 50},
            # The faults apply events behind the library's back: a ledger that lacks them would accuse the others.
            terms=Terms(policy, semantics="records" if service is ACTIVITY else "state", ledger=service is LOGIN),
            metrics=self,
        )

    def run(self) -> None:
        """Consume until it is stopped."""
        self._consumer.run()

    def stop(self) -> None:
        """End `run`, if it has begun."""
        self._consumer.stop()

    def caught_up(self) -> bool:
        """Check whether all that the topic held a moment ago is committed; a partition that waits does not count."""
        return offsets.lag(self._bootstrap, self.service.group, self.service.topic).keys() <= self._waiting

    def done(self, _group: str, topic: str, partition: int, how: str) -> None:
        """Count a message that was applied."""
        if topic == self.service.topic:
            self._waiting.discard(partition)
        self.applied += how == "applied"

    def failed(self, _group: str, _kind: FailureKind, _error: BaseException) -> None:
        """Count no failure."""

    def waits(self, _group: str, topic: str, partition: int, _seconds: float, _probing: bool) -> None:
        """Note a partition that waits for the next try."""
        if topic == self.service.topic:
            self._waiting.add(partition)

    def lost(self, _group: str, topic: str, partition: int) -> None:
        """Forget a partition that has moved."""
        if topic == self.service.topic:
            self._waiting.discard(partition)

    def backlog(self, _group: str, _stash: StashSize, _lag: int) -> None:
        """Look at no backlog."""

    def _apply(self, message: Message, tx: Transaction) -> None:
        headers = {name: value for name, value in message.headers if value is not None}
        record = Record(*message.place, message.key, message.value, headers, message.origin)
        with tx.connection.cursor() as cursor:
            self.service.apply(cursor, record)
