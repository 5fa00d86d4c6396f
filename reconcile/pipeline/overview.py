"""Runs in one line each, as lists of runs show them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from reconcile.pipeline.asked import asked_of
from reconcile.pipeline.repairs import VERIFIED
from reconcile.report.expectations import QUALITY, exit_code_with, level_with, unmet
from reconcile.report.model import Level
from reconcile.report.verdict import level_of, links_of
from reconcile.workspace.manifest import DamagedArtifactError
from reconcile.workspace.workspace import Workspace


@dataclass(frozen=True)
class RunLine:
    """A run in one line; what no stage has told yet is None."""

    run_id: str
    began: datetime | None
    stage: str | None
    """The last stage that published something, or `damaged`."""
    contract: str | None = None
    compared: int | None = None
    drifted: int | None = None
    latent: int | None = None
    exit_code: int | None = None
    level: Level | None = None
    asked: int | None = None
    """How many aggregates it was asked for; None for all."""


def newest(place: Workspace, limit: int, offset: int = 0) -> tuple[list[RunLine], int]:
    """Give runs, the newest first, and how many there are."""
    ids = sorted(((_began(place, each), each) for each in place.runs()), key=lambda pair: (pair[0] or "", pair[1]))
    chosen = ids[::-1][offset : offset + limit]
    return [overview(place, run_id) for _, run_id in chosen], len(ids)


def overview(place: Workspace, run_id: str) -> RunLine:
    """Give a run in one line."""
    run = place.run(run_id)
    try:
        manifests = run.manifests()
        told = run.json("summary") if any(each.name == "summary" for each in manifests) else None
        ended = run.json_if_there(VERIFIED)
        failed = len(unmet(run.json_if_there(QUALITY)))
    except DamagedArtifactError:
        return RunLine(run_id, None, "damaged")
    began = min((each.created_at for each in manifests), default=None)
    last = max(manifests, key=lambda each: each.created_at).stage if manifests else None
    if told is None:
        return RunLine(run_id, began, last)
    compared, drifted, latent = (
        sum(each[name] for each in told["links"]) for name in ("compared", "drifted", "latent")
    )
    code = (ended or told)["exit_code"]
    level = level_of(code, links_of(told, {}, ended))
    asked, code = asked_of(run), exit_code_with(code, failed)
    return RunLine(
        run_id, began, last, told["contract"], compared, drifted, latent, code, level_with(level, failed),
        None if asked is None else asked.ids,
    )  # fmt: skip


def _began(place: Workspace, run_id: str) -> str | None:
    run = place.run(run_id)
    try:
        asked = run.find("request")
        began = asked.created_at if asked else min((each.created_at for each in run.manifests()), default=None)
    except DamagedArtifactError:
        return None
    return None if began is None else began.isoformat()
