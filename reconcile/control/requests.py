"""Requests for runs, made from outside, each claimed by one holder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, select, update

from reconcile.control.database import Database, now
from reconcile.control.errors import RequestConflictError, UnknownRequestError
from reconcile.control.tables import request as requests
from reconcile.domain.approval import REQUEST_TOPIC, Actor

Mode = Literal["auto", "digest", "full"]


@dataclass(frozen=True)
class RunRequest:
    """A request for a run."""

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
    requester: Actor
    """The user of a machine who asked, or the topic where a record alone did."""


class Requests:
    """The queue of requests for runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def queue(
        self,
        request_id: str,
        contract: str,
        ids: Sequence[str] = (),
        mode: Mode = "auto",
        *,
        apply: bool = False,
        requester: Actor = REQUEST_TOPIC,
    ) -> RunRequest:
        """Queue a request; one that is there already stays as it is, so that it may be delivered again.

        Raises RequestConflictError if the one that is there asks for something else.
        """
        wanted = {"contract": contract, "ids": list(ids), "mode": mode, "apply": apply}
        statement = self._database.insert(requests).values(id=request_id, state="queued", requested_at=now(), **wanted)
        if requester.way == "cli":
            statement = statement.values(requested_by=requester.name, requested_sudo_user=requester.sudo_user)
        with self._database.writing() as connection:
            connection.execute(statement.on_conflict_do_nothing(index_elements=["id"]))
            row = _row(connection, request_id)
        if different := [name for name, value in wanted.items() if row._mapping[name] != value]:
            raise RequestConflictError(
                f"the request {request_id} is there, with another {' and '.join(different)}: give the new one an id of"
                " its own"
            )
        return _request(row)

    def find(self, request_id: str) -> RunRequest:
        """Query a request; raise UnknownRequestError if there is none of this id."""
        with self._database.reading() as connection:
            return _request(_row(connection, request_id))

    def claim(self, holder: str) -> RunRequest | None:
        """Claim the request that this holder has not finished, else the oldest one queued; None if there is neither."""
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

    def requeue(self, request_id: str) -> RunRequest:
        """Put a claimed request back into the queue, because its holder is gone; one that is done stays done."""
        values = {"state": "queued", "holder": None, "claimed_at": None}
        return self._change(request_id, requests.c.state == "running", values)

    def finish(self, request_id: str, run_id: str | None) -> RunRequest:
        """Write down that a request is done, and by which run; None where it was refused before one began."""
        values = {"state": "done", "run_id": run_id, "finished_at": now()}
        return self._change(request_id, requests.c.state != "done", values)

    def _change(self, request_id: str, when: ColumnElement[bool], values: dict[str, Any]) -> RunRequest:
        with self._database.writing() as connection:
            connection.execute(update(requests).where(requests.c.id == request_id, when).values(values))
            return _request(_row(connection, request_id))


def _row(connection: Connection, request_id: str) -> Row[Any]:
    row = connection.execute(select(requests).where(requests.c.id == request_id)).one_or_none()
    if row is None:
        raise UnknownRequestError(f"the control store knows no request {request_id}: queue it first")
    return row


def _request(row: Row[Any]) -> RunRequest:
    values = {**row._mapping, "ids": tuple(row.ids)}
    name, sudo_user = values.pop("requested_by"), values.pop("requested_sudo_user")
    return RunRequest(**values, requester=REQUEST_TOPIC if name is None else Actor(name, "cli", sudo_user))
