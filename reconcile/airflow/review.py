"""What tasks read and decide between a run's applications: the gate, the plan to approve, the report, the alerts.

Nothing is computed on Spark. A workspace that is a URI is read through Spark all the same: on `spark.master` of the
settings, within the task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from reconcile.airflow.installation import installation
from reconcile.airflow.scheduled_run import ScheduledRun
from reconcile.domain.approval import Actor
from reconcile.errors import RefusedError

if TYPE_CHECKING:
    from reconcile.domain.plan import Plan
    from reconcile.pipeline.handoffs import Summary, Verified
    from reconcile.quality.suites import Checked

APPROVE = "Approve"

_FAILED = ("partial", "refused", "unverified")


@dataclass(frozen=True)
class Alert:
    """One thing that somebody should look at."""

    kind: Literal["drift", "incomplete", "quality", "plan", "repair"]
    message: str


def read_failed_gate(scheduled_run: ScheduledRun) -> list[str]:
    """Read why a run may not go on: links that could not be read, and critical expectations that failed."""
    from reconcile.pipeline.handoffs import Quality, Summary
    from reconcile.quality.gate import against_repair

    with installation().run(scheduled_run.run_id) as (_, run, _settings):
        return [*_incomplete(run.read(Summary)), *against_repair(run.read(Quality).results)]


def read_review(scheduled_run: ScheduledRun) -> dict[str, Any]:
    """Read a run's plan and build its review."""
    from reconcile.domain.plan import aggregates
    from reconcile.pipeline.handoffs import Fence, Plan, Request, Summary
    from reconcile.pipeline.scope import scope_of

    with installation().run(scheduled_run.run_id) as (_, run, _settings):
        scope, links = scope_of(run, run.read(Request)), run.read(Summary).links
        rows = max(run.read(Fence).source.rows or 0, scope.aggregates)
        numbers = {each.link: aggregates(each.compared, rows, some=not scope.whole) for each in links}
        return review(scheduled_run, run.read(Plan), numbers)


def read_unrepaired(scheduled_run: ScheduledRun) -> list[str]:
    """Read on which links corrections failed."""
    from reconcile.pipeline.handoffs import Verified

    with installation().run(scheduled_run.run_id) as (_, run, _settings):
        return unrepaired(run.read(Verified))


def write_report(scheduled_run: ScheduledRun) -> dict[str, Any]:
    """Write a run's report; return its figures and alerts.

    Raises RefusedError if there is no such run, or it was not audited.
    """
    from reconcile.pipeline import stages as pipeline
    from reconcile.pipeline.handoffs import Plan, Summary, Verified, results_of
    from reconcile.pipeline.runs import contract_of
    from reconcile.pipeline.verdict import exit_code_with
    from reconcile.quality.gate import unmet

    with installation().run(scheduled_run.run_id) as (place, run, settings):
        summary, verified = run.read(Summary), run.read_if_there(Verified)
        report = pipeline.report(run, place, settings, contract_of(run))
        results, plan = results_of(run), run.read_if_there(Plan)
        names = ("link", "settled", "compared", "agreeing", "drifted", "latent", "in_flight")
        return {
            "run_id": run.id,
            "contract": summary.contract,
            "verdict": report.verdict,
            "complete": summary.complete,
            "exit_code": exit_code_with(summary.exit_code, len(unmet(results))),
            "links": [{name: getattr(each, name) for name in names} for each in summary.links],
            "repair": _repair(verified),
            "alerts": [asdict(each) for each in alerts(summary, results, plan, verified)],
        }


def review(scheduled_run: ScheduledRun, plan: Plan, aggregates: Mapping[str, int]) -> dict[str, Any]:
    """Build how many corrections a plan has, whether a person has to approve, and why none may be applied.

    `aggregates` says how many each link has, of which `max_ratio` is a share.
    """
    numbers = {link.link: len(link.corrections) for link in plan.links}
    reason = _reason(scheduled_run, plan, aggregates, numbers)
    return {
        "run_id": plan.run_id,
        "digest": plan.digest,
        "two_people": plan.two_people,
        "corrections": sum(numbers.values()),
        "skipped": reason,
        "needs_approval": reason is None and bool(plan.to_approve),
        "subject": f"{plan.contract}: {sum(numbers.values()):,} corrections",
        "body": _body(plan, scheduled_run.requester),
    }


def keep_approval(reviewed: Mapping[str, Any], user: Mapping[str, str] | None) -> None:
    """Keep that a user of Airflow approved the plan that was reviewed; raise RefusedError for one who may not."""
    from reconcile.control.store import open_control
    from reconcile.pipeline import approval

    if user is None:
        raise RefusedError("the corrections were approved, and Airflow does not say by whom")
    with open_control(installation().settings()) as control:
        approver, two_people = Actor(user["name"] or user["id"], "airflow"), reviewed["two_people"]
        approval.keep(control, reviewed["run_id"], reviewed["digest"], approver, two_people=two_people)


def not_applied(reviewed: Mapping[str, Any], decision: Mapping[str, Any] | None) -> str | None:
    """Choose the reason why nothing may be emitted; None if nothing prevents it, or a person approved."""
    if reviewed["skipped"] is not None:
        return str(reviewed["skipped"])
    if not reviewed["needs_approval"]:
        return None
    if decision is None or list(decision.get("chosen_options") or ()) != [APPROVE]:
        return "the corrections were not approved"
    return None


def alerts(summary: Summary, results: Iterable[Checked], plan: Plan | None, verified: Verified | None) -> list[Alert]:
    """Build a run's alerts; a part is None as long as its stage was not reached."""
    from reconcile.quality.gate import against_repair

    return [
        *(Alert("incomplete", each) for each in _incomplete(summary)),
        *(Alert("quality", each) for each in against_repair(results)),
        *_drift(summary, verified),
        *(Alert("plan", f"the plan is refused: {reason}") for reason in (plan.reasons if plan is not None else ())),
        *(Alert("repair", each) for each in (unrepaired(verified) if verified is not None else ())),
    ]


def unrepaired(verified: Verified) -> list[str]:
    """Build a line for each link on which corrections failed."""
    lines = []
    for link in verified.links:
        failed = {name: link.outcomes.get(name, 0) for name in _FAILED}
        if any(failed.values()):
            figures = ", ".join(f"{number:,} {name}" for name, number in failed.items() if number)
            lines.append(f"{link.link}: {figures} of {sum(link.outcomes.values()):,} corrections")
    return lines


def _incomplete(summary: Summary) -> list[str]:
    return [f"{each.link} could not be read: {each.message}" for each in summary.unread]


def _drift(summary: Summary, verified: Verified | None) -> Iterable[Alert]:
    if verified is not None:
        for ended in verified.links:
            if ended.beyond_tolerance:
                yield Alert("drift", f"{ended.link}: {ended.still_different:,} still differ after the repair")
        return
    for link in summary.links:
        if link.beyond_tolerance:
            yield Alert("drift", f"{link.link}: {link.drifted:,} of {link.compared:,} differ")


def _repair(verified: Verified | None) -> dict[str, Any] | None:
    if verified is None:
        return None
    links = {each.link: {"outcomes": each.outcomes, "left": each.still_different} for each in verified.links}
    return {"exit_code": verified.exit_code, "links": links}


def _reason(
    scheduled_run: ScheduledRun, plan: Plan, aggregates: Mapping[str, int], numbers: Mapping[str, int]
) -> str | None:
    if reasons := plan.reasons:
        return "the plan is refused: " + "; ".join(reasons)
    if not any(numbers.values()):
        return "there is nothing that a correction could mend"
    if over := "; ".join(_over_caps(scheduled_run, aggregates, numbers)):
        return over
    return None if scheduled_run.apply else "a dry run was asked for"


def _over_caps(scheduled_run: ScheduledRun, aggregates: Mapping[str, int], numbers: Mapping[str, int]) -> Iterable[str]:
    most, ratio = scheduled_run.max_corrections, scheduled_run.max_ratio
    for link, number in numbers.items():
        if most is not None and number > most:
            yield f"{link}: {number:,} corrections, and at most {most:,} were asked for"
        if ratio is not None and number > ratio * aggregates.get(link, 0):
            yield f"{link}: {number:,} corrections are more than {ratio:.2%} of its aggregates"


def _body(plan: Plan, requester: Actor | None) -> str:
    lines = []
    for link in plan.links:
        counts = link.counts
        what = ", ".join(
            f"{counts[name]:,} {name}" for name in ("restate", "compensate", "tombstone", "advice") if counts[name]
        )
        lines.append(f"- **{link.link}**: {what or 'nothing'}; to `{link.topic}`, also read by {link.also_read_by}")
        lines += [f"  - note: {each}" for each in link.warnings]
        causes = Counter(item.cause for item in link.corrections)
        lines += [f"  - {cause}: {number:,}" for cause, number in sorted(causes.items())]
    if plan.two_people:
        lines += ["", f"It needs two people: {requester or 'nobody known'} asked for it, and somebody else approves."]
    return "\n".join([*lines, "", f"`reconcile plan {plan.run_id}` shows it line by line."])
