"""The result of a run, built from its artifacts: findings stream by, and only the most affected are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from reconcile.contract.model import Contract
from reconcile.domain.finding import consumer_of
from reconcile.gather.fence.fence import SourceFence
from reconcile.pipeline import tables
from reconcile.pipeline.finding_counts import FindingCounts
from reconcile.pipeline.handoffs import (
    LinkSummary,
    Quality,
    Request,
    Summary,
    Verified,
    VerifiedLink,
    results_of,
)
from reconcile.pipeline.scope import scope_of
from reconcile.pipeline.shown_findings import Showing
from reconcile.pipeline.trend import distributions_of, trends
from reconcile.pipeline.verdict import exit_code_with, level_of, level_with, verdict
from reconcile.quality.gate import ABOUT_FINDINGS, OF_DRIFT, closes, unmet
from reconcile.quality.suites import Checked
from reconcile.report.model import Count, Expectation, Level, LinkResult, QualityResult, Report, Selection
from reconcile.settings.settings import Settings
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace

SHOWN = 500
MOMENTS = 50
"""So many moments of each story stand in a report: the newest."""


def report_of(
    run: Run, place: Workspace, settings: Settings, contract: Contract | None = None, shown: int = SHOWN
) -> Report:
    """Build the report of a run that was audited; raise MissingArtifactError for one that was not.

    `contract` is the run's, as it is now; None where it cannot be read any more.
    """
    summary, verified, results = run.read(Summary), run.read_if_there(Verified), results_of(run)
    showing, request = Showing.of(run, settings, contract, place.spark), run.read_if_there(Request)
    fence, repairs, note = showing.fence, showing.repairs, showing.redaction.note
    counts = FindingCounts(fence.topic.name, len(fence.topic.partitions), fence.closed_at, shown)
    counts.add_all(tables.findings(run, spark=place.spark))
    links, selection = (
        links_of(summary, counts.oldest, verified),
        None if request is None else _selection(run, request, summary),
    )
    code, failed = (verified or summary).exit_code, len(unmet(results))
    level = level_of(code, links)
    whole = request is None or scope_of(run, request).whole
    over_time, doubts = trends(place, settings, summary.contract, fence.opened_at) if whole else ((), ())
    return Report(
        run_id=run.id,
        aggregate=summary.contract,
        topic=fence.topic.name,
        source=fence.source.store,
        opened_at=fence.opened_at,
        closed_at=fence.closed_at,
        level=level_with(level, failed),
        verdict=verdict(level, links, selection, failed, summary.drifted_aggregates),
        exit_code=exit_code_with(code, failed),
        complete=summary.complete,
        selection=selection,
        links=links,
        flows=counts.flows,
        causes=showing.cause_counts(counts.causes),
        ages=counts.ages,
        fields=counts.fields,
        heat=counts.heat,
        total=counts.total,
        shown=showing.shown(counts.most_affected(), moments=MOMENTS),
        repair=None if repairs is None else repairs.result(),
        quality=quality_result(run.read_if_there(Quality), verified),
        distributions=distributions_of(settings, contract, run) if contract is not None else (),
        trends=over_time,
        notes=(
            *_kind(summary),
            *([note] if note else []),
            *_limits(fence.source),
            *_gaps(summary.version_gaps),
            *(f"{each.message}." for each in summary.doubted_events),
            *doubts,
        ),
        kind="full" if whole else "ids" if summary.scope is None else summary.scope.kind,
        full_because=None if summary.scope is None else summary.scope.reason,
    )


def _limits(source: SourceFence) -> list[str]:
    """Say what the source is where that limits what is certain; nothing for a run that did not look."""
    limits = () if source.nature is None else source.nature.limits
    return [f"What the source does not show may exist all the same: {each}." for each in limits]


def _gaps(number: int) -> Iterator[str]:
    """Say that versions are missing where that is no finding."""
    if number:
        yield f"The log lacks versions of {number:,} ids. Each event carries the whole state, so these are no findings."


def links_of(summary: Summary, oldest: Mapping[str, datetime], verified: Verified | None) -> tuple[LinkResult, ...]:
    """Build what was found on each link, and what still differs where corrections were verified."""
    ended = {each.link: each for each in verified.links} if verified is not None else {}
    read = [_link_result(each, ended.get(each.link), oldest.get(each.link)) for each in summary.links]
    unreadable = [
        LinkResult(
            each.link, consumer_of(each.link), Level.UNKNOWN, False, 0, 0, 0, 0, 0, 0, False, (), (), None,
            message=each.message,
        )
        for each in summary.unread
    ]  # fmt: skip
    return (*read, *unreadable)


def quality_result(quality: Quality | None, verified: Verified | None = None) -> QualityResult | None:
    """Build what a run's expectations come to, also after its corrections were verified."""
    if quality is None:
        return None
    rows: dict[str, int] = {}
    for each in quality.results:
        if each.rows is not None and each.suite != ABOUT_FINDINGS:
            name = f"{each.link} {each.suite}" if each.link else each.suite
            rows[name] = max(each.rows, rows.get(name, 0))
    failed = [each for each in quality.results if not each.success]
    mended = repaired(failed, verified)
    left = tuple(_expectation(each) for each in failed if each not in mended)
    total, read = len(quality.results), tuple(Count(name, number) for name, number in rows.items())
    return QualityResult(total, total - len(failed), len(mended), left, read)


def repaired(failed: Sequence[Checked], verified: Verified | None) -> list[Checked]:
    """Choose those that failed for drift that was repaired since."""
    within = {each.link for each in verified.links if not each.beyond_tolerance} if verified is not None else set()
    return [each for each in failed if (each.suite, each.columns) == OF_DRIFT and each.link in within]


def _selection(run: Run, request: Request, summary: Summary) -> Selection | None:
    """Build the part that was looked at; None for all aggregates of all copies."""
    count = scope_of(run, request).count
    if count is None and not request.consumers:
        return None
    return Selection(count, request.consumers, None if summary.scope is None else summary.scope.since)


def _kind(summary: Summary) -> Iterator[str]:
    """Say why a run is a full one that was asked for changes alone, and what had escaped those before it."""
    if summary.scope is not None and summary.scope.reason is not None:
        yield f"All aggregates were compared, though only changes were asked for: {summary.scope.reason}."
    for each in summary.links:
        if each.escaped:
            yield (
                f"{each.link}: {each.escaped:,} {'differs' if each.escaped == 1 else 'differ'} that no changed-only run"
                " since the last full one could see."
            )


def _link_result(link: LinkSummary, ended: VerifiedLink | None, oldest: datetime | None) -> LinkResult:
    if (link if ended is None else ended).beyond_tolerance:
        level = Level.DRIFT
    elif not link.drifted:
        level = Level.AGREES
    else:
        level = Level.TOLERATED if ended is None or ended.still_different else Level.REPAIRED
    names = ("link", "consumer", "settled", "compared", "agreeing", "drifted", "latent", "tolerated", "in_flight")
    return LinkResult(
        **{name: getattr(link, name) for name in names},
        level=level,
        escaped=link.escaped,
        beyond_tolerance=link.beyond_tolerance,
        by_cause=tuple(Count(name, number) for name, number in link.by_cause.items()),
        by_difference=tuple(Count(name, number) for name, number in link.by_difference.items()),
        oldest=oldest,
        still_different=None if ended is None else ended.still_different,
    )


def _expectation(checked: Checked) -> Expectation:
    names = ("suite", "link", "expectation", "columns", "severity", "why", "rows", "unexpected", "exception", "words")
    return Expectation(**{name: getattr(checked, name) for name in names}, stops=closes(checked))
