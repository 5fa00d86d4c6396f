"""Transactions that are still open in a topic: no reader of committed records gets past the first of a partition.

The broker ends a transaction that outlasts its producer's time-out. One that is older than any time-out hangs: its
coordinator lost it, and it stays until a person ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from reconcile.kafka.client import ClusterClient
from reconcile.kafka.reader import UNCOMMITTED

LONGEST = timedelta(minutes=15)
"""How long a transaction may last where we may not read it: Kafka's default for transaction.max.timeout.ms."""
GRACE = timedelta(minutes=5)
"""Ending one takes its time, and clocks differ: Kafka's metric PartitionsWithLateTransactionsCount adds as much."""


@dataclass(frozen=True)
class OpenTransaction:
    """A partition whose last records are not decided yet, from its first open transaction on."""

    partition: int
    begin: int
    """The last stable offset: readers of committed records do not get past it."""
    end: int
    """The end of the partition, open transactions included."""
    since: datetime | None
    """The time of the first record behind the last stable offset; None if none could be read."""
    hanging: bool
    """Whether it is older than the brokers let any transaction become."""

    def __str__(self) -> str:
        since = "" if self.since is None else f", whose first record is of {self.since:%Y-%m-%d %H:%M:%S} UTC"
        return f"in partition {self.partition} at offset {self.begin}{since}"


def open_transactions(
    cluster: ClusterClient, topic: str, stable: Mapping[int, int], ends: Mapping[int, int], at: datetime
) -> tuple[OpenTransaction, ...]:
    """Look at each partition whose last stable offset is before its end; the ends have to be the older readings."""
    behind = {partition: offset for partition, offset in stable.items() if offset < ends[partition]}
    if not behind:
        return ()
    longest = (cluster.longest_transaction() or LONGEST) + GRACE
    found = []
    for partition, record in sorted(cluster.first_records(topic, behind, UNCOMMITTED).items()):
        since = None if record is None else _time(record.timestamp()[1])
        hanging = since is not None and at - since > longest
        found.append(OpenTransaction(partition, behind[partition], ends[partition], since, hanging))
    return tuple(found)


def query_open_transactions(
    cluster: ClusterClient, topic: str, partitions: Iterable[int]
) -> tuple[OpenTransaction, ...]:
    """Query the open transactions of a topic as they are now."""
    wanted = tuple(partitions)
    # In this order: a record that is written between the two readings is behind no open transaction.
    ends = cluster.high_watermarks(topic, wanted)
    return open_transactions(cluster, topic, cluster.ends(topic, wanted), ends, datetime.now(UTC))


def hanging(transactions: Iterable[OpenTransaction]) -> tuple[OpenTransaction, ...]:
    """Choose those that nobody will end but a person."""
    return tuple(each for each in transactions if each.hanging)


def how_to_end(topic: str, one: OpenTransaction) -> str:
    """Say how to find the producer of a hanging transaction, and how to end it: our client can do neither."""
    where = f"--topic {topic} --partition {one.partition}"
    return (
        f"find its producer with `kafka-transactions.sh --bootstrap-server ... describe-producers {where}`, and its"
        " transactional id with `... list`; if nothing works on it any more, end it with"
        f" `... abort {where} --start-offset {one.begin}`"
    )


def _time(milliseconds: int) -> datetime | None:
    if milliseconds < 0:
        return None  # Kafka's word for a record without a time
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
