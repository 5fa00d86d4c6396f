"""What a database feels of us: looked at before each heavy statement, on a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest
from psycopg2 import sql

from reconcile.errors import ReconcileError
from reconcile.gather import spark_read_errors
from reconcile.gather.stores.errors import (
    StatementCancelledError,
    StatementTimeoutError,
    StoreBusyError,
    StoreRefusedError,
)
from reconcile.gather.stores.load import wait_while_busy
from reconcile.gather.stores.postgres_store import PostgresStore
from reconcile.gather.stores.session import StoreSession, open_session
from reconcile.lab.folder import Lab
from reconcile.settings.connections import Pause, StoreLimits
from reconcile.settings.urls import parse
from tests.integration.worlds import postgres_alone
from tests.ports import ports_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A server of this module's own, with an account that may see nothing of others."""
    with postgres_alone(ports_of("politeness")) as lab:
        with closing(psycopg2.connect(lab.url("postgres", "postgres"))) as database, database.cursor() as cursor:
            cursor.execute("create role plain login password 'plain'")
            database.commit()
        yield lab


@contextmanager
def opened(lab: Lab, pause: Pause, user: str = "postgres") -> Iterator[StoreSession]:
    """Open a session of ours that holds a snapshot."""
    url = lab.url("postgres", "postgres")
    if user == "plain":
        url = f"postgresql://plain:plain@{url.partition('@')[2]}"
    with open_session("user-db", parse(url), StoreLimits(pause=pause)) as session:
        session.take_snapshot()
        yield session


@contextmanager
def running(lab: Lab, connection: Any) -> Iterator[None]:
    """Let the server run a statement of a connection during the block."""

    def work() -> None:
        with suppress(psycopg2.errors.QueryCanceled), connection.cursor() as cursor:
            cursor.execute("select pg_sleep(120)")

    busy, before = threading.Thread(target=work), sleeping(lab)
    busy.start()
    until(lambda: sleeping(lab) > before)
    try:
        yield
    finally:
        connection.cancel()
        busy.join()


@contextmanager
def others(lab: Lab) -> Iterator[Any]:
    """Open a session of somebody else."""
    with closing(psycopg2.connect(lab.url("postgres", "postgres"))) as other:
        yield other


def sleeping(lab: Lab) -> int:
    """Count the statements that `running` has begun."""
    with others(lab) as watcher, watcher.cursor() as cursor:
        cursor.execute("select count(*) from pg_stat_activity where state = 'active' and query ~ '^select pg_sleep'")
        return int(cursor.fetchall()[0][0])


def until(reached: Any) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_we_wait_while_others_run_too_much(lab: Lab) -> None:
    """What runs is seen as it is now, within the transaction of our snapshot."""
    with (
        opened(lab, Pause(running=1)) as session,
        others(lab) as first,
        others(lab) as second,
        running(lab, first),
        running(lab, second),
    ):

        def meanwhile(_seconds: float) -> None:
            first.cancel()
            until(lambda: session.load().running == 1)

        assert 1.0 == wait_while_busy("user-db", session.load, session.limits.pause, meanwhile)


def test_our_own_readers_are_not_others(lab: Lab) -> None:
    """Else the parts of a table would wait for each other."""
    with opened(lab, Pause(running=1)) as session, opened(lab, Pause()) as own, running(lab, own._database):
        assert 0 == session.load().running


def test_a_store_that_stays_busy_ends_the_waiting(lab: Lab) -> None:
    """By its name."""
    pause = Pause(connections=1, at_most=timedelta(0))
    with (
        opened(lab, pause) as session,
        others(lab),
        pytest.raises(StoreBusyError, match=r"more than `pause.connections` \(1\); run at a quieter time"),
    ):
        session.wait_while_busy()


def test_replicas_that_are_not_there_are_not_behind(lab: Lab) -> None:
    """The server's own view is asked."""
    with opened(lab, Pause(replication_lag=timedelta(seconds=1))) as session:
        assert timedelta(0) == session.load().replication_lag
        session.wait_while_busy()


@pytest.mark.parametrize("pause", [Pause(running=5), Pause(replication_lag=timedelta(seconds=5))])
def test_an_account_that_sees_nothing_of_others_is_told(lab: Lab, pause: Pause) -> None:
    """What it does not see is not zero."""
    with opened(lab, pause, "plain") as session, pytest.raises(StoreRefusedError, match="grant it pg_read_all_stats"):
        session.wait_while_busy()


def test_any_account_sees_how_many_sessions_there_are(lab: Lab) -> None:
    """Among them its own."""
    with opened(lab, Pause(connections=100), "plain") as session:
        session.wait_while_busy()
        assert 1 <= session.load().connections <= 100


def test_a_statement_that_somebody_ends_is_no_time_out(lab: Lab) -> None:
    """Nothing of ours took too long."""

    def end() -> None:
        until(lambda: sleeping(lab) == 1)
        session._database.cancel()

    with opened(lab, Pause()) as session:
        ended = threading.Thread(target=end)
        ended.start()
        with pytest.raises(StatementCancelledError, match="somebody ended a statement of ours in user-db"):
            session.rows("select pg_sleep(60)")
        ended.join()


def test_a_reader_of_sparks_has_the_same_time(lab: Lab, spark: SparkSession) -> None:
    """A statement that takes longer is named with the setting."""
    url = parse(lab.url("postgres", "postgres"))
    limits = StoreLimits(statement_timeout=timedelta(milliseconds=200))
    with open_session("user-db", url) as session:
        store = PostgresStore("user-db", url, session.take_snapshot().id, limits)
        slow = session.text(sql.SQL("select 1 as a from pg_sleep(60)"))
        with pytest.raises(Exception, match="statement timeout") as raised:
            store.frame(spark, [slow]).collect()
    named = spark_read_errors.by_postgres("user-account/login", str(raised.value))
    assert isinstance(named, StatementTimeoutError)
    assert isinstance(named, ReconcileError)
    assert "raise `statement_timeout` of its connection" in str(named)
