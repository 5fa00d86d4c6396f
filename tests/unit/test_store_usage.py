"""How many read a database at a time, and what they take."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

from reconcile.gather.stores.usage import Readers, Usage


def test_no_more_read_than_may() -> None:
    """The third begins when one of two ends."""
    readers, both, go, third = Readers(2), Barrier(3), Event(), Event()

    def first() -> None:
        with readers.reading():
            both.wait(10)
            go.wait(10)

    def last() -> None:
        with readers.reading():
            third.set()

    with ThreadPoolExecutor(3) as pool:
        reading = [pool.submit(first), pool.submit(first)]
        both.wait(10)
        waiting = pool.submit(last)
        assert not third.is_set()
        go.set()
        for each in (*reading, waiting):
            each.result(10)
    assert 2 == readers.most


def test_more_than_may_read_are_all_that_may() -> None:
    """So a frame of many tasks waits for all others, and not for ever."""
    readers = Readers(3)
    with readers.reading(32):
        pass
    with readers.reading(None):
        pass
    assert 3 == readers.most


def test_what_is_taken_is_counted() -> None:
    """A snapshot's time ends when it is let go."""
    usage = Usage("user-db", "source", Readers(1))
    usage.add(statements=2, rows=10, size=100)
    usage.add(statements=1, paused=1.5)
    usage.snapshot_began()
    usage.snapshot_ended()
    held = usage.taken()
    assert ("user-db", "source", 3, 10, 100, 1.5) == (
        held.store,
        held.of,
        held.statements,
        held.rows,
        held.bytes,
        held.paused_seconds,
    )
    assert held == usage.taken()
