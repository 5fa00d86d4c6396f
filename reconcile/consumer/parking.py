"""What a record looks like that is sent on, dead-lettered or shown in the stash's topic: our own dialect of headers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from reconcile.consumer.message import Headers, Message
from reconcile.consumer.store import Outgoing, Stashed
from reconcile.domain import dialect

DUE = "reconcile-due"
"""When a record of a retry topic is to be tried, in milliseconds."""
NULL_VALUE = "reconcile-null-value"
"""The mark of a dead letter whose message had no value: without one itself, compaction would take it away."""
NAMELESS = "reconcile-nameless"
"""The mark of a dead letter that belongs to no aggregate."""
OWN_HEADERS = frozenset({*dialect.OWN.values(), dialect.ORIGIN_KEY, dialect.SHOWS, DUE, NULL_VALUE, NAMELESS})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def retried(
    message: Message, group: str, error: BaseException, topic: str, delay: timedelta, now: datetime
) -> Outgoing:
    """Build the record of a retry topic: the same, with where it came from and when it is due."""
    due = (now + delay - _EPOCH) // timedelta(milliseconds=1)
    headers = (*_headers(message, group, type(error).__name__, str(error)), (DUE, str(due).encode()))
    return Outgoing(topic, message.key, message.value, headers)


def dead_letter(
    message: Message,
    group: str,
    error_class: str,
    error_message: str,
    topic: str,
    day: datetime,
    nameless: bool = False,
) -> Outgoing:
    """Build a dead letter: its key is unique and begins with the day, so that a day can be cleaned up.

    Groups may share a topic, and give up the same message.
    """
    key = f"{day:%Y-%m-%d}/{message.origin.topic}/{message.origin.partition}/{message.origin.offset}/{group}"
    headers: Headers = (*_headers(message, group, error_class, error_message), (dialect.ORIGIN_KEY, message.key))
    if nameless:
        headers = (*headers, (NAMELESS, b"true"))
    if message.value is None:
        headers = (*headers, (NULL_VALUE, b"true"))
    return Outgoing(topic, key.encode(), message.value or b"", headers)


def shown(stashed: Stashed, group: str, topic: str, behind: str | None) -> Outgoing:
    """Build the record by which the stash's topic shows a stashed message."""
    message = stashed.message
    headers = _headers(message, group, stashed.error_class, stashed.error_message, behind)
    return Outgoing(topic, message.key, message.value, (*headers, (dialect.SHOWS, b"stash")))


def due(headers: Headers) -> datetime | None:
    """Read when a record of a retry topic is to be tried; None where it does not say."""
    for name, value in reversed(headers):
        if name == DUE and value is not None and value.isdigit() and len(value) < 16:
            return _EPOCH + timedelta(milliseconds=int(value))
    return None


def _headers(
    message: Message,
    group: str,
    error_class: str | None,
    error_message: str | None,
    behind: str | None = None,
) -> Headers:
    origin = dialect.Origin(
        dialect="reconcile",
        topic=message.origin.topic,
        partition=message.origin.partition,
        offset=message.origin.offset,
        group=group,
        error_class=error_class,
        error_message=None if error_message is None else error_message[:1000],
        attempt=message.attempt + 1,
        at=message.at,
        stashed_behind=behind,
    )
    kept = tuple((name, value) for name, value in message.headers if name not in OWN_HEADERS)
    return (*kept, *dialect.write(origin))
