"""Requests for runs, made from outside, each claimed by one holder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Row, select, update

from reconcile.config.yamlfile import quoted
from reconcile.control.database import Database, now
from reconcile.control.errors import RequestConflictError, TooManyRequestsError, UnknownRequestError
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
        most: int | None = None,
        most_of_one: int | None = None,
    ) -> RunRequest:
        """Queue a request; one that is there already stays as it is, so that it may be delivered again.

        Raises RequestConflictError if the one that is there asks for something else, TooManyRequestsError if `most` of
        its contract are not done, or `most_of_one` requester.
        """
        wanted = {"contract": contract, "ids": list(ids), "mode": mode, "apply": apply}
        statement = self._database.insert(requests).values(id=request_id, state="queued", requested_at=now(), **wanted)
        if requester.way == "cli":
            statement = statement.values(requested_by=requester.name, requested_sudo_user=requester.sudo_user)
        with self._database.writing() as connection:
            if most is not None and most_of_one is not None:
                _require_few(connection, request_id, contract, requester, most, most_of_one)
            connection.execute(statement.on_conflict_do_nothing(index_elements=["id"]))
            row = _row(connection, request_id)
        if different := [name for name, value in wanted.items() if row._mapping[name] != value]:
            others = " and ".join(different)
            raise RequestConflictError(
                f"the request {quoted(request_id)} is there, with another {others}: give the new one an id of its own"
            )
        return _request(row)

    def find(self, request_id: str) -> RunRequest:
        """Query a request; raise UnknownRequestError if there is none of this id."""
        with self._database.reading() as connection:
            return _request(_row(connection, request_id))

    def claim(self, holder: str) -> RunRequest | None:
        """Claim the request that this holder has not finished, else the oldest one queued; None if there is neither.

        Those that wait and ask for the same are claimed with it, and done with it. With corrections, the same person
        has to ask: who asked may not approve.
        """
        columns = requests.c
        queued = select(columns.id).where(columns.state == "queued").order_by(*_oldest)
        claim = update(requests).values(state="running", holder=holder, claimed_at=now()).returning(requests)
        with self._database.writing() as connection:
            running = select(requests).where(columns.state == "running", columns.holder == holder)
            row = connection.execute(running.order_by(*_oldest).limit(1)).one_or_none()
            if row is None:
                oldest = queued.limit(1).with_for_update(skip_locked=True).scalar_subquery()
                row = connection.execute(claim.where(columns.id == oldest)).one_or_none()
                if row is not None:
                    same = queued.where(*_asks_the_same(row)).with_for_update(skip_locked=True)
                    connection.execute(claim.where(columns.id.in_(same)))
        return None if row is None else _request(row)

    def requeue(self, request_id: str) -> RunRequest:
        """Put a claimed request back into the queue, because its holder is gone; one that is done stays done."""
        values = {"state": "queued", "holder": None, "claimed_at": None}
        return self._change(request_id, (requests.c.id == request_id) & (requests.c.state == "running"), values)

    def finish(self, request_id: str, run_id: str | None) -> RunRequest:
        """Write down that a request is done, and by which run; None where it was refused before one began.

        So are those that were claimed with it.
        """
        values = {"state": "done", "run_id": run_id, "finished_at": now()}
        holder = select(requests.c.holder).where(requests.c.id == request_id).scalar_subquery()
        together = (requests.c.state == "running") & (requests.c.holder == holder)
        which = (requests.c.id == request_id) & (requests.c.state != "done") | together
        return self._change(request_id, which, values)

    def _change(self, request_id: str, which: ColumnElement[bool], values: dict[str, Any]) -> RunRequest:
        with self._database.writing() as connection:
            connection.execute(update(requests).where(which).values(values))
            return _request(_row(connection, request_id))


_oldest = (requests.c.requested_at, requests.c.id)


def _asks_the_same(row: Row[Any]) -> list[ColumnElement[bool]]:
    wished = ["contract", "ids", "mode", "apply", *(["requested_by", "requested_sudo_user"] if row.apply else [])]
    return [requests.c[name].is_not_distinct_from(row._mapping[name]) for name in wished]


def _require_few(
    connection: Connection, request_id: str, contract: str, requester: Actor, most: int, most_of_one: int
) -> None:
    columns = requests.c
    statement = select(columns.id, columns.requested_by).where(columns.contract == contract, columns.state != "done")
    waiting = connection.execute(statement).all()
    if request_id in {each.id for each in waiting}:
        return
    by = requester.name if requester.way == "cli" else None
    of_one = sum(each.requested_by == by for each in waiting)
    if len(waiting) >= most or of_one >= most_of_one:
        count, of = (len(waiting), "") if len(waiting) >= most else (of_one, f" of {requester}")
        raise TooManyRequestsError(
            f"{count} requests{of} for {contract} are not done yet: ask again once they are, or raise `requests` in the"
            " settings"
        )


def _row(connection: Connection, request_id: str) -> Row[Any]:
    row = connection.execute(select(requests).where(requests.c.id == request_id)).one_or_none()
    if row is None:
        raise UnknownRequestError(f"the control store knows no request {quoted(request_id)}: queue it first")
    return row


def _request(row: Row[Any]) -> RunRequest:
    values = {**row._mapping, "ids": tuple(row.ids)}
    name, sudo_user = values.pop("requested_by"), values.pop("requested_sudo_user")
    return RunRequest(**values, requester=REQUEST_TOPIC if name is None else Actor(name, "cli", sudo_user))
