"""What the checks of a topology look at: what a contract's topics and groups are on the live cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from reconcile.contract.model import Consumer, Contract, RepairTopic
from reconcile.domain.plan import OutsideReader
from reconcile.errors import RefusedError, UnreachableError
from reconcile.kafka.client import ClusterClient, Commits, GroupReading, GroupState, Offsets
from reconcile.kafka.layout import TopicLayout
from reconcile.kafka.reader import read_newest

Answer = TypeVar("Answer")
_NEWEST = 200
"""So many offsets of each partition are looked at."""


@dataclass(frozen=True)
class ReadingGroup:
    """A group that reads one of the contract's topics."""

    group: str
    committed: Offsets
    state: GroupState = GroupState.UNKNOWN
    members: int = 0
    """How many of its members read a partition of the topic."""


@dataclass(frozen=True)
class ClusterFacts:
    """A contract's topics and their readers, as the cluster has them."""

    brokers: int | None = None
    topics: Mapping[str, TopicLayout | None] = field(default_factory=dict)
    """By name; None for one that the cluster does not have."""
    begins: Mapping[str, Offsets] = field(default_factory=dict)
    ends: Mapping[str, Offsets] = field(default_factory=dict)
    readers: Mapping[str, tuple[ReadingGroup, ...]] = field(default_factory=dict)
    """By topic: the groups that read it or committed offsets in it."""
    group_topics: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By group of the contract: the topics that it reads or committed offsets in."""
    known_groups: frozenset[str] | None = None
    """The groups of the cluster that we may see; None if they could not be listed."""
    sees_all_groups: bool = False
    """Whether there are no others."""
    keys: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of compacted topics for failed events: how many newest records were looked at, and how many keys they have."""
    unreadable: tuple[str, ...] = ()
    """What could not be read, and why."""

    def records(self, topic: str) -> int:
        """Count the offsets that a topic still holds."""
        begins = self.begins.get(topic, {})
        return sum(end - begins.get(partition, 0) for partition, end in self.ends.get(topic, {}).items())

    def passed(self, topic: str) -> bool:
        """Whether a topic holds, or ever held, a record."""
        return any(self.ends.get(topic, {}).values())


def topics_of(contract: Contract) -> tuple[str, ...]:
    """List all topics that a contract names, the main one first."""
    found = [contract.topic.name]
    for consumer in contract.consumers:
        found += own_topics(consumer)
    return tuple(dict.fromkeys(found))


def own_topics(consumer: Consumer) -> tuple[str, ...]:
    """List the topics of one consumer beside the main one: for failed events, and for corrections."""
    failed = [topic for _, topic in consumer.failure.topics()]
    route = consumer.repair.route
    return (*failed, route.topic) if isinstance(route, RepairTopic) else tuple(failed)


def readers(cluster: ClusterClient, topic: str) -> tuple[tuple[ReadingGroup, ...], bool]:
    """Query the groups that read a topic or committed offsets in it, and whether we see all groups that there are."""
    commits = cluster.commits()
    return _readers(topic, commits.of_groups, cluster.reading(commits.of_groups)), commits.all_groups


def outside(reading: Iterable[ReadingGroup], contract: Contract) -> tuple[OutsideReader, ...]:
    """Choose the groups that the contract does not name, with what is known of them."""
    named = {each.group for each in contract.consumers}
    return tuple(
        OutsideReader(group=each.group, state=each.state.value, members=each.members, commits=bool(each.committed))
        for each in reading
        if each.group not in named
    )


def cluster_facts(cluster: ClusterClient, contract: Contract) -> ClusterFacts:
    """Read what the cluster has; what cannot be read stands in `unreadable`, and the rest is there all the same."""
    questions = _Questions()
    named = topics_of(contract)
    groups = {each.group for each in contract.consumers}
    topics: dict[str, TopicLayout | None] = questions.answer(partial(cluster.layouts, named), {})
    begins: dict[str, Offsets] = {}
    ends: dict[str, Offsets] = {}
    nowhere: tuple[Offsets, Offsets] = ({}, {})
    for name in (each for each, layout in topics.items() if layout is not None):
        begins[name], ends[name] = questions.answer(partial(_span, cluster, name), nowhere)
    answered: Commits | None = questions.answer(cluster.commits, None)
    commits = {} if answered is None else answered.of_groups
    nobody: dict[str, GroupReading] = {}
    reading = questions.answer(partial(cluster.reading, groups | set(commits)), nobody)
    none_read = (0, 0)
    keys = {
        name: questions.answer(partial(_newest_keys, cluster, name, begins[name], ends[name]), none_read)
        for name, layout in topics.items()
        if name != contract.topic.name and layout is not None and layout.compacted
    }
    return ClusterFacts(
        brokers=questions.answer(cluster.brokers, None),
        topics=topics,
        begins=begins,
        ends=ends,
        readers={name: _readers(name, commits, reading) for name in named},
        group_topics={
            group: frozenset(commits.get(group, {})) | frozenset(reading[group].members if reading else ())
            for group in groups
        },
        known_groups=None if answered is None else frozenset(commits),
        sees_all_groups=answered is not None and answered.all_groups,
        keys=keys,
        unreadable=tuple(questions.unreadable),
    )


@dataclass
class _Questions:
    unreadable: list[str] = field(default_factory=list)

    def answer(self, question: Callable[[], Answer], otherwise: Answer) -> Answer:
        """Read the answer; where there is none, note why."""
        try:
            return question()
        except (RefusedError, UnreachableError) as error:
            self.unreadable.append(str(error))
            return otherwise


def _span(cluster: ClusterClient, topic: str) -> tuple[Offsets, Offsets]:
    partitions = cluster.topic(topic).partitions
    return cluster.begins(topic, partitions), cluster.ends(topic, partitions)


def _newest_keys(cluster: ClusterClient, topic: str, begins: Offsets, ends: Offsets) -> tuple[int, int]:
    with cluster.reading_records(topic):
        keys = [record.key() for record in read_newest(cluster.config, topic, begins, ends, _NEWEST)]
    return len(keys), len(set(keys))


def _readers(
    topic: str, commits: Mapping[str, Mapping[str, Offsets]], reading: Mapping[str, GroupReading]
) -> tuple[ReadingGroup, ...]:
    found = []
    for group in sorted({*commits, *reading}):
        committed = commits.get(group, {}).get(topic, {})
        seen = reading.get(group, GroupReading(GroupState.UNKNOWN, {}))
        if committed or seen.members.get(topic):
            found.append(ReadingGroup(group, committed, seen.state, seen.members.get(topic, 0)))
    return tuple(found)
