"""Checks of what the contract says of failures: policies, retry topics, and who shares what."""

from __future__ import annotations

from collections.abc import Iterator

from reconcile.audit.topology_check import Check, Facts, Rule, listed
from reconcile.contract.model import Consumer, FailureTopic

_DECLARED = Rule(
    "T-A7",
    ("A7",),
    "A failure policy is declared",
    "what a group does on failure is decided before the first failure, not by its library's default",
)
_IGNORED = Rule(
    "T-B1", ("B1",), "Ignored failures are tolerated", "an event that is ignored leaves its copy wrong for ever"
)
_RETRIED = Rule(
    "T-B5",
    ("B5", "B4"),
    "Retry topics hold immutable records only",
    "an event in a retry topic is overtaken by later ones, and then overwrites them in a copy that is updated in place",
)
_SHARED = Rule(
    "T-B17",
    ("B17",),
    "Failure topics belong to one group",
    "a failed event is one group's business: another group that reads it applies it twice, or too late",
)
_DEPENDS = Rule(
    "T-B17-depends",
    ("B17",),
    "Groups that this one builds on are there",
    "a correction to one group needs the other's too; one that does not exist is never waited for",
)


def declared(facts: Facts) -> Iterator[Check]:
    """Tell which consumers leave their failure policy to the default."""
    for link, consumer in facts.links():
        if "failure" in consumer.model_fields_set:
            yield _DECLARED.ok(link, consumer.failure.policy)
        else:
            todo = "write `failure: {policy: ...}`: ignore, block, retry-then-dead-letter, retry-topics or stash"
            yield _DECLARED.warning(link, f"none: {consumer.failure.policy} is taken for granted", todo)


def ignored(facts: Facts) -> Iterator[Check]:
    """Look for consumers that drop events while the contract tolerates no drift."""
    for link, consumer in facts.links():
        if consumer.failure.policy != "ignore" or "failure" not in consumer.model_fields_set:
            continue
        tolerance = consumer.tolerance
        if tolerance.rows or tolerance.ratio:
            yield _IGNORED.ok(link, f"up to {tolerance.rows} rows, or {tolerance.ratio:.2%} of them, may differ")
        else:
            todo = "choose a policy that keeps failed events, or say in `tolerance` how much drift is accepted"
            yield _IGNORED.fault(link, "failures are ignored, and no drift is tolerated", todo)


def retried(facts: Facts) -> Iterator[Check]:
    """Look for retry topics on copies that are updated in place."""
    for link, consumer in facts.links():
        topics = [each.topic for each in consumer.failure.retry]
        if not topics:
            continue
        if consumer.semantics == "records":
            yield _RETRIED.ok(link, "its records never change, so their order does not matter")
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
            yield _RETRIED.warning(link, found, "keep the guard, and stash by id instead of retrying aside")
        elif used or consumer.failure.policy == "retry-topics":
            yield _RETRIED.fault(link, found, todo)
        else:
            yield _RETRIED.warning(link, found, todo)


def shared(facts: Facts) -> Iterator[Check]:
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
            yield _SHARED.fault(link, f"the cluster has no topic {listed(absent)}", todo)
        if twice:
            others_of = sorted({each for topic in twice for each in owners[topic]} - {link})
            found = f"{listed(twice)} is also named by {listed(others_of)}"
            yield _SHARED.fault(link, found, "give each group failure topics of its own")
        if foreign:
            todo = "stop it, or name it beside the topic in the contract if it is this consumer's own"
            severe = any(foreign.values())
            yield (_SHARED.fault if severe else _SHARED.warning)(link, listed(list(foreign)), todo)
        if not (absent or twice or foreign):
            yield _SHARED.ok(link, listed(list(named)))


def depended(facts: Facts) -> Iterator[Check]:
    """Look for groups in `depends_on` that nobody knows."""
    ours = {each.group for each in facts.contract.consumers}
    for link, consumer in facts.links():
        if not consumer.depends_on or facts.cluster.known_groups is None:
            continue
        known = ours | facts.cluster.known_groups
        unknown = [group for group in consumer.depends_on if group not in known]
        if unknown:
            found = f"neither the contract nor the cluster knows {listed(unknown)}"
            yield _DEPENDS.warning(link, found, "correct the names in depends_on, or start these groups")
        else:
            yield _DEPENDS.ok(link, listed(list(consumer.depends_on)))


def _group(consumer: Consumer, topic: str) -> str:
    """Give the group that reads one of the consumer's failure topics."""
    failure = consumer.failure
    for each in (*failure.retry, failure.dead_letter, failure.stash):
        if isinstance(each, FailureTopic) and each.topic == topic and each.group:
            return each.group
    return consumer.group
