"""B15: the Zoë race under every policy, as docs/consumer.md shows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reconcile.files import committed
from tests.integration.consumer.world import Scenario
from tests.integration.consumer.zoe import Race
from tests.integration.runs import Runs, findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADING = "## The Zoë race under every policy"


def shown() -> list[str]:
    """Read the table of the docs."""
    _, section = committed("docs", "consumer.md").read_text("utf-8").split(HEADING, 1)
    lines = section.split("\n## ", 1)[0].splitlines()
    return [line for line in lines if line.startswith("|")]


def test_b15_each_policy_ends_as_the_docs_say(scenario: Scenario, spark: SparkSession, tmp_path: Path) -> None:
    """B15: which copies end right, which wait visibly, which greet Zoë for ever, and what the audit says of those."""
    race = Race.run(scenario)
    contract, settings = race.declare(tmp_path)
    job, _ = Runs(spark, settings, tmp_path / "runs").audited(contract, "zoe")
    assert shown() == race.table(findings(job))
