"""An aggregate's part of the log: in which order it stands and was made, what was due, and how far it reaches back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cached_property
from itertools import pairwise

from reconcile.domain.case import Case, Event, FieldRule, Row
from reconcile.domain.comparison import equal


class AggregateLog:
    """What the log says of one aggregate; each answer is computed once, and only if somebody needs it."""

    def __init__(self, case: Case, rules: Sequence[FieldRule], passed: Collection[tuple[int, int]] = ()) -> None:
        """`rules` are the fields that show which of several newest events is the source's.

        `passed` are the places of events with which the consumer is done, although its group has not committed that.
        """
        self.case = case
        self.link = case.link
        self._rules = rules
        self._passed = passed
        self.events: list[Event] = []
        """The readable events in the order of the log; what stands twice is in here twice."""
        self.broken: list[Event] = []
        """The events that cannot be read."""
        self.due: list[Event] = []
        """The readable events that the copy had its time to apply."""
        self.pending: list[Event] = []
        """The readable events that are at or past the committed offset."""
        for event in in_log_order(case.events):
            if event.ignored:
                continue
            if event.problem is not None:
                self.broken.append(event)
                continue
            self.events.append(event)
            (self.due if self.is_due(event) else self.pending).append(event)
        self.order = self.due + self.pending if self.pending else self.events
        """The order in which a faithful consumer comes by them."""

    @cached_property
    def truth(self) -> list[Event]:
        """The readable events in the order in which the source made them, each once."""
        truth = in_true_order(self.events)
        if self.link.versioned or self.link.changes or len({event.partition for event in truth}) < 2:
            return truth
        # Clocks do not tell which partition has the newest event; the source does.
        last = [truth[-1], *{event.partition: event for event in truth}.values()]
        newest = next((event for event in last if self._is_source(event)), truth[-1])
        if newest is truth[-1] or not self.is_settled(truth[-1]):
            return truth
        return [*(event for event in truth if event is not newest), newest]

    @cached_property
    def rank(self) -> dict[tuple[int, int], int]:
        """The rank of each event's place in that order; what stands twice has one rank."""
        found = {event.place: number for number, event in enumerate(self.truth)}
        if len(found) < len(self.events):
            for place, twin in each_once(self.events)[1].items():
                found[place] = found[twin.place]
        return found

    @cached_property
    def life(self) -> list[Event]:
        """The readable events since the aggregate was deleted last; empty if the newest one deletes it."""
        return since_deletion(self.truth)

    @cached_property
    def carried(self) -> set[str]:
        """The fields that events carry in the aggregate's life as it is now."""
        return {name for event in self.life for name in event.fields}

    @cached_property
    def deletions(self) -> int:
        """How often the aggregate was deleted."""
        return sum(event.deletes for event in self.truth)

    @cached_property
    def newest_version(self) -> int | None:
        """The newest version that the log has of the aggregate as it lives now."""
        return max((event.version for event in self.life if event.version is not None), default=None)

    @cached_property
    def settled(self) -> int:
        """How many events of the true order there are up to the last that was in the log before the source was read."""
        return max((place for place, event in enumerate(self.truth, 1) if self.is_settled(event)), default=0)

    @cached_property
    def reaches_back(self) -> bool:
        """Whether the log begins where its partitions do: of its events, or of its key where there are none."""
        if self.case.events_cut:
            return False
        return all(self._begins(partition) for partition in self.partitions)

    @property
    def partitions(self) -> set[int]:
        """Where its events stand; where its key belongs, or all there are, if it has none."""
        return {event.partition for event in self.case.events} or set(self.case.homes) or set(self.link.places)

    @cached_property
    def complete(self) -> bool:
        """Whether we know every event that there ever was of it."""
        if self.link.compacted or any(self.is_before_gap(event) for event in self.case.events):
            return False
        if self.link.records and self.truth and not self.truth[0].deletes:
            return True  # its one event is there
        first = self.truth[0].version if self.truth else None
        if self.link.dense_versions and first is not None and not self.case.events_cut:
            return first <= 1 or (bool(self.broken) and self.reaches_back)
        return self.reaches_back

    @cached_property
    def gaps(self) -> list[tuple[Event, Event]]:
        """The neighbours in its life between which versions are missing, and nothing but their absence explains it.

        What a correction of an earlier run has closed, and what the copy had no time to come to, is none.
        """
        partitions = {event.partition for event in self.case.events}
        if self.broken or (len(partitions) > 1 and not self.reaches_back):
            return []
        missing = self.missing_versions(self.life)
        return [gap for gap in missing if self.is_due(gap[1]) and not self.corrects(gap[1])]

    def missing_versions(self, events: Sequence[Event]) -> list[tuple[Event, Event]]:
        """Compute the neighbours among events, between which versions are missing that stand nowhere in the log."""
        if not self.link.dense_versions or self.link.compacted:
            return []
        present = {event.version for event in self.case.events}
        # A deletion that carries no version may have taken one.
        untold = sum(event.deletes and event.version is None for event in self.events)
        found = []
        for former, later in pairwise(events):
            if former.version is None or later.version is None or self.is_before_gap(former):
                continue
            missing = sum(version not in present for version in range(former.version + 1, later.version))
            if missing > untold:
                found.append((former, later))
        return found

    def known_to(self, reading: Row | None) -> list[Event]:
        """Choose the events that a reading of the source knew of."""
        if reading is None or reading.version is None or not self.link.versioned:
            return self.truth
        version = reading.version
        known = [event.version is not None and event.version <= version for event in self.truth]
        last = max((place for place, yes in enumerate(known) if yes), default=-1)
        return [
            event for place, event in enumerate(self.truth) if known[place] or (event.version is None and place < last)
        ]

    def newest(self, events: Sequence[Event]) -> Event:
        """Choose the event that the source made last."""
        return max(events, key=lambda event: self.rank[event.place])

    def first(self, events: Sequence[Event]) -> Event:
        """Choose the event that the source made first."""
        return min(events, key=lambda event: self.rank[event.place])

    def twins(self, event: Event) -> list[Event]:
        """Choose all places in the log where one and the same event stands."""
        rank = self.rank[event.place]
        return [each for each in self.events if self.rank[each.place] == rank]

    def repeats(self, event: Event) -> bool:
        """Whether an event stands in the log more than once."""
        return len(self.truth) < len(self.events) and len(self.twins(event)) > 1

    def by_deletion(self, event: Event) -> bool:
        """Whether an event deletes or follows one that does: its loss looks as if both had changed places."""
        place = self.order.index(event)
        return event.deletes or (place > 0 and self.order[place - 1].deletes)

    def corrects(self, event: Event) -> bool:
        """Whether an event is a correction of ours."""
        return (self.case.id, *event.place) in self.link.corrections

    def is_due(self, event: Event) -> bool:
        """Whether the copy had its time to apply an event."""
        place = self.link.places.get(event.partition)
        committed = place is not None and place.committed is not None and event.offset < place.committed
        return committed or event.place in self._passed

    def is_settled(self, event: Event) -> bool:
        """Whether an event was in the log before the source was read."""
        place = self.link.places.get(event.partition)
        return place is None or event.offset < place.settled_end

    def is_before_gap(self, event: Event) -> bool:
        """Whether an event was kept from before records that were lost before anybody read them."""
        place = self.link.places.get(event.partition)
        return place is not None and event.offset < place.begin

    def _is_source(self, event: Event) -> bool:
        source = self.case.source
        if source is None or event.deletes:
            return source is None and event.deletes
        return all(equal(r, event.fields.get(r.name), source.fields.get(r.name)) for r in self._rules)

    def _begins(self, partition: int) -> bool:
        place = self.link.places.get(partition)
        return place is not None and place.begin == 0


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
    """Split off the events that stand there already: the others, and by its place what each of them repeats."""
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
    """Choose what comes after the last event that deletes."""
    start = next((place for place in range(len(events), 0, -1) if events[place - 1].deletes), 0)
    return list(events[start:])


def _belongs(event: Event, life: Sequence[Event]) -> bool:
    """Whether an event came too late; otherwise it is the first one of an aggregate that is there again."""
    versions = [each.version for each in life if each.version is not None]
    return event.version is not None and bool(versions) and min(versions) < event.version < max(versions)


def _same(one: Event, other: Event) -> bool:
    return one.version == other.version and one.deletes == other.deletes and one.fields == other.fields


def _version(event: Event) -> float:
    if event.version is not None:
        return event.version
    return float("inf") if event.deletes else float("-inf")
