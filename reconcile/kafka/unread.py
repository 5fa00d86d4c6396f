"""Whether records lie between two offsets: markers of transactions and compacted records take offsets too."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing

from reconcile.kafka.client import ClusterClient, ClusterRefusedError, ClusterUnreachableError

_PATIENCE = 30.0
_NEVER_JOINED = "reconcile-fence"  # the client wants a name for the group, and never joins or commits


def next_records(
    client: ClusterClient, topic: str, places: Mapping[int, int], committed_only: bool
) -> dict[int, int | None]:
    """Give the offset of the first record at or after each place; None where the partition has no more."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    found: dict[int, int | None] = {}
    if not places:
        return found
    config = {
        **client.config,
        "group.id": _NEVER_JOINED,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed" if committed_only else "read_uncommitted",
        "fetch.message.max.bytes": 65536,
        "queued.max.messages.kbytes": 1024,
        "fetch.wait.max.ms": 50,
    }
    deadline = time.monotonic() + _PATIENCE
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in places.items()])
        while len(found) < len(places):
            message = consumer.poll(0.2)
            if message is None:
                if time.monotonic() > deadline:
                    left = ", ".join(str(partition) for partition in sorted(places.keys() - found.keys()))
                    raise _silent(client, topic, left)
                continue
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise client.failure(KafkaException(error), f"the records of {topic}")
            if partition is not None and partition not in found:
                found[partition] = offset if error is None else None
                consumer.pause([TopicPartition(topic, partition)])
    return found


def _silent(client: ClusterClient, topic: str, partitions: str) -> ClusterUnreachableError | ClusterRefusedError:
    return ClusterUnreachableError(
        f"the cluster {client.name} gave no record of {topic}, partition {partitions}, for {_PATIENCE:.0f} s: try again"
    )
