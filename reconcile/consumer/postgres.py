"""The library's tables in a service's own Postgres, and the transactions that its changes are made in."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

import psycopg2
from psycopg2 import errorcodes
from psycopg2.extensions import TRANSACTION_STATUS_IDLE, TRANSACTION_STATUS_INERROR, connection, cursor
from psycopg2.extras import execute_values

from reconcile.config.extras import MissingExtraError
from reconcile.consumer.decision import Facts, Outcome
from reconcile.consumer.errors import (
    AnotherPolicyError,
    AnotherTopicError,
    EndedTransactionError,
    SwallowedError,
    TablesMissingError,
)
from reconcile.consumer.message import Headers, Message, RecordPlace
from reconcile.consumer.policy import Stash, Terms
from reconcile.consumer.store import ContendedError, HeldPartition, Noted, Outgoing, Stashed, Writes
from reconcile.domain.event import spelled
from reconcile.errors import RefusedError, UnreachableError
from reconcile.files import committed
from reconcile.settings import urls
from reconcile.settings.urls import PostgresUrl

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from reconcile.consumer.orm import JoinedSession

_USUAL = {
    "connect_timeout": "10",
    "client_encoding": "UTF8",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_MISSING = (errorcodes.UNDEFINED_TABLE, errorcodes.INVALID_SCHEMA_NAME, errorcodes.UNDEFINED_COLUMN)

_FACTS = """
with asked (consumer_group, member_group, reads, number, read_partition, topic, partition, "offset", event_id,
            aggregate_id) as (values %s)
select
    pg_current_xact_id()::text,
    (select epoch from reconcile.fence f
      where f.member_group = a.member_group and f.topic = a.reads and f.partition = a.read_partition for share),
    (select case when l.aggregate_id <> a.aggregate_id or l.event_id <> a.event_id then 'another' else outcome end
       from reconcile.ledger l
      where l.consumer_group = a.consumer_group and l.topic = a.topic and l.partition = a.partition
        and l."offset" = a."offset"),
    (select outcome from reconcile.ledger l where l.consumer_group = a.consumer_group and l.event_id = a.event_id
        and l.aggregate_id = a.aggregate_id),
    (select messages from reconcile.blocked b
      where b.consumer_group = a.consumer_group and b.aggregate_id = a.aggregate_id),
    (select messages from reconcile.blocked b
      where b.consumer_group = a.consumer_group and b.aggregate_id = a.aggregate_id for key share)"""
_KNOWN_VERSION = """,
    (select version from reconcile.version v
      where v.consumer_group = a.consumer_group and v.aggregate_id = a.aggregate_id for update)"""
_DAMAGED = """,
    exists (select from reconcile.damaged d where d.consumer_group = a.consumer_group and d.topic = a.topic
        and d.partition = a.partition and d."offset" = a."offset")"""
_ASKED_FOR = " from asked a order by number"
_ANOTHER = "another"
"""What is read instead of an outcome where a place has another message than the one that was noted."""
_ASKED = "(%s, %s, %s, %s::int, %s::int, %s, %s::int, %s::bigint, %s::text, %s::text)"
_OF_A_TOPIC = 3
"""How many of these are the same for all messages that a member reads of one topic."""
_OF_A_GROUP = 1

# In another transaction than that of the facts the outcome is null, which the table refuses.
_NOTE = """
insert into reconcile.ledger as known
    (consumer_group, topic, partition, "offset", event_id, aggregate_id, outcome) values %s
"""
_NOTED = "(%s, %s, %s::int, %s::bigint, %s, %s, case when pg_current_xact_id() = %s::xid8 then %s end)"
# Nor does the table take that what another transaction has applied since the facts were read is noted again.
_NOTE_AGAIN = f"""{_NOTE}
on conflict (consumer_group, topic, partition, "offset") do update set outcome = excluded.outcome,
    processed_at = case when known.outcome = 'applied' then null else clock_timestamp() end
"""
_VERSION = """
insert into reconcile.version as known (consumer_group, aggregate_id, version, deleted) values %s
on conflict (consumer_group, aggregate_id) do update
    set version = greatest(known.version, excluded.version), changed_at = clock_timestamp(),
        deleted = case when excluded.version < known.version then known.deleted else excluded.deleted end
"""
_VERSIONS = "(%s, %s, %s::bigint, %s::boolean)"
_STASH = """
insert into reconcile.stash (consumer_group, aggregate_id, topic, partition, "offset", event_id, key, value,
                             header_names, header_values, at, error_class, error_message) values %s
on conflict do nothing returning aggregate_id, topic, partition, "offset"
"""
_STASHED = "(%s, %s, %s, %s, %s, %s, %s, %s, %s::text[], %s::bytea[], %s, %s, %s)"
_IN_PLACE = """
update reconcile.stash s set sequence = least(s.sequence, (
    select min(sequence) from reconcile.stash o where o.consumer_group = s.consumer_group
    and o.aggregate_id = s.aggregate_id and o.topic = s.topic and o.partition = s.partition
    and o."offset" > s."offset"))
where consumer_group = %s and topic = %s and partition = %s and "offset" = %s
"""
_BLOCK = """
insert into reconcile.blocked as known (consumer_group, aggregate_id, messages) values (%s, %s, 1)
on conflict (consumer_group, aggregate_id) do update set messages = known.messages + 1
"""
_GROWN = """
insert into reconcile.stash_size as known (consumer_group, topic, partition, messages) values (%s, %s, %s, 1)
on conflict (consumer_group, topic, partition) do update set messages = known.messages + 1
"""
_SEND = """
insert into reconcile.outbox (consumer_group, topic, key, value, header_names, header_values) values %s
"""
_SENT = "(%s, %s, %s, %s, %s::text[], %s::bytea[])"
# Fails where the transaction is another one than that of the facts; it is asked where nothing is noted.
_KEEP = "select 1 / (pg_current_xact_id() = (%s)::xid8)::int"

_ENDED = "the handler ended the transaction that it was called in: the library commits, once for all"

_REGISTER = """
insert into reconcile.consumer (consumer_group, topic, policy, guard, ledger) values (%s, %s, %s, %s, %s)
on conflict do nothing
"""
_REGISTERED = """
select consumer_group, topic, policy, guard, ledger from reconcile.consumer where consumer_group = %s for update
"""
_AT_WORK = """
select
    (select count(distinct a.pid) from reconcile.fence f
       join pg_stat_activity a on a.pid = f.backend_pid and a.backend_start = f.backend_start
      where f.member_group = %(group)s),
    exists (select from reconcile.blocked b where b.consumer_group = %(group)s)
"""
_CHANGE = """
update reconcile.consumer set topic = %s, policy = %s, guard = %s, ledger = %s, registered_at = clock_timestamp()
where consumer_group = %s
"""

# Of a group that is registered otherwise by now, nothing is claimed.
_CLAIM = """
with registered as (select from reconcile.consumer
     where (consumer_group, topic, policy, guard, ledger) = (%s, %s, %s, %s, %s) for share)
insert into reconcile.fence as known (member_group, topic, partition, epoch, owner, backend_pid, backend_start)
select %s, %s, %s, 1, %s, pid, backend_start from pg_stat_activity, registered where pid = pg_backend_pid()
on conflict (member_group, topic, partition) do update
    set epoch = known.epoch + 1, owner = excluded.owner, backend_pid = excluded.backend_pid,
        backend_start = excluded.backend_start, raised_at = clock_timestamp()
returning epoch
"""
_TO_CLAIM = "1s"
_CLAIMS = 5
"""How often a claim ends the transaction that it finds in its way, before it waits as for any lock."""
_MIGRATED = "insert into reconcile.schema_migration (number, name) values (%s, %s)"
_EVICT = """
select pg_terminate_backend(a.pid) from reconcile.fence f
join pg_stat_activity a on a.pid = f.backend_pid and a.backend_start = f.backend_start
where f.member_group = %s and f.topic = %s and f.partition = %s and a.pid <> pg_backend_pid()
"""

# The server may not know that its client is gone: what that one had begun holds locks, and may even be committed yet.
_END_FORMER = """
select pg_terminate_backend(pid, 5000) from pg_stat_activity where pid = %s and backend_start = %s::timestamptz
"""
_BACKEND = "select pid, backend_start::text from pg_stat_activity where pid = pg_backend_pid()"
_HOLD_ON = """
update reconcile.fence f set backend_pid = a.pid, backend_start = a.backend_start from pg_stat_activity a
where f.member_group = %s and f.topic = %s and f.partition = %s and f.epoch = %s and a.pid = pg_backend_pid()
"""
_PLANNED_FOR = 60.0
"""Seconds for which a statement is planned: tables grow, and a plan for a small one is slow on a large one."""
# Kafka's offsets follow what was committed here, and are kept: so is to be what was committed here.
_DURABLE = """
select set_config('synchronous_commit', 'local', false) where current_setting('synchronous_commit') = 'off'
"""


class SharedConnection(connection):
    """A connection that sessions of SQLAlchemy may join; what they know of the database is read once for it."""

    engine: Engine | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.own = self.cursor()
        """The cursor of the library's own statements about messages."""
        self._prepared: dict[tuple[Any, ...], tuple[str, str, float]] = {}

    def composed(
        self, name: str, statement: str, rows: Sequence[Sequence[Any]], template: str, fixed: int = 0
    ) -> bytes:
        """Compose a statement about rows; planning for a single row takes longer than running, so it is done ahead.

        So many of the row's first values are `fixed`: the statement is planned for them.
        """
        if len(rows) > 1:
            return _from_arrays(self.own, statement, rows, template)
        known, row = (statement, *rows[0][:fixed]), rows[0][fixed:]
        called, call, planned = self._prepared.get(known, (f"{name}_{len(self._prepared)}", "", -math.inf))
        now = time.monotonic()
        if now > planned + _PLANNED_FOR:
            again = f"deallocate {called};" if call else ""
            values = [self.own.mogrify("%s", (each,)).decode() for each in rows[0][:fixed]]
            numbered = template % (*values, *(f"${number + 1}" for number in range(len(row))))
            self.own.execute(f"{again} prepare {called} as {statement.replace('%s', numbered)}")
            call = f"execute {called} ({', '.join(['%s'] * len(row))})"
            self._prepared[known] = called, call, now
        return self.own.mogrify(call, row)


class Transaction:
    """What a handler changes the copy with; the library ends the transaction."""

    def __init__(self, opened: SharedConnection) -> None:
        self.connection = opened
        """The connection, for libraries that want one; its transaction is not theirs to end."""
        self._sessions: list[JoinedSession] = []

    def execute(self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> cursor:
        """Run one statement, and return the cursor with its rows."""
        opened = self.connection.cursor()
        opened.execute(statement, parameters)
        return opened

    def session(self, **options: Any) -> Session:
        """Open a session of SQLAlchemy in this transaction; `options` are those of `sqlalchemy.orm.Session`.

        Its commit and rollback keep and undo what it did, and do not end the transaction. What it holds when the
        handler returns is kept with the message.
        """
        try:
            from reconcile.consumer import orm
        except ImportError as error:
            raise MissingExtraError("Transaction.session needs SQLAlchemy 2: pip install sqlalchemy") from error
        self._sessions.append(orm.joined(self.connection, options))
        return self._sessions[-1]

    def flush(self) -> None:
        """Send what its sessions hold, and close them."""
        while self._sessions:
            session = self._sessions.pop(0)
            session.commit()
            session.close()
            session.bound.close()


class PostgresTransaction:
    """One transaction of a LibraryStore."""

    def __init__(self, opened: SharedConnection, group: str, ledger: bool, query: str) -> None:
        self.connection = opened
        self._group = group
        self._ledger = ledger
        self._query = query
        self._transaction_id = ""
        self._is_ending = False
        self._new: set[RecordPlace] = set()
        """Where messages first stood of which the facts say that nothing is noted."""
        self.handle = Transaction(opened)

    def begin(self, asking: cursor) -> None:
        """Begin without asking for facts of messages."""
        asking.execute("begin; select pg_current_xact_id()::text")
        (self._transaction_id,) = asking.fetchone() or ("",)

    def facts(self, messages: Sequence[Message], held: Sequence[HeldPartition]) -> list[Facts]:
        """Read what is known of each message; whether its partition is still held is known from then on."""
        group, asking = self._group, self.connection.own
        asked = [
            (
                group,
                each.group,
                each.topic,
                number,
                each.partition,
                *message.origin,
                _event(message),
                message.aggregate_id,
            )
            for number, (message, each) in enumerate(zip(messages, held, strict=True))
        ]
        query = self.connection.composed("reconcile_facts", self._query, asked, _ASKED, _OF_A_TOPIC)
        asking.execute(b"begin;" + query)
        found = asking.fetchall()
        self._transaction_id = found[0][0]
        facts = []
        for message, (_, epoch, by_place, by_event, before, blocked, *more) in zip(messages, found, strict=True):
            # A locked row is read as it is now, all else as it was when the statement began: before a drain's work?
            if blocked != before:
                raise ContendedError("a drain changed what is stashed of an aggregate")
            if by_place == _ANOTHER:
                raise AnotherTopicError(
                    f"the ledger of {self._group} has another aggregate, or another event's id, at {message.origin}:"
                    " the topic was created anew, or its keys or ids are read otherwise. This message was not"
                    " skipped: drain the stash, delete the topic's rows from reconcile.ledger, and start anew"
                )
            if by_place is None:
                self._new.add(message.origin)
            facts.append(Facts(epoch, _outcome(by_place or by_event), blocked, *more))
        return facts

    def stash_size(self) -> int:
        """Query how many messages of the group are stashed."""
        with self.connection.cursor() as asking:
            asking.execute(
                "select coalesce(sum(messages), 0) from reconcile.stash_size where consumer_group = %s", (self._group,)
            )
            return int(asking.fetchone()[0])  # type: ignore[index] # a sum without a group always has a row

    def is_stashed(self, origin: RecordPlace) -> bool:
        """Query whether a message is stashed already."""
        with self.connection.cursor() as asking:
            asking.execute(
                "select from reconcile.stash where consumer_group = %s and topic = %s and partition = %s"
                ' and "offset" = %s',
                (self._group, *origin),
            )
            return asking.rowcount == 1

    def commit(self, writes: Writes, before: Sequence[bytes] = ()) -> None:
        """Write, and keep all, if this is still the transaction in which the facts were read."""
        if self.connection.get_transaction_status() == TRANSACTION_STATUS_INERROR:
            raise SwallowedError(
                "the database refused a statement of the handler, and the handler went on: let the error out of it"
            )
        writing = self.connection.own
        self._is_ending = True
        try:
            writing.execute(b";".join([*before, *self._statements(writing, writes), b"commit"]))
        except (psycopg2.errors.DivisionByZero, psycopg2.errors.NotNullViolation) as error:
            if isinstance(error, psycopg2.errors.NotNullViolation) and not _is_our_outcome(error):
                raise
            raise EndedTransactionError(_ENDED) from None

    def was_ended(self) -> bool:
        """Roll back, and query whether somebody else had ended the transaction, so that its changes may be kept."""
        if self._is_ending or not self._transaction_id or self.connection.closed:
            return False
        if self.connection.get_transaction_status() == TRANSACTION_STATUS_IDLE:
            return True
        try:
            with self.connection.cursor() as asking:
                asking.execute("rollback")
                asking.execute("select pg_xact_status(%s::xid8)", (self._transaction_id,))
                return asking.fetchone() == ("committed",)
        except psycopg2.Error:
            return False  # the connection is lost, as the next statement finds out

    def _statements(self, writing: cursor, writes: Writes) -> Iterator[bytes]:
        group = self._group
        if writes.noted and self._ledger:
            noted = [_noted(group, self._transaction_id, each) for each in writes.noted]
            note = _NOTE if all(each.message.origin in self._new for each in writes.noted) else _NOTE_AGAIN
            yield self.connection.composed("reconcile_note", note, noted, _NOTED, _OF_A_GROUP)
        else:
            yield self.connection.composed("reconcile_keep", _KEEP, [(self._transaction_id,)], "%s")
        if writes.versions:
            versions = [(group, aggregate, *known) for aggregate, known in sorted(writes.versions.items())]
            yield self.connection.composed("reconcile_version", _VERSION, versions, _VERSIONS)
        if writes.outgoing:
            rows = [(group, each.topic, each.key, each.value, *_headers(each.headers)) for each in writes.outgoing]
            yield _values(writing, _SEND, rows, _SENT)
        if writes.stashed:
            writing.execute(self.connection.composed("reconcile_keep", _KEEP, [(self._transaction_id,)], "%s"))
            # Without a ledger, what is read again may have been applied before what is stashed by now.
            self.stash(writing, writes.stashed, in_place=not self._ledger)

    def stash(self, writing: cursor, stashed: Sequence[Stashed], *, in_place: bool) -> int:
        """Put messages into the stash and block their aggregates; return how many were not there yet.

        With `in_place` they wait where they stood in the log, and not behind what is stashed by now.
        """
        rows = [_stashed(self._group, each) for each in stashed]
        added = execute_values(writing, _STASH, rows, template=_STASHED, page_size=len(rows), fetch=True)
        for aggregate, topic, partition, offset in added:
            writing.execute(_BLOCK, (self._group, aggregate))
            writing.execute(_GROWN, (self._group, topic, partition))
            if in_place:
                writing.execute(_IN_PLACE, (self._group, topic, partition, offset))
        return len(added)


class LibraryStore:
    """The store of one consumer, over one connection; for one thread."""

    def __init__(self, url: PostgresUrl, group: str, *, owner: str = "", patience: float = 300.0) -> None:
        self.group = group
        self.owner = owner
        self._url = url
        self._patience = patience
        self._ledger = True
        self._query = _facts_query(guarded=True, skipping=True)
        self._manner: tuple[Any, ...] = ()
        self._claims: dict[tuple[str, str, int], int] = {}
        self._opened: SharedConnection | None = None
        self._backend: tuple[Any, ...] | None = None

    def close(self) -> None:
        """Close its connection."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def register(self, terms: Terms, topic: str) -> None:
        """Say who consumes here and how; raise AnotherPolicyError where members of the group do otherwise."""
        self._ledger = terms.ledger
        self._query = _facts_query(guarded=terms.guard != "none", skipping=terms.skip_damaged)
        self._manner = row = (self.group, topic, terms.policy.name, terms.guard, terms.ledger)
        try:
            with self.cursor() as asking:
                asking.execute("begin")
                asking.execute(_REGISTER, row)
                asking.execute(_REGISTERED, (self.group,))
                if (known := asking.fetchone()) != row:
                    asking.execute(_AT_WORK, {"group": self.group})
                    self._refuse_change(known or (), *(asking.fetchone() or ()))
                    asking.execute(_CHANGE, (*row[1:], self.group))
                asking.execute("commit")
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
            raise UnreachableError(
                f"the store of the group {self.group} does not answer: {str(error).strip()}; start the consumer again"
                " once it does"
            ) from error

    def follow(self, asking: cursor) -> None:
        """Keep a ledger only where the group's members do: whoever drains knows the contract, and not the service."""
        asking.execute("select ledger from reconcile.consumer where consumer_group = %s", (self.group,))
        (self._ledger,) = asking.fetchone() or (True,)

    def _refuse_change(self, known: Sequence[Any], members: int, stashed: bool) -> None:
        row = self._manner
        change = f"the group {self.group} consumes here as {_manner(known)}, and this consumer would as {_manner(row)}"
        if members:
            raise AnotherPolicyError(f"{change}: stop its {members} connected members first")
        if stashed and row[2] != Stash.name:
            raise AnotherPolicyError(f"{change}: drain its stash first, or what is stashed is forgotten")

    def claim(self, group: str, topic: str, partition: int) -> int:
        """Raise a partition's epoch and return it; a transaction of the member before that still stands is ended.

        Kafka has given the partition to this member, so that the other one's transaction has nothing to keep.
        """
        place = (group, topic, partition)
        with self.cursor() as asking:
            asking.execute("set lock_timeout = %s", (_TO_CLAIM,))
            try:
                for _ in range(_CLAIMS):
                    with suppress(psycopg2.errors.LockNotAvailable):
                        return self._claimed(asking, place)
                    asking.execute(_EVICT, place)
                return self._claimed(asking, place)
            finally:
                if not asking.connection.closed:
                    asking.execute("reset lock_timeout")

    def _claimed(self, asking: cursor, place: tuple[str, str, int]) -> int:
        asking.execute(_CLAIM, (*self._manner, *place, self.owner))
        row = asking.fetchone()
        if row is None:
            raise AnotherPolicyError(
                f"the group {self.group} is registered to consume otherwise than as {_manner(self._manner)}, by a"
                " consumer that was started since: stop all but one of them"
            )
        self._claims[place] = epoch = int(row[0])
        return epoch

    @contextmanager
    def transaction(self) -> Iterator[PostgresTransaction]:
        """Begin a transaction; what was not committed at the end of the block is rolled back."""
        opened = self._open()
        begun = PostgresTransaction(opened, self.group, self._ledger, self._query)
        try:
            yield begun
        except psycopg2.Error as error:
            self._explain(error)
        except Exception as error:
            if begun.was_ended():
                raise EndedTransactionError(_ENDED) from error
            raise
        finally:
            self._reset(opened)

    def has_applied(self, event_id: str) -> bool:
        """Query whether the group is done with an event, such that its copy has what the event says."""
        with self.cursor() as asking:
            asking.execute(
                "select exists (select from reconcile.ledger where consumer_group = %s and event_id = %s"
                " and outcome in ('applied', 'older'))",
                (self.group, spelled(event_id)),
            )
            return asking.fetchone() == (True,)

    def send(self, deliver: Callable[[Sequence[Outgoing]], None], most: int) -> int:
        """Deliver the oldest records of the outbox, and forget them once they are delivered."""
        with self.cursor() as asking:
            asking.execute("begin")
            asking.execute(
                "select id, topic, key, value, header_names, header_values from reconcile.outbox"
                " where consumer_group = %s order by id limit %s for update skip locked",
                (self.group, most),
            )
            rows = asking.fetchall()
            if rows:
                deliver([_outgoing(*row[1:]) for row in rows])
                asking.execute("delete from reconcile.outbox where id = any(%s)", ([row[0] for row in rows],))
            asking.execute("commit")
        return len(rows)

    @contextmanager
    def cursor(self) -> Iterator[cursor]:
        """Open a cursor whose statements are kept one by one."""
        opened = self._open()
        try:
            with opened.cursor() as asking:
                yield asking
        except psycopg2.errors.InsufficientPrivilege as error:
            raise RefusedError(
                f"the store of the group {self.group}: {error.diag.message_primary}; grant the account what"
                " `reconcile contract grants --for consumer` prints"
            ) from error
        except psycopg2.Error as error:
            self._explain(error)
        finally:
            self._reset(opened)

    def _open(self) -> SharedConnection:
        if self._opened is None or self._opened.closed:
            arguments = {"application_name": "reconcile-consumer", **_USUAL, **self._url.libpq()}
            try:
                opened = psycopg2.connect(**arguments, connection_factory=SharedConnection)
            except psycopg2.OperationalError as error:
                if self._backend is not None:  # it was open before: what is wrong now may pass
                    raise
                raise _unopened(self._url, error) from error
            try:
                self._prepare(opened)
            except BaseException:
                opened.close()
                raise
            self._opened = opened
        return self._opened

    def _prepare(self, opened: connection) -> None:
        """Set how a new connection works, and let it take the place of the one before."""
        # Each `begin` is ours; what libraries send of their own on this connection ends nothing.
        opened.autocommit = True
        with opened.cursor() as asking:
            milliseconds = f"{int(self._patience * 1000)}ms"
            asking.execute("set idle_in_transaction_session_timeout = %s", (milliseconds,))
            asking.execute("set default_transaction_isolation = 'read committed'")
            asking.execute(_DURABLE)
            if self._backend is not None:
                asking.execute(_END_FORMER, self._backend)
            asking.execute(_BACKEND)
            self._backend = asking.fetchone()
            for place, epoch in self._claims.items():
                asking.execute(_HOLD_ON, (*place, epoch))

    def _reset(self, opened: connection) -> None:
        """Roll back what was not committed; a connection on which even that fails is given up."""
        try:
            if not opened.closed and opened.get_transaction_status() != TRANSACTION_STATUS_IDLE:
                with opened.cursor() as ending:
                    ending.execute("rollback")
        except psycopg2.Error:
            opened.close()
        if opened.closed and self._opened is opened:
            self._opened = None

    def _explain(self, error: psycopg2.Error) -> NoReturn:
        if error.pgcode in _MISSING and error.diag.schema_name in (None, "reconcile") and "reconcile." in str(error):
            raise TablesMissingError(
                "the store has no table of the library, or one of another release: run `reconcile consumer migrate`"
            ) from error
        if error.pgcode == errorcodes.INVALID_SQL_STATEMENT_NAME and self._opened is not None:
            self._opened.close()
            raise ContendedError("the handler deallocated what the library had prepared") from error
        noted_twice = error.pgcode == errorcodes.UNIQUE_VIOLATION or error.diag.column_name == "processed_at"
        if noted_twice and error.diag.schema_name == "reconcile":
            raise ContendedError("another transaction noted the same message") from error
        raise error


def _unopened(url: PostgresUrl, error: psycopg2.OperationalError) -> RefusedError | UnreachableError:
    """Build the error for a store that no connection can be had to."""
    where, said = f"{url.host}:{url.port}/{url.database}", " ".join(str(error).split())
    if (what_to_do := urls.to_correct(said)) is None:
        return UnreachableError(f"the store {where} does not answer: {said}; start again once it does")
    return RefusedError(f"the store {where} refuses us: {said}. {what_to_do}")


def migrations() -> list[tuple[int, str, str]]:
    """Read the library's migrations: their numbers, their names, and their SQL."""
    files = sorted(committed("sql", "consumer").glob("[0-9]*.sql"))
    return [(int(file.name[:4]), file.stem, file.read_text("utf-8")) for file in files]


def migration_script() -> str:
    """Build the SQL of all migrations, for people who apply it themselves."""
    parts = [f"{text}\n" + _MIGRATED % (number, f"'{name}'") + ";\n" for number, name, text in migrations()]
    return "\n".join(["begin;", *parts, "commit;\n"])


def migrate(url: PostgresUrl) -> list[str]:
    """Create or change the library's tables in a store; return the names of the migrations that were applied."""
    where = f"{url.host}:{url.port}/{url.database}"
    try:
        return _migrate(url)
    except psycopg2.errors.InsufficientPrivilege as error:
        raise RefusedError(
            f"{where}: {error.diag.message_primary}: the library's tables are in the schema reconcile. Use an account"
            " that may create it, or have somebody apply what `reconcile consumer migrate --print` prints"
        ) from None
    except psycopg2.OperationalError as error:
        raise _unopened(url, error) from None


def _migrate(url: PostgresUrl) -> list[str]:
    applied = []
    opened = psycopg2.connect(**{**_USUAL, **url.libpq()})
    try:
        with opened, opened.cursor() as asking:
            asking.execute("select pg_advisory_xact_lock(hashtextextended('reconcile.schema_migration', 0))")
            asking.execute("select to_regclass('reconcile.schema_migration') is not null")
            known = 0
            if asking.fetchone() == (True,):
                asking.execute("select coalesce(max(number), 0) from reconcile.schema_migration")
                (known,) = asking.fetchone() or (0,)
            for number, name, text in migrations():
                if number > known:
                    asking.execute(text)
                    asking.execute(_MIGRATED, (number, name))
                    applied.append(name)
    finally:
        opened.close()
    return applied


def _values(writing: cursor, statement: str, rows: Sequence[Sequence[Any]], template: str) -> bytes:
    before, after = statement.split("%s")
    return before.encode() + b",".join(writing.mogrify(template, row) for row in rows) + after.encode()


def _from_arrays(writing: cursor, statement: str, rows: Sequence[Sequence[Any]], template: str) -> bytes:
    """Compose a statement about many rows: the server parses an array for each column faster than values row by row."""
    names = [f"c{number}" for number in range(len(rows[0]))]
    row = template[1:-1] % tuple(f"u.{name}" for name in names)
    select = f"select {row} from unnest({', '.join(['%s::text[]'] * len(names))}) u ({', '.join(names)})"  # noqa: S608 - names that are ours
    before, after = statement.split("values %s")
    arrays = [_array(column) for column in zip(*rows, strict=True)]
    return before.encode() + writing.mogrify(select, arrays) + after.encode()


def _array(column: Sequence[Any]) -> str:
    """Build an array as Postgres reads it; psycopg2's own has an expression for each of its elements."""
    return "{" + ",".join("null" if each is None else _quoted(str(each)) for each in column) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _facts_query(*, guarded: bool, skipping: bool) -> str:
    """Build the query for what is known of messages: of what a consumer does not look at, nothing is read."""
    version = _KNOWN_VERSION if guarded else ", null::bigint"
    return _FACTS + version + (_DAMAGED if skipping else "") + _ASKED_FOR


def _outcome(noted: str | None) -> Outcome | None:
    return None if noted is None else Outcome(noted)


def _event(message: Message) -> str | None:
    return None if message.event_id is None else spelled(message.event_id)


def _noted(group: str, transaction_id: str, noted: Noted) -> tuple[Any, ...]:
    message = noted.message
    return (group, *message.origin, _event(message), message.aggregate_id, transaction_id, noted.outcome.value)


def _is_our_outcome(error: psycopg2.Error) -> bool:
    said = error.diag
    return (said.schema_name, said.table_name, said.column_name) == ("reconcile", "ledger", "outcome")


def _stashed(group: str, stashed: Stashed) -> tuple[Any, ...]:
    message = stashed.message
    said = None if stashed.error_message is None else text_of(stashed.error_message)
    return (
        group,
        message.aggregate_id,
        *message.origin,
        _event(message),
        message.key,
        message.value,
        *_headers(message.headers),
        message.at,
        stashed.error_class,
        said,
    )


def text_of(said: str) -> str:
    """Build what Postgres can keep of a text: an error may repeat what no UTF-8 can say."""
    return said.encode(errors="replace").decode().replace("\0", "�")


def _headers(headers: Headers) -> tuple[list[str], list[bytes | None]]:
    return [name for name, _ in headers], [value for _, value in headers]


def _outgoing(topic: str, key: Any, value: Any, names: Sequence[str], values: Sequence[Any]) -> Outgoing:
    return Outgoing(topic, column_bytes(key), column_bytes(value), headers_of(names, values))


def headers_of(names: Sequence[str], values: Sequence[Any]) -> Headers:
    """Build a record's headers from the two columns that keep them."""
    return tuple((name, column_bytes(each)) for name, each in zip(names, values, strict=True))


def column_bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _manner(row: Any) -> str:
    _, topic, policy, guard, ledger = row
    return f"{policy} on {topic} (guard {guard}, {'with' if ledger else 'without'} a ledger)"
