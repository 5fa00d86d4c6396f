"""The table of dialects: which header holds which part of the origin, and how its bytes are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Headers = Sequence[tuple[str, bytes | bytearray | None]]
"""A record's headers in their order; names repeat."""

Parse = Callable[[bytes], str | int | None]
Field = tuple[tuple[str, Parse], ...]
"""The headers that may hold one part of an origin, the best first."""


@dataclass(frozen=True)
class Reader:
    """One dialect, recognised by `needs` of its `marks`; `prepends`: each hop puts its headers before the others."""

    dialect: str
    fields: Mapping[str, Field]
    marks: frozenset[str]
    needs: int = 1
    prepends: bool = False
    pointer: bool = False

    def recognises(self, present: set[str]) -> bool:
        """Whether a record with these headers speaks the dialect."""
        return len(self.marks & present) >= self.needs

    def names(self, *fields: str) -> set[str]:
        """The headers of these fields, or of all."""
        return {name for field in fields or self.fields for name, _ in self.fields.get(field, ())}

    def value(self, field: str, headers: Headers) -> str | int | None:
        """The field's value; of a header that repeats only the first counts, readable or not."""
        for wanted, parse in self.fields.get(field, ()):
            raw = next((value for name, value in headers if name == wanted), None)
            value = None if raw is None else parse(bytes(raw))
            if value is not None:
                return value
        return None


OWN: Mapping[str, str] = {
    "topic": "reconcile-origin-topic",
    "partition": "reconcile-origin-partition",
    "offset": "reconcile-origin-offset",
    "at": "reconcile-origin-timestamp",
    "group": "reconcile-origin-group",
    "attempt": "reconcile-attempt",
    "error_class": "reconcile-error-class",
    "error_message": "reconcile-error-message",
    "stashed_behind": "reconcile-stashed-behind",
}
"""Our own dialect: all values are text."""


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode() or None
    except UnicodeDecodeError:
        return None


def _decimal(below: int) -> Parse:
    def parse(raw: bytes) -> int | None:
        value = int(raw) if re.fullmatch(rb"[0-9]{1,19}", raw) else below
        return value if value < below else None

    return parse


def _big_endian(*widths: int) -> Parse:
    """Two's complement of one of these widths; Kafka knows no negative partition, offset, time or attempt."""

    def parse(raw: bytes) -> int | None:
        value = int.from_bytes(raw, "big", signed=True) if len(raw) in widths else -1
        return value if value >= 0 else None

    return parse


_INT32 = _decimal(1 << 31)
_INT64 = _decimal(1 << 63)
_MINIMAL = _big_endian(*range(1, 9))  # what BigInteger.toByteArray gives
_AS_TEXT: Mapping[str, Parse] = {"partition": _INT32, "offset": _INT64, "at": _INT64, "attempt": _INT32}


def _all_text(**headers: str) -> Mapping[str, Field]:
    return {field: ((header, _AS_TEXT.get(field, _text)),) for field, header in headers.items()}


def _texts(*headers: str) -> Field:
    return tuple((header, _text) for header in headers)


def _spring(prefix: str, **more: Field) -> Mapping[str, Field]:
    """The cause is named before the exception, which is most often Spring's wrapper around it."""
    original, exception = f"{prefix}original-", f"{prefix}exception-"
    return {
        "topic": _texts(f"{original}topic"),
        "partition": ((f"{original}partition", _big_endian(4)),),
        "offset": ((f"{original}offset", _big_endian(8)),),
        "at": ((f"{original}timestamp", _big_endian(8)), *more.pop("at", ())),
        "group": _texts(f"{original}consumer-group"),
        "error_class": _texts(f"{exception}cause-fqcn", f"{exception}fqcn", f"{prefix}key-exception-fqcn"),
        "error_message": _texts(f"{exception}message", f"{prefix}key-exception-message"),
        **more,
    }


def _karafka(prefix: str) -> Reader:
    return Reader(
        "karafka",
        _all_text(
            topic=f"{prefix}topic",
            partition=f"{prefix}partition",
            offset=f"{prefix}offset",
            group=f"{prefix}consumer_group",
            attempt=f"{prefix}attempts",
        ),
        marks=frozenset({f"{prefix}topic", f"{prefix}consumer_group"}),
        needs=2,
    )


def _marks(prefix: str, *names: str) -> frozenset[str]:
    return frozenset(prefix + name for name in names)


FAMILIES: tuple[tuple[Reader, ...], ...] = (
    (Reader("reconcile", _all_text(**OWN), marks=frozenset(OWN.values())),),
    (
        Reader(
            "spring-dlt",
            _spring("kafka_dlt-"),
            marks=_marks("kafka_dlt-", "original-topic", "original-partition", "original-offset", "exception-fqcn"),
        ),
        Reader(
            "spring-retry",
            _spring(
                "kafka_",
                at=(("retry_topic-original-timestamp", _MINIMAL),),
                attempt=(("retry_topic-attempts", _big_endian(1, 4)),),
            ),
            marks=_marks("kafka_original-", "topic", "partition", "offset")
            | _marks("retry_topic-", "attempts", "original-timestamp", "backoff-timestamp"),
        ),
    ),
    (
        Reader(
            "kafka-connect",
            _all_text(
                topic="__connect.errors.topic",
                partition="__connect.errors.partition",
                offset="__connect.errors.offset",
                error_class="__connect.errors.exception.class.name",
                error_message="__connect.errors.exception.message",
            ),
            marks=_marks("__connect.errors.", "topic", "partition", "offset", "stage", "connector.name"),
        ),
    ),
    (
        Reader(
            "kafka-streams",
            _all_text(
                topic="__streams.errors.topic",
                partition="__streams.errors.partition",
                offset="__streams.errors.offset",
                error_class="__streams.errors.exception",
                error_message="__streams.errors.message",
            ),
            marks=_marks("__streams.errors.", "topic", "partition", "offset", "exception"),
        ),
    ),
    (
        Reader(
            "share-group",
            _all_text(
                topic="__dlq.errors.topic",
                partition="__dlq.errors.partition",
                offset="__dlq.errors.offset",
                group="__dlq.errors.group",
                attempt="__dlq.errors.delivery.count",
                error_message="__dlq.errors.message",
            ),
            marks=_marks("__dlq.errors.", "topic", "partition", "offset", "group"),
            pointer=True,
        ),
    ),
    (
        Reader(
            "smallrye-dlq",
            _all_text(
                topic="dead-letter-topic",
                partition="dead-letter-partition",
                offset="dead-letter-offset",
                error_class="dead-letter-exception-class-name",
                error_message="dead-letter-reason",
            ),
            marks=_marks("dead-letter-", "topic", "partition", "offset", "exception-class-name"),
            prepends=True,
        ),
        Reader(
            "smallrye-retry",
            _all_text(
                topic="delayed-retry-topic",
                partition="delayed-retry-partition",
                offset="delayed-retry-offset",
                at="delayed-retry-original-timestamp",
                attempt="delayed-retry-count",
                error_class="delayed-retry-exception-class-name",
                error_message="delayed-retry-reason",
            ),
            marks=_marks("delayed-retry-", "topic", "partition", "offset", "count"),
            prepends=True,
        ),
    ),
    (
        Reader(
            "greyhound",
            _all_text(topic="GH_OriginalTopic", attempt="GH_RetryAttempt"),
            marks=frozenset({"GH_OriginalTopic", "GH_RetryAttempt"}),
        ),
    ),
    (_karafka("source_"), _karafka("original_")),  # from 2.5 on, and before
    (
        Reader(
            "arroyo",
            _all_text(partition="original_partition", offset="original_offset"),
            marks=frozenset({"original_partition", "original_offset"}),
            needs=2,
        ),
    ),
)
"""The dialects, those of one framework together; the first family that a record shows is the one read."""
