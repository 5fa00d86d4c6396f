"""The guard: right before anything is emitted, what has moved on since the plan is dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconcile.contract.model import Topic
from reconcile.domain.canonical import version_number
from reconcile.domain.correction import RUN_ID, Correction, key_digest
from reconcile.domain.outbox import WaitingEvents
from reconcile.domain.plan import Item
from reconcile.domain.plan_rules import ARRIVED, Action, decided_by_arrival, published_since
from reconcile.repair.compensation import Sums
from reconcile.repair.correction_writer import CorrectionWriter
from reconcile.repair.json_values import MisfitError
from reconcile.repair.logged_aggregates import LoggedAggregate
from reconcile.repair.source_values import SourceRow, current_row
from reconcile.repair.topic_form import locate, sample
from reconcile.repair.value_codec import Codec

if TYPE_CHECKING:
    from confluent_kafka import Message


@dataclass(frozen=True)
class Guarded:
    """What may be emitted, and what may not any more: the reason by the correction's id."""

    corrections: tuple[Correction, ...]
    dropped: Mapping[str, str]


@dataclass(frozen=True)
class SourceNow:
    """What the source shows of the planned aggregates right before emission."""

    rows: Mapping[str, Sequence[SourceRow]]
    waiting: Mapping[str, WaitingEvents] = field(default_factory=dict)
    """What waits in its outbox."""
    unproven: tuple[str, ...] = ()
    """Why it is not proven that an id is gone which it does not show."""
    sums: Mapping[str, Sums] = field(default_factory=dict)
    """What the copy's sums lack of its."""
    log_ends: Mapping[int, int] = field(default_factory=dict)
    """Where each partition of the main topic ended when the run read it."""


def guarded(
    items: Sequence[Item],
    source: SourceNow,
    logged: Mapping[str, LoggedAggregate],
    writer: CorrectionWriter,
) -> Guarded:
    """Build the records of those items whose source, outbox and key are as they were when the plan was made."""
    corrections: list[Correction] = []
    dropped: dict[str, str] = {}
    for item in items:
        assert item.aggregate_id is not None
        assert item.correction_id is not None
        of_id = source.rows.get(item.aggregate_id, ())
        of_log = logged.get(item.aggregate_id)
        reason = (
            moved_on(item, of_id, source.waiting.get(item.aggregate_id))
            or _lives(item, source, of_log)
            or _logged_since(item, of_log, source, writer)
            or summed_since(item, source.sums)
        )
        if reason is None:
            if of_log is None or of_log.key is None or key_digest(of_log.key) != item.key:
                reason = "the log no longer shows the key that it was planned with"
            else:
                try:
                    corrections += writer.of(item, of_log, current_row(of_id))
                except MisfitError as error:
                    reason = str(error)
        if reason is not None:
            dropped[item.correction_id] = reason
    return Guarded(tuple(corrections), dropped)


def moved_on(item: Item, rows: Sequence[SourceRow], waiting: WaitingEvents | None = None) -> str | None:
    """Say how the source has moved on since the plan, if it has; what waits in its outbox will bring its own event."""
    if waiting is not None:
        return f"moved on: an event of it waits in the source's outbox{waiting.age}"
    present = [each for each in rows if not each.gone]
    if item.action is Action.TOMBSTONE:
        return "moved on: the source has it again" if present else None
    if not present:
        return "moved on: the source no longer has it"
    if len(present) > 1:
        return "moved on: the source holds the id more than once"
    if present[0].version != item.basis_version:
        return f"moved on: the source is at version {present[0].version}, and was at {item.basis_version}"
    return None if present[0].basis == item.basis else "moved on: the source says something else at the same version"


def _lives(item: Item, source: SourceNow, logged: LoggedAggregate | None) -> str | None:
    """Say why an aggregate that is to be deleted may exist, if it may."""
    if item.action is not Action.TOMBSTONE:
        return None
    if source.unproven:
        return f"nothing proves any more that the source has it no more: {'; '.join(source.unproven)}"
    alive = logged is not None and logged.alive
    return "moved on: the log's newest event of it does not delete it" if alive else None


def summed_since(item: Item, now: Mapping[str, Sums]) -> str | None:
    """Say that the sums lack something else by now, or that nobody can say it, if so."""
    if item.action is not Action.COMPENSATE:
        return None
    sums = now[item.aggregate_id or ""]
    if sums.unsettled is not None:
        return sums.unsettled
    if sums.version != item.basis_version:
        return f"moved on: the source is at version {sums.version}, and was at {item.basis_version}"
    return None if dict(sums.amounts) == dict(item.amounts) else "moved on: its sums lack something else by now"


def _logged_since(
    item: Item, logged: LoggedAggregate | None, source: SourceNow, writer: CorrectionWriter
) -> str | None:
    """Say that the main topic is ahead of a correction that goes elsewhere: emission looks at its own topic only."""
    if logged is None or item.topic == writer.contract.topic.name:
        return None
    if published_since(item.cause, item.basis_version, logged.version):
        return f"moved on: the log is at version {logged.version}"
    if decided_by_arrival(item.cause, item.basis_version) and logged.arrived_since(source.log_ends):
        return ARRIVED
    return None


@dataclass(frozen=True)
class NewerThanBasis:
    """Tells whether a record of a correction's key is newer than what the correction was made from.

    Where nobody can know, it counts as newer: a correction that is dropped does no harm. Of a change that no event had
    told, the event itself is newer too: it would be applied beside the correction.
    """

    topic: Topic
    codec: Codec
    run_id: str

    def __call__(self, record: Message, correction: Correction) -> bool:
        """Decide it for one record."""
        seen = sample(record)
        if (RUN_ID, self.run_id.encode()) in seen.headers:
            return False  # the same plan's correction for another link says the same
        body = None if seen.value is None else self.codec.read(seen.value)
        if self.topic.type is not None and locate(self.topic.type, seen.headers, body) in self.topic.ignore_types:
            return False
        if seen.value is None or correction.basis_version is None:
            return True
        version = version_number(locate(self.topic.version, seen.headers, body))
        return version is None or published_since(correction.cause, correction.basis_version, version)
