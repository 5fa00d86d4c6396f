"""Faults on the way into the log: the outbox, its relay, its producer, the topic, the source itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial

from confluent_kafka.admin import NewPartitions

from reconcile.domain.partitioner import Partitioner, partition_of
from reconcile.errors import RefusedError
from reconcile.lab.faults.stage import STRUCK, Stage, ids
from reconcile.lab.process import wait_until
from reconcile.lab.services import offsets
from reconcile.lab.services.copies import ACTIVITY, BILLING, LOGIN
from reconcile.lab.services.relay import producer, send
from reconcile.lab.services.user import ACCOUNT_TOPIC, BALANCE_TOPIC, OutboxEvent, encode
from reconcile.lab.world import PARTITIONS


def relay_lost_rows(stage: Stage, count: int) -> None:
    """The relay marks rows as published and dies before the broker has them."""
    people, newcomers, leavers = stage.people(count), stage.newcomers(count), stage.people(count)
    records = []
    for person in people:
        stage.user.change_email(person.user_id, stage.mail())
        records.append(stage.user.sign_in(person.user_id))
    for person in leavers:
        stage.user.close(person.user_id)
    _mark_published(stage)
    stage.tell(LOGIN, ids(people), "changed", "never_published", "source_to_log", ["email"])
    stage.tell(LOGIN, ids(newcomers), "missing", "never_published", "source_to_log")
    stage.tell(LOGIN, ids(leavers), "orphan", "never_published", "source_to_log")
    stage.tell(BILLING, ids(leavers), "orphan", "never_published", "source_to_log")
    unseen = [event.aggregate_id for event in records]
    stage.tell(ACTIVITY, unseen, "missing", "never_published", "source_to_log")


def version_gap(stage: Stage, count: int) -> None:
    """A lost event's field is set anew by the next one: the copy agrees, and a version is missing in the log."""
    # Of accounts too; but their events carry the whole state, so there a missing version is no finding.
    people, payers = stage.people(count), stage.people(count)
    for person in people:
        stage.user.rename(person.user_id, stage.first_name(person.first_name))
    for person in payers:
        stage.user.change_tariff(person.user_id, "silver")
    _mark_published(stage)
    for person in people:
        stage.user.change_email(person.user_id, stage.mail())
    for person in payers:
        stage.user.change_tariff(person.user_id, "gold")
    stage.publish()
    stage.consume(LOGIN)
    stage.consume(BILLING)
    stage.tell(BILLING, ids(payers), "latent", "never_published", "source_to_log")


def outbox_stuck(stage: Stage, count: int) -> None:
    """The relay gave up on some rows; they lie in the outbox until somebody looks."""
    people, payers = stage.people(count), stage.people(count)
    for person in people:
        stage.user.rename(person.user_id, stage.first_name(person.first_name))
    for person in payers:
        stage.user.top_up(person.user_id, Decimal("75.00"))
    while pending := stage.unpublished():
        stage.relay.park([position for position, _ in pending])
    stage.tell(LOGIN, ids(people), "changed", "never_published", "source_to_log", ["display_name"])
    stage.tell(BILLING, ids(payers), "changed", "never_published", "source_to_log", ["balance"])


def source_restored(stage: Stage, count: int) -> None:
    """The source came back from a backup that was older than what it had published."""
    people = stage.people(count)
    statement = "select version, first_name from user_account where id = %s"
    backup = {person.user_id: stage.execute("user", statement, person.user_id)[0] for person in people}
    events = [stage.user.rename(person.user_id, stage.first_name(person.first_name)) for person in people]
    stage.settle()
    for user_id, (version, first_name) in backup.items():
        statement = "update user_account set version = %s, first_name = %s where id = %s"
        stage.execute("user", statement, version, first_name, user_id)
    for event in events:
        stage.execute("user", "delete from outbox where event_id = %s", event.event_id)
    stage.tell(LOGIN, ids(people), "changed", "source_regressed", "source_to_log", ["display_name"])


def duplicate_send(stage: Stage, count: int) -> None:
    """An acknowledgement is lost, and a producer without idempotence sends the records again."""
    people = stage.people(count)
    doubled = []
    for person in people:
        doubled.append(stage.user.top_up(person.user_id, Decimal(stage.dice.randrange(1, 200) * 5)))
        doubled.append(stage.user.sign_in(person.user_id))
    stage.publish()
    send(producer(stage.lab.bootstrap, **{"enable.idempotence": False}), doubled)
    stage.consume(BILLING)
    stage.consume(ACTIVITY)
    stage.tell(BILLING, ids(people), "changed", "duplicate_applied", "log_to_consumer", ["balance"])
    twice = [event.aggregate_id for event in doubled[1::2]]
    stage.tell(ACTIVITY, twice, "duplicated", "duplicate_applied", "log_to_consumer")


def producer_reorder(stage: Stage, count: int) -> None:
    """Two requests in flight without idempotence: the first one fails and is sent again, behind the second."""
    people, first, second = stage.changed_twice(count)
    in_flight = producer(stage.lab.bootstrap, **{"enable.idempotence": False})
    send(in_flight, second)
    send(in_flight, first)
    _mark_published(stage)
    stage.consume(LOGIN)
    stage.tell(LOGIN, ids(people), "changed", "out_of_order", "source_to_log", ["email"])


def wrong_partitioner(stage: Stage, count: int) -> None:
    """A second publisher keeps librdkafka's default, crc32: its events stand in other partitions than the relay's."""

    def strays(topic: str) -> Callable[[str], bool]:
        def stray_home(user_id: str) -> int:
            return stage.home(topic, user_id, Partitioner.CRC32)

        return lambda user_id: (
            stage.undisturbed(user_id) and stray_home(user_id) not in (STRUCK, stage.home(topic, user_id))
        )

    stray = producer(stage.lab.bootstrap, partitioner="consistent_random")
    losing, lucky = stage.people(count, strays(BALANCE_TOPIC)), stage.people(count, strays(BALANCE_TOPIC))
    renamed = stage.people(count, strays(ACCOUNT_TOPIC))
    for person in [*losing, *lucky]:
        stage.user.change_tariff(person.user_id, "silver")
    stage.publish()
    ahead = [stage.user.change_tariff(person.user_id, "gold") for person in losing]
    later = [stage.user.change_tariff(person.user_id, "gold") for person in lucky]
    names = [stage.user.rename(person.user_id, stage.first_name(person.first_name)) for person in renamed]
    send(stray, [*ahead, *later, *names])
    _mark_published(stage)
    # Two members of billing: the one with the stray's partition runs ahead for some users, and lags for others.
    early, late = _event_ids(ahead), _event_ids(later)
    stage.consume(BILLING, arrange=lambda record: -1 if record.event_id in early else int(record.event_id in late))
    stage.consume(LOGIN)
    stage.tell(BILLING, ids(losing), "changed", "misrouted", "source_to_log", ["tariff"])
    stage.tell(BILLING, ids(lucky), "latent", "misrouted", "source_to_log")
    stage.tell(LOGIN, ids(renamed), "latent", "misrouted", "source_to_log")


def topic_growth(stage: Stage, count: int) -> None:
    """The topic gets half as many partitions again: an id's next event overtakes the one that waits in the old one."""
    admin = offsets.admin_client(stage.lab.bootstrap)
    before = len(offsets.partitions(admin, BALANCE_TOPIC))
    if before != PARTITIONS:
        raise RefusedError(f"{BALANCE_TOPIC} has grown to {before} partitions already; this fault can be planted once")
    after = before * 3 // 2
    people = stage.people(count, where=lambda user_id: stage.undisturbed(user_id) and _moves(user_id, before, after))
    for person in people:
        stage.user.change_tariff(person.user_id, "silver")
    stage.publish()
    admin.create_partitions([NewPartitions(BALANCE_TOPIC, after)])[BALANCE_TOPIC].result(30)
    led = partial(offsets.led, admin, BALANCE_TOPIC, after)
    wait_until(led, f"{BALANCE_TOPIC} did not grow to {after} partitions with leaders", 30)
    stage.renew_sender()
    ahead = _event_ids([stage.user.change_tariff(person.user_id, "gold") for person in people])
    stage.publish()
    stage.consume(BILLING, arrange=lambda record: -1 if record.event_id in ahead else 0)
    stage.tell(BILLING, ids(people), "changed", "misrouted", "source_to_log", ["tariff"])


def wrong_payload(stage: Stage, count: int) -> None:
    """A release of the publisher takes the e-mail from the wrong row: the version is right, the state is not."""
    people = stage.people(count)
    for person in people:
        stage.user.change_email(person.user_id, stage.mail())
    former = {person.user_id: person.email for person in people}
    _send_as(stage, lambda event, body: encode({**body, "email": former[event.aggregate_id]}))
    stage.consume(LOGIN)
    stage.tell(LOGIN, ids(people), "changed", "payload_divergence", "source_to_log", ["email"])


def broken_record(stage: Stage, count: int) -> None:
    """A release of the publisher breaks the schema: cut-off JSON, no version, an amount in words."""
    cut_off, unversioned, payers = stage.people(count), stage.people(count), stage.people(count)
    for person in [*cut_off, *unversioned]:
        stage.user.change_email(person.user_id, stage.mail())
    for person in payers:
        stage.user.top_up(person.user_id, Decimal("40.00"))
    cut = set(ids(cut_off))

    def broken(event: OutboxEvent, body: dict[str, object]) -> str:
        if event.topic == BALANCE_TOPIC:
            return encode({**body, "amount": "forty euros"})
        if event.aggregate_id in cut:
            return encode(body)[:-20]
        return encode({name: value for name, value in body.items() if name != "version"})

    _send_as(stage, broken)
    stage.consume(LOGIN)
    stage.consume(BILLING)
    stage.tell(LOGIN, ids([*cut_off, *unversioned]), "changed", "schema_violation", "source_to_log", ["email"])
    stage.tell(BILLING, ids(payers), "changed", "schema_violation", "source_to_log", ["balance"])


def _mark_published(stage: Stage) -> None:
    while pending := stage.unpublished():
        stage.relay.mark_published([position for position, _ in pending])


def _send_as(stage: Stage, written: Callable[[OutboxEvent, dict[str, object]], str]) -> None:
    while pending := stage.unpublished():
        send(
            stage.sender,
            [replace(event, payload=written(event, json.loads(event.payload or "{}"))) for _, event in pending],
        )
        stage.relay.mark_published([position for position, _ in pending])


def _event_ids(events: list[OutboxEvent]) -> set[str]:
    return {event.event_id for event in events}


def _moves(user_id: str, before: int, after: int) -> bool:
    key = user_id.encode()
    home = partition_of(key, after, Partitioner.MURMUR2)
    return home not in (STRUCK, partition_of(key, before, Partitioner.MURMUR2))
