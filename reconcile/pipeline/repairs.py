"""What repair would do about findings, or did: read from the plan and from the outcome of its corrections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reconcile.domain.plan import Item, LinkPlan, Plan
from reconcile.domain.plan_rules import Action
from reconcile.pipeline.finding_counts import ordered
from reconcile.pipeline.handoffs import Applied, Verified
from reconcile.report.model import Count, LinkRepair, Repair, RepairResult
from reconcile.workspace.run import Run

_NOT_REPAIRED = (Action.ADVICE, Action.NOT_REPAIRED)


@dataclass(frozen=True)
class Repairs:
    """The plan of a run, and the last word on each of its corrections."""

    plan: Plan
    states: Mapping[str, tuple[str, str | None]]
    """State and reason by the correction's id."""
    applied: Applied | None
    """None as long as nothing was applied."""
    verified: bool
    """Whether the outcome of the corrections was looked at."""

    @classmethod
    def of(cls, run: Run) -> Repairs | None:
        """Read them; None for a run without a plan."""
        plan = run.read_if_there(Plan)
        if plan is None:
            return None
        applied, verified = run.read_if_there(Applied), run.read_if_there(Verified)
        states: dict[str, tuple[str, str | None]] = {}
        for link in applied.links if applied is not None else ():
            states |= {each.correction_id: ("emitted", None) for each in link.emitted}
            states |= {each.correction_id: ("dropped", each.reason) for each in link.dropped}
        for seen in verified.links if verified is not None else ():
            states |= {each.correction_id: (each.outcome, each.reason) for each in seen.corrections}
        return cls(plan, states, applied, verified is not None)

    def result(self) -> RepairResult:
        """Build the figures of the plan and of its outcome."""
        links, applied = tuple(self._link(each) for each in self.plan.links), self.applied
        if applied is None:
            return RepairResult(False, self.verified, self.plan.refused, links)
        return RepairResult(True, self.verified, self.plan.refused, links, applied.requester, applied.approvals)

    def items(self) -> Iterator[Item]:
        """Iterate over the items of the plan in their order."""
        for link in self.plan.links:
            yield from link.items

    def of_findings(self, ids: Mapping[str, set[str]]) -> dict[tuple[str, str | None], Repair]:
        """Build the repair of aggregates, by link and id."""
        return {
            (item.link, item.aggregate_id): self.repair(item)
            for item in self.items()
            if item.aggregate_id is not None and item.aggregate_id in ids.get(item.link, ())
        }

    def repair(self, item: Item) -> Repair:
        """Build the repair of an item of the plan."""
        state, why = self.states.get(item.correction_id or "", (None, None))
        return Repair(item.action.value, item.reason, item.topic, item.partitions, state, why)

    def _link(self, link: LinkPlan) -> LinkRepair:
        ids = (each.correction_id for each in link.items)
        ended = Counter(self.states[each][0] for each in ids if each is not None and each in self.states)
        reasons = Counter(each.reason for each in link.items if each.action in _NOT_REPAIRED)
        actions = tuple(Count(name, number) for name, number in link.counts.items() if number)
        states, not_repaired = (tuple(Count(*each) for each in ordered(counted)) for counted in (ended, reasons))
        return LinkRepair(
            link.link, link.topic, link.readers, actions, states, not_repaired, link.refused, link.warnings
        )
