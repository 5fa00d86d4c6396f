"""Who asks for a run, who approves its plan, and whether what is to be emitted is what was approved."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from reconcile.domain.approval import REQUEST_TOPIC, Actor, Approval
from reconcile.errors import RefusedError

if TYPE_CHECKING:
    from reconcile.control.store import ControlStore
    from reconcile.domain.plan import Plan
    from reconcile.pipeline.job import Job


class NotApprovedError(RefusedError):
    """Raised when nobody has said yes to a plan that needs it."""


class OwnRequestError(RefusedError):
    """Raised when who asked for a run approves its plan, and the contract wants two people: somebody else has to."""


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
    """Keep that somebody approved a run's plan.

    Raises OwnRequestError if the plan needs two people, this one asked for the run, and nobody else has approved it.
    """
    from reconcile.control.store import open_control
    from reconcile.pipeline.record import begin

    with open_control(job.settings) as control:
        begin(control, job)
        try:
            keep(control, plan.run_id, plan.digest, approver, two_people=plan.two_people)
        except OwnRequestError:
            if not _given(control, plan):
                raise


def keep(control: ControlStore, run_id: str, plan_digest: str, approver: Actor, *, two_people: bool) -> None:
    """Keep that somebody approved a plan; raise OwnRequestError if it needs two people, and this one asked for it."""
    if two_people:
        _require_other(control, run_id, approver)
    control.approvals.keep(run_id, plan_digest, approver)


def is_awaited(job: Job, plan: Plan, approver: Actor) -> bool:
    """Query whether a plan needs an approval that nobody has given; raise OwnRequestError if this one may not."""
    from reconcile.control.store import open_control

    if not plan.to_approve:
        return False
    with open_control(job.settings) as control:
        if _given(control, plan):
            return False
        if plan.two_people:
            _require_other(control, plan.run_id, approver)
        return True


def require_approved(control: ControlStore, plan: Plan) -> tuple[Approval, ...]:
    """Query who approved a plan.

    Raises NotApprovedError if it needs an approval that nobody has given, PlanReplacedError if it was given to another
    plan of the run.
    """
    given = _given(control, plan)
    if given or not plan.to_approve:
        return given
    if others := [each for each in control.approvals.of_run(plan.run_id) if each.plan_digest != plan.digest]:
        last = others[-1]
        raise PlanReplacedError(
            f"the plan of the run {plan.run_id} is not the one that {last.approver} approved at"
            f" {last.approved_at:%Y-%m-%d %H:%M:%S} UTC: it was made anew. Review it with"
            f" `reconcile plan {plan.run_id}`, and approve it again"
        )
    who = " by somebody who did not ask for the run" if plan.two_people else ""
    raise NotApprovedError(
        f"{', '.join(plan.to_approve)}: the contract asks for approval{who} (repair.approval): review the plan with"
        f" `reconcile plan {plan.run_id}`, and say --yes"
    )


def _given(control: ControlStore, plan: Plan) -> tuple[Approval, ...]:
    """Query the approvals of a plan that count: where it needs two people, not those of who asked for it."""
    given = tuple(each for each in control.approvals.of_run(plan.run_id) if each.plan_digest == plan.digest)
    if not (given and plan.two_people):
        return given
    requester = _known_requester(control, plan.run_id)
    return tuple(each for each in given if requester is not None and not requester.may_be(each.approver))


def _known_requester(control: ControlStore, run_id: str) -> Actor | None:
    """Query who asked for a run; None where nobody can tell: a record's author may be anybody, also who approves."""
    requester = control.runs.find(run_id).requester
    return None if requester == REQUEST_TOPIC else requester


def _require_other(control: ControlStore, run_id: str, approver: Actor) -> None:
    requester = _known_requester(control, run_id)
    if requester is None:
        raise OwnRequestError(
            f"nothing says who asked for the run {run_id}, and the contract wants another person to approve its plan"
            " (repair.approval: two-people): start a new run, or ask for it by `reconcile request`"
        )
    if requester.may_be(approver):
        raise OwnRequestError(
            f"{requester} asked for the run {run_id}, so that {approver} may not approve its plan: the contract wants"
            f" two people (repair.approval: two-people). Somebody else has to: `reconcile apply {run_id} --yes`"
        )
