"""What people have to be told of a run: drift that is left, an incomplete run, a repair that failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from reconcile.domain.plan import Plan
    from reconcile.pipeline.handoffs import Summary, Verified
    from reconcile.quality.suites import Checked

Kind = Literal["drift", "incomplete", "quality", "plan", "repair"]

_FAILED = ("refused", "unverified")


@dataclass(frozen=True)
class Alert:
    """One thing that somebody should look at."""

    kind: Kind
    message: str


def alerts(summary: Summary, results: Iterable[Checked], plan: Plan | None, verified: Verified | None) -> list[Alert]:
    """List what people have to be told of a run; a part is None as long as its stage was not reached."""
    from reconcile.quality.gate import against_repair

    return [
        *(Alert("incomplete", f"{each.link} could not be read: {each.message}") for each in summary.unread),
        *(Alert("quality", each) for each in against_repair(results)),
        *_drift(summary, verified),
        *(Alert("plan", f"the plan is refused: {reason}") for reason in (plan.reasons if plan is not None else ())),
        *(Alert("repair", each) for each in (unrepaired(verified) if verified is not None else ())),
    ]


def unrepaired(verified: Verified) -> list[str]:
    """Say of which links corrections did not help, and how many."""
    said = []
    for link in verified.links:
        failed = {name: link.outcomes.get(name, 0) for name in _FAILED}
        if any(failed.values()):
            figures = ", ".join(f"{number:,} {name}" for name, number in failed.items() if number)
            said.append(f"{link.link}: {figures} of {sum(link.outcomes.values()):,} corrections")
    return said


def _drift(summary: Summary, verified: Verified | None) -> Iterable[Alert]:
    if verified is not None:
        for ended in verified.links:
            if ended.beyond_tolerance:
                yield Alert("drift", f"{ended.link}: {ended.still_different:,} still differ after the repair")
        return
    for link in summary.links:
        if link.beyond_tolerance:
            yield Alert("drift", f"{link.link}: {link.drifted:,} of {link.compared:,} differ")
