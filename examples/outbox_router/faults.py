"""The orders of the shop, and the faults that such a pipeline has in life, with the truth about them."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from psycopg2.extras import execute_values

from examples.connect.trial import Mended, Planted
from examples.outbox_router.pipeline import CONTRACT, Pipeline, ServiceWorld
from examples.outbox_router.service import MODULE
from reconcile.lab import process
from reconcile.lab.services.database import connected

_LOG = logging.getLogger(__name__)
_PATIENCE = 120
ROWS = 300
_COLUMNS = "id, version, customer, total, paid, due, placed_at, notes"
_TOO_LONG = "a customer whose name is longer than the copy's column has room for"
_PAYLOAD = (
    "json_build_object('id', id, 'customer', customer, 'total', total, 'paid', paid, 'due', due, 'placed_at',"
    """ to_char(placed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'notes', notes)::text"""
)
_OUTBOX = "insert into outbox (aggregatetype, aggregateid, type, version, payload) select 'order',"


@dataclass
class Orders:
    """Works with orders as the shop does, and plants the faults; each order has one fault at most."""

    world: ServiceWorld
    variant: str = "orders"
    planted: list[Planted] = field(default_factory=list)
    _random: random.Random = field(default_factory=lambda: random.Random(2026))  # noqa: S311
    _newest: int = 1000

    contract = CONTRACT
    databases = ("shop", "copy")
    rows = f"select {_COLUMNS} from orders"

    @property
    def pipeline(self) -> Pipeline:
        """Where the orders go."""
        return Pipeline(self.world)

    def provide(self) -> None:
        """Create databases, tables and topics."""
        self.pipeline.provide()

    def plant(self) -> list[Planted]:
        """Plant every fault; the service stays stopped and the source paused at the end."""
        ids = iter(range(10, 200))
        _LOG.info("planting faults")
        self._published_again()
        self._unsaid(ids)
        self._wrong_payload(ids)
        self._wrong_id(ids)
        self._wrong_version(ids)
        self._poison(ids)
        self._damaged(ids)
        self._lost_slot(ids)
        self._change(range(200, ROWS + 1), "paid = not paid")  # life goes on
        self.pipeline.await_copied()
        self._moved_offsets(ids)
        self._hand_edits(ids)
        self._lag(ids)
        self._waiting(ids)
        return self.planted

    def go_on(self) -> None:
        """Let source and service go on; mend the copy's column, drain what waits for it, give up what is damaged."""
        pipeline = self.pipeline
        with connected(pipeline.copy_url) as cursor:
            cursor.execute("alter table orders alter customer type text")
        self.world.connect.resume(pipeline.source.connector)
        self.world.start_service()
        pipeline.await_copied()
        for each in self.planted:
            if each.fault == "payload cut off":
                why = ("--because", "the shop cut its payload off", "--all")
                pipeline.ask("stash", "discard", str(CONTRACT), each.id, *why)
        pipeline.ask("stash", "drain", str(CONTRACT), "--handler", f"{MODULE}:apply")
        pipeline.await_confirmed()

    def seed(self) -> None:
        """Fill the shop before the source starts, then let people work, and wait for the copy."""
        pipeline = self.pipeline
        _LOG.info(f"seeding {ROWS} orders, and starting source and service")
        self._place(range(1, ROWS + 1))
        self.world.connect.configure(pipeline.source.connector, pipeline.config())
        self.world.start_service()
        for _ in range(3):
            self._change(range(1, ROWS + 1), "total = total + 1.25, paid = not paid")
        self._place(range(ROWS + 1, ROWS + 21))
        self._cancel(range(ROWS + 11, ROWS + 21))
        pipeline.await_copied()

    def _published_again(self) -> None:
        """A source that lost its offsets publishes what its outbox has once more: the service knows the events' ids."""
        pipeline, connect = self.pipeline, self.world.connect
        pipeline.await_confirmed()
        pipeline.source.change("delete from outbox")  # as every shop does now and then, with what is published
        again = range(1, 10)
        for _ in range(2):
            self._change(again, "total = total + 0.75")
        before = sum(pipeline.source.await_published().values())
        connect.stop(pipeline.source.connector)
        connect.forget(pipeline.source.connector)
        connect.configure(pipeline.source.connector, pipeline.config())
        wanted = before + 2 * len(again)
        process.wait_until(
            lambda: sum(pipeline.source.ends().values()) >= wanted, "the outbox was not published again", _PATIENCE
        )
        pipeline.await_copied()

    def _unsaid(self, ids: Iterator[int]) -> None:
        """Changes by a tool, or a release, that writes no outbox."""
        changed, gone, made = _take(ids, 2), _take(ids, 1), [self._new()]
        self._change(changed, "total = total - 4, notes = 'by a tool'", told=False)
        self._cancel(gone, told=False)
        self._place(made, told=False)
        self._expect("no outbox row", changed, "changed", "never_published", "total", "notes")
        # Only its owner can publish a deletion that the log never had.
        self._expect("no outbox row", gone, "orphan", "never_published", mended="nobody")
        self._expect("no outbox row", made, "missing", "never_published")

    def _wrong_payload(self, ids: Iterator[int]) -> None:
        """A release that builds the payload of something else than the row."""
        changed = _take(ids, 2)
        self._change(changed, "total = total + 6", payload=_PAYLOAD.replace("'total', total", "'total', total - 6"))
        self._expect("wrong payload", changed, "changed", "payload_divergence", "total")

    def _wrong_id(self, ids: Iterator[int]) -> None:
        """A release that takes the id of another order for the outbox."""
        own, other = _take(ids, 1), _take(ids, 1)
        self._change(other, "paid = not paid")
        self._change(own, "notes = 'of another order'", of=str(*other))
        self._expect("told under another id", own, "changed", "never_published", "notes")
        with connected(self.pipeline.source.url) as cursor:
            cursor.execute(f"select {_COLUMNS} from orders where id = any(%s)", ([*own, *other],))
            rows = zip(_COLUMNS.split(", "), *cursor.fetchall(), strict=True)
        fields = [name for name, one, another in rows if one != another and name not in ("id", "version")]
        self._expect("another order's event", other, "changed", "payload_divergence", *fields)

    def _wrong_version(self, ids: Iterator[int]) -> None:
        """A release that puts another version into the outbox than into the row."""
        low, high = _take(ids, 1), _take(ids, 1)
        self._change(low, "total = total + 8", version="1")
        self._change(high, "total = total + 9", version="version + 50")
        self._change(high, "total = total + 9")
        self._expect("version too low", low, "changed", "never_published", "total")
        self._expect("version too high", high, "changed", "source_regressed", "total", mended="nobody")

    def _poison(self, ids: Iterator[int]) -> None:
        """Events that this release of the service cannot take: they are stashed, and what follows them too."""
        changed, made = _take(ids, 1), [self._new()]
        with self._stashing(2):
            self._change(changed, f"customer = '{_TOO_LONG.replace(chr(39), chr(39) * 2)}'")
            self._place(made, customer=_TOO_LONG)
        self._change(changed, "total = total + 3")
        self._expect("stashed", changed, "changed", "stashed", "customer", "total", mended="itself")
        self._expect("stashed", made, "missing", "stashed", mended="itself")

    def _damaged(self, ids: Iterator[int]) -> None:
        """An event that no release can read: it is stashed, until a person gives it up."""
        changed = _take(ids, 1)
        with self._stashing(1):
            self._change(changed, "total = total + 2", payload=f"left({_PAYLOAD}, 40)")
        self._expect("payload cut off", changed, "changed", "schema_violation", "total")

    def _lost_slot(self, ids: Iterator[int]) -> None:
        """A replication slot that was dropped, and made anew after some changes."""
        pipeline = self.pipeline
        changed, gone, made = _take(ids, 3), _take(ids, 1), [self._new(), self._new()]
        with pipeline.source.slot_dropped(pipeline.config()):
            self._change(changed, "total = total + 11, due = coalesce(due, date '2026-06-01') + 1")
            self._cancel(gone)
            self._place(made)
        self._expect("slot dropped", changed, "changed", "never_published", "total", "due")
        self._expect("slot dropped", gone, "orphan", "never_published", mended="nobody")
        self._expect("slot dropped", made, "missing", "never_published")

    def _moved_offsets(self, ids: Iterator[int]) -> None:
        """A service that was stopped, and whose offsets somebody moved."""
        changed, gone, made = _take(ids, 3), _take(ids, 2), [self._new(), self._new()]
        self.world.stop_service()
        self._change(changed, "total = total - 2")
        self._cancel(gone)
        self._place(made)
        self.pipeline.skip_to_end()
        self._expect("offsets moved", changed, "changed", "skipped", "total")
        self._expect("offsets moved", gone, "orphan", "skipped")
        self._expect("offsets moved", made, "missing", "skipped")

    def _hand_edits(self, ids: Iterator[int]) -> None:
        """Somebody works on the copy."""
        edited, deleted, phantoms, raised = [*_take(ids, 2), 1], _take(ids, 1), [99_001, 99_002], [ROWS + 11]
        with connected(self.pipeline.copy_url) as cursor:
            change = "total = total - 999, placed_at = placed_at - interval '1 h'"
            cursor.execute(f"update orders set {change} where id = any(%s)", (edited,))
            cursor.execute("delete from orders where id = any(%s)", (deleted,))
            execute_values(cursor, "insert into orders values %s", [self._row(id_) for id_ in (*phantoms, *raised)])
        self._expect("edited by hand", edited, "changed", "foreign_write", "total", "placed_at")
        self._expect("deleted by hand", deleted, "missing", "foreign_write")
        self._expect("phantom", phantoms, "orphan", "phantom")
        self._expect("put back by hand", raised, "orphan", "foreign_write")

    def _lag(self, ids: Iterator[int]) -> None:
        """A service that is behind: what its copy lacks will come."""
        changed, gone, made = _take(ids, 3), _take(ids, 1), [self._new()]
        self._change(changed, "total = total + 5")
        self._cancel(gone)
        self._place(made)
        self.pipeline.source.await_published()
        self.pipeline.await_confirmed()
        self._expect("service behind", changed, "changed", "in_flight", "total", mended="itself")
        self._expect("service behind", gone, "orphan", "in_flight", mended="itself")
        self._expect("service behind", made, "missing", "in_flight", mended="itself")

    def _waiting(self, ids: Iterator[int]) -> None:
        """A source that is paused: what its outbox has will be published."""
        changed, gone, made = _take(ids, 2), _take(ids, 1), [self._new()]
        self.world.connect.pause(self.pipeline.source.connector)
        self._change(changed, "total = total + 12")
        self._cancel(gone)
        self._place(made)
        self._expect("source paused", changed, "changed", "never_published", "total", mended="itself")
        self._expect("source paused", gone, "orphan", "never_published", mended="itself")
        self._expect("source paused", made, "missing", "never_published", mended="itself")

    def _place(self, ids: Iterable[int], *, told: bool = True, customer: str | None = None) -> None:
        rows = [self._row(id_, customer) for id_ in ids]
        with connected(self.pipeline.source.url) as cursor:
            insert = "insert into orders values %s returning *"
            tell = f"{_OUTBOX} id, 'OrderPlaced', version, {_PAYLOAD} from changed" if told else "select from changed"
            execute_values(cursor, f"with changed as ({insert}) {tell}", rows, page_size=len(rows))

    def _change(
        self,
        ids: Iterable[int],
        change: str,
        *,
        told: bool = True,
        of: str = "id",
        version: str = "version",
        payload: str = _PAYLOAD,
    ) -> None:
        update = f"update orders set {change}, version = version + 1 where id = any(%s) returning *"
        tell = f"{_OUTBOX} {of}, 'OrderChanged', {version}, {payload} from changed" if told else "select from changed"
        self.pipeline.source.change(f"with changed as ({update}) {tell}", list(ids))

    def _cancel(self, ids: Iterable[int], *, told: bool = True) -> None:
        delete = "delete from orders where id = any(%s) returning *"
        tell = f"{_OUTBOX} id, 'OrderCancelled', version + 1, null from changed" if told else "select from changed"
        self.pipeline.source.change(f"with changed as ({delete}) {tell}", list(ids))

    def _row(self, id_: int, customer: str | None = None) -> tuple[Any, ...]:
        draw = self._random
        day = draw.randrange(300)
        name = draw.choice(("Zoë", "Anna", "Jörg", "李雷")) + f" {id_}"
        return (
            id_,
            1,
            customer or name,
            Decimal(draw.randrange(-50_000, 5_000_000)) / 100,
            draw.random() < 0.5,
            draw.choice((None, date(2026, 1, 1) + timedelta(days=day + 3))),
            datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day, microseconds=draw.randrange(10**10)),
            draw.choice((None, "fragile", 'he said "call first"')),
        )

    def _new(self) -> int:
        self._newest += 1
        return self._newest

    def _expect(
        self, fault: str, ids: Iterable[int], difference: str, cause: str, *fields: str, mended: Mended = "correction"
    ) -> None:
        self.planted += [Planted(fault, str(id_), difference, cause, tuple(sorted(fields)), mended) for id_ in ids]

    @contextmanager
    def _stashing(self, count: int) -> Iterator[None]:
        """Wait at the end of the block until so many orders more are blocked."""
        before = self.pipeline.stashed()
        yield
        process.wait_until(
            lambda: self.pipeline.stashed() >= before + count, f"there are not {count} stashed orders more", _PATIENCE
        )


def _take(ids: Iterator[int], count: int) -> list[int]:
    return [next(ids) for _ in range(count)]
