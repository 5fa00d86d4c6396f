"""What an event is called: the id by which ledgers, logs and failure topics speak of one and the same event."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconcile.domain.dialect import Headers

CLOUDEVENT_ID = ("ce_id", "ce-id")

UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
"""What a uuid looks like, in the regular expressions of Python and of Spark."""
_UUID = re.compile(UUID)

# Where a change stands in its database's log, by Debezium's connector. The first field has to be there.
_SOURCE_POSITION: Mapping[str, tuple[str, ...]] = {
    "postgresql": ("lsn", "txId"),
    "mysql": ("file", "pos", "row"),
    "mariadb": ("file", "pos", "row"),
    "sqlserver": ("change_lsn", "commit_lsn", "event_serial_no"),
    "db2": ("change_lsn", "commit_lsn"),
    "oracle": ("scn", "commit_scn", "rs_id", "ssn"),
}


def spelled(name: str) -> str:
    """Compute an event's id as all spell it: a uuid may be in capitals here and not there."""
    return name.lower() if _UUID.fullmatch(name) else name


def spellings(name: str) -> tuple[str, ...]:
    """Compute all spellings of an event's id: as it is, and a uuid in small letters and capitals."""
    return tuple(dict.fromkeys((name, name.lower(), name.upper()))) if _UUID.fullmatch(name) else (name,)


def event_id(
    headers: Headers,
    declared: str | None,
    debezium_source: Mapping[str, object] | None,
    origin: tuple[str, int, int],
) -> str:
    """The event's id: the contract's, else Debezium's position in the source, else CloudEvents' id, else its origin.

    `declared` is the value of the contract's `event_id` in this record; `origin` is the topic, partition and offset
    where the record first stood, so that its copies in retry and dead-letter topics keep the name.
    """
    topic, partition, offset = origin
    return own_id(headers, declared, debezium_source) or f"{topic}-{partition}@{offset}"


def own_id(headers: Headers, declared: str | None, debezium_source: Mapping[str, object] | None) -> str | None:
    """The id that the event itself carries; None where it has none but its origin."""
    return declared or (_source_id(debezium_source) if debezium_source else None) or _cloudevent_id(headers)


def _source_id(source: Mapping[str, object]) -> str | None:
    """A position names a change only if the record comes from the log: all records of a snapshot share one position."""
    connector = str(source.get("connector"))
    fields = _SOURCE_POSITION.get(connector)
    if fields is None or source.get(fields[0]) is None or source.get("snapshot") not in (None, False, "false"):
        return None
    position = [str(source[field]) for field in fields if source.get(field) is not None]
    return ":".join([connector, str(source.get("name", "")), *position])


def _cloudevent_id(headers: Headers) -> str | None:
    texts = (_text(value) for wanted in CLOUDEVENT_ID for name, value in headers if name == wanted and value)
    return next(filter(None, texts), None)


def _text(value: bytes | bytearray) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
