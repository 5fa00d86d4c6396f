"""The seed decides the world: the same number gives the same rows, records, partitions and offsets."""

from __future__ import annotations

import random
from contextlib import closing
from typing import Any

from reconcile.lab import faults, truth
from reconcile.lab.folder import Lab
from reconcile.lab.services import offsets
from reconcile.lab.services.consumer import Group
from reconcile.lab.services.copies import SERVICES, Record
from reconcile.lab.services.database import connect
from reconcile.lab.services.relay import OutboxRelay, producer
from reconcile.lab.services.user import UserService
from tests.integration.worlds import seeded_world

PLANTED = ["zoey-race", "relay-lost-rows", "wrong-partitioner"]


def snapshot(lab: Lab) -> dict[str, Any]:
    """Everything that the seed is to decide."""
    tables = {
        "user": ("user_account", "email_address", "phone_number", "user_balance", "user_activity"),
        "login": ("login_profile", "processed_message"),
        "billing": ("account",),
    }
    found: dict[str, Any] = {}
    for database, names in tables.items():
        with closing(connect(lab.url(database))) as session, session.cursor() as cursor:
            for name in names:
                cursor.execute(f"select {name}::text from {name} order by 1")
                found[name] = cursor.fetchall()
    for service in SERVICES:
        found[service.topic] = Group(lab.bootstrap, "a-group-that-never-commits", service.topic).poll()
    return found


def unread(lab: Lab) -> dict[str, dict[int, tuple[int, int]]]:
    """Give what a group has not committed."""
    behind = {service.name: offsets.lag(lab.bootstrap, service.group, service.topic) for service in SERVICES}
    return {name: places for name, places in behind.items() if places}


def test_the_same_seed_gives_the_same_world() -> None:
    """Two worlds of one seed hold the same, all of it committed, and the same faults strike the same aggregates."""
    worlds, truths = [], []
    for _ in range(2):
        with seeded_world(aggregates=400, number=11) as lab:
            assert {} == unread(lab)
            worlds.append(snapshot(lab))
            faults.plant(lab, faults.named(PLANTED), 1)
            truths.append(truth.read(lab.truth))
    assert worlds[0] == worlds[1]
    assert truths[0] == truths[1]


def test_seeded_records_look_like_published_ones() -> None:
    """A record of the seed has the fields, headers and partition that the service and its relay give one."""
    with seeded_world(aggregates=50) as lab:
        group = Group(lab.bootstrap, "login-service", "user-account")
        seeded: list[Record] = Group(lab.bootstrap, "nobody", "user-account").poll()
        with closing(connect(lab.url("user"))) as database:
            service = UserService(database, random.Random(1))  # noqa: S311
            service.change_email(seeded[0].aggregate_id, "someone@example.org")
            OutboxRelay(database, producer(lab.bootstrap)).run()
        (published,) = group.poll()
    assert list(seeded[0].body()) == list(published.body())
    assert list(seeded[0].headers) == list(published.headers)
    assert seeded[0].partition == published.partition
