"""Corrections: what is to be emitted, written down before it is, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, Row, select, true, update

from reconcile.control.database import BATCH, Database, batches, now
from reconcile.control.errors import CorrectionStateError
from reconcile.control.findings import close_repaired
from reconcile.control.leases import Lease, require_held
from reconcile.control.runs import require_begun
from reconcile.control.tables import correction
from reconcile.errors import RefusedError

_AT_ONCE = 1000
_KEY = ("run_id", "id", "topic_partition")
_INTENT = (*_KEY, "link", "aggregate_id", "basis_version", "state", "token")


class CorrectionState(StrEnum):
    """How far one record of a correction has come."""

    INTENDED = "intended"
    """It is to be emitted; or it was, by a process that ended before it could say so."""
    EMITTED = "emitted"
    UNVERIFIED = "unverified"
    """Emitted, and its consumer had not come to it when it was last looked at."""
    CONVERGED = "converged"
    PARTIAL = "partial"
    """What it brings took, and the copy differs in what it does not bring."""
    SUPERSEDED = "superseded"
    REFUSED = "refused"
    DROPPED = "dropped"
    """Never emitted: the reason says why."""


VerifiedState = Literal[
    CorrectionState.CONVERGED,
    CorrectionState.PARTIAL,
    CorrectionState.SUPERSEDED,
    CorrectionState.REFUSED,
    CorrectionState.UNVERIFIED,
]

PENDING = frozenset({CorrectionState.INTENDED, CorrectionState.EMITTED, CorrectionState.UNVERIFIED})
_VERIFIABLE = frozenset({CorrectionState.EMITTED, CorrectionState.UNVERIFIED})


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
class CorrectionRecord(Intent):
    """One record of a correction as the control store knows it."""

    state: CorrectionState
    offset: int | None
    reason: str | None
    intended_at: datetime
    changed_at: datetime
    differing: tuple[str, ...] = ()
    """The fields that still differed when it was verified."""


@dataclass(frozen=True)
class Emitted:
    """Where a record of a correction stands in its topic."""

    correction_id: str
    partition: int
    offset: int


@dataclass(frozen=True)
class CorrectionOutcome:
    """What became of an emitted correction; the reason holds no values of fields."""

    correction_id: str
    outcome: VerifiedState
    reason: str | None = None
    differing: tuple[str, ...] = ()
    """The fields that still differ."""


@dataclass(frozen=True)
class Dropped:
    """A correction that is not emitted, and why; the reason holds no values of fields."""

    correction_id: str
    reason: str


_Change = TypeVar("_Change", CorrectionOutcome, Dropped)


class Corrections:
    """The corrections of all runs; only the holder of the link's lease may write here.

    A lease for corrections bears the link's name. Each call checks it and writes in one transaction, whole or not at
    all; a call that is repeated changes nothing. Raises LeaseLostError if the lease was lost.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def intend(self, lease: Lease, intents: Iterable[Intent]) -> None:
        """Write down what is to be emitted, before it is; a record that is there already stays as it is.

        Raises RunNotBegunError if a run has not begun.
        """
        names = [*_INTENT, "intended_at", "changed_at"]
        known: set[str] = set()
        with self._database.writing() as connection:
            require_held(connection, lease)
            for some in batches(intents, BATCH):
                for run_id in {each.run_id for each in some} - known:
                    require_begun(connection, run_id)
                    known.add(run_id)
                rows = self._database.rows([correction.c[name] for name in _INTENT], (_row(e, lease) for e in some))
                query = select(*rows.c, now().label("intended_at"), now().label("changed_at")).where(true())
                statement = self._database.insert(correction).from_select(names, query)
                connection.execute(statement.on_conflict_do_nothing(index_elements=_KEY))

    def mark_emitted(self, lease: Lease, run_id: str, records: Iterable[Emitted]) -> None:
        """Write down where intended records stand in their topic.

        Raises CorrectionStateError if one was not intended in that partition, or stands elsewhere.
        """
        placed = {(each.correction_id, each.partition): each for each in records}

        def change(current: CorrectionRecord) -> CorrectionRecord:
            record = placed.get((current.correction_id, current.partition))
            return current if record is None else _emitted(current, record)

        with self._database.writing() as connection:
            changes = self._change(connection, lease, run_id, [id_ for id_, _ in placed], change)
            intended = {(after.correction_id, after.partition) for _, after in changes}
            missing = [f"{place[0]} in the partition {place[1]}" for place in placed if place not in intended]
            _require_intended(run_id, missing)

    def mark_verified(self, lease: Lease, run_id: str, outcomes: Iterable[CorrectionOutcome]) -> None:
        """Write down what became of emitted corrections; those that converged close their findings.

        One that is unverified may be looked at again. Raises CorrectionStateError if one was not emitted, or ended
        otherwise.
        """
        wanted = {each.correction_id: each for each in outcomes}
        with self._database.writing() as connection:
            changes = self._change_each(connection, lease, run_id, wanted, _verified)
            # What had converged before may have drifted once more since.
            repaired = [new for old, new in changes if new != old and new.state is CorrectionState.CONVERGED]
            close_repaired(connection, lease.name, run_id, {each.aggregate_id: each.correction_id for each in repaired})

    def mark_dropped(self, lease: Lease, run_id: str, corrections: Iterable[Dropped]) -> None:
        """Write down that intended corrections are not emitted, and why.

        Raises CorrectionStateError if one was emitted.
        """
        wanted = {each.correction_id: each for each in corrections}
        with self._database.writing() as connection:
            self._change_each(connection, lease, run_id, wanted, _dropped)

    def of_run(self, link: str, run_id: str) -> list[CorrectionRecord]:
        """Query all of a run's corrections of a link, by partition and id."""
        columns = correction.c
        statement = select(correction).where(columns.run_id == run_id, columns.link == link)
        with self._database.reading() as connection:
            rows = connection.execute(statement.order_by(columns.topic_partition, columns.id))
            return [_record(row) for row in rows]

    def places(self, links: Collection[str]) -> frozenset[tuple[str, int, int]]:
        """Query where corrections of links stand in their topic: aggregate, partition, offset."""
        columns = correction.c
        places = select(columns.aggregate_id, columns.topic_partition, columns.topic_offset)
        with self._database.reading() as connection:
            found = connection.execute(places.where(columns.link.in_(links), columns.topic_offset.is_not(None)))
            return frozenset((row.aggregate_id, row.topic_partition, row.topic_offset) for row in found)

    def _change_each(
        self,
        connection: Connection,
        lease: Lease,
        run_id: str,
        wanted: Mapping[str, _Change],
        change: Callable[[CorrectionRecord, _Change], CorrectionRecord],
    ) -> list[tuple[CorrectionRecord, CorrectionRecord]]:
        """Change all records of each correction; raise CorrectionStateError for one that was never intended."""
        changes = self._change(connection, lease, run_id, wanted, lambda old: change(old, wanted[old.correction_id]))
        _require_intended(run_id, sorted(wanted.keys() - {new.correction_id for _, new in changes}))
        return changes

    def _change(
        self,
        connection: Connection,
        lease: Lease,
        run_id: str,
        ids: Iterable[str],
        change: Callable[[CorrectionRecord], CorrectionRecord],
    ) -> list[tuple[CorrectionRecord, CorrectionRecord]]:
        """Change a run's records of these corrections; each comes back as it was and as it is."""
        require_held(connection, lease)
        columns = correction.c
        changes: list[tuple[CorrectionRecord, CorrectionRecord]] = []
        for some in batches(dict.fromkeys(ids), _AT_ONCE):
            query = select(correction).where(columns.run_id == run_id, columns.link == lease.name, columns.id.in_(some))
            found = [(each, change(each)) for each in map(_record, connection.execute(query))]
            self._write(connection, lease, run_id, [new for old, new in found if new != old])
            changes += found
        return changes

    def _write(self, connection: Connection, lease: Lease, run_id: str, records: Collection[CorrectionRecord]) -> None:
        if not records:
            return
        columns = correction.c
        names = ("id", "topic_partition", "state", "topic_offset", "reason", "differing")
        rows = self._database.rows(
            [columns[name] for name in names], (dict(zip(names, _changed(each), strict=True)) for each in records)
        )
        statement = update(correction).where(
            columns.run_id == run_id, columns.id == rows.c.id, columns.topic_partition == rows.c.topic_partition
        )
        changed = {name: rows.c[name] for name in names[2:]}
        connection.execute(statement.values(**changed, token=lease.token, changed_at=now()))


def _emitted(current: CorrectionRecord, record: Emitted) -> CorrectionRecord:
    if current.state is CorrectionState.INTENDED:
        return replace(current, state=CorrectionState.EMITTED, offset=record.offset)
    if current.state is CorrectionState.DROPPED or current.offset != record.offset:
        raise _not_possible(current, f"emitted at the offset {record.offset}")
    return current


def _verified(current: CorrectionRecord, wanted: CorrectionOutcome) -> CorrectionRecord:
    if current.state in _VERIFIABLE:
        return replace(current, state=wanted.outcome, reason=wanted.reason, differing=wanted.differing)
    if current.state is not wanted.outcome:
        raise _not_possible(current, wanted.outcome)
    return current


def _dropped(current: CorrectionRecord, wanted: Dropped) -> CorrectionRecord:
    if current.state is CorrectionState.INTENDED:
        return replace(current, state=CorrectionState.DROPPED, reason=wanted.reason)
    if current.state is not CorrectionState.DROPPED:
        raise _not_possible(current, CorrectionState.DROPPED)
    return current


def _not_possible(current: CorrectionRecord, wanted: str) -> CorrectionStateError:
    at = "" if current.offset is None else f" at the offset {current.offset}"
    return CorrectionStateError(
        f"the correction {current.correction_id} of the run {current.run_id} is {current.state}{at} in the partition"
        f" {current.partition}, and cannot become {wanted}: read what is pending again"
    )


def _require_intended(run_id: str, missing: list[str]) -> None:
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CorrectionStateError(
            f"the run {run_id} never intended the correction {missing[0]}{more}: intend it first"
        )


def _row(intent: Intent, lease: Lease) -> dict[str, Any]:
    if intent.link != lease.name:
        raise RefusedError(
            f"the lease {lease.name} is not one for corrections of {intent.link}: acquire the lease {intent.link}"
        )
    return {
        "id": intent.correction_id,
        "run_id": intent.run_id,
        "topic_partition": intent.partition,
        "link": intent.link,
        "aggregate_id": intent.aggregate_id,
        "basis_version": intent.basis_version,
        "state": CorrectionState.INTENDED,
        "token": lease.token,
    }


def _changed(record: CorrectionRecord) -> tuple[object, ...]:
    differing = json.dumps(record.differing) if record.differing else None
    return record.correction_id, record.partition, record.state, record.offset, record.reason, differing


def _record(row: Row[Any]) -> CorrectionRecord:
    return CorrectionRecord(
        correction_id=row.id,
        link=row.link,
        aggregate_id=row.aggregate_id,
        basis_version=row.basis_version,
        partition=row.topic_partition,
        run_id=row.run_id,
        state=CorrectionState(row.state),
        offset=row.topic_offset,
        reason=row.reason,
        intended_at=row.intended_at,
        changed_at=row.changed_at,
        differing=tuple(json.loads(row.differing or "[]")),
    )
