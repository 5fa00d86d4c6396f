"""The order in which events stand in the log, and the order in which the source made them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from reconcile.domain.case import Event


def in_log_order(events: Sequence[Event]) -> Sequence[Event]:
    """Order events by offset inside a partition, whatever their producers' clocks say, and by time across them."""
    seen: dict[int, int] = {}
    for event in events:
        if event.offset < seen.get(event.partition, -1):
            break
        seen[event.partition] = event.offset
    else:
        return events
    latest: dict[int, datetime] = {}
    timed = []
    for event in sorted(events, key=lambda each: each.place):
        latest[event.partition] = max(event.at, latest.get(event.partition, event.at))
        timed.append((latest[event.partition], event.place, event))
    return [event for _, _, event in sorted(timed, key=lambda each: each[:2])]


def in_true_order(log: Sequence[Event]) -> list[Event]:
    """Order events as the source made them: by version from one deletion to the next, else as the log has them."""
    highest: int | None = None
    seen: set[str] = set()
    for event in log:
        version = event.version
        if event.event_id in seen or (version is not None and highest is not None and version <= highest):
            break
        seen.add(event.event_id)
        highest = highest if version is None else version
    else:
        return list(log)
    lives: list[list[Event]] = [[]]
    ended = False
    for event in _each_once(log):
        if ended and not _belongs(event, lives[-1]):
            lives.append([])
            ended = False
        lives[-1].append(event)
        ended = ended or event.deletes
    return [event for life in lives for event in sorted(life, key=_version)]


def is_twin(one: Event, other: Event) -> bool:
    """Tell whether two records are one event that stands twice."""
    return (
        (one.event_id == other.event_id or (one.version is not None and one.version == other.version))
        and one.version == other.version
        and one.deletes == other.deletes
        and one.fields == other.fields
    )


def since_deletion(events: Sequence[Event]) -> list[Event]:
    """Give what comes after the last event that deletes."""
    start = next((place for place in range(len(events), 0, -1) if events[place - 1].deletes), 0)
    return list(events[start:])


def _each_once(log: Sequence[Event]) -> list[Event]:
    found: list[Event] = []
    named: dict[str | int, list[Event]] = {}
    for event in log:
        names: list[str | int] = [event.event_id]
        if event.version is not None:
            names.append(event.version)
        if not any(is_twin(each, event) for name in names for each in named.get(name, ())):
            found.append(event)
            for name in names:
                named.setdefault(name, []).append(event)
    return found


def _belongs(event: Event, life: Sequence[Event]) -> bool:
    """Tell an event that came too late from the first one of an aggregate that is there again."""
    versions = [each.version for each in life if each.version is not None]
    return event.version is not None and bool(versions) and min(versions) < event.version < max(versions)


def _version(event: Event) -> float:
    if event.version is not None:
        return event.version
    return float("inf") if event.deletes else float("-inf")
