"""Counting findings as they stream by: causes by hop, ages, fields, partitions, and the worst of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from reconcile.domain.finding import Difference, Status
from reconcile.report.ages import CLASSES, age_class
from reconcile.report.model import Count, FieldCount, Flow, Heat, HeatRow
from reconcile.report.worst import Worst, rank

COLUMNS = ("link", "aggregate_id", "difference", "status", "cause", "hop", "fields", "since", "finding")
"""What of the findings is counted."""

_MOST_PLACES = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IN_FLIGHT, _CONFIRMED, _LATENT = Status.IN_FLIGHT.value, Status.CONFIRMED.value, Difference.LATENT.value
_HOPS = ("source_to_log", "log_to_consumer", "consumer", None)


class Tally:
    """The figures of findings, in constant memory."""

    def __init__(self, topic: str, partitions: int, at: datetime, limit: int) -> None:
        # Evidence names topic and partition in this order; to read the JSON of each would take most of the time.
        self._place = re.compile(rf'"topic": {re.escape(json.dumps(topic))}, "partition": (\d+)')
        self._width = max(-(-partitions // _MOST_PLACES), 1)
        self._partitions = partitions
        self._now = (at - _EPOCH) // timedelta(microseconds=1)
        self.total = 0
        self._oldest: dict[str, int] = {}
        self._worst = Worst(limit)
        self._flows: Counter[tuple[str | None, str]] = Counter()
        self._ages: Counter[str] = Counter()
        self._fields: Counter[tuple[str, str]] = Counter()
        self._places: Counter[tuple[str, int]] = Counter()
        self._elsewhere = 0

    def add_all(self, rows: Iterable[tuple[Any, ...]]) -> Tally:
        """Count findings, each given by its `COLUMNS`; give itself."""
        for row in rows:
            self._add(*row)
        return self

    def worst(self) -> list[dict[str, Any]]:
        """Give the worst findings, worst first."""
        return [json.loads(text) for text in self._worst.texts()]

    def _add(
        self,
        link: str,
        aggregate_id: str | None,
        difference: str,
        status: str,
        cause: str,
        hop: str | None,
        fields: list[str] | None,
        since: int | None,
        text: str,
    ) -> None:
        """Count a finding. What is in flight is no drift: it may be shown, and counts nowhere else."""
        self.total += 1
        kind = (link, cause)
        names = fields or ()
        self._worst.add(rank(status, difference, since, len(names), link, aggregate_id, self.total), kind, text)
        if status == _IN_FLIGHT:
            return
        self._flows[hop, cause] += 1
        self._ages[age_class(None if since is None else (self._now - since) // 1_000_000)] += 1
        for name in names:
            self._fields[link, name] += 1
        place = self._place.search(text)
        if place is None or int(place[1]) >= self._partitions:
            self._elsewhere += 1
        else:
            self._places[cause, int(place[1]) // self._width] += 1
        if since is not None and status == _CONFIRMED and difference != _LATENT:
            self._oldest[link] = min(self._oldest.get(link, since), since)

    @property
    def oldest(self) -> dict[str, datetime]:
        """Since when the oldest confirmed drift of each link stands, where that is known."""
        return {link: _EPOCH + timedelta(microseconds=since) for link, since in self._oldest.items()}

    @property
    def flows(self) -> tuple[Flow, ...]:
        """Causes by hop: hops in the order of the data's way, the most frequent cause first."""
        ordered = sorted(self._flows.items(), key=lambda each: (_HOPS.index(each[0][0]), -each[1], each[0][1]))
        return tuple(Flow(hop, cause, number) for (hop, cause), number in ordered)

    @property
    def ages(self) -> tuple[Count, ...]:
        """How old findings are, by class, youngest first."""
        return tuple(Count(name, self._ages[name]) for name in CLASSES)

    @property
    def fields(self) -> tuple[FieldCount, ...]:
        """Which fields differ, the most frequent first."""
        return tuple(FieldCount(link, field, number) for (link, field), number in _ordered(self._fields))

    @property
    def heat(self) -> Heat:
        """Causes by partition."""
        starts = range(0, self._partitions, self._width)
        ends = [min(start + self._width, self._partitions) - 1 for start in starts]
        columns = [str(start) if start == end else f"{start}–{end}" for start, end in zip(starts, ends, strict=True)]
        causes: Counter[str] = Counter()
        for (cause, _), number in self._places.items():
            causes[cause] += number
        rows = [
            HeatRow(cause, tuple(self._places[cause, column] for column in range(len(columns))))
            for cause, _ in _ordered(causes)
        ]
        return Heat(tuple(columns), tuple(rows), self._elsewhere)


def _ordered(counter: Counter[Any]) -> list[tuple[Any, int]]:
    return sorted(counter.items(), key=lambda each: (-each[1], each[0]))
