"""What the consumers do with an event: login, billing and activity, each with its own copy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from psycopg2.extensions import cursor

from reconcile.lab.services.user import ACCOUNT_TOPIC, ACTIVITY_TOPIC, BALANCE_TOPIC


@dataclass(frozen=True)
class Record:
    """A record as a consumer sees it; `origin` is its first place, also in a retry topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]
    origin: tuple[str, int, int]

    @property
    def aggregate_id(self) -> str:
        """The id of its aggregate."""
        return (self.key or b"").decode()

    @property
    def event_id(self) -> str:
        """The event that it carries."""
        return self.headers["event-id"].decode()

    def body(self) -> dict[str, Any]:
        """Parse the payload; raise ValueError if that fails."""
        body = json.loads(self.value or b"null")
        if not isinstance(body, dict):
            raise ValueError("not an object")
        return body


@dataclass(frozen=True)
class Service:
    """A bounded context that keeps a copy."""

    name: str
    aggregate: str
    group: str
    topic: str
    apply: Callable[[cursor, Record], None]

    @property
    def link(self) -> str:
        """The link's name as findings give it."""
        return f"{self.aggregate}/{self.name}"


def apply_login(cursor: cursor, record: Record) -> None:
    """Overwrite the profile with what the event says, and note the message. No look at the version: as many do."""
    if record.value is None:
        cursor.execute("delete from login_profile where user_id = %s", (record.aggregate_id,))
    else:
        body = record.body()
        display_name = f"{body['first_name']} {body['last_name']}"
        cursor.execute(
            "insert into login_profile values (%s, %s, %s, %s, %s, clock_timestamp())"
            " on conflict (user_id) do update set version = excluded.version, display_name = excluded.display_name,"
            " mail = excluded.mail, phone = excluded.phone, changed_at = excluded.changed_at",
            (record.aggregate_id, body["version"], display_name, body["email"], body["phone"]),
        )
    _, partition, offset = record.origin
    cursor.execute(
        "insert into processed_message values (%s, %s, %s, clock_timestamp())", (partition, offset, record.event_id)
    )


def apply_billing(cursor: cursor, record: Record) -> None:
    """Apply a change to the account: an amount is added, a tariff is set."""
    if record.value is None:
        cursor.execute("delete from account where user_id = %s", (record.aggregate_id,))
        return
    body = record.body()
    cursor.execute("insert into account (user_id) values (%s) on conflict do nothing", (record.aggregate_id,))
    if "amount" in body:
        amount = Decimal(body["amount"])
        cursor.execute("update account set balance = balance + %s where user_id = %s", (amount, record.aggregate_id))
    if "tariff" in body:
        cursor.execute("update account set tariff = %s where user_id = %s", (body["tariff"], record.aggregate_id))


def apply_activity(cursor: cursor, record: Record) -> None:
    """Append a record to the feed."""
    body = record.body()
    cursor.execute(
        "insert into activity_record (record_id, user_id, kind, happened_at) values (%s, %s, %s, %s)",
        (body["id"], body["user_id"], body["kind"], datetime.fromisoformat(body["at"])),
    )


LOGIN = Service("login", "user-account", "login-service", ACCOUNT_TOPIC, apply_login)
BILLING = Service("billing", "user-balance", "billing-service", BALANCE_TOPIC, apply_billing)
ACTIVITY = Service("activity", "user-activity", "activity-service", ACTIVITY_TOPIC, apply_activity)
SERVICES = (LOGIN, BILLING, ACTIVITY)
