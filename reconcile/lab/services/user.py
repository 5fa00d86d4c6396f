"""The bounded context that owns UserAccount, UserBalance and UserActivity: its commands, and what it publishes."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from psycopg2.extensions import connection, cursor

ACCOUNT_TOPIC = "user-account"
BALANCE_TOPIC = "user-balance"
ACTIVITY_TOPIC = "user-activity"


@dataclass(frozen=True)
class OutboxEvent:
    """An event in the outbox."""

    topic: str
    aggregate_id: str
    event_id: str
    event_type: str
    correlation_id: str
    payload: str | None

    @property
    def headers(self) -> list[tuple[str, str | bytes | None]]:
        """The event's Kafka headers."""
        return [
            ("event-id", self.event_id.encode()),
            ("event-type", self.event_type.encode()),
            ("correlation-id", self.correlation_id.encode()),
        ]


def encode(payload: Mapping[str, Any]) -> str:
    """Write a payload as it is sent."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def account_payload(
    user_id: str,
    version: int,
    name: tuple[str, str],
    emails: list[tuple[str, bool]],
    phones: list[str],
    updated_at: str,
) -> dict[str, Any]:
    """Build the whole UserAccount: the root with its parts."""
    return {
        "id": user_id,
        "version": version,
        "first_name": name[0],
        "last_name": name[1],
        "email": emails[0][0],
        "phone": phones[0] if phones else None,
        "emails": [{"address": address, "verified": verified} for address, verified in emails],
        "phones": phones,
        "updated_at": updated_at,
    }


def instant(at: datetime) -> str:
    """Write an instant as the events carry it."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class UserService:
    """The commands. Each changes its aggregate and writes the event to the outbox in one transaction."""

    def __init__(self, database: connection, dice: random.Random) -> None:
        self._database = database
        self._dice = dice

    def new_id(self) -> str:
        """Choose an id; the world's seed decides which."""
        return str(uuid.UUID(int=self._dice.getrandbits(128), version=4))

    def register(
        self, user_id: str, first_name: str, last_name: str, email: str, phone: str | None = None
    ) -> OutboxEvent:
        """Open an account."""
        with self._database, self._database.cursor() as cursor:
            cursor.execute(
                "insert into user_account values (%s, 1, %s, %s, now(), null)", (user_id, first_name, last_name)
            )
            cursor.execute("insert into email_address values (%s, 1, %s, false)", (user_id, email))
            if phone:
                cursor.execute("insert into phone_number values (%s, 1, %s)", (user_id, phone))
            return self._publish_account(cursor, user_id, "UserRegistered")

    def rename(self, user_id: str, first_name: str) -> OutboxEvent:
        """Change the first name."""
        with self._database, self._database.cursor() as cursor:
            self._touch(cursor, user_id)
            cursor.execute("update user_account set first_name = %s where id = %s", (first_name, user_id))
            return self._publish_account(cursor, user_id, "UserRenamed")

    def change_email(self, user_id: str, email: str) -> OutboxEvent:
        """Change the primary e-mail address; the former one stays as a second one."""
        with self._database, self._database.cursor() as cursor:
            self._touch(cursor, user_id)
            cursor.execute("delete from email_address where user_id = %s and position = 2", (user_id,))
            cursor.execute("update email_address set position = 2 where user_id = %s", (user_id,))
            cursor.execute("insert into email_address values (%s, 1, %s, false)", (user_id, email))
            return self._publish_account(cursor, user_id, "UserEmailChanged")

    def close(self, user_id: str) -> list[OutboxEvent]:
        """Close an account: its copies and its balance's copies are to go."""
        with self._database, self._database.cursor() as cursor:
            self._touch(cursor, user_id)
            cursor.execute("update user_account set deleted_at = updated_at where id = %s", (user_id,))
            closed = [self._publish(cursor, ACCOUNT_TOPIC, user_id, "UserClosed", None)]
            cursor.execute("delete from user_balance where user_id = %s", (user_id,))
            if cursor.rowcount:
                closed.append(self._publish(cursor, BALANCE_TOPIC, user_id, "BalanceClosed", None))
            return closed

    def top_up(self, user_id: str, amount: Decimal) -> OutboxEvent:
        """Add money to the balance, opening it if need be."""
        with self._database, self._database.cursor() as cursor:
            cursor.execute(
                "insert into user_balance as b values (%s, 1, %s, 'basic', now()) on conflict (user_id) do update"
                " set version = b.version + 1, balance = b.balance + excluded.balance, updated_at = now()"
                " returning version",
                (user_id, amount),
            )
            change = {"id": user_id, "version": _one(cursor), "amount": str(amount)}
            return self._publish(cursor, BALANCE_TOPIC, user_id, "BalanceToppedUp", change)

    def change_tariff(self, user_id: str, tariff: str) -> OutboxEvent:
        """Move a balance to another tariff."""
        with self._database, self._database.cursor() as cursor:
            cursor.execute(
                "update user_balance set version = version + 1, tariff = %s, updated_at = now()"
                " where user_id = %s returning version",
                (tariff, user_id),
            )
            change = {"id": user_id, "version": _one(cursor), "tariff": tariff}
            return self._publish(cursor, BALANCE_TOPIC, user_id, "TariffChanged", change)

    def sign_in(self, user_id: str) -> OutboxEvent:
        """Record that a user signed in; the record is its own aggregate and never changes."""
        record_id = self.new_id()
        with self._database, self._database.cursor() as cursor:
            cursor.execute(
                "insert into user_activity values (%s, %s, 'signed-in', now()) returning at", (record_id, user_id)
            )
            record = activity_payload(record_id, user_id, "signed-in", instant(_one(cursor)))
            return self._publish(cursor, ACTIVITY_TOPIC, record_id, "UserSignedIn", record)

    def _touch(self, cursor: cursor, user_id: str) -> None:
        cursor.execute("update user_account set version = version + 1, updated_at = now() where id = %s", (user_id,))

    def _publish_account(self, cursor: cursor, user_id: str, event_type: str) -> OutboxEvent:
        cursor.execute("select version, first_name, last_name, updated_at from user_account where id = %s", (user_id,))
        version, first_name, last_name, updated_at = _row(cursor)
        cursor.execute("select address, verified from email_address where user_id = %s order by position", (user_id,))
        emails = cursor.fetchall()
        cursor.execute("select number from phone_number where user_id = %s order by position", (user_id,))
        phones = [number for (number,) in cursor.fetchall()]
        payload = account_payload(user_id, version, (first_name, last_name), emails, phones, instant(updated_at))
        return self._publish(cursor, ACCOUNT_TOPIC, user_id, event_type, payload)

    def _publish(
        self, cursor: cursor, topic: str, aggregate_id: str, event_type: str, payload: dict[str, Any] | None
    ) -> OutboxEvent:
        text = None if payload is None else encode(payload)
        event = OutboxEvent(topic, aggregate_id, self.new_id(), event_type, self.new_id(), text)
        cursor.execute(
            "insert into outbox (topic, aggregate_id, event_id, event_type, correlation_id, payload, created_at)"
            " values (%s, %s, %s, %s, %s, %s, clock_timestamp())",
            (topic, aggregate_id, event.event_id, event_type, event.correlation_id, text),
        )
        return event


def activity_payload(record_id: str, user_id: str, kind: str, at: str) -> dict[str, Any]:
    """Build a record of the activity feed."""
    return {"id": record_id, "user_id": user_id, "kind": kind, "at": at}


def _row(cursor: cursor) -> tuple[Any, ...]:
    row = cursor.fetchone()
    if row is None:
        raise LookupError("no such user")
    return row


def _one(cursor: cursor) -> Any:
    return _row(cursor)[0]
