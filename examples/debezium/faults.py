"""The faults that such a pipeline has in life, planted as they happen there, and the truth about them."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from psycopg2.extras import execute_values

from examples.connect.trial import Mended, Planted
from examples.connect.world import World
from examples.debezium.pipeline import HERE, Pipeline
from reconcile.lab import process
from reconcile.lab.services.database import connected

_LOG = logging.getLogger(__name__)
_PATIENCE = 120
ROWS = 300
_TOO_LONG = "a customer whose name is longer than the copy's column has room for"
_INSERT = "insert into orders values %s"
_WITHOUT_SCHEMA = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
_COLUMNS = "id, version, customer, reference::text, total, paid, due, ship_by, placed_at, notes"


@dataclass
class Orders:
    """The orders of one variant, and their faults; each order has one fault at most."""

    world: World
    variant: str
    planted: list[Planted] = field(default_factory=list)
    _random: random.Random = field(default_factory=lambda: random.Random(2026))  # noqa: S311
    _source: dict[str, str] = field(default_factory=dict)
    _sink: dict[str, str] = field(default_factory=dict)
    _newest: int = 1000

    rows = f"select {_COLUMNS} from orders"

    @property
    def pipeline(self) -> Pipeline:
        """Where the orders go."""
        return Pipeline(self.world, self.variant)

    @property
    def contract(self) -> Path:
        """The committed contract."""
        return HERE / ("contract.yaml" if self.variant == "full" else f"contract-{self.variant}.yaml")

    @property
    def databases(self) -> tuple[str, str]:
        """The databases of shop and copy."""
        return f"shop_{self.variant}", f"copy_{self.variant}"

    def provide(self) -> None:
        """Create databases, tables and topics."""
        self.pipeline.provide()

    def go_on(self) -> None:
        """Let the sink go on."""
        self.world.connect.resume(self.pipeline.sink)

    def seed(self) -> None:
        """Fill the shop before the connectors start, then let people work, and wait for the copy."""
        pipeline, connect = self.pipeline, self.world.connect
        _LOG.info(f"{self.variant}: seeding {ROWS} orders, and starting the connectors")
        self._insert(range(1, ROWS + 1))
        self._source, self._sink = pipeline.config("source"), pipeline.config("sink")
        connect.configure(pipeline.source.connector, self._source)
        connect.configure(pipeline.sink, self._sink)
        for _ in range(3):
            self._update(range(1, ROWS + 1), "total = total + 1.25, paid = not paid")
        self._insert(range(ROWS + 1, ROWS + 21))
        self._delete(range(ROWS + 11, ROWS + 21))
        # Long texts that do not compress: Postgres keeps them apart.
        for id_ in (1, 2, 3):
            pipeline.source.change(
                "update orders set notes = %s, version = version + 1 where id = %s", self._text(6000), id_
            )
        pipeline.await_copied()

    def plant(self) -> list[Planted]:
        """Plant every fault; the sink stays paused at the end."""
        ids = iter(range(10, 200))
        _LOG.info(f"{self.variant}: planting faults")
        self._unavailable()
        self._dropped_deletions(ids)
        self._refused(ids)
        self._dead_letters("dead letter", ids)
        if self.variant == "flat":
            self._uncastable(ids)
        self._update(range(200, ROWS + 1), "paid = not paid")  # life goes on
        self.pipeline.await_copied()
        self._moved_offsets(ids)
        self._lost_slot(ids)
        self._hand_edits(ids)
        self._dead_letters("newest dead letter", ids)
        self._lag(ids)
        return self.planted

    def _unavailable(self) -> None:
        """A long text that did not change is not in the change: the sink copies the placeholder."""
        self._update((1, 2, 3), "total = total + 1")
        self.pipeline.source.change("update orders set notes = %s, version = version + 1 where id = 3", self._text(50))
        self._expect("unchanged long text", (1, 2), "changed", "payload_divergence", "notes")
        self.pipeline.await_copied()

    def _dropped_deletions(self, ids: Iterator[int]) -> None:
        """A sink that was set up without deletions for a while."""
        gone = _take(ids, 2)
        self._configure_sink(**{"delete.enabled": "false"})
        self._delete(gone)
        self.pipeline.await_copied()
        self._configure_sink()
        # A deletion is repaired where its cause is certain; a sink that keeps no ledger leaves it possible.
        self._expect("deletions dropped", gone, "orphan", "skipped", mended="nobody")

    def _refused(self, ids: Iterator[int]) -> None:
        """A value that the copy's column cannot take stops the sink, until somebody moves it past all that waits."""
        pipeline, connect = self.pipeline, self.world.connect
        refused, beside = _take(ids, 1), _take(ids, 1)
        pipeline.source.change(
            "update orders set customer = %s, version = version + 1 where id = %s", _TOO_LONG, *refused
        )
        connect.await_state(pipeline.sink, "FAILED")
        self._update(beside, "total = total + 7")
        self._skip_to_end()
        with connected(pipeline.copy_url) as cursor:
            cursor.execute("alter table orders alter customer type text")
        connect.resume(pipeline.sink)
        self._expect("value too long", refused, "changed", "skipped", "customer")
        self._expect("behind a value too long", beside, "changed", "skipped", "total")

    def _dead_letters(self, fault: str, ids: Iterator[int]) -> None:
        """A source that wrote without schemas for a while: the sink's converter reads no such record."""
        pipeline = self.pipeline
        changed, made = _take(ids, 1), [self._new()]
        self._configure_source(**_WITHOUT_SCHEMA)
        with self._letters(2):
            self._update(changed, "total = total + 3")
            self._insert(made)
            pipeline.source.await_published()
        self._configure_source()
        # An envelope may stand alone; a row that stands alone has not the form that the contract says.
        cause = "dead_lettered" if self.variant == "full" else "schema_violation"
        self._expect(fault, changed, "changed", cause, "total")
        self._expect(fault, made, "missing", cause)

    def _uncastable(self, ids: Iterator[int]) -> None:
        """A text that the sink is to cast to a number; later the copy's column becomes a text."""
        pipeline = self.pipeline
        changed = _take(ids, 2)
        with self._letters(2):
            self._update(changed, "reference = 'A-' || reference")
        with connected(pipeline.copy_url) as cursor:
            cursor.execute("alter table orders alter reference type text")
        self._sink = {name: value for name, value in self._sink.items() if not name.startswith("transforms")}
        self._configure_sink()
        self._expect("no number", changed, "changed", "dead_lettered", "reference")

    def _moved_offsets(self, ids: Iterator[int]) -> None:
        """A sink that was stopped, and whose offsets somebody moved."""
        pipeline, connect = self.pipeline, self.world.connect
        changed, gone, made = _take(ids, 3), _take(ids, 2), [self._new(), self._new()]
        connect.stop(pipeline.sink)
        self._update(changed, "total = total - 2, due = coalesce(due, date '2026-06-01') + 1")
        self._delete(gone)
        self._insert(made)
        self._skip_to_end()
        connect.resume(pipeline.sink)
        self._expect("offsets moved", changed, "changed", "skipped", "total", "due")
        self._expect("offsets moved", gone, "orphan", "skipped", mended="nobody")
        self._expect("offsets moved", made, "missing", "skipped")

    def _lost_slot(self, ids: Iterator[int]) -> None:
        """A replication slot that was dropped, and made anew after some changes."""
        changed, gone, made = _take(ids, 3), _take(ids, 1), [self._new(), self._new()]
        with self.pipeline.source.slot_dropped(self._source):
            self._update(changed, "total = total + 11, ship_by = ship_by + interval '1 day'")
            self._delete(gone)
            self._insert(made)
        self._source["snapshot.mode"] = "no_data"
        self._expect("slot dropped", changed, "changed", "never_published", "total", "ship_by")
        # Only its owner can publish a deletion that the log never had.
        self._expect("slot dropped", gone, "orphan", "never_published", mended="nobody")
        self._expect("slot dropped", made, "missing", "never_published")

    def _hand_edits(self, ids: Iterator[int]) -> None:
        """Somebody works on the copy."""
        edited, deleted, phantoms = _take(ids, 2), _take(ids, 1), [99_001, 99_002]
        with connected(self.pipeline.copy_url) as cursor:
            change = "total = total - 999, placed_at = placed_at - interval '1 h'"
            cursor.execute(f"update orders set {change} where id = any(%s)", (edited,))
            cursor.execute("delete from orders where id = any(%s)", (deleted,))
            execute_values(cursor, _INSERT, [self._row(id_) for id_ in phantoms])
        self._expect("edited by hand", edited, "changed", "foreign_write", "total", "placed_at")
        self._expect("deleted by hand", deleted, "missing", "foreign_write")
        self._expect("phantom", phantoms, "orphan", "phantom")

    def _lag(self, ids: Iterator[int]) -> None:
        """A sink that is behind: what it lacks will come."""
        pipeline = self.pipeline
        changed, gone, made = _take(ids, 3), _take(ids, 1), [self._new()]
        self.world.connect.pause(pipeline.sink)
        self._update(changed, "total = total + 5")
        self._delete(gone)
        self._insert(made)
        pipeline.source.await_published()
        self._expect("sink behind", changed, "changed", "in_flight", "total", mended="itself")
        self._expect("sink behind", gone, "orphan", "in_flight", mended="itself")
        self._expect("sink behind", made, "missing", "in_flight", mended="itself")

    def _insert(self, ids: Iterable[int]) -> None:
        with connected(self.pipeline.source.url) as cursor:
            execute_values(cursor, _INSERT, [self._row(id_) for id_ in ids])

    def _update(self, ids: Iterable[int], change: str) -> None:
        self.pipeline.source.change(f"update orders set {change}, version = version + 1 where id = any(%s)", list(ids))

    def _delete(self, ids: Iterable[int]) -> None:
        self.pipeline.source.change("delete from orders where id = any(%s)", list(ids))

    def _row(self, id_: int) -> tuple[Any, ...]:
        draw = self._random
        day = draw.randrange(300)
        placed = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day, microseconds=draw.randrange(10**10))
        return (
            id_,
            1,
            draw.choice(("Zoë", "Anna", "Jörg", "李雷")) + f" {id_}",
            str(1000 + id_),
            Decimal(draw.randrange(-50_000, 5_000_000)) / 100,
            draw.random() < 0.5,
            draw.choice((None, date(2026, 1, 1) + timedelta(days=day + 3))),
            datetime(2026, 1, 1) + timedelta(days=day, seconds=draw.randrange(10**5)),  # noqa: DTZ001 - it has no zone
            placed,
            draw.choice((None, "fragile", 'he said "call first"')),
        )

    def _new(self) -> int:
        self._newest += 1
        return self._newest

    def _text(self, length: int) -> str:
        return self._random.randbytes(length).hex()

    def _expect(
        self, fault: str, ids: Iterable[int], difference: str, cause: str, *fields: str, mended: Mended = "correction"
    ) -> None:
        self.planted += [Planted(fault, str(id_), difference, cause, tuple(sorted(fields)), mended) for id_ in ids]

    def _configure_sink(self, **changes: str) -> None:
        self.world.reconfigure(self.pipeline.sink, {**self._sink, **changes})

    def _configure_source(self, **changes: str) -> None:
        self.world.reconfigure(self.pipeline.source.connector, {**self._source, **changes})

    def _skip_to_end(self) -> None:
        pipeline, connect = self.pipeline, self.world.connect
        ends = pipeline.source.await_published()
        connect.stop(pipeline.sink)
        connect.move(pipeline.sink, pipeline.source.topic, ends)

    @contextmanager
    def _letters(self, count: int) -> Iterator[None]:
        """Wait at the end of the block until so many dead letters more are there."""
        before = self.pipeline.letters()
        yield
        process.wait_until(
            lambda: self.pipeline.letters() >= before + count, f"there are not {count} dead letters more", _PATIENCE
        )


def _take(ids: Iterator[int], count: int) -> list[int]:
    return [next(ids) for _ in range(count)]
