"""Who asks for runs and who approves plans, and whether the two may be one person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Way = Literal["cli", "airflow", "schedule", "request"]


@dataclass(frozen=True)
class Actor:
    """A person, or a program, that asks for a run or approves a plan."""

    name: str
    way: Way
    """The command line, a user of Airflow, its scheduler, or a record on the request topic."""
    sudo_user: str | None = None
    """Who became this user, as sudo says. Anybody can write that, so it never makes two people of one."""

    def __str__(self) -> str:
        by = f", by sudo from {self.sudo_user}" if self.sudo_user else ""
        return f"{self.name} ({self.way}{by})"

    def may_be(self, other: Actor) -> bool:
        """Tell whether both may be the same person: they share a name, wherever it is one."""
        return bool({self.name, self.sudo_user} & {other.name, other.sudo_user} - {None})


SCHEDULER = Actor("the scheduler", "schedule")
REQUEST_TOPIC = Actor("the request topic", "request")


@dataclass(frozen=True)
class Approval:
    """A person's yes to one plan of a run."""

    run_id: str
    plan_digest: str
    """The digest of all that the plan said: a plan with another one is not approved."""
    approver: Actor
    approved_at: datetime
