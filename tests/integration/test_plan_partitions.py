"""Where a correction belongs is inferred rightly from what real producers wrote: librdkafka's, Java's and Spark's."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import NewPartitions, NewTopic

from reconcile.audit.home_partition import Router
from reconcile.audit.partitioner_inference import infer_from_log
from reconcile.contract.model import Topic
from reconcile.domain.key import encode
from reconcile.gather.log.history import History, extend
from reconcile.gather.log.history_columns import ID, OFFSET, PARTITION, TIMESTAMP
from reconcile.gather.log.state import KeptState
from reconcile.gather.log.store import HistoryStore
from reconcile.lab.folder import Lab
from reconcile.lab.kafka import Kafka
from reconcile.lab.process import wait_until
from reconcile.lab.services import offsets
from reconcile.repair.planning import unknown_home
from reconcile.settings.connections import ClusterConnection
from reconcile.workspace.workspace import Workspace
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 12
IDS = [str(uuid.UUID(int=(number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128))) for number in range(600)]
PORTS = ports_of("partitions")
Send = Callable[["Log", list[str]], None]


class Log:
    """A topic, and what is known of its log."""

    def __init__(self, lab: Lab, spark: SparkSession, folder: Path) -> None:
        self.name = f"partitions-{uuid.uuid4().hex[:8]}"
        self.bootstrap, self.spark, self._folder = lab.bootstrap, spark, folder
        self.topic = Topic.model_validate({"cluster": "main", "name": self.name})
        offsets.admin_client(self.bootstrap).create_topics([NewTopic(self.name, PARTITIONS, 1)])[self.name].result(30)
        self._await(PARTITIONS)

    def grow(self, partitions: int) -> None:
        """Give it more partitions."""
        asked = offsets.admin_client(self.bootstrap).create_partitions([NewPartitions(self.name, partitions)])
        asked[self.name].result(30)
        self._await(partitions)

    def history(self) -> History:
        """Read its log."""
        connection = ClusterConnection.model_validate({"bootstrap": self.bootstrap})
        ends = offsets.ends(offsets.admin_client(self.bootstrap), self.name)
        return extend(self.spark, self.topic, connection, ends, HistoryStore.of(Workspace(self._folder)))

    def router(self) -> Router:
        """Infer where keys belong."""
        history = self.history()
        inference = infer_from_log(KeptState(self.spark, history), history.index.partitions)
        return Router.of(inference, history.index.partitions)

    def places(self) -> dict[str, int]:
        """Give where the newest record of each id stands."""
        records = self.history().records(self.spark).orderBy(TIMESTAMP, OFFSET)
        return {row[ID]: row[PARTITION] for row in records.select(ID, PARTITION).collect()}

    def _await(self, partitions: int) -> None:
        # Java's producer never recovers from what it sends to a partition that has no leader yet.
        admin = offsets.admin_client(self.bootstrap)
        wait_until(lambda: offsets.led(admin, self.name, partitions), f"{self.name} has no {partitions} leaders", 30)


def by_librdkafka(log: Log, ids: list[str]) -> None:
    """Send with its default partitioner."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": log.bootstrap, "log_level": 0})
    for id_text in ids:
        producer.produce(log.name, key=id_text.encode(), value=b"{}")
    assert 0 == producer.flush(30)


def by_java(log: Log, ids: list[str]) -> None:
    """Send with Kafka's own producer, in Spark's JVM."""
    jvm: Any = log.spark._jvm
    kafka = jvm.org.apache.kafka.clients.producer
    text = jvm.org.apache.kafka.common.serialization.StringSerializer
    options = jvm.java.util.HashMap()
    options.put("bootstrap.servers", log.bootstrap)
    producer = kafka.KafkaProducer(options, text(), text())
    for id_text in ids:
        producer.send(kafka.ProducerRecord(log.name, id_text, "{}"))
    producer.close()


def by_spark(log: Log, ids: list[str]) -> None:
    """Send with Spark's sink."""
    rows = log.spark.createDataFrame([(id_text, "{}") for id_text in ids], "key string, value string")
    rows.write.format("kafka").option("kafka.bootstrap.servers", log.bootstrap).option("topic", log.name).save()


@pytest.fixture(scope="module")
def broker() -> Iterator[Lab]:
    """A broker alone."""
    lab = Lab(Path(tempfile.gettempdir()) / f"reconcile-test-{PORTS.kafka}" / "lab")
    kafka = Kafka(lab)
    kafka.down()
    shutil.rmtree(lab.root, ignore_errors=True)
    lab.root.mkdir(parents=True)
    lab.remember(ports=PORTS)
    try:
        kafka.up()
        yield lab
    finally:
        kafka.down()
        kafka.wipe()
        shutil.rmtree(lab.root.parent, ignore_errors=True)


@pytest.fixture
def log(broker: Lab, spark: SparkSession, tmp_path: Path) -> Log:
    """A topic that is empty."""
    return Log(broker, spark, tmp_path)


@pytest.mark.parametrize(
    ("send", "partitioner"), [(by_librdkafka, "crc32"), (by_java, "murmur2"), (by_spark, "murmur2")]
)
def test_each_client_is_known_by_its_log(log: Log, send: Send, partitioner: str) -> None:
    """The partitioner, and for each id the partition in which its records really stand."""
    send(log, IDS)
    router = log.router()
    assert (partitioner,) == router.candidates
    assert log.places() == {id_text: router.home(id_text.encode()) for id_text in IDS}


def test_after_growth_the_home_is_where_the_next_event_will_stand(log: Log) -> None:
    """What a real producer does with the larger topic is what was foretold."""
    by_librdkafka(log, IDS)
    assert log.router().candidates
    log.grow(18)
    by_librdkafka(log, IDS[:300])
    router = log.router()
    foretold = {id_text: router.home(id_text.encode()) for id_text in IDS[300:]}
    before = log.places()
    by_librdkafka(log, IDS[300:])
    newest = {id_text: place for id_text, place in log.places().items() if id_text in foretold}
    assert any(before[id_text] != place for id_text, place in foretold.items())
    assert foretold == newest


def test_two_clients_with_different_defaults_are_not_trusted(log: Log) -> None:
    """No home is known, and the refusal tells the shares that were seen."""
    by_librdkafka(log, IDS[:300])
    by_spark(log, IDS[300:])
    history = log.history()
    inference = infer_from_log(KeptState(log.spark, history), history.index.partitions)
    assert {None} == {Router.of(inference, history.index.partitions).home(id_text.encode()) for id_text in IDS}
    assert "%" in unknown_home(log.name, inference)


@pytest.mark.parametrize(("key_type", "id_text"), [
    ("string", "order:1001"),
    ("uuid-bytes", IDS[0]),
    ("int64", "1001"),
    ("json", '["eu","1001"]'),
])  # fmt: skip
def test_every_type_of_key_has_its_home(log: Log, key_type: str, id_text: str) -> None:
    """A key of any type stands where its bytes were said to belong."""
    from confluent_kafka import Producer

    by_librdkafka(log, IDS)
    home = log.router().home(encode(id_text, key_type))
    found: list[int | None] = []
    producer = Producer({"bootstrap.servers": log.bootstrap, "log_level": 0})
    producer.produce(
        log.name, key=encode(id_text, key_type), value=b"{}", on_delivery=lambda _, m: found.append(m.partition())
    )
    assert 0 == producer.flush(30)
    assert [home] == found
