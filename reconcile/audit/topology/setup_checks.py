"""Checks of how consumers, their groups and their topics are set up, over the contract and the live cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from reconcile.audit.topology.facts import TopologyFacts
from reconcile.audit.topology.rule import Check, Rule, Severity, counted, listed
from reconcile.config import durations
from reconcile.config.validation import suggestion
from reconcile.contract.model import Consumer, FailureTopic, RepairTopic
from reconcile.contract.terms import TOMBSTONE
from reconcile.gather.fence.fence import ConsumerFence
from reconcile.gather.fence.group_position import PositionState
from reconcile.gather.topology_facts import ReadingGroup, outside, own_topics
from reconcile.kafka.client import GroupState
from reconcile.kafka.layout import TopicLayout
from reconcile.kafka.transactions import how_to_end

SHORTEST = timedelta(days=7)
"""A log that is kept shorter than a group's offsets are cannot bring back a group that was away."""
SHORTEST_RETRY = timedelta(days=1)
"""The longest that one event may take on its way through a retry topic, with a night in which nobody looks."""
SHORTEST_TOMBSTONES = timedelta(days=1)

_ADVISED = 3
_POLICY = Rule(
    "T-A7",
    ("A7",),
    "A failure policy is declared",
    "what a group does on failure is decided before the first failure, not by its library's default",
)
_IGNORED = Rule(
    "T-B1", ("B1",), "Ignored failures are tolerated", "an event that is ignored leaves its copy wrong for ever"
)
_RETRY_TOPICS = Rule(
    "T-B5",
    ("B5", "B4"),
    "Retry topics hold immutable records only",
    "an event in a retry topic is overtaken by later ones, and then overwrites them in a copy that is updated in place",
)
_FAILURE_TOPICS = Rule(
    "T-B17",
    ("B17",),
    "Failure topics belong to one group",
    "a failed event is one group's business: another group that reads it applies it twice, or too late",
)
_DEPENDED = Rule(
    "T-B17-depends",
    ("B17",),
    "Groups that this one builds on are there",
    "a correction to one group needs the other's too; one that does not exist is never waited for",
)
_REPLICATION = Rule(
    "T-C5",
    ("C5",),
    "Records survive a broker",
    "an event that was acknowledged and is lost with a broker never reaches any copy",
)
_ISOLATION = Rule(
    "T-C6",
    ("C6",),
    "Only committed records are read",
    "a reader of uncommitted records applies events of transactions that were aborted",
)
_READERS = Rule(
    "T-C6-readers",
    ("C6",),
    "The contract names who reads corrections",
    "a group that reads uncommitted records applies corrections that are taken back; nobody says how these read",
)
_OPEN = Rule(
    "T-C6-open",
    ("C6",),
    "No transaction hangs",
    "nobody who reads committed records gets past an open transaction, in any group; one that hangs stays for ever",
)
_OFFSETS = Rule(
    "T-D1",
    ("D1",),
    "Offsets are committed, and are in the log",
    "without a valid offset a group skips records or reads them again, as auto.offset.reset happens to say",
)
_MEMBERS = Rule(
    "T-D2",
    ("D2",),
    "Members fit the partitions",
    "a partition has one reader at a time; each change of members stops a group, and readings in between are not fair",
)
_GROUP_TOPICS = Rule(
    "T-D2-topics", ("D2",), "One group for one topic", "members that come and go for one topic stop the others too"
)
_RETENTION = Rule(
    "T-D5", ("D5",), "The log is kept long enough", "what expired before it was read is lost, and cannot be explained"
)
_COMPACTION = Rule(
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


def failure_policy(facts: TopologyFacts) -> Iterator[Check]:
    """Look for consumers that leave their failure policy to the default."""
    for link, consumer in facts.links():
        if "failure" in consumer.model_fields_set:
            yield _POLICY.ok(link, consumer.failure.policy)
        else:
            todo = "write `failure: {policy: ...}`: ignore, block, retry-then-dead-letter, retry-topics or stash"
            found = f"none: {consumer.failure.policy} is taken for granted, which leaves a failed event's copy wrong"
            yield _POLICY.warning(link, found, todo)


def ignored_failures(facts: TopologyFacts) -> Iterator[Check]:
    """Look for consumers that drop events while the contract tolerates no drift: a decision, and one that costs."""
    for link, consumer in facts.links():
        if consumer.failure.policy != "ignore" or "failure" not in consumer.model_fields_set:
            continue
        tolerance = consumer.tolerance
        if tolerance.rows or tolerance.ratio:
            yield _IGNORED.ok(link, f"up to {tolerance.rows} rows, or {tolerance.ratio:.2%} of them, may differ")
        else:
            todo = "choose a policy that keeps failed events, or say in `tolerance` how much drift is accepted"
            yield _IGNORED.warning(link, "failures are ignored, and no drift is tolerated", todo)


def retry_topics(facts: TopologyFacts) -> Iterator[Check]:
    """Look for retry topics, and for share groups, on copies that are updated in place."""
    for link, consumer in facts.links():
        if consumer.failure.dialect == "share-group" and consumer.semantics == "state":
            found = "its rows are updated in place, and a share group hands its members an id's events in no order"
            yield _RETRY_TOPICS.fault(
                link, found, "let a consumer group read it, in which an id's events keep their order"
            )
            continue
        topics = [each.topic for each in consumer.failure.retry]
        if not topics:
            continue
        if consumer.semantics == "records":
            yield _RETRY_TOPICS.ok(link, "its records never change, so their order does not matter")
            continue
        # A guard saves a state that each event carries whole; a change that comes late is lost by it.
        guarded = consumer.guard != "none" and facts.contract.topic.state == "full"
        used = [topic for topic in topics if facts.cluster.passed(topic)]
        how = "its rows are updated in place"
        how += f", with the guard {consumer.guard}" if consumer.guard != "none" else ", without a guard"
        found = (
            f"{how}; events have gone through {listed(used)}" if used else f"{how}; {listed(topics)} held no event yet"
        )
        todo = "retry in place what passes and stash what does not, both by id; or guard the copy by version"
        if guarded:
            yield _RETRY_TOPICS.warning(link, found, "keep the guard, and stash by id instead of retrying aside")
        elif used or consumer.failure.policy == "retry-topics":
            yield _RETRY_TOPICS.fault(link, found, todo)
        else:
            yield _RETRY_TOPICS.warning(link, found, todo)


def failure_topics(facts: TopologyFacts) -> Iterator[Check]:
    """Look for failure topics that several groups read, or that the cluster does not have."""
    owners: dict[str, list[str]] = {}
    for link, consumer in facts.links():
        for _, topic in consumer.failure.topics():
            owners.setdefault(topic, []).append(link)
    for link, consumer in facts.links():
        named = {topic: _group(consumer, topic) for _, topic in consumer.failure.topics()}
        if not named:
            continue
        twice = [topic for topic in named if len(owners[topic]) > 1]
        absent = [topic for topic in named if topic in facts.cluster.topics and facts.cluster.topics[topic] is None]
        others = {each.group for each in facts.contract.consumers} - {consumer.group}
        foreign = {
            f"{reader.group} reads {topic}": reader.group in others
            for topic, group in named.items()
            for reader in facts.cluster.readers.get(topic, ())
            if reader.group not in (group, consumer.group)
            and not (
                consumer.failure.dead_letter
                and topic == consumer.failure.dead_letter.topic
                and reader.group not in others
            )
        }
        if absent:
            todo = "create it: a consumer that cannot park an event stops, or loses it"
            yield _FAILURE_TOPICS.fault(link, f"the cluster has no topic {listed(absent)}", todo)
        if twice:
            others_of = sorted({each for topic in twice for each in owners[topic]} - {link})
            found = f"{listed(twice)} is also named by {listed(others_of)}"
            yield _FAILURE_TOPICS.fault(link, found, "give each group failure topics of its own")
        if foreign:
            todo = "stop it, or name it beside the topic in the contract if it is this consumer's own"
            severe = any(foreign.values())
            yield (_FAILURE_TOPICS.fault if severe else _FAILURE_TOPICS.warning)(link, listed(list(foreign)), todo)
        if not (absent or twice or foreign):
            yield _FAILURE_TOPICS.ok(link, listed(list(named)))


def depended_groups(facts: TopologyFacts) -> Iterator[Check]:
    """Look for groups in `depends_on` that nobody knows."""
    ours = {each.group for each in facts.contract.consumers}
    for link, consumer in facts.links():
        if not consumer.depends_on or facts.cluster.known_groups is None:
            continue
        known = ours | facts.cluster.known_groups
        unknown = [group for group in facts.contract.groups_before(consumer) if group not in known]
        if unknown:
            seen = "" if facts.cluster.sees_all_groups else ", as far as we may see,"
            found = f"neither the contract nor the cluster{seen} knows {listed(unknown)}"
            yield _DEPENDED.warning(link, found, "correct the names in depends_on, or start these groups")
        else:
            yield _DEPENDED.ok(link, listed(list(consumer.depends_on)))


def replication(facts: TopologyFacts) -> Iterator[Check]:
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
        yield _REPLICATION.ok(name, f"{counted(len(layouts), 'topic')} with {least} replicas or more", todo)
        return
    worst = max((severity for severity, _ in found.values()), key=list(Severity).index)
    text = "; ".join(f"{what}: {listed(names)}" for what, (_, names) in found.items())
    if facts.cluster.brokers == 1:
        text += "; the cluster has one broker"
    todo = "3 replicas, min.insync.replicas 2 (one less than replicas), and acks=all in producers"
    yield (_REPLICATION.fault if worst is Severity.FAULT else _REPLICATION.warning)(name, text, todo)


_CLIENTS = (
    "write `isolation: read_committed` or `read_uncommitted`, as the group's clients are set: Java's, Spring's and"
    " Connect's read uncommitted records unless told otherwise, librdkafka's committed ones"
)
_CONNECT = (
    "it is a sink connector's group: by default Kafka Connect's workers read uncommitted records, so write `isolation:"
    " read_uncommitted`; write `isolation: read_committed` if the worker's configuration has"
    " consumer.isolation.level=read_committed, or the connector's consumer.override.isolation.level=read_committed,"
    " which the worker's connector.client.config.override.policy has to allow"
)


def isolation(facts: TopologyFacts) -> Iterator[Check]:
    """Look for groups that read transactions which may yet be aborted."""
    compacted = facts.layout is not None and facts.layout.compacted
    for link, consumer in facts.links():
        if consumer.isolation is None:
            found = "the contract does not say how the group reads, so the copy gets no corrections"
            yield _ISOLATION.warning(link, found, _CONNECT if consumer.group.startswith("connect-") else _CLIENTS)
        elif consumer.isolation == "read_committed":
            yield _ISOLATION.ok(link, "the contract says that it reads committed records")
        elif facts.log.gaps and not compacted:
            found = "the contract says that it reads uncommitted records, and the log shows transactions"
            found += f" ({counted(facts.log.gaps, 'gap')})"
            yield _ISOLATION.warning(link, found, "set isolation.level=read_committed in the consumer")
        else:
            found = "the contract says that it reads uncommitted records; the log shows no transaction"
            yield _ISOLATION.ok(link, found)


def outside_readers(facts: TopologyFacts) -> Iterator[Check]:
    """Look for groups that read where corrections go, and that the contract does not name."""
    if facts.cluster.known_groups is None:
        return
    routes = dict.fromkeys(
        route.topic if isinstance(route := each.repair.route, RepairTopic) else facts.topic
        for each in facts.contract.consumers
    )
    for topic in routes:
        found = [str(each) for each in outside(facts.cluster.readers.get(topic, ()), facts.contract)]
        hidden = "" if facts.cluster.sees_all_groups else "; there may be groups that this account may not see"
        if found:
            todo = "let each of them read committed records, and write those that keep a copy into the contract"
            yield _READERS.warning(topic, f"{topic} is also read by {listed(found)}{hidden}", todo)
        else:
            yield _READERS.ok(topic, f"none that we may see{hidden}" if hidden else f"nobody else reads {topic}")


def open_transactions(facts: TopologyFacts) -> Iterator[Check]:
    """Look for transactions that are older than any may become."""
    found = facts.fence.topic.open
    stuck = facts.fence.topic.hanging
    if stuck:
        where = f"a transaction hangs {'; '.join(map(str, stuck))}"
        yield _OPEN.fault(facts.topic, where, how_to_end(facts.topic, stuck[0]))
    elif found:
        yield _OPEN.ok(facts.topic, f"open, and not yet too old: {'; '.join(map(str, found))}")
    else:
        yield _OPEN.ok(facts.topic, "no transaction was open")


def committed_offsets(facts: TopologyFacts) -> Iterator[Check]:
    """Compare the committed offsets with the log."""
    for link, consumer, fence in facts.fences():
        at = {state: [p.partition for p in fence.places if p.state is state] for state in PositionState}
        if at[PositionState.PAST_END]:
            found = f"committed past the end in partition {_numbers(at[PositionState.PAST_END])}"
            todo = "the topic was made anew, or lost its tail: reset the group's offsets, then let reconcile compare"
            yield _OFFSETS.fault(link, found, todo)
        elif at[PositionState.BELOW_LOG_START]:
            found = f"records expired before they were read, in partition {_numbers(at[PositionState.BELOW_LOG_START])}"
            todo = "keep records longer than the group may be away (T-D5), and let reconcile correct what was lost"
            yield _OFFSETS.fault(link, found, todo)
        elif at[PositionState.NO_COMMIT]:
            others = [each.group for each in facts.cluster.readers.get(facts.topic, ()) if each.committed]
            yield _uncommitted(link, consumer, fence, at[PositionState.NO_COMMIT], others)
        elif at[PositionState.REWOUND]:
            found = f"an offset went back while we looked, in partition {_numbers(at[PositionState.REWOUND])}"
            yield _OFFSETS.warning(link, found, "somebody has reset the group: let it finish, and look again")
        else:
            behind = f"{counted(fence.lag, 'offset')} behind the end" if fence.lag else "at the end"
            yield _OFFSETS.ok(link, f"committed in every partition with records, {behind}")


def group_members(facts: TopologyFacts) -> Iterator[Check]:
    """Compare the members of each group with the partitions."""
    partitions = len(facts.fence.topic.partitions)
    for link, _, fence in facts.fences():
        group, number = fence.group, len(fence.group.members)
        if group.state is GroupState.REBALANCING:
            yield _MEMBERS.warning(link, f"{group.name} is rebalancing", "look again; if it goes on, read its log")
        elif group.state in (GroupState.EMPTY, GroupState.MISSING):
            todo = "start the consumer: the broker forgets an empty group's offsets after 7 days, unless told otherwise"
            yield _MEMBERS.warning(link, f"{group.name} has no members", todo)
        elif number > partitions:
            idle = number - partitions
            found = f"{number} members for {counted(partitions, 'partition')}: {counted(idle, 'member')} idle"
            yield _MEMBERS.warning(link, found, "run no more members than there are partitions")
        else:
            moving = number > 1 and group.protocol == "classic" and not any(each.instance for each in group.members)
            advice = "give each member a group.instance.id, so that a restart does not stop the others"
            found = f"{counted(number, 'member')} for {counted(partitions, 'partition')}"
            yield _MEMBERS.ok(link, found + (", none of them static" if moving else ""), advice if moving else "")


def group_topics(facts: TopologyFacts) -> Iterator[Check]:
    """Look for groups that read other topics too."""
    for link, consumer, _ in facts.fences():
        own = {facts.topic, *own_topics(consumer)}
        others = sorted(facts.cluster.group_topics.get(consumer.group, frozenset()) - own)
        if others:
            todo = "give each topic a group of its own"
            yield _GROUP_TOPICS.warning(link, f"{consumer.group} also reads {listed(others)}", todo)
        else:
            yield _GROUP_TOPICS.ok(link, f"{consumer.group} reads nothing else")


def topic_retention(facts: TopologyFacts) -> Iterator[Check]:
    """Check how long the main topic keeps its records."""
    layout = facts.layout
    if layout is None:
        return
    if layout.deleted and layout.retention is not None and layout.retention < SHORTEST:
        found = f"records expire after {durations.text(layout.retention)}"
        todo = "set retention.ms to 7 days or more: as long as the broker keeps the offsets of a group that is away"
        yield _RETENTION.warning(facts.topic, found, todo)
    else:
        yield _RETENTION.ok(facts.topic, _kept(layout))


def compaction(facts: TopologyFacts) -> Iterator[Check]:
    """Check whether compaction suits what the topic's events carry."""
    layout, topic = facts.layout, facts.contract.topic
    if layout is None:
        return
    adding = [link for link, consumer in facts.links() if any(each.apply == "add" for each in consumer.fields)]
    if not layout.compacted:
        yield _COMPACTION.ok(facts.topic, f"cleanup.policy={layout.cleanup}")
    elif topic.state == "patch" or adding:
        what = "carry only what changed" if topic.state == "patch" else f"are added up by {listed(adding)}"
        found = f"cleanup.policy={layout.cleanup}, and events {what}"
        todo = "set cleanup.policy=delete, or let each event carry the whole state"
        yield _COMPACTION.fault(facts.topic, found, todo)
    elif TOMBSTONE not in topic.deletes:
        found = f"cleanup.policy={layout.cleanup}, and deletes are records for which {' or '.join(topic.deletes)}"
        todo = "delete by tombstones (a null value): compaction removes nothing else, and what is gone stays for ever"
        yield _COMPACTION.warning(facts.topic, found, todo)
    elif layout.tombstones < SHORTEST_TOMBSTONES:
        found = f"tombstones stay for {durations.text(layout.tombstones)}"
        todo = "set delete.retention.ms to a day or more: a group that is away longer never hears of the delete"
        yield _COMPACTION.warning(facts.topic, found, todo)
    else:
        yield _COMPACTION.ok(facts.topic, f"cleanup.policy={layout.cleanup}, and each event carries the whole state")


def retry_retention(facts: TopologyFacts) -> Iterator[Check]:
    """Check whether retry topics keep events until they are read, and whether somebody reads them."""
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
                yield _RETRIES.warning(link, f"{each.topic} keeps records for {durations.text(layout.retention)}", todo)
            elif facts.cluster.records(each.topic) and not _reader(consumer, each, facts):
                found = f"{each.topic} holds {counted(facts.cluster.records(each.topic), 'offset')}, and nobody read it"
                todo = f"start {each.group or consumer.group}, or correct its name in the contract"
                yield _RETRIES.warning(link, found, todo)
            else:
                yield _RETRIES.ok(link, f"{each.topic}: {_kept(layout)}")


def parked_retention(facts: TopologyFacts) -> Iterator[Check]:
    """Check whether dead letters and stashed events are kept without a limit."""
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


def _group(consumer: Consumer, topic: str) -> str:
    """Choose the group that reads one of the consumer's failure topics."""
    failure = consumer.failure
    for each in (*failure.retry, failure.dead_letter, failure.stash):
        if isinstance(each, FailureTopic) and each.topic == topic and each.group:
            return each.group
    return consumer.group


def _uncommitted(
    link: str, consumer: Consumer, fence: ConsumerFence, partitions: list[int], others: list[str]
) -> Check:
    if fence.group.state is GroupState.MISSING:
        meant = suggestion(consumer.group, others)
        found = f"the cluster knows no offset of {consumer.group}, and the topic has records{meant}"
        todo = "check the group's name; if its offsets expired, set them to where the copy stands before it starts"
        return _OFFSETS.fault(link, found, todo)
    found = f"nothing is committed in partition {_numbers(partitions)}, which has, or had, records"
    todo = "let the consumer run; if it stays so, look whether it commits after processing, and reads these partitions"
    return _OFFSETS.warning(link, found, todo)


def _numbers(partitions: list[int]) -> str:
    return listed([str(each) for each in sorted(partitions)], 8)


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


def _lost(rule: Rule, link: str, consumer: Consumer, topic: FailureTopic, facts: TopologyFacts) -> Check | None:
    """Look for events that expired in a failure topic before its group read them."""
    reader, begins = _reader(consumer, topic, facts), facts.cluster.begins.get(topic.topic, {})
    gone = sum(max(0, begins.get(partition, 0) - at) for partition, at in reader.committed.items()) if reader else 0
    if reader is None or not gone:
        return None
    found = f"{counted(gone, 'offset')} of {topic.topic} expired before {reader.group} read them"
    return rule.fault(link, found, "keep the topic longer, and let reconcile correct what was lost")


def _reader(consumer: Consumer, topic: FailureTopic, facts: TopologyFacts) -> ReadingGroup | None:
    group = topic.group or consumer.group
    return next((each for each in facts.cluster.readers.get(topic.topic, ()) if each.group == group), None)


def _kept(layout: TopicLayout) -> str:
    if not layout.deleted:
        return "kept by compaction, without a limit of time"
    size = " or by size" if layout.size_limited else ""
    if layout.retention is None:
        return f"kept without a limit of time{', but by size' if size else ''}"
    return f"records expire after {durations.text(layout.retention)}{size}"
