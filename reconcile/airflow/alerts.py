"""What people have to be told of a run: drift that is left, an incomplete run, a repair that failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["drift", "incomplete", "quality", "plan", "repair"]

_FAILED = ("refused", "unverified")


@dataclass(frozen=True)
class Alert:
    """One thing that somebody should look at."""

    kind: Kind
    message: str


def alerts(
    summary: Mapping[str, Any],
    quality: Mapping[str, Any] | None,
    plan: Mapping[str, Any] | None,
    verified: Mapping[str, Any] | None,
) -> list[Alert]:
    """Say what of a run is to be told; each part is None as long as its stage was not reached."""
    return [
        *(Alert("incomplete", f"{each['link']} could not be read: {each['message']}") for each in summary["unread"]),
        *_unmet(quality),
        *_drift(summary, verified),
        *(Alert("plan", f"the plan is refused: {reason}") for reason in refusals(plan)),
        *_unrepaired(verified),
    ]


def refusals(plan: Mapping[str, Any] | None) -> list[str]:
    """Say why nothing of a plan may be applied."""
    if plan is None:
        return []
    return [*plan["refused"], *(f"{link['link']}: {each}" for link in plan["links"] for each in link["refused"])]


def unrepaired(verified: Mapping[str, Any]) -> list[str]:
    """Say of which links corrections did not help, and how many."""
    said = []
    for link in verified["links"]:
        failed = {name: link["outcomes"].get(name, 0) for name in _FAILED}
        if any(failed.values()):
            figures = ", ".join(f"{number:,} {name}" for name, number in failed.items() if number)
            said.append(f"{link['link']}: {figures} of {sum(link['outcomes'].values()):,} corrections")
    return said


def _unmet(quality: Mapping[str, Any] | None) -> Iterable[Alert]:
    from reconcile.report.expectations import against_repair

    return (Alert("quality", each) for each in against_repair(quality))


def _unrepaired(verified: Mapping[str, Any] | None) -> Iterable[Alert]:
    return (Alert("repair", each) for each in (unrepaired(verified) if verified is not None else ()))


def _drift(summary: Mapping[str, Any], verified: Mapping[str, Any] | None) -> Iterable[Alert]:
    if verified is not None:
        for link in verified["links"]:
            if link["beyond_tolerance"]:
                yield Alert("drift", f"{link['link']}: {link['left']:,} still differ after the repair")
        return
    for link in summary["links"]:
        if link["beyond_tolerance"]:
            yield Alert("drift", f"{link['link']}: {link['drifted']:,} of {link['compared']:,} differ")
