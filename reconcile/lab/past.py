"""What happened before today: each account's history as rows of every table and records of every topic."""

from __future__ import annotations

import io
import multiprocessing
import signal
import unicodedata
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from confluent_kafka import Producer
from numpy.typing import NDArray

from reconcile.domain.partitioner import murmur2_many
from reconcile.lab.folder import Lab
from reconcile.lab.names import DOMAINS, FIRST_NAMES, LAST_NAMES
from reconcile.lab.services.database import connect
from reconcile.lab.services.relay import producer
from reconcile.lab.services.user import (
    ACCOUNT_TOPIC,
    ACTIVITY_TOPIC,
    BALANCE_TOPIC,
    OutboxEvent,
    account_payload,
    activity_payload,
    encode,
    instant,
)
from reconcile.lab.world import PARTITIONS

CLOSED_EVERY = 50  # of so many accounts, one was closed by its last event
ACTIVE_EVERY = 5  # of so many accounts, one has a record in the activity feed
PLUS_EVERY = 4  # of so many accounts, one moved to another tariff
_BATCH = 5_000
_BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
_SPAN = timedelta(days=90)

# What each database gets: table and columns, in the order in which they are written.
_TABLES = {
    "user": {
        "user_account": "id, version, first_name, last_name, updated_at, deleted_at",
        "email_address": "user_id, position, address, verified",
        "phone_number": "user_id, position, number",
        "user_balance": "user_id, version, balance, tariff, updated_at",
        "user_activity": "id, user_id, kind, at",
    },
    "login": {
        "login_profile": "user_id, version, display_name, mail, phone, changed_at",
        "processed_message": 'partition, "offset", event_id, processed_at',
    },
    "billing": {"account": "user_id, balance, tariff"},
    "activity": {"activity_record": "record_id, user_id, kind, happened_at"},
}


def leave_interrupts() -> None:
    """Leave Ctrl-C to the process that started this worker: it ends its workers itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _require_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        raise RuntimeError("the seed was killed")


def write_share(lab: Lab, aggregates: int, seed: int, worker: int, workers: int) -> int:
    """Write one worker's share of the past: the partitions that are its own, so that offsets follow from the seed."""
    people = _People(aggregates, seed)
    with _Tables(lab) as tables:
        log = _Log(producer(lab.bootstrap, **{"linger.ms": 20, "queue.buffering.max.messages": 200_000}))
        mine = np.flatnonzero(people.partitions % workers == worker)
        for start in range(0, len(mine), _BATCH):
            _require_parent()
            _write_accounts(people, mine[start : start + _BATCH], 3 * workers * start, tables, log)
        mine = np.flatnonzero(people.record_partitions % workers == worker)
        for start in range(0, len(mine), _BATCH):
            _require_parent()
            _write_activity(people, mine[start : start + _BATCH], tables, log)
        return log.close()


def uuids(dice: np.random.Generator, count: int) -> NDArray[np.uint8]:
    """Compute random (version 4) uuids as rows of 36 ASCII bytes."""
    raw = dice.integers(0, 256, (count, 16), dtype=np.uint8)
    raw[:, 6] = (raw[:, 6] & 0x0F) | 0x40
    raw[:, 8] = (raw[:, 8] & 0x3F) | 0x80
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    places = [place for place in range(36) if place not in (8, 13, 18, 23)]
    text = np.full((count, 36), ord("-"), dtype=np.uint8)
    text[:, places[0::2]] = digits[raw >> 4]
    text[:, places[1::2]] = digits[raw & 15]
    return text


def _texts(rows: NDArray[np.uint8]) -> list[str]:
    text = np.ascontiguousarray(rows).tobytes().decode("ascii")
    return [text[at : at + 36] for at in range(0, len(text), 36)]


def _homes(keys: NDArray[np.uint8]) -> NDArray[np.int64]:
    return (murmur2_many(keys).astype(np.int64) & 0x7FFFFFFF) % PARTITIONS


class _People:
    """Everybody's choices, the same for every worker."""

    def __init__(self, count: int, seed: int) -> None:
        dice = np.random.default_rng(seed)
        self.seed = seed
        self.count = count
        self.ids = uuids(dice, count)
        self.partitions = _homes(self.ids)
        self.records = uuids(dice, -(-count // ACTIVE_EVERY))
        self.record_partitions = _homes(self.records)
        self.first = dice.integers(0, len(FIRST_NAMES), (count, 2))
        self.last = dice.integers(0, len(LAST_NAMES), count)
        self.domain = dice.integers(0, len(DOMAINS), count)
        self.phone = dice.integers(0, 3, count)  # none for every third
        self.amount = dice.integers(1, 100, count) * 5
        self.step = _SPAN / max(1, 3 * count)


@dataclass
class _Log:
    """Records on their way into the topics, with the offsets that they will have."""

    sender: Producer
    sent: int = 0

    def __post_init__(self) -> None:
        self._next: Counter[tuple[str, int]] = Counter()
        self._error: str | None = None

    def add(self, event: OutboxEvent, partition: int, at: int) -> int:
        """Send an event's record; return its offset."""
        while True:
            try:
                self.sender.produce(
                    event.topic,
                    value=None if event.payload is None else event.payload.encode(),
                    key=event.aggregate_id.encode(),
                    partition=partition,
                    timestamp=at,
                    headers=event.headers,
                    on_delivery=self._delivered,
                )
                break
            except BufferError:
                self.sender.poll(0.1)
        self.sent += 1
        offset = self._next[event.topic, partition]
        self._next[event.topic, partition] = offset + 1
        return offset

    def settle(self) -> None:
        """Hear of what was delivered."""
        self.sender.poll(0)
        if self._error:
            raise RuntimeError(f"the seed could not be published: {self._error}")

    def close(self) -> int:
        """Wait until the log has all; return how many records those were."""
        while self.sender.flush(10):
            self.settle()
        self.settle()
        return self.sent

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._error = str(error)


class _Tables:
    """Rows on their way into the databases, by COPY."""

    def __init__(self, lab: Lab) -> None:
        self._sessions = {database: connect(lab.url(database)) for database in _TABLES}
        self._lines: dict[str, list[str]] = {table: [] for tables in _TABLES.values() for table in tables}

    def __enter__(self) -> _Tables:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._sessions.values():
            session.close()

    def add(self, table: str, *values: object) -> None:
        """Add a row; None is NULL."""
        self._lines[table].append("\t".join(["\\N" if value is None else str(value) for value in values]))

    def write(self) -> None:
        """Write what was added."""
        for database, tables in _TABLES.items():
            session = self._sessions[database]
            with session, session.cursor() as cursor:
                for table, columns in tables.items():
                    if lines := self._lines[table]:
                        cursor.copy_expert(f"copy {table} ({columns}) from stdin", io.StringIO("\n".join(lines) + "\n"))
                        lines.clear()


def _mailbox(first: str, last: str, number: int, domain: str) -> str:
    plain = unicodedata.normalize("NFKD", f"{first}.{last}").encode("ascii", "ignore").decode().lower()
    return f"{plain}.{number}@{domain}"


def _write_accounts(people: _People, chosen: NDArray[np.int64], began: int, tables: _Tables, log: _Log) -> None:
    dice = np.random.default_rng([people.seed, int(chosen[0])])
    size = len(chosen)
    ids = _texts(people.ids[chosen])
    partitions = people.partitions[chosen].tolist()
    events = [_texts(uuids(dice, size)) for _ in range(10)]  # an event's and a correlation's id for five events each
    moments = [_BEGINNING + (began + place) * people.step for place in range(3 * size)]
    first = people.first[chosen].tolist()
    last = [LAST_NAMES[index] for index in people.last[chosen].tolist()]
    domains = [DOMAINS[index] for index in people.domain[chosen].tolist()]
    phones = [
        [f"+49 30 {number:07d}"] if kind else []
        for number, kind in zip(chosen.tolist(), people.phone[chosen].tolist(), strict=True)
    ]
    closed = (chosen % CLOSED_EVERY == CLOSED_EVERY - 1).tolist()
    plus = (chosen % PLUS_EVERY == 0).tolist()
    amounts = people.amount[chosen].tolist()

    for turn, event_type in enumerate(("UserRegistered", "UserRenamed", "UserEmailChanged")):
        for place in range(size):
            user_id, partition = ids[place], partitions[place]
            at = moments[turn * size + place]
            name = (FIRST_NAMES[first[place][min(turn, 1)]], last[place])
            old_mail = _mailbox(FIRST_NAMES[first[place][0]], last[place], int(chosen[place]), domains[place])
            mail = f"new.{old_mail}" if turn == 2 else old_mail
            emails = [(mail, True)] if turn < 2 else [(mail, False), (old_mail, True)]
            gone = closed[place] and turn == 2
            body = None if gone else account_payload(user_id, turn + 1, name, emails, phones[place], instant(at))
            event_id, correlation_id = events[2 * turn][place], events[2 * turn + 1][place]
            value = None if body is None else encode(body)
            kind = "UserClosed" if gone else event_type
            event = OutboxEvent(ACCOUNT_TOPIC, user_id, event_id, kind, correlation_id, value)
            offset = log.add(event, partition, int(at.timestamp() * 1000))
            tables.add("processed_message", partition, offset, event_id, at)
            if turn < 2:
                continue
            tables.add("user_account", user_id, 3, *name, at, at if gone else None)
            kept = [(old_mail, True)] if gone else emails
            for position, (address, verified) in enumerate(kept, 1):
                tables.add("email_address", user_id, position, address, verified)
            for number in phones[place]:
                tables.add("phone_number", user_id, 1, number)
            if not gone:
                phone = phones[place][0] if phones[place] else None
                tables.add("login_profile", user_id, 3, f"{name[0]} {name[1]}", mail, phone, at)
        log.settle()

    for place in range(size):
        user_id, partition, amount = ids[place], partitions[place], f"{amounts[place]}.00"
        at = moments[2 * size + place]
        millis = int(at.timestamp() * 1000)
        topped_up = encode({"id": user_id, "version": 1, "amount": amount})
        named = events[6][place], "BalanceToppedUp", events[7][place]
        log.add(OutboxEvent(BALANCE_TOPIC, user_id, *named, topped_up), partition, millis)
        if closed[place]:
            # The same command closed the account and its balance.
            named = events[8][place], "BalanceClosed", events[5][place]
            log.add(OutboxEvent(BALANCE_TOPIC, user_id, *named, None), partition, millis)
            continue
        if plus[place]:
            moved = encode({"id": user_id, "version": 2, "tariff": "plus"})
            named = events[8][place], "TariffChanged", events[9][place]
            log.add(OutboxEvent(BALANCE_TOPIC, user_id, *named, moved), partition, millis)
        tariff = "plus" if plus[place] else "basic"
        tables.add("user_balance", user_id, 2 if plus[place] else 1, amount, tariff, at)
        tables.add("account", user_id, amount, tariff)
    tables.write()
    log.settle()


def _write_activity(people: _People, chosen: NDArray[np.int64], tables: _Tables, log: _Log) -> None:
    dice = np.random.default_rng([people.seed, int(chosen[0]), 1])
    records = _texts(people.records[chosen])
    users = _texts(people.ids[chosen * ACTIVE_EVERY])
    events, correlations = _texts(uuids(dice, len(chosen))), _texts(uuids(dice, len(chosen)))
    for place, number in enumerate(chosen.tolist()):
        at = _BEGINNING + _SPAN + number * people.step
        record_id, user_id = records[place], users[place]
        body = activity_payload(record_id, user_id, "signed-in", instant(at))
        event = OutboxEvent(ACTIVITY_TOPIC, record_id, events[place], "UserSignedIn", correlations[place], encode(body))
        log.add(event, int(people.record_partitions[number]), int(at.timestamp() * 1000))
        tables.add("user_activity", record_id, user_id, "signed-in", at)
        tables.add("activity_record", record_id, user_id, "signed-in", at)
    tables.write()
    log.settle()
