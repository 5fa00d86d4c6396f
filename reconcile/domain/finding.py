"""The finding: what disagrees, where and why, as every report tells it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal

from reconcile.domain.cause import Cause

SCHEMA_VERSION = 1


class Difference(StrEnum):
    """How a copy differs from its source."""

    MISSING = "missing"
    """The source has it, the copy has not."""
    ORPHAN = "orphan"
    """The copy has it, the source has not."""
    CHANGED = "changed"
    DUPLICATED = "duplicated"
    """The id stands more than once."""
    LATENT = "latent"
    """Both agree, and something lies ready to break that."""


class Status(StrEnum):
    """How far a finding is to be believed and acted on."""

    CONFIRMED = "confirmed"
    IN_FLIGHT = "in_flight"
    TOLERATED = "tolerated"
    INCOMPLETE = "incomplete"
    """Something that would tell could not be read."""


class Confidence(StrEnum):
    """How strongly the evidence speaks for the cause."""

    CERTAIN = "certain"
    PROBABLE = "probable"
    POSSIBLE = "possible"


class Hop(StrEnum):
    """Where it broke."""

    SOURCE_TO_LOG = "source_to_log"
    LOG_TO_CONSUMER = "log_to_consumer"
    CONSUMER = "consumer"


EvidenceKind = Literal["event", "offset", "stash", "retry", "dead_letter", "ledger", "retention", "partition", "outbox"]


@dataclass(frozen=True)
class Evidence:
    """One thing that was seen, and what it says."""

    kind: EvidenceKind
    note: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    version: int | None = None
    at: datetime | None = None
    unresolved: bool = False
    """Whether it is a record in a failure topic that may still be applied."""


@dataclass(frozen=True)
class FieldDifference:
    """One field that differs: its canonical text on either side, None for NULL."""

    name: str
    source: str | None
    consumer: str | None


@dataclass(frozen=True)
class Repair:
    """What would be done about a finding, as far as it and the contract alone tell; the plan looks at the world too."""

    action: str
    partition: int | None
    """Where a record of its key would stand now; None where nothing would be written, or that is not known."""
    reason: str


@dataclass(frozen=True)
class Finding:
    """One aggregate of one link that differs, or will."""

    link: str
    aggregate_id: str | None
    difference: Difference
    cause: Cause
    confidence: Confidence
    hop: Hop | None
    status: Status = Status.CONFIRMED
    fields: tuple[FieldDifference, ...] = ()
    source_version: int | None = None
    consumer_version: int | None = None
    alternatives: tuple[Cause, ...] = ()
    since: datetime | None = None
    """The time of the first event that did not take."""
    equivalent: bool = False
    evidence: tuple[Evidence, ...] = field(default=())
    repair: Repair | None = None

    def told(self, status: Status) -> Finding:
        """Give the same finding with another status."""
        return replace(self, status=status)


def to_data(finding: Finding, run_id: str) -> dict[str, Any]:
    """Give a finding as the object of one JSON line."""
    data = asdict(finding)
    data["since"] = time_text(finding.since)
    data["alternatives"] = [str(each) for each in finding.alternatives]
    data["evidence"] = [{**asdict(each), "at": time_text(each.at)} for each in finding.evidence]
    data["fields"] = [asdict(each) for each in finding.fields]
    for name in ("difference", "cause", "confidence", "hop", "status"):
        data[name] = None if data[name] is None else str(data[name])
    return {"schema_version": SCHEMA_VERSION, "run_id": run_id, **data}


def from_data(data: dict[str, Any]) -> Finding:
    """Read what `to_data` gave; what was added to it since is left out."""
    return Finding(
        link=data["link"],
        aggregate_id=data["aggregate_id"],
        difference=Difference(data["difference"]),
        cause=Cause(data["cause"]),
        confidence=Confidence(data["confidence"]),
        hop=None if data["hop"] is None else Hop(data["hop"]),
        status=Status(data["status"]),
        fields=tuple(FieldDifference(**each) for each in data["fields"]),
        source_version=data["source_version"],
        consumer_version=data["consumer_version"],
        alternatives=tuple(Cause(each) for each in data["alternatives"]),
        since=_datetime(data["since"]),
        equivalent=data["equivalent"],
        evidence=tuple(Evidence(**{**each, "at": _datetime(each["at"])}) for each in data["evidence"]),
        repair=Repair(**data["repair"]) if data.get("repair") else None,
    )


def time_text(at: datetime | None) -> str | None:
    """Give an instant as JSON has it."""
    if at is None:
        return None
    timespec = "milliseconds" if at.microsecond else "seconds"
    return at.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def _datetime(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
