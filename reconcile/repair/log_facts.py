"""What the log tells of the aggregates that a plan corrects: their keys, their last records, their newest state."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from reconcile.audit.home_partition import Router
from reconcile.audit.partitioner_inference import Inference
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
class Trace:
    """What the log has of one aggregate."""

    last: Mapping[int, int] = field(default_factory=dict)
    """The offset of its last record in each partition."""
    key: bytes | None = None
    newest: int | None = None
    """The partition of its newest record."""
    version: int | None = None
    type: str | None = None
    """The type of its newest event with a state; on a patch topic of one that tells of what a correction tells."""
    body: Mapping[str, Any] | None = None
    """What its newest event with a state says."""
    version_text: str | None = None
    """Its newest version as the log writes it."""


def traces(
    records: DataFrame, ids: DataFrame, ignored: Collection[str], telling: Sequence[Path] = ()
) -> dict[str, Trace]:
    """Give what the log has of each of these ids; `ids` has the column `id`."""
    from pyspark.sql import functions as f

    own = records.join(f.broadcast(ids.select(ID).distinct()), ID, "left_semi")
    plain = ~f.coalesce(f.col(TYPE).isin(*ignored), f.lit(False)) if ignored else f.lit(True)
    state = f.col(READABLE) & ~f.col(DELETES) & plain
    at = f.struct(TIMESTAMP, PARTITION, OFFSET)
    whole = f.when(f.col(VERSION).rlike(r"^\d{1,18}$"), f.col(VERSION).try_cast("bigint"))
    grouped = own.groupBy(ID, PARTITION).agg(
        f.max(OFFSET).alias("last"),
        f.max_by(KEY, at).alias("key"),
        f.max(at).alias("at"),
        f.max(whole).alias("highest"),
        f.max_by(f.when(plain, f.col(VERSION)), at).alias("version"),
        f.max(f.when(state, at)).alias("told_at"),
        f.max_by(VALUE, f.when(state, at)).alias("value"),
        f.max(f.when(state & _tells(telling), at)).alias("typed_at"),
        f.max_by(TYPE, f.when(state & _tells(telling), at)).alias("type"),
    )
    found: dict[str, list[Any]] = {}
    for row in grouped.collect():
        found.setdefault(row[ID], []).append(row)
    return {id_text: _trace(rows) for id_text, rows in found.items()}


def of_route(router: Router, partitions: int) -> Router:
    """Give the router of another topic that the same producers write to."""
    return replace(router, partitions=partitions, former=())


def unknown_home(topic: str, inference: Inference) -> str:
    """Say why it is not known where a key's future events will stand."""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in sorted(inference.shares.items(), key=lambda e: -e[1]))
    seen = f"of {inference.seen:,} records {shares} explain" if inference.seen else "no record tells"
    todo = "set topic.partitioner" if inference.trusted else "mend the publishers that differ"
    return f"it is not known where the keys of {topic} belong: {seen} their place; {todo}"


def _tells(telling: Sequence[Path]) -> Column:
    from pyspark.sql import functions as f

    if not telling:
        return f.lit(True)
    paths = ("$" + "".join(f"['{step}']" for step in path) for path in telling)
    return reduce(lambda left, right: left | right, (f.get_json_object(VALUE, path).isNotNull() for path in paths))


def _trace(rows: list[Any]) -> Trace:
    newest = max(rows, key=lambda row: row["at"])
    told = max((row for row in rows if row["told_at"] is not None), key=lambda row: row["told_at"], default=None)
    typed = max((row for row in rows if row["typed_at"] is not None), key=lambda row: row["typed_at"], default=None)
    versions = [row["highest"] for row in rows if row["highest"] is not None]
    version = str(max(versions)) if versions else newest["version"]
    return Trace(
        last={row[PARTITION]: row["last"] for row in rows},
        key=None if newest["key"] is None else bytes(newest["key"]),
        newest=newest[PARTITION],
        version=version_number(version),
        type=None if typed is None else typed["type"],
        body=None if told is None or told["value"] is None else loads(told["value"]),
        version_text=version,
    )
