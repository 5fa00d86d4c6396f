"""Which read views of InnoDB show the same rows, by what its status tells of them."""

from __future__ import annotations

import pytest

from reconcile.gather.stores.mariadb import one_instant
from reconcile.gather.stores.mariadb.one_instant import Place, Status

VIEW = (28, 26)
STATUS = """
LATEST DETECTED DEADLOCK
*** (1) TRANSACTION:
TRANSACTION 5, ACTIVE 1 sec
------------
TRANSACTIONS
------------
Trx id counter 28
LIST OF TRANSACTIONS FOR EACH SESSION:
---TRANSACTION (0x7f368f9c1c80), ACTIVE 0 sec
0 lock struct(s), heap size 1128, 0 row lock(s)
MariaDB thread id 10, OS thread handle 139872657405632, query id 46 localhost 127.0.0.1 audit 
Trx read view will not see trx with id >= 28, sees < 26
---TRANSACTION (0x7f368f9c0680), not started
0 lock struct(s), heap size 1128, 0 row lock(s)
---TRANSACTION 27, COMMITTED IN MEMORY flushing log
---TRANSACTION 26, ACTIVE (PREPARED) 0 sec
1 lock struct(s), heap size 1128, 0 row lock(s), undo log entries 1
MariaDB thread id 11, OS thread handle 139872657098432, query id 43 localhost 127.0.0.1 root 
--------
FILE I/O
--------
---TRANSACTION 6, ACTIVE 1 sec
"""  # noqa: W291


def test_the_status_tells_of_views_and_of_transactions() -> None:
    """In its list of transactions, and nowhere else."""
    assert Status({10: VIEW}, frozenset({26, 27}), frozenset({26})) == one_instant.parse(STATUS)


def test_a_status_that_was_cut_tells_nothing() -> None:
    """Of a server with very many transactions."""
    nothing: frozenset[int] = frozenset()
    assert Status({}, nothing, nothing) == one_instant.parse(STATUS + "... truncated...\n")


def status(views: dict[int, tuple[int, int]], active: set[int], *ending: int) -> Status:
    """Build one."""
    return Status(views, frozenset({*active, *ending}), frozenset(active))


BOTH = {1: VIEW, 2: VIEW}


@pytest.mark.parametrize(
    ("before", "after", "again", "expected"),
    [
        (status({2: VIEW}, {26}), status(BOTH, {26}), status(BOTH, {26}), True),
        (status({2: VIEW}, set()), status(BOTH, {29}), status(BOTH, {29}), True),
        (status({2: VIEW}, {26, 28}), status(BOTH, {26}), status(BOTH, {26}), True),
        (status({2: VIEW}, {26}), status({1: VIEW, 2: (29, 26)}, {26}), status(BOTH, {26}), False),
        (status({2: (27, 26)}, {26}), status(BOTH, {26}), status(BOTH, {26}), False),
        (status({}, {26}), status(BOTH, {26}), status(BOTH, {26}), False),
        (status({2: VIEW}, {26}), status({2: VIEW}, {26}), status(BOTH, {26}), False),
        (status({2: VIEW}, {26, 27}), status(BOTH, {26}), status(BOTH, {26}), False),
        (status({2: VIEW}, {26}, 27), status(BOTH, {26}), status(BOTH, {26}), False),
        (status({2: VIEW}, {26}), status(BOTH, set(), 26), status(BOTH, {26}), False),
        (status({2: VIEW}, {26}), status(BOTH, {26}), status(BOTH, set()), False),
    ],
)
def test_views_are_one_instant_if_nothing_ended_between_them(
    before: Status, after: Status, again: Status, expected: bool
) -> None:
    """Of what began before the first of them."""
    assert expected == one_instant.is_one_instant(before, after, again, [1, 2])


class Session:
    """One of a server whose transactions never stop, or never start."""

    def __init__(self, place: Place, *, busy: bool) -> None:
        self.begun = 0
        self._place = place
        self._busy = busy

    def begin(self) -> None:
        self.begun += 1

    def place(self) -> Place:
        return self._place

    def status(self) -> str:
        return STATUS.replace("28", str(100 + self.begun)) if self._busy else STATUS.replace("27,", "(0),")


HERE, THERE = Place(10, ("here",)), Place(10, ("there",))


@pytest.mark.parametrize(
    ("places", "busy", "expected", "begun"),
    [
        ([HERE, HERE], False, None, 2),
        ([HERE, HERE], True, "transactions ended in each of 20 attempts, or InnoDB's status does not tell", 21),
        ([HERE, THERE], False, "its connections go to several servers", 1),
    ],
)
def test_attempts_are_bounded(places: list[Place], busy: bool, expected: str | None, begun: int) -> None:
    """A server that is too busy, and one behind a proxy, are read by one session."""
    sessions = [Session(place, busy=busy) for place in places]
    assert expected == one_instant.begin_together(sessions)
    assert [begun] * 2 == [each.begun for each in sessions]
