"""Drift over the runs of a contract: from the control store where it tells, else from the runs that are still there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from reconcile.contract.model import Contract
from reconcile.control.run_record import DriftPoint
from reconcile.errors import ReconcileError
from reconcile.pipeline.distributions import measured
from reconcile.pipeline.handoffs import Gathered, Request, Summary
from reconcile.pipeline.scope import scope_of
from reconcile.report.model import Known, Measured, Trend, TrendPoint
from reconcile.settings.connections import SqliteFile
from reconcile.settings.settings import Settings
from reconcile.workspace.manifest import DamagedArtifactError
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace

if TYPE_CHECKING:
    from reconcile.control.store import ControlStore

MOST = 50
_BARS = "▁▂▃▄▅▆▇█"


def trends(
    place: Workspace, settings: Settings, aggregate: str, until: datetime | None = None
) -> tuple[tuple[Trend, ...], tuple[str, ...]]:
    """Read drift over time, link by link, up to an instant; and notes on what is missing in it.

    Runs that looked at some aggregates alone do not take part.
    """
    points: dict[tuple[str, str], TrendPoint] = {}
    recorded, notes = _history(settings, aggregate)
    for each in recorded:
        points[each.figures.link, each.run_id] = _of_control(each)
    found, damaged = _summaries(place, aggregate)
    for run_id, summary in found:
        for one in summary.links:
            point = TrendPoint(
                run_id, summary.fence.opened_at, summary.complete, one.compared, one.drifted, escaped=one.escaped
            )
            points[one.link, run_id] = _joined(point, points.get((one.link, run_id)))
    if damaged:
        notes = (*notes, f"Damaged runs are not in the trend: {', '.join(damaged)}.")
    by_link: dict[str, list[TrendPoint]] = {}
    for (link, _), point in points.items():
        if until is None or point.at <= until:
            by_link.setdefault(link, []).append(point)
    ordered = {link: sorted(each, key=lambda point: (point.at, point.run_id))[-MOST:] for link, each in by_link.items()}
    return tuple(Trend(link, tuple(each)) for link, each in sorted(ordered.items())), notes


def known(settings: Settings, ids: Mapping[str, set[str]]) -> dict[tuple[str, str | None], Known]:
    """Query what earlier runs knew of aggregates, by link and id; nothing where the control store does not answer."""
    found: dict[tuple[str, str | None], Known] = {}
    try:
        with _control(settings) as control:
            if control is None:
                return found
            for link, some in ids.items():
                for id_, seen in control.findings.seen(link, some).items():
                    found[link, id_] = Known(seen.first_seen_at, seen.first_seen_run, seen.recurrences, seen.returned)
    except ReconcileError:
        return {}
    return found


def distributions_of(settings: Settings, contract: Contract, run: Run) -> tuple[Measured, ...]:
    """Query how the values were distributed up to a run; nothing where the control store does not answer."""
    kept = run.read_if_there(Gathered)
    links = {each.link for each in kept.links if each.distributions} if kept is not None else set()
    found: list[Measured] = []
    try:
        with _control(settings) as control:
            if control is not None:
                for each in contract.consumers:
                    if contract.link(each) in links:
                        found += measured(control, contract, each, run.id)
    except ReconcileError:
        return ()
    return tuple(found)


def sparkline(numbers: Iterable[int]) -> str:
    """Render numbers as a line of small bars, the highest as high as a letter."""
    given = list(numbers)
    most = max(given, default=0)
    return "".join(_BARS[0 if not most else -(-number * (len(_BARS) - 1) // most)] for number in given)


def _history(settings: Settings, aggregate: str) -> tuple[list[DriftPoint], tuple[str, ...]]:
    try:
        with _control(settings) as control:
            return [] if control is None else control.runs.history(aggregate, MOST), ()
    except ReconcileError:
        return [], ("The control store did not answer: the trend shows only runs that are still in the workspace.",)


def _summaries(place: Workspace, aggregate: str) -> tuple[list[tuple[str, Summary]], list[str]]:
    """Read the figures of the runs of a contract that are still in the workspace, and which runs are damaged."""
    found, damaged = [], []
    for run_id in place.runs():
        try:
            run = place.run(run_id)
            summary = run.read_if_there(Summary)
            if summary is not None and summary.contract == aggregate and _is_whole(run):
                found.append((run_id, summary))
        except DamagedArtifactError:
            damaged.append(run_id)
    return found, damaged


@contextmanager
def _control(settings: Settings) -> Iterator[ControlStore | None]:
    """Open the control store if there is one: reading a report makes none."""
    address = settings.control_address()
    if settings.control_store is None and not (isinstance(address, SqliteFile) and address.path.exists()):
        yield None
        return
    from reconcile.control.store import open_control

    with open_control(settings, read_only=True) as control:
        yield control


def _is_whole(run: Run) -> bool:
    request = run.read_if_there(Request)
    return request is None or scope_of(run, request).whole


def _of_control(point: DriftPoint) -> TrendPoint:
    figures, drift = point.figures, point.drift
    latent = figures.by_difference.get("latent", 0)
    found = TrendPoint(
        point.run_id,
        point.started_at,
        point.complete,
        figures.compared,
        max(figures.findings - latent, 0),
        escaped=figures.escaped,
    )
    if drift is None:
        return found
    return replace(
        found, opened=drift.opened, returned=drift.returned, closed=drift.closed, still_open=drift.still_open
    )


def _joined(point: TrendPoint, recorded: TrendPoint | None) -> TrendPoint:
    if recorded is None:
        return point
    return replace(
        point,
        opened=recorded.opened,
        returned=recorded.returned,
        closed=recorded.closed,
        still_open=recorded.still_open,
    )
