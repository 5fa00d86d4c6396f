"""Requests: runs that were asked for from outside, each claimed by one holder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, select, update

from reconcile.control.database import Database, now
from reconcile.control.errors import RequestConflictError, UnknownRequestError
from reconcile.control.tables import request as requests

Mode = Literal["auto", "digest", "full"]


@dataclass(frozen=True)
class Request:
    """A run that was asked for."""

    id: str
    contract: str
    ids: tuple[str, ...]
    """The aggregates that it is about; none means all."""
    mode: Mode
    apply: bool
    requested_at: datetime
    state: Literal["queued", "running", "done"]
    holder: str | None
    claimed_at: datetime | None
    run_id: str | None
    finished_at: datetime | None


class Requests:
    """The part of the control store that knows what was asked for."""

    _database: Database

    def request(
        self, request_id: str, contract: str, ids: Sequence[str] = (), mode: Mode = "auto", *, apply: bool = False
    ) -> Request:
        """Queue a request; one that is there already stays as it is, so that it may be delivered again.

        Raises RequestConflictError if the one that is there asks for something else.
        """
        asked = {"contract": contract, "ids": list(ids), "mode": mode, "apply": apply}
        statement = self._database.insert(requests).values(id=request_id, state="queued", requested_at=now(), **asked)
        with self._database.writing() as connection:
            connection.execute(statement.on_conflict_do_nothing(index_elements=["id"]))
            row = _row(connection, request_id)
        if different := [name for name, value in asked.items() if row._mapping[name] != value]:
            raise RequestConflictError(
                f"the request {request_id} is there, with another {' and '.join(different)}: give the new one an id of"
                " its own"
            )
        return _request(row)

    def request_of(self, request_id: str) -> Request:
        """Give a request; raise UnknownRequestError if there is none of this id."""
        with self._database.reading() as connection:
            return _request(_row(connection, request_id))

    def claim_next(self, holder: str) -> Request | None:
        """Give the request that this holder has not finished, else claim the oldest one queued, else None."""
        columns = requests.c
        queued = select(columns.id).where(columns.state == "queued").order_by(columns.requested_at, columns.id)
        claim = update(requests).values(state="running", holder=holder, claimed_at=now()).returning(requests)
        with self._database.writing() as connection:
            running = select(requests).where(columns.state == "running", columns.holder == holder)
            row = connection.execute(running.order_by(columns.claimed_at).limit(1)).one_or_none()
            if row is None:
                oldest = queued.limit(1).with_for_update(skip_locked=True).scalar_subquery()
                row = connection.execute(claim.where(columns.id == oldest)).one_or_none()
        return None if row is None else _request(row)

    def requeue(self, request_id: str) -> Request:
        """Give a claimed request back to the queue, because its holder is gone; one that is done stays done."""
        values = {"state": "queued", "holder": None, "claimed_at": None}
        return self._changed(request_id, requests.c.state == "running", values)

    def finish(self, request_id: str, run_id: str | None) -> Request:
        """Write down that a request is done, and by which run; None where it was refused before one began."""
        values = {"state": "done", "run_id": run_id, "finished_at": now()}
        return self._changed(request_id, requests.c.state != "done", values)

    def _changed(self, request_id: str, when: ColumnElement[bool], values: dict[str, Any]) -> Request:
        with self._database.writing() as connection:
            connection.execute(update(requests).where(requests.c.id == request_id, when).values(values))
            return _request(_row(connection, request_id))


def _row(connection: Connection, request_id: str) -> Row[Any]:
    row = connection.execute(select(requests).where(requests.c.id == request_id)).one_or_none()
    if row is None:
        raise UnknownRequestError(f"the control store knows no request {request_id}: queue it first")
    return row


def _request(row: Row[Any]) -> Request:
    return Request(**{**row._mapping, "ids": tuple(row.ids)})
