"""Reading a stretch of a log: each partition from one offset up to another; nothing is ever committed.

Offsets between two records prove nothing: markers of transactions, aborted and compacted records take offsets too, also
the last ones of a stretch. A partition is read to its end when the client's own position has passed it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Message

PATIENCE = 30.0
"""Seconds of silence after which a reader gives up."""
COMMITTED = "read_committed"
UNCOMMITTED = "read_uncommitted"

_SLICE = 0.1
"""Seconds: the client gives back a batch that is not full only after them, also at the end of the log."""
_TO_ANSWER = 20.0
READER_GROUP = "reconcile-reader"
"""The client wants a name for the group, and never joins or commits."""
_USUAL = {
    "group.id": READER_GROUP,
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": 16 * 1024,
    "fetch.wait.max.ms": 100,
}
_FIXED = {"enable.auto.commit": False, "enable.partition.eof": True}


class LogReader:
    """A consumer of some partitions that no group knows of.

    Raises KafkaException for what the cluster, or its silence, keeps from being read; a first offset that the log has
    no more is such an error too, unless the options say `auto.offset.reset`.
    """

    def __init__(
        self, options: Mapping[str, Any], topic: str, isolation: str = COMMITTED, patience: float = PATIENCE
    ) -> None:
        from confluent_kafka import Consumer

        self._topic = topic
        self._isolation = isolation
        self._patience = patience
        self._consumer = Consumer({**_USUAL, **options, **_FIXED, "isolation.level": isolation})
        self._at_end: set[int] = set()
        self._behind: set[int] = set()
        self.positions: dict[int, int] = {}
        """The offset that comes next, by partition."""

    def close(self) -> None:
        """End the reading."""
        self._consumer.close()

    def extent(self, partition: int) -> tuple[int, int]:
        """Query where a partition begins and ends now; readers of committed records see its last stable offset."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        place = TopicPartition(self._topic, partition)
        found = self._consumer.get_watermark_offsets(place, _TO_ANSWER, cached=False)
        if found is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time"))
        return found

    def start(self, places: Mapping[int, int]) -> None:
        """Begin at an offset of each partition."""
        from confluent_kafka import TopicPartition

        self.positions = dict(places)
        self._consumer.assign([TopicPartition(self._topic, *place) for place in places.items()])

    def skip(self, partition: int) -> None:
        """Read no more of a partition."""
        from confluent_kafka import TopicPartition

        self._behind.discard(partition)
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def arrived(self) -> list[Message]:
        """Take what has arrived, and wait for nothing."""
        found: list[Message] = []
        while (message := self._consumer.poll(0)) is not None:
            found += self._records([message])
        return found

    def read_to(
        self, ends: Mapping[int, int | None], *, size: int = 1, within: float = math.inf
    ) -> Iterator[list[Message]]:
        """Read on, in batches of this size, until each partition has passed its end; for None, the end it has then.

        The last batches can hold what stands behind the ends. Fails after so many seconds, or some of silence.
        """
        self._behind = {p for p, end in ends.items() if end is None or self.positions[p] < end}
        started = heard = time.monotonic()
        while self._behind:
            found = self._consumer.consume(size, _SLICE)
            if any(message.partition() in self._behind for message in found):
                heard = time.monotonic()
            if records := self._records(found):
                before = time.monotonic()
                yield records
                heard += time.monotonic() - before  # the time that others take for them is no silence
            self._behind -= {p for p in self._behind if self._passed(p, ends[p])}
            now = time.monotonic()
            if self._behind and (now - heard > self._patience or now - started > within):
                raise self._silent()

    def _passed(self, partition: int, end: int | None) -> bool:
        return partition in self._at_end if end is None else self.positions[partition] >= end

    def _records(self, found: Iterable[Message]) -> list[Message]:
        from confluent_kafka import KafkaError, KafkaException

        records = []
        for message in found:
            error = message.error()
            if error is None:
                partition, offset = place_of(message)
                records.append(message)
                self.positions[partition] = offset + 1
                self._at_end.discard(partition)
            elif error.code() == KafkaError._PARTITION_EOF:
                partition, offset = place_of(message)
                self.positions[partition] = max(self.positions[partition], offset)
                self._at_end.add(partition)
            elif not error.retriable():
                raise KafkaException(error)
        return records

    def _silent(self) -> Exception:
        from confluent_kafka import KafkaError, KafkaException

        # Where reading begins behind the first open transaction, the client does not even say that it is at an end.
        hidden = "; a transaction of another producer may hide them" if self._isolation == COMMITTED else ""
        listed = ", ".join(map(str, sorted(self._behind)))
        return KafkaException(KafkaError(KafkaError._TIMED_OUT, f"nothing came of partition {listed} in time{hidden}"))


def read(
    options: Mapping[str, Any],
    topic: str,
    stretches: Mapping[int, tuple[int, int | None]],
    isolation: str = COMMITTED,
    size: int = 1,
) -> Iterator[list[Message]]:
    """Read each partition from its first offset up to, but not including, the second; for None, to where it ends now.

    Yields the records in batches of up to this size; raises KafkaException as LogReader does.
    """
    ends = {partition: end for partition, (_, end) in stretches.items()}
    with closing(LogReader(options, topic, isolation)) as reader:
        reader.start({partition: begin for partition, (begin, _) in stretches.items()})
        for batch in reader.read_to(ends, size=size):
            if within := [each for each in batch if _is_before(each, ends)]:
                yield within


def read_newest(
    options: Mapping[str, Any], topic: str, begins: Mapping[int, int], ends: Mapping[int, int], each: int
) -> Generator[Message, None, None]:
    """Read the committed records in the last so many offsets of each partition."""
    stretches = {p: (max(begins[p], end - each), end) for p, end in ends.items() if end > begins[p]}
    if stretches:
        for batch in read({**options, "auto.offset.reset": "earliest"}, topic, stretches):
            yield from batch


def place_of(message: Message) -> tuple[int, int]:
    """The partition and the offset of a message that the cluster gave."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def _is_before(message: Message, ends: Mapping[int, int | None]) -> bool:
    partition, offset = place_of(message)
    end = ends[partition]
    return end is None or offset < end
