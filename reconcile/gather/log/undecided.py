"""Records behind open transactions: nobody knows yet whether they count, and no log history holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconcile.contract.model import Topic
from reconcile.gather.log.value_reader import ValueReader, key_reader
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.reader import UNCOMMITTED, place_of, read
from reconcile.kafka.transactions import OpenTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST = 100_000
"""So many offsets are looked at in all; of a partition that has more to look at, none are."""
SCHEMA = "id string, partition int, offset bigint, at bigint"
_BATCH = 1000


@dataclass(frozen=True)
class UndecidedRecords:
    """What is behind the open transactions of a topic."""

    first: Mapping[str, tuple[int, int, int]]
    """Of each id the first record: partition, offset, time in microseconds."""
    unread: frozenset[int]
    """The partitions where too much is behind one."""

    def frame(self, spark: SparkSession) -> DataFrame | None:
        """Build a table of the ids and their records; None if there are none."""
        return spark.createDataFrame([(each, *at) for each, at in self.first.items()], SCHEMA) if self.first else None


def undecided_records(
    cluster: ClusterClient, topic: Topic, open_now: Iterable[OpenTransaction], values: ValueReader | None = None
) -> UndecidedRecords:
    """Read the ids of the records behind open transactions, the shortest stretches first, MOST offsets in all."""
    budget, unread = MOST, set()
    stretches: dict[int, tuple[int, int | None]] = {}
    for each in sorted(open_now, key=lambda one: one.end - one.begin):
        if each.end - each.begin > budget:
            unread.add(each.partition)
            continue
        budget -= each.end - each.begin
        stretches[each.partition] = each.begin, each.end
    first: dict[str, tuple[int, int, int]] = {}
    id_of = key_reader(topic, values)
    if stretches:
        with cluster.reading_records(topic.name):
            for batch in read(cluster.config, topic.name, stretches, UNCOMMITTED, _BATCH):
                for record in batch:
                    if (id_text := id_of(record.key())) is not None:
                        first.setdefault(id_text, (*place_of(record), record.timestamp()[1] * 1000))
    return UndecidedRecords(first, frozenset(unread))
