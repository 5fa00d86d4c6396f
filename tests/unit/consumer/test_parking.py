"""Records that are sent on say where they came from, and why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from reconcile.consumer import parking
from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.store import Outgoing, Stashed
from reconcile.domain import dialect
from tests.consumer_behaviour import message

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
HEADERS = (("trace", b"1"), ("trace", None))


def retried(one: Message, error: Exception | None = None) -> Outgoing:
    """Send a message on to a retry topic, for a minute."""
    return parking.retried(one, "service", error or ValueError("no"), "retry", timedelta(minutes=1), NOW)


def dead(one: Message, **more: bool) -> Outgoing:
    """Give a message up."""
    return parking.dead_letter(one, "service", "ValueError", "no", "dead", NOW, **more)


def origin(record: Outgoing) -> dialect.Origin:
    """Read where a record came from."""
    found = dialect.read(record.headers, "reconcile")
    assert found is not None
    return found


def test_b4_a_retry_is_the_same_record() -> None:
    """B4: with its key, so that it keeps its partition's order, its value and its headers."""
    found = retried(message(7, value=b"v", headers=HEADERS))
    assert ("retry", b"key", b"v", HEADERS) == (found.topic, found.key, found.value, found.headers[:2])


def test_b4_a_retry_says_when_it_is_due() -> None:
    """B4: to the millisecond."""
    assert NOW + timedelta(minutes=1) == parking.due(retried(message(7)).headers)


@pytest.mark.parametrize("value", [None, b"", b"soon", b"-1", b"1" * 16])
def test_a_due_time_that_says_nothing_is_none(value: bytes | None) -> None:
    """Then the record is tried at once."""
    assert None is parking.due(((parking.DUE, value),))


def test_b4_a_record_says_where_it_came_from_and_why() -> None:
    """B3, B4: in the headers that the audit reads."""
    found = origin(retried(message(7, partition=2, at=NOW)))
    assert ("accounts", 2, 7, "service", "ValueError", "no", 1, NOW) == (
        found.topic,
        found.partition,
        found.offset,
        found.group,
        found.error_class,
        found.error_message,
        found.attempt,
        found.at,
    )


def test_b4_a_record_that_is_sent_on_again_keeps_its_origin() -> None:
    """B4: and counts one more attempt; each header of ours is there once."""
    came = retried(message(7))
    again = message(7, headers=came.headers, attempt=1, place=RecordPlace("retry", 0, 3))
    found = retried(again, KeyError("worse"))
    names = [name for name, _ in found.headers]
    assert len(names) == len(set(names))
    assert ("accounts", 7, "KeyError", 2) == (
        origin(found).topic,
        origin(found).offset,
        origin(found).error_class,
        origin(found).attempt,
    )


def test_a_long_error_is_shortened() -> None:
    """Headers are no place for pages."""
    assert "x" * 1000 == origin(retried(message(7), ValueError("x" * 5000))).error_message


def test_d7_a_dead_letters_key_is_unique_and_begins_with_the_day() -> None:
    """D7: by the place where it first stood, and by the group: what one cannot read, others cannot either."""
    came_back = message(7, partition=2, place=RecordPlace("retry", 5, 90))
    assert b"2026-03-04/accounts/2/7/service" == dead(came_back).key


def test_d7_a_dead_letter_keeps_the_key_that_it_had() -> None:
    """D7: for those who replay it."""
    assert (dialect.ORIGIN_KEY, b"key") in dead(message(7)).headers
    assert (dialect.ORIGIN_KEY, None) in dead(message(7, key=None)).headers


def test_d7_a_dead_letter_of_a_deletion_outlives_compaction() -> None:
    """D7: a record without a value would delete itself."""
    found = dead(message(7, value=None))
    assert b"" == found.value
    assert (parking.NULL_VALUE, b"true") in found.headers


def test_a_dead_letter_of_no_aggregate_says_so() -> None:
    """Nobody knows whose it is."""
    marks = [(parking.NAMELESS, b"true") in dead(message(7), nameless=each).headers for each in (True, False)]
    assert [True, False] == marks


def test_b10_a_stashed_message_is_shown_with_what_it_waits_behind() -> None:
    """B10: the first has an error, the others wait."""
    waiting = parking.shown(Stashed(message(8)), "service", "shown", "zoe")
    failed = parking.shown(Stashed(message(7), "ValueError", "no"), "service", "shown", None)
    assert [("zoe", None), (None, "ValueError")] == [
        (origin(each).stashed_behind, origin(each).error_class) for each in (waiting, failed)
    ]
    assert ("shown", b"key", b"value 8") == (waiting.topic, waiting.key, waiting.value)
