"""Where a record in a retry, dead-letter or stash topic came from, and why, as its headers say.

Each framework has a dialect of its own (the table is `FAMILIES`). A framework may also have passed the record on more
than once: then the topic, partition, offset, time and group are those of the first hop, which is the true origin, and
the error and the attempt are those of the latest hop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

AUTO = "auto"
Headers = Sequence[tuple[str, bytes | bytearray | None]]
"""A record's headers in their order; names repeat."""

Parse = Callable[[bytes], str | int | None]
Field = tuple[tuple[str, Parse], ...]
"""The headers that may hold one part of an origin, the best first."""


@dataclass(frozen=True)
class Dialect:
    """One dialect, recognised by `needs` of its `marks`; `prepends`: each hop puts its headers before the others."""

    name: str
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


@dataclass(frozen=True)
class Origin:
    """What the headers of a parked record say; None for what they do not say, or not readably.

    `attempt` counts as the framework counts. `pointer` tells that a null value of this record only points to the
    origin: it deletes nothing. `stashed_behind` names the earlier record of the same id that this one waits for.
    """

    dialect: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    group: str | None = None
    error_class: str | None = None
    error_message: str | None = None
    attempt: int | None = None
    at: datetime | None = None
    pointer: bool = False
    stashed_behind: str | None = None


def read(headers: Headers, dialect: str = AUTO) -> Origin | None:
    """The record's origin in the named dialect, or in the first one that its headers show; None where none does.

    The dialects of one framework are read together, whichever is named: a record passes from the one to the other.
    """
    if dialect not in (AUTO, *DIALECTS):
        raise ValueError(f"no dialect {dialect!r}; there are {AUTO}, {', '.join(DIALECTS)}")
    present = {name for name, _ in headers}
    for family in FAMILIES:
        if dialect == AUTO or any(each.name == dialect for each in family):
            spoken = [each for each in family if each.recognises(present)]
            if spoken:
                return _origin(spoken, headers)
    return None


def write(origin: Origin) -> list[tuple[str, bytes]]:
    """The headers that say the origin in the `reconcile` dialect, whatever dialect it was read from."""
    values = {name: getattr(origin, name) for name in OWN} | {"at": _milliseconds(origin.at)}
    written = {header: values[name] for name, header in OWN.items() if values[name] not in (None, "")}
    return [(header, str(value).encode(errors="replace")) for header, value in written.items()]


_PLACE = ("topic", "partition", "offset", "at")
_CAUSE = ("error_class", "error_message", "stashed_behind")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _origin(spoken: Sequence[Dialect], headers: Headers) -> Origin:
    hops = list(reversed(headers)) if spoken[0].prepends else list(headers)
    by_age = sorted(spoken, key=lambda each: _first(hops, each.names(*_PLACE[:3])))
    latest_first = sorted(spoken, key=lambda each: _first(hops[::-1], each.names()))
    oldest, latest = by_age[0], latest_first[0]
    parts: dict[str, Any] = {name: oldest.value(name, hops) for name in _PLACE}
    parts["group"] = _any(by_age, "group", hops)
    parts |= {name: _any(latest_first, name, hops[::-1]) for name in _CAUSE}
    # Counters are appended even where hops are prepended.
    parts["attempt"] = _any(latest_first, "attempt", headers[::-1])
    parts["at"] = _instant(parts["at"])
    return Origin(dialect=latest.name, pointer=latest.pointer, **parts)


def _first(headers: Headers, names: set[str]) -> int:
    return next((index for index, (name, _) in enumerate(headers) if name in names), len(headers))


def _any(spoken: Sequence[Dialect], field: str, headers: Headers) -> str | int | None:
    return next((value for each in spoken if (value := each.value(field, headers)) is not None), None)


def _instant(milliseconds: int | None) -> datetime | None:
    """Kafka's -1 is no time; what lies past the year 9999 is no time either."""
    try:
        return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def _milliseconds(at: datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // timedelta(milliseconds=1)


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
ORIGIN_KEY = "reconcile-origin-key"
"""The key that a record had in the main topic; dead letters of the consumer library have one of their own."""
SHOWS = "reconcile-shows"
"""The mark of a record that only shows what the consumer library has stashed in its table."""


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


def _karafka(prefix: str) -> Dialect:
    return Dialect(
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


FAMILIES: tuple[tuple[Dialect, ...], ...] = (
    (Dialect("reconcile", _all_text(**OWN), marks=frozenset(OWN.values())),),
    (
        Dialect(
            "spring-dlt",
            _spring("kafka_dlt-"),
            marks=_marks("kafka_dlt-", "original-topic", "original-partition", "original-offset", "exception-fqcn"),
        ),
        Dialect(
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
        Dialect(
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
        Dialect(
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
        Dialect(
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
        Dialect(
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
        Dialect(
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
        Dialect(
            "greyhound",
            _all_text(topic="GH_OriginalTopic", attempt="GH_RetryAttempt"),
            marks=frozenset({"GH_OriginalTopic", "GH_RetryAttempt"}),
        ),
    ),
    (_karafka("source_"), _karafka("original_")),  # from 2.5 on, and before
    (
        Dialect(
            "arroyo",
            _all_text(partition="original_partition", offset="original_offset"),
            marks=frozenset({"original_partition", "original_offset"}),
            needs=2,
        ),
    ),
)
"""The dialects, those of one framework together; the first family that a record shows is the one read."""

DIALECTS: tuple[str, ...] = tuple(dict.fromkeys(each.name for family in FAMILIES for each in family))
