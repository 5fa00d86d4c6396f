"""How a record becomes a message: where its id, its version and its event's id stand, as the contract says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from reconcile.config.yamlfile import quoted
from reconcile.consumer.message import Headers, Message, RecordPlace
from reconcile.contract.terms import TOMBSTONE
from reconcile.domain import deletion, dialect, event, key, mapping
from reconcile.errors import RefusedError
from reconcile.kafka.reader import place_of

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage

    from reconcile.contract.model import Topic

Decode = Callable[[bytes], Any]
"""Reads a value into what JSON would give; raises ValueError for one that cannot be read."""

_HEADER = "header:"
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)


@dataclass(frozen=True)
class Reading:
    """Where the parts of a message stand in a record."""

    topic: str
    key_type: str = "string"
    version: str | None = None
    event_id: str | None = None
    type: str | None = None
    delete: str | tuple[str, ...] = TOMBSTONE
    debezium: bool = False
    decode: Decode | None = json.loads

    @classmethod
    def of(cls, topic: Topic, decode: Decode | None = None) -> Reading:
        """Build what a contract says of its topic; raise RefusedError for what cannot be read without help."""
        reading = cls(
            topic.name,
            topic.key.type,
            topic.version,
            topic.event_id,
            topic.type,
            topic.delete,
            topic.format == "debezium-json",
            decode or (None if topic.format in ("avro", "json-schema", "protobuf") else json.loads),
        )
        if topic.key.type == "schema":
            raise RefusedError(
                "topic.key.type: keys by their schema cannot be read here: write string, json or another"
            )
        for test in topic.delete_tests:
            if deletion.parsed(test) is None:
                raise RefusedError(f"topic.delete: {quoted(test)} cannot be read here: write {deletion.HOW_TO_WRITE}")
        paths = [each for each in (reading.version, reading.event_id, reading.type) if each and mapping.is_path(each)]
        if reading.decode is None and (paths or reading._tests):
            raise RefusedError(f"values in {topic.format} are read with your own decoder: give `decode=`")
        return reading

    @cached_property
    def _needs_body(self) -> bool:
        places = (self.version, self.event_id, self.type)
        return self.debezium or bool(self._tests) or any(each and mapping.is_path(each) for each in places)

    @cached_property
    def _tests(self) -> tuple[deletion.DeletionTest, ...]:
        named = (self.delete,) if isinstance(self.delete, str) else self.delete
        return tuple(found for each in named if (found := deletion.parsed(each)) is not None)

    def message(self, record: KafkaMessage) -> Message:
        """Read a record; what cannot be read of its value is left out, for the handler to fail at."""
        place, headers = record_place(record), record_headers(record)
        at = record_time(record)
        origin, attempt = place, 0
        if place.topic != self.topic and (came := dialect.read(headers, "reconcile")) is not None:
            attempt = came.attempt or 0
            if came.topic is not None and came.partition is not None and came.offset is not None:
                origin = RecordPlace(came.topic, came.partition, came.offset)
        return self.read(place, origin, bytes_of(record.key()), bytes_of(record.value()), headers, at, attempt)

    def read(
        self,
        place: RecordPlace,
        origin: RecordPlace,
        raw_key: bytes | None,
        value: bytes | None,
        headers: Headers,
        at: datetime | None,
        attempt: int = 0,
    ) -> Message:
        """Build the message of what a record, or a stashed message, holds."""
        body = self._body(value)
        source = body.get("source") if self.debezium and isinstance(body, Mapping) else None
        row = _after(body) if self.debezium else body
        id_text = key.decode(raw_key, self.key_type)
        return Message(
            place=place,
            origin=origin,
            key=raw_key,
            value=value,
            headers=headers,
            at=at,
            aggregate_id=id_text if id_text is not None and key.is_keepable(id_text) else None,
            event_id=self._event_id(headers, row, source),
            version=_whole(_located(self.version, headers, row)),
            type=_located(self.type, headers, row),
            deletes=value is None or self._deletes(body, row),
            attempt=attempt,
        )

    def _body(self, value: bytes | None) -> Any:
        if value is None or self.decode is None or not self._needs_body:
            return None
        try:
            body = self.decode(value)
        except (ValueError, RecursionError):
            return None
        if self.debezium and isinstance(body, Mapping) and isinstance(body.get("payload"), Mapping):
            return body["payload"]
        return body

    def _event_id(self, headers: Headers, row: Any, source: Any) -> str | None:
        declared = _located(self.event_id, headers, row)
        found = event.own_id(headers, declared, source if isinstance(source, Mapping) else None)
        return found if found is not None and key.is_keepable(found) else None

    def _deletes(self, body: Any, row: Any) -> bool:
        if self.debezium and isinstance(body, Mapping) and body.get("op") == "d":
            return True
        # In what is no object everything is null, and a truncated event is not a deletion.
        return isinstance(row, Mapping) and any(test.holds(row) for test in self._tests)


def record_time(record: KafkaMessage) -> datetime | None:
    """Read when a record was written; None where that is not known, or no time that a calendar has."""
    kind, milliseconds = record.timestamp()
    try:
        return None if kind == 0 else datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def record_place(record: KafkaMessage) -> RecordPlace:
    """The place of a record that the cluster gave."""
    topic = record.topic()
    assert topic is not None
    return RecordPlace(topic, *place_of(record))


def record_headers(record: KafkaMessage) -> Headers:
    """A record's headers, in their order."""
    given = cast("list[tuple[str, str | bytes | None]]", record.headers() or [])
    return tuple((name, bytes_of(value)) for name, value in given)


def _after(body: Any) -> Any:
    """Choose the row of Debezium's envelope: as it is after the change, with `__op` and `__source` beside it."""
    if not isinstance(body, Mapping) or "op" not in body:
        return body
    after = body.get("after")
    row = dict(after) if isinstance(after, Mapping) else {}
    return {**row, "__source": body.get("source"), "__op": body.get("op")}


def _located(place: str | None, headers: Headers, body: Any) -> str | None:
    if place is None:
        return None
    if place.startswith(_HEADER):
        value = dict(headers).get(place[len(_HEADER) :])  # the last one of the name
        return None if value is None else value.decode(errors="replace")
    return deletion.as_text(_at(body, mapping.steps(place)))


def _at(body: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        if not isinstance(body, Mapping):
            return None
        body = body.get(step)
    return body


def _whole(text: str | None) -> int | None:
    """Read a version; None for what is no whole number that a database keeps."""
    if text is None or _WHOLE.fullmatch(text) is None:
        return None
    return int(text)


def bytes_of(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
