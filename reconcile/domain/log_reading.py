"""An aggregate's part of the log: in which order it stands and was made, what was due, and how far it reaches back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from reconcile.domain.case import Case, Event, FieldRule
from reconcile.domain.comparison import equal
from reconcile.domain.finding import Difference, FieldDifference
from reconcile.domain.true_order import each_once, in_log_order, in_true_order, since_deletion


class LogReading:
    """What a case says of the log, for the fields in which its copy differs; worked out once and only if asked for."""

    def __init__(self, case: Case, difference: Difference, fields: tuple[FieldDifference, ...]) -> None:
        self.case = case
        self.link = case.link
        self.difference = difference
        self.fields = fields
        self.log: list[Event] = []
        """The readable events in the order of the log; what stands twice is in here twice."""
        self.broken: list[Event] = []
        due: list[Event] = []
        pending: list[Event] = []
        for event in in_log_order(case.events):
            if event.ignored:
                continue
            if event.problem is not None:
                self.broken.append(event)
                continue
            self.log.append(event)
            (due if self.is_due(event) else pending).append(event)
        self.due = due
        """The readable events that the copy had its time to apply."""
        self.pending = pending
        self.order = due + pending if pending else self.log
        """The order in which a faithful consumer comes by them."""

    @cached_property
    def concerned(self) -> tuple[FieldRule, ...]:
        """The fields that differ and of which events tell; all of which they tell where one side has no row."""
        told = tuple(rule for rule in self.link.fields if rule.told)
        if self.case.source is None or self.case.copy is None:
            return told
        names = {each.name for each in self.fields}
        return tuple(rule for rule in told if rule.name in names)

    @cached_property
    def versioned(self) -> bool:
        """Whether the versions of source and log can be compared."""
        return self.link.source_versions and self.link.event_versions

    @cached_property
    def truth(self) -> list[Event]:
        """The readable events in the order in which the source made them, each once."""
        truth = in_true_order(self.log)
        if self.versioned or self.link.changes or len({event.partition for event in truth}) < 2:
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
        if len(found) < len(self.log):
            for place, twin in each_once(self.log)[1].items():
                found[place] = found[twin.place]
        return found

    @cached_property
    def life(self) -> list[Event]:
        """The readable events since the aggregate was deleted last; empty if the newest one deletes it."""
        return since_deletion(self.truth)

    @cached_property
    def newest_version(self) -> int | None:
        """The newest version that the log has of the aggregate as it lives now."""
        return max((event.version for event in self.life if event.version is not None), default=None)

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
    def whole(self) -> bool:
        """Whether we know every event that there ever was of it."""
        if self.link.compacted or any(self.is_before_gap(event) for event in self.case.events):
            return False
        if self.link.records and self.truth and not self.truth[0].deletes:
            return True  # its one event is there
        first = self.truth[0].version if self.truth else None
        if self.link.dense_versions and first is not None and not self.case.events_cut:
            return first <= 1
        return self.reaches_back

    def repeated(self, event: Event) -> bool:
        """Tell whether an event stands in the log more than once."""
        if len(self.truth) == len(self.log):
            return False
        rank = self.rank[event.place]
        return sum(self.rank[each.place] == rank for each in self.log) > 1

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
        """Give the neighbours among events, between which versions are missing that stand nowhere in the log."""
        if not self.link.dense_versions or self.link.compacted:
            return []
        present = {event.version for event in self.case.events}
        found = []
        for former, later in pairwise(events):
            if former.version is None or later.version is None or self.is_before_gap(former):
                continue
            if any(version not in present for version in range(former.version + 1, later.version)):
                found.append((former, later))
        return found

    def by_deletion(self, event: Event) -> bool:
        """Tell whether an event deletes or follows one that does: its loss looks as if both had changed places."""
        place = self.order.index(event)
        return event.deletes or (place > 0 and self.order[place - 1].deletes)

    def corrects(self, event: Event) -> bool:
        """Tell whether an event is a correction of ours."""
        return (self.case.id, *event.place) in self.link.corrections

    def is_due(self, event: Event) -> bool:
        """Tell whether the copy had its time to apply an event."""
        place = self.link.places.get(event.partition)
        return place is not None and place.committed is not None and event.offset < place.committed

    def is_settled(self, event: Event) -> bool:
        """Tell whether an event was in the log before the source was read."""
        place = self.link.places.get(event.partition)
        return place is None or event.offset < place.settled_end

    def is_before_gap(self, event: Event) -> bool:
        """Tell whether an event was kept from before records that were lost unread."""
        place = self.link.places.get(event.partition)
        return place is not None and event.offset < place.begin

    def _is_source(self, event: Event) -> bool:
        source = self.case.source
        if source is None or event.deletes:
            return source is None and event.deletes
        return all(equal(r, event.fields.get(r.name), source.fields.get(r.name)) for r in self.concerned)

    def _begins(self, partition: int) -> bool:
        place = self.link.places.get(partition)
        return place is not None and place.begin == 0
