"""Findings over time: when drift was first seen, when it was gone, and what came back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    MetaData,
    Row,
    Table,
    Text,
    bindparam,
    case,
    exists,
    func,
    literal,
    select,
    true,
    update,
)

from reconcile.control.database import BATCH, AggregateId, Database, batches, kept_id, now
from reconcile.control.run_record import Drift
from reconcile.control.runs import require_begun
from reconcile.control.tables import drift, finding

_AT_ONCE = 1000

_staged = MetaData()
_seen_now = Table(
    "seen_now",
    _staged,
    Column("aggregate_id", AggregateId, primary_key=True),
    Column("difference", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("fields_digest", Text),
    prefixes=["temporary"],
)
_in_scope = Table("in_scope", _staged, Column("aggregate_id", AggregateId, primary_key=True), prefixes=["temporary"])


class Sighting(NamedTuple):
    """A finding as it is kept over time: no values of fields, only a digest of them."""

    aggregate_id: str
    difference: str
    cause: str
    fields_digest: str | None = None


@dataclass(frozen=True)
class Seen:
    """What earlier runs knew of a finding."""

    aggregate_id: str
    first_seen_run: str
    first_seen_at: datetime
    last_seen_run: str
    last_seen_at: datetime
    recurrences: int
    """In how many runs it was seen again after the first."""
    returned: int
    """How many times it came back after it was closed or repaired."""
    open: bool
    difference: str
    cause: str
    closed_by_run: str | None
    repaired_by: str | None
    """The last correction that repaired it."""


class Findings:
    """The findings of all links over time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(
        self,
        run_id: str,
        link: str,
        findings: Iterable[Sighting | tuple[str, str, str, str | None]],
        *,
        complete: bool,
        scope: Iterable[str] | None = None,
    ) -> Drift:
        """Take in what a run found on a link, whole or not at all, and say what that changes.

        What was open and is not among the findings is closed if the run read all, `complete`: every id, or with
        `scope` these ids. A run does not overrule what one that began later found of an id. Recording once
        more for the same run replaces nothing but what it said itself. Findings are taken in as they come, in
        constant memory. Raises RunNotBegunError if the run has not begun.
        """
        with self._database.reading() as connection:
            as_of = require_begun(connection, run_id).started_at
        with self._database.reading() as connection:
            _staged.create_all(connection, checkfirst=False)
            self._stage(connection, _seen_now, (dict(zip(Sighting._fields, each, strict=True)) for each in findings))
            if scope is not None:
                self._stage(connection, _in_scope, ({"aggregate_id": each} for each in scope))
            self._database.lock(connection, link)
            self._take_in(connection, run_id, link, as_of)
            if complete:
                _close(connection, run_id, link, as_of, scoped=scope is not None)
            changed = _count(connection, run_id, link, complete)
            values = {**asdict(changed), "recorded_at": now()}
            statement = self._database.insert(drift).values(link=link, run_id=run_id, **values)
            connection.execute(statement.on_conflict_do_update(index_elements=["link", "run_id"], set_=values))
            _staged.drop_all(connection, checkfirst=False)
        return changed

    def seen(self, link: str, ids: Collection[str]) -> Mapping[str, Seen]:
        """Query what is known of findings by id; ids that never drifted are left out."""
        known: dict[str, Seen] = {}
        with self._database.reading() as connection:
            for some in batches(ids, _AT_ONCE):
                statement = select(finding).where(finding.c.link == link, finding.c.aggregate_id.in_(some))
                given = {kept_id(each): each for each in some}
                for row in connection.execute(statement):
                    id_text = given[row.aggregate_id]
                    known[id_text] = _seen(row, id_text)
        return known

    def open_ids(self, links: Collection[str]) -> list[str]:
        """Query the ids of what is open on some links, each once, as they are kept."""
        statement = select(finding.c.aggregate_id).where(finding.c.link.in_(links), finding.c.state == "open")
        with self._database.reading() as connection:
            return list(connection.execute(statement.distinct()).scalars())

    def _stage(self, connection: Connection, table: Table, rows: Iterable[dict[str, str | None]]) -> None:
        statement = self._database.insert(table).on_conflict_do_nothing(index_elements=["aggregate_id"])
        for some in batches(rows, BATCH):
            connection.execute(statement, some)

    def _take_in(self, connection: Connection, run_id: str, link: str, as_of: datetime) -> None:
        columns: dict[str, ColumnElement[object]] = {
            "link": literal(link),
            **{column.name: column for column in _seen_now.columns},
            "first_seen_run": literal(run_id),
            "first_seen_at": literal(as_of, finding.c.as_of.type),
            "last_seen_run": literal(run_id),
            "last_seen_at": literal(as_of, finding.c.as_of.type),
            "recurrences": literal(0),
            "state": literal("open"),
            "returned": literal(0),
            "as_of": literal(as_of, finding.c.as_of.type),
        }
        statement = self._database.insert(finding).from_select(list(columns), select(*columns.values()).where(true()))
        new, old = statement.excluded, finding.c
        again = case((old.last_seen_run == new.last_seen_run, 0), else_=1)
        back = (old.state == "closed") & (old.closed_by_run != new.last_seen_run)
        replaced = ("difference", "cause", "fields_digest", "last_seen_run", "last_seen_at", "state", "as_of")
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["link", "aggregate_id"],
                set_={
                    **{name: new[name] for name in replaced},
                    "recurrences": old.recurrences + again,
                    "returned": old.returned + case((back, 1), else_=0),
                    "returned_run": case((back, new.last_seen_run), else_=old.returned_run),
                    "closed_by_run": None,
                    "closed_at": None,
                },
                where=old.as_of <= new.as_of,
            )
        )


def close_repaired(connection: Connection, link: str, run_id: str, repaired: Mapping[str, str]) -> None:
    """Close what corrections repaired; `repaired` gives the correction's id by the aggregate's."""
    if not repaired:
        return
    statement = update(finding).where(finding.c.link == link, finding.c.aggregate_id == bindparam("aggregate"))
    values = {
        "state": "closed",
        "closed_by_run": func.coalesce(finding.c.closed_by_run, run_id),
        "closed_at": func.coalesce(finding.c.closed_at, now()),
        "repaired_by": bindparam("correction"),
        "as_of": now(),
    }
    rows = [{"aggregate": aggregate, "correction": correction} for aggregate, correction in repaired.items()]
    connection.execute(statement.values(values), rows)


def _seen(row: Row[Any], id_text: str) -> Seen:
    names = (each.name for each in fields(Seen) if each.name not in ("aggregate_id", "open"))
    return Seen(id_text, **{name: row._mapping[name] for name in names}, open=row.state == "open")


def _close(connection: Connection, run_id: str, link: str, as_of: datetime, *, scoped: bool) -> None:
    gone = ~exists().where(_seen_now.c.aggregate_id == finding.c.aggregate_id)
    statement = update(finding).where(finding.c.link == link, finding.c.state == "open", finding.c.as_of <= as_of, gone)
    if scoped:
        statement = statement.where(exists().where(_in_scope.c.aggregate_id == finding.c.aggregate_id))
    connection.execute(statement.values(state="closed", closed_by_run=run_id, closed_at=as_of, as_of=as_of))


def _count(connection: Connection, run_id: str, link: str, complete: bool) -> Drift:
    counts = select(
        func.count().filter(finding.c.first_seen_run == run_id),
        func.count().filter(finding.c.returned_run == run_id),
        func.count().filter(finding.c.closed_by_run == run_id),
        func.count().filter(finding.c.state == "open"),
    )
    opened, returned, closed, still_open = connection.execute(counts.where(finding.c.link == link)).one()
    return Drift(complete, opened, returned, closed, still_open)
