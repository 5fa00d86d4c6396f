"""Past runs: their contracts, and each run in one line for lists."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from reconcile.contract.model import Contract, load_contract
from reconcile.errors import InvalidFileError
from reconcile.pipeline.handoffs import Applied, Plan, Request, Stopped, Summary, Verified, results_of
from reconcile.pipeline.result import links_of
from reconcile.pipeline.scope import scope_of
from reconcile.pipeline.verdict import exit_code_with, level_of, level_with
from reconcile.quality.gate import unmet
from reconcile.report.model import Level
from reconcile.workspace.handoff import IsoTime
from reconcile.workspace.manifest import DamagedArtifactError
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace

Outcome: TypeAlias = Level | Literal["refused", "interrupted", "unreachable", "failed", "unfinished", "damaged"]

_WORDS: dict[Outcome, str] = {
    Level.AGREES: "agrees",
    Level.TOLERATED: "within tolerance",
    Level.REPAIRED: "repaired",
    Level.UNMET: "fails expectations",
    Level.DRIFT: "has drifted",
    Level.UNKNOWN: "could not be compared",
    "unreachable": "did not get an answer",
}
_UNFINISHED = "it goes on, or was ended before it could say why"


@dataclass(frozen=True)
class RunLine:
    """A run in one line; what no stage has published yet is None."""

    run_id: str
    began: IsoTime | None
    stage: str | None
    """The last stage that published something, or `damaged`."""
    contract: str | None = None
    compared: int | None = None
    drifted: int | None = None
    latent: int | None = None
    exit_code: int | None = None
    level: Level | None = None
    requested: int | None = None
    """How many aggregates were requested of it, or had changed; None for all."""
    approvers: tuple[str, ...] = ()
    """Who approved the plan that was applied."""
    kind: Literal["full", "ids", "changed"] | None = None
    """Whether it looked at all aggregates, at some by their ids, or at those that may have changed since a run."""
    since: str | None = None
    """The run since which it looked for changes."""
    full_because: str | None = None
    """Why it is a full run though it was asked for changes alone."""
    escaped: int | None = None
    """How many differ on all links that changed-only runs could not see; None where that was not counted."""
    outcome: Outcome = "unfinished"
    """What it came to: a level once it was audited; else what it stopped by, or `unfinished`."""
    reason: str | None = None
    """Why it did not come to its end, where it did not."""

    @property
    def outcome_words(self) -> str:
        """Name what it came to."""
        return _WORDS.get(self.outcome, self.outcome)


def contract_of(run: Run) -> Contract | None:
    """Read the contract of a run as it is now; None if its file is gone, or is no contract any more."""
    request = run.read_if_there(Request)
    if request is None:
        return None
    try:
        return load_contract(Path(request.contract))
    except InvalidFileError:
        return None


def newest(place: Workspace, limit: int, offset: int = 0) -> tuple[list[RunLine], int]:
    """Read some runs, the newest first, and count them all."""
    ids = sorted(((_began(place, each), each) for each in place.runs()), key=lambda pair: (pair[0] or "", pair[1]))
    chosen = ids[::-1][offset : offset + limit]
    return [run_line(place, run_id) for _, run_id in chosen], len(ids)


def run_line(place: Workspace, run_id: str) -> RunLine:
    """Read a run in one line."""
    run = place.run(run_id)
    try:
        manifests = run.manifests()
        request, summary = run.read_if_there(Request), run.read_if_there(Summary)
        applied, verified = run.read_if_there(Applied), run.read_if_there(Verified)
        stopped = run.read_if_there(Stopped)
        refused = () if applied is not None or (plan := run.read_if_there(Plan)) is None else tuple(plan.reasons)
        failed = len(unmet(results_of(run)))
    except DamagedArtifactError as error:
        return RunLine(run_id, None, "damaged", outcome="damaged", reason=str(error))
    began = min((each.created_at for each in manifests), default=None)
    told = [each for each in manifests if each.name != Stopped.ARTIFACT]
    last = max(told, key=lambda each: each.created_at).stage if told else None
    contract = None if request is None else request.aggregate
    reason = None if stopped is None else f"{stopped.stage}: {stopped.reason}"
    if summary is None:
        if stopped is None:
            return RunLine(run_id, began, last, contract, reason=_UNFINISHED)
        return RunLine(run_id, began, last, contract, outcome=stopped.how, reason=reason)
    code = (verified or summary).exit_code
    asked = None if request is None else scope_of(run, request).count
    scope, escaped = summary.scope, [each.escaped for each in summary.links if each.escaped is not None]
    level = level_with(level_of(code, links_of(summary, {}, verified)), failed)
    unread = "; ".join(f"{each.link}: {each.message}" for each in summary.unread)
    reasons = (
        reason,
        unread,
        "; ".join(("plan: refused", *refused)) if refused else None,
    )
    return RunLine(
        run_id,
        began,
        last,
        summary.contract,
        sum(each.compared for each in summary.links),
        sum(each.drifted for each in summary.links),
        sum(each.latent for each in summary.links),
        exit_code_with(code, failed),
        level,
        asked,
        () if applied is None else tuple(str(each.approver) for each in applied.approvals),
        kind=("full" if asked is None else "ids") if scope is None else scope.kind,
        since=None if scope is None else scope.since,
        full_because=None if scope is None else scope.reason,
        escaped=sum(escaped) if escaped else None,
        outcome=level,
        reason=next(filter(None, reasons), None),
    )


def _began(place: Workspace, run_id: str) -> str | None:
    run = place.run(run_id)
    try:
        request = run.find(Request.ARTIFACT)
        began = request.created_at if request else min((each.created_at for each in run.manifests()), default=None)
    except DamagedArtifactError:
        return None
    return None if began is None else began.isoformat()
