"""Tables for people: at a terminal as wide as it is, piped as wide as needed, and never cut."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reconcile.cli.output import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from reconcile.domain.approval import Actor, Approval
    from reconcile.pipeline.handoffs import LinkSummary, Summary
    from reconcile.quality.suites import Checked
    from reconcile.report.model import CauseCount, Expectation, LinkResult, QualityResult

FIGURES = ("compared", "agreeing", "drifted", "latent", "tolerated", "in flight")
_WIDE = 160
_ROOMY = 120
_COLOURS = {
    **dict.fromkeys(("agrees", "repaired", "0"), "green"),
    **dict.fromkeys(("tolerated", "interrupted", "unfinished", "unknown", "2"), "yellow"),
}
"""Of an outcome; of all others red. `NO_COLOR` takes them away."""


def console() -> Console:
    """Give a console for stdout that takes text as it is, and lets none of it drive the terminal."""
    from reconcile.cli.terminal import VisibleConsole

    return VisibleConsole(None if sys.stdout.isatty() else _WIDE)


def is_roomy(out: Console) -> bool:
    """Tell whether a line has room for all columns of a list; on a narrow one those stay that matter most."""
    return out.width >= _ROOMY


def table(*columns: str, right: tuple[str, ...] = (), wrap: tuple[str, ...] = ()) -> Table:
    """Give an empty table; columns in `right` hold numbers, those in `wrap` may break their lines."""
    from reconcile.cli.terminal import WholeTable

    made = WholeTable()
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", no_wrap=name not in wrap)
    return made


def coloured(words: str, outcome: str) -> Text:
    """Give words in the colour of an outcome: a level, an exit code, or what a run stopped by."""
    from rich.text import Text

    return Text(visible(words, lines=False), _COLOURS.get(outcome, "red"))


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
    for doubted in summary.doubted_events:
        out.print(f"warning: {doubted.message}.")
    for line in _looked_at(summary):
        out.print(line)
    out.print(coloured(_verdict(run_id, summary), str(summary.exit_code)))


def show_causes(causes: Sequence[CauseCount]) -> None:
    """Show how often there is each cause and what it is, then the commands that mend what they did."""
    out = console()
    shown = table("findings", "cause", "what it is", right=("findings",), wrap=("what it is",))
    ways: dict[tuple[str, ...], list[str]] = {}
    for each in causes:
        shown.add_row(f"{each.number:,}", each.cause, each.meaning)
        ways.setdefault(each.mending.commands, []).append(each.cause)
    out.print(shown)
    for commands, names in ways.items():
        out.print(f"{', '.join(names)}:")
        for command in commands:
            out.print(f"  {command}")


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
    differing, found = summary.drifted_aggregates, sum(each.drifted for each in summary.links)
    apart = f" {found:,} findings are of {differing:,} aggregates." if differing and differing != found else ""
    return f"{words[summary.exit_code]}{apart}{more}"
