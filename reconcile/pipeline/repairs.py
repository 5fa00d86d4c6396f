"""What repair would do about findings, or did: read from the plan and from what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reconcile.report.model import Count, LinkRepair, Repair, RepairResult
from reconcile.workspace.run import Run

PLAN, APPLIED, VERIFIED = "plan", "applied", "verified"
_LEFT = ("advice", "left")


@dataclass(frozen=True)
class Repairs:
    """The plan of a run, and the last word on each of its corrections."""

    plan: Mapping[str, Any]
    states: Mapping[str, tuple[str, str | None]]
    """State and reason by the correction's id."""
    applied: bool
    verified: Mapping[str, Any] | None
    """What was seen of the corrections; None as long as nobody has looked."""

    @classmethod
    def of(cls, run: Run) -> Repairs | None:
        """Read them; give None for a run without a plan."""
        plan, applied, verified = (run.json_if_there(name) for name in (PLAN, APPLIED, VERIFIED))
        if plan is None:
            return None
        states = _of_applied(applied) | _of_verified(verified)
        return cls(plan, states, applied is not None, verified)

    def result(self) -> RepairResult:
        """Give what it comes to."""
        links = tuple(self._link(each) for each in self.plan["links"])
        return RepairResult(self.applied, self.verified is not None, tuple(self.plan["refused"]), links)

    def items(self) -> Iterator[dict[str, Any]]:
        """Give the items of the plan in their order."""
        for link in self.plan["links"]:
            yield from link["items"]

    def of_findings(self, ids: Mapping[str, set[str]]) -> dict[tuple[str, str], Repair]:
        """Give what is done about aggregates, by link and id."""
        return {
            (item["link"], item["aggregate_id"]): self.repair(item)
            for item in self.items()
            if item["aggregate_id"] in ids.get(item["link"], ())
        }

    def repair(self, item: Mapping[str, Any]) -> Repair:
        """Give what an item of the plan comes to."""
        state, why = self.states.get(item["correction_id"] or "", (None, None))
        return Repair(item["action"], item["reason"], item["topic"], tuple(item["partitions"]), state, why)

    def _link(self, link: Mapping[str, Any]) -> LinkRepair:
        items = link["items"]
        ended = Counter(self.states[each["correction_id"]][0] for each in items if each["correction_id"] in self.states)
        left = Counter(each["reason"] for each in items if each["action"] in _LEFT)
        return LinkRepair(
            link["link"],
            link["topic"],
            tuple(link["readers"]),
            tuple(Count(name, number) for name, number in link["counts"].items() if number),
            _ordered(ended),
            _ordered(left),
            tuple(link["refused"]),
            tuple(link["warnings"]),
        )


def _of_applied(applied: Mapping[str, Any] | None) -> dict[str, tuple[str, str | None]]:
    states: dict[str, tuple[str, str | None]] = {}
    for link in applied["links"] if applied is not None else ():
        states |= {each["correction_id"]: ("emitted", None) for each in link["emitted"]}
        states |= {each["correction_id"]: ("dropped", each["reason"]) for each in link["dropped"]}
    return states


def _of_verified(verified: Mapping[str, Any] | None) -> dict[str, tuple[str, str | None]]:
    return {
        each["correction_id"]: (each["outcome"], each["reason"])
        for link in (verified["links"] if verified is not None else ())
        for each in link["corrections"]
    }


def _ordered(counter: Counter[str]) -> tuple[Count, ...]:
    return tuple(Count(name, number) for name, number in sorted(counter.items(), key=lambda each: (-each[1], each[0])))
