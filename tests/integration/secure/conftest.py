"""One secure lab for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from reconcile.lab import faults
from tests.integration.secure.world import SecureWorld
from tests.integration.worlds import seeded_world
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureWorld]:
    """A secure world with a few faults."""
    with seeded_world(300, ports=ports_of("secure lab"), secure=True) as lab:
        faults.plant(lab, faults.named(["swallowed-exception", "stash", "dead-letter", "hand-edit"]), 2)
        yield SecureWorld(lab, spark, tmp_path_factory.mktemp("secure"))
