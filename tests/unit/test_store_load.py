"""How busy a database may be, and how long we wait for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from reconcile.gather.stores.errors import StoreBusyError
from reconcile.gather.stores.load import Load, excess, wait_while_busy
from reconcile.settings.connections import Pause

BUSY = Load(connections=90, running=7, replication_lag=timedelta(seconds=12))
IDLE = Load(connections=3, running=0)


@pytest.mark.parametrize(
    ("pause", "expected"),
    [
        (Pause(), []),
        (Pause(connections=90, running=7, replication_lag=timedelta(seconds=12)), []),
        (Pause(connections=89), ["90 sessions are open, more than `pause.connections` (89)"]),
        (Pause(running=6), ["7 statements are running, more than `pause.running` (6)"]),
        (
            Pause(replication_lag=timedelta(seconds=10)),
            ["a replica is 12.0 s behind, more than `pause.replication_lag` (10s)"],
        ),
    ],
)
def test_what_there_is_too_much_of_is_named(pause: Pause, expected: list[str]) -> None:
    """What is at its limit is not too much."""
    assert expected == excess(BUSY, pause)


def test_we_wait_until_it_is_less_busy() -> None:
    """And know how long that took."""
    loads = iter([BUSY, BUSY, IDLE])
    slept: list[float] = []
    assert 2.0 == wait_while_busy("user-db", lambda: next(loads), Pause(running=1), slept.append)
    assert [1.0, 1.0] == slept


def test_nobody_looks_where_nothing_is_limited() -> None:
    """A statement more would be load, too."""

    def look() -> Load:
        raise AssertionError

    assert 0.0 == wait_while_busy("user-db", look, Pause())


def test_a_database_that_stays_busy_is_given_up() -> None:
    """The error says what it has too much of, and which settings decide."""
    slept: list[float] = []
    with pytest.raises(StoreBusyError) as raised:
        wait_while_busy("user-db", lambda: BUSY, Pause(running=1, at_most=timedelta(seconds=3)), slept.append)
    assert 3.0 == sum(slept)
    assert (
        "the store user-db was busy for longer than `pause.at_most` (3s): 7 statements are running, more than"
        " `pause.running` (1); run at a quieter time, or let its connection wait longer or allow more"
    ) == str(raised.value)
