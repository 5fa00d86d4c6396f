"""Sums that are wrong get the difference: once, and only where nobody else will bring it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from reconcile.control.corrections import Corrections
from reconcile.domain.plan import Plan
from reconcile.domain.plan_rules import Action
from reconcile.errors import UnreachableError
from reconcile.lab.process import wait_until
from reconcile.lab.services.consumer import Group
from reconcile.lab.services.database import connected
from reconcile.lab.services.offsets import admin_client, led
from reconcile.pipeline import stages as pipeline
from reconcile.pipeline.handoffs import Verified
from reconcile.pipeline.job import Job
from tests.integration.foreign_worlds import summed
from tests.integration.foreign_worlds.servers import Servers
from tests.integration.runs import Runs, apply

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Desk:
    """The consumer: it notes each event in its ledger, and adds its amount, in one transaction."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers

    def consume(self, topic: str) -> list[dict[str, Any]]:
        """Apply what the group has not read; return the values."""
        group = Group(self.servers.lab.bootstrap, "tills.desk", topic)
        read = []
        with connected(self.servers.url("copies")) as cursor:
            for record in group.poll():
                body = record.body()
                read.append(body)
                cursor.execute(
                    "insert into tills.desk_ledger values (%s, now()) on conflict do nothing",
                    (record.headers["event-id"].decode(),),
                )
                if cursor.rowcount:
                    cursor.execute(
                        "update tills.desk set balance = balance + %s, tariff = coalesce(%s, tariff) where till = %s",
                        (body.get("amount", 0), body.get("tariff"), body["id"]),
                    )
        group.commit()
        return read


class Tills:
    """The world and its consumer, and runs on it."""

    def __init__(self, servers: Servers, runs: Runs) -> None:
        self.servers, self.runs, self.desk = servers, runs, Desk(servers)
        self.contract: Path = servers.contract(summed.tills())
        self.sent: list[dict[str, Any]] = []

    def make(self) -> None:
        """Make it, with a route that nothing has been written to."""
        admin = admin_client(self.servers.lab.bootstrap)
        admin.create_topics([NewTopic(summed.ROUTE, 3, 1)])[summed.ROUTE].result(30)
        wait_until(lambda: led(admin, summed.ROUTE, 3), f"{summed.ROUTE} has no leaders", 30)
        self.servers.make([summed.tills()])

    def planned(self, run_id: str) -> tuple[Job, Plan]:
        """Audit and plan."""
        job, _ = self.runs.audited(self.contract, run_id)
        plan = pipeline.plan(job)
        assert [] == plan.reasons
        return job, plan

    def differences(self) -> dict[str, tuple[float, float]]:
        """Read the sums that differ, source and copy."""
        sums: list[dict[str, float]] = []
        queries = {"origin": "select id, balance from tills.till", "copies": "select till, balance from tills.desk"}
        for database, query in queries.items():
            with connected(self.servers.url(database)) as cursor:
                cursor.execute(query)
                sums.append(dict(cursor.fetchall()))
        return {name: (sums[0][name], sums[1][name]) for name in sums[0] if sums[0][name] != sums[1][name]}


@pytest.fixture(scope="module")
def tills(servers: Servers, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tills:
    """The world."""
    made = Tills(servers, Runs(spark, servers.settings, tmp_path_factory.mktemp("tills")))
    made.make()
    return made


@pytest.fixture(scope="module")
def first(tills: Tills) -> tuple[Job, Plan]:
    """The first run's plan."""
    return tills.planned("first")


@pytest.fixture(scope="module")
def verified(tills: Tills, first: tuple[Job, Plan]) -> Verified:
    """The first plan, applied by an attempt that is cut off after its commit and by another; consumed, and verified."""
    job, _ = first
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Corrections, "mark_emitted", _cut_off)
        with pytest.raises(UnreachableError):
            apply(job)
    pipeline.apply(job)
    _, again = tills.planned("between")
    assert [] == list(again.corrections)
    tills.sent = tills.desk.consume(summed.ROUTE)
    return pipeline.verify(job)


def _cut_off(*_: object) -> None:
    raise UnreachableError("the control store is gone")


def test_only_what_is_known_to_be_lacking_is_planned(first: tuple[Job, Plan]) -> None:
    """The amounts of a skipped, a doubled and an edited sum; nothing where an event is parked, in flight or unheard."""
    _, plan = first
    items = {each.aggregate_id: each for each in plan.links[0].items}
    compensated = {name: each.amounts["balance"] for name, each in items.items() if each.action is Action.COMPENSATE}
    assert summed.COMPENSATED == compensated
    assert {summed.PARKED, summed.FLYING, summed.UNHEARD} == items.keys() - compensated.keys()
    assert not any(each.action.writes for name, each in items.items() if name not in compensated)


def test_each_difference_is_written_once(tills: Tills, verified: Verified) -> None:
    """Also where an attempt was cut off after its commit, and where a run came before the group had read the route."""
    amounts = {each["id"]: each["amount"] for each in tills.sent}
    assert {name: float(amount) for name, amount in summed.COMPENSATED.items()} == amounts
    assert len(amounts) == len(tills.sent)
    assert not any("tariff" in each for each in tills.sent)


def test_what_it_brought_has_converged(tills: Tills, verified: Verified) -> None:
    """A sum whose other field still differs is partial, and says which."""
    outcomes = {each.aggregate_id: (each.outcome, tuple(each.differing)) for each in verified.links[0].corrections}
    assert {
        summed.SKIPPED: ("converged", ()),
        summed.DOUBLED: ("converged", ()),
        summed.EDITED: ("partial", ("tariff",)),
    } == outcomes
    assert {summed.PARKED, summed.FLYING, summed.UNHEARD} == tills.differences().keys()


def test_sums_that_change_meanwhile_end_right(tills: Tills, verified: Verified) -> None:
    """Deposits are made, published and applied while differences are written: each is added once, on both sides."""
    racing = {f"till-{number}" for number in range(10, 30)}
    with connected(tills.servers.url("copies")) as cursor:
        cursor.execute("update tills.desk set balance = balance - 5 where till = any(%s)", (sorted(racing),))
    job, plan = tills.planned("racing")
    assert racing <= {each.aggregate_id for each in plan.corrections}
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        deposits = pool.submit(_deposit, tills, sorted(racing)[::2], stop)
        try:
            applied = apply(job)
        finally:
            stop.set()
        assert deposits.result(60)
    for topic in ("foreign.tills", summed.ROUTE):
        tills.desk.consume(topic)
    different = {name: ours - theirs for name, (ours, theirs) in tills.differences().items() if name in racing}
    dropped = racing - {each.aggregate_id for each in applied.links[0].emitted}
    assert dict.fromkeys(dropped, 5) == different


def _deposit(tills: Tills, names: Sequence[str], stop: threading.Event) -> int:
    """Add to sums, one after the other, as their owner does, and let the desk follow at once; count the deposits."""
    options = {"bootstrap.servers": tills.servers.lab.bootstrap, "partitioner": "murmur2_random", "linger.ms": 0}
    producer, number = Producer(options), 0
    while not stop.is_set() or not number:
        name = names[number % len(names)]
        with connected(tills.servers.url("origin")) as cursor:
            cursor.execute("update tills.till set balance = balance + 1, version = version + 1 where id = %s", (name,))
            cursor.execute("select version from tills.till where id = %s", (name,))
            ((version,),) = cursor.fetchall()
        value = json.dumps({"id": name, "version": version, "amount": 1})
        headers: list[tuple[str, str | bytes | None]] = [("event-id", f"deposit {number}"), ("kind", "added")]
        producer.produce("foreign.tills", key=name, value=value, headers=headers)
        assert not producer.flush(30)
        tills.desk.consume("foreign.tills")
        number += 1
    return number
