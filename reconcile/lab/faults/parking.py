"""Faults of consumers that park what they could not process: retry topics, dead letters, stashes."""

from __future__ import annotations

from reconcile.lab.faults.stage import Stage, ids, only
from reconcile.lab.services import parking
from reconcile.lab.services.consumer import (
    DatabaseTimeoutError,
    Group,
    Park,
    UnreadableError,
    apply_all,
    login_stash,
)
from reconcile.lab.services.copies import ACTIVITY, LOGIN

_TRIES = 3
_LOGIN_RETRY = "login-retry"
_ACTIVITY_RETRY = "activity-retry"
_RETRY_1 = "user-account.login.retry-1"
_RETRY_2 = "user-account.login.retry-2"
_DEAD = "user-account.login.dlq"
_RECORD_RETRY = "user-activity.activity.retry-1"
_RECORD_DEAD = "user-activity.activity.dlq"


def zoey_race(stage: Stage, count: int) -> None:
    """Zoey becomes Zoë, then Zoiee; Zoë times out once, takes the way of the retry topic and is applied last."""
    people = stage.people(count)
    for person in people:
        stage.user.rename(person.user_id, "Zoey")
    stage.settle()
    delayed = [stage.user.rename(person.user_id, "Zoë") for person in people]
    for person in people:
        stage.user.rename(person.user_id, "Zoiee")
    stage.publish()
    retry = Park(stage.sender, _RETRY_1, LOGIN.group, parking.spring_retry)
    stage.consume(LOGIN, only(delayed, DatabaseTimeoutError), retry)
    retries = Group(stage.lab.bootstrap, _LOGIN_RETRY, _RETRY_1)
    apply_all(LOGIN, stage.database("login"), retries.poll())
    retries.commit()
    stage.tell(LOGIN, ids(people), "changed", "out_of_order", "log_to_consumer", ["display_name"])


def retry_pending(stage: Stage, count: int) -> None:
    """A message fails, fails again in the first retry topic, and waits in the second."""
    people = stage.people(count)
    failing = [stage.user.change_email(person.user_id, stage.mail()) for person in people]
    stage.publish()
    trouble = only(failing, DatabaseTimeoutError)
    stage.consume(LOGIN, trouble, Park(stage.sender, _RETRY_1, LOGIN.group, parking.spring_retry))
    retries = Group(stage.lab.bootstrap, _LOGIN_RETRY, _RETRY_1)
    again = Park(stage.sender, _RETRY_2, LOGIN.group, parking.spring_retry)
    apply_all(LOGIN, stage.database("login"), retries.poll(), trouble, again)
    retries.commit()
    stage.tell(LOGIN, ids(people), "changed", "retrying", "log_to_consumer", ["email"])


def dead_letter(stage: Stage, count: int) -> None:
    """Three tries in place, then a copy to the dead-letter topic, where it lies."""
    people, newcomers, failing = stage.changed_and_new(count)
    stage.publish()
    park = Park(stage.sender, _DEAD, LOGIN.group, parking.spring_dead_letter)
    stage.consume(LOGIN, only(failing, UnreadableError), park, tries=_TRIES)
    stage.tell(LOGIN, ids(people), "changed", "dead_lettered", "log_to_consumer", ["email"])
    stage.tell(LOGIN, ids(newcomers), "missing", "dead_lettered", "log_to_consumer")


def overtaken_dead_letter(stage: Stage, count: int) -> None:
    """A message lies among the dead letters, but a later one brought the whole state: it agrees until a redrive."""
    people, failing, _ = stage.changed_twice(count)
    stage.publish()
    park = Park(stage.sender, _DEAD, LOGIN.group, parking.spring_dead_letter)
    stage.consume(LOGIN, only(failing, UnreadableError), park, tries=_TRIES)
    stage.tell(LOGIN, ids(people), "latent", "dead_lettered", "log_to_consumer")


def stash(stage: Stage, count: int) -> None:
    """A message is stashed, and so is all that follows for its account, while others flow."""
    people, failing, _ = stage.changed_twice(count)
    stage.publish()
    policy = login_stash(stage.database("login"), stage.sender)
    unreadable = only(failing, UnreadableError)
    stage.consume(LOGIN, lambda record: unreadable(record) or policy.trouble(record), policy)
    stage.tell(LOGIN, ids(people), "changed", "stashed", "log_to_consumer", ["display_name", "email"])


def record_dead_letter(stage: Stage, count: int) -> None:
    """Activity records go through a retry topic, which does them no harm; some recover, others end as dead letters."""
    people = stage.people(2 * count)
    failing = [stage.user.sign_in(person.user_id) for person in people]
    stage.publish()
    retry = Park(stage.sender, _RECORD_RETRY, ACTIVITY.group, parking.smallrye_retry)
    stage.consume(ACTIVITY, only(failing, DatabaseTimeoutError), retry)
    retries = Group(stage.lab.bootstrap, _ACTIVITY_RETRY, _RECORD_RETRY)
    dead = Park(stage.sender, _RECORD_DEAD, ACTIVITY.group, parking.smallrye_dead_letter)
    lost = failing[:count]
    apply_all(ACTIVITY, stage.database("activity"), retries.poll(), only(lost, UnreadableError), dead)
    retries.commit()
    stage.tell(ACTIVITY, [event.aggregate_id for event in lost], "missing", "dead_lettered", "log_to_consumer")
