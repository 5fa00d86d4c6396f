"""How the services park a record that they could not process, each with the headers of the framework that it uses."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Message

from reconcile.lab.services.copies import Record

Headers = list[tuple[str, str | bytes | None]]
Dialect = Callable[[Record, str, Exception], Headers]


def spring_retry(record: Record, group: str, error: Exception) -> Headers:
    """Spring Kafka's headers of a retry topic."""
    topic, partition, offset = record.origin
    attempts = int.from_bytes(record.headers.get("retry_topic-attempts", b"\0\0\0\1"), "big") + 1
    now = int(time.time() * 1000)
    return [
        ("kafka_original-topic", topic.encode()),
        ("kafka_original-partition", partition.to_bytes(4, "big", signed=True)),
        ("kafka_original-offset", offset.to_bytes(8, "big", signed=True)),
        ("kafka_original-timestamp", now.to_bytes(8, "big", signed=True)),
        ("kafka_original-timestamp-type", b"CreateTime"),
        ("kafka_exception-fqcn", f"{group}.{type(error).__name__}".encode()),
        ("kafka_exception-message", str(error).encode()),
        ("retry_topic-attempts", attempts.to_bytes(4, "big", signed=True)),
        ("retry_topic-original-timestamp", now.to_bytes(6, "big", signed=True)),
        ("retry_topic-backoff-timestamp", (now + 1000).to_bytes(6, "big", signed=True)),
    ]


def spring_dead_letter(record: Record, group: str, error: Exception) -> Headers:
    """Spring Kafka's headers of a dead-letter topic."""
    topic, partition, offset = record.origin
    return [
        ("kafka_dlt-original-topic", topic.encode()),
        ("kafka_dlt-original-partition", partition.to_bytes(4, "big", signed=True)),
        ("kafka_dlt-original-offset", offset.to_bytes(8, "big", signed=True)),
        ("kafka_dlt-original-timestamp", int(time.time() * 1000).to_bytes(8, "big", signed=True)),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-original-consumer-group", group.encode()),
        ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
        ("kafka_dlt-exception-cause-fqcn", f"{group}.{type(error).__name__}".encode()),
        ("kafka_dlt-exception-message", str(error).encode()),
    ]


def smallrye_retry(record: Record, _group: str, _error: Exception) -> Headers:
    """SmallRye's headers of a delayed retry topic."""
    topic, partition, offset = record.origin
    count = int(record.headers.get("delayed-retry-count", b"0")) + 1
    return [
        ("delayed-retry-count", str(count).encode()),
        ("delayed-retry-original-timestamp", str(int(time.time() * 1000)).encode()),
        ("delayed-retry-topic", topic.encode()),
        ("delayed-retry-partition", str(partition).encode()),
        ("delayed-retry-offset", str(offset).encode()),
    ]


def smallrye_dead_letter(record: Record, group: str, error: Exception) -> Headers:
    """SmallRye's headers of a dead-letter queue."""
    topic, partition, offset = record.origin
    return [
        ("dead-letter-exception-class-name", f"{group}.{type(error).__name__}".encode()),
        ("dead-letter-reason", str(error).encode()),
        ("dead-letter-topic", topic.encode()),
        ("dead-letter-partition", str(partition).encode()),
        ("dead-letter-offset", str(offset).encode()),
    ]


def stash(record: Record, group: str, error: Exception) -> Headers:
    """The headers of `reconcile`'s own stash."""
    topic, partition, offset = record.origin
    return [
        ("reconcile-origin-topic", topic.encode()),
        ("reconcile-origin-partition", str(partition).encode()),
        ("reconcile-origin-offset", str(offset).encode()),
        ("reconcile-origin-group", group.encode()),
        ("reconcile-error-class", type(error).__name__.encode()),
        ("reconcile-error-message", str(error).encode()),
    ]


def received(message: Message) -> Record:
    """Build a record from a polled message, its origin read from the headers of the retry topics above."""
    pairs = message.headers() or []
    assert isinstance(pairs, list)
    headers = {name: value for name, value in pairs if isinstance(value, bytes)}
    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
    origin = (topic, partition, offset)
    if "kafka_original-topic" in headers:
        origin = (
            headers["kafka_original-topic"].decode(),
            int.from_bytes(headers["kafka_original-partition"], "big"),
            int.from_bytes(headers["kafka_original-offset"], "big"),
        )
    elif "delayed-retry-topic" in headers:
        origin = (
            headers["delayed-retry-topic"].decode(),
            int(headers["delayed-retry-partition"]),
            int(headers["delayed-retry-offset"]),
        )
    key, value = message.key(), message.value()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    return Record(topic, partition, offset, key, value, headers, origin)


def original_headers(record: Record) -> Headers:
    """Choose the headers that the record had in its own topic; parking adds to them."""
    return [
        (name, record.headers[name]) for name in ("event-id", "event-type", "correlation-id") if name in record.headers
    ]
