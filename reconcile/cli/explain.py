"""`reconcile explain`: the story of one aggregate, as a timeline."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say
from reconcile.cli.outputs import ExplainOutput
from reconcile.cli.tables import console, table
from reconcile.config.yamlfile import quoted
from reconcile.errors import RefusedError
from reconcile.pipeline.job import run_of
from reconcile.report.story import Moment, Shown, Story
from reconcile.settings.settings import load_settings


@click.command()
@click.argument("run_id")
@click.argument("aggregate_id", metavar="ID")
@options.consumers
@options.config
@options.workspace
@options.as_json
def explain(
    run_id: str,
    aggregate_id: str,
    consumers: tuple[str, ...],
    config: Path | None,
    workspace: str | None,
    as_json: bool,
) -> None:
    """Show the history of the aggregate ID in the run RUN_ID: its events, and what became of each."""
    from reconcile.pipeline.result import redaction_of, stories
    from reconcile.pipeline.runs import contract_of

    with run_of(run_id, load_settings(config, workspace)) as (place, run):
        redaction = redaction_of(run, contract_of(run))
        found = list(stories(run, redaction, aggregate_id, consumers, place.spark))
    if not found:
        raise RefusedError(
            f"the run {run_id} did not look closely at {quoted(aggregate_id)}: it agreed, or neither side has it;"
            f" `reconcile run CONTRACT --id {aggregate_id}` looks at it"
        )
    if as_json:
        print_json(ExplainOutput(run_id=run_id, stories=tuple(found)))
        return
    for each in found:
        show(each)
    if redaction.note:
        say(f"reconcile: {redaction.note}")


def show(story: Story) -> None:
    """Print a story on the terminal."""
    out = console()
    finding = story.finding
    out.print(f"{story.link}  {story.id}")
    if finding is None:
        out.print("  agrees with its source")
    else:
        verdict = f"{finding['difference']}: {finding['cause']} ({finding['confidence']})"
        where = f", between {finding['hop'].replace('_to_', ' and ')}" if finding["hop"] else ""
        out.print(f"  {verdict}{where.replace('between consumer', 'in the consumer')}")
    _show_sides(story)
    if story.left_out:
        out.print(f"  {story.left_out:,} older moments are not shown")
    moments = table("when", "where", "place", "version", "what", wrap=("what",))
    for each in story.moments:
        marks = f"  ← {', '.join(each.marks)}" if each.marks else ""
        moments.add_row(_time(each.at), _lane(each), each.place, each.version or "", each.what + marks)
    out.print(moments)
    if finding is not None and finding["evidence"]:
        out.print("Why")
        for number, each in enumerate(finding["evidence"], 1):
            where = "" if each["offset"] is None else f" {each['topic']} {each['partition']}@{each['offset']}"
            out.print(f"  {number}. {each['kind']}{where}: {each['note']}")
    out.print()


def _show_sides(story: Story) -> None:
    sides = table("", "source", "copy", wrap=("source", "copy"))
    sides.add_row("version", *(_version(side) for side in (story.source, story.copy)))
    # Not by the values: those that are hidden all look alike.
    apart = {field["name"] for field in (story.finding["fields"] if story.finding is not None else ())}
    for name in (story.source or story.copy or Shown(None, {}, 0)).fields:
        values = [_cell(side, name) for side in (story.source, story.copy)]
        sides.add_row(name + (" ≠" if name in apart else ""), *values)
    console().print(sides)


def _version(side: Shown | None) -> str:
    if side is None:
        return "(no row)"
    several = f" ({side.count} rows)" if side.count > 1 else ""
    return f"{side.version or '-'}{several}"


def _cell(side: Shown | None, name: str) -> str:
    if side is None:
        return ""
    value = side.fields[name]
    return "NULL" if value is None else value


def _lane(moment: Moment) -> str:
    return moment.topic if moment.lane in ("log", "ledger") else f"{moment.lane.replace('_', ' ')}: {moment.topic}"


def _time(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S.%f}"[:-3]
