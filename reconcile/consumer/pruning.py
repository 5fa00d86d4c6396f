"""Deleting rows of the ledger that nothing can ask for any more: what may be read again stays known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reconcile.config import durations
from reconcile.consumer.errors import ReplayWindowError
from reconcile.consumer.postgres import LibraryStore
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.layout import TopicLayout

_AT_ONCE = 5000
"""How many rows are looked at in one transaction, so that none holds its locks for long."""
_BEFORE = "select clock_timestamp() - %s"
# Of what is stashed or given up all later messages are known, so that a replay is not taken for the newest.
_UNASKED = """
    l.outcome not in ('sent_on', 'dead_lettered')
    and l."offset" < (select r.begins from readable r where r.partition = l.partition)
    and (l.aggregate_id is null or l.aggregate_id <> all(%(given_up)s::text[]))
    and not exists (select from reconcile.blocked b
        where b.consumer_group = l.consumer_group and b.aggregate_id = l.aggregate_id)
"""
_OF_TOPIC = """
    l.consumer_group = %(group)s and l.topic = %(topic)s and l.processed_at < %(before)s
"""
_READABLE = "readable (partition, begins) as (select * from unnest(%(partitions)s::int[], %(begins)s::bigint[]))"
_COUNT = f"with {_READABLE} select count(*) from reconcile.ledger l where {_OF_TOPIC} and {_UNASKED}"  # noqa: S608
_PRUNE = f"""
with {_READABLE}, looked_at as (
    select l.partition, l."offset", l.processed_at from reconcile.ledger l
    where {_OF_TOPIC} and (l.processed_at, l.partition, l."offset") > (%(at)s, %(partition)s, %(offset)s)
    order by l.processed_at, l.partition, l."offset" limit %(at_once)s
), pruned as (
    delete from reconcile.ledger l using looked_at a
    where l.partition = a.partition and l."offset" = a."offset" and {_OF_TOPIC} and {_UNASKED}
    returning l."offset"
)
select processed_at, partition, "offset", (select count(*) from pruned) from looked_at
order by processed_at desc, partition desc, "offset" desc limit 1
"""  # noqa: S608


@dataclass(frozen=True)
class ReplayWindow:
    """What may be read again of a topic, and so has to stay known."""

    topic: str
    longest: timedelta
    """For how long the topic, and retry topics, keep a record."""
    begins: Mapping[int, int]
    """By partition: nothing that stands before this offset is read again."""

    @classmethod
    def of(cls, cluster: ClusterClient, topic: str, groups: Mapping[str, Iterable[str]], group: str) -> ReplayWindow:
        """Query what the topics keep and the groups have yet to read; raise ReplayWindowError if that has no end."""
        topics = sorted({topic, *(each for more in groups.values() for each in more)})
        partitions = cluster.topic(topic).partitions
        layouts = cluster.layouts(topics)
        longest = max(_kept(name, layouts[name]) for name in topics)
        committed, begins = cluster.committed(group, topic, partitions), cluster.begins(topic, partitions)
        return cls(topic, longest, {each: min(begins[each], committed.get(each) or 0) for each in partitions})

    def check(self, keep: timedelta) -> None:
        """Raise ReplayWindowError where less is to be kept than may be read again."""
        if keep < self.longest:
            raise ReplayWindowError(
                f"--keep {durations.text(keep)}: {self.topic} may be read again for {durations.text(self.longest)}, and"
                f" what was applied would be applied twice: keep at least {durations.text(self.longest)}"
            )


@dataclass(frozen=True)
class Pruned:
    """What was deleted of a ledger."""

    rows: int
    before: datetime
    """Rows that are younger were kept."""


def prune(
    store: LibraryStore,
    window: ReplayWindow,
    given_up: Sequence[str],
    keep: timedelta,
    *,
    dry: bool = False,
) -> Pruned:
    """Delete what is older than `keep` and that nothing can ask for, in small transactions; `dry` counts it alone.

    All of the aggregates of which letters are `given_up` stays: a replay asks what was applied since.
    """
    window.check(keep)
    places = {"partitions": list(window.begins), "begins": list(window.begins.values()), "given_up": list(given_up)}
    with store.cursor() as asking:
        asking.execute(_BEFORE, (keep,))
        before: datetime = asking.fetchone()[0]  # type: ignore[index] # a query without a table has one row
        asked = {**places, "group": store.group, "topic": window.topic, "before": before, "at_once": _AT_ONCE}
        if dry:
            asking.execute(_COUNT, asked)
            return Pruned((asking.fetchone() or (0,))[0], before)
        rows, last = 0, {"at": "-infinity", "partition": -1, "offset": -1}
        while True:
            asking.execute(_PRUNE, {**asked, **last})
            if (found := asking.fetchone()) is None:
                return Pruned(rows, before)
            last = {"at": found[0], "partition": found[1], "offset": found[2]}
            rows += found[3]


def _kept(name: str, layout: TopicLayout | None) -> timedelta:
    """Compute for how long a topic keeps a record: until the whole segment in which it is has grown old."""
    if layout is None:
        raise ReplayWindowError(f"{name}: the cluster has no such topic, so nobody knows what may be read again")
    if not layout.deleted or layout.retention is None:
        raise ReplayWindowError(
            f"{name} keeps its records without a limit of time, so that any may be read again: nothing may be pruned."
            " Give it cleanup.policy=delete and a retention.ms, if it may forget"
        )
    return layout.retention + layout.segment
