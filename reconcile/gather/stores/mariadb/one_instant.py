"""Snapshots of several sessions with a MariaDB that are proven to be one instant, as no session can import another's.

What a snapshot shows is decided by InnoDB's read view alone: it hides transactions with ids from a limit on, and those
below the limit that had not ended. `show engine innodb status` tells the limit of each view and which transactions have
not ended. Two views with one limit show the same rows if no transaction below it ended between them. That holds for
each transaction of InnoDB, also for one that the binary log does not have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

_ATTEMPTS = 20
_LIST = "\nLIST OF TRANSACTIONS FOR EACH SESSION:"
_END = "\n--------\nFILE I/O"
_ENTRY = "\n---TRANSACTION "
_TRANSACTION = re.compile(r"(\d+),( ACTIVE)?")
_CONNECTION = re.compile(r"^(?:MariaDB|MySQL) thread id (\d+),", re.MULTILINE)
_VIEW = re.compile(r"^Trx read view will not see trx with id >= (\d+), sees < (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """Which connection a session is, of which server: behind a proxy they may be of several."""

    connection: int
    server: tuple[str, ...]


class SnapshotSession(Protocol):
    """A session that can begin a snapshot."""

    def begin(self) -> None:
        """Begin a snapshot; the one before it ends."""

    def place(self) -> Place:
        """Query which connection it is."""

    def status(self) -> str:
        """Query InnoDB's status."""


@dataclass(frozen=True)
class Status:
    """What InnoDB says of its transactions, one after the other."""

    views: dict[int, tuple[int, int]]
    """Of each connection with a read view: the limit, and the oldest transaction that had not ended."""
    ids: frozenset[int]
    """Transactions with an id, which those have that write."""
    active: frozenset[int]
    """Those of them that had not begun to end."""


def begin_together(sessions: Sequence[SnapshotSession]) -> str | None:
    """Begin a snapshot in each session, again until all are one instant; say why they are not after some attempts."""
    for session in sessions:
        session.begin()
    places = [session.place() for session in sessions]
    if len({place.server for place in places}) > 1:
        return "its connections go to several servers"
    connections, last = [place.connection for place in places], sessions[-1]
    before = parse(last.status())
    for _ in range(_ATTEMPTS):
        for session in sessions:
            session.begin()
        after, again = parse(last.status()), parse(last.status())
        if is_one_instant(before, after, again, connections) and places == [each.place() for each in sessions]:
            return None
        before = again
    return f"transactions ended in each of {_ATTEMPTS} attempts, or InnoDB's status does not tell"


def is_one_instant(before: Status, after: Status, again: Status, connections: Sequence[int]) -> bool:
    """Decide whether the views that connections have opened between `before` and `after` show the same rows."""
    view = before.views.get(connections[-1])
    if view is None or any(after.views.get(each) != view for each in connections):
        return False
    # Each transaction below the limit had its id when the view in `before` was opened, so `before` lists it if it had
    # not ended. One that is listed as active by `after` had not ended when the last view was opened. The status reads
    # a transaction's id before its state: `again` rules out that another transaction has come between the two.
    limit, _ = view
    return {each for each in before.ids if each < limit} <= after.active & again.ids


def parse(text: str) -> Status:
    """Parse InnoDB's status; what cannot be found in it counts as unknown, and proves nothing."""
    listed = text.partition(_LIST)[2].partition(_END)[0]
    if "... truncated..." in text:
        listed = ""
    views, ids, active = {}, set(), set()
    for entry in listed.split(_ENTRY)[1:]:
        if found := _TRANSACTION.match(entry):
            ids.add(int(found[1]))
            if found[2]:
                active.add(int(found[1]))
        connection, view = _CONNECTION.search(entry), _VIEW.search(entry)
        if connection and view:
            views[int(connection[1])] = int(view[1]), int(view[2])
    return Status(views, frozenset(ids), frozenset(active))
