"""The stash in a service's own Postgres: what is blocked, what waits, who drains it, and what a person decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg2
from psycopg2.extensions import connection, cursor

from reconcile.consumer.decision import Facts, Outcome
from reconcile.consumer.errors import AnotherPolicyError, DrainHeldError
from reconcile.consumer.message import Message, RecordPlace
from reconcile.consumer.postgres import LibraryStore, PostgresTransaction, column_bytes, headers_of, text_of
from reconcile.consumer.store import Letter, Outgoing, Stashed, Writes
from reconcile.domain.event import spelled

_HOLD = """
insert into reconcile.drain as known (consumer_group, epoch, owner, backend_pid, backend_start, expires_at)
select %s, 1, %s, pid, backend_start, clock_timestamp() + make_interval(secs => %s)
from pg_stat_activity where pid = pg_backend_pid()
on conflict (consumer_group) do update
    set epoch = known.epoch + 1, owner = excluded.owner, backend_pid = excluded.backend_pid,
        backend_start = excluded.backend_start, expires_at = excluded.expires_at
    where known.epoch = %s
returning epoch
"""
_HELD = """
select epoch, owner, expires_at, expires_at > clock_timestamp() and exists (
    select from pg_stat_activity a where a.pid = d.backend_pid and a.backend_start = d.backend_start)
from reconcile.drain d where consumer_group = %s
"""
_TO_HOLD = "1s"
_EVICT = """
select pg_terminate_backend(a.pid) from reconcile.drain d
join pg_stat_activity a on a.pid = d.backend_pid and a.backend_start = d.backend_start
where d.consumer_group = %s and d.expires_at < clock_timestamp() and a.pid <> pg_backend_pid()
"""
_RENEW = """
update reconcile.drain set expires_at = clock_timestamp() + make_interval(secs => %s)
where consumer_group = %s and epoch = %s
"""
_BLOCKED = """
select since, aggregate_id from reconcile.blocked
where consumer_group = %s and (since, aggregate_id) > (%s, %s) order by since, aggregate_id limit 1
"""
_LETTER = """
select aggregate_id, topic, partition, "offset", event_id, key, value, header_names, header_values, at, stashed_at,
    drains, error_class, error_message, replayed
"""
_HEAD = f"""
{_LETTER} from reconcile.stash where consumer_group = %s and aggregate_id = %s order by sequence, "offset" limit 1
"""
_LOCK = "select from reconcile.blocked where consumer_group = %s and aggregate_id = %s for update"
_WAS_APPLIED = """
select exists (select from reconcile.ledger where consumer_group = %(group)s and outcome = 'applied'
    and (topic = %(topic)s and partition = %(partition)s and "offset" = %(offset)s
        or event_id = %(event_id)s and aggregate_id = %(aggregate_id)s))
"""
_REPLAYED = """
update reconcile.stash set replayed = true
where consumer_group = %(group)s and topic = %(topic)s and partition = %(partition)s and "offset" = %(offset)s
"""
# Whoever is at work on the letter's partition: what it had begun before the aggregate was blocked is there by then.
_QUIET = """
select from reconcile.fence where member_group = %(group)s and topic = %(topic)s and partition = %(partition)s
for update
"""
_FACTS = """
select
    (select epoch from reconcile.drain where consumer_group = %(group)s for share),
    coalesce(
        (select outcome from reconcile.ledger where consumer_group = %(group)s and topic = %(topic)s
            and partition = %(partition)s and "offset" = %(offset)s and outcome = 'applied'),
        (select outcome from reconcile.ledger where consumer_group = %(group)s and event_id = %(event_id)s
            and aggregate_id = %(aggregate_id)s
            and (topic, partition, "offset") <> (%(topic)s, %(partition)s, %(offset)s))),
    (select version from reconcile.version
      where consumer_group = %(group)s and aggregate_id = %(aggregate_id)s for update),
    %(replayed)s and (
        exists (select from reconcile.ledger where consumer_group = %(group)s and topic = %(topic)s
            and partition = %(partition)s and "offset" > %(offset)s and aggregate_id = %(aggregate_id)s
            and outcome = 'applied')
        -- Once the topic has grown, what follows may stand in another partition.
        or exists (select from reconcile.ledger own join reconcile.ledger l using (consumer_group, topic)
            where consumer_group = %(group)s and topic = %(topic)s and own.partition = %(partition)s
            and own."offset" = %(offset)s and l.partition <> %(partition)s and l.aggregate_id = %(aggregate_id)s
            and l.processed_at > own.processed_at and l.outcome = 'applied')),
    exists (select from reconcile.damaged where consumer_group = %(group)s and topic = %(topic)s
        and partition = %(partition)s and "offset" = %(offset)s)
"""
_TAKE = """
delete from reconcile.stash where consumer_group = %s and topic = %s and partition = %s and "offset" = %s
"""
_SHRUNK = """
update reconcile.stash_size set messages = messages - 1 where consumer_group = %s and topic = %s and partition = %s
"""
_FEWER = "update reconcile.blocked set messages = messages - 1 where consumer_group = %s and aggregate_id = %s"
_PUT_BACK = """
update reconcile.stash set drains = drains + 1, error_class = %s, error_message = %s
where consumer_group = %s and topic = %s and partition = %s and "offset" = %s
"""
_DISCARD = """
insert into reconcile.discarded (consumer_group, aggregate_id, topic, partition, "offset", event_id, key, value,
    header_names, header_values, at, stashed_at, error_class, error_message, because, discarded_by)
select consumer_group, aggregate_id, topic, partition, "offset", event_id, key, value, header_names, header_values, at,
    stashed_at, error_class, error_message, %s, %s
from reconcile.stash where consumer_group = %s and topic = %s and partition = %s and "offset" = %s
on conflict (consumer_group, topic, partition, "offset") do update
    set because = excluded.because, discarded_by = excluded.discarded_by, discarded_at = clock_timestamp()
"""
_NOTE_DISCARDED = """
insert into reconcile.ledger (consumer_group, topic, partition, "offset", event_id, aggregate_id, outcome)
select %(group)s, %(topic)s, %(partition)s, %(offset)s,
    case when exists (select from reconcile.ledger where consumer_group = %(group)s and event_id = %(event_id)s
            and aggregate_id = %(aggregate_id)s) then null else %(event_id)s end, %(aggregate_id)s, 'discarded'
on conflict (consumer_group, topic, partition, "offset") do update
    set outcome = case when ledger.outcome = 'applied' then ledger.outcome else excluded.outcome end
"""
_OUTCOMES = """
select l.topic, l.partition, l."offset", l.outcome from reconcile.ledger l
join unnest(%s::text[], %s::int[], %s::bigint[]) as p (topic, partition, "offset") using (topic, partition, "offset")
where l.consumer_group = %s
"""
_LIST = """
select b.aggregate_id, b.messages, b.since, h.topic, h.partition, h."offset", h.event_id, h.drains, h.error_class
from reconcile.blocked b
left join lateral (
    select * from reconcile.stash s where s.consumer_group = b.consumer_group and s.aggregate_id = b.aggregate_id
    order by sequence, "offset" limit 1
) h on true
where b.consumer_group = %s order by b.since, b.aggregate_id limit %s
"""
_SIZE = """
select (select count(*) from reconcile.blocked where consumer_group = %(group)s),
    (select coalesce(sum(messages), 0)::bigint from reconcile.stash_size where consumer_group = %(group)s),
    (select min(since) from reconcile.blocked where consumer_group = %(group)s)
"""


@dataclass(frozen=True)
class BlockedAggregate:
    """An aggregate that waits, and its oldest message, which is the one that failed."""

    aggregate_id: str
    messages: int
    since: datetime
    origin: RecordPlace | None
    event_id: str | None
    drains: int
    error_class: str | None


@dataclass(frozen=True)
class StashSize:
    """How much is stashed of a group: its copy's desynchronisation, as far as the consumer knows of it."""

    aggregates: int
    messages: int
    oldest: datetime | None


class _Step:
    """One step of a drain, in one transaction."""

    def __init__(self, begun: PostgresTransaction, opened: connection, group: str) -> None:
        self._begun = begun
        self._connection = opened
        self._group = group
        self.handle = begun.handle

    def head(self, aggregate_id: str) -> tuple[Letter, Facts] | None:
        """Read the oldest stashed message of an aggregate: nobody else takes it while this drain is held."""
        with self._connection.cursor() as asking:
            self._begun.begin(asking)
            asking.execute(_HEAD, (self._group, aggregate_id))
            row = asking.fetchone()
            if row is None:
                return None
            letter = _letter(row)
            topic, partition, offset = letter.origin
            asked = {"topic": topic, "partition": partition, "offset": offset, "event_id": letter.event_id}
            more = {"group": self._group, "aggregate_id": aggregate_id, "replayed": letter.replayed}
            if letter.replayed:
                asking.execute(_QUIET, {**asked, **more})
            asking.execute(_FACTS, {**asked, **more})
            epoch, noted, version, overtaken, damaged = asking.fetchone() or (None, None, None, False, False)
        return letter, Facts(epoch, Outcome(noted) if noted else None, None, version, damaged, overtaken)

    def take(self, letter: Letter, writes: Writes) -> None:
        """Take the message out of the stash, write, and keep all."""
        with self._connection.cursor() as writing:
            taken = self._remove(writing, letter)
        self._begun.commit(writes, taken)

    def put_back(self, letter: Letter, error_class: str, error_message: str, outgoing: Sequence[Outgoing]) -> None:
        """Leave the message where it is, with its new error, and keep that."""
        with self._connection.cursor() as writing:
            changed = writing.mogrify(_PUT_BACK, (error_class, text_of(error_message), self._group, *letter.origin))
        self._begun.commit(Writes(outgoing=outgoing), [changed])

    def unblock(self, aggregate_id: str) -> bool | None:
        """Let the aggregate flow, unless a message has come to its stash; None if it flows already."""
        with self._connection.cursor() as asking:
            # A consumer that is about to stash a message holds the row: this waits until its message is there.
            asking.execute(_LOCK, (self._group, aggregate_id))
            if asking.rowcount == 0:
                return None
            asking.execute(_HEAD, (self._group, aggregate_id))
            if asking.fetchone() is not None:
                return False
            asking.execute(
                "delete from reconcile.blocked where consumer_group = %s and aggregate_id = %s",
                (self._group, aggregate_id),
            )
        self._begun.commit(Writes())
        return True

    def discard(self, letter: Letter, because: str, by: str) -> None:
        """Take the message out of the stash unapplied, and keep it as evidence."""
        topic, partition, offset = letter.origin
        noted = {"topic": topic, "partition": partition, "offset": offset, "event_id": letter.event_id}
        with self._connection.cursor() as writing:
            statements = [
                writing.mogrify(_DISCARD, (because, by, self._group, *letter.origin)),
                writing.mogrify(_NOTE_DISCARDED, {**noted, "group": self._group, "aggregate_id": letter.aggregate_id}),
                *self._remove(writing, letter),
            ]
        self._begun.commit(Writes(), statements)

    def _remove(self, writing: cursor, letter: Letter) -> list[bytes]:
        topic, partition, _ = letter.origin
        return [
            writing.mogrify(_TAKE, (self._group, *letter.origin)),
            writing.mogrify(_FEWER, (self._group, letter.aggregate_id)),
            writing.mogrify(_SHRUNK, (self._group, topic, partition)),
        ]


class PostgresStash:
    """The stash of one group, over the connection of its store."""

    def __init__(self, store: LibraryStore) -> None:
        self._store = store
        self._group = store.group

    def hold(self, seconds: float) -> int:
        """Hold the drain for so long; what a drain that expired has left open is ended."""
        with self._store.cursor() as asking:
            asking.execute("set lock_timeout = %s", (_TO_HOLD,))
            while True:
                asking.execute(_HELD, (self._group,))
                epoch, owner, expires_at, lives = asking.fetchone() or (0, "", None, False)
                if lives:
                    raise DrainHeldError(
                        f"{owner} drains the stash of {self._group}: wait until that has ended; it is free at once"
                        f" where its process has died, else at {expires_at:%Y-%m-%d %H:%M:%S %Z}"
                    )
                asking.execute(_EVICT, (self._group,))
                try:
                    asking.execute(_HOLD, (self._group, self._store.owner, seconds, epoch))
                except psycopg2.errors.LockNotAvailable:
                    continue
                if (held := asking.fetchone()) is not None:
                    asking.execute("reset lock_timeout")
                    self._store.follow(asking)
                    return int(held[0])

    def require_guard(self, guard: str) -> None:
        """Raise AnotherPolicyError where the group compares versions in another way than a drain would."""
        with self._store.cursor() as asking:
            asking.execute("select guard from reconcile.consumer where consumer_group = %s", (self._group,))
            (theirs,) = asking.fetchone() or (guard,)
        if theirs != guard:
            raise AnotherPolicyError(
                f"the group {self._group} consumes here with `guard: {theirs}`, and this drain would with"
                f" `guard: {guard}`: say the same in the contract as in the service, and drain again"
            )

    def renew(self, epoch: int, seconds: float) -> None:
        """Hold the drain longer."""
        with self._store.cursor() as asking:
            asking.execute(_RENEW, (seconds, self._group, epoch))
            if asking.rowcount == 0:
                raise DrainHeldError(f"another drain of {self._group} has taken over: this one changes nothing more")

    def give_back(self, epoch: int) -> None:
        """Let the next drain begin."""
        with self._store.cursor() as asking:
            asking.execute(_RENEW, (-1, self._group, epoch))

    def blocked(self, after: tuple[datetime, str] | None = None) -> tuple[datetime, str] | None:
        """Query the aggregate that is blocked for longest after this one."""
        with self._store.cursor() as asking:
            asking.execute(_BLOCKED, (self._group, *(after or ("-infinity", ""))))
            return asking.fetchone()

    @contextmanager
    def transaction(self) -> Iterator[_Step]:
        """Begin one step; what it does not keep is rolled back."""
        with self._store.transaction() as begun:
            yield _Step(begun, begun.connection, self._group)

    def listed(self, most: int) -> list[BlockedAggregate]:
        """Query the blocked aggregates, those that are blocked for longest first."""
        with self._store.cursor() as asking:
            asking.execute(_LIST, (self._group, most))
            return [
                BlockedAggregate(id_, messages, since, None if topic is None else RecordPlace(topic, *place), *rest)
                for id_, messages, since, topic, *place, event_id, drains, error_class in asking.fetchall()
                for rest in [(event_id, drains or 0, error_class)]
            ]

    def letters(self, aggregate_id: str) -> list[Letter]:
        """Query the stashed messages of an aggregate, in the order in which they are to be applied."""
        with self._store.cursor() as asking:
            asking.execute(
                f"{_LETTER} from reconcile.stash where consumer_group = %s and aggregate_id = %s order by sequence,"
                ' "offset"',
                (self._group, aggregate_id),
            )
            return [_letter(row) for row in asking.fetchall()]

    def size(self) -> StashSize:
        """Query how much is stashed."""
        with self._store.cursor() as asking:
            asking.execute(_SIZE, {"group": self._group})
            return StashSize(*(asking.fetchone() or (0, 0, None)))

    def put(self, message: Message, error_class: str | None, error_message: str | None) -> bool:
        """Stash a dead letter, before what is stashed of its aggregate and stood behind it in the log.

        Returns False for one that is stashed already, or was applied.
        """
        topic, partition, offset = message.origin
        name = None if message.event_id is None else spelled(message.event_id)
        place = {"group": self._group, "topic": topic, "partition": partition, "offset": offset}
        known = {**place, "event_id": name, "aggregate_id": message.aggregate_id}
        with self._store.transaction() as begun, begun.connection.cursor() as asking:
            begun.begin(asking)
            asking.execute(_WAS_APPLIED, known)
            letter = Stashed(message, error_class, error_message)
            if asking.fetchone() == (True,) or not begun.stash(asking, [letter], in_place=True):
                return False
            begun.commit(Writes(), [asking.mogrify(_REPLAYED, place)])
        return True

    def outcomes(self, places: Sequence[RecordPlace]) -> dict[RecordPlace, Outcome]:
        """Query how messages were done with, of those that are."""
        with self._store.cursor() as asking:
            topics, partitions, offsets = ([each[part] for each in places] for part in range(3))
            asking.execute(_OUTCOMES, (topics, partitions, offsets, self._group))
            return {RecordPlace(*row[:3]): Outcome(row[3]) for row in asking.fetchall()}

    def discard(self, aggregate_id: str, because: str, by: str, *, through: RecordPlace | None = None) -> int:
        """Take messages of an aggregate out of the stash unapplied, all or those up to one; return how many.

        An aggregate that has none left flows again. Whoever calls this holds the drain.
        """
        taken, on = 0, True
        while True:
            with self.transaction() as step:
                head = step.head(aggregate_id)
                if head is None and step.unblock(aggregate_id) is not False:
                    return taken
                if head is not None:
                    if not on:
                        return taken
                    step.discard(head[0], because, by)
                    taken += 1
                    on = head[0].origin != through


def _letter(row: Any) -> Letter:
    id_, topic, partition, offset, event_id, key, value, names, values, at, stashed_at, *rest = row
    place = RecordPlace(topic, partition, offset)
    return Letter(
        id_, place, event_id, column_bytes(key), column_bytes(value), headers_of(names, values), at, stashed_at, *rest
    )
