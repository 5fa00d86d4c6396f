"""What a consumer has put aside, where it is little: what `parked.parked` says of the same records, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from reconcile.contract.model import Consumer, Contract, Topic
from reconcile.domain import dialect
from reconcile.domain.case import ParkedIn
from reconcile.domain.event import spelled
from reconcile.gather.evidence.parked import CLOCKS_APART, FailureLog, failure_topics
from reconcile.gather.log.plain_log import KeptLog, LogRecord, NeedsSparkError, Place, PlainLog
from reconcile.gather.log.records import Derivation
from reconcile.gather.log.store import HistoryStore
from reconcile.gather.log.value_reader import ValueReader, key_reader
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.errors import TopicMissingError

_APART = int(CLOCKS_APART.total_seconds() * 1_000_000)
_Origin = tuple[str | None, int | None, int | None]
"""A topic, None for the main one, a partition and an offset."""


class ParkedRecord(NamedTuple):
    """A record that was put aside, in the columns of `parked.SCHEMA`."""

    kind: ParkedIn
    topic: str
    partition: int
    offset: int
    at: int
    id: str | None
    origin_partition: int | None
    origin_offset: int | None
    event_id: str | None
    version: str | None
    correlation_id: str | None
    resolved: str | None
    error: str | None


@dataclass(frozen=True)
class FailureRecords:
    """What one failure topic holds, and how far the group that reads it has come."""

    kind: ParkedIn
    topic: str
    group: str
    committed: Mapping[int, int | None]
    records: Sequence[LogRecord]


_Followed = tuple[ParkedRecord, _Origin]


def read(
    contract: Contract, consumer: Consumer, cluster: ClusterClient, store: HistoryStore, values: ValueReader | None
) -> list[FailureRecords]:
    """Read the failure topics of a consumer up to their ends; raise NeedsSparkError where that is too much."""
    found = []
    for kind, topic in failure_topics(consumer):
        like = contract.topic.model_copy(update={"name": topic.topic})
        derivation = Derivation.of(like, values=values, all_headers=True)
        group = topic.group or consumer.group
        try:
            # In this order: what the group has committed past is in what is read.
            committed = cluster.committed(group, topic.topic, cluster.topic(topic.topic).partitions)
            log = PlainLog.of(cluster, like, store, derivation)
        except TopicMissingError:
            continue  # many frameworks create it with the first failure
        records = [each for each in log.all(cluster) if each.offset < log.ends[each.partition]]
        found.append(FailureRecords(kind, topic.topic, group, committed, records))
    return found


def of_logs(logs: Iterable[FailureLog]) -> list[FailureRecords]:
    """Read the histories of failure topics, which lie in local files."""
    found = []
    for log in logs:
        history = log.history
        kept = KeptLog(log.topic.topic, history.derivation, history.home, history.index)
        records = [each for each in kept.all() if each.offset < log.ends.get(each.partition, 0)]
        found.append(FailureRecords(log.kind, log.topic.topic, log.group, log.committed, records))
    return found


def parked(
    topics: Sequence[FailureRecords],
    consumer: Consumer,
    main: Topic,
    values: ValueReader | None,
    events_at: Callable[[Collection[Place]], Iterable[LogRecord]],
    *,
    mirrored: bool = False,
) -> list[ParkedRecord]:
    """Build the parked records of a consumer; `events_at` reads those of the topic `main` that stand at some places.

    With `mirrored` a table has the stash, and what the consumer library writes to the stash's topic only shows it.
    """
    held = [each for each in topics if each.records]
    if len({each.topic for each in held}) < len(held):
        raise NeedsSparkError  # a topic in two roles
    read = [each for topic in held for each in _of_topic(topic, consumer, main, values, mirrored)]
    followed = list(_origins_followed(read, main.name, hops=len(held)))
    places = {
        (partition, offset)
        for _, (topic, partition, offset) in followed
        if topic in (None, main.name) and partition is not None and offset is not None
    }
    events = {each.place: each for each in events_at(places)} if places else {}
    return [_identified(record, origin, events, main.name) for record, origin in followed]


def _of_topic(
    topic: FailureRecords, consumer: Consumer, main: Topic, values: ValueReader | None, mirrored: bool
) -> Iterator[_Followed]:
    """Build the records of one topic, with where each came from, and whether it is done with."""
    id_of = key_reader(main, values)
    groups = {consumer.group, *(each.group or consumer.group for _, each in failure_topics(consumer))}
    ours = []
    for each in topic.records:
        origin = dialect.read(each.headers, consumer.failure.dialect)
        if origin is not None and origin.group is not None and origin.group not in groups:
            continue
        if mirrored and any(name == dialect.SHOWS for name, _ in each.headers):
            continue
        # A null value without an origin says that what was parked under its key is done with.
        ours.append((each, origin, each.tombstone and origin is None))
    settled: dict[tuple[int, bytes], int] = {}
    for each, _, settles in ours:
        if settles and each.key is not None:
            place = each.partition, each.key
            settled[place] = max(each.offset, settled.get(place, each.offset))
    for each, origin, settles in ours:
        if settles:
            continue
        resolved, committed = None, topic.committed.get(each.partition)
        if committed is not None and each.offset < committed:
            resolved = f"{topic.group} has committed past it"
        elif each.key is not None and each.offset < settled.get((each.partition, each.key), 0):
            resolved = "a tombstone followed it"
        keys = [value for name, value in each.headers if name == dialect.ORIGIN_KEY]
        own_id = f"{topic.topic}-{each.partition}@{each.offset}"
        record = ParkedRecord(
            kind=topic.kind,
            topic=topic.topic,
            partition=each.partition,
            offset=each.offset,
            at=each.timestamp,
            id=id_of(keys[-1]) if keys else each.id,
            origin_partition=None if origin is None else origin.partition,
            origin_offset=None if origin is None else origin.offset,
            event_id=None if each.event_id == own_id else each.event_id,
            version=each.version,
            correlation_id=each.correlation_id,
            resolved=resolved,
            error=None if origin is None else origin.error_class,
        )
        yield record, (None if origin is None else origin.topic, record.origin_partition, record.origin_offset)


def _origins_followed(records: Sequence[_Followed], main: str, hops: int) -> list[_Followed]:
    """Where a dialect names the topic of the last hop, take the origin of what stood there, and so on."""
    before: dict[_Origin, _Origin] = {
        (record.topic, record.partition, record.offset): origin for record, origin in records if origin[2] is not None
    }
    followed = list(records)
    for _ in range(hops):
        followed = [
            (record, before.get((main if origin[0] is None else origin[0], *origin[1:]), origin))
            for record, origin in followed
        ]
    return followed


def _identified(record: ParkedRecord, origin: _Origin, events: Mapping[Place, LogRecord], main: str) -> ParkedRecord:
    """Tie a record to its aggregate and its event: by where it stood first, else by its key and headers."""
    topic, partition, offset = origin
    if (main if topic is None else topic) != main:
        return record._replace(origin_partition=None, origin_offset=None)
    event = None if partition is None or offset is None else events.get((partition, offset))
    if event is None:
        return record._replace(origin_partition=partition, origin_offset=offset)
    # A place can be another event's by now, if the topic was made anew: no event is parked before it is written.
    same = record.event_id is not None and spelled(record.event_id) == spelled(event.event_id)
    if event.timestamp > record.at + _APART and not same:
        return record._replace(origin_partition=None, origin_offset=None)
    return record._replace(
        origin_partition=partition,
        origin_offset=offset,
        id=record.id if event.id is None else event.id,
        event_id=event.event_id if record.event_id is None else record.event_id,
        version=event.version if record.version is None else record.version,
    )
