"""One member of a group: it polls, has each message processed, and commits what is done with."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from reconcile.consumer import parking
from reconcile.consumer.decision import FailureKind
from reconcile.consumer.errors import RecordsDeletedError
from reconcile.consumer.message import Message
from reconcile.consumer.observer import Observer
from reconcile.consumer.processor import Done, Fenced, Processor, Result, Waits
from reconcile.consumer.reading import Reading, record_place
from reconcile.consumer.store import HeldPartition
from reconcile.errors import RefusedError, UnreachableError
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.errors import HOW_TO_GRANT, Right

if TYPE_CHECKING:
    from confluent_kafka import Consumer as KafkaConsumer
    from confluent_kafka import KafkaError, TopicPartition
    from confluent_kafka import Message as KafkaMessage

_LOG = logging.getLogger(__name__)
_POLL = 0.5
_TO_ANSWER = 10.0
_TO_RESTART = 30.0
"""Seconds for which a cluster that does not answer is asked again."""
_NOT_PROVEN = 1.0
"""Seconds until a member that the group does not acknowledge asks again."""
_OTHERS_FIRST = 1.5
"""The partition whose message failed as a probe waits this much longer than the others, so that another is tried."""
_WHERE_IT_IS = -1
"""The offset of a paused partition from which nothing was taken that has to be read again."""
CLUSTER = "of the consumer"
"""What errors call the cluster that it reads."""
Partition = tuple[str, int]
T = TypeVar("T")


@dataclass
class _Waiting:
    """A partition that is paused, and the offset at which it goes on."""

    until: float
    offset: int
    probing: bool = False
    """Whether it waits because the breaker is open, and not for a message of its own."""


class Member:
    """One member; it runs in the thread that calls `run`, and so do the handlers."""

    def __init__(
        self,
        options: Mapping[str, Any],
        topics: Sequence[str],
        processor: Processor,
        reading: Reading,
        *,
        start: str = "earliest",
        batch: int = 1,
        observer: Observer | None = None,
    ) -> None:
        self._options = dict(options)
        self._observer = observer
        self._group = str(options["group.id"])
        self._topics = list(topics)
        self._processor = processor
        self._reading = reading
        self._start = start
        self._batch = batch
        self._held: dict[Partition, HeldPartition] = {}
        self._waiting: dict[Partition, _Waiting] = {}
        self._assigned: set[Partition] = set()
        self._unacknowledged: set[Partition] = set()
        self._ends: list[TopicPartition] = []
        self._consumer: KafkaConsumer

    def run(self, going: threading.Event) -> None:
        """Consume until `going` is cleared, or something happens that a person has to look at."""
        from confluent_kafka import Consumer as KafkaConsumer

        self._going = going
        self._consumer = KafkaConsumer({"error_cb": _log, **self._options})
        try:
            self._look_for_topics()
            self._consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            while going.is_set():
                if self._waiting:
                    self._resume()
                if self._batch > 1:
                    self._consume()
                elif (record := self._consumer.poll(self._patience())) is not None:
                    self._take(record)
                if self._ends:
                    self._store_ends()
        finally:
            self._consumer.close()

    def _look_for_topics(self) -> None:
        """Make sure that the cluster answers and has the topics; say what is wrong otherwise."""
        # A consumer hears what is wrong with its connection only as it polls, and goes on trying.
        self._until_answered(lambda: ClusterClient(CLUSTER, of_the_cluster(self._options)).close())
        for topic in self._topics:
            found = self._until_answered(lambda: self._consumer.list_topics(topic, _TO_ANSWER).topics[topic])  # noqa: B023
            if found.error is not None:
                raise self._unreadable(found.error)

    def _take(self, record: KafkaMessage) -> None:
        if (message := self._arrived(record)) is not None:
            self._process(message)

    def _consume(self) -> None:
        # What is there, up to a batch: waiting for it to be full would delay each message where few come.
        if (first := self._consumer.poll(self._patience())) is None:
            return
        found = [self._arrived(record) for record in (first, *self._consumer.consume(self._batch - 1, 0))]
        ready = [each for each in found if each is not None and not self._comes_later(each) and self._holds(each)]
        if not ready:
            return
        results = None
        if len(ready) > 1:
            results = self._processor.process_all(ready, [self._held[_partition(each)] for each in ready])
        if results is not None:
            for message, result in zip(ready, results, strict=True):
                if not self._comes_later(message):
                    self._settle(message, result)
            return
        for message in ready:
            if not self._comes_later(message):
                self._process(message)

    def _process(self, message: Message) -> None:
        if not self._holds(message):
            return
        result: Result = Waits(0)
        while isinstance(result, Waits) and result.seconds == 0:
            result = self._processor.process(message, self._held[_partition(message)])
        self._settle(message, result)

    def _settle(self, message: Message, result: Result) -> None:
        from confluent_kafka import TopicPartition

        partition = _partition(message)
        if self._observer is not None:
            self._observe(self._observer, partition, result)
        if isinstance(result, Done):
            topic, number = partition
            self._consumer.store_offsets(offsets=[TopicPartition(topic, number, message.place.offset + 1)])
            if result.how == "applied":
                for each in self._waiting.values():
                    if each.probing:  # the breaker has closed
                        each.until = 0.0
        elif isinstance(result, Fenced):
            _LOG.warning("%s[%d] belongs to another member: nothing was changed", *partition)
            self._held.pop(partition, None)
            self._wait(partition, message.place.offset, _NOT_PROVEN)
        else:
            self._wait(partition, message.place.offset, result.seconds)
            if result.probing:
                self._probe(partition, result.seconds)

    def _observe(self, observer: Observer, partition: Partition, result: Result) -> None:
        if isinstance(result, Done):
            observer.done(self._processor.group, *partition, result.how)
        elif isinstance(result, Waits):
            observer.waits(self._processor.group, *partition, result.seconds, result.probing)

    def _probe(self, failed: Partition, seconds: float) -> None:
        """Let all partitions wait; after a while the first that has a message is tried, another one if there is."""
        for partition in self._assigned - {failed} - set(self._waiting):
            self._wait(partition, _WHERE_IT_IS, seconds, probing=True)
        self._waiting[failed].until = time.monotonic() + seconds * _OTHERS_FIRST
        self._waiting[failed].probing = True

    def _arrived(self, record: KafkaMessage) -> Message | None:
        """Read a record that is to be processed now; None for one that comes again later, or that is an error."""
        error = record.error()
        if error is not None:
            self._heard(error, record)
            return None
        message = self._reading.message(record)
        if self._comes_later(message) or _partition(message) not in self._assigned:
            return None  # one that moved while a batch was polled can neither wait nor go on here
        due = parking.due(message.headers) if message.place != message.origin else None
        if due is not None and (left := (due - datetime.now(UTC)).total_seconds()) > 0:
            self._wait(_partition(message), message.place.offset, left)
            return None
        return message

    def _comes_later(self, message: Message) -> bool:
        """Whether its partition waits: then it is read again, from here on at the latest."""
        waiting = self._waiting.get(_partition(message))
        if waiting is None:
            return False
        if waiting.offset == _WHERE_IT_IS or message.place.offset < waiting.offset:
            waiting.offset = message.place.offset
        return True

    def _store_ends(self) -> None:
        """Commit past what stands behind the last message of a partition: markers of transactions take offsets too."""
        ends, self._ends = self._ends, []
        here = self._assigned - self._waiting.keys()
        places = [each for each in ends if (each.topic, each.partition) in here]
        if places:
            self._consumer.store_offsets(offsets=places)

    def _heard(self, error: KafkaError, record: KafkaMessage) -> None:
        from confluent_kafka import KafkaError as Code
        from confluent_kafka import TopicPartition

        if error.code() == Code._PARTITION_EOF:
            self._ends.append(TopicPartition(*record_place(record)))
            return
        if error.code() == Code._AUTO_OFFSET_RESET:
            raise RecordsDeletedError(
                f"the group {self._group} has yet to read records that the topic no longer has ({error.str()}): decide"
                " where it goes on, set its offsets there, and reconcile the copy with its source"
            )
        if error.code() == Code._MAX_POLL_EXCEEDED:
            _LOG.error("a handler took longer than max.poll.interval.ms: the group went on without this member")
            return
        if error.fatal() or error.code() in (
            Code.UNKNOWN_TOPIC_OR_PART,
            Code.TOPIC_AUTHORIZATION_FAILED,
            Code.GROUP_AUTHORIZATION_FAILED,
        ):
            raise self._unreadable(error)
        _LOG.warning("Kafka: %s", error.str())

    def _unreadable(self, error: KafkaError) -> RefusedError:
        from confluent_kafka import KafkaError as Code

        topics = ", ".join(self._topics)
        lacking = {
            Code.TOPIC_AUTHORIZATION_FAILED: Right("Read", "topic", topics),
            Code.GROUP_AUTHORIZATION_FAILED: Right("Read", "group", self._group),
        }.get(error.code())
        what_to_do = f": grant {lacking}; {HOW_TO_GRANT}" if lacking else f": {error.str()}"
        return RefusedError(f"the group {self._group} cannot read {topics}{what_to_do}")

    def _holds(self, message: Message) -> bool:
        """Make sure that this member holds the message's partition: the group says so, and then the fence does."""
        partition = _partition(message)
        if partition in self._held:
            return True
        if partition not in self._assigned:
            return False  # it moved while a batch was polled: whoever has it reads this again
        topic, number = partition
        # Who was not acknowledged asks before it claims again: its claims would end the new member's transactions.
        if partition in self._unacknowledged and not self._is_acknowledged(partition, message.place.offset):
            self._wait(partition, message.place.offset, _NOT_PROVEN)
            return False
        try:
            epoch = self._processor.store.claim(self._group, topic, number)
        except Exception as error:
            if self._processor.recovery.kind(error) is FailureKind.NON_RECOVERABLE:
                raise
            _LOG.warning("%s[%d] waits for the store: %s", topic, number, type(error).__name__)
            self._wait(partition, message.place.offset, _NOT_PROVEN)
            return False
        self._processor.at("claimed")
        # In this order: whoever is acknowledged after its claim owned the partition then, and all later owners claim
        # later. The other way round, a member that stands still in between would claim what has moved.
        if not self._is_acknowledged(partition, message.place.offset):
            self._unacknowledged.add(partition)
            self._wait(partition, message.place.offset, _NOT_PROVEN)
            return False
        self._unacknowledged.discard(partition)
        self._held[partition] = HeldPartition(self._group, topic, number, epoch)
        return True

    def _is_acknowledged(self, partition: Partition, offset: int) -> bool:
        """Ask the coordinator, by committing where this member is: it refuses a member whose partition has moved."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            self._consumer.commit(offsets=[TopicPartition(*partition, offset)], asynchronous=False)
        except KafkaException as error:
            _LOG.warning("%s[%d] is not acknowledged by the group: %s", *partition, error.args[0].str())
            return False
        return True

    def _wait(self, partition: Partition, offset: int, seconds: float, *, probing: bool = False) -> None:
        from confluent_kafka import TopicPartition

        self._waiting[partition] = _Waiting(time.monotonic() + seconds, offset, probing)
        self._consumer.pause([TopicPartition(*partition)])

    def _resume(self) -> None:
        from confluent_kafka import TopicPartition

        now = time.monotonic()
        for partition in [each for each, waiting in self._waiting.items() if waiting.until <= now]:
            waiting = self._waiting.pop(partition)
            if waiting.offset != _WHERE_IT_IS:
                self._consumer.seek(TopicPartition(*partition, waiting.offset))
            self._consumer.resume([TopicPartition(*partition)])

    def _patience(self) -> float:
        if not self._waiting:
            return _POLL
        next_due = min(each.until for each in self._waiting.values()) - time.monotonic()
        return min(_POLL, max(next_due, 0.0))

    def _on_assign(self, consumer: KafkaConsumer, partitions: list[TopicPartition]) -> None:
        places = self._until_answered(lambda: self._starts(consumer, partitions))
        if self._options.get("partition.assignment.strategy", "cooperative-sticky") == "cooperative-sticky":
            consumer.incremental_assign(places)
        else:
            consumer.assign(places)
            self._forget(list(self._assigned))
        if places:
            consumer.resume(places)  # one that waited here before it moved, and came back, still would
            consumer.store_offsets(offsets=places)  # also where it begins is kept, so that it begins nowhere else
        self._assigned |= {(each.topic, each.partition) for each in partitions}
        _LOG.info("assigned: %s", ", ".join(f"{each.topic}[{each.partition}]" for each in partitions))

    def _starts(self, consumer: KafkaConsumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Look up where to go on: where the group committed, else at the beginning or the end, as it was decided."""
        from confluent_kafka import KafkaException, TopicPartition

        committed = consumer.committed(partitions, _TO_ANSWER) if partitions else []
        places = []
        for place in committed:
            if place.error is not None:
                raise KafkaException(place.error)
            if place.offset < 0:
                begin, end = consumer.get_watermark_offsets(place, _TO_ANSWER, cached=False)
                # What lies in a retry topic was sent there by this consumer, be it before its reader came.
                at_end = self._start == "latest" and place.topic == self._reading.topic
                place = TopicPartition(place.topic, place.partition, end if at_end else begin)
            places.append(place)
        return places

    def _until_answered(self, query: Callable[[], T]) -> T:
        """Query the cluster, again while it does not answer: a broker that restarts is back in a moment."""
        deadline = time.monotonic() + _TO_RESTART
        while True:
            try:
                return query()
            except Exception as error:
                if self._processor.recovery.kind(error) is FailureKind.NON_RECOVERABLE:
                    raise
                if time.monotonic() > deadline or not self._going.is_set():
                    raise UnreachableError(
                        f"the cluster at {self._options.get('bootstrap.servers')} does not answer the group"
                        f" {self._group}: {error}; start the consumer again once it does"
                    ) from error
                _LOG.warning("the cluster does not answer: %s", error)
                time.sleep(_NOT_PROVEN)

    def _on_revoke(self, consumer: KafkaConsumer, partitions: list[TopicPartition]) -> None:
        from confluent_kafka import KafkaException

        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            _LOG.info("nothing committed when partitions moved: %s", error.args[0].str())
        self._on_lost(consumer, partitions)

    def _on_lost(self, _consumer: KafkaConsumer, partitions: list[TopicPartition]) -> None:
        _LOG.info("given up: %s", ", ".join(f"{each.topic}[{each.partition}]" for each in partitions))
        self._forget([(each.topic, each.partition) for each in partitions])

    def _forget(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            self._assigned.discard(partition)
            self._unacknowledged.discard(partition)
            self._held.pop(partition, None)
            self._waiting.pop(partition, None)
            self._processor.forget(*partition)
            if self._observer is not None:
                self._observer.lost(self._processor.group, *partition)


def of_the_cluster(options: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the options that any client takes: how to reach the cluster, and who one is."""
    prefixes = ("bootstrap.", "security.", "sasl.", "ssl.", "client.", "socket.", "broker.", "reconnect.", "retry.")
    return {name: value for name, value in options.items() if name.startswith(prefixes) or name == "error_cb"}


def _log(error: KafkaError) -> None:
    _LOG.warning("Kafka: %s", error.str())


def _partition(message: Message) -> Partition:
    return message.place.topic, message.place.partition
