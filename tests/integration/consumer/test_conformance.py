"""The store in Postgres keeps what every store has to."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from uuid import uuid4

import psycopg2
import pytest

from reconcile.consumer.decision import Outcome
from reconcile.consumer.errors import AnotherTopicError, EndedTransactionError
from reconcile.consumer.message import Message
from reconcile.consumer.postgres import LibraryStore, migrate
from reconcile.consumer.postgres_stash import PostgresStash
from reconcile.consumer.store import ConsumerStore, ContendedError, Noted, Stashed, StashStore, Writes
from reconcile.settings import urls
from tests.consumer_behaviour import (
    PolicyBehaviour,
    StashBehaviour,
    StoreBehaviour,
    Subject,
    claim,
    connect,
    head,
    known,
    message,
    noted,
    stash_size,
    write,
)
from tests.integration.consumer.world import World, until


class PostgresSubject:
    """A group in a database of the library."""

    def __init__(self, url: str) -> None:
        self.group = f"g{uuid4().hex[:10]}"
        self._url = url
        self._opened: list[LibraryStore] = []
        self._others: list[PostgresSubject] = []

    def connect(self) -> ConsumerStore:
        """Open one more connection of the group."""
        self._opened.append(LibraryStore(urls.parse(self._url), self.group))
        return self._opened[-1]

    def other_group(self) -> Subject:
        """Choose another group on the same database."""
        self._others.append(PostgresSubject(self._url))
        return self._others[-1]

    def stash(self, store: ConsumerStore) -> StashStore:
        """Open the stash over a connection."""
        assert isinstance(store, LibraryStore)
        return PostgresStash(store)

    def put(self, handle: Any, id_: str, value: str | None) -> None:
        """Write a row of the copy."""
        handle.execute("delete from copy where owner = %s and id = %s", (self.group, id_))
        if value is not None:
            handle.execute("insert into copy values (%s, %s, %s)", (self.group, id_, value))

    def copy(self) -> dict[str, str]:
        """Read the copy."""
        with closing(psycopg2.connect(self._url)) as connection, connection.cursor() as cursor:
            cursor.execute("select id, value from copy where owner = %s", (self.group,))
            return dict(cursor.fetchall())

    def close(self) -> None:
        """Close what was opened."""
        for store in self._opened:
            store.close()
        for other in self._others:
            other.close()


@pytest.fixture(scope="module")
def url(world: World) -> str:
    """A database that has the library's tables, and a copy."""
    server = world.lab.url("postgres")
    with closing(psycopg2.connect(server)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute("create database conformance")
    url = server.rsplit("/", 1)[0] + "/conformance"
    migrate(urls.parse(url))
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("create table copy (owner text, id text, value text not null, primary key (owner, id))")
        connection.commit()
    return url


@pytest.fixture
def subject(url: str) -> Iterator[Subject]:
    """A group that nobody used before."""
    with closing(PostgresSubject(url)) as opened:
        yield opened


class TestPostgresStore(StoreBehaviour):
    """The promises of a store."""


class TestPostgresStash(StashBehaviour):
    """The promises of a stash."""


class TestPoliciesOnPostgres(PolicyBehaviour):
    """The policies, over it."""


@pytest.mark.parametrize("aggregate", ["max", "zoe"])
def test_a_topic_that_was_created_anew_is_not_taken_for_the_old_one(subject: PostgresSubject, aggregate: str) -> None:
    """C7: its offsets begin again, and none of its messages may be skipped for one that stood there before."""
    store = connect(subject)
    held = claim(subject, store)
    write(store, held, noted(message(1, "zoe")))
    with pytest.raises(AnotherTopicError, match="created anew"):
        known(store, held, message(1, aggregate, event="another"))


@pytest.mark.parametrize("first", [True, False], ids=["before", "since"])
def test_d7_a_letter_is_overtaken_by_what_came_in_another_partition_since(
    subject: PostgresSubject, first: bool
) -> None:
    """The topic has grown: an aggregate's later events stand in another partition, with whatever offsets."""
    store = connect(subject)
    letter, other = message(7), message(1, partition=1, event="another")
    notes = [(letter, 0, Outcome.DEAD_LETTERED), (other, 1, Outcome.APPLIED)]
    for each, partition, outcome in reversed(notes) if first else notes:
        write(store, claim(subject, store, partition), noted(each, outcome))
    stash = subject.stash(connect(subject))
    assert isinstance(stash, PostgresStash)
    assert stash.put(letter, "PoisonError", "no")
    with stash.transaction() as step:
        found = step.head("zoe")
        assert found is not None
        assert (not first) is found[1].overtaken


def test_what_a_drain_overtook_is_asked_again(subject: PostgresSubject, url: str) -> None:
    """B12: what was read before a drain ended says nothing of what the drain has applied."""
    store, watcher, unblocking = connect(subject), psycopg2.connect(url), psycopg2.connect(url)
    held = claim(subject, store)
    write(store, held, Writes(stashed=[Stashed(message(1, "a")), Stashed(message(2, "b"))]))
    with closing(watcher), closing(unblocking), ThreadPoolExecutor(1) as threads:
        _unblock(unblocking, subject.group, message(1, "a"))
        reading = threads.submit(known, store, held, message(3, "a"), message(2, "b"))
        until(lambda: _waits_for_a_lock(watcher), "the facts do not wait for the drain")
        _unblock(watcher, subject.group, message(2, "b"))
        watcher.commit()
        unblocking.commit()
        with pytest.raises(ContendedError):
            reading.result()
    assert [(None, None), (None, Outcome.APPLIED)] == [
        (each.blocked, each.noted) for each in known(store, held, message(3, "a"), message(2, "b"))
    ]


def test_d7_a_replay_waits_for_what_a_member_has_begun(subject: PostgresSubject, url: str) -> None:
    """D7: a later event that is being applied when a letter is replayed is seen, so that it is not overwritten."""
    store, draining, watcher = connect(subject), connect(subject), psycopg2.connect(url)
    held, stash = claim(subject, store), PostgresStash(draining)  # type: ignore[arg-type] # it is one of Postgres
    stash.hold(60)
    with closing(watcher), ThreadPoolExecutor(1) as threads:
        with store.transaction() as begun:
            begun.facts([message(7)], [held])
            assert stash.put(message(3), None, None)
            reading = threads.submit(head, stash)
            until(lambda: _waits_for_a_lock(watcher), "the drain does not wait for the member")
            begun.commit(noted(message(7)))
        found = reading.result()
    assert found is not None
    assert found[1].overtaken


def test_c8_what_a_batch_stashes_is_kept_in_its_own_transaction_alone(subject: PostgresSubject) -> None:
    """C8: a handler that ended the transaction leaves no stashed message of its batch behind."""
    store = connect(subject)
    held = claim(subject, store)
    writes = Writes([Noted(message(1, "a"), Outcome.APPLIED)], stashed=[Stashed(message(2, "b"))])
    with pytest.raises(EndedTransactionError):
        write(store, held, writes, lambda handle: handle.execute("commit"))
    assert 0 == stash_size(store, held)


def _unblock(connection: Any, group: str, one: Message) -> None:
    """Do what a drain does with an aggregate's last message, and leave the transaction open."""
    with connection.cursor() as cursor:
        for table in ("blocked", "stash"):
            cursor.execute(
                f"delete from reconcile.{table} where consumer_group = %s and aggregate_id = %s",
                (group, one.aggregate_id),
            )
        cursor.execute(
            'insert into reconcile.ledger (consumer_group, topic, partition, "offset", event_id, aggregate_id, outcome)'
            " values (%s, %s, %s, %s, %s, %s, 'applied')",
            (group, *one.origin, one.event_id, one.aggregate_id),
        )


def _waits_for_a_lock(connection: Any) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "select from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'reconcile-consumer'"
            " and datname = current_database()"
        )
        found = cursor.rowcount
    connection.rollback()
    return bool(found)
