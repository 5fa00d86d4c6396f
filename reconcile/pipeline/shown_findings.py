"""Findings as they are shown: with hidden values, their story, what earlier runs knew of them, and their repair."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from reconcile.contract.model import Contract
from reconcile.domain.cause import Cause
from reconcile.domain.finding import Finding, consumer_of
from reconcile.domain.mending import Mending, mending
from reconcile.pipeline import tables
from reconcile.pipeline.finding_counts import ordered
from reconcile.pipeline.handoffs import Fence, Request, cases
from reconcile.pipeline.redaction import Redaction, redaction_of
from reconcile.pipeline.repairs import Repairs
from reconcile.pipeline.story import story
from reconcile.pipeline.trend import known
from reconcile.report.model import CauseCount, ShownFinding, Story
from reconcile.settings.settings import Settings
from reconcile.workspace.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNITS = (("year", 365 * 86400), ("month", 30 * 86400), ("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class Showing:
    """What is needed to show findings of a run."""

    run: Run
    fence: Fence
    settings: Settings
    redaction: Redaction
    repairs: Repairs | None
    spark: SparkSession | None
    contract_file: str | None = None

    @classmethod
    def of(cls, run: Run, settings: Settings, contract: Contract | None, spark: SparkSession | None) -> Showing:
        """Read it; `contract` is the run's, as it is now, if it can be read."""
        request = run.read_if_there(Request)
        file = None if request is None else request.contract
        return cls(run, run.read(Fence), settings, redaction_of(run, contract), Repairs.of(run), spark, file)

    def shown(
        self, findings: Collection[Finding], *, stories: bool = True, moments: int | None = None
    ) -> tuple[ShownFinding, ...]:
        """Read all that belongs to findings; each story has as many moments at most, the newest, or all for None."""
        ids: dict[str, set[str]] = {}
        for each in findings:
            if each.aggregate_id is not None:
                ids.setdefault(each.link, set()).add(each.aggregate_id)
        found = {(each.link, each.id): each for each in self.stories(ids, moments)} if stories else {}
        seen = known(self.settings, ids)
        repaired = self.repairs.of_findings(ids) if self.repairs is not None else {}
        return tuple(
            ShownFinding(
                number,
                self.redaction.finding(each),
                _age(each.since, self.fence.closed_at),
                found.get((each.link, each.aggregate_id)),
                seen.get((each.link, each.aggregate_id)),
                repaired.get((each.link, each.aggregate_id)),
                self.mending(each.cause),
            )
            for number, each in enumerate(findings, 1)
        )

    def mending(self, cause: Cause) -> Mending:
        """Choose the shortest way to mend what a cause did."""
        applied = self.repairs is not None and self.repairs.applied is not None
        return mending(cause, self.run.id, self.contract_file, applied=applied)

    def cause_counts(self, numbers: Mapping[str, int]) -> tuple[CauseCount, ...]:
        """Build what is said of causes, by how many findings each has, the most frequent first."""
        causes = ((Cause(each), number) for each, number in ordered(numbers))
        return tuple(CauseCount(each, number, each.meaning, self.mending(each)) for each, number in causes)

    def stories(self, ids: Mapping[str, Collection[str]], moments: int | None = None) -> Iterator[Story]:
        """Read the stories of aggregates, given by link, at which the run looked closely."""
        for link, some in ids.items():
            consumer = consumer_of(link)
            name = cases(consumer)
            if self.run.find(name) is None:
                continue
            fields, hidden = self.redaction.fields[consumer], self.redaction.hidden.get(consumer, ())
            for case in tables.rows(self.run, name, {"id": some}, self.spark):
                yield story(link, self.fence.topic.name, case, fields, hidden, moments)


def _age(since: datetime | None, at: datetime) -> str:
    """Compute an age at an instant in words, such as `3 days`; empty where it is not known."""
    if since is None:
        return ""
    seconds = max(int((at - since).total_seconds()), 0)
    for name, size in _UNITS:
        if number := seconds // size:
            return f"{number} {name}{'' if number == 1 else 's'}"
    return "0 seconds"
