"""A world without a fault that changes two hundred times a second: what is on its way is no drift."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconcile.gather.stores.digest import ComparisonMode
from tests.integration.foreign_worlds.servers import Servers
from tests.integration.foreign_worlds.tide import flowing, pool, tide
from tests.integration.runs import Runs, findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("build", [tide, pool])
def test_what_is_on_its_way_is_no_drift(
    servers: Servers, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, build: type
) -> None:
    """Two audits while everything moves confirm nothing."""
    world = build()
    servers.make([world])
    runs = Runs(spark, servers.settings, tmp_path_factory.mktemp("live"))
    modes: tuple[ComparisonMode, ...] = ("auto", "full")
    with flowing(servers, world) as done:
        told = {mode: runs.audited(servers.contract(world), f"live-{mode}", mode=mode) for mode in modes}
    assert done[0] > 100
    confirmed = [each for job, _ in told.values() for each in findings(job).values() if each["status"] == "confirmed"]
    for link in (link for _, summary in told.values() for link in summary.links):
        assert link.compared == link.agreeing + link.drifted + link.tolerated + link.in_flight
    assert ([], [0, 0]) == (confirmed, [summary.exit_code for _, summary in told.values()])
