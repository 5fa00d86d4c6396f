"""Approvals: who said yes to which plan, by what way and when."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, select

from reconcile.control.database import Database, now
from reconcile.control.runs import require_begun
from reconcile.control.tables import approval
from reconcile.domain.approval import Actor, Approval


class Approvals:
    """All approvals."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, run_id: str, plan_digest: str, approver: Actor) -> Approval:
        """Keep that somebody approved a plan of a run; saying so again changes nothing.

        Raises RunNotBegunError if the run has not begun.
        """
        key = {"run_id": run_id, "plan_digest": plan_digest, "approver": approver.name, "way": approver.way}
        statement = self._database.insert(approval).values(**key, sudo_user=approver.sudo_user, approved_at=now())
        with self._database.writing() as connection:
            require_begun(connection, run_id)
            connection.execute(statement.on_conflict_do_nothing(index_elements=list(key)))
            kept = select(approval).where(*(approval.c[name] == value for name, value in key.items()))
            return _approval(connection.execute(kept).one())

    def of_run(self, run_id: str) -> list[Approval]:
        """Query the approvals of all plans of a run, the first first."""
        statement = select(approval).where(approval.c.run_id == run_id)
        with self._database.reading() as connection:
            rows = connection.execute(statement.order_by(approval.c.approved_at, approval.c.approver))
            return [_approval(row) for row in rows]


def _approval(row: Row[Any]) -> Approval:
    return Approval(row.run_id, row.plan_digest, Actor(row.approver, row.way, row.sudo_user), row.approved_at)
