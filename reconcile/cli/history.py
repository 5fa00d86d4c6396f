"""`reconcile history`: drift over the runs of a contract."""

from __future__ import annotations

from pathlib import Path

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say
from reconcile.cli.outputs import HistoryOutput
from reconcile.cli.tables import console, is_roomy, table
from reconcile.contract.model import load_contract
from reconcile.pipeline.job import workspace_of
from reconcile.pipeline.trend import sparkline, trends
from reconcile.report.model import Trend

_NUMBERS = ("compared", "drifted", "escaped", "new", "came back", "gone", "open")


@click.command()
@options.contract_file
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="The most runs to show, newest first."
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Also write an HTML file.")
@options.settings
@options.as_json
def history(contract: Path, limit: int, html: Path | None, read_settings: options.ReadSettings, as_json: bool) -> None:
    """Show how many aggregates of each copy of CONTRACT had drifted in each run."""
    agreed = load_contract(contract)
    settings = read_settings()
    from reconcile.report.html import history_html

    with workspace_of(settings) as place:
        links, notes = trends(place, settings, agreed.aggregate)
    if html is not None:
        html.write_text("".join(history_html(agreed.aggregate, links, notes)), "utf-8")
    if as_json:
        newest = tuple(Trend(each.link, each.points[-limit:]) for each in links)
        print_json(HistoryOutput(contract=agreed.aggregate, links=newest))
    else:
        for each in links:
            _show(each, limit)
    if not links:
        say(f"no run of {agreed.aggregate} is known")
    for note in notes:
        say(f"reconcile: {note}")


def _show(trend: Trend, limit: int) -> None:
    points = trend.points[-limit:]
    out = console()
    out.print(f"{trend.link}  {sparkline(each.drifted for each in points)}")
    more = is_roomy(out)
    columns = _NUMBERS if more else ("drifted", "open")
    runs = table("run", "when", *columns, right=columns)
    for each in reversed(points):
        changes = (each.opened, each.returned, each.closed, each.still_open)
        figures = [_number(number) for number in (each.compared, each.drifted, each.escaped, *changes)]
        shown = figures if more else [f"{each.drifted:,} of {each.compared:,}", _number(each.still_open)]
        mark = "" if each.complete else " (incomplete)"
        runs.add_row(each.run_id + mark, f"{each.at:%Y-%m-%d %H:%M}", *shown)
    out.print(runs)


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
