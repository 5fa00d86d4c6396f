"""A client that asks a Kafka cluster and never changes it: about topics, offsets and the groups that read them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import quoted
from reconcile.kafka import errors, group_offsets
from reconcile.kafka import options as kafka_options
from reconcile.kafka.errors import ClusterRefusedError, ClusterUnreachableError, Right, TopicMissingError
from reconcile.kafka.layout import TopicLayout, layout
from reconcile.kafka.reader import LogReader, place_of

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, TopicPartition
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription

Answer = TypeVar("Answer")
Offsets = dict[int, int]
"""By partition."""

_TIMEOUT = kafka_options.TIMEOUT
_TO_CONNECT = 10.0
_ALL_DOWN_FOR = 2.0
_LISTED_TOGETHER = 100
_LONGEST_TRANSACTION = "transaction.max.timeout.ms"
_SMALL_FETCHES = {
    "auto.offset.reset": "earliest",
    "fetch.message.max.bytes": 65536,
    "queued.max.messages.kbytes": 1024,
    "fetch.wait.max.ms": 50,
}


class GroupState(StrEnum):
    """What a group is doing."""

    STABLE = "stable"
    REBALANCING = "rebalancing"
    EMPTY = "empty"
    """Nobody consumes, but the broker still keeps the group's offsets."""
    MISSING = "missing"
    """The broker knows no such group: it never was, or its offsets expired."""
    UNKNOWN = "unknown"
    """The client has no name for the state."""


@dataclass(frozen=True)
class TopicDescription:
    """A topic as it is: one that is recreated has another id."""

    name: str
    id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class GroupMember:
    """One member of a group, and the partitions of the topic that it reads."""

    id: str
    client: str
    host: str
    instance: str | None
    """The name of a static member."""
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class GroupDescription:
    """A group as its coordinator describes it."""

    name: str
    state: GroupState
    protocol: str
    """`classic` or `consumer` (KIP-848)."""
    assignor: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True)
class Commits:
    """What the groups of a cluster have committed."""

    of_groups: Mapping[str, Mapping[str, Offsets]]
    """By group, by topic, by partition."""
    all_groups: bool
    """Whether these are all groups that there are."""


@dataclass(frozen=True)
class GroupReading:
    """What a group is doing, and what its members read."""

    state: GroupState
    members: Mapping[str, int]
    """How many members read a partition of a topic, by topic."""


class ClusterClient:
    """One client; what librdkafka says only through its error callback ends up in our errors."""

    def __init__(self, name: str, config: Mapping[str, str]) -> None:
        """Connect; raise ClusterUnreachableError or ClusterRefusedError within seconds when nobody answers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self.name = name
        self._heard: list[KafkaError] = []
        # Not a method of ours: the client would keep us, we the client, and neither would end where it should.
        self.config: dict[str, Any] = {**kafka_options.for_librdkafka(config), "error_cb": self._heard.append}
        try:
            self._admin: AdminClient = AdminClient(self.config)
        except (KafkaException, ValueError) as error:
            raise errors.unusable(name, self.config, error) from None
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the client here and now: left to the garbage collector, it may be ended in a thread of its own."""
        if hasattr(self, "_admin"):
            del self._admin

    def failure(
        self, error: BaseException, wanted: str, right: Right | None = None
    ) -> ClusterUnreachableError | ClusterRefusedError:
        """Build our error for something that was wanted and not answered; `right` is what one needs to see it."""
        return errors.unanswered(self.name, self.config, self._heard, error, wanted, right)

    @contextmanager
    def reading_records(self, topic: str) -> Iterator[None]:
        """Raise our errors for what Kafka's client raises during the block, in which a topic's records are read."""
        with self._explaining(f"the records of {topic}", Right("Read", "topic", topic)):
            yield

    @contextmanager
    def _explaining(self, wanted: str, right: Right | None) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except (KafkaException, TimeoutError) as error:
            self._admin.poll(0)
            raise self.failure(error, wanted, right) from None

    def brokers(self) -> int:
        """Count the brokers that are up."""
        return len(self._answer(self._admin.describe_cluster(request_timeout=_TIMEOUT), "its brokers").nodes or ())

    def topic(self, name: str) -> TopicDescription:
        """Describe a topic; raise TopicMissingError with the nearest name."""
        found = self._described_topics([name])[name]
        if found is None:
            raise self._missing(name)
        leaderless = sorted(each.id for each in found.partitions if each.leader is None)
        if leaderless:
            partitions = ", ".join(map(str, leaderless))
            raise ClusterUnreachableError(
                f"the topic {name} has no leader for partition {partitions}: bring its brokers up, and try again"
            )
        # As Java writes it, and as it can stand in a path.
        topic_id = str(found.topic_id).translate(str.maketrans("+/", "-_")).rstrip("=")
        return TopicDescription(name, topic_id, tuple(sorted(each.id for each in found.partitions)))

    def topics(self) -> list[str]:
        """List the topics that the account may see, apart from Kafka's own."""
        with self._explaining("its topics", None):
            return sorted(each for each in self._admin.list_topics(timeout=_TIMEOUT).topics if each[:2] != "__")

    def layouts(self, topics: Iterable[str]) -> dict[str, TopicLayout | None]:
        """Read the replicas and the settings of each topic; None for one that the cluster does not have."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        found = self._described_topics(sorted(set(topics)))
        resources = {
            name: ConfigResource(ResourceType.TOPIC, name) for name, topic in found.items() if topic is not None
        }
        if not resources:
            return dict.fromkeys(found)
        answers = self._admin.describe_configs(list(resources.values()), request_timeout=_TIMEOUT)
        result: dict[str, TopicLayout | None] = {}
        for name, topic in found.items():
            if topic is None:
                result[name] = None
                continue
            right = Right("DescribeConfigs", "topic", name)
            entries = self._answer(answers[resources[name]], f"the settings of the topic {name}", right)
            settings = {key: str(entry.value) for key, entry in entries.items()}
            in_step = {each.id: (len(each.replicas), len(each.isr)) for each in topic.partitions}
            result[name] = layout(name, in_step, settings)
        return result

    def begins(self, topic: str, partitions: Iterable[int]) -> Offsets:
        """Query the first offset that each partition still has."""
        return self._offsets(topic, partitions, "earliest")

    def ends(self, topic: str, partitions: Iterable[int]) -> Offsets:
        """Query the offset up to which each partition is decided: after it may lie records of open transactions."""
        return self._offsets(topic, partitions, "latest", committed=True)

    def high_watermarks(self, topic: str, partitions: Iterable[int]) -> Offsets:
        """Query the offset after the last record of each partition, open transactions included."""
        return self._offsets(topic, partitions, "latest")

    def newest_time(self, topic: str, partitions: Iterable[int]) -> int:
        """Query the largest time of a record, in milliseconds; -1 where there is none, or the cluster is too old."""
        from confluent_kafka import IsolationLevel, KafkaError, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        futures = self._admin.list_offsets(
            {TopicPartition(topic, partition): OffsetSpec.max_timestamp() for partition in partitions},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=_TIMEOUT,
        )
        wanted, right = f"the times of {topic}", Right("Describe", "topic", topic)
        absent = KafkaError._UNSUPPORTED_FEATURE
        answers = (self._answer_unless(absent, future, wanted, right) for future in futures.values())
        return max((answer.timestamp for answer in answers if answer is not None), default=-1)

    def next_records(self, topic: str, places: Mapping[int, int], isolation: str) -> dict[int, int | None]:
        """Read the offset of the first record at or after each place; None where the partition has no more.

        Offsets alone do not tell: markers of transactions and compacted records take offsets too, and a group that
        commits the offset after each record never commits past them.
        """
        records = self.first_records(topic, places, isolation)
        return {p: None if record is None else place_of(record)[1] for p, record in records.items()}

    def first_records(self, topic: str, places: Mapping[int, int], isolation: str) -> dict[int, Message | None]:
        """Read the first record at or after each place; None where the partition has no more."""
        found: dict[int, Message | None] = dict.fromkeys(places)
        if not places:
            return found
        with (
            self.reading_records(topic),
            closing(LogReader({**self.config, **_SMALL_FETCHES}, topic, isolation)) as reader,
        ):
            reader.start(places)
            for batch in reader.read_to(dict.fromkeys(places)):
                for record in batch:
                    partition, _ = place_of(record)
                    if found[partition] is None:
                        found[partition] = record
                        reader.skip(partition)
        return found

    def longest_transaction(self) -> timedelta | None:
        """Query how long the brokers let a transaction last at most; None where that cannot be seen."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        cluster = self._answer(self._admin.describe_cluster(request_timeout=_TIMEOUT), "its brokers")
        wanted = [ConfigResource(ResourceType.BROKER, str(each.id)) for each in cluster.nodes or ()]
        found = []
        for each, answer in self._admin.describe_configs(wanted, request_timeout=_TIMEOUT).items():
            try:
                entries = self._answer(answer, f"the settings of the broker {each.name}")
            except (ClusterRefusedError, ClusterUnreachableError):
                return None
            if (entry := entries.get(_LONGEST_TRANSACTION)) is None or entry.value is None:
                return None  # other makers' brokers do not have all of Kafka's settings
            found.append(timedelta(milliseconds=int(entry.value)))
        return max(found, default=None)

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int | None]:
        """Query the offset that a group would read next in each partition; None where it committed nothing."""
        from confluent_kafka import KafkaError, KafkaException

        with self._explaining(f"the offsets of the group {group}", Right("Describe", "group", group)):
            answers = group_offsets.committed(self.config, group, topic, partitions, _TIMEOUT)
        found: dict[int, int | None] = {}
        for place in answers:
            if place.error is not None and place.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise self.failure(
                    KafkaException(place.error), f"the offsets of {topic}", Right("Describe", "topic", topic)
                )
            if place.error is not None:
                raise ClusterUnreachableError(
                    f"the offset of the group {group} in partition {place.partition} cannot be read: {place.error};"
                    " try again"
                )
            found[place.partition] = place.offset if place.offset >= 0 else None
        return found

    def commits(self) -> Commits:
        """Query what each group of the cluster has committed, of those that the account may see."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        listed = self._answer(self._admin.list_consumer_groups(request_timeout=_TIMEOUT), "its groups")
        # Describing them waits for coordinators that load or move: asked for offsets, they would end the process.
        groups = sorted(self._described_groups(sorted(each.group_id for each in listed.valid or ())))
        found: dict[str, dict[str, Offsets]] = {}
        all_groups = self._lists_all_groups()
        for start in range(0, len(groups), _LISTED_TOGETHER):
            some = groups[start : start + _LISTED_TOGETHER]
            futures = {group: self._group_offsets(ConsumerGroupTopicPartitions(group)) for group in some}
            for group, future in futures.items():
                try:
                    answer = self._answer(future, f"the offsets of the group {group}")
                except ClusterRefusedError:
                    all_groups = False
                    continue
                found[group] = _by_topic(answer.topic_partitions or ())
        return Commits(found, all_groups)

    def group(self, name: str, topic: str) -> GroupDescription:
        """Describe a group; one that does not exist is MISSING."""
        found = self._described_groups([name])[name]
        if found is None:
            return GroupDescription(name, GroupState.MISSING, "", "", ())
        members = tuple(
            GroupMember(
                each.member_id,
                each.client_id,
                each.host,
                each.group_instance_id,
                tuple(sorted(place.partition for place in each.assignment.topic_partitions if place.topic == topic)),
            )
            for each in sorted(found.members, key=lambda each: each.member_id)
        )
        protocol = found.type.name.lower()
        return GroupDescription(name, _state(found.state.name, protocol), protocol, found.partition_assignor, members)

    def reading(self, groups: Iterable[str]) -> dict[str, GroupReading]:
        """Query what each group is doing, and of which topics its members read a partition."""
        found: dict[str, GroupReading] = {}
        for name, group in self._described_groups(sorted(set(groups))).items():
            if group is None:
                found[name] = GroupReading(GroupState.MISSING, {})
                continue
            read = [{str(place.topic) for place in each.assignment.topic_partitions} for each in group.members]
            state = _state(group.state.name, group.type.name.lower())
            found[name] = GroupReading(state, Counter(topic for topics in read for topic in topics))
        return found

    def _connect(self) -> None:
        from confluent_kafka import KafkaError

        future = self._admin.describe_cluster(request_timeout=_TO_CONNECT)
        started = time.monotonic()
        while not future.done() and time.monotonic() < started + _TO_CONNECT + 1:
            self._admin.poll(0.02)
            down = any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in self._heard)
            if down and time.monotonic() > started + _ALL_DOWN_FOR:
                raise errors.unconnected(self.name, self.config, self._heard)
        self._answer(future, "who it is")
        self._heard.clear()

    def _answer(self, future: Future[Answer], wanted: str, right: Right | None = None) -> Answer:
        with self._explaining(wanted, right):
            return future.result(_TIMEOUT + 5)

    def _answer_unless(
        self, absent: int, future: Future[Answer], wanted: str, right: Right | None = None
    ) -> Answer | None:
        """Wait for an answer; None where the error has the code that says: there is no such thing."""
        from confluent_kafka import KafkaException

        with self._explaining(wanted, right):
            try:
                return future.result(_TIMEOUT + 5)
            except KafkaException as error:
                if error.args[0].code() != absent:
                    raise
        return None

    def _described_topics(self, names: list[str]) -> dict[str, Any]:
        from confluent_kafka import KafkaError, TopicCollection

        if not names:
            return {}
        # Not `list_topics(name)`: it creates the topic where brokers do that for whoever asks.
        futures = self._admin.describe_topics(TopicCollection(names), request_timeout=_TIMEOUT)
        absent = KafkaError.UNKNOWN_TOPIC_OR_PART
        return {
            name: self._answer_unless(absent, futures[name], f"the topic {name}", Right("Describe", "topic", name))
            for name in names
        }

    def _described_groups(self, names: list[str]) -> dict[str, ConsumerGroupDescription | None]:
        from confluent_kafka import KafkaError

        if not names:
            return {}
        futures = self._admin.describe_consumer_groups(names, request_timeout=_TIMEOUT)
        absent = KafkaError.GROUP_ID_NOT_FOUND
        return {
            name: self._answer_unless(absent, futures[name], f"the group {name}", Right("Describe", "group", name))
            for name in names
        }

    def _lists_all_groups(self) -> bool:
        """Query whether the account may list every group: the cluster leaves out those that it may not describe."""
        from confluent_kafka.admin import AclOperation

        future = self._admin.describe_cluster(include_authorized_operations=True, request_timeout=_TIMEOUT)
        return AclOperation.DESCRIBE in (self._answer(future, "its rights").authorized_operations or ())

    def _group_offsets(self, request: Any) -> Future[Any]:
        return self._admin.list_consumer_group_offsets([request], request_timeout=_TIMEOUT)[request.group_id]

    def _offsets(
        self,
        topic: str,
        partitions: Iterable[int],
        which: Literal["earliest", "latest"],
        *,
        committed: bool = False,
    ) -> Offsets:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        spec = OffsetSpec.earliest() if which == "earliest" else OffsetSpec.latest()
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        wanted, right = {TopicPartition(topic, each): spec for each in partitions}, Right("Describe", "topic", topic)
        futures = self._admin.list_offsets(wanted, isolation_level=level, request_timeout=_TIMEOUT)
        return {
            place.partition: self._answer(future, f"the offsets of {topic}, partition {place.partition}", right).offset
            for place, future in futures.items()
        }

    def _missing(self, name: str) -> TopicMissingError:
        what_to_do = suggestion(name, self.topics()) or "; correct the name, or create the topic"
        return TopicMissingError(f"the cluster {self.name} has no topic {quoted(name)}{what_to_do}")


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, Offsets]:
    found: dict[str, Offsets] = {}
    for place in places:
        if place.offset >= 0:
            found.setdefault(str(place.topic), {})[place.partition] = place.offset
    return found


def _state(name: str, protocol: str) -> GroupState:
    states = {
        "STABLE": GroupState.STABLE,
        "PREPARING_REBALANCING": GroupState.REBALANCING,
        "COMPLETING_REBALANCING": GroupState.REBALANCING,
        "EMPTY": GroupState.EMPTY,
        "DEAD": GroupState.MISSING,
    }
    # The client has no names for the two states in which groups of the newer protocol rebalance.
    return states.get(name, GroupState.REBALANCING if protocol == "consumer" else GroupState.UNKNOWN)
