"""Faults of consumers that lose a message, take it twice, or stop."""

from __future__ import annotations

from decimal import Decimal

from confluent_kafka import TopicPartition

from reconcile.lab.faults.stage import STRUCK, Stage, ids, only
from reconcile.lab.services import offsets
from reconcile.lab.services.consumer import DatabaseTimeoutError, UnreadableError, apply_all
from reconcile.lab.services.copies import ACTIVITY, BILLING, LOGIN
from reconcile.lab.services.user import ACCOUNT_TOPIC, BALANCE_TOPIC

_MORE_THAN_BILLING_HOLDS = Decimal("500000000.00")


def swallowed_exception(stage: Stage, count: int) -> None:
    """Login logs an exception and goes on; the next commit steps over the message."""
    people, newcomers, failing = stage.changed_and_new(count)
    stage.publish()
    stage.consume(LOGIN, only(failing, DatabaseTimeoutError))
    stage.tell(LOGIN, ids(people), "changed", "skipped", "log_to_consumer", ["email"])
    stage.tell(LOGIN, ids(newcomers), "missing", "skipped", "log_to_consumer")


def overtaken_skip(stage: Stage, count: int) -> None:
    """A message is swallowed, but a later one brings the whole state: it agrees, and the ledger has a gap."""
    people, failing, _ = stage.changed_twice(count)
    stage.publish()
    stage.consume(LOGIN, only(failing, DatabaseTimeoutError))
    stage.tell(LOGIN, ids(people), "latent", "skipped", "log_to_consumer")


def ignored_tombstone(stage: Stage, count: int) -> None:
    """Login does not expect a null value: the closed account's profile stays."""
    people = stage.people(count)
    for person in people:
        stage.user.close(person.user_id)
    stage.publish()
    stage.consume(LOGIN, lambda record: UnreadableError("null") if record.value is None else None)
    stage.consume(BILLING)
    stage.tell(LOGIN, ids(people), "orphan", "skipped", "log_to_consumer")


def ignored_error(stage: Stage, count: int) -> None:
    """The activity feed ignores errors on purpose, and nobody watches how much is lost."""
    lost = [stage.user.sign_in(person.user_id) for person in stage.people(count)]
    stage.publish()
    stage.consume(ACTIVITY, only(lost, DatabaseTimeoutError))
    stage.tell(ACTIVITY, [event.aggregate_id for event in lost], "missing", "skipped", "log_to_consumer")


def commit_before_process(stage: Stage, count: int) -> None:
    """Billing commits what it polled, then dies before it has processed it."""
    people = stage.people(count)
    for person in people:
        stage.user.top_up(person.user_id, _amount(stage))
    stage.publish()
    group, _ = stage.polled(BILLING)
    group.commit()
    stage.tell(BILLING, ids(people), "changed", "skipped", "log_to_consumer", ["balance"])


def crash_before_commit(stage: Stage, count: int) -> None:
    """Billing and the activity feed die after they processed and before they committed; they process it all again."""
    people = stage.people(count)
    records = []
    for person in people:
        stage.user.top_up(person.user_id, _amount(stage))
        records.append(stage.user.sign_in(person.user_id))
    stage.publish()
    for service in (BILLING, ACTIVITY):
        _, records_read = stage.polled(service)
        apply_all(service, stage.database(service.name), records_read)
        stage.consume(service)
    stage.tell(BILLING, ids(people), "changed", "duplicate_applied", "log_to_consumer", ["balance"])
    doubled = [event.aggregate_id for event in records]
    stage.tell(ACTIVITY, doubled, "duplicated", "duplicate_applied", "log_to_consumer")


def blocked_partition(stage: Stage, count: int) -> None:
    """Billing retries one amount that its column cannot hold, for ever; all that stands behind it waits."""
    people = stage.people(count, where=lambda user_id: stage.home(BALANCE_TOPIC, user_id) == STRUCK)
    stage.user.top_up(people[0].user_id, _MORE_THAN_BILLING_HOLDS)
    for person in people[1:]:
        stage.user.top_up(person.user_id, _amount(stage))
    stage.publish()
    stage.tell(BILLING, ids(people), "changed", "in_flight", "log_to_consumer", ["balance"], status="in_flight")


def retention_cut(stage: Stage, count: int) -> None:
    """Messages were skipped long ago, and the log no longer reaches back to them."""
    people = stage.people(count, where=lambda user_id: stage.home(ACCOUNT_TOPIC, user_id) == STRUCK)
    failing = [stage.user.change_email(person.user_id, stage.mail()) for person in people]
    stage.publish()
    stage.consume(LOGIN, only(failing, DatabaseTimeoutError))
    admin = offsets.admin_client(stage.lab.bootstrap)
    read = offsets.committed(stage.lab.bootstrap, LOGIN.group, ACCOUNT_TOPIC)[STRUCK]
    for future in admin.delete_records([TopicPartition(ACCOUNT_TOPIC, STRUCK, read)]).values():
        future.result(30)
    stage.tell(LOGIN, ids(people), "changed", "expired", None, ["email"])


def _amount(stage: Stage) -> Decimal:
    return Decimal(stage.dice.randrange(1, 200) * 5).quantize(Decimal("0.01"))
