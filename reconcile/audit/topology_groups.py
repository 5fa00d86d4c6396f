"""Checks of the groups that keep the copies: offsets, members, and what they read."""

from __future__ import annotations

from collections.abc import Iterator

from reconcile.audit.topology_check import Check, Facts, Rule, counted, listed
from reconcile.contract.model import Consumer
from reconcile.gather.fence.fence import ConsumerFence
from reconcile.gather.fence.group_position import PlaceState
from reconcile.gather.topology_facts import own_topics
from reconcile.kafka.cluster import GroupState

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
_TOPICS = Rule(
    "T-D2-topics", ("D2",), "One group for one topic", "members that come and go for one topic stop the others too"
)
_COMMITTED = Rule(
    "T-C6",
    ("C6",),
    "Only committed records are read",
    "a reader of uncommitted records applies events of transactions that were aborted",
)


def offsets(facts: Facts) -> Iterator[Check]:
    """Tell how the committed offsets stand to the log."""
    for link, consumer, fence in facts.fences():
        at = {state: [p.partition for p in fence.places if p.state is state] for state in PlaceState}
        if at[PlaceState.PAST_END]:
            found = f"committed past the end in partition {_numbers(at[PlaceState.PAST_END])}"
            todo = "the topic was made anew, or lost its tail: reset the group's offsets, then let reconcile compare"
            yield _OFFSETS.fault(link, found, todo)
        elif at[PlaceState.BELOW_LOG_START]:
            found = f"records expired before they were read, in partition {_numbers(at[PlaceState.BELOW_LOG_START])}"
            todo = "keep records longer than the group may be away (T-D5), and let reconcile correct what was lost"
            yield _OFFSETS.fault(link, found, todo)
        elif at[PlaceState.NO_COMMIT]:
            yield _uncommitted(link, consumer, fence, at[PlaceState.NO_COMMIT])
        elif at[PlaceState.REWOUND]:
            found = f"an offset went back while we looked, in partition {_numbers(at[PlaceState.REWOUND])}"
            yield _OFFSETS.warning(link, found, "somebody has reset the group: let it finish, and look again")
        else:
            behind = f"{counted(fence.lag, 'offset')} behind the end" if fence.lag else "at the end"
            yield _OFFSETS.ok(link, f"committed in every partition with records, {behind}")


def members(facts: Facts) -> Iterator[Check]:
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


def topics(facts: Facts) -> Iterator[Check]:
    """Look for groups that read other topics too."""
    for link, consumer, _ in facts.fences():
        own = {facts.topic, *own_topics(consumer)}
        others = sorted(facts.cluster.group_topics.get(consumer.group, frozenset()) - own)
        if others:
            todo = "give each topic a group of its own"
            yield _TOPICS.warning(link, f"{consumer.group} also reads {listed(others)}", todo)
        else:
            yield _TOPICS.ok(link, f"{consumer.group} reads nothing else")


def committed_only(facts: Facts) -> Iterator[Check]:
    """Look for groups that read transactions which may yet be aborted."""
    compacted = facts.layout is not None and facts.layout.compacted
    for link, consumer in facts.links():
        if consumer.isolation == "read_committed":
            yield _COMMITTED.ok(link, "reads committed records")
        elif facts.log.gaps and not compacted:
            found = f"reads uncommitted records, and the log shows transactions ({counted(facts.log.gaps, 'gap')})"
            yield _COMMITTED.warning(link, found, "set isolation.level=read_committed in the consumer")
        else:
            yield _COMMITTED.ok(link, "reads uncommitted records; the log shows no transaction")


def _uncommitted(link: str, consumer: Consumer, fence: ConsumerFence, partitions: list[int]) -> Check:
    if fence.group.state is GroupState.MISSING:
        found = f"the cluster knows no offset of {consumer.group}, and the topic has records"
        todo = "check the group's name; if its offsets expired, set them to where the copy stands before it starts"
        return _OFFSETS.fault(link, found, todo)
    found = f"nothing is committed in partition {_numbers(partitions)}, which has, or had, records"
    todo = "let the consumer run; if it stays so, look whether it commits after processing, and reads these partitions"
    return _OFFSETS.warning(link, found, todo)


def _numbers(partitions: list[int]) -> str:
    return listed([str(each) for each in sorted(partitions)], 8)
