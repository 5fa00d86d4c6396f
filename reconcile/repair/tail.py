"""The tail of a topic: what stands after the fence, read once, as far as it is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from reconcile.errors import RefusedError, UnreachableError
from reconcile.kafka import reader
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.errors import Right

if TYPE_CHECKING:
    from confluent_kafka import Message

_PATIENCE = 20.0


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
        self._client = client
        self._topic = topic
        self._see = see
        self._committed_only = committed_only
        self.begins: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        isolation = reader.COMMITTED if committed_only else reader.UNCOMMITTED
        self._reader = reader.LogReader(client.config, topic, isolation, _PATIENCE)
        try:
            for partition, start in starts.items():
                self._look(partition, start)
            self._reader.start({partition: max(start, self.begins[partition]) for partition, start in starts.items()})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the reading."""
        self._reader.close()

    def see_arrived(self) -> None:
        """Show what has arrived, and wait for nothing."""
        with self._explaining():
            records = self._reader.arrived()
        for record in records:
            self._see(record)

    def read_to(self, offsets: Mapping[int, int], within: float = math.inf) -> None:
        """Show every record before these offsets; fail after so many seconds, or some of silence."""
        with self._explaining():
            for batch in self._reader.read_to(offsets, within=within):
                for record in batch:
                    self._see(record)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        from confluent_kafka import KafkaError, KafkaException

        with self._client.reading_records(self._topic):
            try:
                yield
            except KafkaException as error:
                if error.args[0].code() != KafkaError._AUTO_OFFSET_RESET:
                    raise
                raise TailLostError(
                    f"{self._topic} lost records while they were looked at, and a newer event may be among them:"
                    " emit again"
                ) from None

    def _look(self, partition: int, start: int) -> None:
        from confluent_kafka import KafkaError, KafkaException

        try:
            self.begins[partition], self.ends[partition] = self._reader.extent(partition)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART):
                raise LogReplacedError(
                    f"{self._topic} has no partition {partition}: the topic was made anew; start a new run"
                ) from None
            right = Right("Read", "topic", self._topic)
            raise self._client.failure(error, f"the offsets of {self._topic}, partition {partition}", right) from None
        # Readers of committed records see the end where the first open transaction begins.
        if start > self.ends[partition] and not self._committed_only:
            raise LogReplacedError(
                f"partition {partition} of {self._topic} ends at {self.ends[partition]}, before the offset {start} that"
                " the plan was made at: the topic was made anew or lost records; start a new run"
            )


def committed(
    client: ClusterClient, topic: str, written: Mapping[tuple[str, int], Sequence[int]]
) -> set[tuple[int, int]]:
    """Read which of these records are committed: partition and offset of each, as read_committed readers see them."""
    wanted = {(partition, offset) for (_, partition), offsets in written.items() for offset in offsets}
    found: set[tuple[int, int]] = set()
    if not wanted:
        return found

    def see(record: Message) -> None:
        place = (record.partition(), record.offset())
        if place in wanted:
            found.add(place)

    starts = {partition: min(each for own, each in wanted if own == partition) for partition in dict(wanted)}
    ends = {partition: 1 + max(each for own, each in wanted if own == partition) for partition in starts}
    with closing(Tail(client, topic, starts, see, committed_only=True)) as tail:
        tail.read_to(ends)
    return found
