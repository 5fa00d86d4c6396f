"""`reconcile demo`: the whole story in one command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import click

from reconcile.cli.contract import EXAMPLES
from reconcile.cli.output import say
from reconcile.cli.tables import console, show_summary, table
from reconcile.files import committed
from reconcile.lab.folder import Lab
from reconcile.pipeline.job import Job, new_job


@click.command()
@click.option("--keep", is_flag=True, help="Keep the world running afterwards.")
def demo(keep: bool) -> None:
    """Start a world, plant every fault, audit it, compare the findings with the truth, repair, and stop it.

    Exits 1 if a plan is refused, or if more still differs than the plans said.
    """
    from reconcile.lab import world
    from reconcile.lab.demo import FOLDER, RUNS, damaged_world, end

    lab = Lab(FOLDER)
    try:
        damaged_world()
        unexpected = _audit(lab)
    except BaseException:
        world.down(lab)
        raise
    if keep:
        say(
            f"the world stays up, with its runs in {RUNS}: `reconcile lab status --dir {FOLDER}` shows it,"
            f" `reconcile lab down --wipe --dir {FOLDER}` ends it"
        )
    else:
        end()
        say("down, and the world is gone")
    if unexpected:
        raise click.exceptions.Exit(1)


def _audit(lab: Lab) -> bool:
    """Audit every contract, tell the story of the first fault, repair; tell whether anything is left unexpectedly."""
    from reconcile.lab import truth
    from reconcile.pipeline import stages as pipeline
    from reconcile.pipeline import tables
    from reconcile.pipeline.record import require_recorded

    planted = truth.read(lab.truth)
    findings: list[dict[str, Any]] = []
    with _jobs(lab) as jobs:
        for job in jobs:
            pipeline.gather(job)
            summary = pipeline.audit(job)
            show_summary(job.run.id, summary)
            require_recorded(summary)
            findings += map(json.loads, tables.finding_lines(job.run))
        _show_verdicts(planted, findings)
        _tell(jobs[0], next(row["aggregate_id"] for row in planted if row["fault"] == "zoey-race"))
        repaired = [_repaired(lab, job) for job in jobs]
        return not all(repaired)


def _repaired(lab: Lab, job: Job) -> bool:
    """Plan, emit, let the services consume, verify; look once more, and tell whether only what was advised is left."""
    from reconcile.cli.repair import show_plan, show_verified
    from reconcile.domain.plan_rules import Action
    from reconcile.lab.demo import consume
    from reconcile.pipeline import stages as pipeline
    from reconcile.pipeline import tables
    from reconcile.pipeline.approval import approve, os_user
    from reconcile.pipeline.record import require_recorded

    made = pipeline.plan(job)
    show_plan(made, limit=8)
    if made.reasons:
        return False
    approve(job, made, os_user())
    pipeline.apply(job)
    consume(lab)
    verified = pipeline.verify(job)
    show_verified(verified)
    require_recorded(verified)
    again = replace(job, run=job.workspace.run(f"{job.run.id}-again"))
    pipeline.gather(again)
    require_recorded(pipeline.audit(again))
    advised = {
        item.aggregate_id
        for link in made.links
        for item in link.items
        if item.action in (Action.ADVICE, Action.NOT_REPAIRED)
    }
    advised |= {each.aggregate_id for link in verified.links for each in link.corrections if each.outcome == "partial"}
    left = {each.aggregate_id for each in tables.findings(again.run)}
    out = console()
    out.print(f"{job.contract.aggregate}: {len(left)} findings are left, {len(left - advised)} of them unexpected")
    out.print()
    return left <= advised and all(each.outcomes.keys() <= {"converged", "partial"} for each in verified.links)


@contextmanager
def _jobs(lab: Lab) -> Iterator[list[Job]]:
    from reconcile.lab import world
    from reconcile.lab.demo import RUNS

    config = world.settings_file(lab)
    files = {name: committed("contracts", f"{name}.yaml") for name in EXAMPLES}
    with ExitStack() as stack:  # the first one starts Spark, for all
        opened = (new_job(file, config, str(RUNS), run_id=f"demo-{name}") for name, file in files.items())
        yield [stack.enter_context(each) for each in opened]


def _show_verdicts(planted: list[dict[str, Any]], findings: list[dict[str, Any]]) -> None:
    from reconcile.lab.verdict import verdicts

    lines, surplus = verdicts(planted, findings)
    figures = ("planted", "found", "named", "certain")
    shown = table("fault", "cause", *figures, right=figures)
    for each in lines:
        shown.add_row(each.fault, each.cause, *(str(getattr(each, name)) for name in figures))
    total = [sum(getattr(each, name) for each in lines) for name in figures]
    shown.add_section()
    shown.add_row("all", "", *map(str, total))
    console().print("What was found, against the truth")
    console().print(shown)
    console().print(f"{surplus} findings that no fault explains")
    console().print()


def _tell(job: Job, aggregate_id: str) -> None:
    from reconcile.cli.explain import explained, show
    from reconcile.pipeline.shown_findings import Showing

    for each in explained(Showing.of(job.run, job.settings, job.contract, job.spark), aggregate_id):
        show(*each)
