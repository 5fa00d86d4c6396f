"""The relay: publishes what lies in the outbox, in its order, and marks it once the log has it."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer
from psycopg2.extensions import connection

from reconcile.lab.services.broker import client_options
from reconcile.lab.services.user import OutboxEvent

_BATCH = 500


def producer(bootstrap: str, **overrides: object) -> Producer:
    """Build a producer as it should be: idempotent, acknowledged by all, keyed as Java's clients key."""
    return Producer(
        {
            **client_options(bootstrap),
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 2,
            **overrides,
        }
    )


def send(sender: Producer, events: Iterable[OutboxEvent]) -> None:
    """Send events in their order and wait until the log has them; raises when it does not."""
    failures: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for event in events:
        sender.produce(
            event.topic,
            key=event.aggregate_id.encode(),
            value=None if event.payload is None else event.payload.encode(),
            headers=event.headers,
            on_delivery=delivered,
        )
        sender.poll(0)
    unsent = sender.flush(30)
    if failures or unsent:
        raise RuntimeError(f"{len(failures) + unsent} events were not published: {failures[:1]}")


class OutboxRelay:
    """The outbox's relay."""

    def __init__(self, database: connection, sender: Producer) -> None:
        self._database = database
        self._sender = sender

    def pending(self) -> list[tuple[int, OutboxEvent]]:
        """Read the next events to publish, with their positions."""
        with self._database, self._database.cursor() as cursor:
            cursor.execute(
                "select position, topic, aggregate_id::text, event_id::text, event_type, correlation_id::text, payload"
                " from outbox where published_at is null and parked_at is null order by position limit %s",
                (_BATCH,),
            )
            return [(position, OutboxEvent(*row)) for position, *row in cursor.fetchall()]

    def mark_published(self, positions: list[int]) -> None:
        """Note that the log has these."""
        with self._database, self._database.cursor() as cursor:
            cursor.execute("update outbox set published_at = clock_timestamp() where position = any(%s)", (positions,))

    def park(self, positions: list[int]) -> None:
        """Stop trying these until somebody looks; they stay unpublished."""
        with self._database, self._database.cursor() as cursor:
            cursor.execute("update outbox set parked_at = clock_timestamp() where position = any(%s)", (positions,))

    def run(self) -> int:
        """Publish all that is pending; return how many there were."""
        published = 0
        while batch := self.pending():
            send(self._sender, (event for _, event in batch))
            self.mark_published([position for position, _ in batch])
            published += len(batch)
        return published
