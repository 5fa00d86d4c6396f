"""What the log says of the aggregates that a plan corrects: their keys, their last records, their newest state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from reconcile.audit.columns import GONE
from reconcile.domain.canonical import version_number
from reconcile.gather.log.history_columns import (
    DELETES,
    ID,
    KEY,
    OFFSET,
    PARTITION,
    READABLE,
    TIMESTAMP,
    TYPE,
    VALUE,
    VERSION,
)
from reconcile.repair.json_values import Path, loads

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class LoggedAggregate:
    """What the log has of one aggregate."""

    last: Mapping[int, int] = field(default_factory=dict)
    """The offset of its last record in each partition."""
    key: bytes | None = None
    newest: int | None = None
    """The partition of its newest record."""
    version: int | None = None
    type: str | None = None
    """The type of its newest event with a state; on a patch topic of one that carries what a correction carries."""
    body: Mapping[str, Any] | None = None
    """What its newest event with a state says."""
    version_text: str | None = None
    """Its newest version as the log writes it."""
    alive: bool = False
    """Whether its newest event does not delete it."""
    adding_type: str | None = None
    """The type of its newest event that carries an amount."""

    def arrived_since(self, ends: Mapping[int, int]) -> bool:
        """Decide whether the log has records of it behind these ends of its partitions; not if there are no ends."""
        return bool(ends) and any(last >= ends.get(partition, 0) for partition, last in self.last.items())


def logged_aggregates(
    records: DataFrame,
    ids: DataFrame,
    ignored: Collection[str],
    paths: Sequence[Path] = (),
    amounts: Sequence[Path] = (),
) -> dict[str, LoggedAggregate]:
    """Read what the log has of each of these ids; `ids` has the column `id`, and `records` have GONE.

    The type of an event is that of those which carry one of the paths; `amounts` are those of what events add.
    """
    from pyspark.sql import functions as f

    own = records.join(f.broadcast(ids.select(ID).distinct()), ID, "left_semi")
    plain = ~f.coalesce(f.col(TYPE).isin(*ignored), f.lit(False)) if ignored else f.lit(True)
    state = f.col(READABLE) & ~f.col(DELETES) & plain
    at = f.struct(TIMESTAMP, PARTITION, OFFSET)
    whole = f.when(f.col(VERSION).rlike(r"^\d{1,18}$"), f.col(VERSION).try_cast("bigint"))
    adds = _carries(amounts) if amounts else f.lit(False)

    def last(value: Column | str, which: Column) -> Column:
        # Times compare partitions alone: in one of them the offset is the order, whatever the producers' clocks say.
        return f.max_by(value, f.when(which, f.col(OFFSET)))

    grouped = own.groupBy(ID, PARTITION).agg(
        f.max(OFFSET).alias("last"),
        last(KEY, f.lit(True)).alias("key"),
        last(at, f.lit(True)).alias("at"),
        f.max(whole).alias("highest"),
        last(VERSION, plain).alias("version"),
        last(at, plain).alias("plain_at"),
        last(f.coalesce(f.col(GONE), f.lit(False)), plain).alias("deletes"),
        last(at, state).alias("state_at"),
        last(VALUE, state).alias("value"),
        last(at, state & _carries(paths)).alias("typed_at"),
        last(TYPE, state & _carries(paths)).alias("type"),
        last(at, state & adds).alias("adding_at"),
        last(TYPE, state & adds).alias("adding_type"),
    )
    found: dict[str, list[Any]] = {}
    for row in grouped.collect():
        found.setdefault(row[ID], []).append(row)
    return {id_text: _logged(rows) for id_text, rows in found.items()}


def _carries(paths: Sequence[Path]) -> Column:
    from pyspark.sql import functions as f

    if not paths:
        return f.lit(True)
    places = ("$" + "".join(f"['{step}']" for step in path) for path in paths)
    return reduce(or_, (f.get_json_object(VALUE, place).isNotNull() for place in places))


def _logged(rows: list[Any]) -> LoggedAggregate:
    newest, plain, state, typed, adding = (
        _newest(rows, name) for name in ("at", "plain_at", "state_at", "typed_at", "adding_at")
    )
    versions = [row["highest"] for row in rows if row["highest"] is not None]
    version = str(max(versions)) if versions else newest["version"]
    return LoggedAggregate(
        last={row[PARTITION]: row["last"] for row in rows},
        key=None if newest["key"] is None else bytes(newest["key"]),
        newest=newest[PARTITION],
        version=version_number(version),
        type=None if typed is None else typed["type"],
        adding_type=None if adding is None else adding["adding_type"],
        body=None if state is None or state["value"] is None else _body(state["value"]),
        version_text=version,
        alive=plain is not None and not plain["deletes"],
    )


def _body(value: str) -> Any:
    """Parse a state; None for one that is nested deeper than can be read."""
    try:
        return loads(value)
    except RecursionError:
        return None


def _newest(rows: list[Any], at: str) -> Any:
    return max((row for row in rows if row[at] is not None), key=lambda row: row[at], default=None)
