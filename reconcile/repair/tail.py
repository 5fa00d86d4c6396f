"""The tail of a topic: what stands after the fence, read once and as far as is asked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from reconcile.errors import RefusedError, UnreachableError
from reconcile.kafka.client import ClusterClient

if TYPE_CHECKING:
    from confluent_kafka import Message

_PATIENCE = 20.0
_TO_ANSWER = 20.0
_SLICE = 0.1
_NEVER_JOINED = "reconcile-emission"  # the client wants a name for the group, and never joins or commits


class TailLostError(UnreachableError):
    """Raised when records that had to be looked at are gone: emit again."""


class LogReplacedError(RefusedError):
    """Raised when a partition is gone, or ends before the fence: the topic is another one by now; start a new run."""


class Tail:
    """The records of some partitions, each shown once and in order, also those of transactions that are open.

    `begins` and `ends` are the offsets at which the partitions began and ended when the tail was opened.
    """

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        starts: Mapping[int, int],
        see: Callable[[Message], None],
        *,
        committed_only: bool = False,
    ) -> None:
        """Begin at these offsets, or where a partition begins now if that is later."""
        from confluent_kafka import Consumer, TopicPartition

        self._client = client
        self._topic = topic
        self._see = see
        self._committed_only = committed_only
        config: dict[str, Any] = {
            **client.config,
            "group.id": _NEVER_JOINED,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            "queued.max.messages.kbytes": 16 * 1024,
            "fetch.wait.max.ms": 100,
        }
        self.begins: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self._consumer = Consumer(config)
        try:
            for partition, start in starts.items():
                self._look(partition, start)
            self._positions = {partition: max(start, self.begins[partition]) for partition, start in starts.items()}
            self._consumer.assign([TopicPartition(topic, *place) for place in self._positions.items()])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the reading."""
        self._consumer.close()

    def see_arrived(self) -> None:
        """Show what has arrived, and wait for nothing."""
        while (record := self._consumer.poll(0)) is not None:
            self._take(record)

    def read_to(self, offsets: Mapping[int, int], within: float = math.inf) -> None:
        """Show every record before these offsets; fail after so many seconds, or some of silence."""
        behind = {partition for partition, end in offsets.items() if self._positions[partition] < end}
        started = heard = time.monotonic()
        while behind:
            record = self._consumer.poll(_SLICE)
            partition = None if record is None else self._take(record)
            now = time.monotonic()
            if partition in behind:
                heard = now
                if self._positions[partition] >= offsets[partition]:
                    behind.remove(partition)
            elif now - heard > _PATIENCE:
                raise self._unread(behind)
            if now - started > within and behind:
                raise self._unread(behind)

    def _take(self, record: Message) -> int | None:
        from confluent_kafka import KafkaError, KafkaException

        error, partition, offset = record.error(), record.partition(), record.offset()
        if error is None:
            self._see(record)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise TailLostError(
                f"{self._topic} lost records while they were looked at, and a newer event may be among them: emit again"
            )
        elif error.code() != KafkaError._PARTITION_EOF:
            if error.retriable():
                return None
            raise self._client.failure(KafkaException(error), f"the records of {self._topic}")
        if partition is None or offset is None:
            return None
        self._positions[partition] = max(self._positions[partition], offset if error is not None else offset + 1)
        return partition

    def _look(self, partition: int, start: int) -> None:
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        asked = f"the offsets of {self._topic}, partition {partition}"
        try:
            place = TopicPartition(self._topic, partition)
            found = self._consumer.get_watermark_offsets(place, _TO_ANSWER, cached=False)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART):
                raise LogReplacedError(
                    f"{self._topic} has no partition {partition}: the topic was made anew; start a new run"
                ) from None
            raise self._client.failure(error, asked) from None
        if found is None:
            raise self._client.failure(TimeoutError(), asked)
        self.begins[partition], self.ends[partition] = found
        # Readers of committed records see the end where the first open transaction begins.
        if start > self.ends[partition] and not self._committed_only:
            raise LogReplacedError(
                f"partition {partition} of {self._topic} ends at {self.ends[partition]}, before the offset {start} that"
                " the plan was made at: the topic was made anew or lost records; start a new run"
            )

    def _unread(self, partitions: Iterable[int]) -> UnreachableError | RefusedError:
        listed = ", ".join(map(str, sorted(partitions)))
        why = "a transaction of another producer may hide them" if self._committed_only else "no answer in time"
        return self._client.failure(TimeoutError(why), f"the records of {self._topic}, partition {listed}")


def committed(
    client: ClusterClient, topic: str, standing: Mapping[tuple[str, int], Sequence[int]]
) -> set[tuple[int, int]]:
    """Give partition and offset of those of these records that are committed, as read_committed readers see them."""
    asked = {(partition, offset) for (_, partition), offsets in standing.items() for offset in offsets}
    found: set[tuple[int, int]] = set()
    if not asked:
        return found

    def see(record: Message) -> None:
        place = (record.partition(), record.offset())
        if place in asked:
            found.add(place)

    starts = {partition: min(each for own, each in asked if own == partition) for partition in dict(asked)}
    ends = {partition: 1 + max(each for own, each in asked if own == partition) for partition in starts}
    with closing(Tail(client, topic, starts, see, committed_only=True)) as tail:
        tail.read_to(ends)
    return found
