"""Corrections: what is to be emitted, written down before it is, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from sqlalchemy import Connection, Row, select, true, update

from reconcile.control.correction_state import (
    PENDING,
    Correction,
    Dropped,
    Emitted,
    Intent,
    State,
    Verified,
    dropped,
    emitted,
    verified,
)
from reconcile.control.database import Database, now
from reconcile.control.errors import CorrectionStateError
from reconcile.control.findings import BATCH, batches, close_repaired
from reconcile.control.leases import Lease, require_held
from reconcile.control.runs import begun
from reconcile.control.tables import correction
from reconcile.errors import RefusedError

_AT_ONCE = 1000
_KEY = ("run_id", "id", "topic_partition")
_INTENT = (*_KEY, "link", "aggregate_id", "basis_version", "state", "token")


class Corrections:
    """The part of the control store that knows corrections; only the holder of the link's lease may write here.

    A lease for corrections bears the link's name. Each call checks it and writes in one transaction, whole or not at
    all; a call that is repeated changes nothing. Raises LeaseLostError if the lease was lost.
    """

    _database: Database

    def intend(self, lease: Lease, intents: Iterable[Intent]) -> None:
        """Write down what is to be emitted, before it is; what stands stays as it is.

        Raises UnknownRunError if a run has not begun.
        """
        names = [*_INTENT, "intended_at", "changed_at"]
        known: set[str] = set()
        with self._database.writing() as connection:
            require_held(connection, lease)
            for some in batches(intents, BATCH):
                for run_id in {each.run_id for each in some} - known:
                    begun(connection, run_id)
                    known.add(run_id)
                given = self._database.given([correction.c[name] for name in _INTENT], (_row(e, lease) for e in some))
                rows = select(*given.c, now().label("intended_at"), now().label("changed_at")).where(true())
                statement = self._database.insert(correction).from_select(names, rows)
                connection.execute(statement.on_conflict_do_nothing(index_elements=_KEY))

    def mark_emitted(self, lease: Lease, run_id: str, records: Iterable[Emitted]) -> None:
        """Write down where intended records stand in their topic.

        Raises CorrectionStateError if one was not intended in that partition, or stands elsewhere.
        """
        placed = {(each.correction_id, each.partition): each for each in records}

        def changed(stands: Correction) -> Correction:
            record = placed.pop((stands.correction_id, stands.partition), None)
            return stands if record is None else emitted(stands, record)

        with self._database.writing() as connection:
            _change(self._database, connection, lease, run_id, [id_ for id_, _ in placed], changed)
            _refuse_unknown(run_id, [f"{id_} in the partition {partition}" for id_, partition in placed])

    def mark_verified(self, lease: Lease, run_id: str, outcomes: Iterable[Verified]) -> None:
        """Write down what became of emitted corrections; those that converged close their findings.

        One that is unverified may be looked at again. Raises CorrectionStateError if one was not emitted, or ended
        otherwise.
        """
        asked = {each.correction_id: each for each in outcomes}
        with self._database.writing() as connection:
            changes = _change(
                self._database,
                connection,
                lease,
                run_id,
                list(asked),
                lambda stands: verified(stands, asked[stands.correction_id]),
            )
            _refuse_unknown(run_id, sorted(asked.keys() - {after.correction_id for _, after in changes}))
            # What had converged before may have drifted once more since.
            repaired = [after for before, after in changes if after != before and after.state is State.CONVERGED]
            close_repaired(connection, lease.name, run_id, {each.aggregate_id: each.correction_id for each in repaired})

    def mark_dropped(self, lease: Lease, run_id: str, corrections: Iterable[Dropped]) -> None:
        """Write down that intended corrections are not emitted, and why.

        Raises CorrectionStateError if one was emitted.
        """
        asked = {each.correction_id: each for each in corrections}
        with self._database.writing() as connection:
            changes = _change(
                self._database,
                connection,
                lease,
                run_id,
                list(asked),
                lambda stands: dropped(stands, asked[stands.correction_id]),
            )
            _refuse_unknown(run_id, sorted(asked.keys() - {after.correction_id for _, after in changes}))

    def pending(self, link: str, run_id: str) -> list[Correction]:
        """Give a run's corrections that have not come to an end: to be emitted, or to be verified."""
        return [each for each in self.corrections(link, run_id) if each.state in PENDING]

    def corrections(self, link: str, run_id: str) -> list[Correction]:
        """Give all of a run's corrections, by partition and id."""
        columns = correction.c
        statement = select(correction).where(columns.run_id == run_id, columns.link == link)
        with self._database.reading() as connection:
            rows = connection.execute(statement.order_by(columns.topic_partition, columns.id))
            return [_correction(row) for row in rows]

    def emitted(self, links: Collection[str]) -> frozenset[tuple[str, int, int]]:
        """Give where corrections of links stand in their topic: aggregate, partition, offset."""
        columns = correction.c
        places = select(columns.aggregate_id, columns.topic_partition, columns.topic_offset)
        with self._database.reading() as connection:
            found = connection.execute(places.where(columns.link.in_(links), columns.topic_offset.is_not(None)))
            return frozenset((row.aggregate_id, row.topic_partition, row.topic_offset) for row in found)


def _change(
    database: Database,
    connection: Connection,
    lease: Lease,
    run_id: str,
    ids: list[str],
    changed: Callable[[Correction], Correction],
) -> list[tuple[Correction, Correction]]:
    """Change a run's records of these corrections; give each as it stood and as it stands."""
    require_held(connection, lease)
    columns = correction.c
    changes: list[tuple[Correction, Correction]] = []
    for some in batches(dict.fromkeys(ids), _AT_ONCE):
        statement = select(correction).where(columns.run_id == run_id, columns.link == lease.name, columns.id.in_(some))
        some_changes = [(each, changed(each)) for each in map(_correction, connection.execute(statement))]
        _write(database, connection, lease, run_id, (after for before, after in some_changes if after != before))
        changes += some_changes
    return changes


def _write(
    database: Database, connection: Connection, lease: Lease, run_id: str, records: Iterator[Correction]
) -> None:
    columns = correction.c
    names = ("id", "topic_partition", "state", "topic_offset", "reason")
    rows = [
        dict(zip(names, (each.correction_id, each.partition, each.state, each.offset, each.reason), strict=True))
        for each in records
    ]
    if rows:
        after = database.given([columns[name] for name in names], rows).c
        statement = update(correction).where(
            columns.run_id == run_id, columns.id == after.id, columns.topic_partition == after.topic_partition
        )
        changed = {"state": after.state, "topic_offset": after.topic_offset, "reason": after.reason}
        connection.execute(statement.values(**changed, token=lease.token, changed_at=now()))


def _refuse_unknown(run_id: str, ids: list[str]) -> None:
    if ids:
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        raise CorrectionStateError(f"the run {run_id} never intended the correction {ids[0]}{more}: intend it first")


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
        "state": State.INTENDED,
        "token": lease.token,
    }


def _correction(row: Row[Any]) -> Correction:
    return Correction(
        correction_id=row.id,
        link=row.link,
        aggregate_id=row.aggregate_id,
        basis_version=row.basis_version,
        partition=row.topic_partition,
        run_id=row.run_id,
        state=State(row.state),
        offset=row.topic_offset,
        reason=row.reason,
        intended_at=row.intended_at,
        changed_at=row.changed_at,
    )
