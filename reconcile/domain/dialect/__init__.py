"""Where a record in a retry, dead-letter or stash topic came from, and why, as its headers say.

Each framework has a dialect of its own (the table is in `reader`). A framework may also have passed the record on more
than once: then the topic, partition, offset, time and group are those of the first hop, which is the true origin, and
the error and the attempt are those of the latest hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from reconcile.domain.dialect.reader import FAMILIES, OWN, Headers, Reader

__all__ = ["AUTO", "DIALECTS", "Headers", "Origin", "read", "write"]

AUTO = "auto"

DIALECTS: tuple[str, ...] = tuple(dict.fromkeys(reader.dialect for family in FAMILIES for reader in family))


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
        if dialect == AUTO or any(reader.dialect == dialect for reader in family):
            readers = [reader for reader in family if reader.recognises(present)]
            if readers:
                return _origin(readers, headers)
    return None


def write(origin: Origin) -> list[tuple[str, bytes]]:
    """The headers that say the origin in the `reconcile` dialect, whatever dialect it was read from."""
    values = {name: getattr(origin, name) for name in OWN} | {"at": _milliseconds(origin.at)}
    written = {header: values[name] for name, header in OWN.items() if values[name] not in (None, "")}
    return [(header, str(value).encode(errors="replace")) for header, value in written.items()]


_PLACE = ("topic", "partition", "offset", "at")
_CAUSE = ("error_class", "error_message", "stashed_behind")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _origin(readers: Sequence[Reader], headers: Headers) -> Origin:
    hops = list(reversed(headers)) if readers[0].prepends else list(headers)
    by_age = sorted(readers, key=lambda reader: _first(hops, reader.names(*_PLACE[:3])))
    latest_first = sorted(readers, key=lambda reader: _first(hops[::-1], reader.names()))
    oldest, latest = by_age[0], latest_first[0]
    parts: dict[str, Any] = {name: oldest.value(name, hops) for name in _PLACE}
    parts["group"] = _any(by_age, "group", hops)
    parts |= {name: _any(latest_first, name, hops[::-1]) for name in _CAUSE}
    parts["attempt"] = _any(
        latest_first, "attempt", headers[::-1]
    )  # counters are appended even where hops are prepended
    parts["at"] = _instant(parts["at"])
    return Origin(dialect=latest.dialect, pointer=latest.pointer, **parts)


def _first(headers: Headers, names: set[str]) -> int:
    return next((index for index, (name, _) in enumerate(headers) if name in names), len(headers))


def _any(readers: Sequence[Reader], field: str, headers: Headers) -> str | int | None:
    return next((value for reader in readers if (value := reader.value(field, headers)) is not None), None)


def _instant(milliseconds: int | None) -> datetime | None:
    """Kafka's -1 is no time; what lies past the year 9999 is no time either."""
    try:
        return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def _milliseconds(at: datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // timedelta(milliseconds=1)
