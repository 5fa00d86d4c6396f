"""`reconcile report`: what a past run found, for people and for machines."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say, say_next
from reconcile.cli.tables import FIGURES, coloured, console, figures, is_roomy, show_approvals, show_quality, table
from reconcile.contract.model import load_contract
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.job import Job, run_of
from reconcile.report.model import Level, Report

_MOST_AFFECTED = 10


@click.command()
@options.run_id
@click.option("--contract", type=click.Path(path_type=Path), help="The contract, if its file has moved.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "json", "csv", "prometheus"]),
    help="Print only this format, and write nothing into the run.",
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="The file to write. Default: stdout.")
@options.settings
@options.as_json
def report(
    run_id: str,
    contract: Path | None,
    form: str | None,
    output: Path | None,
    read_settings: options.ReadSettings,
    as_json: bool,
) -> None:
    """Show the run RUN_ID, and write its report as HTML, CSV, JSON and Prometheus text into its folder."""
    if output is not None and form is None:
        raise click.UsageError("--output needs --format")
    settings = read_settings()
    from reconcile.pipeline import report as stage
    from reconcile.pipeline.result import report_of
    from reconcile.pipeline.runs import contract_of
    from reconcile.report.json import report_data

    with run_of(run_id, settings) as (place, run):
        agreed = load_contract(contract) if contract is not None else contract_of(run)
        if form is not None:
            beside = output is not None and str(output.absolute().parent) == run.folder
            csv = stage.CSV if beside else None
            pieces = stage.rendered(form, report_of(run, place, settings, agreed), run, place, csv)
            _write([piece.encode("utf-8", "replace") for piece in pieces], output)
            return
        found = pipeline.report(run, place, settings, agreed)
        files = {name: f"{run.folder}/{file}" for name, file in stage.FORMATS.items()}
    if as_json:
        print_json({**report_data(found), "artifacts": files})
        return
    show(found)
    say(f"written to {files['html']}")
    if found.total:
        say_next(f"findings {run.id}")


@dataclass(frozen=True)
class Written:
    """The rendering of a run that people open, or what kept it from being written."""

    path: str | None
    failure: Exception | None = None

    def tell(self) -> None:
        """Say where it is; raise what kept it from being written."""
        if self.failure is not None:
            raise self.failure
        say(f"the report is in {self.path}")


def write_report(job: Job) -> Written:
    """Write the report of a job's run. What goes wrong is given, and not raised: the result is to be told first."""
    from reconcile.pipeline.report import HTML

    try:
        pipeline.report(job.run, job.workspace, job.settings, job.contract)
    except Exception as error:  # noqa: BLE001 - `tell` raises it
        return Written(None, error)
    return Written(f"{job.run.folder}/{HTML}")


def show(report: Report) -> None:
    """Print a report on the terminal."""
    from reconcile.pipeline.trend import sparkline
    from reconcile.report.charts import hop_name

    out = console()
    out.print(coloured(report.verdict, report.level))
    links = table("link", *FIGURES, "settled", "oldest since", "last runs", right=FIGURES)
    trends = {each.link: each for each in report.trends}
    for link in report.links:
        shown = ["-"] * len(FIGURES) if link.level == Level.UNKNOWN else figures(link)
        points = trends[link.link].points[-20:] if link.link in trends else ()
        oldest = "" if link.oldest is None else f"{link.oldest:%Y-%m-%d %H:%M}"
        settled = "could not be read" if link.level == Level.UNKNOWN else "yes" if link.settled else "no"
        links.add_row(link.link, *shown, settled, oldest, sparkline(each.drifted for each in points))
    out.print(links)
    if report.flows:
        causes = table("where it broke", "cause", "findings", right=("findings",))
        for each in report.flows:
            causes.add_row(hop_name(each.hop), each.cause, f"{each.number:,}")
        out.print(causes)
        ages = table("age", "findings", right=("findings",))
        for count in report.ages:
            if count.number:
                ages.add_row(count.name, f"{count.number:,}")
        out.print(ages)
        _show_most_affected(report)
    if report.quality is not None:
        show_quality(report.quality)
    _show_repair(report)
    for note in report.notes:
        say(f"reconcile: {note}")


def _show_most_affected(report: Report) -> None:
    out = console()
    more = is_roomy(out)
    rest = ("link", "difference", "cause", "fields", "age") if more else ("difference", "cause")
    affected = table("most affected aggregates", *rest, wrap=("fields",))
    for each in report.shown[:_MOST_AFFECTED]:
        finding = each.finding
        fields = ", ".join(field.name for field in finding.fields)
        name = finding.aggregate_id or "(none)"
        kind = (finding.difference, finding.cause)
        affected.add_row(name, *((finding.link, *kind, fields, each.age) if more else kind))
    out.print(affected)


def _show_repair(report: Report) -> None:
    if report.repair is None:
        return
    repairs = table("repair", "what", "number", right=("number",))
    for link in report.repair.links:
        for each in (*link.actions, *link.states):
            repairs.add_row(link.link, each.name, f"{each.number:,}")
    console().print(repairs)
    show_approvals(report.repair.requester, report.repair.approvals)
    for reason in report.repair.refused:
        console().print(f"The plan is refused: {reason}")


def _write(pieces: list[bytes], output: Path | None) -> None:
    if output is None:
        for piece in pieces:
            click.echo(piece, nl=False)
        sys.stdout.flush()
    else:
        output.write_bytes(b"".join(pieces))
