"""`reconcile consumer`: what a service that runs on reconcile.consumer keeps in its database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say

if TYPE_CHECKING:
    from reconcile.consumer.consumer import Consumer


@click.group()
def consumer() -> None:
    """Set up services that run on reconcile.consumer, and prune what they keep."""


@consumer.command()
@options.of_consumer
@click.option("--print", "as_sql", is_flag=True, help="Print the SQL, and connect to nothing.")
@options.as_json
def migrate(opening: Callable[[], Consumer], as_sql: bool, as_json: bool) -> None:
    """Create the library's tables in the database of a consumer of CONTRACT, or bring them up to date."""
    from reconcile.consumer.postgres import migration_script

    opened = opening()
    if as_sql:
        click.echo(migration_script(), nl=False)
        return
    applied = opened.migrate()
    if as_json:
        from reconcile.cli.outputs import ConsumerMigrateOutput

        print_json(ConsumerMigrateOutput(group=opened.group, applied=tuple(applied)))
        return
    click.echo("".join(f"{each}\n" for each in applied), nl=False)
    say(f"the tables of {opened.group} are " + ("up to date" if applied else "there: there was nothing to do"))


@consumer.command()
@options.of_consumer
@click.option("--keep", metavar="AGE", help="Keep rows that are younger, as 30d. Default: as long as has to be.")
@click.option("--dry-run", is_flag=True, help="Count the rows, and delete none.")
@options.as_json
def prune(opening: Callable[[], Consumer], keep: str | None, dry_run: bool, as_json: bool) -> None:
    """Delete rows of the ledger of a consumer of CONTRACT that nothing can ask for any more. Members may run meanwhile.

    What the topic still holds stays known, and all of an aggregate that is stashed or has a dead letter.
    """
    from reconcile.config import durations

    try:
        age = None if keep is None else durations.parse(keep)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--keep") from None
    opened = opening()
    pruned, window = opened.prune(age, dry=dry_run)
    if as_json:
        from reconcile.cli.outputs import ConsumerPruneOutput

        print_json(
            ConsumerPruneOutput(
                group=opened.group,
                rows=pruned.rows,
                dry_run=dry_run,
                before=pruned.before,
                replay_window=window.longest,
                begins=dict(window.begins),
            )
        )
        return
    click.echo(f"{pruned.rows:,} rows {'would be' if dry_run else 'were'} deleted of the ledger of {opened.group}")
    say(f"rows since {pruned.before:%Y-%m-%d %H:%M:%S} stay; at least {durations.text(window.longest)} have to")
    for partition, begin in window.begins.items():
        say(f"{window.topic}[{partition}]: what stands at {begin} or later may be read again, and stays")
