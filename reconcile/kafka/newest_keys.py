"""The keys of a topic's newest records: whether compaction would merge what has to stay apart."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from reconcile.kafka.client import ClusterClient, ClusterUnreachableError

_PATIENCE = 30.0
_NEVER_JOINED = "reconcile-doctor"  # the client wants a name for the group, and never joins or commits
_EACH = 200


def newest_keys(
    client: ClusterClient, topic: str, begins: Mapping[int, int], ends: Mapping[int, int]
) -> tuple[int, int]:
    """Count the newest records of each partition, a few hundred at most, and how many keys they have."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    starts = {p: max(begins[p], end - _EACH) for p, end in ends.items() if end > begins[p]}
    config: dict[str, Any] = {
        **client.config,
        "group.id": _NEVER_JOINED,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
    }
    found: list[bytes | None] = []
    deadline = time.monotonic() + _PATIENCE
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, partition, start) for partition, start in starts.items()])
        open_partitions = set(starts)
        while open_partitions:
            message = consumer.poll(0.2)
            if message is None:
                if time.monotonic() > deadline:
                    raise ClusterUnreachableError(f"the cluster {client.name} gave no record of {topic}: try again")
                continue
            error = message.error()
            if error is None:
                found.append(message.key())
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition() or 0)
            else:
                raise client.failure(KafkaException(error), f"the records of {topic}")
    return len(found), len(set(found))
