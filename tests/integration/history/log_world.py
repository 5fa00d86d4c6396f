"""A topic, the history that is kept of it, and what other programs find in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconcile.contract.model import Topic
from reconcile.gather.log import by_librdkafka
from reconcile.gather.log.history import History, extend
from reconcile.gather.log.store import HistoryStore, Home
from reconcile.kafka import client as live
from reconcile.lab.services.offsets import admin_client
from reconcile.settings.connections import ClusterConnection
from tests.integration.worlds import until

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import Row, SparkSession

WAYS = ("here", "by Spark's source", "by tasks")
"""In which ways a log is read."""
Headers = Sequence[tuple[str, str | bytes | None]]
Place = tuple[int, int, str | None]
"""A partition, an offset and the value there."""


def read_by(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have logs read in one of the ways, however many records or gaps they have."""
    monkeypatch.setattr(by_librdkafka, "_FEW", 100_000 if way == "here" else -1)
    monkeypatch.setattr(by_librdkafka, "has_many_gaps", lambda *_: way == "by tasks")


@dataclass
class LogWorld:
    """A topic, and the history that is kept of it."""

    spark: SparkSession
    bootstrap: str
    store: HistoryStore
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def topic(self) -> Topic:
        """The contract's topic."""
        said = {"cluster": "main", "name": self.name, "version": "$.version", "event_id": "header:event-id"}
        return Topic.model_validate({**said, **self.options})

    @property
    def cluster(self) -> ClusterConnection:
        """The contract's cluster."""
        return ClusterConnection.model_validate({"bootstrap": self.bootstrap})

    @property
    def admin(self) -> Any:
        """A client for what contracts do not do."""
        return admin_client(self.bootstrap)

    def create(self, partitions: int = 2, **config: str) -> None:
        """Create the topic."""
        from confluent_kafka.admin import NewTopic

        self.admin.create_topics([NewTopic(self.name, partitions, 1, config=config)])[self.name].result()

    def configure(self, **config: str) -> None:
        """Set what the topic's settings are from now on."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        topic = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=entries)
        self.admin.incremental_alter_configs([topic])[topic].result()

    def delete(self) -> None:
        """Delete the topic, and see it gone."""
        self.admin.delete_topics([self.name])[self.name].result()
        until(lambda: self.name not in self.admin.list_topics(timeout=10).topics)

    def cut(self, offsets: dict[int, int]) -> None:
        """Move the log start."""
        from confluent_kafka import TopicPartition

        places = [TopicPartition(self.name, partition, offset) for partition, offset in offsets.items()]
        for future in self.admin.delete_records(places).values():
            future.result()

    def produce(self, *records: tuple[str | bytes | None, object], partition: int = 0, headers: Headers = ()) -> None:
        """Write records; a value that is no text or bytes becomes JSON, None a tombstone."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap})
        self.write(producer, *records, partition=partition, headers=headers)
        producer.flush()

    def write(
        self,
        producer: Any,
        *records: tuple[str | bytes | None, object],
        partition: int = 0,
        headers: Headers = (),
    ) -> None:
        """Hand records to a producer."""
        for key, value in records:
            text = value if value is None or isinstance(value, (str, bytes)) else json.dumps(value)
            producer.produce(self.name, key=key, value=text, partition=partition, headers=list(headers))

    def transactional(self) -> Any:
        """A producer that writes in transactions."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.name})
        producer.init_transactions()
        return producer

    def ends(self) -> dict[int, int]:
        """Where the log ends, open transactions included."""
        with self._connected() as cluster:
            return cluster.high_watermarks(self.name, cluster.topic(self.name).partitions)

    def extend(self, until: dict[int, int] | None = None, **options: Any) -> History:
        """Extend the history, to the end of the log unless told."""
        return extend(self.spark, self.topic, self.cluster, until or self.ends(), self.store, **options)

    def homes(self) -> set[Home]:
        """Where there are histories of topics of this name, and of derivations."""
        (above,) = {path.parent for path in Path(self.store.root).glob(f"*/{self.name}/*")}
        return {Home(self.store.files, str(path)) for path in above.iterdir()}

    def rows(self, history: History) -> list[Row]:
        """The records of a history by partition and offset."""
        return sorted(history.records(self.spark).collect(), key=lambda row: (row["partition"], row["offset"]))

    def held(self, history: History) -> list[Place]:
        """What a history holds."""
        return [(row["partition"], row["offset"], row["value"]) for row in self.rows(history)]

    def consumed(self) -> list[Place]:
        """What a consumer of committed records finds in the topic."""
        from confluent_kafka import Consumer, TopicPartition

        with self._connected() as cluster:
            begins = cluster.begins(self.name, cluster.topic(self.name).partitions)
        options = {"group.id": "oracle", "enable.partition.eof": True, "isolation.level": "read_committed"}
        found: list[Place] = []
        with closing(Consumer({"bootstrap.servers": self.bootstrap, **options})) as consumer:
            consumer.assign([TopicPartition(self.name, partition, begin) for partition, begin in begins.items()])
            left = set(begins)
            while left:
                record = consumer.poll(60)
                assert record is not None
                partition, offset, value = record.partition(), record.offset(), record.value()
                assert partition is not None
                if record.error():
                    left.discard(partition)
                    continue
                assert offset is not None
                found.append((partition, offset, None if value is None else value.decode()))
        return sorted(found)

    @contextmanager
    def _connected(self) -> Iterator[live.ClusterClient]:
        with closing(live.ClusterClient("main", self.cluster.resolve())) as cluster:
            yield cluster


def event(version: int) -> dict[str, Any]:
    """A value as services write it."""
    return {"id": "u", "version": version, "name": "Zoë"}
