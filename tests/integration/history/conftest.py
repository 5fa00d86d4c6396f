"""A broker for the tests of the log history, and a topic with its history for each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from reconcile.gather.log.store import HistoryStore
from reconcile.lab.folder import Lab
from reconcile.lab.kafka import Kafka
from reconcile.lab.services.offsets import admin_client
from reconcile.workspace.filesystem import LocalFileSystem
from tests.integration.history.log_world import LogWorld
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORTS = ports_of("history")


@pytest.fixture(scope="package")
def bootstrap() -> Iterator[str]:
    """A broker of these tests' own; its folder follows from its port, so that what a killed run left is found."""
    lab = Lab(Path(tempfile.gettempdir()) / f"reconcile-test-{PORTS.kafka}" / "lab")
    kafka = Kafka(lab)
    kafka.down()
    shutil.rmtree(lab.root, ignore_errors=True)
    lab.root.mkdir(parents=True)
    lab.remember(ports=PORTS)
    try:
        kafka.up()
        _compact_at_once(lab.bootstrap)
        yield lab.bootstrap
    finally:
        kafka.down()
        shutil.rmtree(lab.root.parent)


@pytest.fixture
def world(spark: SparkSession, bootstrap: str, tmp_path: Path) -> LogWorld:
    """A topic that is not there yet, and no history."""
    store = HistoryStore(LocalFileSystem(), str(tmp_path / "history"))
    return LogWorld(spark, bootstrap, store, f"log-{uuid4().hex[:8]}")


def _compact_at_once(bootstrap: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin_client(bootstrap).incremental_alter_configs([broker])[broker].result(30)
