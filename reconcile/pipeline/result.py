"""From the artifacts of a run to the result model: findings stream by, and only the worst are kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from reconcile.contract.model import Contract
from reconcile.control.findings import Seen
from reconcile.domain.finding import SCHEMA_VERSION
from reconcile.pipeline import tables
from reconcile.pipeline.handoffs import (
    FINDINGS,
    Fence,
    Gathered,
    LinkSummary,
    Quality,
    Request,
    Summary,
    Verified,
    VerifiedLink,
    cases,
    results_of,
)
from reconcile.pipeline.repairs import Repairs
from reconcile.pipeline.scope import All
from reconcile.pipeline.trend import known, trends
from reconcile.quality.gate import ABOUT_FINDINGS, closes, unmet
from reconcile.quality.suites import Checked
from reconcile.report.ages import age
from reconcile.report.model import Count, Expectation, Known, Level, LinkResult, QualityResult, Report, Selection, Shown
from reconcile.report.redaction import Redaction, redaction
from reconcile.report.story import Story, story
from reconcile.report.tally import COLUMNS, Tally
from reconcile.report.verdict import consumer_of, exit_code_with, level_of, level_with, verdict
from reconcile.settings.settings import Settings
from reconcile.workspace import handoff
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOWN = 500
MOMENTS = 50
"""So many moments of each story stand in a report: the newest."""


def report_of(
    run: Run, place: Workspace, settings: Settings, contract: Contract | None = None, shown: int = SHOWN
) -> Report:
    """Give the report of a run that was audited; raise MissingArtifactError for one that was not.

    `contract` is the run's, as it is now; None where it cannot be read any more.
    """
    summary, fence, verified = run.read(Summary), run.read(Fence), run.read_if_there(Verified)
    shown_fields, request, results = redaction_of(run, contract), run.read_if_there(Request), results_of(run)
    tally = Tally(fence.topic.name, len(fence.topic.partitions), fence.closed_at, shown)
    tally.add_all(tables.tuples(run, FINDINGS, COLUMNS, place.spark))
    repairs, selection = Repairs.of(run), None if request is None else _selection(request)
    links = links_of(summary, tally.oldest, verified)
    code = (verified or summary).exit_code
    level, failed = level_of(code, links), len(unmet(results))
    whole = request is None or isinstance(request.scope, All)
    over_time, doubts = trends(place, settings, summary.contract, fence.opened_at) if whole else ((), ())
    return Report(
        run_id=run.id,
        aggregate=summary.contract,
        topic=fence.topic.name,
        source=fence.source.store,
        opened_at=fence.opened_at,
        closed_at=fence.closed_at,
        level=level_with(level, failed),
        verdict=verdict(level, links, selection, failed),
        exit_code=exit_code_with(code, failed),
        complete=summary.complete,
        asked=selection,
        links=links,
        flows=tally.flows,
        ages=tally.ages,
        fields=tally.fields,
        heat=tally.heat,
        total=tally.total,
        shown=Showing(run, settings, shown_fields, fence.closed_at, repairs, place.spark, MOMENTS).of(tally.worst()),
        repair=None if repairs is None else repairs.result(),
        quality=quality_result(run.read_if_there(Quality)),
        trends=over_time,
        notes=(*([shown_fields.note] if shown_fields.note else []), *doubts),
    )


def links_of(summary: Summary, oldest: Mapping[str, datetime], verified: Verified | None) -> tuple[LinkResult, ...]:
    """Build what was found on each link, and what still differs where corrections were verified."""
    ended = {each.link: each for each in verified.links} if verified is not None else {}
    read = [_link_result(each, ended.get(each.link), oldest.get(each.link)) for each in summary.links]
    unread = [
        LinkResult(
            each.link, consumer_of(each.link), Level.UNKNOWN, False, 0, 0, 0, 0, 0, 0, False, (), (), None,
            message=each.message,
        )
        for each in summary.unread
    ]  # fmt: skip
    return (*read, *unread)


def redaction_of(run: Run, contract: Contract | None) -> Redaction:
    """Decide what may be shown of a run."""
    gathered = run.read(Gathered)
    fields = {
        link.consumer: [(f"field {number + 1}", True) for number in range(len(link.form))]
        if link.fields is None
        else [(each.name, each.sensitive) for each in link.fields]
        for link in gathered.links
    }
    return redaction(fields, [each.consumer for each in gathered.links if each.fields is None], contract)


def quality_result(quality: Quality | None) -> QualityResult | None:
    """Build what a run's expectations come to."""
    if quality is None:
        return None
    rows: dict[str, int] = {}
    for each in quality.results:
        if each.rows is not None and each.suite != ABOUT_FINDINGS:
            name = f"{each.link} {each.suite}" if each.link else each.suite
            rows[name] = max(each.rows, rows.get(name, 0))
    failed = tuple(_expectation(each) for each in quality.results if not each.success)
    total, read = len(quality.results), tuple(Count(name, number) for name, number in rows.items())
    return QualityResult(total, total - len(failed), failed, read)


def stories(
    run: Run,
    shown_fields: Redaction,
    aggregate_id: str,
    consumers: Collection[str] = (),
    spark: SparkSession | None = None,
) -> Iterator[Story]:
    """Tell the story of an aggregate in each link in which the run looked closely at it."""
    topic = run.read(Fence).topic.name
    for link in run.read(Gathered).links:
        name = cases(link.consumer)
        if (consumers and link.consumer not in consumers) or run.find(name) is None:
            continue
        fields, hidden = shown_fields.fields[link.consumer], shown_fields.hidden[link.consumer]
        for case in tables.rows(run, name, {"id": [aggregate_id]}, spark):
            finding = next(tables.findings(run, links=[link.link], ids=[aggregate_id], spark=spark), None)
            shown = None if finding is None else shown_fields.finding(finding, link.consumer)
            yield story(link.link, topic, case, fields, shown, hidden)


@dataclass(frozen=True)
class Showing:
    """What is needed to show findings of a run."""

    run: Run
    settings: Settings
    redaction: Redaction
    at: datetime
    """The instant of the run, from which ages are counted."""
    repairs: Repairs | None
    spark: SparkSession | None
    moments: int | None = None
    """So many of each story at most, the newest; None for all."""

    def of(self, findings: list[dict[str, Any]], *, stories: bool = True) -> tuple[Shown, ...]:
        """Give findings with all that belongs to them."""
        ids: dict[str, set[str]] = {}
        for each in findings:
            if each["aggregate_id"] is not None:
                ids.setdefault(each["link"], set()).add(each["aggregate_id"])
        told = self.stories(ids) if stories else {}
        seen = known(self.settings, ids)
        repaired = self.repairs.of_findings(ids) if self.repairs is not None else {}
        shown = []
        for number, each in enumerate(findings, 1):
            key = (each["link"], each["aggregate_id"])
            since = None if each["since"] is None else datetime.fromisoformat(each["since"])
            shown.append(
                Shown(
                    number,
                    self.redaction.finding(each, consumer_of(each["link"])),
                    since,
                    age(since, self.at),
                    told.get(key),
                    _known(seen.get(key)),
                    repaired.get(key),
                )
            )
        return tuple(shown)

    def stories(self, ids: Mapping[str, set[str]]) -> dict[tuple[str, str], Story]:
        """Give the stories of aggregates, by link and id."""
        topic = self.run.read(Fence).topic.name
        found: dict[tuple[str, str], Story] = {}
        for link, some in ids.items():
            consumer = consumer_of(link)
            name = cases(consumer)
            if self.run.find(name) is None:
                continue
            fields, hidden = self.redaction.fields[consumer], self.redaction.hidden.get(consumer, ())
            for case in tables.rows(self.run, name, {"id": some}, self.spark):
                found[link, case["id"]] = story(link, topic, case, fields, None, hidden, self.moments)
        return found


def to_data(report: Report) -> dict[str, Any]:
    """Give a report as the object of JSON."""
    return {"schema_version": SCHEMA_VERSION, **handoff.to_data(report)}


def _selection(request: Request) -> Selection | None:
    """Build what was asked for; None if that was all aggregates of all copies."""
    count = request.scope.count
    return None if count is None and not request.consumers else Selection(count, request.consumers)


def _link_result(link: LinkSummary, ended: VerifiedLink | None, oldest: datetime | None) -> LinkResult:
    if (link if ended is None else ended).beyond_tolerance:
        level = Level.DRIFT
    elif not link.drifted:
        level = Level.AGREES
    else:
        level = Level.TOLERATED if ended is None or ended.still_different else Level.REPAIRED
    return LinkResult(
        link=link.link,
        consumer=link.consumer,
        level=level,
        settled=link.settled,
        compared=link.compared,
        agreeing=link.agreeing,
        drifted=link.drifted,
        latent=link.latent,
        tolerated=link.tolerated,
        in_flight=link.in_flight,
        beyond_tolerance=link.beyond_tolerance,
        by_cause=tuple(Count(name, number) for name, number in link.by_cause.items()),
        by_difference=tuple(Count(name, number) for name, number in link.by_difference.items()),
        oldest=oldest,
        left=None if ended is None else ended.still_different,
    )


def _expectation(checked: Checked) -> Expectation:
    names = ("suite", "link", "expectation", "columns", "severity", "why", "rows", "unexpected", "exception")
    return Expectation(**{name: getattr(checked, name) for name in names}, stops=closes(checked))


def _known(seen: Seen | None) -> Known | None:
    if seen is None:
        return None
    return Known(seen.first_seen_at, seen.first_seen_run, seen.recurrences, seen.returned)
