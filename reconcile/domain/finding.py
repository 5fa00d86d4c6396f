"""The finding: what disagrees, where and why, as every report tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, TypeAdapter, ValidationError

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

    def reaches(self, least: Confidence) -> bool:
        """Decide whether it is at least as strong as another."""
        order = list(Confidence)
        return order.index(self) <= order.index(least)


class Hop(StrEnum):
    """Where it broke."""

    SOURCE_TO_LOG = "source_to_log"
    LOG_TO_CONSUMER = "log_to_consumer"
    CONSUMER = "consumer"


def time_text(at: datetime) -> str:
    """Compute an instant as JSON has it."""
    timespec = "milliseconds" if at.microsecond else "seconds"
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


Instant = Annotated[datetime, PlainSerializer(time_text, return_type=str)]
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
    at: Instant | None = None
    unresolved: bool = False
    """Whether it is a record in a failure topic that may still be applied."""


@dataclass(frozen=True)
class FieldDifference:
    """One field that differs: its canonical text on either side, None for NULL."""

    name: str
    source: str | None
    consumer: str | None


@dataclass(frozen=True)
class ProposedRepair:
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
    since: Instant | None = None
    """The time of the first event that did not take."""
    equivalent: bool = False
    evidence: tuple[Evidence, ...] = ()
    repair: ProposedRepair | None = None

    @property
    def rank(self) -> Rank:
        """Compute what findings are ordered by, what matters most lowest."""
        since = None if self.since is None else self.since.timestamp()  # instants themselves compare slowly
        kinds = (self.status, self.difference, self.confidence)
        return rank(*kinds, since, len(self.fields), self.link, self.aggregate_id)

    @property
    def drifts(self) -> bool:
        """Whether the copy differs now, and is not merely late or about to differ."""
        return self.status is Status.CONFIRMED and self.difference is not Difference.LATENT

    def partition_in(self, topic: str) -> int | None:
        """Choose the partition of the first record of a topic in its evidence."""
        for each in self.evidence:
            if each.topic == topic and each.partition is not None:
                return each.partition
        return None


MATTERS: Mapping[str, Sequence[str]] = {
    "status": (Status.CONFIRMED, Status.INCOMPLETE, Status.TOLERATED, Status.IN_FLIGHT),
    "difference": (
        Difference.MISSING, Difference.CHANGED, Difference.DUPLICATED, Difference.ORPHAN, Difference.LATENT,
    ),
    "confidence": tuple(Confidence),
}  # fmt: skip
"""What matters most in a list of findings, of each kind from the first on.

What is lost comes before what is wrong, and that before what may become drift; what is sure before what is not. Among
equals what has lasted longest is first.
"""

Rank = tuple[Any, ...]
_PLACES = {kind: {value: place for place, value in enumerate(values)} for kind, values in MATTERS.items()}
_NEVER = float("inf")


def rank(
    status: str, difference: str, confidence: str, since: float | None, fields: int, link: str, id_: str | None
) -> Rank:
    """Compute what a finding is ordered by, of its columns; `since` in any unit."""
    kinds = zip(_PLACES.values(), (status, difference, confidence), strict=True)
    places = (places[value] for places, value in kinds)
    return *places, _NEVER if since is None else since, -fields, link, id_ or ""


def consumer_of(link: str) -> str:
    """Choose the name of the consumer out of that of a link."""
    return link.rpartition("/")[2]


# A finding is a plain dataclass, because hundreds of thousands are made; its JSON is written and read by pydantic.
_FINDING: TypeAdapter[Finding] = TypeAdapter(Finding)


def to_data(finding: Finding, run_id: str) -> dict[str, Any]:
    """Build the object of one JSON line."""
    return {"schema_version": SCHEMA_VERSION, "run_id": run_id, **_FINDING.dump_python(finding, mode="json")}


def from_json(line: str) -> Finding:
    """Parse a JSON line of what `to_data` built, also by an earlier version; raise ValueError for what is none."""
    try:
        return _FINDING.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]  # its own text would quote values
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")) from None
