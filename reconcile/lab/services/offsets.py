"""Where a topic begins and ends, and how far a group has come in it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import cache

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from reconcile.kafka import group_offsets
from reconcile.lab import process
from reconcile.lab.services.broker import client_options

_PATIENCE = 30


@cache
def admin_client(bootstrap: str) -> AdminClient:
    """Build a client for a broker, one for the whole process."""
    # Kept while the broker lives: librdkafka crashes now and then where a client ends while its last callback runs.
    return AdminClient({**client_options(bootstrap), "reconnect.backoff.max.ms": 200})


def passes(error: KafkaException) -> bool:
    """Check whether a broker that has just started refuses what it will take in a moment."""
    return error.args[0].code() in (
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    )


def partitions(admin: AdminClient, topic: str) -> list[int]:
    """Query a topic's partitions as they are now."""
    return sorted(admin.list_topics(topic, timeout=_PATIENCE).topics[topic].partitions)


def led(admin: AdminClient, topic: str, count: int) -> bool:
    """Check whether a topic has so many partitions, and all of them answer: a new one takes a moment."""
    try:
        # The client keeps what it heard of a topic that was not there yet, until somebody queries the topic.
        return len(partitions(admin, topic)) == count and len(ends(admin, topic)) == count
    except (KafkaException, KeyError, TimeoutError):
        return False


def ends(admin: AdminClient, topic: str) -> dict[int, int]:
    """Query the offset after the last record of each partition, open transactions included."""
    return _offsets(admin, topic, OffsetSpec.latest())


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """Query where a group would go on, in the partitions in which it committed."""
    known = partitions(admin_client(bootstrap), topic)
    places = group_offsets.committed(client_options(bootstrap), group, topic, known, 2 * _PATIENCE)
    return {place.partition: place.offset for place in places if place.offset >= 0}


def lag(bootstrap: str, group: str, topic: str) -> dict[int, tuple[int, int]]:
    """Query, for each partition where a group lags, where the group would go on and where the partition ends."""
    admin = admin_client(bootstrap)
    places = committed(bootstrap, group, topic)
    begin, end = _offsets(admin, topic, OffsetSpec.earliest()), ends(admin, topic)
    starts = {number: max(places.get(number, -1), begin[number]) for number in end}
    return {number: (start, end[number]) for number, start in starts.items() if start < end[number]}


def commit(bootstrap: str, group: str, topic: str, places: Mapping[int, int]) -> None:
    """Commit offsets for a group without members."""
    wanted = [TopicPartition(topic, *place) for place in places.items()]

    def taken() -> bool:
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            if not passes(error):
                raise
            return False
        return True

    # An admin client's request that comes so early is answered well, and without effect.
    with closing(Consumer({**client_options(bootstrap), "group.id": group})) as consumer:
        process.wait_until(taken, f"the group {group} could not commit", 2 * _PATIENCE)


def _offsets(admin: AdminClient, topic: str, spec: OffsetSpec) -> dict[int, int]:
    answers = admin.list_offsets({TopicPartition(topic, number): spec for number in partitions(admin, topic)})
    return {place.partition: answer.result(_PATIENCE).offset for place, answer in answers.items()}
