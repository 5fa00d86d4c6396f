"""The one result model of a run: computed once, rendered many times, and nothing is computed in rendering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from reconcile.domain.approval import Actor, Approval
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Finding, Hop
from reconcile.domain.mending import Mending
from reconcile.workspace.handoff import IsoTime

Lane = Literal["log", "retry", "stash", "dead_letter", "ledger"]

_AT_ONCE = 3


class Level(StrEnum):
    """What a run, or a link in it, comes to."""

    AGREES = "agrees"
    TOLERATED = "tolerated"
    """Some drift, and no more than the contract accepts."""
    UNMET = "unmet"
    """No drift beyond that, and an expectation failed that keeps the run from being repaired."""
    REPAIRED = "repaired"
    """There was drift, and corrections ended all of it."""
    DRIFT = "drift"
    UNKNOWN = "unknown"
    """Something that had to be read could not be read."""


@dataclass(frozen=True)
class Count:
    """How many there are of something."""

    name: str
    number: int


@dataclass(frozen=True)
class Flow:
    """How many findings broke at one hop by one cause; `hop` is None where that is unknown."""

    hop: Hop | None
    cause: str
    number: int


@dataclass(frozen=True)
class CauseCount:
    """One cause: how many findings it has, what it is, and the shortest way to mend what it did."""

    cause: Cause
    number: int
    meaning: str
    mending: Mending


@dataclass(frozen=True)
class FieldCount:
    """In how many aggregates of a link a field differs."""

    link: str
    field: str
    number: int


@dataclass(frozen=True)
class HeatRow:
    """One cause, and how many of its findings lie in each of the columns."""

    cause: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Heat:
    """Causes by partitions of the topic, or by ranges of partitions where they are many."""

    columns: tuple[str, ...]
    rows: tuple[HeatRow, ...]
    elsewhere: int
    """Findings that broke in the consumer, or whose evidence names no record of the topic."""


@dataclass(frozen=True)
class TrendPoint:
    """What one run found on one link."""

    run_id: str
    at: IsoTime
    complete: bool
    compared: int
    drifted: int
    opened: int | None = None
    returned: int | None = None
    closed: int | None = None
    still_open: int | None = None
    escaped: int | None = None
    """How many differed that the changed-only runs before could not see; None where that was not counted."""


@dataclass(frozen=True)
class Trend:
    """What the runs up to this one found on one link, oldest first."""

    link: str
    points: tuple[TrendPoint, ...]


@dataclass(frozen=True)
class LinkResult:
    """One source and one copy."""

    link: str
    consumer: str
    level: Level
    settled: bool
    compared: int
    agreeing: int
    drifted: int
    latent: int
    tolerated: int
    in_flight: int
    beyond_tolerance: bool
    """Whether more had drifted than the contract accepts, when it was compared."""
    by_cause: tuple[Count, ...]
    by_difference: tuple[Count, ...]
    oldest: IsoTime | None
    """Since when its oldest confirmed drift stands, as far as that is known."""
    still_different: int | None = None
    """How many of those that had drifted still differ after the repair; None as long as none was verified."""
    message: str | None = None
    """Why it could not be read."""
    escaped: int | None = None
    """How many differ that the changed-only runs before could not see; None where that was not counted."""


@dataclass(frozen=True)
class Known:
    """What earlier runs knew of a finding."""

    first_seen_at: IsoTime
    first_seen_run: str
    recurrences: int
    returned: int


@dataclass(frozen=True)
class Repair:
    """What the plan does about a finding, and what became of that."""

    action: str
    reason: str
    topic: str | None
    partitions: tuple[int, ...]
    state: str | None = None
    """As far as it came: emitted, dropped, converged, partial, superseded, refused, unverified."""
    why: str | None = None


NOT_APPLIED = "not applied"
"""The mark of what a ledger notes of an event that was not applied."""


@dataclass(frozen=True)
class Moment:
    """One thing that happened to an aggregate."""

    lane: Lane
    at: IsoTime | None
    place: str
    """Partition and offset, such as 4@81."""
    topic: str
    version: str | None
    what: str
    """What the record is or says, in words."""
    marks: tuple[str, ...] = ()
    """What it has to do with the copy or the source, such as `the copy shows this`."""
    origin: str | None = None
    """Partition and offset of the topic's record that was put aside, where that is known."""


@dataclass(frozen=True)
class ShownRow:
    """The row of an aggregate in the source or in the copy, with hidden values."""

    version: str | None
    fields: Mapping[str, str | None]
    count: int


@dataclass(frozen=True)
class Story:
    """What happened to one aggregate of one link, in the order of time, and what source and copy show now."""

    link: str
    id: str | None
    source: ShownRow | None
    copy: ShownRow | None
    moments: tuple[Moment, ...]
    left_out: int
    """How many older moments are not among them."""


@dataclass(frozen=True)
class ShownFinding:
    """A finding that is shown, with hidden values, and all that belongs to it."""

    number: int
    """Its place among those that are shown, from one."""
    finding: Finding
    age: str
    story: Story | None = None
    known: Known | None = None
    repair: Repair | None = None
    mending: Mending | None = None
    """The shortest way to mend what its cause did."""


@dataclass(frozen=True)
class LinkRepair:
    """What the plan of one link comes to."""

    link: str
    topic: str
    readers: tuple[str, ...]
    actions: tuple[Count, ...]
    states: tuple[Count, ...]
    """What became of its corrections; empty as long as none was applied."""
    not_repaired: tuple[Count, ...]
    """Findings that are for people to repair, or for nobody, by reason."""
    refused: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class RepairResult:
    """What repair would do, or did."""

    applied: bool
    verified: bool
    refused: tuple[str, ...]
    links: tuple[LinkRepair, ...]
    requester: Actor | None = None
    """Who asked for the run; None where that is not known, or nothing was applied."""
    approvals: tuple[Approval, ...] = ()
    """Who approved the plan that was applied."""


@dataclass(frozen=True)
class Expectation:
    """An expectation that what was read did not meet. It holds figures, and no values of rows."""

    suite: str
    link: str | None
    """None where it is about the topic."""
    expectation: str
    columns: tuple[str, ...]
    severity: str
    why: str | None
    rows: int | None
    """How many rows were looked at; None for an expectation of another kind."""
    unexpected: int | None
    exception: str | None
    """What was raised in place of an answer."""
    stops: bool
    """Whether nothing may be repaired because of it; drift stops nothing, for it is what repair is for."""
    words: str
    """What it found, in the words of the data."""


@dataclass(frozen=True)
class QualityResult:
    """How the expectations of a run went."""

    total: int
    passed: int
    repaired: int
    """How many failed before the repair and no longer do."""
    failed: tuple[Expectation, ...]
    read: tuple[Count, ...]
    """How many rows were read for them, by what they are of: in the mode `digest` those of buckets that differ."""

    @property
    def stopping(self) -> tuple[Expectation, ...]:
        """Those that keep the run from being repaired."""
        return tuple(each for each in self.failed if each.stops)


@dataclass(frozen=True)
class MeasuredPoint:
    """What a distribution was in one run."""

    run_id: str
    at: IsoTime
    level: float
    """The number of rows, the share of missing values, or the median."""
    spread: tuple[float, float] | None = None
    """Of numbers: between which two of them four of five lie."""
    shares: Mapping[str, float] | None = None
    """Of values that many rows share: the share of each."""


@dataclass(frozen=True)
class Measured:
    """One measure of the distribution of a field, over the nights."""

    link: str
    field: str | None
    """None for the number of rows."""
    measure: Literal["rows", "missing", "values"]
    said: str
    """Where it is, and what was usual."""
    drifted: bool
    """Whether it has moved farther than the contract lets pass."""
    points: tuple[MeasuredPoint, ...]
    """Oldest first; the last is the run's."""


@dataclass(frozen=True)
class Selection:
    """The part of the aggregates and copies that was requested of a run."""

    ids: int | None
    """How many aggregates; None for all."""
    consumers: tuple[str, ...]
    """Empty for all."""
    since: str | None = None
    """The run since which these aggregates may have changed; None where they were named."""


@dataclass(frozen=True)
class Report:
    """The result of one run."""

    run_id: str
    aggregate: str
    topic: str
    source: str
    """The name of the source's connection."""
    opened_at: IsoTime
    closed_at: IsoTime
    level: Level
    verdict: str
    """What it comes to, in one sentence."""
    exit_code: int
    """As the run returns it: after a repair, what the verification makes of it."""
    complete: bool
    selection: Selection | None
    """None for a run of all aggregates of all copies."""
    links: tuple[LinkResult, ...]
    flows: tuple[Flow, ...]
    causes: tuple[CauseCount, ...]
    """The most frequent first."""
    ages: tuple[Count, ...]
    fields: tuple[FieldCount, ...]
    heat: Heat
    total: int
    """How many findings there are."""
    shown: tuple[ShownFinding, ...]
    """The most affected first, and where they are many no others."""
    repair: RepairResult | None
    """None as long as no plan was made."""
    quality: QualityResult | None
    """None as long as no expectations were checked."""
    distributions: tuple[Measured, ...]
    """How the values were distributed up to this run; none where that is not kept."""
    trends: tuple[Trend, ...]
    notes: tuple[str, ...]
    """What a reader should know of the report itself."""
    kind: Literal["full", "ids", "changed"]
    """Whether all aggregates were looked at, some by their ids, or those that may have changed since a run."""
    full_because: str | None
    """Why all were looked at though only changes were asked for."""

    @property
    def most_affected(self) -> tuple[ShownFinding, ...]:
        """The most affected aggregate of some causes: their pictures are shown at once."""
        first: dict[str, ShownFinding] = {}
        for each in self.shown:
            if each.story is not None:
                first.setdefault(each.finding.cause, each)
        return tuple(first.values())[:_AT_ONCE]


@dataclass(frozen=True)
class TracedRecord:
    """One record of an aggregate, on its way through the topic and the failure topics."""

    at: IsoTime | None
    kind: str
    """`log`, or where it was parked: `retry`, `stash`, `dead_letter`."""
    topic: str
    partition: int | None
    offset: int | None
    aggregate_id: str | None
    version: str | None
    event_id: str | None
    correlation_id: str | None
    what: str
    consumer: str | None
    """Whose failure topic it is."""


@dataclass(frozen=True)
class TracedStep:
    """A traced record, and what a run's audit says of it."""

    record: TracedRecord
    told: tuple[tuple[str, str], ...]
    """What the audit says, each with the link that it is about."""
    later: bool
    """Whether the topic had it only after the run read it."""


@dataclass(frozen=True)
class Trace:
    """The way of some records, as far as what is kept beside a run shows it."""

    steps: tuple[TracedStep, ...]
    left_out: int
    """How many later ones are not among them."""
    findings: tuple[Finding, ...]
    """What the run found of their aggregates."""
    notes: tuple[str, ...]
