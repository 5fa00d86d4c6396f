"""`reconcile findings` and `reconcile runs`: what past runs found."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import islice

import click

from reconcile.cli import options
from reconcile.cli.output import print_json
from reconcile.cli.outputs import FindingsOutput, RunsOutput
from reconcile.cli.tables import console, table
from reconcile.config.validation import not_among
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Finding, Status
from reconcile.errors import RefusedError
from reconcile.pipeline.handoffs import Summary
from reconcile.pipeline.job import run_of, workspace_of
from reconcile.pipeline.runs import RunLine, newest
from reconcile.report.csv import csv_of

_WIDE = 120
"""So many columns show more of each run."""


@click.command()
@click.argument("run_id")
@click.option(
    "--cause",
    "causes",
    multiple=True,
    type=click.Choice([each.value for each in Cause]),
    help="Only this cause; may be given several times.",
)
@options.consumers
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl", "csv"]),
    help="Default: a table on a terminal, JSON lines when piped.",
)
@click.option("--limit", type=click.IntRange(1), help="The most to show.")
@options.settings
@options.as_json
def findings(
    run_id: str,
    causes: tuple[str, ...],
    consumers: tuple[str, ...],
    form: str | None,
    limit: int | None,
    read_settings: options.ReadSettings,
    as_json: bool,
) -> None:
    """List what the run RUN_ID found."""
    from reconcile.pipeline import tables

    with run_of(run_id, read_settings()) as (place, run):
        links = [_link(run.read(Summary), name) for name in consumers]
        lines = islice(tables.finding_lines(run, causes, links, spark=place.spark), limit)
        if as_json:
            print_json(FindingsOutput(run_id=run_id, findings=list(map(json.loads, lines))))
        elif (form or ("table" if sys.stdout.isatty() else "jsonl")) == "jsonl":
            for line in lines:
                click.echo(json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace"))
        else:
            _print(islice(tables.findings(run, causes, links, spark=place.spark), limit), form)


@click.command()
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="The most to show.")
@options.settings
@options.as_json
def runs(limit: int, read_settings: options.ReadSettings, as_json: bool) -> None:
    """List past runs, the newest first: what each came to, and why one did not come to its end."""
    with workspace_of(read_settings()) as place:
        found, _ = newest(place, limit)
    lines = tuple(replace(each, began=each.began and each.began.replace(microsecond=0)) for each in found)
    if as_json:
        print_json(RunsOutput(runs=lines))
        return
    out = console()
    # The rest does not fit on a narrow terminal; an id that we made has the contract and the time.
    more = out.width >= _WIDE
    figures = ("drifted", "escaped", "latent", "exit")
    columns = ("run", *(("began",) if more else ()), "contract", "outcome")
    columns = (*columns, "looked at", *figures, "approved by") if more else (*columns, "drifted")
    shown = table(*columns, right=figures, wrap=("outcome", "looked at", "approved by"))
    for line in lines:
        first = (line.run_id, *((_time(line.began),) if more else ()), line.contract or "-", line.outcome_words)
        drifted, *numbers = map(_number, (line.drifted, line.escaped, line.latent, line.exit_code))
        rest = (_looked_at(line), drifted, *numbers, ", ".join(line.approvers) or "-") if more else (drifted,)
        shown.add_row(*first, *rest)
    out.print(shown)
    for line in lines:
        if line.reason is not None:
            out.print(f"{line.run_id}: {line.reason}")


def _time(at: datetime | None) -> str:
    return "-" if at is None else f"{at:%Y-%m-%d %H:%M}"


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _looked_at(line: RunLine) -> str:
    if line.since is not None:
        return f"{line.requested:,} changed since {line.since}"
    return {None: "-", "full": "all"}.get(line.kind, f"{line.requested or 0:,} by id")


def _print(listed: Iterable[Finding], form: str | None) -> None:
    if form == "csv":
        for piece in csv_of(listed):
            click.echo(piece.encode("utf-8", "replace"), nl=False)
    else:
        shown = table("link", "id", "difference", "cause", "confidence", "fields", wrap=("fields",))
        for each in listed:
            mark = "" if each.status == Status.CONFIRMED else f" ({each.status})"
            fields = ", ".join(field.name for field in each.fields)
            name = each.aggregate_id or "(none)"
            shown.add_row(each.link, name, each.difference + mark, each.cause, each.confidence, fields)
        console().print(shown)


def _link(summary: Summary, consumer: str) -> str:
    links = {each.consumer: each.link for each in summary.links}
    if consumer not in links:
        raise RefusedError(f"the run has no consumer {not_among(consumer, list(links))}")
    return links[consumer]
