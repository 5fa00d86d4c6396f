"""`reconcile plan`, `apply` and `verify`: what is to be done about findings, doing it, and whether it helped."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say, say_next
from reconcile.cli.tables import console, show_approvals, table
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.job import Job, job_of

if TYPE_CHECKING:
    from reconcile.domain.plan import Item, Plan
    from reconcile.pipeline.handoffs import Applied, Summary, Verified

REFUSED = 2
NOT_APPLIED = 1
SHOWN = 50

contract_moved = click.option(
    "--contract", type=click.Path(path_type=Path), help="The contract, if its file has moved."
)
yes_option = click.option("--yes", is_flag=True, help="Approve the plan without being asked.")


@click.command()
@options.run_id
@contract_moved
@click.option("--limit", type=click.IntRange(1), default=SHOWN, show_default=True, help="The most lines to show.")
@options.config
@options.workspace
@options.as_json
@click.pass_context
def plan(
    context: click.Context,
    run_id: str,
    contract: Path | None,
    limit: int,
    config: Path | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Plan what to do about each finding of a run, and say why. Emits nothing.

    Exits 2 if the plan may not be applied.
    """
    with job_of(run_id, contract, config, workspace) as job:
        made = pipeline.plan(job)
    if as_json:
        print_json(made)
    else:
        show_plan(made, limit)
    for reason in made.reasons:
        say(f"reconcile: refused: {reason}")
    if not made.reasons and any(True for _ in made.corrections):
        say_next(f"apply {made.run_id}")
    context.exit(REFUSED if made.reasons else 0)


@click.command()
@options.run_id
@contract_moved
@yes_option
@options.config
@options.workspace
@options.as_json
@click.pass_context
def apply(
    context: click.Context,
    run_id: str,
    contract: Path | None,
    yes: bool,
    config: Path | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Emit the corrections of a run's plan. After an interruption, the same command continues.

    A plan that needs an approval is emitted once somebody has approved it: with --yes, or asked on a terminal. The
    control store keeps who did. Exits 1 if the answer is no, 2 if the plan may not be applied or nobody can be asked.
    """
    with job_of(run_id, contract, config, workspace) as job:
        applied = emitted(job, yes)
    if applied is None:
        context.exit(NOT_APPLIED)
    if as_json:
        print_json(applied)
    else:
        show_applied(applied)
    say_next(f"verify {applied.run_id}")


@click.command()
@options.run_id
@contract_moved
@options.config
@options.workspace
@options.as_json
@click.pass_context
def verify(
    context: click.Context,
    run_id: str,
    contract: Path | None,
    config: Path | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Wait until the groups have consumed the corrections, and check whether the copies agree now.

    Exits 0 if all is verified and no drift beyond tolerance remains, else 1. It may be called again later.
    """
    with job_of(run_id, contract, config, workspace) as job:
        verified = pipeline.verify(job)
    code = REFUSED if say_not_recorded(verified) else verified.exit_code
    if as_json:
        print_json(verified.model_copy(update={"exit_code": code}))
    else:
        show_verified(verified)
    say_next(f"{'verify' if verified.unverified else 'report'} {verified.run_id}")
    context.exit(code)


def say_not_recorded(*results: Summary | Verified | None) -> bool:
    """Say which results the control store did not take; tell whether there are any."""
    problems = [each.not_recorded.message for each in results if each is not None and each.not_recorded is not None]
    for message in problems:
        say(f"reconcile: {message}")
    return bool(problems)


def emitted(job: Job, yes: bool) -> Applied | None:
    """Apply a run's plan, and keep who says yes to it; None if the answer was no."""
    from reconcile.pipeline.apply import require_applicable
    from reconcile.pipeline.approval import approve, is_awaited, os_user
    from reconcile.pipeline.handoffs import Plan

    made = job.run.read(Plan)
    require_applicable(job, made)
    if not yes and at_terminal() and is_awaited(job, made, os_user()):
        say(numbers(made))
        yes = click.confirm("Emit these corrections?", err=True)
        if not yes:
            say("nothing was emitted")
            return None
    if yes:
        approve(job, made, os_user())
    return pipeline.apply(job)


def at_terminal() -> bool:
    """Tell whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def numbers(made: Plan) -> str:
    """Say in figures what a plan would emit, where, and who reads it."""
    lines = []
    for link in made.links:
        if link.corrections:
            counted = Counter(item.action.value for item in link.own)
            if shared := Counter(item.shared_with for item in link.shared):
                counted |= Counter({f"with a record of {name}": number for name, number in shared.items()})
            what = ", ".join(f"{number:,} {action}" for action, number in counted.items())
            lines.append(f"{link.link}: {what} to {link.topic}; also read by {link.also_read_by}")
            lines += [f"  note: {warning}" for warning in link.warnings]
    return "\n".join(lines)


def show_plan(made: Plan, limit: int) -> None:
    """Show a plan: what goes where and who reads it, then line by line."""
    out = console()
    headings = ("restate", "compensate", "tombstone", "advice", "not repaired")
    links = table("link", "to", "partitions by", "also read by", *headings, right=headings, wrap=("also read by",))
    for link in made.links:
        figures = (f"{number:,}" for number in link.counts.values())
        by = " or ".join(link.partitioner) or "-"
        links.add_row(link.link, link.topic, by, link.also_read_by, *figures)
    out.print(links)
    items = [item for link in made.links for item in link.items]
    if items:
        lines = table("link", "id", "action", "partition", "cause", "why", wrap=("why",))
        for item in items[:limit]:
            lines.add_row(*_cells(item))
        out.print(lines)
        if len(items) > limit:
            out.print(f"{len(items) - limit:,} more: --limit {len(items)}, or --json, shows all")
    for link in made.links:
        for warning in link.warnings:
            out.print(f"{link.link}: note: {warning}")
    out.print(_verdict(made))


def show_applied(applied: Applied) -> None:
    """Show what was emitted, and what was not any more."""
    shown = table("link", "topic", "emitted", "dropped", right=("emitted", "dropped"))
    for link in applied.links:
        count = len({each.correction_id for each in link.emitted if each.shared_with is None})
        shown.add_row(link.link, link.topic, f"{count:,}", f"{len(link.dropped):,}")
    console().print(shown)
    show_approvals(applied.requester, applied.approvals)
    _reasons(each.reason for link in applied.links for each in link.dropped)


def show_verified(verified: Verified) -> None:
    """Show what became of the corrections."""
    outcomes = ("converged", "partial", "superseded", "refused", "unverified")
    shown = table("link", *outcomes, "still differ", right=(*outcomes, "still differ"))
    for link in verified.links:
        figures = (f"{link.outcomes.get(name, 0):,}" for name in outcomes)
        shown.add_row(link.link, *figures, f"{link.still_different:,}")
    console().print(shown)
    doubtful = ("partial", "refused", "unverified")
    _reasons(
        f"{each.outcome}: {each.reason}"
        for link in verified.links
        for each in link.corrections
        if each.outcome in doubtful
    )


def _reasons(reasons: Any) -> None:
    for reason, number in Counter(reasons).most_common():
        console().print(f"{number:,} with: {reason}")


def _cells(item: Item) -> Sequence[str]:
    where = ", ".join(map(str, item.partitions)) or "-"
    amounts = (f"{name} {'' if amount.startswith('-') else '+'}{amount}" for name, amount in item.amounts.items())
    action = " ".join([item.action.value, ", ".join(amounts)]).rstrip()
    if item.shared_with is not None:
        action = f"{action}, with {item.shared_with}"
    return item.link, item.aggregate_id or "(none)", action, where, item.cause, item.reason


def _verdict(made: Plan) -> str:
    count = sum(1 for _ in made.corrections)
    if made.reasons:
        return "The plan is refused: nothing of it may be applied."
    if not count:
        return "There is nothing that a correction could mend."
    return f"{count:,} corrections; nothing is emitted before `reconcile apply {made.run_id}`."
