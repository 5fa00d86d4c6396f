"""The register of damaged messages: places in the main topic that a consumer with `skip_damaged` steps over."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reconcile.consumer.message import RecordPlace
from reconcile.consumer.postgres import LibraryStore
from reconcile.errors import RefusedError
from reconcile.kafka.client import ClusterClient

_LIST = """
select d.topic, d.partition, d."offset", d.because, d.noted_at, l.outcome, s.aggregate_id is not null
from reconcile.damaged d
left join reconcile.ledger l using (consumer_group, topic, partition, "offset")
left join reconcile.stash s using (consumer_group, topic, partition, "offset")
where consumer_group = %s order by d.topic, d.partition, d."offset"
"""
_ADD = """
insert into reconcile.damaged (consumer_group, topic, partition, "offset", because) values (%s, %s, %s, %s, %s)
on conflict (consumer_group, topic, partition, "offset") do update set because = excluded.because
returning xmax = 0
"""
_REMOVE = """
delete from reconcile.damaged where consumer_group = %s and topic = %s and partition = %s and "offset" = %s
"""


@dataclass(frozen=True)
class Damaged:
    """A message that is known to be damaged."""

    place: RecordPlace
    because: str
    noted_at: datetime
    outcome: str | None
    """What the ledger says became of it."""
    stashed: bool


class DamagedMessages:
    """The register of one group."""

    def __init__(self, store: LibraryStore, kafka: Mapping[str, Any], topic: str) -> None:
        self._store = store
        self._kafka = dict(kafka)
        self._topic = topic

    def listed(self) -> list[Damaged]:
        """Query what is registered."""
        with self._store.cursor() as asking:
            asking.execute(_LIST, (self._store.group,))
            return [Damaged(RecordPlace(*row[:3]), *row[3:]) for row in asking.fetchall()]

    def add(self, partition: int, offset: int, because: str) -> bool:
        """Register a message, or change the reason; return whether it is new there.

        Raises RefusedError for a place where the topic has nothing: a slip would skip another message later on.
        """
        place = RecordPlace(self._topic, partition, offset)
        with closing(ClusterClient("the cluster of the consumer", self._kafka)) as cluster:
            partitions = cluster.topic(self._topic).partitions
            if partition not in partitions:
                raise RefusedError(f"{place}: the topic has the partitions {', '.join(map(str, partitions))}")
            begin = cluster.begins(self._topic, [partition])[partition]
            end = cluster.ends(self._topic, [partition])[partition]
        if not begin <= offset < end:
            held = f"the offsets {begin} to {end - 1}" if begin < end else "nothing"
            raise RefusedError(f"{place}: the partition has {held}, so there is no such message to skip")
        with self._store.cursor() as asking:
            asking.execute(_ADD, (self._store.group, *place, because))
            return asking.fetchone() == (True,)

    def remove(self, partition: int, offset: int) -> bool:
        """Take a message out of the register; return whether it was in there."""
        with self._store.cursor() as asking:
            asking.execute(_REMOVE, (self._store.group, self._topic, partition, offset))
            return bool(asking.rowcount == 1)
