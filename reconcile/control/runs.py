"""Runs: which there were, how far they came and what they found, also link by link over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, get_args

from sqlalchemy import Connection, Row, select, update

from reconcile.control.database import Database, now
from reconcile.control.errors import RunConflictError, UnknownRunError
from reconcile.control.tables import drift, run
from reconcile.workspace.manifest import Stage

_STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True)
class LinkFigures:
    """What a run found on one link."""

    link: str
    settled: bool
    compared: int
    agreeing: int
    findings: int
    by_cause: Mapping[str, int]
    by_difference: Mapping[str, int]
    in_flight: int
    asked: int | None = None
    """How many aggregates it was asked for; None for all."""


@dataclass(frozen=True)
class RunRecord:
    """A run as the control store knows it; what only its end tells is None until then."""

    id: str
    contract: str
    contract_digest: str
    started_at: datetime
    ended_at: datetime | None
    stage: Stage | None
    """The furthest stage that it reached."""
    complete: bool | None
    exit_code: int | None
    links: tuple[LinkFigures, ...]


@dataclass(frozen=True)
class Drift:
    """How a run changed what is known of a link's findings."""

    complete: bool
    """Whether all that was in scope was read, so that what was not seen any more was closed."""
    opened: int
    """Findings that no run had seen before."""
    returned: int
    """Findings that came back after they were closed or repaired."""
    closed: int
    """Findings that were not there any more."""
    still_open: int
    """All that were open afterwards, those of earlier runs included."""


@dataclass(frozen=True)
class DriftPoint:
    """What one run found on one link, and what that changed; `drift` is None where nothing was recorded."""

    run_id: str
    started_at: datetime
    complete: bool
    figures: LinkFigures
    drift: Drift | None


def link_figures(data: Mapping[str, Any]) -> LinkFigures:
    """Take a link's figures out of data that may say more."""
    return LinkFigures(**{each.name: data[each.name] for each in fields(LinkFigures) if each.name in data})


class Runs:
    """The part of the control store that knows runs."""

    _database: Database

    def begin_run(self, run_id: str, contract: str, contract_digest: str) -> RunRecord:
        """Write down that a run begins; one that has begun already stays as it is.

        Raises RunConflictError if a run of this id is one of another contract, or of another state of it.
        """
        with self._database.writing() as connection:
            statement = self._database.insert(run).values(
                id=run_id, contract=contract, contract_digest=contract_digest, started_at=now(), links=[]
            )
            connection.execute(statement.on_conflict_do_nothing(index_elements=["id"]))
            record = _record(begun(connection, run_id))
        if (record.contract, record.contract_digest) != (contract, contract_digest):
            raise RunConflictError(
                f"the run {run_id} is of the contract {record.contract} ({record.contract_digest[:12]}), not of"
                f" {contract} ({contract_digest[:12]}): start a new run"
            )
        return record

    def reach_stage(self, run_id: str, stage: Stage) -> None:
        """Write down that a run has come to a stage; raise UnknownRunError if it has not begun."""
        with self._database.writing() as connection:
            furthest = _furthest(begun(connection, run_id).stage, stage)
            connection.execute(update(run).where(run.c.id == run_id).values(stage=furthest))

    def end_run(
        self, run_id: str, stage: Stage, *, complete: bool, exit_code: int, links: Sequence[LinkFigures]
    ) -> RunRecord:
        """Write down how a run ended; the last word counts. Raises UnknownRunError if it has not begun."""
        with self._database.writing() as connection:
            furthest = _furthest(begun(connection, run_id).stage, stage)
            figures = [_data(each) for each in links]
            values = {"stage": furthest, "complete": complete, "exit_code": exit_code, "links": figures}
            connection.execute(update(run).where(run.c.id == run_id).values(ended_at=now(), **values))
            return _record(begun(connection, run_id))

    def runs(self, contract: str | None = None, limit: int = 50) -> list[RunRecord]:
        """Give runs, newest first, of one contract or of all."""
        statement = select(run).order_by(run.c.started_at.desc(), run.c.id.desc()).limit(limit)
        if contract is not None:
            statement = statement.where(run.c.contract == contract)
        with self._database.reading() as connection:
            return [_record(row) for row in connection.execute(statement)]

    def run(self, run_id: str) -> RunRecord:
        """Give a run; raise UnknownRunError if it has not begun."""
        with self._database.reading() as connection:
            return _record(begun(connection, run_id))

    def history(self, contract: str, limit: int = 50) -> list[DriftPoint]:
        """Give what the last runs of a contract that ended found, link by link, oldest first.

        Runs that were asked for some aggregates alone are left out.
        """
        of_all = run.c.links[(0, "asked")].as_integer().is_(None)
        statement = select(run).where(run.c.contract == contract, run.c.ended_at.is_not(None), of_all)
        statement = statement.order_by(run.c.started_at.desc(), run.c.id.desc()).limit(limit)
        with self._database.reading() as connection:
            records = [_record(row) for row in connection.execute(statement)][::-1]
            rows = connection.execute(select(drift).where(drift.c.run_id.in_([record.id for record in records])))
            changes = {(row.run_id, row.link): drift_of(row) for row in rows}
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


def begun(connection: Connection, run_id: str) -> Row[Any]:
    """Give the row of a run; raise UnknownRunError if it has not begun."""
    row = connection.execute(select(run).where(run.c.id == run_id)).one_or_none()
    if row is None:
        raise UnknownRunError(f"the control store knows no run {run_id}: begin it first")
    return row


def drift_of(row: Row[Any]) -> Drift:
    """Give what a row of the table says."""
    return Drift(row.complete, row.opened, row.returned, row.closed, row.still_open)


def _data(figures: LinkFigures) -> dict[str, Any]:
    return {**vars(figures), "by_cause": dict(figures.by_cause), "by_difference": dict(figures.by_difference)}


def _furthest(reached: Stage | None, stage: Stage) -> Stage:
    return stage if reached is None else max(reached, stage, key=_STAGES.index)


def _record(row: Row[Any]) -> RunRecord:
    return RunRecord(**{**row._mapping, "links": tuple(link_figures(each) for each in row.links)})
