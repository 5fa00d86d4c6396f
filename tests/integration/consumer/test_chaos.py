"""A short run of what `bench/consumer_chaos.py` does for minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.consumer.chaos import Chaos, audited
from tests.integration.consumer.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("policy", "protocol"), [("stash", "classic"), ("block", "consumer")])
def test_the_copy_equals_its_source_after_chaos(
    world: World, spark: SparkSession, tmp_path: Path, policy: str, protocol: str
) -> None:
    """Members, network and servers fail, each at least once; then nothing is lost, applied twice or out of order."""
    judged = Chaos(world, tmp_path, seconds=0, policy=policy, protocol=protocol, restarts_every=5).run()
    assert [] == judged.damage
    assert [] == audited(spark, judged, policy, tmp_path)
