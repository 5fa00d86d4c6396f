"""A broker and a control store for the tests of emission; what others write, and what a reader finds in the log."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg2

from reconcile.control.errors import LeaseHeldError
from reconcile.control.leases import HeldLease
from reconcile.control.store import ControlStore, open_control
from reconcile.domain import correction as corrections
from reconcile.domain.correction import Correction
from reconcile.lab.folder import Lab
from reconcile.lab.kafka import Kafka, Proxied
from reconcile.lab.postgres import PostgresServer
from reconcile.lab.proxy import FaultProxy
from reconcile.lab.services import offsets
from reconcile.lab.services.offsets import admin_client
from reconcile.repair.emission import EmissionOutcome, EmissionTask, emit
from reconcile.settings.settings import Settings
from tests.ports import ports_of

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

PORTS = ports_of("emission")
PROXIED = Proxied(port=ports_of("proxy").kafka, proxy=ports_of("proxy").controller)
LINK = "user-account/login"
PATIENCE = 60.0


@dataclass(frozen=True)
class World:
    """A broker, and a control store that is empty."""

    lab: Lab
    kafka: Kafka
    postgres: PostgresServer
    control_url: Path
    """A file in which the control store's address stands."""

    @property
    def cluster(self) -> dict[str, str]:
        """The broker, in librdkafka's words."""
        return {"bootstrap.servers": self.lab.bootstrap}

    @contextmanager
    def proxied(self) -> Iterator[FaultProxy]:
        """Run a proxy before the broker for a block."""
        with FaultProxy(PROXIED.proxy, PROXIED.port) as proxy:
            yield proxy

    def topic(self, partitions: int = 3) -> Topic:
        """Create a topic."""
        from confluent_kafka.admin import NewTopic

        topic = Topic(self, f"emission-{uuid4().hex[:8]}", partitions)
        made = admin_client(self.lab.bootstrap).create_topics([NewTopic(topic.name, partitions, 1)])
        made[topic.name].result(PATIENCE)
        until(topic.is_led, f"{topic.name} has no leaders")
        return topic

    @contextmanager
    def producer(self, options: Mapping[str, object]) -> Iterator[Producer]:
        """Give a producer for a block."""
        from confluent_kafka import Producer

        defaults = {"enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        producer = Producer({**self.cluster, **defaults, **options})
        yield producer
        assert 0 == producer.flush(PATIENCE)

    def end_leases(self) -> None:
        """Let the leases of those who died be over."""
        with closing(psycopg2.connect(self.control_url.read_text())) as connection, connection.cursor() as cursor:
            cursor.execute("update lease set expires_at = now()")
            connection.commit()

    @contextmanager
    def control(self) -> Iterator[ControlStore]:
        """Open the control store."""
        with open_control(Settings.model_validate({"control_store": {"url": f"file:{self.control_url}"}})) as opened:
            yield opened


@dataclass(frozen=True)
class Topic:
    """A topic in which a key's partition follows from the key."""

    world: World
    name: str
    partitions: int

    def partition(self, key: str) -> int:
        """Give the partition in which a key's events stand."""
        return zlib.crc32(key.encode()) % self.partitions

    def emit(
        self, corrections: Sequence[Correction], run_id: str, control: ControlStore, held: HeldLease, **more: Any
    ) -> EmissionOutcome:
        """Emit corrections into it."""
        task = EmissionTask(LINK, run_id, self.name, more.pop("cluster", self.world.cluster))
        return emit(corrections, task, control=control, held=held, newer=newer, **more)

    def ends(self, *, committed_only: bool = False) -> dict[int, int]:
        """Give the offset after the last record of each partition, or where readers of committed records stop."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        places = {TopicPartition(self.name, number): OffsetSpec.latest() for number in range(self.partitions)}
        asked = admin_client(self.world.lab.bootstrap).list_offsets(places, isolation_level=level)
        return {place.partition: answer.result(PATIENCE).offset for place, answer in asked.items()}

    def is_led(self) -> bool:
        """Tell whether all partitions answer."""
        return offsets.led(admin_client(self.world.lab.bootstrap), self.name, self.partitions)

    def correction(self, key: str, version: int, run_id: str, since: int, partition: int | None = None) -> Correction:
        """Give a correction that says that an aggregate is at a version."""
        id_ = corrections.correction_id(LINK, key, version, None)
        place = self.partition(key) if partition is None else partition
        return Correction(
            id=id_,
            event_id=corrections.event_id(id_, run_id),
            link=LINK,
            aggregate_id=key,
            cause="skipped",
            topic=self.name,
            partition=place,
            key=key.encode(),
            value=event(version),
            headers=((corrections.CORRECTION_ID, id_.encode()), (corrections.RUN_ID, run_id.encode())),
            basis_version=version,
            since=since,
        )

    def read(self) -> list[Message]:
        """Give all committed records as a plain consumer sees them, once what stands in it now is decided."""
        from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

        options: dict[str, Any] = {
            **self.world.cluster,
            "group.id": "checker",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
        }
        found: list[Message] = []
        going = {number: end for number, end in self.ends().items() if end}
        with closing(Consumer(options)) as consumer:
            consumer.assign([TopicPartition(self.name, number, 0) for number in going])
            while going:
                message = consumer.poll(PATIENCE)
                assert message is not None, f"partitions {[*going]} of {self.name} gave nothing"
                if (error := message.error()) is None:
                    found.append(message)
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif (message.offset() or 0) >= going.get(message.partition() or 0, 0):
                    going.pop(message.partition() or 0, None)
        return sorted(found, key=lambda each: (each.partition(), each.offset()))

    def produce(self, *records: tuple[str, int], partition: int | None = None) -> None:
        """Write events as their owner does."""
        with self.world.producer({}) as producer:
            for key, version in records:
                place = self.partition(key) if partition is None else partition
                producer.produce(self.name, key=key.encode(), value=event(version), partition=place)


@dataclass
class Source:
    """Aggregates that change all the while: the truth, and a thread that changes it and publishes each change."""

    topic: Topic
    aggregates: int
    rate: int
    """Changes in a second, about."""
    truth: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change aggregates during a block; after it all changes are published."""
        over = threading.Event()
        failures: list[BaseException] = []

        def work() -> None:
            try:
                self._work(over)
            except BaseException as error:
                failures.append(error)
                raise

        thread = threading.Thread(target=work, name="source")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(PATIENCE)
            assert [] == failures

    def _work(self, over: threading.Event) -> None:
        chance = random.Random(self.aggregates)  # noqa: S311
        pause = 0.005
        with self.topic.world.producer({}) as producer:
            while not over.is_set():
                for _ in range(max(1, int(self.rate * pause))):
                    key = str(chance.randrange(self.aggregates))
                    self.truth[key] = self.truth.get(key, 0) + 1
                    producer.produce(
                        self.topic.name,
                        key=key.encode(),
                        value=event(self.truth[key]),
                        partition=self.topic.partition(key),
                    )
                producer.poll(pause)


def race(control: ControlStore, source: Source, rounds: int, each_round: int = 40) -> list[EmissionOutcome]:
    """Emit corrections of what the source says, round by round, while it changes."""
    topic, outcomes = source.topic, []
    with leased(control, "race") as held, source.changing():
        for number in range(rounds):
            run_id = f"race-{uuid4().hex[:8]}"
            control.runs.begin(run_id, "user-account", "c" * 64)
            fence = topic.ends()
            state = dict(source.truth)
            wanted = sorted(state)[number % 2 :: 2][:each_round]
            corrections = [topic.correction(key, state[key], run_id, fence[topic.partition(key)]) for key in wanted]
            outcomes.append(topic.emit(corrections, run_id, control, held, batch=20))
    return outcomes


def event(version: int) -> bytes:
    """Give what a record says."""
    return json.dumps({"version": version}).encode()


def version(record: Message) -> int:
    """Give the version that a record carries; one without a value says nothing of it."""
    value = record.value()
    return 0 if value is None else int(json.loads(value)["version"])


def header(record: Message, name: str) -> str | None:
    """Give a header as text."""
    value = dict(record.headers() or ()).get(name)
    return value.decode() if isinstance(value, bytes) else value


def newer(record: Message, correction: Correction) -> bool:
    """Tell it by the version."""
    return version(record) > (correction.basis_version or 0)


def overtaken(records: Iterable[Message]) -> list[str]:
    """Give the corrections before which a newer event stands in their partition."""
    newest: dict[tuple[int | None, bytes | None], int] = {}
    found = []
    for record in records:
        place = record.partition(), record.key()
        if (id_ := header(record, corrections.CORRECTION_ID)) is None:
            newest[place] = max(version(record), newest.get(place, 0))
        elif version(record) < newest.get(place, 0):
            found.append(id_)
    return found


def replayed(records: Iterable[Message]) -> Mapping[str, int]:
    """Give what a consumer that applies whatever comes has in the end."""
    copy: dict[str, int] = {}
    for record in records:
        copy[(record.key() or b"").decode()] = version(record)
    return copy


def until(holds: Callable[[], bool], otherwise: str, patience: float = PATIENCE) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, otherwise
        threading.Event().wait(0.05)


@contextmanager
def leased(control: ControlStore, holder: str, ttl: timedelta = timedelta(seconds=30)) -> Iterator[HeldLease]:
    """Hold the link's lease, once an earlier holder's is over."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with control.leases.hold(LINK, holder, ttl) as held:
                yield held
                return
        except LeaseHeldError:
            if time.monotonic() > deadline:
                raise
            threading.Event().wait(0.05)


@contextmanager
def emission_world() -> Iterator[World]:
    """Start both servers, and leave nothing of them; what a killed run left is found by the ports."""
    lab = Lab(Path(tempfile.gettempdir()) / f"reconcile-test-{PORTS.kafka}" / "lab")
    kafka, postgres = Kafka(lab, PROXIED), PostgresServer(lab)
    kafka.down()
    postgres.down()
    postgres.wipe()
    shutil.rmtree(lab.root, ignore_errors=True)
    lab.root.mkdir(parents=True)
    lab.remember(ports=PORTS)
    try:
        kafka.up()
        postgres.up()
        with closing(psycopg2.connect(lab.url("postgres", "postgres"))) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("create database control")
        url = lab.root / "control.url"
        url.write_text(lab.url("control", "postgres"))
        yield World(lab, kafka, postgres, url)
    finally:
        kafka.down()
        postgres.down()
        postgres.wipe()
        shutil.rmtree(lab.root.parent, ignore_errors=True)
