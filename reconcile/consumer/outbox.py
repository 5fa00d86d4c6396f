"""Sends what transactions left in the outbox: dead letters, retries, and what the stash's topic shows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reconcile.consumer.decision import FailureKind
from reconcile.consumer.recovery import Recovery
from reconcile.consumer.store import ConsumerStore, Outgoing
from reconcile.errors import RefusedError, UnreachableError
from reconcile.kafka.errors import Right

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_LOG = logging.getLogger(__name__)
_TOGETHER = 500
_TO_DELIVER = 60.0
_LOOKS = 0.5
"""Seconds between two looks at the outbox."""


class OutboxSender:
    """Sends each record at least once, in the order in which they were written; in a thread of its own."""

    def __init__(self, options: Mapping[str, Any], store: ConsumerStore, recovery: Recovery) -> None:
        from confluent_kafka import Producer

        # How large a record may be is the topic's to say.
        more = {"enable.idempotence": True, "acks": "all", "message.max.bytes": 1_000_000_000}
        self._producer = Producer({**options, **more})
        self._store = store
        self._recovery = recovery
        self.wake = threading.Event()
        """Is set when there is something to send, so that it need not be looked for."""

    def run(self, going: threading.Event) -> None:
        """Send until `going` is cleared, and then what is left."""
        stopped = False
        while not stopped:
            stopped = not going.is_set()
            try:
                while self._store.send(self._deliver, _TOGETHER):
                    pass
            except Exception as error:
                if self._recovery.kind(error) is FailureKind.NON_RECOVERABLE:
                    raise
                _LOG.warning("the outbox waits: %s", type(error).__name__)
            if not stopped:
                self.wake.wait(_LOOKS)
                self.wake.clear()

    def _deliver(self, records: Sequence[Outgoing]) -> None:
        from confluent_kafka import KafkaError

        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                refused.append(error)

        for each in records:
            self._producer.produce(
                each.topic, key=each.key, value=each.value, headers=list(each.headers), on_delivery=delivered
            )
            self._producer.poll(0)
        left = self._producer.flush(_TO_DELIVER)
        for error in refused:
            if not error.retriable() and not error.name().startswith("_MSG_TIMED_OUT"):
                topics = ", ".join(sorted({each.topic for each in records}))
                may_not = error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
                what_to_do = f"grant {Right('Write', 'topic', topics)}" if may_not else "change the topic"
                raise RefusedError(
                    f"records of {topics} cannot be sent: {error.str()}. They are kept: {what_to_do}, and start the"
                    " consumer again"
                )
        if refused or left:
            raise UnreachableError(
                f"{len(refused) or left} records were not sent: {refused[0].str() if refused else 'time'}"
            )
