"""What a copy's sums lack, computed at one instant at which both stores and the log are settled. Pure.

A sum cannot be restated: other changes may be on their way, and would be lost. It can be given the difference, once, if
at the instant of both rows every change that the source counted had been applied to the copy or was lost for good:
nothing of the aggregate is in flight, none of its events lies in a failure topic, waits in the outbox, or is an earlier
correction that the group has yet to read. What changes after that instant is added on both sides alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reconcile.contract.consumer import ComparedField, EncodedValue
from reconcile.contract.model import Consumer
from reconcile.domain import mapping
from reconcile.domain.case import FieldRule, Row
from reconcile.domain.comparison import EXACT, equal, number
from reconcile.repair.json_values import Path

_CAST = re.compile(r"cast\(\s*(\$\S+)\s+as\s+\w+(?:\([\d\s,]*\))?\s*\)", re.IGNORECASE)


@dataclass(frozen=True)
class Instant:
    """Both rows of an aggregate, and what was known of its events when they were read."""

    source: Row | None
    copy: Row | None
    last: Mapping[int, int] = field(default_factory=dict)
    """The offset of its last record in each partition, read after the rows."""
    log_version: int | None = None
    parked: str | None = None
    """The failure topic or table in which an unresolved event of it lies, read after the rows."""
    unread: bool = False
    """Whether the group has yet to read an earlier correction of it."""
    twice: bool = False
    """Whether source or copy has it more than once."""


@dataclass(frozen=True)
class Sums:
    """What the sums of a copy lack of the source's, by field; or why that cannot be said now."""

    amounts: Mapping[str, str] = field(default_factory=dict)
    unsettled: str | None = None
    version: int | None = None
    """The source's, at that instant."""


def compensable(consumer: Consumer) -> dict[str, Path]:
    """Choose the fields whose differences can be written as events, with the path where events hold the amount."""
    if not consumer.repair.compensate:
        return {}
    return {each.name: path for each in consumer.fields if (path := _amount(each)) is not None}


def lacking(
    now: Instant, rules: Sequence[FieldRule], names: Sequence[str], committed: Mapping[int, int | None]
) -> Sums:
    """Compute what the copy's sums lack, by the rows of one instant and how far the group had come before."""
    unsettled = _unsettled(now, committed)
    if unsettled is not None:
        return Sums(unsettled=unsettled)
    assert now.source is not None
    assert now.copy is not None
    amounts: dict[str, str] = {}
    for rule in rules:
        ours, theirs = now.source.fields.get(rule.name), now.copy.fields.get(rule.name)
        if rule.name not in names or equal(rule, ours, theirs):
            continue
        have, has = number(ours), number(theirs)
        if have is None or has is None:
            return Sums(unsettled=f"{rule.name} is no number on both sides: nothing can be added to it")
        amounts[rule.name] = format(EXACT.subtract(have, has).normalize(EXACT), "f")
    if not amounts:
        return Sums(unsettled="moved on: the sums agree by now")
    return Sums(amounts, version=now.source.version)


def _unsettled(now: Instant, committed: Mapping[int, int | None]) -> str | None:
    if now.source is None or now.copy is None:
        return "moved on: not both sides have its row"
    if now.twice:
        return "moved on: source or copy has it more than once"
    if now.parked is not None:
        return f"an unresolved event of it lies in {now.parked}, and would be added on top: resolve it first"
    if now.unread:
        return "the group has yet to read an earlier correction of it: another would be added to that"
    behind = sorted(partition for partition, last in now.last.items() if (committed.get(partition) or 0) <= last)
    if behind:
        return f"its events in partition {', '.join(map(str, behind))} were not all consumed when the copy was read"
    if now.source.version is None:
        return "neither source nor topic has versions: nothing shows whether an event of it is on its way"
    if now.source.version != now.log_version:
        return f"the source is at version {now.source.version} and the log at {now.log_version}: an event is on its way"
    return None


def _amount(compared: ComparedField) -> Path | None:
    """Choose the path that holds what is added; None where events do not simply hold it, or it may not be shown."""
    if isinstance(compared.event, EncodedValue):
        path = compared.event.path
    else:
        event = (compared.event or "").strip()
        inner = _CAST.fullmatch(event)
        path = event if inner is None else inner.group(1)
    if compared.apply != "add" or compared.sensitive or not mapping.is_path(path):
        return None
    return mapping.steps(path)
