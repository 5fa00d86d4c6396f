"""Cases for tests of attribution: small builders, and histories in which everything went well until it did not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from reconcile.domain.canonical import Kind
from reconcile.domain.case import Case, Event, FieldRule, LedgerEntry, Link, Parked, ParkedIn, Place, Row, Unapplied

NAME, MAIL, PHONE = (FieldRule(name) for name in ("name", "email", "phone"))
BALANCE = FieldRule("balance", Kind.NUMERIC, add=True)
TARIFF = FieldRule("tariff")

LOGIN = Link(
    "user-account/login", "user-account", (NAME, MAIL, PHONE), {},
    event_versions=True, source_versions=True, copy_versions=True, dense_versions=True,
)  # fmt: skip
UNVERSIONED = replace(LOGIN, event_versions=False, source_versions=False, copy_versions=False, dense_versions=False)
BILLING = Link(
    "user-balance/billing", "user-balance", (BALANCE, TARIFF), {},
    patch=True, event_versions=True, source_versions=True, dense_versions=True,
)  # fmt: skip
ACTIVITY = replace(UNVERSIONED, name="user-activity/activity", topic="user-activity", records=True)

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def minute(number: float) -> datetime:
    """Give a moment."""
    return BEGINNING + timedelta(minutes=number)


def person(name: str | None = "Zoey", email: str | None = "zoe@x", phone: str | None = None) -> dict[str, str | None]:
    """Give the whole state of an account."""
    return {"name": name, "email": email, "phone": phone}


def event(number: int, fields: Mapping[str, str | None] | None, partition: int = 0, **more: Any) -> Event:
    """Give the event of a version, which stands at the offset before it; None deletes."""
    known: dict[str, Any] = {
        "offset": number - 1,
        "at": minute(number),
        "event_id": f"e{number}",
        "version": None if fields is None else number,
        "deletes": fields is None,
    }
    return Event(partition=partition, fields=fields or {}, **{**known, **more})


def history(*states: Mapping[str, str | None] | None) -> list[Event]:
    """Give the events of a life, one version after the other."""
    return [event(number, fields) for number, fields in enumerate(states, 1)]


def row(fields: Mapping[str, str | None], version: int | None = None, count: int = 1) -> Row:
    """Give a row."""
    return Row(dict(fields), version, count)


def applied(events: Iterable[Event], start: float = 100) -> tuple[LedgerEntry, ...]:
    """Give the ledger of a consumer that applied events in this order."""
    return tuple(LedgerEntry(e.event_id, e.place, minute(start + n)) for n, e in enumerate(events))


def noted(of: Event, unapplied: Unapplied, because: str | None = None) -> LedgerEntry:
    """Give the entry of the consumer library's ledger for an event that was not applied."""
    return LedgerEntry(of.event_id, of.place, minute(200), unapplied, because)


def parked(kind: ParkedIn, of: Event, resolved: str | None = None, **more: Any) -> Parked:
    """Give an event's record in a failure topic."""
    known: dict[str, Any] = {
        "topic": f"user-account.login.{kind}",
        "partition": 0,
        "offset": 0,
        "at": of.at,
        "origin": of.place,
        "event_id": of.event_id,
        "version": of.version,
        "resolved": resolved,
        "error": "DatabaseTimeoutError",
    }
    return Parked(kind=kind, **{**known, **more})


def case(
    link: Link,
    source: Row | None,
    copy: Row | None,
    events: Sequence[Event] = (),
    committed: int | None = 99,
    settled_end: int = 99,
    begin: int = 0,
    partitions: Sequence[int] = (0,),
    **more: Any,
) -> Case:
    """Give a case on a log whose partitions are all alike; it is known, unless told, that the source stands still."""
    places = {number: Place(begin, settled_end, 99, committed) for number in partitions}
    known: dict[str, Any] = {"settled_source": source, "settled_absent": source is None, **more}
    keeps = "ledger" in more and not link.ledger
    link = replace(link, places=places, ledger=True, ledger_since=BEGINNING) if keeps else replace(link, places=places)
    return Case(link, "a", source, copy, events=tuple(events), **known)


@dataclass(frozen=True)
class Step:
    """A change in a history: the event, and the source after it; None where it is gone."""

    event: Event
    after: Row | None


def whole_states(changes: Sequence[tuple[str | None, ...] | None], versioned: bool) -> list[Step]:
    """Give the history in which events carry whole states."""
    steps = []
    for number, change in enumerate(changes, 1):
        fields = None if change is None else person(*change)
        version = number if versioned else None
        told = event(number, fields, version=None if fields is None else version)
        steps.append(Step(told, None if fields is None else row(fields, version)))
    return steps


def patches(changes: Sequence[tuple[int | None, str | None] | None], versioned: bool) -> list[Step]:
    """Give the history in which events carry an amount, a tariff or both."""
    steps: list[Step] = []
    balance, tariff = Decimal(0), "basic"
    for number, change in enumerate(changes, 1):
        version = number if versioned else None
        if change is None:
            balance, tariff = Decimal(0), "basic"
            steps.append(Step(event(number, None), None))
            continue
        added, moved = change
        fields: dict[str, str | None] = {}
        if added is not None:
            balance += added
            fields["balance"] = str(added)
        if moved is not None:
            tariff = moved
            fields["tariff"] = moved
        state = row({"balance": str(balance), "tariff": tariff}, version)
        steps.append(Step(event(number, fields, version=version), state))
    return steps
