import struct
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.domain.dialect import DIALECTS, FAMILIES, Headers, Origin, read, write

AT = datetime(2026, 1, 1, tzinfo=UTC)
AT_MS = 1_767_225_600_000
WRAPPER = b"org.springframework.kafka.listener.ListenerExecutionFailedException"


def texts(prefix: str, **values: object) -> Headers:
    return [(prefix + name.replace("_", "-"), str(value).encode()) for name, value in values.items()]


def spring_dlt(topic: str = "user-account", partition: int = 4, offset: int = 17, error: str = "Boom") -> Headers:
    """As DeadLetterPublishingRecoverer writes them."""
    return [
        ("kafka_dlt-exception-fqcn", WRAPPER),
        ("kafka_dlt-exception-cause-fqcn", f"java.lang.{error}".encode()),
        ("kafka_dlt-exception-message", f"it went {error}".encode()),
        ("kafka_dlt-original-topic", topic.encode()),
        ("kafka_dlt-original-partition", struct.pack(">i", partition)),
        ("kafka_dlt-original-offset", struct.pack(">q", offset)),
        ("kafka_dlt-original-timestamp", struct.pack(">q", AT_MS)),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-original-consumer-group", b"login-service"),
    ]


def spring_retry(topic: str = "user-account", attempt: bytes = b"\x00\x00\x00\x02") -> Headers:
    """As the recoverer of retry topics writes them: only the first origin is kept."""
    return [
        ("kafka_exception-fqcn", WRAPPER),
        ("kafka_exception-message", b"not yet"),
        ("kafka_original-topic", topic.encode()),
        ("kafka_original-partition", struct.pack(">i", 4)),
        ("kafka_original-offset", struct.pack(">q", 17)),
        ("kafka_original-timestamp", struct.pack(">q", AT_MS)),
        ("retry_topic-original-timestamp", AT_MS.to_bytes(6, "big")),
        ("retry_topic-attempts", attempt),
        ("retry_topic-backoff-timestamp", (AT_MS + 1000).to_bytes(6, "big")),
    ]


def smallrye_dlq(topic: str = "user-account", offset: int = 17, reason: str = "it went Boom") -> Headers:
    return texts(
        "dead-letter-", exception_class_name="java.lang.Boom", reason=reason, topic=topic, partition=4, offset=offset
    )


HERE = Origin("", "user-account", 4, 17, "login-service", "java.lang.Boom", "it went Boom")

EXAMPLES: list[tuple[Headers, Origin]] = [
    (spring_dlt(), replace(HERE, dialect="spring-dlt", at=AT)),
    (
        spring_retry(),
        Origin("spring-retry", "user-account", 4, 17, None, WRAPPER.decode(), "not yet", attempt=2, at=AT),
    ),
    (
        [
            ("__connect.errors.topic", b"user-account"),
            ("__connect.errors.partition", b"4"),
            ("__connect.errors.offset", b"17"),
            ("__connect.errors.connector.name", b"sink"),
            ("__connect.errors.task.id", b"0"),
            ("__connect.errors.stage", b"VALUE_CONVERTER"),
            ("__connect.errors.class.name", b"org.apache.kafka.connect.json.JsonConverter"),
            ("__connect.errors.exception.class.name", b"java.lang.Boom"),
            ("__connect.errors.exception.message", b"it went Boom"),
            ("__connect.errors.exception.stacktrace", b"..."),
        ],
        replace(HERE, dialect="kafka-connect", group=None),
    ),
    (
        texts(
            "__streams.errors.",
            exception="java.lang.Boom",
            message="it went Boom",
            topic="user-account",
            partition=4,
            offset=17,
        ),
        replace(HERE, dialect="kafka-streams", group=None),
    ),
    (
        [
            *texts("__dlq.errors.", topic="user-account", partition=4, offset=17, group="login-service"),
            ("__dlq.errors.delivery.count", b"5"),
            ("__dlq.errors.message", b"it went Boom"),
        ],
        replace(HERE, dialect="share-group", error_class=None, attempt=5, pointer=True),
    ),
    (smallrye_dlq(), replace(HERE, dialect="smallrye-dlq", group=None)),
    (
        [
            *texts("delayed-retry-", exception_class_name="java.lang.Boom", reason="it went Boom"),
            *texts("delayed-retry-", topic="user-account", partition=4, offset=17),
            *texts("delayed-retry-", original_timestamp=AT_MS, first_processing_timestamp=AT_MS + 5, count=0),
        ],
        replace(HERE, dialect="smallrye-retry", group=None, attempt=0, at=AT),
    ),
    (
        [
            ("submitTimestamp", b"1767225600000"),
            ("backOffTimeMs", b"1000"),
            ("GH_OriginalTopic", b"user-account"),
            ("GH_RetryAttempt", b"1"),
        ],
        Origin("greyhound", "user-account", attempt=1),
    ),
    (
        [
            ("source_topic", b"user-account"),
            ("source_partition", b"4"),
            ("source_offset", b"17"),
            ("source_consumer_group", b"login-service"),
            ("source_attempts", b"3"),
            ("source_trace_id", b"0d6f"),
        ],
        Origin("karafka", "user-account", 4, 17, "login-service", attempt=3),
    ),
    (
        [
            ("original_topic", b"user-account"),
            ("original_partition", b"4"),
            ("original_offset", b"17"),
            ("original_consumer_group", b"login-service"),
            ("original_attempts", b"3"),
        ],
        Origin("karafka", "user-account", 4, 17, "login-service", attempt=3),
    ),
    ([("original_partition", b"4"), ("original_offset", b"17")], Origin("arroyo", None, 4, 17)),
    (
        [
            *texts("reconcile-", error_class="Boom", error_message="it went Boom", attempt=3),
            *texts("reconcile-origin-", topic="user-account", partition=4, offset=17, group="login-service"),
            *texts("reconcile-", origin_timestamp=AT_MS, stashed_behind="user-account-4@16"),
        ],
        replace(HERE, dialect="reconcile", error_class="Boom", attempt=3, at=AT, stashed_behind="user-account-4@16"),
    ),
]


@pytest.mark.parametrize(("headers", "origin"), EXAMPLES, ids=lambda value: getattr(value, "dialect", ""))
def test_a_dialect_is_detected_and_read(headers: Headers, origin: Origin) -> None:
    """Among the record's own headers, by detection or by name."""
    record = [("event-id", b"e-1"), *headers, ("traceparent", b"00-4bf9")]
    assert origin == read(record)
    assert origin == read(record, origin.dialect)


def test_every_dialect_has_an_example() -> None:
    """The table and the examples name the same dialects."""
    assert set(DIALECTS) == {origin.dialect for _, origin in EXAMPLES}


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("event-id", b"e-1"), ("ce_id", b"c-1")],
        [("original_offset", b"17")],
        [("source_topic", b"user-account"), ("source_offset", b"17")],
        [("kafka_exception-fqcn", WRAPPER)],
    ],
)
def test_a_record_of_no_dialect_has_no_origin(headers: Headers) -> None:
    """Names that anyone might use do not make a dialect."""
    assert read(headers) is None


def test_another_frameworks_dialect_is_not_read_under_a_name() -> None:
    """A name is a promise of the contract."""
    assert read(spring_dlt(), "kafka-connect") is None
    assert read(spring_dlt(), "reconcile") is None


def test_an_unknown_name_is_refused_with_the_valid_ones() -> None:
    """A slip in a contract is told."""
    with pytest.raises(ValueError, match=r"no dialect 'sprnig'; there are auto, reconcile, spring-dlt"):
        read([], "sprnig")


def test_spring_appends_so_the_first_is_the_origin_and_the_last_the_latest_error() -> None:
    """A record that was dead-lettered out of a dead-letter topic."""
    headers = [*spring_dlt(), *spring_dlt("user-account-dlt", 1, 3, error="Bang")]
    expected = replace(HERE, dialect="spring-dlt", error_class="java.lang.Bang", error_message="it went Bang", at=AT)
    assert expected == read(headers)


@pytest.mark.parametrize("name", ["auto", "spring-dlt", "spring-retry"])
def test_a_dead_letter_of_a_retry_topic_has_its_origin_in_the_main_topic(name: str) -> None:
    """Retry headers stand first; the dead-letter ones tell of the retry topic."""
    headers = [*spring_retry(), *spring_dlt("user-account-retry-1", 0, 2)]
    assert replace(HERE, dialect="spring-dlt", attempt=2, at=AT) == read(headers, name)


def test_a_retry_of_a_dead_letter_has_its_origin_in_the_main_topic() -> None:
    """The other way round, the dead-letter headers stand first."""
    origin = read([*spring_dlt(), *spring_retry("user-account-dlt")])
    assert origin is not None
    assert (origin.dialect, origin.topic, origin.error_message) == ("spring-retry", "user-account", "not yet")


def test_the_cause_is_named_rather_than_springs_wrapper() -> None:
    """Every listener's failure has the same wrapper."""
    origin = read([header for header in spring_dlt() if header[0] != "kafka_dlt-exception-cause-fqcn"])
    assert origin is not None
    assert WRAPPER.decode() == origin.error_class


@pytest.mark.parametrize(
    ("raw", "attempt"), [(b"\x03", 3), (b"\x00\x00\x00\x03", 3), (b"\xff", None), (b"\x00\x03", None), (b"", None)]
)
def test_springs_attempts_have_one_byte_or_four(raw: bytes, attempt: int | None) -> None:
    """Older versions write one byte; any other width is not a count."""
    origin = read(spring_retry(attempt=raw))
    assert origin is not None
    assert attempt == origin.attempt


@pytest.mark.parametrize(
    ("raw", "milliseconds"),
    [(b"\x00", 0), (b"\x7f", 127), (b"\x00\x80", 128), (AT_MS.to_bytes(6, "big"), AT_MS), (AT_MS.to_bytes(8), AT_MS)],
)
def test_springs_timestamps_are_minimal(raw: bytes, milliseconds: int) -> None:
    """One byte to eight, big endian, with a sign."""
    origin = read([("retry_topic-original-timestamp", raw)])
    assert origin is not None
    assert origin.at is not None
    assert milliseconds == round(origin.at.timestamp() * 1000)


@pytest.mark.parametrize("raw", [b"", b"\xff", b"\x80", b"\x7f" + b"\xff" * 7, b"\x00" * 9, None])
def test_a_timestamp_that_is_none_is_not_told(raw: bytes | None) -> None:
    """Absent (-1), before the epoch, past the calendar, or too long."""
    origin = read([("retry_topic-original-timestamp", raw)])
    assert Origin("spring-retry") == origin


def test_smallrye_prepends_so_the_last_is_the_origin_and_the_first_the_latest_error() -> None:
    """Its handler writes its own headers before those of the record."""
    headers = [*smallrye_dlq("user-account-dlq", 3, "worse"), *smallrye_dlq()]
    assert replace(HERE, dialect="smallrye-dlq", group=None, error_message="worse") == read(headers)


def test_smallryes_retry_counter_is_appended_while_its_hops_are_prepended() -> None:
    """Two hops: the latest topic stands first, the latest count last."""
    headers = [
        *texts("delayed-retry-", topic="user-account_retry_10000", partition=0, offset=2),
        *texts("delayed-retry-", topic="user-account", partition=4, offset=17),
        *texts("delayed-retry-", original_timestamp=AT_MS, count=0),
        *texts("delayed-retry-", count=1),
        *texts("delayed-retry-", count=2),
    ]
    assert Origin("smallrye-retry", "user-account", 4, 17, attempt=2, at=AT) == read(headers)


def test_smallryes_dead_letter_of_a_retried_record_has_its_origin_in_the_main_topic() -> None:
    """The retry headers stand behind those of the dead letter."""
    retried = [
        *texts("delayed-retry-", topic="user-account", partition=4, offset=17),
        *texts("delayed-retry-", count=1),
    ]
    origin = read([*smallrye_dlq("user-account_retry_10000", 2), *retried])
    assert replace(HERE, dialect="smallrye-dlq", group=None, attempt=1) == origin


def test_only_a_share_group_leaves_pointers() -> None:
    """A null value means a delete everywhere else."""
    assert [origin.dialect for _, origin in EXAMPLES if origin.pointer] == ["share-group"]


def test_our_own_dialect_is_read_before_those_that_the_record_brought() -> None:
    """A stash keeps the headers of the retry topic that the record came from."""
    origin = Origin("reconcile", "user-account", 4, 17, "login-service")
    assert origin == read([*spring_dlt("elsewhere"), *write(origin)])


def test_a_repeated_header_that_is_unreadable_hides_no_other_hop() -> None:
    """The second topic is not the origin only because the first is broken."""
    headers = [("kafka_dlt-original-topic", b"\xff"), ("kafka_dlt-original-partition", None), *spring_dlt("later", 1)]
    origin = read(headers)
    assert origin is not None
    assert (origin.topic, origin.partition, origin.offset) == (None, None, 17)


@pytest.mark.parametrize("raw", [b"", b"-1", b"+1", b" 1", b"1_0", b"\xd9\xa3", b"1e3", b"9" * 30, b"2147483648", None])
def test_text_that_is_no_partition_is_not_told(raw: bytes | None) -> None:
    """Streams writes -1 where it knows none; the rest is broken."""
    assert Origin("kafka-streams", "t") == read([("__streams.errors.topic", b"t"), ("__streams.errors.partition", raw)])


def test_header_bytes_of_a_mutable_kind_are_read_too() -> None:
    """Spark hands out byte arrays."""
    headers = [(name, bytearray(value or b"")) for name, value in spring_dlt()]
    assert read(spring_dlt()) == read(headers)


ALL_NAMES = sorted({name for family in FAMILIES for each in family for name in each.names() | each.marks})


@given(st.lists(st.tuples(st.sampled_from(ALL_NAMES), st.none() | st.binary(max_size=12)), max_size=12))
def test_hostile_headers_never_raise(headers: list[tuple[str, bytes | None]]) -> None:
    """Whatever bytes they hold, parts are either told within Kafka's bounds or not at all."""
    for dialect in ("auto", *DIALECTS):
        origin = read(headers, dialect)
        if origin is not None:
            assert origin.partition is None or 0 <= origin.partition < 1 << 31
            assert origin.offset is None or 0 <= origin.offset < 1 << 63
            assert origin.attempt is None or 0 <= origin.attempt < 1 << 31
            assert replace(origin, dialect="reconcile", pointer=False) == (read(write(origin)) or Origin("reconcile"))


@given(st.data())
def test_a_cut_header_costs_its_own_field_alone(data: st.DataObject) -> None:
    """The rest of the origin is still told."""
    whole = spring_dlt()
    index = data.draw(st.integers(3, 6))
    name, value = whole[index]
    assert value is not None
    cut = value[: data.draw(st.integers(0, len(value) - 1))] if index > 3 else b"\xc3"
    field = ("topic", "partition", "offset", "at")[index - 3]
    expected = replace(HERE, **({"dialect": "spring-dlt", "at": AT} | {field: None}))  # type: ignore[arg-type]
    assert expected == read([*whole[:index], (name, cut), *whole[index + 1 :]])


PRINTABLE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
ORIGINS = st.builds(
    Origin,
    dialect=st.just("reconcile"),
    topic=st.none() | PRINTABLE,
    partition=st.none() | st.integers(0, (1 << 31) - 1),
    offset=st.none() | st.integers(0, (1 << 63) - 1),
    group=st.none() | PRINTABLE,
    error_class=st.none() | PRINTABLE,
    error_message=st.none() | PRINTABLE,
    attempt=st.none() | st.integers(0, (1 << 31) - 1),
    at=st.none() | st.integers(0, 1 << 40).map(lambda ms: datetime.fromtimestamp(ms // 1000, UTC)),
    stashed_behind=st.none() | PRINTABLE,
)


@given(ORIGINS)
def test_our_own_dialect_round_trips(origin: Origin) -> None:
    """What is written is read."""
    assert (origin if write(origin) else None) == read(write(origin))


def test_our_own_dialect_is_text() -> None:
    """People read these headers with Kafka's own tools."""
    origin = replace(HERE, dialect="reconcile", attempt=1, at=AT, stashed_behind="user-account-4@16")
    assert write(origin) == [
        ("reconcile-origin-topic", b"user-account"),
        ("reconcile-origin-partition", b"4"),
        ("reconcile-origin-offset", b"17"),
        ("reconcile-origin-timestamp", b"1767225600000"),
        ("reconcile-origin-group", b"login-service"),
        ("reconcile-attempt", b"1"),
        ("reconcile-error-class", b"java.lang.Boom"),
        ("reconcile-error-message", b"it went Boom"),
        ("reconcile-stashed-behind", b"user-account-4@16"),
    ]


def test_a_message_that_has_no_utf8_form_does_not_stop_a_stash() -> None:
    """An exception's text can hold anything."""
    assert write(Origin("reconcile", error_message="half \ud800")) == [("reconcile-error-message", b"half ?")]
