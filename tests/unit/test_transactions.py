"""Open transactions: which partitions they stop, when they hang, and which ids are behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconcile.contract.model import Topic
from reconcile.gather.log import undecided
from reconcile.gather.log.undecided import undecided_records
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.transactions import OpenTransaction, how_to_end, open_transactions

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Record:
    """A record as the client has it."""

    at: datetime
    place: tuple[int, int] = (0, 0)
    id: bytes | None = b"a"

    def timestamp(self) -> tuple[int, int]:
        return 1, int(self.at.timestamp() * 1000)

    def key(self) -> bytes | None:
        return self.id

    def partition(self) -> int:
        return self.place[0]

    def offset(self) -> int:
        return self.place[1]


class FakeCluster:
    """A cluster with a record at each last stable offset."""

    def __init__(self, record: Record | None, longest: timedelta | None = None) -> None:
        self.record, self.longest = record, longest
        self.config: dict[str, str] = {}
        self.looked: list[Mapping[int, int]] = []

    def longest_transaction(self) -> timedelta | None:
        return self.longest

    def first_records(self, _topic: str, places: Mapping[int, int], isolation: str) -> dict[int, Record | None]:
        assert "read_uncommitted" == isolation
        self.looked.append(places)
        return dict.fromkeys(places, self.record)

    def reading_records(self, _topic: str) -> nullcontext[None]:
        return nullcontext()


def found(cluster: Any, stable: Mapping[int, int], ends: Mapping[int, int]) -> tuple[OpenTransaction, ...]:
    """Look at a topic now."""
    return open_transactions(cluster, "user", stable, ends, NOW)


def test_a_log_that_is_decided_is_not_looked_at() -> None:
    """Also where it was written to after its end was read."""
    cluster = FakeCluster(Record(NOW))
    assert () == found(cluster, {0: 5, 1: 9}, {0: 5, 1: 8})
    assert [] == cluster.looked


@pytest.mark.parametrize(
    ("age", "longest", "hangs"),
    [
        (timedelta(minutes=20), None, False),
        (timedelta(minutes=21), None, True),
        (timedelta(minutes=21), HOUR, False),
        (timedelta(minutes=66), HOUR, True),
        (-HOUR, None, False),
    ],
)
def test_a_transaction_hangs_when_it_is_older_than_any_may_become(
    age: timedelta, longest: timedelta | None, hangs: bool
) -> None:
    """By the brokers' setting where we may read it, else by Kafka's default; ending one takes its time."""
    (one,) = found(FakeCluster(Record(NOW - age), longest), {0: 5}, {0: 8})
    assert (0, 5, 8, NOW - age, hangs) == (one.partition, one.begin, one.end, one.since, one.hanging)


def test_a_transaction_of_which_no_record_can_be_read_does_not_hang() -> None:
    """It may have ended while we looked."""
    (one,) = found(FakeCluster(None), {0: 5}, {0: 8})
    assert (None, False) == (one.since, one.hanging)


def test_how_a_hanging_transaction_is_ended() -> None:
    """Topic, partition and offset stand in the commands, as people copy them."""
    said = how_to_end("user", OpenTransaction(3, 17, 20, NOW, hanging=True))
    assert "describe-producers --topic user --partition 3" in said
    assert "abort --topic user --partition 3 --start-offset 17" in said


def stretch(partition: int, length: int) -> OpenTransaction:
    """Give an open transaction with so many offsets behind it."""
    return OpenTransaction(partition, 10, 10 + length, NOW, hanging=False)


def test_ids_behind_an_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each the first record; a record without a readable key belongs to nobody."""
    records = [
        Record(NOW, (0, 10)),
        Record(NOW, (0, 11), None),
        Record(NOW + HOUR, (0, 12)),
        Record(NOW, (0, 13), b"b"),
    ]
    monkeypatch.setattr(undecided, "read", lambda *_: iter([records]))
    cluster: Any = FakeCluster(None)
    seen = undecided_records(cluster, Topic(cluster="main", name="user"), [stretch(0, 4)])
    micros = int(NOW.timestamp()) * 1_000_000
    assert ({"a": (0, 10, micros), "b": (0, 13, micros)}, frozenset()) == (seen.first, seen.unread)


def test_stretches_that_are_too_long_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest are read, as many as fit, and the others are named."""
    monkeypatch.setattr(undecided, "MOST", 10)
    asked: list[dict[int, tuple[int, int]]] = []

    def read(
        _options: object, _topic: str, stretches: dict[int, tuple[int, int]], *_: object
    ) -> Iterator[list[Record]]:
        asked.append(stretches)
        return iter([])

    monkeypatch.setattr(undecided, "read", read)
    cluster: Any = FakeCluster(None)
    seen = undecided_records(
        cluster, Topic(cluster="main", name="user"), [stretch(0, 99), stretch(1, 6), stretch(2, 4)]
    )
    assert [{1: (10, 16), 2: (10, 14)}] == asked
    assert frozenset({0}) == seen.unread


class OtherBrokers:
    """The brokers of another maker, which do not have all of Kafka's settings."""

    def describe_cluster(self, **_: Any) -> Future[Any]:
        return answered(SimpleNamespace(nodes=[SimpleNamespace(id=1)]))

    def describe_configs(self, wanted: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        return {each: answered({"log.retention.ms": SimpleNamespace(value="1")}) for each in wanted}


def answered(answer: object) -> Future[Any]:
    """Give an answer that has come."""
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


def test_brokers_that_do_not_say_how_long_a_transaction_may_last_end_no_run() -> None:
    """Then Kafka's default holds."""
    cluster = ClusterClient.__new__(ClusterClient)
    cluster.name, cluster.config, cluster._heard = "other", {}, []
    cluster._admin = cast("Any", OtherBrokers())
    assert cluster.longest_transaction() is None
