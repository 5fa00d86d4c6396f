"""`reconcile prune` and `reconcile forget`: what is kept, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say
from reconcile.cli.outputs import PruneOutput
from reconcile.config import durations
from reconcile.pipeline.job import workspace_of


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
