"""The dead letters of a consumer: what lies in their topic, what became of them, and how they come back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reconcile.consumer import parking
from reconcile.consumer.decision import Outcome
from reconcile.consumer.errors import PolicyRefusedError, UnresolvedLettersError
from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.policy import Terms
from reconcile.consumer.postgres_stash import PostgresStash
from reconcile.consumer.reading import Reading, bytes_of, record_headers, record_place, record_time
from reconcile.domain import dialect
from reconcile.errors import UnreachableError
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.reader import LogReader

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage

_DAY = re.compile(rb"(\d{4}-\d{2}-\d{2})/")
_TO_DELIVER = 60.0
_RESOLVED = (Outcome.APPLIED, Outcome.OLDER, Outcome.DISCARDED)


@dataclass(frozen=True)
class DeadLetter:
    """A dead letter, as it lies in its topic."""

    place: RecordPlace
    """Where it lies."""
    raw_key: bytes | None
    message: Message
    """What was given up: its place and origin are those in the main topic."""
    day: str | None
    """The day on which it was given up."""
    group: str | None
    error_class: str | None
    error_message: str | None
    nameless: bool
    outcome: Outcome | None = None
    """What the ledger says of it now."""

    @property
    def key(self) -> str:
        """The key by which people name it."""
        return (self.raw_key or b"").decode(errors="replace")

    @property
    def resolved(self) -> bool:
        """Whether nothing is left to do about it."""
        return self.outcome in _RESOLVED


class DeadLetters:
    """The dead letters of one group in one topic."""

    def __init__(self, kafka: Mapping[str, Any], topic: str, group: str, reading: Reading) -> None:
        self.topic = topic
        self._kafka = dict(kafka)
        self._group = group
        self._reading = reading

    def read(self, stash: PostgresStash | None = None) -> list[DeadLetter]:
        """Read the topic; with the stash, also what has become of each letter."""
        letters = [each for each in map(self._letter, self._newest()) if each is not None]
        if stash is None or not letters:
            return letters
        outcomes = stash.outcomes([each.message.origin for each in letters])
        return [replace(each, outcome=outcomes.get(each.message.origin)) for each in letters]

    def replay(self, letters: Sequence[DeadLetter], stash: PostgresStash, terms: Terms) -> int:
        """Put letters into the stash of the consumer that gave them up; the next drain applies them, in order.

        Raises PolicyRefusedError where nothing tells which of them were overtaken.
        """
        if not terms.knows_what_was_overtaken:
            raise PolicyRefusedError(
                f"{self._group} keeps neither a ledger nor a version guard, so nothing tells whether a newer event was"
                " applied since: a dead letter applied now could undo it. Audit the copy, and repair what differs"
            )
        ordered = sorted(letters, key=lambda each: each.message.origin)
        return sum(
            stash.put(each.message, each.error_class, each.error_message)
            for each in ordered
            if not each.resolved and not each.nameless
        )

    def clean(self, letters: Sequence[DeadLetter], *, unresolved_too: bool = False) -> int:
        """Write a tombstone for each letter; raise UnresolvedLettersError where something is left to do about one."""
        from confluent_kafka import Producer

        waiting = [each.key for each in letters if not each.resolved]
        if waiting and not unresolved_too:
            raise UnresolvedLettersError(
                f"{len(waiting)} of {len(letters)} dead letters are not resolved, such as {waiting[0]}: replay them"
                " first, or say --unresolved to give them up"
            )
        producer = Producer({**self._kafka, "enable.idempotence": True, "log_level": 0})
        refused: list[str] = []

        def delivered(error: Any, _record: Any) -> None:
            if error is not None:
                refused.append(error.str())

        for each in letters:
            producer.produce(
                self.topic, key=each.raw_key, value=None, partition=each.place.partition, on_delivery=delivered
            )
        if producer.flush(_TO_DELIVER) or refused:
            raise UnreachableError(f"{self.topic} did not take all tombstones: {', '.join(refused[:1]) or 'no answer'}")
        return len(letters)

    def _newest(self) -> list[KafkaMessage]:
        """Read the newest record of each key; one that was cleaned is not among them."""
        found: dict[Any, KafkaMessage] = {}
        with closing(ClusterClient("of the dead letters", self._kafka)) as cluster:
            partitions = cluster.topic(self.topic).partitions
            begins, ends = cluster.begins(self.topic, partitions), cluster.ends(self.topic, partitions)
        options = {**self._kafka, "log_level": 0, "auto.offset.reset": "earliest"}
        with closing(LogReader(options, self.topic)) as log:
            log.start(begins)
            for batch in log.read_to(ends, size=500):
                for record in batch:
                    key = record.key() if record.key() is not None else (record.partition(), record.offset())
                    found.pop(key, None)
                    if record.value() is not None:
                        found[key] = record
        return list(found.values())

    def _letter(self, record: KafkaMessage) -> DeadLetter | None:
        """Read one record; None for one of another group."""
        headers = record_headers(record)
        came = dialect.read(headers) or dialect.Origin("none")
        if came.group is not None and came.group != self._group:
            return None
        place = record_place(record)
        origin = place
        if came.topic is not None and came.partition is not None and came.offset is not None:
            origin = RecordPlace(came.topic, came.partition, came.offset)
        raw_key = bytes_of(record.key())
        names = {name for name, _ in headers}
        value = None if parking.NULL_VALUE in names else bytes_of(record.value())
        keys = [raw for name, raw in headers if name == dialect.ORIGIN_KEY]
        kept = tuple((name, raw) for name, raw in headers if name not in parking.OWN_HEADERS)
        message = self._reading.read(origin, origin, keys[-1] if keys else raw_key, value, kept, came.at)
        at = record_time(record)
        day = _DAY.match(raw_key or b"")
        written = None if at is None else f"{at:%Y-%m-%d}"
        return DeadLetter(
            place,
            raw_key,
            message,
            day[1].decode() if day else written,
            came.group,
            came.error_class,
            came.error_message,
            nameless=message.aggregate_id is None or parking.NAMELESS in names,
        )
