"""Who asks for a run, who approves its plan, and whether what is to be emitted is what was approved."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from reconcile.domain.approval import Actor, Approval
from reconcile.errors import RefusedError

if TYPE_CHECKING:
    from reconcile.control.store import ControlStore
    from reconcile.domain.plan import Plan
    from reconcile.pipeline.job import Job


class NotApprovedError(RefusedError):
    """Raised when nobody has said yes to a plan that needs it."""


class PlanReplacedError(RefusedError):
    """Raised when the plan is not the one that was approved: review it, and approve it again."""


def os_user() -> Actor:
    """Read which user of this machine runs this process: from the system, for anybody can write an environment."""
    uid, sudo_user = os.getuid(), os.environ.get("SUDO_USER") or None
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:  # as in a container that is run as any user
        name = f"uid {uid}"
    if sudo_user is not None and not sudo_user.isprintable():
        sudo_user = ascii(sudo_user)
    return Actor(name, "cli", None if sudo_user == name else sudo_user)


def approve(job: Job, plan: Plan, approver: Actor) -> None:
    """Keep that somebody approved a run's plan."""
    from reconcile.control.store import open_control
    from reconcile.pipeline.record import begin

    with open_control(job.settings) as control:
        begin(control, job)
        control.approvals.keep(plan.run_id, plan.digest, approver)


def is_awaited(job: Job, plan: Plan) -> bool:
    """Query whether a plan needs an approval that nobody has given."""
    from reconcile.control.store import open_control

    if not plan.to_approve:
        return False
    with open_control(job.settings) as control:
        return not any(each.plan_digest == plan.digest for each in control.approvals.of_run(plan.run_id))


def require_approved(control: ControlStore, plan: Plan) -> tuple[Approval, ...]:
    """Query who approved a plan.

    Raises NotApprovedError if it needs an approval that nobody has given, PlanReplacedError if it was given to another
    plan of the run.
    """
    kept = control.approvals.of_run(plan.run_id)
    given = tuple(each for each in kept if each.plan_digest == plan.digest)
    if given or not plan.to_approve:
        return given
    if kept:
        last = kept[-1]
        raise PlanReplacedError(
            f"the plan of the run {plan.run_id} is not the one that {last.approver} approved at"
            f" {last.approved_at:%Y-%m-%d %H:%M:%S} UTC: it was made anew. Review it with"
            f" `reconcile plan --run {plan.run_id}`, and approve it again"
        )
    raise NotApprovedError(
        f"{', '.join(plan.to_approve)}: the contract asks for approval (repair.approval): review the plan with"
        f" `reconcile plan --run {plan.run_id}`, and say --yes"
    )
