"""How long the control store keeps what it knows, and how an aggregate is forgotten."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, delete, exists, func, select, update

from reconcile.control.database import Database, kept_id, now
from reconcile.control.tables import approval, correction, distribution, drift, finding, lease, request, run

_MAY_GO_ON = timedelta(days=1)
"""A run that has not ended goes on for so long, unless a lease says otherwise: one from the command line has none."""


class Retention:
    """What goes out of the control store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def going_on(self) -> frozenset[str]:
        """Query which runs go on: those that hold a lease, and those that began within a day and have not ended."""
        holders = select(lease.c.holder).where(lease.c.expires_at > now())
        begun = select(run.c.id).where(run.c.ended_at.is_(None), run.c.started_at > now(-_MAY_GO_ON))
        with self._database.reading() as connection:
            holding = {each.partition(" on ")[0] for each in connection.execute(holders).scalars()}
            return frozenset(holding.union(connection.execute(begun).scalars()))

    def prune(self, older_than: timedelta, kept: Collection[str], points: int, *, dry_run: bool) -> dict[str, int]:
        """Delete what is older, and count it by table; with `dry_run` only count.

        Findings that are open stay, and so do corrections that were emitted: by them the audit knows our own records in
        a topic. Runs stay that are `kept`, that have such corrections, or that are among the newest so many `points` of
        their contract's trend.
        """
        before = now(-older_than)
        gone = finding.c.state == "closed", finding.c.closed_at < before
        answered = request.c.state == "done", request.c.finished_at < before
        never = correction.c.state == "dropped", correction.c.topic_offset.is_(None), correction.c.changed_at < before
        with self._database.writing() as connection:
            counts = {
                "finding": _deleted(connection, finding, *gone),
                "request": _deleted(connection, request, *answered),
                "correction": _deleted(connection, correction, *never),
            }
            old = list(connection.execute(_old_runs(before, kept, points)).scalars())
            for table in (drift, distribution, approval):
                counts[table.name] = _deleted(connection, table, table.c.run_id.in_(old))
            counts[run.name] = _deleted(connection, run, run.c.id.in_(old))
            if dry_run:
                connection.rollback()
        return counts

    def forget(self, links: Collection[str], contract: str, ids: Collection[str]) -> dict[str, int]:
        """Delete what is known of aggregates on the links of a contract, and count the rows by table.

        A request for some aggregates loses them; one that asked for no others goes.
        """
        with self._database.writing() as connection:
            counts = {each.name: _deleted(connection, each, *_of(each, links, ids)) for each in (finding, correction)}
            asked = _requests(connection, contract, ids)
            for request_id, left in asked.items():
                if left:
                    connection.execute(update(request).where(request.c.id == request_id).values(ids=left))
                else:
                    connection.execute(delete(request).where(request.c.id == request_id))
            return {**counts, "request": len(asked)}

    def known(self, links: Collection[str], contract: str, ids: Collection[str]) -> dict[str, int]:
        """Count the rows that know of aggregates on the links of a contract, by table."""
        with self._database.reading() as connection:
            counts = {
                each.name: connection.execute(
                    select(func.count()).select_from(each).where(*_of(each, links, ids))
                ).scalar_one()
                for each in (finding, correction)
            }
            return {**counts, "request": len(_requests(connection, contract, ids))}


def _of(table: Table, links: Iterable[str], ids: Iterable[str]) -> tuple[ColumnElement[bool], ...]:
    return table.c.link.in_(list(links)), table.c.aggregate_id.in_([kept_id(each) for each in ids])


def _requests(connection: Connection, contract: str, ids: Collection[str]) -> Mapping[str, list[str]]:
    """Query the requests of a contract for aggregates, each with the others that it asks for."""
    rows = connection.execute(select(request.c.id, request.c.ids).where(request.c.contract == contract))
    wanted = set(ids)
    return {row.id: [each for each in row.ids if each not in wanted] for row in rows if wanted.intersection(row.ids)}


def _old_runs(before: now, kept: Collection[str], points: int) -> Select[Any]:
    newest = func.row_number().over(partition_by=run.c.contract, order_by=(run.c.started_at.desc(), run.c.id.desc()))
    of_all = run.c.links[(0, "asked")].as_integer().is_(None)
    ranked = select(run.c.id, newest.label("place")).where(run.c.ended_at.is_not(None), of_all).subquery()
    shown = select(ranked.c.id).where(ranked.c.place <= points)
    corrected = exists().where(correction.c.run_id == run.c.id)
    return select(run.c.id).where(
        run.c.started_at < before, run.c.id.not_in(list(kept)), run.c.id.not_in(shown), ~corrected
    )


def _deleted(connection: Connection, table: Table, *where: ColumnElement[bool]) -> int:
    return connection.execute(delete(table).where(*where)).rowcount
