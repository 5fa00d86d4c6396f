"""Checks of the log's records: schemas, keys, partitions, versions, growth."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import combinations

from reconcile.audit.partitioner_inference import Inference
from reconcile.audit.topology.facts import MOST_TYPES, TopologyFacts, TypeFacts
from reconcile.audit.topology.rule import Check, Rule, counted, listed
from reconcile.contract.terms import TOMBSTONE
from reconcile.gather.fence.group_position import GroupPosition, PositionState

RECENT = timedelta(days=7)
"""What broke the order longer ago than this is past: a warning."""
MANY = 0.01
"""From this share on, records that cannot be used are a fault."""

_SCHEMA = Rule(
    "T-A1", ("A1",), "One schema for all events", "a record that breaks the schema is lost to every copy of its id"
)
_KEYS = Rule("T-A2-keys", ("A2",), "Keys that name an aggregate", "an event without a readable key belongs to nobody")
_DELETIONS = Rule(
    "T-A1-deletes",
    ("A1",),
    "Deletions that read as such",
    "a deletion that is taken for a state hides orphans, and one that is written in another form is not taken for one",
)
_IDS = Rule(
    "T-A2-ids",
    ("A2",),
    "Records are of ids that have rows",
    "where no record is of a row nothing can be told of any difference, and none can be mended",
)
_EVENTS = Rule(
    "T-A1-events",
    ("A1",),
    "Event expressions say what the copies hold",
    "a wrong one would be taken for what publishers do: each difference of its field would be their fault",
)
_TIMES = Rule(
    "T-D5-times",
    ("D5",),
    "Times that a clock can show",
    "retention goes by the times of records: one of the year 50,000 keeps its whole segment, and shows no order",
)
_PARTITIONER = Rule(
    "T-A2-partitioner",
    ("A2",),
    "One partitioner explains the log",
    "a producer with another partitioner breaks the order of events, and a correction needs to know where ids belong",
)
_SPREAD = Rule(
    "T-A2", ("A2",), "Each id in one partition", "order holds inside a partition only; in two, a late event may win"
)
_VERSIONS = Rule(
    "T-C4",
    ("C4",),
    "Versions grow inside a partition",
    "an older event that stands behind a newer one overwrites it in every copy without a guard",
)
_GROWTH = Rule(
    "T-D3", ("D3",), "The partition count stays", "new partitions move ids, and nothing that was written moves along"
)


def never_written(facts: TopologyFacts) -> Iterator[Check]:
    """Look whether the topic has ever held a record, and whether its ids are those of rows."""
    if not facts.fence.topic.partitions or any(each.log_end for each in facts.fence.topic.partitions):
        for link, number in facts.strange_ids.items():
            found = f"none of {counted(number, 'id')} of the log has a row on either side"
            yield _IDS.fault(link, found, "see topic.name, topic.key, and the columns of `id`")
    else:
        yield _IDS.fault(facts.topic, "it never held a record", "see topic.name and topic.cluster")


def event_expressions(facts: TopologyFacts) -> Iterator[Check]:
    """Compare what events say of rows that agree with what these hold."""
    for link, _ in facts.links():
        tests = [each for each in facts.event_tests if each.link == link and each.tested]
        wrong = [each for each in tests if each.failed]
        for each in wrong:
            todo = "mend the expression, or see what else the topic holds; until then it takes no part in causes"
            yield _EVENTS.fault(link, each.found, todo)
        if tests and not wrong:
            fewest = min(tests, key=lambda each: each.matching / each.tested)
            number, shown = counted(len(tests), "expression"), f"{fewest.matching:,} of {fewest.tested:,} or more"
            yield _EVENTS.ok(link, f"{number}, right in {shown} of the records that were looked at")


def schemas(facts: TopologyFacts) -> Iterator[Check]:
    """Compare the fields of the types of events, and count what cannot be read."""
    types = [each for each in facts.log.types if each.name not in facts.contract.topic.ignore_types]
    bad = sum(each.unreadable + each.unversioned for each in types)
    total = sum(each.records for each in types)
    if not total:
        yield _SCHEMA.ok(facts.topic, "no record yet")
        return
    if bad:
        unreadable, unversioned = (sum(getattr(each, n) for each in types) for n in ("unreadable", "unversioned"))
        parts = [f"{unreadable:,} cannot be read"] * bool(unreadable)
        parts += [f"{unversioned:,} have no version at {facts.contract.topic.version}"] * bool(unversioned)
        found = f"of {counted(total, 'record')} {' and '.join(parts)}"
        todo = "mend the producer, and let the next run of reconcile correct the ids: it names each of them"
        severe = bad >= MANY * total
        yield (_SCHEMA.fault if severe else _SCHEMA.warning)(facts.topic, found, todo)
        return
    difference = _difference([each for each in types if each.ever]) if facts.contract.topic.state == "full" else ""
    if difference:
        todo = "give each schema a topic of its own, or name the types without state in topic.ignore_types"
        yield _SCHEMA.warning(facts.topic, difference, todo)
        return
    kinds = f"{counted(len(types), 'type')} of events" if len(types) < MOST_TYPES else f"{MOST_TYPES} types and more"
    yield _SCHEMA.ok(facts.topic, f"{counted(total, 'record')} of {kinds}, all readable")


def deletions(facts: TopologyFacts) -> Iterator[Check]:
    """Compare how deletions stand in the log with how the contract reads and writes them."""
    topic, seen = facts.contract.topic, facts.log.deletions
    told = sum(seen.events.values())
    found = f"{counted(seen.tombstones, 'tombstone')} and {counted(told, 'deleting event')}"
    if seen.unread:
        forms = " and ".join(f"{number:,} by {form}" for form, number in seen.unread.items())
        todo = f"add to topic.delete: {', '.join(seen.unread)}"
        yield _DELETIONS.fault(facts.topic, f"of the records {forms} look like deletions, and read as states", todo)
        return
    written = [] if not any(each.repair.deletes for each in facts.contract.consumers) else [*topic.deletions]
    if written and told and all(each == TOMBSTONE for each in written):
        form = next(iter(seen.events))
        todo = f"set topic.delete_as: [{form}, tombstone]" if seen.tombstones else f"set topic.delete_as: {form}"
        yield _DELETIONS.warning(facts.topic, f"{found}, and corrections would be tombstones alone", todo)
    elif written and seen.tombstones and TOMBSTONE not in written:
        todo = f"set topic.delete_as: [{', '.join(written)}, tombstone]"
        yield _DELETIONS.warning(facts.topic, f"{found}, and corrections would bring no tombstone", todo)
    else:
        yield _DELETIONS.ok(facts.topic, found)


def keys(facts: TopologyFacts) -> Iterator[Check]:
    """Count keys that are null or unreadable."""
    log = facts.log
    bad = log.null_keys + log.unreadable_keys
    if not bad:
        yield _KEYS.ok(facts.topic, "every key can be read")
        return
    found = f"of {counted(log.records, 'record')} {log.null_keys:,} have no key and {log.unreadable_keys:,} one that is"
    found += f" not {facts.contract.topic.key.type}"
    todo = "check topic.key.type; if it is right, let producers send the aggregate's id as key"
    yield (_KEYS.fault if bad >= MANY * log.records else _KEYS.warning)(facts.topic, found, todo)


def times(facts: TopologyFacts) -> Iterator[Check]:
    """Count records whose times lie beyond what any clock shows."""
    odd = facts.log.odd_times
    if not odd:
        yield _TIMES.ok(facts.topic, "the times of all records lie before the year 10,000")
        return
    found = f"of {counted(facts.log.records, 'record')} {odd:,} have a time beyond the year 9999"
    todo = "let producers send milliseconds since 1970, and set message.timestamp.after.max.ms on the topic"
    yield _TIMES.warning(facts.topic, found, todo)


def partitioner(facts: TopologyFacts) -> Iterator[Check]:
    """Check whether a partitioner explains the log, and whether it is the contract's."""
    inference = facts.log.inference
    shares = ", ".join(f"{name} {share:.1%}" for name, share in sorted(inference.shares.items(), key=_most))
    if inference.contradicted:
        other = inference.partitioner or inference.prevailing or "otherwise"
        found = f"the contract says {inference.declared}, and the log says {other} ({shares})"
        todo = "write `partitioner: infer`, or let all producers use the one that the contract names"
        yield _PARTITIONER.fault(facts.topic, found, todo)
    elif inference.partitions == 1:
        yield _PARTITIONER.ok(facts.topic, "there is one partition")
    elif not inference.seen:
        word = f"; the contract says {inference.declared}" if inference.declared else ""
        yield _PARTITIONER.ok(facts.topic, f"no record with a key yet{word}")
    elif not inference.candidates:
        found = f"none explains 99 % of {counted(inference.seen, 'record')}: {shares}"
        found += f"; {inference.prevailing} prevails, and another producer differs" if inference.prevailing else ""
        todo = "find the producers that differ (librdkafka defaults to crc32, Java to murmur2, Sarama to fnv1a) and let"
        todo += " them agree: until then no correction has a home"
        yield _PARTITIONER.warning(facts.topic, found, todo)
    else:
        yield _PARTITIONER.ok(facts.topic, _explained(inference))


def partitions_of_ids(facts: TopologyFacts) -> Iterator[Check]:
    """Count the ids that stand in several partitions, by what put them there."""
    placement = facts.log.placement
    unknown = max(0, placement.spread - placement.grown - placement.stray)
    if not placement.spread and not placement.stray:
        yield _SPREAD.ok(facts.topic, f"{counted(placement.ids, 'id')}, each in its partition")
        return
    ids = counted(placement.ids, "id")
    found = f"of {ids} {placement.spread:,} stand in several partitions"
    parts = [f"{placement.grown:,} by growth"] * bool(placement.grown)
    if placement.stray:
        by = [
            f"{number:,} as {name} would" if name else f"{number:,} for no reason that is known"
            for name, number in placement.routed_by.items()
        ]
        parts.append(f"{placement.stray:,} where the topic's partitioner does not put them ({', '.join(by)})")
    parts += [f"{unknown:,} for no known reason"] * bool(unknown)
    found += f": {'; '.join(parts)}"
    if placement.stray:
        past = not placement.stray_last and not _recent(placement.stray_at, facts)
        when = f"; the last record of that kind is of {_day(placement.stray_at)}"
        todo = "set `partitioner` alike in all producers (librdkafka: murmur2_random); `reconcile run` names the ids"
        yield (_SPREAD.warning if past else _SPREAD.fault)(facts.topic, found + when, todo)
    elif unknown:
        todo = "find out which producers write here and set one partitioner for all; see T-A2-partitioner"
        yield _SPREAD.fault(facts.topic, found, todo)
    else:
        yield _SPREAD.ok(facts.topic, found, "see T-D3")


def versions(facts: TopologyFacts) -> Iterator[Check]:
    """Look for versions that go down inside a partition."""
    inversions = facts.log.inversions
    if not facts.log.records:
        yield _VERSIONS.ok(facts.topic, "no record yet")
    elif inversions is None:
        yield _VERSIONS.ok(facts.topic, "events carry no version", "add one: it is the strongest evidence of order")
    elif not inversions.records:
        yield _VERSIONS.ok(facts.topic, f"every version is at least the one before it{_missing(facts)}")
    else:
        found = (
            f"{counted(inversions.records, 'record')} of {counted(inversions.ids, 'id')} stand behind a newer version"
        )
        found += f", the last one of {_day(inversions.last_at)}"
        todo = (
            "set enable.idempotence=true in producers (or one request in flight), keep outbox relays to one writer for"
        )
        todo += " each id, and never redrive an old event into the main topic"
        recent = _recent(inversions.last_at, facts)
        yield (_VERSIONS.fault if recent else _VERSIONS.warning)(facts.topic, found, todo)


def _missing(facts: TopologyFacts) -> str:
    """Say of how many ids versions are missing, and what that means; nothing where none are."""
    declared = facts.contract.source.dense_versions
    dense = facts.log.dense_versions if declared is None else declared
    if not facts.log.version_gaps:
        return ""
    meaning = "dense" if dense else "not dense, so that means nothing"
    return f"; of {counted(facts.log.version_gaps, 'id')} some are missing, and versions are {meaning}"


def growth(facts: TopologyFacts) -> Iterator[Check]:
    """Check whether the topic grew, and whether what was written before has been consumed."""
    seen, log = facts.log.growth, facts.log
    counts = [each.count for each in seen]
    if log.inference.former is not None:
        counts.insert(0, log.inference.former)
    if len(counts) < 2:
        yield _GROWTH.ok(
            facts.topic, f"{counted(counts[-1] if counts else len(facts.fence.topic.partitions), 'partition')}"
        )
        return
    steps = " to ".join(map(str, counts))
    found = f"grew from {steps} partitions; {counted(log.placement.grown, 'id')} stand in an old and a new one"
    waiting = []
    if len(seen) > 1:
        for link, _, fence in facts.fences():
            if any(_to_read(place, seen[-1].after.get(place.partition, 0)) for place in fence.places):
                waiting.append(link)
    if waiting:
        todo = "let the group read the old partitions to the end before it goes on with the new ones"
        yield _GROWTH.fault(facts.topic, f"{found}; {listed(waiting)} has yet to read what was written before", todo)
    elif log.placement.grown:
        todo = "do not replay this topic from its beginning into a copy without a version guard; next time, make a new"
        todo += " topic with enough partitions and move to it"
        yield _GROWTH.warning(facts.topic, found, todo)
    else:
        yield _GROWTH.ok(facts.topic, found)


def _to_read(place: GroupPosition, end: int) -> bool:
    # A group may stand before the marker of a transaction for ever: it has read all the same.
    goes_on_at = place.committed_before if place.next_record is None else place.next_record
    return place.state is not PositionState.CAUGHT_UP and (goes_on_at or 0) < end


def _difference(types: list[TypeFacts]) -> str:
    for one, other in combinations(types, 2):
        for having, lacking in ((one, other), (other, one)):
            names = sorted(having.always - lacking.ever)
            if names:
                return f"every {having.name} has {listed(names)}, and no {lacking.name} has"
    return ""


def _explained(inference: Inference) -> str:
    if inference.partitioner is None:
        return f"{' or '.join(inference.candidates)}: too few keys to tell them apart"
    if inference.former is not None:
        return f"{inference.partitioner}, over {inference.former} partitions once and {inference.partitions} now"
    share = inference.shares.get(inference.partitioner, 0.0)
    return f"{inference.partitioner} explains {share:.1%} of {counted(inference.seen, 'record')}"


def _most(share: tuple[str, float]) -> float:
    return -share[1]


def _recent(at: datetime | None, facts: TopologyFacts) -> bool:
    # By our clock: one record that claims to be of next year would make all others old.
    return at is None or at > facts.fence.closed_at - RECENT


def _day(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC" if at else "an unknown time"
