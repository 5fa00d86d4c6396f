"""From the artifacts of a run to the result model: findings stream by, and only the worst are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from reconcile.contract import Contract
from reconcile.control.findings import Seen
from reconcile.domain.finding import SCHEMA_VERSION
from reconcile.report import stored
from reconcile.report.ages import age
from reconcile.report.expectations import AGREEING, QUALITY, exit_code_with, level_with, quality_of
from reconcile.report.hiding import Hiding, hiding
from reconcile.report.model import Count, Known, Level, LinkResult, Report, Shown
from reconcile.report.repairs import Repairs
from reconcile.report.story import Story, story
from reconcile.report.tally import COLUMNS, Tally
from reconcile.report.trend import known, trends
from reconcile.run import Run
from reconcile.settings import Settings
from reconcile.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOWN = 500
_EXIT_LEVEL = {0: Level.AGREES, 1: Level.DRIFT, 2: Level.UNKNOWN}


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
    links = _links(summary, tally.oldest)
    compared, quality = _level(summary["exit_code"], links), quality_of(run.json_if_there(QUALITY))
    unmet = len(quality.stopping) if quality is not None else 0
    repairs = Repairs.of(run)
    told, doubts = trends(place, settings, summary["contract"], datetime.fromisoformat(fence["opened_at"]))
    return Report(
        run_id=run.id,
        aggregate=summary["contract"],
        topic=fence["topic"]["name"],
        source=fence["source"]["store"],
        opened_at=datetime.fromisoformat(fence["opened_at"]),
        closed_at=closed_at,
        level=level_with(compared, unmet),
        verdict=_verdict(compared, links) + _failing(compared, unmet),
        exit_code=exit_code_with(summary["exit_code"], unmet),
        complete=summary["complete"],
        links=links,
        flows=tally.flows,
        ages=tally.ages,
        fields=tally.fields,
        heat=tally.heat,
        total=tally.total,
        shown=Showing(run, settings, concealed, closed_at, repairs, place.spark).of(tally.worst()),
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
                found[link, case["id"]] = story(link, topic, case, fields, None, hidden)
        return found


def to_data(report: Report) -> dict[str, Any]:
    """Give a report as the object of JSON."""
    return {"schema_version": SCHEMA_VERSION, **_plain(report)}


def consumer_of(link: str) -> str:
    """Give the name of a link's consumer."""
    return link.rpartition("/")[2]


def _known(seen: Seen | None) -> Known | None:
    if seen is None:
        return None
    return Known(seen.first_seen_at, seen.first_seen_run, seen.recurrences, seen.returned)


def _links(summary: Mapping[str, Any], oldest: Mapping[str, datetime]) -> tuple[LinkResult, ...]:
    read = [
        LinkResult(
            link=each["link"],
            consumer=each["consumer"],
            level=Level.DRIFT if each["beyond_tolerance"] else Level.TOLERATED if each["drifted"] else Level.AGREES,
            **{name: each[name] for name in ("settled", "compared", "agreeing", "drifted", "latent", "tolerated")},
            in_flight=each["in_flight"],
            by_cause=_counts(each["by_cause"]),
            by_difference=_counts(each["by_difference"]),
            oldest=oldest.get(each["link"]),
        )
        for each in summary["links"]
    ]
    unread = [
        LinkResult(
            each["link"], consumer_of(each["link"]), Level.UNKNOWN, False, 0, 0, 0, 0, 0, 0, (), (), None,
            each["message"],
        )
        for each in summary["unread"]
    ]  # fmt: skip
    return (*read, *unread)


def _counts(numbers: Mapping[str, int]) -> tuple[Count, ...]:
    return tuple(Count(name, number) for name, number in numbers.items())


def _level(exit_code: int, links: tuple[LinkResult, ...]) -> Level:
    if exit_code == 0 and any(each.level == Level.TOLERATED for each in links):
        return Level.TOLERATED
    return _EXIT_LEVEL[exit_code]


def _verdict(level: Level, links: tuple[LinkResult, ...]) -> str:
    several = len(links) > 1
    copies = "The copies agree" if several else "The copy agrees"
    if level == Level.UNKNOWN:
        unread = [each.consumer for each in links if each.level == Level.UNKNOWN]
        return f"It could not be told whether {', '.join(unread)} agrees"
    if level == Level.AGREES:
        return f"{copies} with the source"
    if level == Level.TOLERATED:
        return f"{copies} as far as the contract asks"
    drifted = [each for each in links if each.level == Level.DRIFT]
    who = f"{len(drifted)} of {len(links)} copies have drifted" if several else "The copy has drifted"
    number, compared = sum(each.drifted for each in drifted), sum(each.compared for each in drifted)
    return f"{who}: {number:,} of {compared:,} aggregates differ"


def _failing(compared: Level, unmet: int) -> str:
    """End the verdict's sentence with what failed beside it."""
    if not unmet:
        return ""
    joined = ", but" if compared in AGREEING else ", and"
    return f"{joined} {unmet:,} {'expectation' if unmet == 1 else 'expectations'} of the data failed"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    told = value if isinstance(value, Mapping) else vars(value)
    return {name: _plain(each) for name, each in told.items()}
