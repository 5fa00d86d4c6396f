"""What the stages leave for one another, each model with the name of its artifact; `--json` prints the same models."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import AliasChoices, Field

from reconcile.control.run_record import Drift
from reconcile.domain.approval import Actor, Approval
from reconcile.domain.canonical import CanonicalType
from reconcile.domain.distribution import Distribution, Side
from reconcile.domain.plan import Plan
from reconcile.gather.fence.fence import Fence, UnreadableLink
from reconcile.gather.log.index import Lost
from reconcile.gather.stores.digest import ComparisonMode
from reconcile.gather.stores.usage import Taken
from reconcile.quality.suites import Checked
from reconcile.workspace.handoff import Part, Versioned
from reconcile.workspace.manifest import Stage
from reconcile.workspace.run import Run

__all__ = ["Applied", "Fence", "Gathered", "Plan", "Quality", "Request", "Summary", "Verified"]

FINDINGS = "findings"
"""The table of findings, which the audit publishes beside its summary."""
OUTBOX = "outbox"
CHANGED = "changed"
"""The table of the ids that may have changed since an earlier run, each with CLOSELY."""
CLOSELY = "closely"
"""The column that says whether an id is looked at closely also where it agrees, as a finding of it is open."""
ACCOUNTED = "accounted"
"""The table of the ids that changed-only runs looked at, or would look at now: only others have escaped them."""


def source_rows(consumer: str) -> str:
    """Name the table with the source's rows that are compared with a consumer's."""
    return f"source.{consumer}"


def copy_rows(consumer: str) -> str:
    """Name the table with a consumer's rows."""
    return f"copy.{consumer}"


def ledger(consumer: str) -> str:
    """Name the table with a consumer's ledger."""
    return f"ledger.{consumer}"


def stash(consumer: str) -> str:
    """Name the table with what a consumer's stash table holds."""
    return f"stash.{consumer}"


def parked_records(consumer: str) -> str:
    """Name the table with what a consumer has put aside."""
    return f"parked.{consumer}"


def suspected(consumer: str) -> str:
    """Name the table with the ids of a consumer that were examined closely."""
    return f"suspects.{consumer}"


def examined(consumer: str) -> str:
    """Name the table with all that was read of a consumer's suspects, which lasts as long as the audit."""
    return f"examined.{consumer}"


def cases(consumer: str) -> str:
    """Name the table with what was read of a consumer's findings, redacted."""
    return f"cases.{consumer}"


def snapshots(consumer: str) -> tuple[str, ...]:
    """Name the tables with what was read of the stores of a link, and what was made of it for the audit alone."""
    of_stores = (source_rows(consumer), copy_rows(consumer), ledger(consumer), stash(consumer))
    return (*of_stores, OUTBOX, suspected(consumer), examined(consumer))


class Request(Versioned):
    """What a run was asked to look at."""

    ARTIFACT: ClassVar[str] = "request"
    STAGE: ClassVar[Stage] = "request"

    contract: str
    """The contract's file."""
    aggregate: str
    consumers: tuple[str, ...] = ()
    """Only these; empty for all."""
    ids: tuple[str, ...] | None = None
    """Only these aggregates; None for all."""
    since: str | None = None
    """Only what may have changed since this run, or since the `last`; None for all."""
    mode: ComparisonMode = "auto"


class RunScope(Part):
    """Which aggregates a run has looked at, and why."""

    kind: Literal["full", "ids", "changed"]
    """All of them, some by their ids, or those that may have changed since an earlier run."""
    since: str | None = None
    """The run since whose fence it looked for changes."""
    reason: str | None = None
    """Why it is a full run though it was asked for changes alone."""
    ids: int | None = None
    """How many aggregates it looked at; None for all."""
    terms: str
    """The digest of what decides in the contract which rows and events are compared, and how."""
    aggregates: int | None = None
    """How many aggregates the newest full run compared; None where that is not known."""
    after: tuple[str, ...] = ()
    """The changed-only runs since the full run before: a full run counts what escaped them."""


class GatheredField(Part):
    """A field of a link, in the order of its rows' columns."""

    name: str
    sensitive: bool
    redacted: bool = False
    """Whether its values were redacted as they were read."""


class GatheredLink(Part):
    """What was read of one link."""

    link: str
    consumer: str
    source_rows: int
    copy_rows: int
    fetched: int
    """Rows that were read one by one, of both sides."""
    buckets: int | None
    """How many buckets were compared by their digests; None where rows were compared one by one."""
    differing: int | None
    """How many of the buckets differ."""
    mode: str
    reasons: tuple[str, ...]
    """Why it is this mode and not another."""
    form: tuple[CanonicalType, ...]
    """The canonical type of each field."""
    fields: tuple[GatheredField, ...] | None = None
    """None in runs of versions that did not keep the names of fields."""
    distributions: dict[Side, Distribution] | None = None
    """How the values of both sides are distributed; None where the contract does not look at that."""


class LogExtent(Part):
    """The topic's log, as far as it was read for the run."""

    folder: str
    generation: int
    records: int
    expired: tuple[Lost, ...]
    """Offsets that the log no longer had when it was read."""


class Gathered(Versioned):
    """What the stage `gather` read of the world."""

    ARTIFACT: ClassVar[str] = "gathered"
    STAGE: ClassVar[Stage] = "gather"

    contract: str
    """The contract's file."""
    aggregate: str
    links: tuple[GatheredLink, ...]
    unread: tuple[UnreadableLink, ...]
    """Links that could not be read."""
    taken: tuple[Taken, ...] = ()
    """What was taken of each database that has sessions of ours; nothing in runs of versions that did not count."""
    log: LogExtent
    artifacts: dict[str, str]
    """The digests of the tables that it published, by name."""
    scope: RunScope | None = None
    """Which aggregates it read; None in runs of versions that did not say."""
    begins: dict[int, int] | None = None
    """From which offsets on it looked for changes, by partition; None where it did not."""
    key_mark: str | None = None
    """What tells whether the key of the installation is still the one by which values were redacted; None for none."""

    def link(self, consumer: str) -> GatheredLink:
        """Choose the link of a consumer; raise KeyError if it was not read."""
        return {each.consumer: each for each in self.links}[consumer]


class Interval(Part):
    """When the fence was opened and closed."""

    opened_at: datetime
    closed_at: datetime


class NotRecorded(Part):
    """Why the control store did not take a result, which holds all the same."""

    message: str
    may_pass: bool
    """Whether the same stage may record it later."""


class LinkSummary(Part):
    """What the audit found on one link, in figures."""

    link: str
    consumer: str
    settled: bool
    compared: int
    """Ids that exist on either side."""
    agreeing: int
    findings: int
    drifted: int
    """Confirmed findings whose copy differs now."""
    latent: int
    tolerated: int
    in_flight: int
    by_cause: dict[str, int]
    by_difference: dict[str, int]
    beyond_tolerance: bool
    escaped: int | None = None
    """How many differ that the changed-only runs before could not see; None where that was not counted."""
    over_time: Drift | None = None
    """What is new, came back and is gone since the runs before; None where no control store keeps that."""


class UnreadLink(Part):
    """A link that could not be read."""

    link: str
    message: str
    may_pass: bool
    """Whether it may be read later as it stands: what did not answer, not what refused."""


class DoubtedEvent(Part):
    """An `event` expression that does not say what rows that agree hold: it takes no part in causes."""

    link: str
    field: str
    path: str
    """Where it is in the contract."""
    tested: int
    """How many records of ids whose rows agree were looked at."""
    matching: int
    """How many of them say what the rows hold."""

    @property
    def message(self) -> str:
        """Say what was seen, and what follows."""
        found = f"{self.link}: matches the source in {self.matching:,} of {self.tested:,}: `{self.path}`"
        return f"{found}. It takes no part in causes until it is right: look at the expression, then at the topic"


class Summary(Versioned):
    """What the stage `audit` found, in figures."""

    ARTIFACT: ClassVar[str] = "summary"
    STAGE: ClassVar[Stage] = "audit"

    contract: str
    """The contract's aggregate."""
    complete: bool
    fence: Interval
    links: tuple[LinkSummary, ...]
    unread: tuple[UnreadLink, ...]
    exit_code: int
    not_recorded: NotRecorded | None = None
    version_gaps: int = 0
    """Of how many ids the log lacks versions: no findings, because each event carries the whole state."""
    scope: RunScope | None = None
    """Which aggregates it has looked at; None in runs of versions that did not say."""
    drifted_aggregates: int | None = None
    """How many aggregates differ, each once for all copies; None in runs of versions that did not count them."""
    doubted_events: tuple[DoubtedEvent, ...] = ()
    """The `event` expressions that were not believed."""


class Quality(Versioned):
    """How the expectations of the suites went."""

    ARTIFACT: ClassVar[str] = "quality"
    STAGE: ClassVar[Stage] = "quality"

    success: bool
    """Whether none failed that keeps the run from being repaired."""
    results: tuple[Checked, ...]


class EmittedRecord(Part):
    """Where the record of a correction is in its topic."""

    correction_id: str
    aggregate_id: str
    partition: int
    offset: int
    shared_with: str | None = None
    """The link that emitted it, where that is another: one record mends both copies."""


class DroppedCorrection(Part):
    """A correction that was not emitted, because its aggregate had moved on."""

    correction_id: str
    reason: str


class AppliedLink(Part):
    """What was emitted for one link."""

    link: str
    topic: str
    emitted: tuple[EmittedRecord, ...]
    dropped: tuple[DroppedCorrection, ...]


class Applied(Versioned):
    """What the stage `apply` emitted."""

    ARTIFACT: ClassVar[str] = "applied"
    STAGE: ClassVar[Stage] = "apply"

    run_id: str
    plan: str
    """The digest of the plan."""
    links: tuple[AppliedLink, ...]
    requester: Actor | None = None
    """Who asked for the run; None where that is not known."""
    approvals: tuple[Approval, ...] = ()
    """Who approved the plan, the first first; nobody where the contract asks for no approval."""


class VerifiedCorrection(Part):
    """What became of a correction that was emitted."""

    correction_id: str
    aggregate_id: str
    outcome: str
    """converged, partial, superseded, refused or unverified."""
    reason: str | None
    differing: tuple[str, ...] = ()
    """The fields that still differ, where it is partial or refused."""


class VerifiedLink(Part):
    """What became of the corrections of one link."""

    link: str
    outcomes: dict[str, int]
    still_different: int = Field(validation_alias=AliasChoices("left", "still_different"), serialization_alias="left")
    """How many of those that had drifted still differ."""
    beyond_tolerance: bool
    corrections: tuple[VerifiedCorrection, ...]


class Verified(Versioned):
    """What the stage `verify` saw of the corrections."""

    ARTIFACT: ClassVar[str] = "verified"
    STAGE: ClassVar[Stage] = "verify"

    run_id: str
    links: tuple[VerifiedLink, ...]
    exit_code: int
    not_recorded: NotRecorded | None = None

    @property
    def unverified(self) -> int:
        """How many corrections nobody has seen the end of."""
        return sum(link.outcomes.get("unverified", 0) for link in self.links)


class Stopped(Versioned):
    """What kept a run from going on, until one of its stages begins again."""

    ARTIFACT: ClassVar[str] = "stopped"
    STAGE: ClassVar[Stage] = "request"

    stage: Stage
    """The stage that it stopped at."""
    how: Literal["refused", "interrupted", "unreachable", "failed"]
    reason: str


class PrunedHistory(Part):
    """What was pruned of the history of a topic."""

    folder: str
    """Below the workspace."""
    segments: int
    """How many of its parts, the oldest."""
    superseded: bool
    """Whether all of it went, because no run needed it any more."""


class Pruned(Part):
    """What was pruned."""

    runs: tuple[str, ...]
    spared: dict[str, str]
    """The runs that are old and stay, each with the reason."""
    histories: tuple[PrunedHistory, ...]
    control: dict[str, int]
    """How many rows of the control store, by table."""


class Forgotten(Part):
    """What is not known of aggregates any more, and what still is."""

    runs: dict[str, int]
    """How many artifacts and files of each run had something of them."""
    histories: dict[str, int]
    """How many of their records each history had; folders are below the workspace."""
    control: dict[str, int]
    """How many rows of the control store, by table."""
    remaining: tuple[str, ...]
    """Where there is still something of them, after all was looked at again."""


def results_of(run: Run) -> tuple[Checked, ...]:
    """Read how the expectations of a run went; nothing where none were checked."""
    found = run.read_if_there(Quality)
    return () if found is None else found.results
