"""`reconcile quality`: the expectation suites as a gate."""

from __future__ import annotations

from contextlib import AbstractContextManager

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say, say_next
from reconcile.cli.outputs import QualityOutput
from reconcile.cli.report import write_report
from reconcile.cli.tables import console, table
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.job import Job

FAILED = 1


@click.command()
@options.job
@options.as_json
@click.pass_context
def quality(context: click.Context, opening: AbstractContextManager[Job], as_json: bool) -> None:
    """Check what a run has read and found against expectation suites: the built-in ones and the contract's own.

    Exits 1 if a critical expectation fails or cannot be evaluated. Updates the run's report.
    """
    with opening as job:
        found = pipeline.quality(job)
        report = write_report(job)
    if as_json:
        print_json(QualityOutput(run_id=job.run.id, **dict(found)))
    else:
        shown = table("suite", "link", "expectation", "columns", "result", "unexpected", wrap=("expectation",))
        for each in found.results:
            result = "ok" if each.success else "FAILED" if each.stops else each.severity
            many = "" if not each.rows else f"{each.unexpected or 0:,} of {each.rows:,}"
            shown.add_row(each.suite, each.link or "", each.expectation, ", ".join(each.columns), result, many)
        console().print(shown)
        for each in found.results:
            if each.exception:
                say(f"reconcile: {each.suite}: {each.expectation}: {each.exception}")
    report.tell()
    say_next(f"plan {job.run.id}" if found.success else f"report {job.run.id}")
    context.exit(0 if found.success else FAILED)
