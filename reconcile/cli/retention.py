"""`reconcile prune` and `reconcile forget`: what is kept, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say
from reconcile.config import durations
from reconcile.contract.model import load_contract

COULD_NOT_FORGET = 2


def _duration(_context: click.Context, _parameter: click.Parameter, value: Any) -> timedelta:
    try:
        return durations.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option("--older-than", required=True, metavar="DURATION", callback=_duration, help="How old, such as 30d.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@options.settings
@options.as_json
def prune(older_than: timedelta, dry_run: bool, read_settings: options.ReadSettings, as_json: bool) -> None:
    """Remove runs that published nothing for so long, unused histories, and old rows of the control store.

    Runs that go on stay, and those that the next run of their contract looks back to.
    """
    from reconcile.cli.outputs import PruneOutput  # the models of all commands load slowly
    from reconcile.pipeline.job import workspace_of
    from reconcile.pipeline.retention import prune as pruned

    settings = read_settings()
    with workspace_of(settings) as place:
        found = pruned(place, settings, older_than, datetime.now(UTC), dry_run=dry_run)
    if as_json:
        print_json(PruneOutput(dry_run=dry_run, **dict(found)))
        return
    would = "would go" if dry_run else "gone"
    for run_id in found.runs:
        click.echo(f"run      {run_id}")
    for each in found.histories:
        what = "superseded" if each.superseded else f"{each.segments:,} of its oldest parts"
        click.echo(f"history  {each.folder}: {what}")
    rows = ", ".join(f"{number:,} of {name}" for name, number in found.control.items() if number)
    if rows:
        click.echo(f"control  {rows}")
    for run_id, reason in found.spared.items():
        say(f"{run_id} stays: {reason}")
    say(f"{would}: {len(found.runs):,} runs, {len(found.histories):,} histories, {sum(found.control.values()):,} rows")


@click.command()
@options.contract_file
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.settings
@options.as_json
@click.pass_context
def forget(
    context: click.Context, contract: Path, ids: tuple[str, ...], read_settings: options.ReadSettings, as_json: bool
) -> None:
    """Remove the aggregates ID... of CONTRACT from runs, histories and the control store, and look at all again.

    Exits 2 if something of them is still there.
    """
    from reconcile.cli.outputs import ForgetOutput
    from reconcile.pipeline.forgetting import forget as forgotten
    from reconcile.spark.session import session
    from reconcile.workspace.workspace import Workspace

    agreed, settings = load_contract(contract), read_settings()
    with session(settings.reading(()), "reconcile forget") as spark:
        found = forgotten(Workspace(settings.workspace, spark), settings, agreed, ids, spark)
    if as_json:
        print_json(ForgetOutput(contract=agreed.aggregate, **dict(found)))
    else:
        for name, number in found.runs.items():
            click.echo(f"run      {name}: {number:,} artifacts and files")
        for name, number in found.histories.items():
            click.echo(f"history  {name}: {number:,} records")
        rows = ", ".join(f"{number:,} of {name}" for name, number in found.control.items() if number)
        if rows:
            click.echo(f"control  {rows}")
    for each in found.remaining:
        say(f"reconcile: something is still in {each}")
    if not found.remaining:
        say("looked at again: nothing of them is left")
    context.exit(COULD_NOT_FORGET if found.remaining else 0)
