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
    for event in each_once(log)[0]:
        if ended and not _belongs(event, lives[-1]):
            lives.append([])
            ended = False
        lives[-1].append(event)
        ended = ended or event.deletes
    return [event for life in lives for event in sorted(life, key=_version)]


def each_once(log: Sequence[Event]) -> tuple[list[Event], dict[tuple[int, int], Event]]:
    """Give the events without those that stand there already, and by the places of those which they are."""
    found: list[Event] = []
    twins: dict[tuple[int, int], Event] = {}
    by_id: dict[str, list[Event]] = {}
    by_version: dict[int, list[Event]] = {}
    ended = False
    for event in log:
        known = [*by_id.get(event.event_id, ()), *(() if event.version is None else by_version.get(event.version, ()))]
        twin = next((each for each in known if _same(each, event)), None)
        if twin is not None:
            twins[event.place] = twin
            continue
        found.append(event)
        by_id.setdefault(event.event_id, []).append(event)
        if ended and not event.deletes:
            by_version.clear()
        elif event.deletes and not ended:
            by_version.pop(min(by_version, default=0), None)  # what is there again may count its versions anew
        ended = event.deletes
        if event.version is not None:
            by_version.setdefault(event.version, []).append(event)
    return found, twins


def since_deletion(events: Sequence[Event]) -> list[Event]:
    """Give what comes after the last event that deletes."""
    start = next((place for place in range(len(events), 0, -1) if events[place - 1].deletes), 0)
    return list(events[start:])


def _belongs(event: Event, life: Sequence[Event]) -> bool:
    """Tell an event that came too late from the first one of an aggregate that is there again."""
    versions = [each.version for each in life if each.version is not None]
    return event.version is not None and bool(versions) and min(versions) < event.version < max(versions)


def _same(one: Event, other: Event) -> bool:
    return one.version == other.version and one.deletes == other.deletes and one.fields == other.fields


def _version(event: Event) -> float:
    if event.version is not None:
        return event.version
    return float("inf") if event.deletes else float("-inf")
