"""`reconcile findings` and `reconcile runs`: what past runs found."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say, say_next
from reconcile.cli.outputs import FindingsOutput, RunsOutput
from reconcile.cli.tables import coloured, console, is_roomy, show_causes, table
from reconcile.config.validation import not_among
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Confidence, Status, consumer_of
from reconcile.errors import RefusedError
from reconcile.pipeline.handoffs import Summary
from reconcile.pipeline.job import run_of, workspace_of
from reconcile.pipeline.runs import RunLine, contract_of, newest
from reconcile.pipeline.shown_findings import Showing
from reconcile.pipeline.tables import Page
from reconcile.report.csv import csv_of
from reconcile.report.model import CauseCount

SHOWN = 30
"""So many findings are shown on a terminal."""


@click.command()
@options.run_id
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
@click.option(
    "--limit",
    type=click.IntRange(1),
    show_default=f"{SHOWN} in a table on a terminal, else all",
    help="The most to show.",
)
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
    """List what the run RUN_ID found.

    A table begins with the causes, and has what matters most first; other forms are in the order of links and ids.
    """
    from reconcile.pipeline import tables

    settings = read_settings()
    with run_of(run_id, settings) as (place, run):
        links = [_link(run.read(Summary), name) for name in consumers]
        chosen = form or ("table" if sys.stdout.isatty() else "jsonl")
        if as_json or chosen == "jsonl":
            lines = islice(tables.finding_lines(run, causes, links, spark=place.spark), limit)
            if as_json:
                print_json(FindingsOutput(run_id=run.id, findings=list(map(json.loads, lines))))
                return
            for line in lines:
                click.echo(json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace"))
        elif chosen == "csv":
            for piece in csv_of(islice(tables.findings(run, causes, links, spark=place.spark), limit)):
                click.echo(piece.encode("utf-8", "replace"), nl=False)
        else:
            most = limit or (SHOWN if sys.stdout.isatty() else None)
            page = tables.page(run, {"cause": causes, "link": links}, limit=most, spark=place.spark)
            showing = Showing.of(run, settings, contract_of(run), place.spark)
            _show(page, showing.cause_counts(page.causes), run.id, [each.link for each in run.read(Summary).links])
            if sys.stdout.isatty():
                say_next(f"explain {run.id} ID")


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
    more = is_roomy(out)  # an id that we made has the time
    figures = ("drifted", "escaped", "latent", "exit")
    columns = ("run", *(("began",) if more else ()), "contract", "outcome")
    columns = (*columns, "looked at", *figures, "approved by") if more else (*columns, "drifted")
    shown = table(*columns, right=figures, wrap=("outcome", "looked at", "approved by"))
    for line in lines:
        first = (
            line.run_id,
            *((_time(line.began),) if more else ()),
            line.contract or "-",
            coloured(line.outcome_words, line.outcome),
        )
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


def _show(page: Page, causes: Sequence[CauseCount], run_id: str, links: Sequence[str]) -> None:
    """Show the causes, each with what it is and what mends it; then some findings, and how to see the others."""
    show_causes(causes)
    out = console()
    more = is_roomy(out)
    shown = table(
        *(("copy",) if len(links) > 1 else ()), "id", "difference", "cause", *(("fields", "since") if more else ()),
        wrap=("fields",),
    )  # fmt: skip
    for each in page.findings:
        fields = ", ".join(field.name for field in each.fields)
        sure = "" if each.confidence is Confidence.CERTAIN else f", {each.confidence}"
        mark = "" if each.status == Status.CONFIRMED else f" ({each.status})"
        shown.add_row(
            *((consumer_of(each.link),) if len(links) > 1 else ()),
            each.aggregate_id or "(none)",
            each.difference + mark,
            each.cause + sure,
            *((fields, _time(each.since)) if more else ()),
        )
    out.print(shown)
    if (rest := page.total - len(page.findings)) > 0:
        say(f"{rest:,} more: `--limit {page.total}` shows all, `--format jsonl` prints them for programs")
    if page.findings:
        say(f"`reconcile explain {shlex.quote(run_id)} ID` tells the story of one")


def _link(summary: Summary, consumer: str) -> str:
    links = {each.consumer: each.link for each in summary.links}
    if consumer not in links:
        raise RefusedError(f"the run has no consumer {not_among(consumer, list(links))}")
    return links[consumer]
