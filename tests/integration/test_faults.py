"""What the faults say they did is what a plain look at the stores shows."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from reconcile.errors import RefusedError, UnreachableError
from reconcile.lab import faults, truth
from reconcile.lab.faults.stage import Stage
from reconcile.lab.folder import Lab
from reconcile.lab.services import offsets
from reconcile.lab.services.consumer import Group
from reconcile.lab.services.copies import LOGIN, SERVICES
from reconcile.lab.services.database import connect
from reconcile.lab.services.relay import OutboxRelay, producer
from reconcile.lab.traffic import _change, traffic
from tests.integration.worlds import seeded_world

if TYPE_CHECKING:
    from confluent_kafka import Producer

COUNT = 2

SOURCES = {
    "user-account/login": (
        "select a.id::text, first_name || ' ' || last_name, e.address, p.number from user_account a"
        " left join email_address e on e.user_id = a.id and e.position = 1"
        " left join phone_number p on p.user_id = a.id and p.position = 1 where deleted_at is null"
    ),
    "user-balance/billing": "select user_id::text, balance, tariff from user_balance",
    "user-activity/activity": "select id::text, user_id::text, kind, at from user_activity",
}
COPIES = {
    "user-account/login": "select user_id::text, display_name, mail, phone from login_profile",
    "user-balance/billing": "select user_id::text, balance, tariff from account",
    "user-activity/activity": "select record_id::text, user_id::text, kind, happened_at from activity_record",
}
FIELDS = {
    "user-account/login": ("display_name", "email", "phone"),
    "user-balance/billing": ("balance", "tariff"),
    "user-activity/activity": ("user_id", "kind", "at"),
}


@pytest.fixture(scope="module")
def fresh() -> Iterator[Lab]:
    """A world as the seed left it, for the tests that come before any fault."""
    with seeded_world(aggregates=1500) as lab:
        yield lab


def test_traffic_publishes_what_was_under_way_at_its_end(fresh: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a change that somebody began before it was over, and that ended after."""

    def slowly(*change: Any) -> None:
        time.sleep(1)
        _change(*change)

    monkeypatch.setattr("reconcile.lab.traffic._change", slowly)
    seen = traffic(fresh, rate=2, seconds=0.2)
    assert [(0,)] == rows(fresh, "user", "select count(*) from outbox where published_at is null")
    assert seen.changes <= seen.published


@contextmanager
def stage_of(lab: Lab) -> Iterator[Stage]:
    """Let the services do something."""
    with ExitStack() as stack:
        yield Stage(lab, random.Random(1), stack)  # noqa: S311


def renamed_in_a_transaction(stage: Stage) -> Producer:
    """Rename somebody, and publish it in a transaction that stays open."""
    sender = producer(stage.lab.bootstrap, **{"transactional.id": "renamed"})
    sender.init_transactions(30)
    sender.begin_transaction()
    (person,) = stage.people(1)
    stage.user.rename(person.user_id, stage.first_name(person.first_name))
    OutboxRelay(stage.database("user"), sender).run()
    return sender


def test_what_cannot_be_read_yet_is_not_skipped(fresh: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers wait for records of an open transaction, and apply them once it is committed."""
    with stage_of(fresh) as stage:
        sender = renamed_in_a_transaction(stage)
        with monkeypatch.context() as patched:
            patched.setattr("reconcile.lab.services.consumer._PATIENCE", 1.0)
            with pytest.raises(UnreachableError, match="a transaction may be open"):
                stage.consume(LOGIN)
        sender.commit_transaction(30)
        stage.consume(LOGIN)
    assert {} == differences(fresh)


def test_what_came_after_the_reading_is_not_committed(fresh: Lab) -> None:
    """A group commits what it has read, whatever has arrived since."""
    group = Group(fresh.bootstrap, "reads-before-it-commits", LOGIN.topic)
    with stage_of(fresh) as stage:
        group.poll()
        (person,) = stage.people(1)
        event = stage.user.rename(person.user_id, stage.first_name(person.first_name))
        stage.publish()
        group.commit()
        stage.settle()
    assert [event.event_id] == [record.event_id for record in group.poll()]


def test_traffic_drains_a_topic_that_ends_with_a_marker(fresh: Lab) -> None:
    """The marker that ends a transaction takes an offset, and nobody is waited for to apply it."""
    with stage_of(fresh) as stage:
        renamed_in_a_transaction(stage).commit_transaction(30)
    seen = traffic(fresh, rate=1, seconds=0.1)
    assert seen.drained
    assert {} == differences(fresh)


@pytest.fixture(scope="module")
def damaged(fresh: Lab) -> Lab:
    """The same world after live traffic and every fault, planted in one go."""
    traffic(fresh, rate=100, seconds=2)
    assert differences(fresh) == {}
    faults.plant(fresh, faults.FAULTS, COUNT)
    return fresh


def rows(lab: Lab, database: str, query: str) -> list[tuple[Any, ...]]:
    """Read a store."""
    with closing(connect(lab.url(database))) as session, session.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchall()


def differences(lab: Lab) -> dict[tuple[str, str], tuple[str, tuple[str, ...]]]:
    """Compare every copy with its source, the simplest way there is: difference and fields by link and id."""
    found: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}
    for service in SERVICES:
        link = service.link
        source = {row[0]: row[1:] for row in rows(lab, "user", SOURCES[link])}
        copied = rows(lab, service.name, COPIES[link])
        count = Counter(row[0] for row in copied)
        copy = {row[0]: row[1:] for row in copied}
        for key in source.keys() | copy.keys():
            if key not in copy:
                found[link, key] = ("missing", ())
            elif key not in source:
                found[link, key] = ("orphan", ())
            elif count[key] > 1:
                found[link, key] = ("duplicated", ())
            elif source[key] != copy[key]:
                pairs = zip(FIELDS[link], source[key], copy[key], strict=True)
                found[link, key] = ("changed", tuple(name for name, ours, theirs in pairs if ours != theirs))
    return found


def test_a_seeded_world_agrees(fresh: Lab) -> None:
    """After the seed, whatever has happened since, no copy differs but those in the truth."""
    told = {(row["link"], row["aggregate_id"]) for row in truth.read(fresh.truth)}
    assert differences(fresh).keys() <= told


def test_the_truth_is_what_the_stores_show(damaged: Lab) -> None:
    """Every difference is in the truth and every line of the truth, but the latent ones, is a difference."""
    told = {
        (row["link"], row["aggregate_id"]): (row["difference"], tuple(row["fields"]))
        for row in truth.read(damaged.truth)
        if row["difference"] != "latent"
    }
    assert told == differences(damaged)


def test_each_aggregate_is_touched_once(damaged: Lab) -> None:
    """No aggregate of a link stands twice in the truth, so that each finding has one cause."""
    counted = Counter((row["link"], row["aggregate_id"]) for row in truth.read(damaged.truth))
    assert [] == [key for key, count in counted.items() if count > 1]


def test_every_fault_plants_as_often_as_asked(damaged: Lab) -> None:
    """Each fault, in each of its forms, makes the number of aggregates differ that was asked for."""
    counted = Counter((row["fault"], row["link"], row["difference"]) for row in truth.read(damaged.truth))
    assert {fault.name for fault in faults.FAULTS} == {name for name, _, _ in counted}
    assert all(count % COUNT == 0 for count in counted.values())


def test_zoe_is_greeted_by_her_former_name(damaged: Lab) -> None:
    """B15: the retried rename is applied after the newer one, and login keeps it."""
    racers = [row["aggregate_id"] for row in truth.read(damaged.truth) if row["fault"] == "zoey-race"]
    shown = {row[0]: row[1].split()[0] for row in rows(damaged, "login", COPIES["user-account/login"])}
    owned = {row[0]: row[1].split()[0] for row in rows(damaged, "user", SOURCES["user-account/login"])}
    assert [("Zoiee", "Zoë")] * COUNT == [(owned[key], shown[key]) for key in racers]


def test_a_blocked_partition_waits(damaged: Lab) -> None:
    """B2: billing's group stands before the record that it cannot apply, in that partition alone."""
    behind = offsets.lag(damaged.bootstrap, "billing-service", "user-balance")
    assert {11} == set(behind)


def test_traffic_flows_past_faults(damaged: Lab) -> None:
    """Traffic over a damaged world adds no difference but what waits behind the blocked partition."""
    before = differences(damaged)
    seen = traffic(damaged, rate=50, seconds=2)
    later = {key: value for key, value in differences(damaged).items() if key not in before}
    assert seen.drained
    assert {"user-balance/billing"} >= {link for link, _ in later}


def test_growth_is_planted_once(damaged: Lab) -> None:
    """A topic that has grown is not grown again."""
    with pytest.raises(RefusedError, match="has grown to 18 partitions already"):
        faults.plant(damaged, faults.named(["topic-growth"]), 1)
