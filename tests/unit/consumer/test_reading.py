"""A record becomes a message: what a contract says of it is found, and what cannot be read is left out."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.reading import Reading
from reconcile.domain import dialect

PLACE = RecordPlace("accounts", 2, 40)


class Record:
    """A record as confluent_kafka hands it out."""

    def __init__(
        self,
        value: bytes | None,
        headers: Any = None,
        topic: str = "accounts",
        key: bytes | None = b"zoe",
        milliseconds: int = 1_770_000_000_123,
    ) -> None:
        self._value, self._headers, self._topic, self._key = value, headers, topic, key
        self._milliseconds = milliseconds

    def topic(self) -> str:
        """Where it was read."""
        return self._topic

    def partition(self) -> int:
        """Of it."""
        return 2

    def offset(self) -> int:
        """In that."""
        return 40

    def key(self) -> bytes | None:
        """Its key."""
        return b"zoe"

    def value(self) -> bytes | None:
        """Its value."""
        return self._value

    def headers(self) -> Any:
        """Its headers."""
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        """Its time."""
        return 1, self._milliseconds


def read(
    reading: Reading, value: Any = None, *headers: tuple[str, bytes | None], key: bytes | None = b"zoe"
) -> Message:
    """Read a record of the main topic; what is not bytes is JSON."""
    raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return reading.read(PLACE, PLACE, key, raw, headers, None)


def test_a_record_is_read_whole() -> None:
    """Its place, its bytes, its headers and its time."""
    found = Reading("accounts").message(Record(b"v", [("a", b"1"), ("a", None)]))  # type: ignore[arg-type]
    at = datetime(2026, 2, 2, 2, 40, 0, 123000, tzinfo=UTC)
    expected = Message(PLACE, PLACE, b"zoe", b"v", (("a", b"1"), ("a", None)), at, "zoe")
    assert expected == found


def test_a_record_may_have_no_headers() -> None:
    """The client hands out None."""
    assert () == Reading("accounts").message(Record(b"v")).headers  # type: ignore[arg-type]


def test_b4_a_record_of_a_retry_topic_knows_where_it_came_from() -> None:
    """B4: its origin and its attempts stand in its headers."""
    headers = dialect.write(dialect.Origin("reconcile", topic="accounts", partition=1, offset=7, attempt=3))
    found = Reading("accounts").message(Record(b"v", headers, topic="retry"))  # type: ignore[arg-type]
    assert (RecordPlace("retry", 2, 40), RecordPlace("accounts", 1, 7), 3) == (found.place, found.origin, found.attempt)


def test_a_record_of_the_main_topic_comes_from_nowhere_else() -> None:
    """Whatever its headers claim."""
    headers = dialect.write(dialect.Origin("reconcile", topic="accounts", partition=1, offset=7, attempt=3))
    found = Reading("accounts").message(Record(b"v", headers))  # type: ignore[arg-type]
    assert (PLACE, 0) == (found.origin, found.attempt)


def test_a_record_of_a_retry_topic_without_an_origin_stands_for_itself() -> None:
    """Somebody else put it there."""
    found = Reading("accounts").message(Record(b"v", None, topic="retry"))  # type: ignore[arg-type]
    assert found.place == found.origin


@pytest.mark.parametrize(
    ("key_type", "key", "expected"),
    [
        ("string", b"zoe", "zoe"),
        ("string", None, None),
        ("string", b"\xff\xfe", None),
        ("string", b"a\x00b", None),
        ("int64", (7).to_bytes(8, "big"), "7"),
        ("int64", b"7", None),
    ],
)
def test_an_aggregate_is_named_by_the_key(key_type: str, key: bytes | None, expected: str | None) -> None:
    """One that is null, unreadable, or that no database keeps, names none."""
    assert expected == read(Reading("accounts", key_type), b"v", key=key).aggregate_id


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("7", 7),
        ("-7", -7),
        (7, 7),
        ("seven", None),
        ("1.5", None),
        ("", None),
        (None, None),
        ("9" * 19, None),
    ],
)
def test_b16_a_version_is_a_whole_number(version: Any, expected: int | None) -> None:
    """B16: what is none, or none that a database keeps, is left out."""
    assert expected == read(Reading("accounts", version="$.meta.version"), {"meta": {"version": version}}).version


def test_b16_a_version_may_stand_in_a_header() -> None:
    """B16: the last of that name counts."""
    headers = (("version", b"1"), ("other", b"5"), ("version", b"2"))
    assert 2 == read(Reading("accounts", version="header:version"), b"no json", *headers).version


@pytest.mark.parametrize("value", [b"no json", b"[" * 100_000, b"3", b"null", None])
def test_a_value_that_cannot_be_read_gives_nothing(value: bytes | None) -> None:
    """It is for the handler to fail at."""
    reading = Reading("accounts", version="$.version", event_id="$.id", type="$.type")
    found = read(reading, value)
    assert (None, None, None) == (found.version, found.event_id, found.type)


def test_c7_an_event_is_named_as_the_contract_says() -> None:
    """C7: by a member of its body or by a header."""
    by_body = read(Reading("accounts", event_id="$.id"), {"id": "e-1"}).event_id
    by_header = read(Reading("accounts", event_id="header:id"), {}, ("id", b"e-2")).event_id
    assert ("e-1", "e-2") == (by_body, by_header)


def test_c7_an_event_without_a_name_has_none() -> None:
    """C7: its place alone names it."""
    assert None is read(Reading("accounts", event_id="header:id"), b"v").event_id


def test_c7_a_name_that_no_database_keeps_is_none() -> None:
    """C7: the message is known by its place then."""
    assert None is read(Reading("accounts", event_id="$.id"), {"id": "a\x00b"}).event_id


def test_a_type_is_found() -> None:
    """For handlers that choose by it."""
    assert "renamed" == read(Reading("accounts", type="$.type"), {"type": "renamed"}).type


def test_a_null_value_deletes() -> None:
    """Whatever else says so."""
    assert [True, False] == [read(Reading("accounts"), value).deletes for value in (None, b"v")]


@pytest.mark.parametrize(
    ("delete", "value", "expected"),
    [
        ("$.gone == true", {"gone": True}, True),
        ("$.gone == true", {"gone": "true"}, True),
        ("$.gone == true", {"gone": False}, False),
        ("$.gone == true", {}, False),
        ("$.op == 'D'", {"op": "D"}, True),
        ("$.op = 'D'", {"op": "d"}, False),
        ("$.state == 3", {"state": 3}, True),
        ("$.name is null", {"name": None}, True),
        ("$.name is null", {}, True),
        ("$.name is null", {"name": "Zoë"}, False),
        ("$.gone_at is not null", {"gone_at": 1}, True),
        ("$.gone_at IS NOT NULL", {}, False),
    ],
)
def test_a_deletion_is_recognised(delete: str, value: Any, expected: bool) -> None:
    """By the contract's test of the body."""
    assert expected is read(Reading("accounts", delete=delete), value).deletes


@pytest.mark.parametrize("value", [b'{"name": "Zo', b"\x00\xff", b"[]", b'"gone"', b"null"])
def test_what_is_no_object_deletes_nothing(value: bytes) -> None:
    """A truncated event has no name either: its handler is to fail, and not to delete what lives."""
    assert not read(Reading("accounts", delete="$.name is null"), value).deletes


def test_either_of_several_tests_recognises_a_deletion() -> None:
    """A contract may name several."""
    reading = Reading("accounts", delete=("tombstone", "$.gone == true", "$.state == 3"))
    assert [True, True, False] == [read(reading, each).deletes for each in ({"gone": True}, {"state": 3}, {})]


def test_debezium_deletes_by_its_operation() -> None:
    """Its envelope has a value then, too."""
    reading = Reading("accounts", debezium=True)
    assert [True, False] == [read(reading, {"op": op, "after": None}).deletes for op in ("d", "u")]


@pytest.mark.parametrize("wrap", [lambda body: body, lambda body: {"schema": {}, "payload": body}])
def test_debeziums_row_is_as_it_is_after_the_change(wrap: Any) -> None:
    """With or without a schema around it."""
    reading = Reading("accounts", debezium=True, version="$.version")
    assert 5 == read(reading, wrap({"op": "u", "before": {"version": 4}, "after": {"version": 5}})).version


def test_c7_debezium_names_an_event_by_its_place_in_the_source() -> None:
    """C7: so that what a connector sends again is known."""
    source = {"connector": "postgresql", "name": "main", "lsn": 99, "txId": 3}
    found = read(Reading("accounts", debezium=True), {"op": "u", "after": {}, "source": source}).event_id
    assert found is not None
    assert "99" in found


def test_a_values_own_decoder_is_used() -> None:
    """For formats that are not JSON."""
    reading = Reading("accounts", version="$.version", decode=lambda raw: {"version": len(raw)})
    assert 3 == read(reading, b"abc").version


def test_a_value_that_nothing_is_asked_of_is_not_decoded() -> None:
    """It may be of any format."""

    def refuse(_raw: bytes) -> Any:
        raise AssertionError

    assert None is read(Reading("accounts", version="header:version", decode=refuse), b"v").version


def test_a_time_that_no_calendar_has_is_left_out() -> None:
    """A producer may write microseconds; the consumer must not end at the record for ever."""
    assert None is Reading("accounts").message(Record(b"{}", milliseconds=1_770_000_000_123_000)).at  # type: ignore[arg-type] # it has what is asked
