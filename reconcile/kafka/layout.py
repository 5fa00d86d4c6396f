"""How topics are laid out and kept, and who reads what: the cluster's settings as they are in force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from reconcile.kafka.client import REQUEST_TIMEOUT, ClusterClient

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

_UNLIMITED = -1
_LISTED_TOGETHER = 100
_TRUE = "true"


@dataclass(frozen=True)
class TopicLayout:
    """A topic's copies on brokers, and how long its records are kept."""

    name: str
    partitions: int
    replicas: int
    """Of the partition that has the fewest."""
    lagging: tuple[int, ...]
    """The partitions of which a replica is behind its leader or away."""
    unwritable: tuple[int, ...]
    """The partitions with fewer replicas in step than `min.insync.replicas` asks for."""
    min_insync: int
    compacted: bool
    deleted: bool
    """Whether records are deleted by age or size."""
    retention: timedelta | None
    """How long a record is kept; None without a limit of time."""
    size_limited: bool
    tombstones: timedelta
    """How long a tombstone stays after compaction."""
    unclean_elections: bool
    """Whether a replica that is behind may become leader, which loses what it lacks."""

    @property
    def cleanup(self) -> str:
        """The cleanup policy as Kafka writes it."""
        return ",".join(["compact"] * self.compacted + ["delete"] * self.deleted)

    @property
    def limited(self) -> bool:
        """Whether age or size deletes records."""
        return self.deleted and (self.retention is not None or self.size_limited)


def brokers(client: ClusterClient) -> int:
    """Count the brokers that are up."""
    future = client.admin.describe_cluster(request_timeout=REQUEST_TIMEOUT)
    return len(client.answer(future, "its brokers").nodes or ())


def layouts(client: ClusterClient, topics: Iterable[str]) -> dict[str, TopicLayout | None]:
    """Give the layout of each topic; None for one that the cluster does not have."""
    from confluent_kafka import KafkaError, TopicCollection
    from confluent_kafka.admin import ConfigResource, ResourceType

    names = sorted(set(topics))
    if not names:
        return {}
    described = client.admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_TIMEOUT)
    found = {
        name: client.answer_unless(KafkaError.UNKNOWN_TOPIC_OR_PART, described[name], f"the topic {name}")
        for name in names
    }
    resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in names if found[name] is not None}
    if not resources:
        return dict.fromkeys(names)
    answers = client.admin.describe_configs(list(resources.values()), request_timeout=REQUEST_TIMEOUT)
    result: dict[str, TopicLayout | None] = {}
    for name in names:
        topic = found[name]
        if topic is None:
            result[name] = None
            continue
        entries = client.answer(answers[resources[name]], f"the settings of the topic {name}")
        settings = {key: str(entry.value) for key, entry in entries.items()}
        in_step = {each.id: (len(each.replicas), len(each.isr)) for each in topic.partitions}
        result[name] = layout(name, in_step, settings)
    return result


def layout(name: str, in_step: Mapping[int, tuple[int, int]], settings: Mapping[str, str]) -> TopicLayout:
    """Give a topic's layout, from its replicas and replicas in step by partition, and its settings as Kafka tells."""
    least = int(settings.get("min.insync.replicas", 1))
    kept = int(settings.get("retention.ms", _UNLIMITED))
    policies = settings.get("cleanup.policy", "delete").split(",")
    return TopicLayout(
        name=name,
        partitions=len(in_step),
        replicas=min((replicas for replicas, _ in in_step.values()), default=0),
        lagging=tuple(sorted(number for number, (replicas, isr) in in_step.items() if isr < replicas)),
        unwritable=tuple(sorted(number for number, (_, isr) in in_step.items() if isr < least)),
        min_insync=least,
        compacted="compact" in policies,
        deleted="delete" in policies,
        retention=None if kept < 0 else _duration(kept),
        size_limited=int(settings.get("retention.bytes", _UNLIMITED)) >= 0,
        tombstones=_duration(int(settings.get("delete.retention.ms", 86_400_000))),
        unclean_elections=settings.get("unclean.leader.election.enable") == _TRUE,
    )


def commits(client: ClusterClient) -> dict[str, dict[str, dict[int, int]]]:
    """Give what each group of the cluster has committed: by group, by topic, by partition."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    listed = client.answer(client.admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT), "its groups")
    groups = sorted(each.group_id for each in listed.valid or ())
    found: dict[str, dict[str, dict[int, int]]] = {}
    for start in range(0, len(groups), _LISTED_TOGETHER):
        futures = {
            group: client.admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_TIMEOUT
            )[group]
            for group in groups[start : start + _LISTED_TOGETHER]
        }
        for group, future in futures.items():
            answer = client.answer(future, f"the offsets of the group {group}")
            found[group] = _by_topic(answer.topic_partitions or ())
    return found


def assigned(client: ClusterClient, groups: Iterable[str]) -> dict[str, frozenset[str]]:
    """Give the topics of which members of each group read a partition."""
    from confluent_kafka import KafkaError

    names = sorted(set(groups))
    if not names:
        return {}
    futures = client.admin.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT)
    found = {}
    for name in names:
        group = client.answer_unless(KafkaError.GROUP_ID_NOT_FOUND, futures[name], f"the group {name}")
        members = group.members if group is not None else ()
        found[name] = frozenset(str(place.topic) for each in members for place in each.assignment.topic_partitions)
    return found


def _by_topic(places: Iterable[TopicPartition]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for place in places:
        if place.offset >= 0:
            found.setdefault(str(place.topic), {})[place.partition] = place.offset
    return found


def _duration(milliseconds: int) -> timedelta:
    # Kafka takes any 64-bit number of milliseconds; a century is as good as what is longer.
    return timedelta(milliseconds=min(milliseconds, 36_525 * 86_400_000))
