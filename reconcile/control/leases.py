"""Leases: who may write, by a token that grows, until an instant of the database's clock."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Event, Thread

from sqlalchemy import ColumnElement, Connection, select, update

from reconcile.control.database import Database, now
from reconcile.control.errors import LeaseHeldError, LeaseLostError
from reconcile.control.tables import lease as leases
from reconcile.errors import UnreachableError

_LOG = logging.getLogger(__name__)
_CONTRACT_TTL = timedelta(seconds=60)
_LOOK_AGAIN = 1.0


@dataclass(frozen=True)
class Lease:
    """A lease that was acquired; whether it still holds is for the database to say."""

    name: str
    holder: str
    token: int
    """It grows with every holder: whoever takes the lease over has a higher one."""


class HeldLease:
    """A lease that is renewed beside the work that it protects."""

    def __init__(self, lease: Lease, ttl: timedelta, acquired: float, within: HeldLease | None = None) -> None:
        self.lease = lease
        self._within = within
        self._ttl = ttl.total_seconds()
        self._sure_until = acquired + self._ttl
        self._lost_because: str | None = None

    @property
    def lost(self) -> bool:
        """Whether it was taken away, or could not be renewed in time: then nothing more may be written.

        So too if that happened to the lease within which it is held.
        """
        return self._gone or (self._within is not None and self._within.lost)

    def require(self) -> Lease:
        """Return the lease; raise LeaseLostError if it was lost."""
        if self._within is not None:
            self._within.require()
        if self.lost:
            raise LeaseLostError(self._lost_because or _lost(self.lease, "it could not be renewed in time"))
        return self.lease

    @property
    def _gone(self) -> bool:
        return self._lost_because is not None or time.monotonic() >= self._sure_until

    def _renewed(self, started: float) -> None:
        # The database counts from an instant after our call started, so that we give up no later than it does.
        self._sure_until = started + self._ttl

    def _ended(self, why: str) -> None:
        self._lost_because = why


class Leases:
    """Who may write: at most one holder of each name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def hold_contract(self, contract: str, run_id: str, patience: float = 0.0) -> Iterator[HeldLease]:
        """Hold the lease of a contract for a run: whoever changes the contract's world does, so one run at a time.

        Waits for another run of it, or for an attempt of ours that was killed; raises LeaseHeldError when the patience,
        in seconds, is over.
        """
        deadline = time.monotonic() + patience
        waiting = False
        with ExitStack() as stack:
            while True:
                try:
                    lease = self.hold(contract_lease(contract), holder(run_id), _CONTRACT_TTL)
                    held = stack.enter_context(lease)
                    break
                except LeaseHeldError as error:
                    if time.monotonic() >= deadline:
                        raise
                    if not waiting:
                        _LOG.info(f"waiting: {error}")
                        waiting = True
                time.sleep(_LOOK_AGAIN)
            yield held

    @contextmanager
    def hold(self, name: str, holder: str, ttl: timedelta, within: HeldLease | None = None) -> Iterator[HeldLease]:
        """Hold a lease for the length of a block, renewed by a thread; `lost` says when that did not succeed.

        It is lost with the one within which it is held, if there is such a one.
        Raises LeaseHeldError if another has it. One whose holder died is free after the time that it was to last.
        """
        started = time.monotonic()
        held = HeldLease(self.acquire(name, holder, ttl), ttl, started, within)
        over = Event()
        thread = Thread(target=self._keep, args=(held, ttl, over), name=f"lease {name}", daemon=True)
        thread.start()
        try:
            yield held
        finally:
            over.set()
            thread.join(ttl.total_seconds())
            if not held._gone:
                with suppress(UnreachableError):  # then it expires by itself
                    self.release(held.lease)

    def acquire(self, name: str, holder: str, ttl: timedelta) -> Lease:
        """Take a lease that is free or has expired; raise LeaseHeldError if another has it."""
        columns = leases.c
        values = {"holder": holder, "acquired_at": now(), "expires_at": now(ttl)}
        with self._database.writing() as connection:
            statement = self._database.insert(leases).values(name=name, token=1, **values)
            taken = statement.on_conflict_do_update(
                index_elements=["name"], set_={**values, "token": columns.token + 1}, where=columns.expires_at <= now()
            )
            token = connection.execute(taken.returning(columns.token)).scalar_one_or_none()
            if token is None:
                row = connection.execute(select(leases).where(columns.name == name)).one()
                raise LeaseHeldError(
                    f"{row.holder} holds the lease {name} until {row.expires_at:%Y-%m-%d %H:%M:%S} UTC, unless it"
                    " renews it: wait until it is done"
                )
        return Lease(name, holder, token)

    def holder_of(self, name: str) -> str | None:
        """Query who holds a lease at this instant."""
        held = (leases.c.name == name) & (leases.c.expires_at > now())
        with self._database.reading() as connection:
            found: str | None = connection.execute(select(leases.c.holder).where(held)).scalar_one_or_none()
        return found

    def renew(self, lease: Lease, ttl: timedelta) -> None:
        """Let a lease last for a time from now; raise LeaseLostError if it has expired or is another's."""
        with self._database.writing() as connection:
            done = connection.execute(update(leases).where(_holds(lease)).values(expires_at=now(ttl)))
            if done.rowcount == 0:
                raise _not_held(connection, lease)

    def release(self, lease: Lease) -> None:
        """Hand a lease back; nothing happens where it has been lost."""
        with self._database.writing() as connection:
            connection.execute(update(leases).where(_holds(lease)).values(expires_at=now()))

    def require(self, lease: Lease) -> None:
        """Raise LeaseLostError unless the lease holds at this instant."""
        with self._database.reading() as connection:
            require_held(connection, lease)

    def _keep(self, held: HeldLease, ttl: timedelta, over: Event) -> None:
        while not over.wait(ttl.total_seconds() / 3):
            started = time.monotonic()
            try:
                self.renew(held.lease, ttl)
            except UnreachableError:
                continue  # until the time is over, the next attempt may succeed
            except Exception as error:  # noqa: BLE001 - whatever it is, the lease is no longer renewed
                held._ended(str(error))
                return
            held._renewed(started)


def contract_lease(contract: str) -> str:
    """Name the lease of a contract."""
    return f"run of {contract}"


def is_of_run(holder: str, run_id: str) -> bool:
    """Tell whether a holder is an attempt of a run."""
    return holder.startswith(f"{run_id} on ")


def holder(run_id: str) -> str:
    """Name who holds a lease for a run: the run and this process."""
    return f"{run_id} on {socket.gethostname()}, process {os.getpid()}"


def require_held(connection: Connection, lease: Lease) -> None:
    """Raise LeaseLostError unless the lease holds; nobody takes it over before the transaction ends."""
    statement = select(leases.c.token).where(_holds(lease)).with_for_update(read=True)
    if connection.execute(statement).one_or_none() is None:
        raise _not_held(connection, lease)


def _holds(lease: Lease) -> ColumnElement[bool]:
    return (leases.c.name == lease.name) & (leases.c.token == lease.token) & (leases.c.expires_at > now())


def _not_held(connection: Connection, lease: Lease) -> LeaseLostError:
    row = connection.execute(select(leases).where(leases.c.name == lease.name)).one_or_none()
    if row is not None and row.token != lease.token:
        return LeaseLostError(_lost(lease, f"{row.holder} took it over"))
    return LeaseLostError(_lost(lease, "it expired"))


def _lost(lease: Lease, why: str) -> str:
    return f"{lease.holder} no longer holds the lease {lease.name}: {why}; acquire it anew before writing on"
