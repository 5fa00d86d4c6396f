"""What is kept, and for how long: runs, histories, and what the control store knows of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from reconcile.domain.retention import Chosen, PastRun, choose
from reconcile.gather.log.index import pruned
from reconcile.gather.log.store import HistoryStore
from reconcile.pipeline.handoffs import Gathered, Pruned, PrunedHistory, Request, Summary
from reconcile.pipeline.trend import MOST
from reconcile.settings.settings import Settings
from reconcile.workspace.manifest import DamagedArtifactError
from reconcile.workspace.workspace import Workspace

if TYPE_CHECKING:
    from reconcile.control.store import ControlStore


def prune(place: Workspace, settings: Settings, older_than: timedelta, now: datetime, *, dry_run: bool) -> Pruned:
    """Remove runs that published nothing for a while, and what the control store and histories hold of that time.

    A run that goes on stays, as does what the next run of a contract looks back to. Of histories that runs need records
    go as `history.keep` says; those that none needed for that while go whole. With `dry_run` nothing is removed.
    """
    with _control(settings) as control:
        going_on = frozenset() if control is None else control.retention.going_on()
        if not dry_run:
            place.remove_leftovers()
        runs = [_past_run(place, each) for each in place.runs()]
        chosen = choose(runs, now - older_than, going_on)
        kept = [each.run_id for each in runs if each.run_id not in chosen.pruned]
        histories = tuple(_histories(place, settings, now - older_than, now, kept, dry_run=dry_run))
        if not dry_run:
            for run_id in chosen.pruned:
                place.remove(run_id)
            if not going_on:
                for home in HistoryStore.of(place).homes():
                    home.remove_past()
        rows = {} if control is None else _rows(control, older_than, kept, chosen, going_on, dry_run=dry_run)
    return Pruned(runs=chosen.pruned, spared=dict(chosen.spared), histories=histories, control=rows)


def _rows(
    control: ControlStore,
    older_than: timedelta,
    kept: Sequence[str],
    chosen: Chosen,
    going_on: frozenset[str],
    *,
    dry_run: bool,
) -> dict[str, int]:
    needed = {*kept, *chosen.spared, *going_on}
    return control.retention.prune(older_than, needed, MOST, dry_run=dry_run)


def _past_run(place: Workspace, run_id: str) -> PastRun:
    run = place.run(run_id)
    try:
        published_at = max((each.created_at for each in run.manifests()), default=None)
        request, summary = run.read_if_there(Request), run.read_if_there(Summary)
    except DamagedArtifactError:
        return PastRun(run_id, None)
    if summary is None:
        return PastRun(run_id, published_at)
    asked = request is not None and request.ids is not None
    kind = ("ids" if asked else "full") if summary.scope is None else summary.scope.kind
    consumers = () if request is None else request.consumers
    at = summary.fence.opened_at
    return PastRun(run_id, published_at, summary.contract, consumers, at, complete=summary.complete, kind=kind)


def _histories(
    place: Workspace, settings: Settings, before: datetime, now: datetime, kept: Sequence[str], *, dry_run: bool
) -> Iterator[PrunedHistory]:
    """Prune all histories, and say of which something went."""
    store, keep = HistoryStore.of(place), settings.history.keep
    needed = {folder for each in kept if (folder := history_of(place, each)) is not None}
    for home in store.homes():
        name, used, index = home.folder.removeprefix(f"{place.root}/"), home.last_used(), home.load()
        if used is None:
            if not dry_run:
                home.note_use(now)  # of a version that did not note it: its time begins now
        elif used < before and name not in needed:
            segments = 0 if index is None else len(index.segments)
            if not dry_run:
                home.remove()
            yield PrunedHistory(folder=name, segments=segments, superseded=True)
            continue
        smaller = None if keep is None or index is None else pruned(index, now - keep, now)
        if index is None or smaller is None or keep is None:
            continue
        if not dry_run:
            home.prune(now - keep)
        given_up = len(index.segments) - len(smaller.segments)
        yield PrunedHistory(folder=name, segments=given_up, superseded=False)


def history_of(place: Workspace, run_id: str) -> str | None:
    """Read which history a run has read, as a folder below the workspace."""
    try:
        gathered = place.run(run_id).read_if_there(Gathered)
    except DamagedArtifactError:
        return None
    if gathered is None:
        return None
    _, separator, name = gathered.log.folder.rpartition("/_log/")
    return f"_log/{name}" if separator else None


@contextmanager
def _control(settings: Settings) -> Iterator[ControlStore | None]:
    """Open the control store; there is None where none is set and the workspace cannot hold one."""
    from reconcile.control.store import open_control

    if settings.control_address() is None:
        yield None
        return
    with open_control(settings) as control:
        yield control
