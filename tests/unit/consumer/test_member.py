"""A member of a group, as far as it can be seen without one."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from reconcile.consumer.member import Member
from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.policy import Block, Terms
from reconcile.consumer.processor import Processor
from reconcile.consumer.reading import Reading


class LeftBehind:
    """What a member sees of a group that went on without it: no commit of its is taken."""

    def commit(self, **_: Any) -> None:
        """Refuse, as the coordinator does."""
        raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION))

    def pause(self, _places: list[Any]) -> None:
        """Pause a partition."""


def test_a_member_that_the_group_left_behind_claims_once() -> None:
    """Each claim takes the partition from its new member, and ends a transaction that has gone on for a second."""
    claims: list[int] = []

    class Counted:
        def claim(self, _group: str, _topic: str, partition: int) -> int:
            claims.append(partition)
            return len(claims)

    processor = Processor(Counted(), lambda *_: None, "g", Terms(Block()))  # type: ignore[arg-type] # no message comes to it
    member = Member({"group.id": "g"}, ["accounts"], processor, Reading("accounts"))
    member._consumer = LeftBehind()  # type: ignore[assignment]
    member._assigned = {("accounts", 0)}
    place = RecordPlace("accounts", 0, 7)
    message = Message(place=place, origin=place, key=b"max", value=b"{}", aggregate_id="max")
    assert [False, False, False] == [member._holds(message) for _ in range(3)]
    assert [0] == claims


def test_a_record_of_a_partition_that_moved_while_a_batch_was_polled_is_left_to_its_new_member() -> None:
    """A claim would take the partition from whoever has it by now, and the group would take the commit."""

    class Unclaimed:
        def claim(self, *_: object) -> int:
            raise AssertionError("it is another member's")

    processor = Processor(Unclaimed(), lambda *_: None, "g", Terms(Block()))  # type: ignore[arg-type] # as above
    member = Member({"group.id": "g"}, ["accounts"], processor, Reading("accounts"), batch=10)
    member._assigned = {("accounts", 1)}
    place = RecordPlace("accounts", 0, 7)
    assert not member._holds(Message(place=place, origin=place, key=b"max", value=b"{}", aggregate_id="max"))


class Due:
    """A record of a retry topic that is to be tried in a long time."""

    error = value = lambda _: None
    key = lambda _: b"max"  # noqa: E731
    topic = lambda _: "retry"  # noqa: E731
    partition = lambda _: 0  # noqa: E731
    offset = lambda _: 7  # noqa: E731
    timestamp = lambda _: (0, -1)  # noqa: E731
    headers = lambda _: [  # noqa: E731
        ("reconcile-origin-topic", b"accounts"),
        ("reconcile-origin-partition", b"0"),
        ("reconcile-origin-offset", b"3"),
        ("reconcile-due", b"9" * 13),
    ]


def test_nothing_is_asked_of_a_partition_that_moved_while_a_batch_was_polled() -> None:
    """Kafka refuses it, and the member would end: neither its end is stored, nor is it to wait and to go on."""
    processor = Processor(None, lambda *_: None, "g", Terms(Block()))  # type: ignore[arg-type] # no message comes to it
    member = Member({"group.id": "g"}, ["accounts"], processor, Reading("accounts"), batch=10)
    options = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "enable.auto.offset.store": False, "log_level": 0}
    member._consumer = Consumer(options)
    try:
        member._ends = [TopicPartition("accounts", 0, 7)]
        member._store_ends()
        assert None is member._arrived(Due())  # type: ignore[arg-type] # as far as it is looked at
        assert {} == member._waiting
    finally:
        member._consumer.close()
