"""From the artifacts of a run to the result model: findings stream by, and only the worst are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from reconcile.contract.model import Contract
from reconcile.control.findings import Seen
from reconcile.domain.finding import SCHEMA_VERSION
from reconcile.pipeline import stored
from reconcile.pipeline.asked import asked_of
from reconcile.pipeline.repairs import Repairs
from reconcile.pipeline.trend import known, trends
from reconcile.report.ages import age
from reconcile.report.expectations import QUALITY, exit_code_with, level_with, quality_of
from reconcile.report.hiding import Hiding, hiding
from reconcile.report.model import Known, Report, Shown
from reconcile.report.story import Story, story
from reconcile.report.tally import COLUMNS, Tally
from reconcile.report.verdict import consumer_of, level_of, links_of, verdict
from reconcile.settings.settings import Settings
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
    summary, fence = run.json("summary"), run.json("fence")
    concealed = hiding_of(run, contract)
    closed_at = datetime.fromisoformat(fence["closed_at"])
    tally = Tally(fence["topic"]["name"], len(fence["topic"]["partitions"]), closed_at, shown)
    tally.add_all(stored.tuples(run, "findings", COLUMNS, place.spark))
    repairs, asked = Repairs.of(run), asked_of(run)
    ended = repairs.verified if repairs is not None else None
    links = links_of(summary, tally.oldest, ended)
    code = (ended or summary)["exit_code"]
    level, quality = level_of(code, links), quality_of(run.json_if_there(QUALITY))
    unmet = len(quality.stopping) if quality is not None else 0
    opened_at = datetime.fromisoformat(fence["opened_at"])
    whole = asked is None or asked.ids is None
    told, doubts = trends(place, settings, summary["contract"], opened_at) if whole else ((), ())
    return Report(
        run_id=run.id,
        aggregate=summary["contract"],
        topic=fence["topic"]["name"],
        source=fence["source"]["store"],
        opened_at=opened_at,
        closed_at=closed_at,
        level=level_with(level, unmet),
        verdict=verdict(level, links, asked, unmet),
        exit_code=exit_code_with(code, unmet),
        complete=summary["complete"],
        asked=asked,
        links=links,
        flows=tally.flows,
        ages=tally.ages,
        fields=tally.fields,
        heat=tally.heat,
        total=tally.total,
        shown=Showing(run, settings, concealed, closed_at, repairs, place.spark, MOMENTS).of(tally.worst()),
        repair=None if repairs is None else repairs.result(),
        quality=quality,
        trends=told,
        notes=(*([concealed.note] if concealed.note else []), *doubts),
    )


def hiding_of(run: Run, contract: Contract | None) -> Hiding:
    """Say what may be shown of a run."""
    return hiding(run.json("gathered")["links"], contract)


@dataclass(frozen=True)
class Showing:
    """What is needed to show findings of a run."""

    run: Run
    settings: Settings
    concealed: Hiding
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
                    self.concealed.finding(each, consumer_of(each["link"])),
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
        topic = self.run.json("fence")["topic"]["name"]
        found: dict[tuple[str, str], Story] = {}
        for link, some in ids.items():
            consumer = consumer_of(link)
            name = f"cases.{consumer}"
            if self.run.find(name) is None:
                continue
            fields, hidden = self.concealed.fields[consumer], self.concealed.hidden.get(consumer, ())
            for case in stored.rows(self.run, name, {"id": some}, self.spark):
                found[link, case["id"]] = story(link, topic, case, fields, None, hidden, self.moments)
        return found


def to_data(report: Report) -> dict[str, Any]:
    """Give a report as the object of JSON."""
    return {"schema_version": SCHEMA_VERSION, **_plain(report)}


def _known(seen: Seen | None) -> Known | None:
    if seen is None:
        return None
    return Known(seen.first_seen_at, seen.first_seen_run, seen.recurrences, seen.returned)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    told = value if isinstance(value, Mapping) else vars(value)
    return {name: _plain(each) for name, each in told.items()}
