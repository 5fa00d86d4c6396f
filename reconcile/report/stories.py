"""Stories out of a run's artifacts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from reconcile.contract import Contract
from reconcile.report import stored
from reconcile.report.story import Story, story
from reconcile.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stories(
    run: Run,
    contract: Contract,
    aggregate_id: str,
    consumers: Collection[str] = (),
    spark: SparkSession | None = None,
) -> Iterator[Story]:
    """Give the story of an aggregate in each link in which the run looked closely at it."""
    for consumer in contract.consumers:
        name = f"cases.{consumer.name}"
        if (consumers and consumer.name not in consumers) or run.find(name) is None:
            continue
        link = contract.link(consumer)
        fields = [field.name for field in consumer.fields]
        sensitive = {field.name for field in consumer.fields if field.sensitive}
        for case in stored.rows(run, name, {"id": [aggregate_id]}, spark):
            finding = next(stored.findings(run, links=[link], ids=[aggregate_id], spark=spark), None)
            yield story(link, contract.topic.name, case, fields, finding, sensitive)
