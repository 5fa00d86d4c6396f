"""The story of one aggregate of one link, built from what the audit kept of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from reconcile.domain.evidence import unapplied_words
from reconcile.report.model import NOT_APPLIED, Lane, Moment, ShownRow, Story

HIDDEN = "•••"
_LONGEST = 160
"""Characters of a value that are shown."""
_AROUND = 30
"""Characters that are shown before the place where a longer one differs."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATE = datetime.max.replace(tzinfo=UTC)


def story(
    link: str,
    topic: str,
    case: Mapping[str, Any],
    fields: Sequence[str],
    sensitive: Collection[str] = (),
    most: int | None = None,
) -> Story:
    """Build it from what the audit kept of the aggregate; values of sensitive fields stay hidden.

    With `most` it has only so many moments, the newest.
    """
    source, copy = (_shown(case[side], fields) for side in ("source", "copy"))
    events = case["events"] or []
    others = [*map(_parked, case["parked"] or []), *map(_applied, case["ledger"] or [])]
    others.sort(key=lambda each: each.place)
    moments = [*_events(topic, events, fields, sensitive, source, copy, most), *others]
    order: dict[Lane, int] = {"log": 0, "retry": 1, "stash": 2, "dead_letter": 3, "ledger": 4}
    moments.sort(key=lambda each: (each.at or _LATE, order[each.lane]))
    newest = moments if most is None else moments[-most:]
    return Story(
        link,
        case["id"],
        _as_shown(source, copy, sensitive),
        _as_shown(copy, source, sensitive),
        tuple(newest),
        max((case["events_total"] or 0), len(events)) + len(others) - len(newest),
    )


def _events(
    topic: str,
    events: Sequence[Mapping[str, Any]],
    fields: Sequence[str],
    sensitive: Collection[str],
    source: ShownRow | None,
    copy: ShownRow | None,
    most: int | None,
) -> list[Moment]:
    """Build the moments of the newest events; the older ones count for what they changed alone."""
    found: list[Moment] = []
    before: dict[str, str | None] = {}
    older = 0 if most is None else len(events) - most
    ordered = sorted(events, key=lambda each: (each["timestamp"], each["partition"], each["offset"]))
    for number, event in enumerate(ordered):
        tells = zip(fields, event["tells"], event["values"], strict=True)
        says = {name: value for name, carried, value in tells if carried}
        if number < older:
            before |= says
            continue
        changed = {name: value for name, value in says.items() if name not in before or before[name] != value}
        before |= says
        found.append(
            Moment(
                "log",
                instant(event["timestamp"]),
                f"{event['partition']}@{event['offset']}",
                topic,
                event["version"],
                _what(event, changed, sensitive, [side.fields for side in (source, copy) if side is not None]),
                _marks(event, says, source, copy),
            )
        )
    return found


def _what(
    event: Mapping[str, Any],
    changed: Mapping[str, str | None],
    sensitive: Collection[str],
    sides: Sequence[Mapping[str, str | None]],
) -> str:
    kind = event["type"] or "event"
    if not event["readable"]:
        return f"{kind}, which cannot be read"
    if event["deletes"]:
        return f"{kind}: deleted"
    said = ", ".join(
        f"{name} = {_value(name, value, sensitive, [side.get(name) for side in sides])}"
        for name, value in changed.items()
    )
    return f"{kind}: {said}" if said else str(kind)


def _marks(
    event: Mapping[str, Any], says: Mapping[str, str | None], source: ShownRow | None, copy: ShownRow | None
) -> tuple[str, ...]:
    marks = []
    for side, name in ((source, "source"), (copy, "copy")):
        if side is None:
            gone = event["deletes"]
            marks += [f"the {name} has no row"] if gone else []
        elif says and not event["deletes"] and _shows(side, event["version"], says):
            marks.append(f"the {name} shows this")
    return tuple(marks)


def _shows(side: ShownRow, version: str | None, says: Mapping[str, str | None]) -> bool:
    same_version = side.version is None or version is None or side.version == version
    return same_version and all(side.fields.get(field) == value for field, value in says.items())


def _parked(read: Mapping[str, Any]) -> Moment:
    place = "" if read["partition"] is None else f"{read['partition']}@{read['offset']}"
    known = read["origin_offset"] is not None
    origin = f"{read['origin_partition']}@{read['origin_offset']}" if known else None
    came = f" from {origin}" if known else ""
    error = f": {read['error']}" if read["error"] else ""
    state = (read["resolved"],) if read["resolved"] else ("still there",)
    at = instant(read["at"])
    return Moment(read["kind"], at, place, read["topic"], read["version"], f"put aside{came}{error}", state, origin)


def _applied(read: Mapping[str, Any]) -> Moment:
    place = "" if read["offset"] is None else f"{read['partition']}@{read['offset']}"
    at = instant(read["at"])
    unapplied = read.get("unapplied")
    if unapplied is None:
        return Moment("ledger", at, place, "the ledger", None, "noted as applied")
    return Moment("ledger", at, place, "the ledger", None, unapplied_words(unapplied, read["because"]), (NOT_APPLIED,))


def _shown(read: Mapping[str, Any] | None, fields: Sequence[str]) -> ShownRow | None:
    if read is None:
        return None
    return ShownRow(
        read["version"], dict(zip(fields, read["fields"] or [None] * len(fields), strict=True)), read["count"]
    )


def _as_shown(shown: ShownRow | None, other: ShownRow | None, sensitive: Collection[str]) -> ShownRow | None:
    if shown is None:
        return None
    beside = {} if other is None else other.fields
    fields = {
        name: value if value is None else HIDDEN if name in sensitive else _shortened(value, [beside.get(name)])
        for name, value in shown.fields.items()
    }
    return ShownRow(shown.version, fields, shown.count)


def _value(name: str, value: str | None, sensitive: Collection[str], others: Sequence[str | None]) -> str:
    if value is None:
        return "NULL"
    return HIDDEN if name in sensitive else f'"{_shortened(value, others)}"'


def _shortened(value: str, others: Sequence[str | None]) -> str:
    """Cut a long value down to where it differs from the first of the others that does, with a little around that."""
    if len(value) <= _LONGEST:
        return value
    other = next((each for each in others if each is not None and each != value), None)
    start, end = 0, _LONGEST
    if other is not None:
        same = _alike(value, other)
        behind = min(_alike(value[::-1], other[::-1]), len(value) - same, len(other) - same)
        start = max(same - _AROUND, 0)
        end = min(start + _LONGEST, len(value) - behind + _AROUND)
    end = min(end, len(value))
    cut = f"{'…' if start else ''}{value[start:end]}{'…' if end < len(value) else ''}"
    return f"{cut} ({start + 1:,} to {end:,} of {len(value):,} characters)"


def _alike(one: str, other: str) -> int:
    """Count the characters in which two texts begin alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))


def instant(micros: int | None) -> datetime | None:
    """Compute the instant so many microseconds after 1970."""
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)
