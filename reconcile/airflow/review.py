"""What a plan comes to before it is applied: what a person is asked, and why nothing is asked or applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reconcile.airflow.asked import Asked

if TYPE_CHECKING:
    from reconcile.domain.plan import Plan

APPROVE = "Approve"


def review(asked: Asked, plan: Plan, aggregates: Mapping[str, int]) -> dict[str, Any]:
    """Build how many corrections a plan has, whether a person has to approve, and why none may be applied.

    `aggregates` says how many each link has, of which `max_ratio` is a share.
    """
    numbers = {link.link: len(link.corrections) for link in plan.links}
    approval = [link.link for link in plan.links if link.approval and numbers[link.link]]
    reason = _reason(asked, plan, aggregates, numbers)
    return {
        "run_id": plan.run_id,
        "corrections": sum(numbers.values()),
        "skipped": reason,
        "needs_approval": reason is None and bool(approval),
        "subject": f"{plan.contract}: {sum(numbers.values()):,} corrections",
        "body": _body(plan),
    }


def over_caps(asked: Asked, aggregates: Mapping[str, int], numbers: Mapping[str, int]) -> list[str]:
    """Say which links would get more corrections than was asked for at most."""
    said = []
    for link, number in numbers.items():
        if asked.max_corrections is not None and number > asked.max_corrections:
            said.append(f"{link}: {number:,} corrections, and at most {asked.max_corrections:,} were asked for")
        if asked.max_ratio is not None and number > asked.max_ratio * aggregates.get(link, 0):
            said.append(f"{link}: {number:,} corrections are more than {asked.max_ratio:.2%} of its aggregates")
    return said


def not_applied(reviewed: Mapping[str, Any], decision: Mapping[str, Any] | None) -> str | None:
    """Say why nothing may be emitted; None only where nothing stands against it, or a person has said yes."""
    if reviewed["skipped"] is not None:
        return str(reviewed["skipped"])
    if not reviewed["needs_approval"]:
        return None
    if decision is None or list(decision.get("chosen_options") or ()) != [APPROVE]:
        return "the corrections were not approved"
    return None


def _reason(asked: Asked, plan: Plan, aggregates: Mapping[str, int], numbers: Mapping[str, int]) -> str | None:
    if reasons := plan.reasons:
        return "the plan is refused: " + "; ".join(reasons)
    if not any(numbers.values()):
        return "there is nothing that a correction could mend"
    if over := over_caps(asked, aggregates, numbers):
        return "; ".join(over)
    return None if asked.apply else "a dry run was asked for"


def _body(plan: Plan) -> str:
    lines = []
    for link in plan.links:
        counts = link.counts
        what = ", ".join(f"{counts[name]:,} {name}" for name in ("restate", "tombstone", "advice") if counts[name])
        readers = ", ".join(link.readers) or "nobody"
        lines.append(f"- **{link.link}**: {what or 'nothing'}; to `{link.topic}`, also read by {readers}")
        lines += [f"  - note: {each}" for each in link.warnings]
        causes = Counter(item.cause for item in link.corrections)
        lines += [f"  - {cause}: {number:,}" for cause, number in sorted(causes.items())]
    return "\n".join([*lines, "", f"`reconcile plan --run {plan.run_id}` shows it line by line."])
