"""`reconcile run` and its stages one by one: compare, say why, repair."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import click

from reconcile.cli import options, repair
from reconcile.cli.output import print_json, say, say_next
from reconcile.cli.outputs import (
    AuditOutput,
    FailedExpectations,
    FailedRepair,
    GatherOutput,
    RefusedRepair,
    RunArtifacts,
    RunOutput,
    TableRows,
)
from reconcile.cli.report import write_report
from reconcile.cli.tables import show_quality, show_summary
from reconcile.errors import ReconcileError, RefusedError
from reconcile.gather.stores.digest import ComparisonMode
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.handoffs import FINDINGS, Gathered, Summary, Verified
from reconcile.pipeline.job import Job, ids_of, job_of, new_job
from reconcile.pipeline.logs import planned
from reconcile.pipeline.result import quality_result
from reconcile.pipeline.verdict import exit_code_with
from reconcile.quality.gate import require_open, unmet
from reconcile.quality.suites import Checked

_MODES = click.Choice(get_args(ComparisonMode))


@dataclass(frozen=True)
class _RunOptions:
    contract: Path
    consumers: tuple[str, ...]
    ids: tuple[str, ...]
    ids_file: Path | None
    since: str | None
    mode: ComparisonMode
    quality: bool | None
    apply: bool
    yes: bool
    run_id: str | None
    config: Path | None
    workspace: str | None
    as_json: bool

    def job(self) -> AbstractContextManager[Job]:
        """Open the job of the run."""
        return new_job(
            self.contract,
            self.config,
            self.workspace,
            run_id=self.run_id,
            consumers=self.consumers,
            ids=ids_of(self.ids, self.ids_file),
            since=self.since,
            mode=self.mode,
        )

    def stages(self, checking: bool) -> tuple[str, ...]:
        """Name the stages that it asks for."""
        repairing = ("plan", "apply", "verify") if self.apply else ()
        return ("gather", "audit", *(("quality",) if checking else ()), *repairing)


@click.command()
@options.contract_file
@options.consumers
@options.ids
@options.ids_file
@click.option(
    "--since", metavar="RUN|last", help="Only what may have changed since that run, or since the last that will do."
)
@click.option("--mode", type=_MODES, default="auto", show_default=True, help="How rows are compared.")
@click.option(
    "--quality/--no-quality",
    default=None,
    show_default="where the contract names suites",
    help="Also check expectation suites.",
)
@click.option("--apply", is_flag=True, help="Also emit corrections, after asking, and verify them.")
@repair.yes_option
@options.new_run_id
@options.config
@options.workspace
@options.as_json
@click.pass_context
def run(context: click.Context, /, **given: Any) -> None:
    """Compare a source with its copies and say why they differ.

    Exits 0 if they agree, 1 on drift beyond tolerance or if an expectation fails that stops a repair, 2 if something
    could not be read. With --apply, exits 0 only if all corrections are verified and no drift beyond tolerance
    remains, and 2 if the plan is refused or an expectation stops it.
    """
    wanted = _RunOptions(**given)
    if wanted.yes and not wanted.apply:
        raise click.UsageError("--yes says yes to --apply, which is not there")
    with wanted.job() as job:
        say(_made_before(job) or f"run {job.run.id}")
        ended = job.run.read_if_there(Verified)
        checking = (
            any(each.quality or each.distributions for each in job.consumers)
            if wanted.quality is None
            else wanted.quality
        )
        if checking:
            from reconcile.pipeline.quality import require_suites

            require_suites(job)
        with planned(*wanted.stages(checking)):
            pipeline.gather(job)
            summary = pipeline.audit(job, require_known=True)
            checked = pipeline.quality(job) if checking else None
            results, quality = checked.results if checked is not None else (), quality_result(checked)
            if not wanted.as_json:
                _show(job, summary)
                if quality is not None:
                    show_quality(quality)
            repaired, failure = _repaired(job, results, wanted.yes, wanted.as_json) if wanted.apply else (None, None)
        report = write_report(job)
    code = exit_code_with((repaired or ended or summary).exit_code, len(unmet(results)))
    if repair.say_not_recorded(summary, repaired) or failure is not None or report.failure is not None:
        code = repair.REFUSED
    if wanted.as_json:
        more = _repair_output(wanted.apply, repaired, failure)
        if quality is not None:
            quality = quality_result(checked, repaired) or quality
            more["quality"] = FailedExpectations(success=not quality.stopping, failed=quality.failed)
        print_json(RunOutput(**_audited(job, summary, report.path, code), **more))
        _say_unread(summary)
    if failure is not None and report.failure is not None:
        say(f"reconcile: {failure}")
    report.tell()
    if failure is not None:
        raise failure
    if repaired is None:
        _say_next(job, summary)
    context.exit(code)


@click.command()
@options.run_id
@click.option("--contract", type=click.Path(path_type=Path), help="The contract; needed for a new run.")
@options.consumers
@options.ids
@click.option("--mode", type=_MODES, default="auto", show_default=True)
@options.config
@options.workspace
@options.as_json
@click.pass_context
def gather(
    context: click.Context,
    run_id: str,
    contract: Path | None,
    consumers: tuple[str, ...],
    ids: tuple[str, ...],
    mode: ComparisonMode,
    config: Path | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Read all that a run compares: positions, rows of source and copies, the log, failure topics.

    Exits 2 if something could not be read.
    """
    opened = (
        job_of(run_id, None, config, workspace)
        if contract is None
        else new_job(contract, config, workspace, run_id=run_id, consumers=consumers, ids=ids or None, mode=mode)
    )
    with opened as job:
        gathered = pipeline.gather(job)
        manifests = [each for each in job.run.manifests() if each.stage == "gather"]
    if as_json:
        artifacts = {each.name: TableRows(rows=each.rows, complete=each.complete) for each in manifests}
        print_json(GatherOutput(**{**dict(gathered), "run_id": job.run.id, "artifacts": artifacts}))
    else:
        for each in manifests:
            click.echo(f"{each.name:<24} {each.rows:>12,} rows{'' if each.complete else '  incomplete'}")
    _say_unread(gathered)
    say_next(f"audit {job.run.id}")
    context.exit(2 if gathered.unread else 0)


@click.command()
@options.job
@options.as_json
@click.pass_context
def audit(context: click.Context, opening: AbstractContextManager[Job], as_json: bool) -> None:
    """Compare what a run has gathered, confirm the differences, and say why. Exits as `reconcile run` does."""
    with opening as job:
        summary = pipeline.audit(job)
    code = repair.REFUSED if repair.say_not_recorded(summary) else summary.exit_code
    if as_json:
        print_json(AuditOutput(**_audited(job, summary, None, code)))
        _say_unread(summary)
    else:
        _show(job, summary)
    _say_next(job, summary)
    context.exit(code)


def _made_before(job: Job) -> str | None:
    """Say when a run was made that is asked for again under its id; None for one that is new, or has yet to end."""
    summary = job.run.read_if_there(Summary)
    if summary is None or not summary.complete:
        return None
    at = f"{job.run.manifest(Summary.ARTIFACT).created_at:%Y-%m-%d %H:%M} UTC"
    return f"run {job.run.id} was made at {at} and is complete: nothing is compared again, and this is what it found"


def _repaired(
    job: Job, results: Sequence[Checked], yes: bool, as_json: bool
) -> tuple[Verified | None, ReconcileError | None]:
    """Plan, apply and verify; return what became of the corrections, None if the answer was no, and what went wrong."""
    try:
        require_open(results)
        plan = pipeline.plan(job)
        if not as_json:
            repair.show_plan(plan, repair.SHOWN)
        if repair.emitted(job, yes) is None:
            return None, None
        verified = pipeline.verify(job)
    except ReconcileError as error:
        return None, error
    if not as_json:
        repair.show_verified(verified)
    return verified, None


def _repair_output(apply: bool, repaired: Verified | None, failure: ReconcileError | None) -> dict[str, Any]:
    if not apply:
        return {}
    if failure is None:
        return {"repair": repaired}
    if isinstance(failure, RefusedError):
        return {"repair": RefusedRepair(refused=str(failure))}
    return {"repair": FailedRepair(failed=str(failure))}


def _show(job: Job, summary: Summary) -> None:
    show_summary(job.run.id, summary)
    _say_unread(summary)


def _audited(job: Job, summary: Summary, report: str | None, code: int) -> dict[str, Any]:
    artifacts = RunArtifacts(report=report, findings=f"{job.run.folder}/{FINDINGS}")
    return {**dict(summary), "run_id": job.run.id, "artifacts": artifacts, "exit_code": code}


def _say_next(job: Job, summary: Summary) -> None:
    if any(each.findings for each in summary.links):
        say_next(f"findings {job.run.id}", f"plan {job.run.id}")
    else:
        say_next(f"report {job.run.id}")


def _say_unread(read: Summary | Gathered) -> None:
    for each in read.unread:
        say(f"reconcile: {each.link}: {each.message}")
