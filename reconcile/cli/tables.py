"""Tables for people: at a terminal as wide as it is, piped as wide as needed, and never cut."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from reconcile.domain.approval import Actor, Approval
    from reconcile.pipeline.handoffs import LinkSummary, Summary
    from reconcile.quality.suites import Checked
    from reconcile.report.model import Expectation, LinkResult, QualityResult

FIGURES = ("compared", "agreeing", "drifted", "latent", "tolerated", "in flight")
_WIDE = 160


def console() -> Console:
    """Give a console for stdout that takes text as it is, and lets none of it drive the terminal."""
    from reconcile.cli.terminal import VisibleConsole

    return VisibleConsole(None if sys.stdout.isatty() else _WIDE)


def table(*columns: str, right: tuple[str, ...] = (), wrap: tuple[str, ...] = ()) -> Table:
    """Give an empty table; columns in `right` hold numbers, those in `wrap` may break their lines."""
    from reconcile.cli.terminal import WholeTable

    made = WholeTable()
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", no_wrap=name not in wrap)
    return made


def figures(link: LinkSummary | LinkResult) -> list[str]:
    """Build what a table shows of a link under FIGURES."""
    return [f"{getattr(link, name.replace(' ', '_')):,}" for name in FIGURES]


def show_summary(run_id: str, summary: Summary) -> None:
    """Show a run's figures: a line for each link, then the causes."""
    out = console()
    links = table("link", *FIGURES, "settled", right=FIGURES)
    for each in summary.links:
        links.add_row(each.link, *figures(each), "yes" if each.settled else "no")
    for missing in summary.unread:
        links.add_row(missing.link, *(["-"] * len(FIGURES)), "could not be read")
    out.print(links)
    if any(each.by_cause for each in summary.links):
        causes = table("link", "cause", "findings", right=("findings",))
        for each in summary.links:
            for cause, number in each.by_cause.items():
                causes.add_row(each.link, cause, f"{number:,}")
        out.print(causes)
    for each in summary.links:
        if (drift := each.over_time) and (drift.opened or drift.returned or drift.closed):
            counts = f"{drift.opened:,} new, {drift.returned:,} came back, {drift.closed:,} gone"
            out.print(f"{each.link}: {counts} since the runs before")
    for line in _looked_at(summary):
        out.print(line)
    out.print(_verdict(run_id, summary))


def show_quality(quality: QualityResult) -> None:
    """Show which expectations failed, and why they are there; or that none did."""
    out = console()
    if quality.failed:
        out.print(_failed(quality))
    else:
        after = f", {quality.repaired:,} of them since the repair" if quality.repaired else ""
        out.print(f"Expectations of the data: all {quality.total:,} are met{after}.")
    if quality.read:
        out.print(f"Of rows read: {', '.join(f'{each.number:,} of {each.name}' for each in quality.read)}.")


def of_suite(each: Checked | Expectation) -> str:
    """Name the link and the suite of an expectation; that of the log has no link."""
    return f"{each.link}, {each.suite}" if each.link else each.suite


def show_approvals(requester: Actor | None, approvals: Sequence[Approval]) -> None:
    """Show who asked for a run, and who approved its plan and when; nothing where neither is known."""
    out = console()
    if requester is not None:
        out.print(f"Asked for by {requester}.")
    for each in approvals:
        out.print(f"Approved by {each.approver} at {each.approved_at:%Y-%m-%d %H:%M:%S} UTC.")


def _failed(quality: QualityResult) -> Table:
    words = "not as expected"
    failed = table(words, "of", "severity", "why", wrap=(words, "severity", "why"))
    for each in quality.failed:
        severity = f"{each.severity}, stops a repair" if each.stops else each.severity
        failed.add_row(each.words, of_suite(each), severity, each.why or "")
    return failed


def _looked_at(summary: Summary) -> Iterator[str]:
    scope = summary.scope
    if scope is not None and scope.kind == "changed":
        yield f"Only {scope.ids or 0:,} of {scope.aggregates or 0:,} aggregates may have changed since {scope.since}."
    elif scope is not None and scope.ids is not None:
        yield f"Only {scope.ids:,} {'aggregate was' if scope.ids == 1 else 'aggregates were'} asked for."
    if scope is not None and scope.reason is not None:
        yield f"All aggregates were compared: {scope.reason}."
    for each in summary.links:
        if each.escaped:
            which = f"{each.escaped:,} of those that drifted"
            yield f"{each.link}: {which} escaped the changed-only runs since the last full one"


def _verdict(run_id: str, summary: Summary) -> str:
    words = {0: "The copies agree.", 1: "There is drift beyond tolerance.", 2: "Not all could be read."}
    more = (
        f" `reconcile findings {run_id}` lists what was found." if any(each.findings for each in summary.links) else ""
    )
    return f"{words[summary.exit_code]}{more}"
