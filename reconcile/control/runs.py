"""Runs: which there were, how far they came and what they found, also link by link over time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select, update

from reconcile.control.database import Database, now
from reconcile.control.errors import RunConflictError, RunNotBegunError
from reconcile.control.run_record import Drift, DriftPoint, LinkFigures, RunRecord, link_figures
from reconcile.control.tables import drift, run
from reconcile.domain.approval import Actor


class Runs:
    """All runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, run_id: str, contract: str, contract_digest: str, requester: Actor | None = None) -> RunRecord:
        """Write down that a run begins, and who asked for it; one that has begun already stays as it is.

        Raises RunConflictError if a run of this id is one of another contract, or of another state of it.
        """
        with self._database.writing() as connection:
            values = {"id": run_id, "contract": contract, "contract_digest": contract_digest, "links": []}
            statement = self._database.insert(run).values(**values, started_at=now(), **_columns(requester))
            connection.execute(statement.on_conflict_do_nothing(index_elements=["id"]))
            record = _record(require_begun(connection, run_id))
        if (record.contract, record.contract_digest) != (contract, contract_digest):
            raise RunConflictError(
                f"the run {run_id} is of the contract {record.contract} ({record.contract_digest[:12]}), not of"
                f" {contract} ({contract_digest[:12]}): start a new run"
            )
        return record

    def reach(self, run_id: str, stage: str, earlier: Collection[str]) -> None:
        """Write down that a run has come to a stage, unless it has come further than the stages before that one.

        Raises RunNotBegunError if it has not begun.
        """
        with self._database.writing() as connection:
            require_begun(connection, run_id)
            further = run.c.id == run_id, run.c.stage.is_(None) | run.c.stage.in_(earlier)
            connection.execute(update(run).where(*further).values(stage=stage))

    def end(self, run_id: str, *, complete: bool, exit_code: int, links: Sequence[LinkFigures]) -> RunRecord:
        """Write down how a run ended; the last word counts. Raises RunNotBegunError if it has not begun."""
        values = {"complete": complete, "exit_code": exit_code, "links": [_data(each) for each in links]}
        with self._database.writing() as connection:
            require_begun(connection, run_id)
            connection.execute(update(run).where(run.c.id == run_id).values(ended_at=now(), **values))
            return _record(require_begun(connection, run_id))

    def find(self, run_id: str) -> RunRecord:
        """Query a run; raise RunNotBegunError if it has not begun."""
        with self._database.reading() as connection:
            return _record(require_begun(connection, run_id))

    def drift(self, run_id: str) -> dict[str, Drift]:
        """Query what a run changed among the findings over time, by link."""
        with self._database.reading() as connection:
            rows = connection.execute(select(drift).where(drift.c.run_id == run_id))
            return {row.link: _drift(row) for row in rows}

    def history(self, contract: str, limit: int = 50) -> list[DriftPoint]:
        """Query what the last runs of a contract that ended found, link by link, oldest first.

        Runs that were asked for some aggregates alone are left out.
        """
        of_all = run.c.links[(0, "asked")].as_integer().is_(None)
        statement = select(run).where(run.c.contract == contract, run.c.ended_at.is_not(None), of_all)
        statement = statement.order_by(run.c.started_at.desc(), run.c.id.desc()).limit(limit)
        with self._database.reading() as connection:
            records = [_record(row) for row in connection.execute(statement)][::-1]
            rows = connection.execute(select(drift).where(drift.c.run_id.in_([record.id for record in records])))
            changes = {(row.run_id, row.link): _drift(row) for row in rows}
        return [
            DriftPoint(
                run_id=record.id,
                started_at=record.started_at,
                complete=bool(record.complete),
                figures=figures,
                drift=changes.get((record.id, figures.link)),
            )
            for record in records
            for figures in record.links
        ]


def require_begun(connection: Connection, run_id: str) -> Row[Any]:
    """Query the row of a run; raise RunNotBegunError if it has not begun."""
    row = connection.execute(select(run).where(run.c.id == run_id)).one_or_none()
    if row is None:
        raise RunNotBegunError(f"the control store knows no run {run_id}: begin it first")
    return row


def _drift(row: Row[Any]) -> Drift:
    return Drift(row.complete, row.opened, row.returned, row.closed, row.still_open)


def _data(figures: LinkFigures) -> dict[str, Any]:
    return {**vars(figures), "by_cause": dict(figures.by_cause), "by_difference": dict(figures.by_difference)}


def _record(row: Row[Any]) -> RunRecord:
    values = {**row._mapping, "links": tuple(link_figures(each) for each in row.links)}
    name, way, sudo_user = (values.pop(each) for each in _columns(None))
    return RunRecord(**values, requester=None if name is None else Actor(name, way, sudo_user))


def _columns(requester: Actor | None) -> dict[str, str | None]:
    name, way, sudo_user = (None,) * 3 if requester is None else (requester.name, requester.way, requester.sudo_user)
    return {"requested_by": name, "requested_way": way, "requested_sudo_user": sudo_user}
