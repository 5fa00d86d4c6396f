"""Reading a stretch of a log: to its exact end, whatever takes the offsets there, and never longer than is of use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from reconcile.kafka import reader
from reconcile.kafka.reader import COMMITTED, UNCOMMITTED, LogReader, read, read_newest

EOF, LOST = KafkaError(KafkaError._PARTITION_EOF), KafkaError(KafkaError._AUTO_OFFSET_RESET, "gone")


@dataclass
class Event:
    """What the client gives: a record, or an error at an offset."""

    at: int
    fault: KafkaError | None = None
    of: int = 0

    def error(self) -> KafkaError | None:
        return self.fault

    def partition(self) -> int:
        return self.of

    def offset(self) -> int:
        return self.at


class FakeConsumer:
    """A consumer that gives these events one by one, and then is silent."""

    events: list[Event]
    options: dict[str, object]

    def __init__(self, options: dict[str, object]) -> None:
        type(self).options = options
        self.paused: list[int] = []

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.places = {place.partition: place.offset for place in places}

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self.paused += [place.partition for place in places]

    def consume(self, size: int, _timeout: float) -> list[Event]:
        found, self.events[:] = self.events[:size], self.events[size:]
        return [each for each in found if each.of not in self.paused]

    def close(self) -> None:
        pass


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What the log gives; a reader of it loses patience soon."""
    found: list[Event] = []
    monkeypatch.setattr(FakeConsumer, "events", found, raising=False)
    monkeypatch.setattr(confluent_kafka, "Consumer", FakeConsumer)
    monkeypatch.setattr(reader.LogReader.__init__, "__defaults__", (COMMITTED, 0.05))
    return found


def offsets(stretches: dict[int, tuple[int, int | None]], size: int = 1) -> list[tuple[int | None, int | None]]:
    """The places of the records in these stretches."""
    return [(each.partition(), each.offset()) for batch in read({}, "log", stretches, size=size) for each in batch]


def test_a_stretch_ends_before_its_end(events: list[Event]) -> None:
    """What stands behind the last offset is not given, though the client has fetched it."""
    events += [Event(3), Event(5), Event(7)]
    assert [(0, 3), (0, 5)] == offsets({0: (3, 6)}, size=5)


def test_markers_at_the_end_are_passed(events: list[Event]) -> None:
    """Where the last offsets hold no records, the client's own position says that the end is reached."""
    events += [Event(3), Event(6, EOF)]
    assert [(0, 3)] == offsets({0: (3, 6)})


def test_each_partition_has_an_end_of_its_own(events: list[Event]) -> None:
    """One that is done gives no more while another is read."""
    events += [Event(0), Event(1), Event(2), Event(4, of=1), Event(5, EOF, of=1)]
    assert [(0, 0), (0, 1), (1, 4)] == offsets({0: (0, 2), 1: (4, 5)})


def test_an_end_of_today_is_where_the_log_ends(events: list[Event]) -> None:
    """Without an offset, reading ends where the client finds no more."""
    events += [Event(3), Event(9), Event(10, EOF)]
    assert [(0, 3), (0, 9)] == offsets({0: (3, None)})


def test_the_end_of_what_is_decided_is_not_the_end(events: list[Event]) -> None:
    """Where an open transaction hides the rest, reading fails and says so; what was given is no whole stretch."""
    events += [Event(3), Event(4, EOF)]
    with pytest.raises(KafkaException, match="a transaction of another producer may hide them"):
        offsets({0: (3, 6)})


def test_a_transaction_that_ends_is_waited_for(events: list[Event]) -> None:
    """After the end of what was decided more may come, and is read."""
    events += [Event(3), Event(4, EOF), Event(4), Event(6, EOF)]
    assert [(0, 3), (0, 4)] == offsets({0: (3, 6)})


def test_silence_ends_the_patience(events: list[Event]) -> None:
    """A cluster that gives nothing is not waited for without end, and the partition is named."""
    events += [Event(3)]
    with pytest.raises(KafkaException, match='"nothing came of partition 0 in time"') as raised:
        list(read({}, "log", {0: (3, 6)}, UNCOMMITTED))
    assert KafkaError._TIMED_OUT == raised.value.args[0].code()


def test_records_that_are_gone_are_an_error(events: list[Event]) -> None:
    """A first offset that the log has no more fails, as what was lost might have mattered."""
    events += [Event(0, LOST)]
    with pytest.raises(KafkaException, match="gone"):
        offsets({0: (3, 6)})


def test_nothing_is_ever_committed(events: list[Event]) -> None:
    """No option of a caller makes the reader commit, and the isolation is the one that was asked for."""
    events += [Event(5, EOF)]
    list(read({"enable.auto.commit": True, "isolation.level": "x"}, "log", {0: (3, 5)}, UNCOMMITTED))
    assert (False, UNCOMMITTED) == (
        FakeConsumer.options["enable.auto.commit"],
        FakeConsumer.options["isolation.level"],
    )


def test_a_partition_that_is_skipped_is_not_waited_for(events: list[Event]) -> None:
    """Who has seen enough of a partition reads on in the others alone."""
    events += [Event(0), Event(1), Event(0, of=1), Event(1, EOF, of=1)]
    log = LogReader({}, "log")
    log.start({0: 0, 1: 0})
    found = []
    for batch in log.read_to({0: None, 1: None}):
        found += [(each.partition(), each.offset()) for each in batch]
        log.skip(0)
    assert [(0, 0), (1, 0)] == found


def test_the_newest_records_are_those_at_the_ends(events: list[Event]) -> None:
    """Each partition is read from a few offsets before its end, one that is empty not at all."""
    events += [Event(8), Event(9)]
    found = read_newest({}, "log", {0: 0, 1: 4}, {0: 10, 1: 4}, 2)
    assert [8, 9] == [each.offset() for each in found]
