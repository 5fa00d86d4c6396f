"""`reconcile quality`: the expectation suites as a gate."""

from __future__ import annotations

from contextlib import AbstractContextManager

import click

from reconcile.cli import options
from reconcile.cli.output import print_json, say_next
from reconcile.cli.outputs import QualityOutput
from reconcile.cli.report import write_report
from reconcile.cli.tables import console, of_suite, table
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.handoffs import Verified
from reconcile.pipeline.job import Job
from reconcile.pipeline.result import repaired

FAILED = 1


@click.command()
@options.job
@options.as_json
@click.pass_context
def quality(context: click.Context, opening: AbstractContextManager[Job], as_json: bool) -> None:
    """Check what a run has read and found against expectation suites: the built-in ones and the contract's own.

    Exits 1 if a critical expectation fails or cannot be evaluated, unless a repair has met it since. Updates the run's
    report.
    """
    with opening as job:
        found = pipeline.quality(job)
        mended = repaired([each for each in found.results if not each.success], job.run.read_if_there(Verified))
        report = write_report(job)
    if as_json:
        print_json(QualityOutput(run_id=job.run.id, **dict(found)))
    else:
        shown = table("of", "result", "what was found", wrap=("what was found",))
        for each in found.results:
            result = "repaired" if each in mended else "FAILED" if each.stops else each.severity
            what = each.words if each.success or not each.why else f"{each.words}: {each.why}"
            shown.add_row(of_suite(each), "ok" if each.success else result, what)
        console().print(shown)
    report.tell()
    failed = any(each.stops and each not in mended for each in found.results)
    say_next(f"report {job.run.id}" if failed else f"plan {job.run.id}")
    context.exit(FAILED if failed else 0)
