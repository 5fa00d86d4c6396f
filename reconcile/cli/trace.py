"""`reconcile trace`: an aggregate's records through topic, retry, stash and dead letters."""

from __future__ import annotations

from pathlib import Path

import click

from reconcile.cli import options
from reconcile.cli.explain import show_timeline, when, where
from reconcile.cli.output import print_json, say
from reconcile.config.yamlfile import quoted
from reconcile.errors import RefusedError


@click.command()
@options.contract_file
@click.argument("aggregate_id", metavar="[ID]", required=False)
@click.option("--correlation-id", help="In place of ID: all records with this correlation id.")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True, help="The most records to show.")
@options.config
@options.workspace
@options.as_json
def trace(
    contract: Path,
    aggregate_id: str | None,
    correlation_id: str | None,
    limit: int,
    config: Path | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Show all records of the aggregate ID in the topic and all failure topics. It only reads."""
    if (aggregate_id is None) == (correlation_id is None):
        raise RefusedError("give either an ID, or --correlation-id")
    from reconcile.pipeline.trace import trace as follow

    if not contract.exists() and contract.suffix == "":
        raise RefusedError(f"{contract}: there is no such file; trace takes a contract, and `explain` a run")
    found = follow(contract, config, workspace, aggregate_id, correlation_id, limit)
    if not found:
        wanted = "id" if correlation_id is None else "correlation id"
        say(f"reconcile: no record has the {wanted} {quoted(aggregate_id or correlation_id or '')}")
    if as_json:
        from reconcile.cli.outputs import TraceOutput  # the models of all commands load slowly

        print_json(TraceOutput(records=tuple(found)))
        return
    if not found:
        return
    lines = []
    for each in found:
        place = "" if each.offset is None else f"{each.partition}@{each.offset}"
        # What was requested is the same in every line: the other one is shown.
        id_ = each.aggregate_id if aggregate_id is None else each.correlation_id
        lines.append((when(each.at), where(each.kind, each.topic), place, each.version or "", each.what, id_ or ""))
    show_timeline(lines, "id" if aggregate_id is None else "correlation id")
