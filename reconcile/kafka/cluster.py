"""What a Kafka cluster tells of a topic and of the groups that read it: asked of leaders and coordinators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import quoted
from reconcile.errors import RefusedError
from reconcile.kafka import layout as cluster_layout
from reconcile.kafka import newest_keys, unread
from reconcile.kafka.client import REQUEST_TIMEOUT, ClusterClient, ClusterUnreachableError
from reconcile.kafka.layout import TopicLayout

if TYPE_CHECKING:
    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin import ConsumerGroupDescription, OffsetSpec

Offsets = dict[int, int]


class TopicMissingError(RefusedError):
    """Raised when a contract names a topic that the cluster does not have: correct the name, or create the topic."""


class GroupState(StrEnum):
    """How a group stands."""

    STABLE = "stable"
    REBALANCING = "rebalancing"
    EMPTY = "empty"
    """Nobody consumes, but the broker still keeps the group's offsets."""
    MISSING = "missing"
    """The broker knows no such group: it never was, or its offsets expired."""
    UNKNOWN = "unknown"
    """The client has no name for the state."""


@dataclass(frozen=True)
class TopicStanding:
    """A topic as it is: one that is made anew has another id."""

    name: str
    id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class Member:
    """One member of a group, and the partitions of the topic that it reads."""

    id: str
    client: str
    host: str
    instance: str | None
    """The name of a static member."""
    partitions: tuple[int, ...]


@dataclass(frozen=True)
class GroupStanding:
    """A group as its coordinator describes it."""

    name: str
    state: GroupState
    protocol: str
    """`classic` or `consumer` (KIP-848)."""
    assignor: str
    members: tuple[Member, ...]


class Cluster:
    """A cluster that is asked and never changed."""

    def __init__(self, name: str, config: Mapping[str, str]) -> None:
        """Connect; raise ClusterUnreachableError or ClusterRefusedError within seconds when nobody answers."""
        self._client = ClusterClient(name, config)

    def close(self) -> None:
        """End the client; nothing can be asked afterwards."""
        self._client.close()

    def topic(self, name: str) -> TopicStanding:
        """Describe a topic; raise TopicMissingError with the nearest name."""
        from confluent_kafka import KafkaError, TopicCollection

        # Not `list_topics(name)`: it creates the topic where brokers do that for whoever asks.
        future = self._client.admin.describe_topics(TopicCollection([name]), request_timeout=REQUEST_TIMEOUT)[name]
        found = self._client.answer_unless(KafkaError.UNKNOWN_TOPIC_OR_PART, future, f"the topic {name}")
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
        return TopicStanding(name, topic_id, tuple(sorted(each.id for each in found.partitions)))

    def begins(self, topic: str, partitions: Iterable[int]) -> Offsets:
        """Give the first offset that each partition still has."""
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(topic, partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def ends(self, topic: str, partitions: Iterable[int]) -> Offsets:
        """Give the offset up to which each partition is decided: after it may lie records of open transactions."""
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def high_watermarks(self, topic: str, partitions: Iterable[int]) -> Offsets:
        """Give the offset after the last record of each partition, open transactions included."""
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int | None]:
        """Give the offset that a group would read next in each partition; None where it committed nothing."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        places = [TopicPartition(topic, partition) for partition in partitions]
        request = [ConsumerGroupTopicPartitions(group, places)]
        future = self._client.admin.list_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT)[group]
        found: dict[int, int | None] = {}
        for place in self._client.answer(future, f"the offsets of the group {group}").topic_partitions or ():
            if place.error is not None:
                raise ClusterUnreachableError(
                    f"the offset of the group {group} in partition {place.partition} cannot be read: {place.error};"
                    " try again"
                )
            found[place.partition] = place.offset if place.offset >= 0 else None
        return found

    def group(self, name: str, topic: str) -> GroupStanding:
        """Describe a group; one that does not exist is MISSING."""
        from confluent_kafka import KafkaError

        future = self._client.admin.describe_consumer_groups([name], request_timeout=REQUEST_TIMEOUT)[name]
        found: ConsumerGroupDescription | None
        found = self._client.answer_unless(KafkaError.GROUP_ID_NOT_FOUND, future, f"the group {name}")
        if found is None:
            return GroupStanding(name, GroupState.MISSING, "", "", ())
        members = tuple(
            Member(each.member_id, each.client_id, each.host, each.group_instance_id, _assigned(each, topic))
            for each in sorted(found.members, key=lambda each: each.member_id)
        )
        protocol = found.type.name.lower()
        return GroupStanding(name, _state(found.state.name, protocol), protocol, found.partition_assignor, members)

    def next_records(self, topic: str, places: Mapping[int, int], committed_only: bool) -> dict[int, int | None]:
        """Give the offset of the first record at or after each place; None where the partition has no more.

        Offsets alone do not tell: markers of transactions and compacted records take offsets too, and a group that
        commits the offset after each record never commits past them.
        """
        return unread.next_records(self._client, topic, places, committed_only)

    def brokers(self) -> int:
        """Count the brokers that are up."""
        return cluster_layout.brokers(self._client)

    def layouts(self, topics: Iterable[str]) -> dict[str, TopicLayout | None]:
        """Give the replicas and the settings of each topic; None for one that the cluster does not have."""
        return cluster_layout.layouts(self._client, topics)

    def commits(self) -> dict[str, dict[str, Offsets]]:
        """Give what each group of the cluster has committed: by group, by topic, by partition."""
        return cluster_layout.commits(self._client)

    def assigned(self, groups: Iterable[str]) -> dict[str, frozenset[str]]:
        """Give the topics of which members of each group read a partition."""
        return cluster_layout.assigned(self._client, groups)

    def newest_keys(self, topic: str, begins: Offsets, ends: Offsets) -> tuple[int, int]:
        """Count a topic's newest records, a few hundred of each partition at most, and how many keys they have."""
        return newest_keys.newest_keys(self._client, topic, begins, ends)

    def _offsets(self, topic: str, partitions: Iterable[int], which: OffsetSpec, level: IsolationLevel) -> Offsets:
        from confluent_kafka import TopicPartition

        asked = self._client.admin.list_offsets(
            {TopicPartition(topic, partition): which for partition in partitions},
            isolation_level=level,
            request_timeout=REQUEST_TIMEOUT,
        )
        return {
            place.partition: self._client.answer(future, f"the offsets of {topic}, partition {place.partition}").offset
            for place, future in asked.items()
        }

    def _missing(self, name: str) -> TopicMissingError:
        topics = [each for each in self._client.admin.list_topics(timeout=REQUEST_TIMEOUT).topics if each[:2] != "__"]
        what_to_do = suggestion(name, topics) or "; correct the name, or create the topic"
        return TopicMissingError(f"the cluster {self._client.name} has no topic {quoted(name)}{what_to_do}")


def _assigned(member: Any, topic: str) -> tuple[int, ...]:
    return tuple(sorted(place.partition for place in member.assignment.topic_partitions if place.topic == topic))


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
