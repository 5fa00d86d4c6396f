"""Stories out of a run's artifacts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from reconcile.pipeline import stored
from reconcile.report.hiding import Hiding
from reconcile.report.story import Story, story
from reconcile.workspace.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stories(
    run: Run,
    concealed: Hiding,
    aggregate_id: str,
    consumers: Collection[str] = (),
    spark: SparkSession | None = None,
) -> Iterator[Story]:
    """Give the story of an aggregate in each link in which the run looked closely at it."""
    topic = run.json("fence")["topic"]["name"]
    for gathered in run.json("gathered")["links"]:
        link, consumer = gathered["link"], gathered["consumer"]
        name = f"cases.{consumer}"
        if (consumers and consumer not in consumers) or run.find(name) is None:
            continue
        fields, hidden = concealed.fields[consumer], concealed.hidden[consumer]
        for case in stored.rows(run, name, {"id": [aggregate_id]}, spark):
            finding = next(stored.findings(run, links=[link], ids=[aggregate_id], spark=spark), None)
            shown = None if finding is None else concealed.finding(finding, consumer)
            yield story(link, topic, case, fields, shown, hidden)
