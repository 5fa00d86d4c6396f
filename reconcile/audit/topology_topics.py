"""Checks of how topics are kept: replicas, retention, compaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from reconcile.audit.topology_check import Check, Facts, Rule, Severity, counted, listed
from reconcile.config import durations
from reconcile.contract.model import Consumer, FailureTopic
from reconcile.contract.terms import TOMBSTONE
from reconcile.kafka.layout import TopicLayout

SHORTEST = timedelta(days=7)
"""A log that is kept shorter than a group's offsets are cannot bring back a group that was away."""
SHORTEST_RETRY = timedelta(days=1)
"""The longest that one event may take on its way through a retry topic, with a night in which nobody looks."""
SHORTEST_TOMBSTONES = timedelta(days=1)

_ADVISED = 3
_SURVIVAL = Rule(
    "T-C5",
    ("C5",),
    "Records survive a broker",
    "an event that was acknowledged and is lost with a broker never reaches any copy",
)
_RETENTION = Rule(
    "T-D5", ("D5",), "The log is kept long enough", "what expired before it was read is lost, and cannot be explained"
)
_CLEANUP = Rule(
    "T-D9",
    ("D9", "D5"),
    "Compaction suits the events",
    "compaction keeps one record of a key: enough where each carries the whole state, and a loss where it does not",
)
_RETRIES = Rule(
    "T-D6", ("D6",), "Retry topics keep what waits", "an event that expires in a retry topic was never applied"
)
_PARKED = Rule(
    "T-D7",
    ("D7",),
    "Parked events are kept until resolved",
    "a dead letter or a stashed event that is gone can be neither understood nor applied",
)


def survival(facts: Facts) -> Iterator[Check]:
    """Compare replicas with what acknowledgements ask for, in all of the contract's topics."""
    layouts = [each for each in facts.cluster.topics.values() if each is not None]
    if not layouts:
        return
    found: dict[str, tuple[Severity, list[str]]] = {}
    for each in layouts:
        for severity, what in _weak(each):
            found.setdefault(what, (severity, []))[1].append(each.name)
    name = facts.contract.topic.cluster
    if not found:
        least = min(each.replicas for each in layouts)
        todo = "let producers use acks=all: min.insync.replicas means nothing without it"
        yield _SURVIVAL.ok(name, f"{counted(len(layouts), 'topic')} with {least} replicas or more", todo)
        return
    worst = max((severity for severity, _ in found.values()), key=list(Severity).index)
    told = "; ".join(f"{what}: {listed(names)}" for what, (_, names) in found.items())
    if facts.cluster.brokers == 1:
        told += "; the cluster has one broker"
    todo = "3 replicas, min.insync.replicas 2 (one less than replicas), and acks=all in producers"
    yield (_SURVIVAL.fault if worst is Severity.FAULT else _SURVIVAL.warning)(name, told, todo)


def retention(facts: Facts) -> Iterator[Check]:
    """Tell how long the main topic keeps its records."""
    layout = facts.layout
    if layout is None:
        return
    if layout.deleted and layout.retention is not None and layout.retention < SHORTEST:
        found = f"records expire after {_days(layout.retention)}"
        todo = "set retention.ms to 7 days or more: as long as the broker keeps the offsets of a group that is away"
        yield _RETENTION.warning(facts.topic, found, todo)
    else:
        yield _RETENTION.ok(facts.topic, _kept(layout))


def cleanup(facts: Facts) -> Iterator[Check]:
    """Tell whether compaction suits what the topic's events carry."""
    layout, topic = facts.layout, facts.contract.topic
    if layout is None:
        return
    adding = [link for link, consumer in facts.links() if any(each.apply == "add" for each in consumer.fields)]
    if not layout.compacted:
        yield _CLEANUP.ok(facts.topic, f"cleanup.policy={layout.cleanup}")
    elif topic.state == "patch" or adding:
        what = "carry only what changed" if topic.state == "patch" else f"are added up by {listed(adding)}"
        found = f"cleanup.policy={layout.cleanup}, and events {what}"
        todo = "set cleanup.policy=delete, or let each event carry the whole state"
        yield _CLEANUP.fault(facts.topic, found, todo)
    elif topic.delete != TOMBSTONE:
        found = f"cleanup.policy={layout.cleanup}, and deletes are records for which {topic.delete}"
        todo = "delete by tombstones (a null value): compaction removes nothing else, and what is gone stays for ever"
        yield _CLEANUP.warning(facts.topic, found, todo)
    elif layout.tombstones < SHORTEST_TOMBSTONES:
        found = f"tombstones stay for {_days(layout.tombstones)}"
        todo = "set delete.retention.ms to a day or more: a group that is away longer never hears of the delete"
        yield _CLEANUP.warning(facts.topic, found, todo)
    else:
        yield _CLEANUP.ok(facts.topic, f"cleanup.policy={layout.cleanup}, and each event carries the whole state")


def retries(facts: Facts) -> Iterator[Check]:
    """Tell whether retry topics keep events until they are read, and whether somebody reads them."""
    for link, consumer in facts.links():
        for each in consumer.failure.retry:
            layout = facts.cluster.topics.get(each.topic)
            if layout is None:
                continue
            if check := _lost(_RETRIES, link, consumer, each, facts):
                yield check
            elif layout.compacted:
                todo = "set cleanup.policy=delete: of two events of one id that wait, compaction drops the first"
                yield _RETRIES.fault(link, f"{each.topic} has cleanup.policy={layout.cleanup}", todo)
            elif layout.retention is not None and layout.retention < SHORTEST_RETRY:
                todo = "keep them at least a day, and longer than the longest delay and processing of one event"
                yield _RETRIES.warning(link, f"{each.topic} keeps records for {_days(layout.retention)}", todo)
            elif facts.cluster.records(each.topic) and not _read(consumer, each, facts):
                found = f"{each.topic} holds {counted(facts.cluster.records(each.topic), 'offset')}, and nobody read it"
                todo = f"start {each.group or consumer.group}, or correct its name in the contract"
                yield _RETRIES.warning(link, found, todo)
            else:
                yield _RETRIES.ok(link, f"{each.topic}: {_kept(layout)}")


def parked(facts: Facts) -> Iterator[Check]:
    """Tell whether dead letters and stashed events are kept without a limit."""
    for link, consumer in facts.links():
        failure = consumer.failure
        for each in (failure.dead_letter, failure.stash):
            layout = facts.cluster.topics.get(each.topic) if isinstance(each, FailureTopic) else None
            if layout is None or not isinstance(each, FailureTopic):
                continue
            records, distinct = facts.cluster.keys.get(each.topic, (0, 0))
            if each is failure.stash and (check := _lost(_PARKED, link, consumer, each, facts)):
                yield check
            elif layout.compacted and distinct < records:
                found = f"{each.topic} is compacted, and {records:,} of its newest records have {distinct:,} keys"
                todo = "set cleanup.policy=delete without a limit, or give each record a key of its own"
                yield _PARKED.fault(link, found, todo)
            elif layout.compacted:
                todo = "keep every key unique there, or set cleanup.policy=delete without a limit"
                yield _PARKED.warning(link, f"{each.topic} is compacted: records of one key replace each other", todo)
            elif layout.limited:
                todo = "set retention.ms=-1 and retention.bytes=-1 there, and delete what is resolved"
                yield _PARKED.warning(link, f"{each.topic}: {_kept(layout)}", todo)
            else:
                yield _PARKED.ok(link, f"{each.topic}: {_kept(layout)}")


def _weak(layout: TopicLayout) -> Iterable[tuple[Severity, str]]:
    if layout.replicas < 2:
        yield Severity.WARNING, "1 replica"
        return
    if layout.unwritable:
        yield Severity.FAULT, f"fewer replicas in step than min.insync.replicas {layout.min_insync}"
    if layout.min_insync >= layout.replicas:
        yield (
            Severity.FAULT,
            f"min.insync.replicas {layout.min_insync} of {layout.replicas}: one broker less stops writing",
        )
    elif layout.min_insync < layout.replicas - 1:
        yield Severity.WARNING, f"min.insync.replicas {layout.min_insync} of {layout.replicas}"
    if layout.replicas < _ADVISED:
        yield Severity.WARNING, f"{layout.replicas} replicas"
    if layout.lagging and not layout.unwritable:
        yield Severity.WARNING, "a replica is behind or away"
    if layout.unclean_elections:
        yield Severity.WARNING, "unclean.leader.election.enable=true, which loses acknowledged records"


def _lost(rule: Rule, link: str, consumer: Consumer, topic: FailureTopic, facts: Facts) -> Check | None:
    """Tell of events that expired in a failure topic before its group read them."""
    begins = facts.cluster.begins.get(topic.topic, {})
    group = topic.group or consumer.group
    for reader in facts.cluster.readers.get(topic.topic, ()):
        if reader.group == group:
            gone = sum(max(0, begins.get(partition, 0) - at) for partition, at in reader.committed.items())
            if gone:
                found = f"{counted(gone, 'offset')} of {topic.topic} expired before {group} read them"
                return rule.fault(link, found, "keep the topic longer, and let reconcile correct what was lost")
    return None


def _read(consumer: Consumer, topic: FailureTopic, facts: Facts) -> bool:
    group = topic.group or consumer.group
    return any(reader.group == group for reader in facts.cluster.readers.get(topic.topic, ()))


def _kept(layout: TopicLayout) -> str:
    if not layout.deleted:
        return "kept by compaction, without a limit of time"
    size = " or by size" if layout.size_limited else ""
    if layout.retention is None:
        return f"kept without a limit of time{', but by size' if size else ''}"
    return f"records expire after {_days(layout.retention)}{size}"


def _days(duration: timedelta) -> str:
    return durations.text(duration)
