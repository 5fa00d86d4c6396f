"""How long the log history takes beside Kafka's own ConsumerPerformance, and how much memory; then for what is new.

ConsumerPerformance counts and keeps nothing; its seconds are its own, without the start of its JVM.

python bench/history.py --records 5000000
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil

from reconcile.contract.model import Topic
from reconcile.files import jars
from reconcile.gather.log.history import extend
from reconcile.gather.log.store import HistoryStore
from reconcile.kafka import client as live
from reconcile.lab.folder import Lab, Ports
from reconcile.lab.kafka import Kafka
from reconcile.lab.services.offsets import admin_client
from reconcile.settings.connections import ClusterConnection
from reconcile.settings.settings import Settings, Spark
from reconcile.spark.session import session
from reconcile.workspace.filesystem import LocalFileSystem

PORTS = Ports(postgres=15344, kafka=19344, controller=19345)
PARTITIONS = 12
LOCATED = {"version": "$.version", "event_id": "header:event-id", "type": "header:event-type"}
GOAL = 2.5


def id_of(number: int) -> str:
    """Give the id of an aggregate; each has five records."""
    return str(UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC834 % (1 << 128)))


def produce(bootstrap: str, topic: str, numbers: range, *, headers: bool) -> None:
    """Write records of 200 bytes."""
    from confluent_kafka import Producer

    options = {"linger.ms": 50, "batch.num.messages": 10_000, "queue.buffering.max.messages": 200_000}
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2", **options})
    chance = random.Random(numbers.start)  # noqa: S311
    for number in numbers:
        row: dict[str, Any] = {
            "id": id_of(number // 5),
            "version": number % 5 + 1,
            "first_name": "Zoë",
            "email": f"u{number}@example",
        }
        row["note"] = f"{chance.getrandbits(400):x}"
        value = json.dumps(row, ensure_ascii=False)[:-2].ljust(197, "x") + '"}'
        told: Any = [("event-id", id_of(-number - 1).encode()), ("event-type", b"Changed")] if headers else None
        while True:
            try:
                producer.produce(topic, value=value, key=row["id"], headers=told)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 5000 == 0:
            producer.poll(0)
    producer.flush()


class ConsumerPerformance:
    """The program of that name, fetched for the release of the broker."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        release = next(jar.stem.partition("-")[2] for jar in jars("broker") if jar.name.startswith("kafka_"))
        ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
        command = ["java", "-jar", str(ivy), "-dependency", "org.apache.kafka", "kafka-tools", release]
        command += ["-confs", "master", "-cache", str(folder / "ivy"), "-retrieve", f"{folder}/tools/[artifact].[ext]"]
        subprocess.run(command, check=True, capture_output=True)
        self._path = ":".join([f"{folder}/tools/kafka-tools.jar", *map(str, jars("broker"))])

    def seconds(self, bootstrap: str, topic: str, records: int) -> float:
        """Read a topic; give the time between the program's own two time stamps."""
        command = self.command(bootstrap, topic, records)
        return self.seconds_of(subprocess.run(command, check=True, capture_output=True, text=True).stdout, records)

    def command(self, bootstrap: str, topic: str, records: int) -> list[str]:
        """Build the command that reads a topic."""
        command = ["java", "-Xmx1g", "-cp", self._path, "org.apache.kafka.tools.ConsumerPerformance", "--hide-header"]
        return [*command, "--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)]

    @staticmethod
    def seconds_of(stdout: str, records: int) -> float:
        """Compute the time between the program's own two time stamps; raise ValueError if it read too little."""
        begun, ended, *_, read = [each.strip() for each in stdout.strip().splitlines()[-1].split(",")][:5]
        if int(read) < records:
            raise ValueError(f"{read} of {records} records were read")
        moments = (datetime.strptime(each, "%Y-%m-%d %H:%M:%S:%f") for each in (ended, begun))  # noqa: DTZ007
        return (next(moments) - next(moments)).total_seconds()


class Need:
    """The most memory that Spark's JVM and its Python workers had at once, in MB, and the CPU seconds of the JVM."""

    def __init__(self) -> None:
        self.jvm = self.workers = self.cpu = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Need:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        drivers = psutil.Process().children()
        (driver,) = [each for each in drivers if "org.apache.spark.deploy.SparkSubmit" in each.cmdline()]
        begun = sum(driver.cpu_times()[:2])
        while not self._stop.wait(0.1):
            with suppress(psutil.Error):
                workers = [each for each in driver.children(recursive=True) if each.name().startswith("python")]
                used = sum(each.memory_full_info().pss for each in workers)
                self.jvm = max(self.jvm, driver.memory_info().rss / 2**20)
                self.workers = max(self.workers, used / 2**20)
        self.cpu = sum(driver.cpu_times()[:2]) - begun


def told(what: str, work: Callable[[], object]) -> float:
    """Do some work, and print how long it took and what it needed; give the seconds."""
    with Need() as need:
        started = time.monotonic()
        work()
        seconds = time.monotonic() - started
    used = f"{need.cpu:8.2f} CPU s   JVM {need.jvm:6,.0f} MB, workers {need.workers:5,.0f} MB"
    print(f"{what:<44}{seconds:8.2f} s{used}", flush=True)
    return seconds


@contextmanager
def broker() -> Iterator[tuple[Path, str]]:
    """Give a folder and a broker; what a killed run left of either goes first."""
    folder = Path(tempfile.gettempdir()) / f"reconcile-bench-{PORTS.kafka}"
    lab = Lab(folder / "lab")
    kafka = Kafka(lab)
    kafka.down()
    shutil.rmtree(folder, ignore_errors=True)
    lab.root.mkdir(parents=True)
    lab.remember(ports=PORTS)
    try:
        kafka.up()
        yield folder, lab.bootstrap
    finally:
        kafka.down()
        shutil.rmtree(folder)


def measure(spark: Any, bootstrap: str, records: int, folder: Path) -> None:
    """Fill two topics, with headers and without, and read them in every way."""
    from confluent_kafka.admin import NewTopic

    connection = ClusterConnection.model_validate({"bootstrap": bootstrap})
    store = HistoryStore(LocalFileSystem(), str(folder / "history"))
    for name in ("warm", "plain", "headers"):
        admin_client(bootstrap).create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()
    produce(bootstrap, "warm", range(records // 5), headers=True)
    produce(bootstrap, "plain", range(records), headers=False)
    produce(bootstrap, "headers", range(records), headers=True)

    def history(name: str, **locators: str) -> Any:
        topic = Topic.model_validate({"cluster": "main", "name": name, **locators})
        with closing(live.ClusterClient("main", connection.resolve())) as cluster:
            ends = cluster.ends(name, range(PARTITIONS))
        return extend(spark, topic, connection, ends, store)

    for locators in ({}, {"version": "$.version"}, LOCATED):  # so that it does not pay for Java's warming up
        history("warm", **locators)
    consumer = ConsumerPerformance(folder)
    theirs = {name: consumer.seconds(bootstrap, name, records) for name in ("plain", "headers")}
    for name, seconds in theirs.items():
        print(f"{'ConsumerPerformance, ' + name:<44}{seconds:8.2f} s")
    for what, name, located in (
        ("no locators", "plain", {}),
        ("version in the value", "plain", {"version": "$.version"}),
        ("version in the value, two headers", "headers", LOCATED),
    ):
        seconds = told(f"history, {what}", lambda name=name, located=located: history(name, **located))  # type: ignore[misc]
        print(f"{'':<44}{seconds / theirs[name]:8.2f} x   of ConsumerPerformance (goal: {GOAL})")
    produce(bootstrap, "headers", range(records, records + records // 100), headers=True)
    told("history, 1 % more", lambda: history("headers", **LOCATED))
    told("history, nothing new", lambda: history("headers", **LOCATED))
    known = history("headers", **LOCATED)

    def read(ids: list[str]) -> None:
        known.records(spark, ids).write.format("noop").mode("overwrite").save()

    told("records of 1 id", lambda: read([id_of(1)]))
    told("records of 5,000 ids", lambda: read([id_of(number) for number in range(5000)]))
    size = sum(sum(segment.files.values()) for segment in known.index.segments)
    print(f"{sum(each.rows for each in known.index.segments):,} records in {size / 2**20:,.0f} MB of Parquet")


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=1_000_000)
    records = arguments.parse_args().records
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that the broker ends too
    with broker() as (folder, bootstrap), session(Settings(spark=Spark(master="local[2]")), "bench") as spark:
        measure(spark, bootstrap, records, folder)


if __name__ == "__main__":
    main()
