"""The states of a correction, and how one comes from one to the next: pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Literal

from reconcile.control.errors import CorrectionStateError


class State(StrEnum):
    """How far one record of a correction has come."""

    INTENDED = "intended"
    """It is to be emitted; or it was, by a process that ended before it could say so."""
    EMITTED = "emitted"
    UNVERIFIED = "unverified"
    """Emitted, and its consumer had not come to it when it was last looked at."""
    CONVERGED = "converged"
    SUPERSEDED = "superseded"
    REFUSED = "refused"
    DROPPED = "dropped"
    """Never emitted: the reason says why."""


Outcome = Literal[State.CONVERGED, State.SUPERSEDED, State.REFUSED, State.UNVERIFIED]

PENDING = frozenset({State.INTENDED, State.EMITTED, State.UNVERIFIED})
_VERIFIABLE = frozenset({State.EMITTED, State.UNVERIFIED})


@dataclass(frozen=True)
class Intent:
    """One record that is to be emitted. A correction that needs two partitions has one for each."""

    correction_id: str
    link: str
    aggregate_id: str
    basis_version: int | None
    partition: int
    run_id: str


@dataclass(frozen=True)
class Correction(Intent):
    """One record of a correction as the control store knows it."""

    state: State
    offset: int | None
    reason: str | None
    intended_at: datetime
    changed_at: datetime


@dataclass(frozen=True)
class Emitted:
    """Where a record of a correction stands in its topic."""

    correction_id: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Verified:
    """What became of an emitted correction; the reason holds no values of fields."""

    correction_id: str
    outcome: Outcome
    reason: str | None = None


@dataclass(frozen=True)
class Dropped:
    """A correction that is not emitted, and why; the reason holds no values of fields."""

    correction_id: str
    reason: str


def emitted(stands: Correction, record: Emitted) -> Correction:
    """Give a record that was intended as one that is in its topic; raise CorrectionStateError for any other."""
    if stands.state is State.INTENDED:
        return replace(stands, state=State.EMITTED, offset=record.offset)
    if stands.state is State.DROPPED or stands.offset != record.offset:
        raise _not_possible(stands, f"emitted at the offset {record.offset}")
    return stands


def verified(stands: Correction, asked: Verified) -> Correction:
    """Give a record that was emitted as one of which the outcome is known; raise CorrectionStateError for any other."""
    if stands.state in _VERIFIABLE:
        return replace(stands, state=asked.outcome, reason=asked.reason)
    if stands.state is not asked.outcome:
        raise _not_possible(stands, asked.outcome)
    return stands


def dropped(stands: Correction, asked: Dropped) -> Correction:
    """Give a record that was intended as one that is not emitted; raise CorrectionStateError for any other."""
    if stands.state is State.INTENDED:
        return replace(stands, state=State.DROPPED, reason=asked.reason)
    if stands.state is not State.DROPPED:
        raise _not_possible(stands, State.DROPPED)
    return stands


def _not_possible(stands: Correction, wanted: str) -> CorrectionStateError:
    at = "" if stands.offset is None else f" at the offset {stands.offset}"
    return CorrectionStateError(
        f"the correction {stands.correction_id} of the run {stands.run_id} is {stands.state}{at} in the partition"
        f" {stands.partition}, and cannot become {wanted}: read what is pending again"
    )
