"""Where a group goes on reading a topic, asked of its coordinator, also while that moves or loads.

Not asked by the admin client: librdkafka 2.16 ends the process where a broker answers such a client that it is not the
group's coordinator, as a broker does that has just started or is about to stop.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

_BEFORE_RETRY = 0.1
_SLICE = 3.0


def committed(
    options: Mapping[str, Any], group: str, topic: str, partitions: Iterable[int], patience: float
) -> list[TopicPartition]:
    """Query a group's offsets, with librdkafka's options; raise KafkaException for what does not pass in time."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    passing = (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._WAIT_COORD,
        KafkaError._TIMED_OUT,
    )
    forbidden = KafkaError.GROUP_AUTHORIZATION_FAILED
    places = [TopicPartition(topic, partition) for partition in partitions]
    # Offsets that a transaction has yet to commit count with those of before.
    own = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
    deadline = time.monotonic() + patience
    with closing(Consumer({**options, **own})) as consumer:
        while True:
            try:
                left = max(deadline - time.monotonic(), _BEFORE_RETRY)
                answer: list[TopicPartition] = consumer.committed(places, min(_SLICE, left))
            except KafkaException as error:
                # Where we may not see the group, the answer never comes, and the reason another way.
                heard = consumer.poll(0)
                if heard is not None and (fault := heard.error()) is not None and fault.code() == forbidden:
                    raise KafkaException(fault) from None
                if error.args[0].code() not in passing or time.monotonic() > deadline:
                    raise
                time.sleep(_BEFORE_RETRY)
            else:
                return answer
