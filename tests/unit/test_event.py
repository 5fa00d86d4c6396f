import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.domain.event import event_id

ORIGIN = ("user-account", 4, 17)
POSTGRES: dict[str, object] = {"connector": "postgresql", "name": "user-db", "lsn": 24023128, "txId": 555}


def test_the_contracts_id_comes_first() -> None:
    """What the contract declares wins over all that could be found."""
    assert event_id([("ce_id", b"c-1")], "e-1", POSTGRES, ORIGIN) == "e-1"


@pytest.mark.parametrize("declared", [None, ""])
def test_debeziums_source_comes_second(declared: str | None) -> None:
    """Its position in the database's log names a change."""
    assert event_id([("ce_id", b"c-1")], declared, POSTGRES, ORIGIN) == "postgresql:user-db:24023128:555"


def test_a_row_of_a_binlog_event_has_its_own_id() -> None:
    """MySQL writes several rows at one position."""
    source = {"connector": "mysql", "name": "db", "file": "binlog.000003", "pos": 484, "row": 1, "gtid": None}
    assert event_id([], None, source, ORIGIN) == "mysql:db:binlog.000003:484:1"


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"connector": "postgresql", "name": "user-db", "lsn": None, "txId": 555},
        {"connector": "unheard-of", "lsn": 1},
        POSTGRES | {"snapshot": "true"},
        POSTGRES | {"snapshot": True},
        POSTGRES | {"snapshot": "last"},
        POSTGRES | {"snapshot": "incremental"},
    ],
)
def test_a_source_without_a_position_names_nothing(source: dict[str, object]) -> None:
    """All records of a snapshot share one position."""
    assert event_id([], None, source, ORIGIN) == "user-account-4@17"


@pytest.mark.parametrize("snapshot", [None, False, "false"])
def test_a_record_of_the_log_is_named_by_it(snapshot: object) -> None:
    """The three ways in which connectors say that this is no snapshot."""
    assert event_id([], None, POSTGRES | {"snapshot": snapshot}, ORIGIN).startswith("postgresql:")


@pytest.mark.parametrize("name", ["ce_id", "ce-id"])
def test_the_id_of_cloudevents_comes_third(name: str) -> None:
    """In either spelling of its header."""
    assert event_id([("other", b"x"), (name, b"c-1")], None, None, ORIGIN) == "c-1"


@pytest.mark.parametrize("value", [None, b"", b"\xff"])
def test_an_unreadable_header_names_nothing(value: bytes | None) -> None:
    """The next in line does."""
    assert event_id([("ce_id", value)], None, None, ORIGIN) == "user-account-4@17"
    assert event_id([("ce_id", value), ("ce-id", b"c-1")], None, None, ORIGIN) == "c-1"


def test_the_origin_comes_last() -> None:
    """It always names a record."""
    assert event_id([], None, None, ORIGIN) == "user-account-4@17"


@given(st.lists(st.tuples(st.sampled_from(["ce_id", "ce-id", "x"]), st.none() | st.binary(max_size=8))))
def test_every_record_has_an_id(headers: list[tuple[str, bytes | None]]) -> None:
    """Whatever its headers hold."""
    assert event_id(headers, None, None, ORIGIN)
