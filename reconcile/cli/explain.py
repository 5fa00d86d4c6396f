"""`reconcile explain`: the story of one aggregate, as a timeline."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say, say_next, visible
from reconcile.cli.tables import console, is_roomy, table
from reconcile.config.yamlfile import quoted
from reconcile.domain.finding import Finding, to_data
from reconcile.domain.mending import Mending
from reconcile.errors import RefusedError
from reconcile.pipeline import tables
from reconcile.pipeline.handoffs import Gathered
from reconcile.pipeline.job import run_of
from reconcile.pipeline.runs import contract_of
from reconcile.pipeline.shown_findings import Showing
from reconcile.report.model import Moment, ShownRow, Story
from reconcile.workspace import handoff


@click.command()
@click.argument("words", metavar="RUN_ID|last ID", nargs=-1)
@click.option("--run", "run_option", metavar="RUN_ID", help="The same as RUN_ID.")
@options.consumers
@options.settings
@options.as_json
def explain(
    words: tuple[str, ...],
    run_option: str | None,
    consumers: tuple[str, ...],
    read_settings: options.ReadSettings,
    as_json: bool,
) -> None:
    """Show the history of the aggregate ID in the run RUN_ID: its events, and what became of each."""
    named = words if run_option is None else (run_option, *words)
    if len(named) != 2:
        raise click.UsageError("name one run, and one aggregate: RUN_ID ID, or last ID")
    run_id, aggregate_id = named
    settings = read_settings()
    with run_of(run_id, settings) as (place, run):
        showing = Showing.of(run, settings, contract_of(run), place.spark)
        found = explained(showing, aggregate_id, consumers)
    if not found:
        raise RefusedError(
            f"the run {run.id} did not look closely at {quoted(aggregate_id)}: it agreed, or neither side has it;"
            f" `reconcile run CONTRACT --id {shlex.quote(aggregate_id)}` looks at it"
        )
    if as_json:
        from reconcile.cli.outputs import ExplainOutput  # the models of all commands load slowly

        stories = [
            {**handoff.to_data(story), "finding": finding and to_data(finding, run.id)} for story, finding in found
        ]
        print_json(ExplainOutput(run_id=run.id, stories=stories))
        return
    for story, finding in found:
        show(story, finding, None if finding is None else showing.mending(finding.cause))
    if showing.redaction.note:
        say(f"reconcile: {showing.redaction.note}")
    if any(finding is not None for _, finding in found):
        say_next(f"plan {run.id}")


def explained(
    showing: Showing, aggregate_id: str, consumers: Collection[str] = ()
) -> list[tuple[Story, Finding | None]]:
    """Read the stories of an aggregate, each with its finding, in the links in which the run looked closely at it."""
    run, spark, redaction = showing.run, showing.spark, showing.redaction
    findings = {each.link: redaction.finding(each) for each in tables.findings(run, ids=[aggregate_id], spark=spark)}
    links = [each for each in run.read(Gathered).links if not consumers or each.consumer in consumers]
    stories = showing.stories({each.link: {aggregate_id} for each in links})
    return [(each, findings.get(each.link)) for each in stories]


def show(story: Story, finding: Finding | None, way: Mending | None = None) -> None:
    """Print a story on the terminal."""
    out = console()
    out.print(f"{story.link}  {story.id}")
    if finding is None:
        out.print("  agrees with its source")
    else:
        verdict = f"{finding.difference}: {finding.cause} ({finding.confidence})"
        hop = f", between {finding.hop.replace('_to_', ' and ')}" if finding.hop else ""
        out.print(f"  {verdict}{hop.replace('between consumer', 'in the consumer')}")
        out.print(f"  {finding.cause.meaning}")
    _show_rows(story, finding)
    if story.left_out:
        out.print(f"  {story.left_out:,} older moments are not shown")
    show_timeline(map(_line, story.moments))
    if finding is not None and finding.evidence:
        out.print("Why")
        for number, seen in enumerate(finding.evidence, 1):
            place = "" if seen.offset is None else f" {seen.topic} {seen.partition}@{seen.offset}"
            out.print(f"  {number}. {seen.kind}{place}: {seen.note}")
    if finding is not None and way is not None:
        out.print(f"Shortest way to mend it: {way.words}")
        for command in way.commands:
            out.print(f"  {command}")
    out.print()


def show_timeline(lines: Iterable[Sequence[str]], *more: str) -> None:
    """Print moments as a table; where that is not wide enough, each in lines of its own.

    A line has when, where, place, version and what, and then a cell for each column of `more`.
    """
    from rich.padding import Padding

    out = console()
    moments = table("when", "where", "place", "version", "what", *more, wrap=("what",))
    for each in lines:
        if is_roomy(out):
            moments.add_row(*each)
        else:
            at, topic, place, version, *rest = each
            out.print(f"  {at}  {topic} {place}")
            words = "  ".join(filter(None, (version and f"v{version}", *rest)))
            out.print(Padding(visible(words, lines=False), (0, 0, 0, 6)))
    if is_roomy(out):
        out.print(moments)


def _line(moment: Moment) -> tuple[str, ...]:
    what = f"{moment.what}  ← {', '.join(moment.marks)}" if moment.marks else moment.what
    return when(moment.at), where(moment.lane, moment.topic), moment.place, moment.version or "", what


def _show_rows(story: Story, finding: Finding | None) -> None:
    both = table("", "source", "copy", wrap=("source", "copy"))
    rows = (story.source, story.copy)
    both.add_row("version", *map(_version, rows))
    # Not by the values: those that are hidden all look alike.
    different = {field.name for field in (finding.fields if finding is not None else ())}
    for name in next((row.fields for row in rows if row is not None), ()):
        both.add_row(name + (" ≠" if name in different else ""), *(_cell(row, name) for row in rows))
    console().print(both)


def _version(row: ShownRow | None) -> str:
    if row is None:
        return "(no row)"
    several = f" ({row.count} rows)" if row.count > 1 else ""
    return f"{row.version or '-'}{several}"


def _cell(row: ShownRow | None, name: str) -> str:
    if row is None:
        return ""
    value = row.fields[name]
    return "NULL" if value is None else value


def when(at: datetime | None) -> str:
    """Build an instant as timelines show it, to the millisecond."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S.%f}"[:-3]


def where(kind: str, topic: str) -> str:
    """Name the place of a record: its topic, and if it was parked there how."""
    return topic if kind in ("log", "ledger") else f"{kind.replace('_', ' ')}: {topic}"
