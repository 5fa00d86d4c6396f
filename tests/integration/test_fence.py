"""The fence on real servers: every state of a group, every error by its name, and instants that stand still."""

from __future__ import annotations

import json
import os
import random
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from reconcile.contract.model import Outbox, load_contract
from reconcile.errors import ReconcileError
from reconcile.files import committed
from reconcile.gather import topology_facts
from reconcile.gather.evidence import outbox
from reconcile.gather.fence.fence import ConsumerFence, Fence
from reconcile.gather.fence.nature import SourceNature
from reconcile.gather.fence.opening import OpenFence, open_fence
from reconcile.gather.stores.errors import (
    ContractMismatchError,
    RowSecurityError,
    SnapshotLostError,
    StatementTimeoutError,
    StoreRefusedError,
    StoreUnreachableError,
)
from reconcile.gather.stores.postgres_store import OpenPostgres, PostgresStore
from reconcile.gather.stores.session import StoreSession, open_session
from reconcile.kafka.client import ClusterClient, GroupState
from reconcile.kafka.errors import ClusterRefusedError, ClusterUnreachableError, TopicMissingError
from reconcile.lab import faults, world
from reconcile.lab.folder import Lab
from reconcile.lab.kafka import Kafka
from reconcile.lab.postgres import PostgresServer
from reconcile.lab.services import offsets
from reconcile.lab.services.consumer import Group, apply_once
from reconcile.lab.services.copies import LOGIN
from reconcile.lab.services.database import connect as database_of
from reconcile.lab.services.database import connected
from reconcile.lab.services.relay import OutboxRelay, producer
from reconcile.lab.services.user import UserService
from reconcile.lab.traffic import Traffic, traffic
from reconcile.settings.connections import StoreLimits
from reconcile.settings.settings import load_settings
from reconcile.settings.urls import PostgresUrl, parse
from reconcile.workspace import handoff
from tests.integration.worlds import seeded_world, until, until_decided
from tests.ports import ports_of
from tests.schemas import valid_output

PORTS = ports_of("fence")
LONG_AGO = 1_767_225_600_000
"""The beginning of 2026, as Kafka's timestamps have it."""
SERVER = f"127.0.0.1:{PORTS.postgres}"
ACCOUNT = committed("contracts", "user-account.yaml")
BALANCE = committed("contracts", "user-balance.yaml")
CONTRACT = """
version: 1
aggregate: user-balance
source:
  store: user-db
  table: user_balance
  id: user_id
  version: version
  outbox: {table: outbox, id: aggregate_id, published: published_at is not null}
topic: {cluster: main, name: TOPIC, value: {amount: balance}}
consumers:
  - name: billing
    group: GROUP
    store: billing-db
    table: account
    id: user_id
    fields:
      - {name: balance, source: balance, consumer: balance}
      - {name: tariff, source: tariff, consumer: upper(tariff)}
    settle: {timeout: 20s}
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A seeded world of our own."""
    with seeded_world(300, ports=PORTS) as lab:
        yield lab


@pytest.fixture
def admin(lab: Lab) -> AdminClient:
    """A client that may change the cluster."""
    return offsets.admin_client(lab.bootstrap)


@contextmanager
def opened(lab: Lab, file: Path, timeout: float = 0, **more: Any) -> Iterator[OpenFence]:
    """Open the fence of a contract."""
    settings = load_settings(world.settings_file(lab))
    with open_fence(load_contract(file), file, settings, timeout=timedelta(seconds=timeout), **more) as found:
        yield found


def fence_of(lab: Lab, file: Path, timeout: float = 0) -> Fence:
    """Open a fence, check that its file says the same, and close it."""
    with opened(lab, file, timeout) as found:
        assert found.fence == handoff.parse(Fence, json.dumps(handoff.to_data(found.fence)))
        return found.fence


class Scratch:
    """A topic and a group of a test's own."""

    def __init__(self, lab: Lab, admin: AdminClient, folder: Path, partitions: int = 2) -> None:
        self.lab, self.admin, self.name = lab, admin, folder.name
        self.file = folder / "contract.yaml"
        self.write(CONTRACT)
        for future in admin.create_topics([NewTopic(self.name, partitions, 1)]).values():
            future.result(30)

    def write(self, text: str) -> Path:
        self.file.write_text(text.replace("TOPIC", self.name).replace("GROUP", f"{self.name}-group"))
        return self.file

    def send(self, counts: dict[int, int], transactional: bool = False, commit: bool = True, at: int = 0) -> None:
        more: dict[str, object] = {"transactional.id": self.name} if transactional else {}
        sender = producer(self.lab.bootstrap, **more)
        if transactional:
            sender.init_transactions(30)
            sender.begin_transaction()
        for partition, count in counts.items():
            for _ in range(count):
                sender.produce(self.name, key=b"k", value=b"{}", partition=partition, timestamp=at)
        assert not sender.flush(30)
        if transactional and commit:
            sender.commit_transaction(30)
            until_decided(self.lab.bootstrap, self.name)
        self.sender = sender  # an open transaction lasts as long as its producer

    def commit(self, places: dict[int, int]) -> None:
        offsets.commit(self.lab.bootstrap, f"{self.name}-group", self.name, places)

    def settings(self, **more: object) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.lab.bootstrap,
            "group.id": f"{self.name}-group",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **more,
        }

    def consumer(self, **more: object) -> Consumer:
        consumer = Consumer(self.settings(**more))
        consumer.subscribe([self.name])
        return consumer

    def fence(self, timeout: float = 0) -> ConsumerFence:
        return fence_of(self.lab, self.file, timeout).consumer("billing")

    def states(self) -> list[str]:
        return [place.state.value for place in self.fence().places]


@pytest.fixture
def scratch(lab: Lab, admin: AdminClient, tmp_path: Path) -> Scratch:
    """A topic with two partitions and a group that does not exist yet."""
    return Scratch(lab, admin, tmp_path)


def rows(lab: Lab, database: str, query: str) -> list[tuple[Any, ...]]:
    """Read a store as it is now."""
    with connected(lab.url(database)) as cursor:
        cursor.execute(query)
        return cursor.fetchall()


@pytest.mark.parametrize("name", ["user-account", "user-balance", "user-activity"])
def test_a_seeded_world_has_settled(lab: Lab, name: str) -> None:
    """Each contract's fence opens; nobody consumes, and all that the topic holds is committed."""
    (consumer,) = (fence := fence_of(lab, committed("contracts", f"{name}.yaml"))).consumers
    assert (("settled", "empty"), 0, True) == (consumer.states, consumer.lag, fence.complete)
    assert all(each.end == each.log_end == each.high_watermark for each in fence.topic.partitions)
    assert fence.source.snapshot
    assert fence.source.snapshot.collation.encoding == "UTF8"


def test_types_are_given_for_both_sides(lab: Lab) -> None:
    """The types are those of the expressions, in the contract's order."""
    fence = fence_of(lab, BALANCE)
    types = fence.consumers[0].types
    assert types
    assert (("uuid",), None, ("numeric(10,2)", "text")) == (types.id, types.version, types.fields)
    assert fence.source.types
    assert ("numeric(14,2)", "text") == fence.source.types.fields


@contextmanager
def changed(lab: Lab, database: str, *statements: str, back: Sequence[str]) -> Iterator[None]:
    """Change a database for a block."""
    with connected(lab.url(database, "postgres"), autocommit=True) as cursor:
        try:
            for statement in statements:
                cursor.execute(statement)
            yield
        finally:
            for statement in back:
                cursor.execute(statement)


def test_a_primary_is_known_for_one(lab: Lab) -> None:
    """Its tables are its own, and no policy hides anything."""
    assert SourceNature(proven_primary=True) == fence_of(lab, ACCOUNT).source.nature


def test_a_reader_under_row_level_security_is_refused(lab: Lab) -> None:
    """It would see some rows, and the others would count as deleted: the table is named, and what to do."""
    policy = "create policy half on user_account using (first_name < 'M')"
    secured = "alter table user_account enable row level security"
    undo = ["drop policy half on user_account", "alter table user_account disable row level security"]
    with changed(lab, "user", policy, secured, back=undo), pytest.raises(RowSecurityError) as raised:
        fence_of(lab, ACCOUNT)
    assert "source.query: the store user-db: the reader is under row-level security" in str(raised.value)
    assert "the table user_account" in str(raised.value)
    assert "BYPASSRLS" in str(raised.value)


def test_a_reader_that_sees_all_rows_of_a_secured_table_is_told_so(lab: Lab) -> None:
    """It may pass the policies by, and the fence says which tables have some."""
    policy = "create policy half on user_account using (first_name < 'M')"
    secured = "alter table user_account enable row level security"
    free = "alter role reconcile_reader bypassrls"
    undo = [
        "drop policy half on user_account",
        "alter table user_account disable row level security",
        "alter role reconcile_reader nobypassrls",
    ]
    with changed(lab, "user", policy, secured, free, back=undo):
        found = fence_of(lab, ACCOUNT).source.nature
    assert SourceNature(proven_primary=True, row_security=("public.user_account",)) == found


def test_a_materialized_view_shows_what_was_there(lab: Lab, tmp_path: Path) -> None:
    """When it was refreshed."""
    file = tmp_path / "contract.yaml"
    file.write_text(BALANCE.read_text("utf-8").replace("table: user_balance", "table: kept_balance"))
    made = [
        "create materialized view kept_balance as select * from user_balance",
        "grant select on kept_balance to reconcile_reader",
    ]
    with changed(lab, "user", *made, back=["drop materialized view kept_balance"]):
        assert "public.kept_balance is a materialized view" in str(fence_of(lab, file).source.limits)


def test_a_partition_of_a_table_that_a_subscription_fills_may_be_behind(lab: Lab, tmp_path: Path) -> None:
    """A publication through the root names the root, and the rows are read from its partitions."""
    file = tmp_path / "contract.yaml"
    file.write_text(BALANCE.read_text("utf-8").replace("table: user_balance", "table: parted_balance"))
    made = [
        "create table parted_balance (like user_balance) partition by list (tariff)",
        "create table parted_balance_rest partition of parted_balance default",
        "grant select on parted_balance, parted_balance_rest to reconcile_reader",
        "create subscription parted connection 'dbname=none' publication p with (connect = false, slot_name = none)",
        "set allow_system_table_mods = on",
        "insert into pg_subscription_rel select oid, 'parted_balance'::regclass, 'r', null from pg_subscription",
    ]
    undo = ["drop subscription if exists parted", "drop table parted_balance"]
    with changed(lab, "user", *made, back=undo):
        assert "public.parted_balance_rest is filled by a subscription" in str(fence_of(lab, file).source.limits)


def test_an_outbox_row_of_a_time_that_no_clock_shows_waits_all_the_same(lab: Lab) -> None:
    """One odd row must not end the reading of all."""
    made = [
        "create table odd_outbox (id text, at timestamptz)",
        "insert into odd_outbox values ('a', '0044-03-15 BC'), ('b', '20000-01-01'), ('b', '2026-01-01')",
        "grant select on odd_outbox to reconcile_reader",
    ]
    with changed(lab, "user", *made, back=["drop table odd_outbox"]), opened(lab, ACCOUNT, 0) as found:
        assert isinstance(found.source, StoreSession)
        assert found.source.snapshot is not None
        url = parse(lab.url("user", "reconcile_reader"))
        store = OpenPostgres(PostgresStore("user-db", url, found.source.snapshot.id), found.source)
        waiting = outbox.waiting(store, Outbox(table="odd_outbox", id="id", published="false", at="at"), ["a", "b"])
    assert {"a": (1, None), "b": (2, "2026")} == {
        id_text: (each.count, each.since and str(each.since.year)) for id_text, each in waiting.items()
    }


def test_outbox_rows_that_wait_are_counted(lab: Lab) -> None:
    """What the source committed and the relay has not published is noted, of this contract's topic alone."""
    with closing(database_of(lab.url("user"))) as database:
        user = UserService(database, random.Random(1))  # noqa: S311
        (person,) = rows(lab, "user", "select id::text from user_account where deleted_at is null limit 1")
        user.change_email(person[0], "new@example.org")
        user.sign_in(person[0])
        assert 1 == fence_of(lab, ACCOUNT).source.outbox_pending
        assert 0 == fence_of(lab, BALANCE).source.outbox_pending
        OutboxRelay(database, producer(lab.bootstrap)).run()
    fence = fence_of(lab, ACCOUNT)
    assert 0 == fence.source.outbox_pending
    assert (1, False) == (fence.consumers[0].lag, fence.consumers[0].settled)
    group = Group(lab.bootstrap, "login-service", "user-account")
    (record,) = group.poll()
    with closing(database_of(lab.url("login"))) as copy:
        apply_once(LOGIN, copy, record)
    group.commit()


class Looked(Exception):  # noqa: N818 - it ends the traffic, and is no error
    """Raised when the traffic has been looked at."""


def test_the_fence_is_fair_under_traffic(lab: Lab) -> None:
    """While people change their accounts, each published state of the source's instant is in a settled copy."""
    lags: list[int] = []
    looked = threading.Event()

    def until_looked(_: Traffic) -> None:
        if looked.is_set():
            raise Looked

    def changes() -> None:
        with suppress(Looked):
            traffic(lab, 30, 120, until_looked)

    busy = threading.Thread(target=changes)
    busy.start()
    try:
        until(lambda: offsets_group(lab, "login-service").state is GroupState.STABLE)
        with opened(lab, ACCOUNT, timeout=60, progress=lambda _, lag: lags.append(lag)) as found:
            copy = found.consumers["login"]
            assert isinstance(found.source, StoreSession)
            assert isinstance(copy, StoreSession)
            source = dict(found.source.rows("select id::text, version from user_account where deleted_at is null"))
            waiting = {
                row[0] for row in found.source.rows("select aggregate_id::text from outbox where published_at is null")
            }
            copied = dict(copy.rows("select user_id::text, version from login_profile"))
            found.require_alive("login")
        (consumer,) = found.fence.consumers
        assert consumer.settled
        assert consumer.group.members
        assert {p for member in consumer.group.members for p in member.partitions} == set(range(12))
        behind = [key for key, version in source.items() if key not in waiting and copied.get(key, 0) < version]
        assert [] == behind
        assert lags
        assert lags[-1] == 0
        for place in consumer.places:
            assert place.committed_before is not None
            assert place.committed_after is not None
            assert place.committed_before <= place.committed_after
    finally:
        looked.set()
        busy.join()
    assert fence_of(lab, ACCOUNT).consumers[0].settled


def offsets_group(lab: Lab, group: str) -> Any:
    """Describe a group of the accounts' topic."""
    with closing(ClusterClient("main", {"bootstrap.servers": lab.bootstrap})) as cluster:
        return cluster.group(group, "user-account")


def test_a_snapshot_stands_still(lab: Lab) -> None:
    """What changes after the fence is seen by nobody who imports its snapshots; with the block they are gone."""
    count = "select count(*) from account where tariff = 'changed meanwhile'"
    url = _url(lab, "billing")
    with opened(lab, BALANCE) as found, open_session("billing-db", url) as reader:
        with connected(lab.url("billing")) as cursor:
            cursor.execute("update account set tariff = 'changed meanwhile'")
        snapshot = found.fence.consumers[0].snapshot
        own = found.consumers["billing"]
        assert snapshot
        assert isinstance(own, StoreSession)
        reader.import_snapshot(snapshot.id)
        assert [(0,)] == reader.rows(count) == own.rows(count)
        assert 0 < rows(lab, "billing", count)[0][0]
        found.require_alive("billing")

    def gone() -> bool:
        with open_session("billing-db", url) as reader:
            try:
                reader.import_snapshot(snapshot.id)
            except SnapshotLostError as error:
                return "start the run again" in str(error)
        return False

    until(gone)  # a closed session ends when its process on the server does
    with connected(lab.url("user")) as source, connected(lab.url("billing")) as cursor:
        source.execute("select user_id::text, tariff from user_balance")
        cursor.executemany("update account set tariff = %s where user_id = %s", [row[::-1] for row in source])


def test_a_snapshot_that_ends_early_is_noticed(lab: Lab) -> None:
    """When the server ends the session, reading on is an error that says so."""
    with opened(lab, BALANCE) as found:
        end = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'reconcile'"
        with connected(lab.url("billing", "postgres")) as cursor:
            cursor.execute(end + " and datname = 'billing'")
        with pytest.raises(SnapshotLostError, match="billing-db was lost, and its snapshot with it"):
            found.require_alive("billing")


def test_a_group_that_does_not_exist(scratch: Scratch) -> None:
    """It is named, and every partition with records has no commit."""
    scratch.send({0: 3})
    found = scratch.fence()
    assert (("no_commit", "missing"), 3, False) == (found.states, found.lag, found.settled)
    assert ["no_commit", "caught_up"] == [place.state.value for place in found.places]


def test_a_partition_without_a_commit(scratch: Scratch) -> None:
    """It is named for that partition alone."""
    scratch.send({0: 3, 1: 2})
    scratch.commit({0: 3})
    assert ["caught_up", "no_commit"] == scratch.states()


def test_a_commit_below_the_log_start(scratch: Scratch) -> None:
    """Records that expired before they were read are named."""
    scratch.send({0: 5})
    scratch.commit({0: 2})
    deleted = scratch.admin.delete_records([TopicPartition(scratch.name, 0, 4)])
    next(iter(deleted.values())).result(30)
    assert ["below_log_start", "caught_up"] == scratch.states()
    assert 1 == scratch.fence().lag


def test_a_commit_past_the_end(scratch: Scratch) -> None:
    """The offset of a topic that was made anew does not count as caught up, however long we wait."""
    scratch.send({0: 2})
    scratch.commit({0: 900})
    found = scratch.fence(timeout=0.5)
    assert (("past_end", "empty"), False) == (found.states, found.settled)


def test_a_group_that_rebalances(scratch: Scratch) -> None:
    """While the group waits for a member that died, its state says so; what is committed counts all the same."""
    scratch.send({0: 2})
    scratch.commit({0: 2})
    short = {"session.timeout.ms": 20000}
    member = (
        "import sys; from confluent_kafka import Consumer; consumer = Consumer(eval(sys.argv[1]))\n"
        "consumer.subscribe([sys.argv[2]])\n"
        "while True: consumer.poll(0.1)"
    )
    joining = (sys.executable, "-c", member, repr(scratch.settings(**short)), scratch.name)
    with subprocess.Popen(joining) as dying:
        try:
            until(lambda: any(each.partitions for each in scratch.fence().group.members))
        finally:
            dying.kill()
    seen: list[ConsumerFence] = []

    def rebalances() -> bool:
        seen.append(scratch.fence())
        return seen[-1].group.state is GroupState.REBALANCING

    with closing(scratch.consumer(**short)):
        until(rebalances)
    assert (("settled", "rebalancing"), True) == (seen[-1].states, seen[-1].settled)


def test_members_of_the_newer_protocol(scratch: Scratch) -> None:
    """Groups of KIP-848 are described with protocol, static members and what each reads."""
    scratch.send({0: 1})
    with closing(scratch.consumer(**{"group.protocol": "consumer", "group.instance.id": "one"})) as consumer:
        until(lambda: consumer.poll(0.1) is not None)
        consumer.commit(asynchronous=False)
        until(lambda: scratch.fence().group.state is GroupState.STABLE)
        found = scratch.fence()
    assert ("consumer", [("one", (0, 1))]) == (
        found.group.protocol,
        [(member.instance, member.partitions) for member in found.group.members],
    )
    assert ("settled",) == found.states


def test_a_group_that_lags(scratch: Scratch) -> None:
    """It is waited for as long as is allowed, with its lag told, and compared all the same."""
    scratch.send({0: 5, 1: 1})
    scratch.commit({0: 2, 1: 1})
    lags: list[tuple[str, int]] = []
    with opened(scratch.lab, scratch.file, 1, progress=lambda *told: lags.append(told)) as found:
        (consumer,) = found.fence.consumers
    assert ["lagging", "caught_up"] == [place.state.value for place in consumer.places]
    assert 2 == consumer.places[0].next_record
    assert 1 <= consumer.waited < 30
    assert {("user-balance/billing", 3)} == set(lags)
    assert consumer.snapshot


def test_markers_of_transactions_are_nothing_to_read(scratch: Scratch) -> None:
    """A group that commits after each record stands before the marker for ever, and has settled all the same."""
    scratch.send({0: 3}, transactional=True)
    scratch.commit({0: 3})
    fence = fence_of(scratch.lab, scratch.file, timeout=60)
    assert 4 == fence.topic.partitions[0].end
    assert (True, 0) == (fence.consumers[0].settled, fence.consumers[0].lag)
    assert fence.consumers[0].waited < 30


def test_an_open_transaction_is_not_in_the_log_yet(scratch: Scratch) -> None:
    """The log is evidence up to the last decided record; what is open stands after it."""
    scratch.send({0: 2})
    scratch.commit({0: 2})
    scratch.send({0: 3}, transactional=True, commit=False)
    topic = fence_of(scratch.lab, scratch.file).topic
    assert (2, 5) == (topic.partitions[0].log_end, topic.partitions[0].high_watermark)
    assert [(0, 2, 5, False)] == [(each.partition, each.begin, each.end, each.hanging) for each in topic.open]
    assert scratch.fence().settled
    done = reconcile(scratch.lab, str(scratch.file))
    assert (0, "") == (done.returncode, done.stderr)
    assert "undecided" in done.stdout
    scratch.sender.abort_transaction(30)


def test_a_transaction_that_hangs_is_a_fault(scratch: Scratch) -> None:
    """Its first record is older than the broker lets any transaction become; the command says how to end it."""
    scratch.send({1: 1})
    scratch.send({1: 1}, transactional=True, commit=False, at=LONG_AGO)
    done = reconcile(scratch.lab, str(scratch.file), "--json")
    (one,) = valid_output("fence", done.stdout)["topic"]["open"]
    assert (1, 1, True, "2026-01-01T00:00:00Z") == (one["partition"], one["begin"], one["hanging"], one["since"])
    assert 1 == done.returncode
    assert f"abort --topic {scratch.name} --partition 1 --start-offset 1" in done.stderr
    scratch.sender.abort_transaction(30)


def test_the_longest_transaction_is_the_brokers(scratch: Scratch) -> None:
    """It decides when one hangs."""
    with closing(ClusterClient("main", {"bootstrap.servers": scratch.lab.bootstrap})) as cluster:
        assert timedelta(minutes=15) == cluster.longest_transaction()


def test_without_an_authoriser_all_groups_are_seen(scratch: Scratch) -> None:
    """Then nobody else reads what nobody is seen to read; a group that reads and never commits is seen as well."""
    reader = scratch.consumer()
    try:
        with closing(ClusterClient("main", {"bootstrap.servers": scratch.lab.bootstrap})) as cluster:
            until(lambda: reader.poll(0.1) is None and topology_facts.readers(cluster, scratch.name)[0])
            (seen,), all_groups = topology_facts.readers(cluster, scratch.name)
    finally:
        reader.close()
    assert all_groups
    assert (f"{scratch.name}-group", {}, GroupState.STABLE, 1) == (
        seen.group,
        seen.committed,
        seen.state,
        seen.members,
    )


def test_a_topic_that_grew(scratch: Scratch) -> None:
    """New partitions without records are settled without a commit."""
    scratch.send({0: 1, 1: 1})
    scratch.commit({0: 1, 1: 1})
    scratch.admin.create_partitions([NewPartitions(scratch.name, 4)])[scratch.name].result(30)
    until(lambda: 4 == len(scratch.fence().places))
    assert ["caught_up"] * 4 == scratch.states()


MISMATCHES = {
    "consumer: balance -> consumer: balanse": (
        'consumers[0].fields[0].consumer: no column "balanse" in account; did you mean "balance"?'
    ),
    "consumer: upper(tariff) -> consumer: uper(tariff)": (
        "consumers[0].fields[1].consumer: function uper(text) does not exist"
    ),
    "source: balance -> source: balance + tariff": (
        "consumers[0].fields[0].source: operator does not exist: numeric + text"
    ),
    "id: user_id -> id: usr_id": 'source.id: no column "usr_id" in user_balance; did you mean "user_id"?',
    "version: version -> version: Version": (
        'source.version: no column "Version" in user_balance; did you mean "version"?'
    ),
    "table: account -> table: acount": 'consumers[0].table: no table "acount" in billing-db; did you mean "account"?',
    "table: outbox -> table: out.box": 'source.outbox.table: no table "out.box" in user-db',
    "published_at is -> published is": (
        'source.outbox.published: no column "published" in outbox; did you mean "published_at"?'
    ),
    "amount: balance -> amount: balance)": "topic.value.amount: a `)` closes nothing",
    'consumer: balance -> consumer: "1) from account; drop table account; select (1"': (
        "consumers[0].fields[0].consumer: a `)` closes nothing"
    ),
    'table: account -> query: "select user_id, balance, tariff from account;"': (
        "consumers[0].query: a `;` would end the statement"
    ),
    "table: account -> query: select user_id, balanse, tariff from account": (
        'consumers[0].query: column "balanse" does not exist'
    ),
    "source: tariff -> source: cast(tariff as moneyy)": ('consumers[0].fields[1].source: type "moneyy" does not exist'),
    "consumer: upper(tariff) -> consumer: count(*)": "consumers[0]: column ",
}


@pytest.mark.parametrize("change", MISMATCHES)
def test_what_a_store_does_not_have_is_named(scratch: Scratch, change: str) -> None:
    """The contract's file and path, what was found, and the nearest name."""
    right, wrong = change.split(" -> ")
    assert right in CONTRACT
    scratch.write(CONTRACT.replace(right, wrong, 1))
    with pytest.raises(ContractMismatchError) as error:
        scratch.fence()
    assert f"{scratch.file}: {MISMATCHES[change]}" in str(error.value)


def test_every_mismatch_is_told_at_once(scratch: Scratch) -> None:
    """Wrong columns of both sides stand in one error."""
    scratch.write(CONTRACT.replace("source: tariff", "source: tarif").replace("upper(tariff)", "upper(tarif)"))
    with pytest.raises(ContractMismatchError) as error:
        scratch.fence()
    assert ["consumers[0].fields[1].source", "consumers[0].fields[1].consumer"] == [
        problem.path for problem in error.value.problems
    ]


def test_a_missing_topic_is_named(scratch: Scratch) -> None:
    """The nearest topic is offered, and none is created."""
    scratch.write(CONTRACT.replace("TOPIC", "user-balanse"))
    with pytest.raises(TopicMissingError, match=r'topic.name: .* no topic "user-balanse"; did you mean "user-balance"'):
        scratch.fence()
    assert "user-balanse" not in scratch.admin.list_topics(timeout=10).topics


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("store: user-db", "store: user-bd"), 'source.store: no connection "user-bd"; did you mean "user-db"?'),
        (("store: user-db", "store: main"), "source.store: the connection main is no database and no folder"),
        (("cluster: main", "cluster: user-db"), "topic.cluster: the connection user-db is no Kafka cluster"),
    ],
)
def test_a_wrong_connection_is_named(scratch: Scratch, change: tuple[str, str], message: str) -> None:
    """A connection that is not there, or of another kind, is told with its place in the contract."""
    scratch.write(CONTRACT.replace(*change, 1))
    with pytest.raises(ReconcileError) as error:
        scratch.fence()
    assert f"{scratch.file}: {message}" == str(error.value)


def test_a_right_that_is_missing_is_named(lab: Lab, scratch: Scratch) -> None:
    """A source that we may not read stops us; a consumer is noted, and the fence is incomplete."""
    try:
        with connected(lab.url("billing")) as cursor:
            cursor.execute("revoke select on account from reconcile_reader")
        fence = fence_of(lab, scratch.file)
        assert (False, ()) == (fence.complete, fence.consumers)
        (unread,) = fence.unread
        assert "StoreRefusedError" == unread.kind
        assert f"{scratch.file}: consumers[0].table: the store billing-db: permission denied" in unread.message
        with connected(lab.url("user")) as cursor:
            cursor.execute("revoke select on user_balance from reconcile_reader")
        with pytest.raises(StoreRefusedError, match=r"source.table: .* grant select"):
            scratch.fence()
    finally:
        for database, table in (("billing", "account"), ("user", "user_balance")):
            with connected(lab.url(database)) as cursor:
                cursor.execute(f"grant select on {table} to reconcile_reader")


def test_nothing_is_written_whatever_the_contract_says(lab: Lab) -> None:
    """Not even an account that may write can, and no statement makes the transaction writable again."""
    with connected(lab.url("billing")) as cursor:
        cursor.execute(
            "create function spoil() returns int language sql as"
            " $$ with gone as (delete from account returning 1) select count(*)::int from gone $$"
        )
    with open_session("billing-db", _url(lab, "billing", "postgres")) as session:
        session.take_snapshot()
        with pytest.raises(StoreRefusedError, match="contracts only read"):
            session.rows("select spoil()")
    with open_session("billing-db", _url(lab, "billing", "postgres")) as session:
        session.take_snapshot()
        with pytest.raises(StoreRefusedError, match="read-write mode"):
            session.rows("select set_config('transaction_read_only', 'off', true)")
    assert 0 < rows(lab, "billing", "select count(*) from account")[0][0]


def test_a_statement_that_takes_too_long_is_named(lab: Lab) -> None:
    """The server ends it, and the error says which setting allows more."""
    limits = StoreLimits(statement_timeout=timedelta(milliseconds=200))
    with open_session("billing-db", _url(lab, "billing"), limits) as session:
        session.take_snapshot()
        with pytest.raises(StatementTimeoutError, match=r"billing-db took too long.*raise `statement_timeout`"):
            session.rows("select pg_sleep(30)")


@pytest.mark.parametrize(
    ("url", "kind", "message"),
    [
        ("postgresql://reconcile_reader:wrong@SERVER/user", StoreRefusedError, "password authentication"),
        ("postgresql://postgres:PASSWORD@SERVER/usr", StoreRefusedError, 'database "usr" does not exist'),
        ("postgresql://a@127.0.0.1:1/user", StoreUnreachableError, "Connection refused"),
        ("postgresql://a@nohost.invalid/user", StoreUnreachableError, "could not translate host name"),
    ],
)
def test_a_store_that_cannot_be_had_is_named(lab: Lab, url: str, kind: type[Exception], message: str) -> None:
    """Whether trying again may help is a class of its own."""
    address = parse(url.replace("PASSWORD", lab.password("postgres")).replace("SERVER", SERVER))
    with pytest.raises(kind, match=message) as error, open_session("user-db", address):
        pass
    assert "wrong" not in str(error.value)


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        ({"bootstrap.servers": "127.0.0.1:1"}, ClusterUnreachableError, "Connection refused. See that it is up"),
        ({"bootstrap.servers": "nohost.invalid:1"}, ClusterUnreachableError, "Check the names in `bootstrap`"),
        ({"security.protocol": "SSL"}, ClusterRefusedError, "Check security.protocol and the ssl settings"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "a",
                "sasl.password": "hush-hush",
            },
            ClusterRefusedError,
            "Check sasl.mechanism, sasl.username and sasl.password",
        ),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/none"},
            ClusterRefusedError,
            "main cannot be used: Failed to create admin client: ssl.ca",
        ),
        ({"bootstrap.servers": SERVER}, ClusterRefusedError, "what listens there does not speak this"),
    ],
)
def test_a_cluster_that_cannot_be_had_is_named(
    lab: Lab, config: dict[str, str], kind: type[Exception], message: str
) -> None:
    """What librdkafka tells apart from its answers is in the error, within seconds, and no secret is."""
    started = time.monotonic()
    with pytest.raises(kind) as error:
        ClusterClient("main", {"bootstrap.servers": lab.bootstrap, **config})
    assert message in str(error.value)
    assert "hush-hush" not in str(error.value)
    assert time.monotonic() - started < 60


def test_an_untrusted_certificate_is_named(tmp_path: Path) -> None:
    """A broker whose certificate we cannot trust is told as such, and not as a time-out."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ("-days", "1", "-subj", "/CN=localhost")
    files = ("-keyout", str(key), "-out", str(certificate))
    make = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files)
    subprocess.run(make, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def serve() -> None:
            listener.settimeout(0.1)
            while not stop.is_set():
                try:
                    accepted, _ = listener.accept()
                    accepted.settimeout(2)
                    with context.wrap_socket(accepted, server_side=True):
                        pass
                except OSError:
                    continue

        server = threading.Thread(target=serve)
        server.start()
        try:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            with pytest.raises(ClusterRefusedError, match="certificate verify failed"):
                ClusterClient("main", {"bootstrap.servers": address, "security.protocol": "SSL"})
        finally:
            stop.set()
            server.join()


def reconcile(lab: Lab, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would."""
    command = [sys.executable, "-m", "reconcile.cli", "fence", *arguments]
    config = ("--config", str(world.settings_file(lab))) if "--config" not in arguments else ()
    return subprocess.run(
        [*command, *config],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, **environment},
    )


def test_the_command_shows_where_all_stand(lab: Lab) -> None:
    """A table on stdout, no words, exit code 0."""
    done = reconcile(lab, str(ACCOUNT), "--consumer", "login")
    assert (0, "") == (done.returncode, done.stderr)
    assert "topic   user-account on main: 12 partitions" in done.stdout
    assert "0 outbox rows not yet published, proven to be the primary" in done.stdout
    assert "settled, empty" in done.stdout


def test_the_command_prints_one_object(lab: Lab, scratch: Scratch) -> None:
    """--json gives the fence, with what is special of each consumer; a lagging group is no error and not waited for."""
    scratch.send({0: 4})
    scratch.commit({0: 1})
    done = reconcile(lab, str(scratch.file), "--json")
    assert "" == done.stderr
    told = valid_output("fence", done.stdout)
    assert (0, 1, True) == (done.returncode, told["schema_version"], told["complete"])
    assert (3, ["lagging", "empty"], False) == tuple(
        told["consumers"][0][name] for name in ("lag", "states", "settled")
    )
    assert [0, 4] == [told["topic"]["partitions"][0][name] for name in ("begin", "end")]
    assert "partition   state     begin   committed   end   lag" in " ".join(
        reconcile(lab, str(scratch.file)).stdout.splitlines()
    )


def test_a_store_without_snapshots_is_read_as_it_stands(scratch: Scratch) -> None:
    """A folder of Parquet has no snapshot, and the fence says so."""
    config = scratch.file.with_name("reconcile.yaml")
    settings = yaml.safe_load(world.settings_file(scratch.lab).read_text())
    settings["connections"]["lake"] = {"path": "/data/copies"}
    config.write_text(yaml.safe_dump(settings))
    scratch.write(CONTRACT.replace("store: billing-db", "store: lake"))
    done = reconcile(scratch.lab, str(scratch.file), "--json", "--config", str(config))
    (consumer,) = valid_output("fence", done.stdout)["consumers"]
    assert (0, None, "lake") == (done.returncode, consumer["snapshot"], consumer["store"])


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (("--config", "/none.yaml"), {}, "/none.yaml: there is no such file"),
        (("--consumer", "logn"), {}, 'the contract has no consumer "logn"; did you mean "login"?'),
        ((), {"RECONCILE_CONN_MAIN": "127.0.0.1:1"}, "the cluster main cannot be reached"),
        ((), {"RECONCILE_CONN_LOGIN_DB": "postgresql://a@127.0.0.1:1/login"}, "user-account/login: the store login-db"),
    ],
)
def test_the_command_says_what_it_could_not_read(
    lab: Lab, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    """Exit code 2, words on stderr, no traceback."""
    done = reconcile(lab, str(ACCOUNT), *arguments, **environment)
    assert 2 == done.returncode
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_blocked_partition_keeps_the_group_from_settling(lab: Lab) -> None:
    """B2: the partition that waits is named, the others have settled, and all is compared."""
    faults.plant(lab, faults.named(["blocked-partition"]), 1)
    (consumer,) = fence_of(lab, BALANCE, timeout=1).consumers
    assert (False, ("lagging", "empty")) == (consumer.settled, consumer.states)
    assert [11] == [place.partition for place in consumer.places if place.lag]
    assert consumer.snapshot


def test_servers_that_are_down_are_named(lab: Lab) -> None:
    """Broker or Postgres stopped: exit code 2 and which of them it was."""
    PostgresServer(lab).down()
    done = reconcile(lab, str(ACCOUNT))
    assert (2, True) == (done.returncode, "the store user-db cannot be reached" in done.stderr)
    Kafka(lab).down()
    done = reconcile(lab, str(ACCOUNT))
    assert (2, True) == (done.returncode, "the cluster main cannot be reached" in done.stderr)


def _url(lab: Lab, database: str, role: str = "reconcile_reader") -> PostgresUrl:
    return parse(lab.url(database, role))
