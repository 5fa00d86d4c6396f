"""A member of a group as it runs all day: it subscribes, applies, commits after processing, and keeps to its policy."""

from __future__ import annotations

import threading
import time
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, TopicPartition
from psycopg2.extensions import connection

from reconcile.lab.services import offsets, parking
from reconcile.lab.services.consumer import OnFailure, Park, Trouble, apply_once, login_stash, no_trouble
from reconcile.lab.services.copies import ACTIVITY, LOGIN, Record, Service
from reconcile.lab.services.database import connect
from reconcile.lab.services.relay import producer

_BATCH = 200
_RETRY_AFTER = 1.0


class Member:
    """One consumer of one service. Login stashes, the activity feed has a retry topic, billing blocks."""

    def __init__(self, bootstrap: str, service: Service, database_url: str) -> None:
        self.service = service
        self.applied = 0
        self._bootstrap = bootstrap
        self._database_url = database_url
        self._blocked: dict[int, float] = {}  # partition: when to try again
        self._consumer: Consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": service.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "session.timeout.ms": 10_000,
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        self._ready = threading.Event()

    def run(self, going: threading.Event) -> None:
        """Consume until `going` is cleared."""
        with closing(self._consumer), closing(connect(self._database_url)) as database:
            self._consumer.subscribe([self.service.topic], on_assign=lambda *_: self._ready.set())
            park, trouble = self._policy(database)
            while going.is_set():
                self._unblock()
                done: dict[int, int] = {}
                for message in self._consumer.consume(_BATCH, 0.05):
                    partition, status = message.partition() or 0, message.error()
                    if status is not None and status.code() != KafkaError._PARTITION_EOF:
                        raise RuntimeError(str(status))
                    if partition in self._blocked:
                        continue
                    if status is not None:  # all before it was read; a marker at the end takes an offset too
                        done[partition] = message.offset() or 0
                        continue
                    record = parking.received(message)
                    try:
                        apply_once(self.service, database, record, trouble)
                    except Exception as error:  # noqa: BLE001 - whatever failed, the policy decides
                        if park is None:
                            self._block(record)
                            continue
                        park(record, error)
                    self.applied += 1
                    done[record.partition] = record.offset + 1
                if done:
                    places = [TopicPartition(self.service.topic, *place) for place in done.items()]
                    self._consumer.commit(offsets=places, asynchronous=False)

    def caught_up(self) -> bool:
        """Check whether all that the topic held a moment ago is committed; a blocked partition does not count."""
        if not self._ready.is_set():
            return False
        lag = offsets.lag(self._bootstrap, self.service.group, self.service.topic)
        return all(partition in self._blocked for partition in lag)

    def _policy(self, database: connection) -> tuple[OnFailure | None, Trouble]:
        sender = producer(self._bootstrap)
        if self.service is LOGIN:
            stash = login_stash(database, sender)
            return stash, stash.trouble
        if self.service is ACTIVITY:
            retry = Park(sender, "user-activity.activity.retry-1", ACTIVITY.group, parking.smallrye_retry)
            return retry, no_trouble
        return None, no_trouble

    def _block(self, record: Record) -> None:
        """Stay at this record: pause its partition, keep polling the others, come back later."""
        place = TopicPartition(self.service.topic, record.partition, record.offset)
        self._consumer.pause([place])
        self._consumer.seek(place)
        self._blocked[record.partition] = time.monotonic() + _RETRY_AFTER

    def _unblock(self) -> None:
        for partition, due in list(self._blocked.items()):
            if time.monotonic() >= due:
                del self._blocked[partition]
                self._consumer.resume([TopicPartition(self.service.topic, partition)])
