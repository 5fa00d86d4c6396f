"""How far the distributions of values have moved from those of the runs before: as expectations, and to show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reconcile.contract.model import Consumer, Contract
from reconcile.control.run_record import DistributionPoint
from reconcile.domain import distribution
from reconcile.domain.distribution import RUNS, Change, Limits
from reconcile.quality.suites import Checked
from reconcile.report.model import Measured, MeasuredPoint

if TYPE_CHECKING:
    from reconcile.control.store import ControlStore

SUITE = "distributions"
"""The suite that these expectations are of; no file has it."""
SHOWN = 30
"""So many runs are in a picture."""

_TWO = 2


def checked(control: ControlStore, contract: Contract, consumer: Consumer, run_id: str) -> list[Checked]:
    """Hold the distributions of a link in a run against those of the runs before; nothing on its first night."""
    if consumer.distributions is None:
        return []
    link = contract.link(consumer)
    points = control.distributions.until(link, run_id, RUNS + 1)
    if len(points) < _TWO or points[-1].run_id != run_id:
        return []
    *before, now = points
    runs = "the run" if len(before) == 1 else f"the {len(before)} runs"
    return [
        Checked(
            suite=SUITE,
            link=link,
            expectation=f"distribution_of_{each.measure}" if each.measure != "rows" else "number_of_rows",
            columns=() if each.field is None else (each.field,),
            severity=consumer.distributions.severity,
            success=not each.drifted,
            why=f"compared with {runs} before; it may move by {each.limit * 100:.3g}%",
            rows=None,
            unexpected=None,
            exception=None,
            said=each.said,
        )
        for each in changes(consumer, now, before)
    ]


def measured(control: ControlStore, contract: Contract, consumer: Consumer, run_id: str) -> Iterator[Measured]:
    """Query how the distributions of a link have moved up to a run, measure by measure; nothing where none are kept."""
    points = control.distributions.until(contract.link(consumer), run_id, SHOWN)
    if not points or points[-1].run_id != run_id:
        return
    *before, now = points
    found = changes(consumer, now, before[-RUNS:]) if before else changes(consumer, now, [now])
    for each in found:
        yield Measured(
            link=contract.link(consumer),
            field=each.field,
            measure=each.measure,
            said=each.said if before else f"{each.said.partition(', usually')[0]}, for the first time",
            drifted=each.drifted,
            points=tuple(_points(each, points)),
        )


def changes(consumer: Consumer, now: DistributionPoint, before: list[DistributionPoint]) -> tuple[Change, ...]:
    """Compute how far the distributions have moved."""
    terms = consumer.distributions
    limits = Limits() if terms is None else Limits(terms.rows, terms.missing, terms.values)
    usual = {
        side: distribution.usual([each.sides[side] for each in before if side in each.sides])
        for side in now.sides
        if any(side in each.sides for each in before)
    }
    return distribution.changes(now.sides, usual, limits)


def _points(change: Change, points: list[DistributionPoint]) -> Iterator[MeasuredPoint]:
    for each in points:
        if (side := each.sides.get(change.side)) is None:
            continue
        field = None if change.field is None else side.field(change.field)
        if change.measure == "rows":
            yield MeasuredPoint(each.run_id, each.at, level=side.rows)
        elif field is not None and change.measure == "missing":
            yield MeasuredPoint(each.run_id, each.at, level=field.missing)
        elif field is not None and field.quantiles is not None:
            middle, tenth = len(field.quantiles) // 2, len(field.quantiles) // 10
            spread = field.quantiles[tenth], field.quantiles[-1 - tenth]
            yield MeasuredPoint(each.run_id, each.at, level=field.quantiles[middle], spread=spread)
        elif field is not None and field.shares is not None:
            yield MeasuredPoint(each.run_id, each.at, level=0.0, shares=dict(field.shares))
