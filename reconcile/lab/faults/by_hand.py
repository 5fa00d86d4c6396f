"""Faults of people and scripts that write into a copy which is not theirs."""

from __future__ import annotations

from decimal import Decimal

from reconcile.lab.faults.stage import Stage, ids
from reconcile.lab.services.copies import BILLING, LOGIN


def hand_edit(stage: Stage, count: int) -> None:
    """Somebody edits the copy: an e-mail address, a balance, an empty text where there was nothing."""
    people, payers, phoneless = stage.people(count), stage.people(count), stage.newcomers(count)
    stage.settle()
    for person in people:
        stage.execute("login", "update login_profile set mail = %s where user_id = %s", stage.mail(), person.user_id)
    for person in payers:
        statement = "update account set balance = balance + %s where user_id = %s"
        stage.execute("billing", statement, Decimal("0.37"), person.user_id)
    for person in phoneless:
        stage.execute("login", "update login_profile set phone = '' where user_id = %s", person.user_id)
    stage.tell(LOGIN, ids(people), "changed", "foreign_write", "consumer", ["email"])
    stage.tell(BILLING, ids(payers), "changed", "foreign_write", "consumer", ["balance"])
    stage.tell(LOGIN, ids(phoneless), "changed", "foreign_write", "consumer", ["phone"])


def hand_delete(stage: Stage, count: int) -> None:
    """Somebody deletes rows of the copy."""
    people = stage.people(count)
    for person in people:
        stage.execute("login", "delete from login_profile where user_id = %s", person.user_id)
    stage.tell(LOGIN, ids(people), "missing", "foreign_write", "consumer")


def phantom(stage: Stage, count: int) -> None:
    """A test script leaves rows in the copies that the source never knew."""
    unknown = [stage.user.new_id() for _ in range(count)]
    for user_id in unknown:
        statement = "insert into login_profile values (%s, 1, 'Test Test', %s, null, now())"
        stage.execute("login", statement, user_id, stage.mail())
        stage.execute("billing", "insert into account values (%s, 100, 'basic')", user_id)
    stage.tell(LOGIN, unknown, "orphan", "phantom", "consumer")
    stage.tell(BILLING, unknown, "orphan", "phantom", "consumer")


def normalised_text(stage: Stage, count: int) -> None:
    """A clean-up job rewrites text into another Unicode form, or leaves a trailing space: the same to a reader."""
    people, padded = stage.people(count), stage.people(count)
    for person in people:
        stage.user.rename(person.user_id, "Zoë")
    stage.settle()
    for person in people:
        statement = "update login_profile set display_name = normalize(display_name, nfd) where user_id = %s"
        stage.execute("login", statement, person.user_id)
    for person in padded:
        stage.execute("login", "update login_profile set mail = mail || ' ' where user_id = %s", person.user_id)
    stage.tell(LOGIN, ids(people), "changed", "foreign_write", "consumer", ["display_name"], status="tolerated")
    stage.tell(LOGIN, ids(padded), "changed", "foreign_write", "consumer", ["email"], status="tolerated")
