"""What integration tests share: servers that are started once, by the code that users run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from reconcile.lab.world import SPARK_OF_SMALL_WORLDS
from reconcile.settings.settings import Settings
from reconcile.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for all tests, with few partitions because their data are small, and with what lakes need."""
    conf = SPARK_OF_SMALL_WORLDS | {"spark.databricks.delta.snapshotPartitions": "1"}
    lakes = {form: {"warehouse": "/nowhere", "format": form} for form in ("iceberg", "delta")}
    settings = Settings.model_validate({"connections": lakes, "spark": {"master": "local[2]", "conf": conf}})
    with session(settings, "tests") as started:
        yield started
