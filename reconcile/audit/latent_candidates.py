"""Which ids may break although they agree: found over the whole log by narrow columns, decided one by one later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from reconcile.audit.columns import ROUTING
from reconcile.audit.home_partition import Router, with_routing
from reconcile.domain.case import Routing
from reconcile.gather.evidence.ledger import as_spelled
from reconcile.gather.log.history_columns import (
    EVENT_ID,
    ID,
    KEY,
    OFFSET,
    PARTITION,
    READABLE,
    TIMESTAMP,
    TYPE,
    VERSION,
)
from reconcile.gather.log.offset_columns import by_partition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DENSE = 0.9
"""Versions count as growing by one where so many of all steps do."""


Hold = Callable[["DataFrame"], "DataFrame"]
"""Keeps what was computed of a frame in memory, for as long as its owner needs it."""


@dataclass(frozen=True)
class Shape:
    """What one look over the log tells of it."""

    misrouted: DataFrame
    """The ids whose newest record stands in a wrong partition."""
    gapped: DataFrame
    """The ids of which versions are missing: that means something only where versions are dense."""
    dense_versions: bool


def shape(log: DataFrame, router: Router, ignored: Collection[str], hold: Hold) -> Shape:
    """Look at the log once by id and partition, and once by id and version."""
    from pyspark.sql import functions as f

    counted = _telling(log, ignored).where(READABLE)
    versions = hold(_versions(counted))
    steps = versions.agg(f.sum(f.col("known") - 1).alias("steps"), f.sum(f.col("span") - 1).alias("all")).collect()[0]
    every = steps["all"] or 0
    return Shape(
        misrouted=hold(_misrouted(counted, router)),
        gapped=versions.where(f.col("span") > f.col("known")).select(f.col(ID).alias("id")),
        dense_versions=every > 0 and steps["steps"] / every >= DENSE,
    )


def candidates(
    shape: Shape,
    log: DataFrame,
    parked: DataFrame,
    ledger: DataFrame | None,
    committed: Mapping[int, int | None],
    ledger_begins: Mapping[int, int] | None,
    ignored: Collection[str],
    hold: Hold,
    nameless: Column | None = None,
) -> DataFrame:
    """Give the ids to look at, in the column `id`; the ledger cannot know records that are `nameless`."""
    from pyspark.sql import functions as f

    found = [
        parked.where(f.col("resolved").isNull() & f.col("id").isNotNull()).select("id"),
        shape.misrouted,
    ]
    if shape.dense_versions:
        found.append(shape.gapped)
    if ledger is not None:
        named = log if nameless is None else log.where(~nameless)
        found.append(_unledgered(named, ledger, committed, ledger_begins, ignored, hold))
    return reduce(lambda left, right: left.unionByName(right), found).distinct()


def _telling(log: DataFrame, ignored: Collection[str]) -> DataFrame:
    """Give the records of aggregates, but for those of types that say nothing of them."""
    from pyspark.sql import functions as f

    known = log.where(f.col(ID).isNotNull())
    return known.where(~f.coalesce(f.col(TYPE).isin(*ignored), f.lit(False))) if ignored else known


def _versions(counted: DataFrame) -> DataFrame:
    """Give for each id how many versions are known, and how many there are from the lowest to the highest."""
    from pyspark.sql import functions as f

    version = f.when(f.col(VERSION).rlike(r"^\d{1,18}$"), f.col(VERSION).try_cast("bigint"))
    # Brought together by id first, both steps stay where they are; `count_distinct` would move everything twice.
    together = counted.select(ID, version.alias("version")).where("version is not null").repartition(ID)
    span = f.max("version") - f.min("version") + 1
    return together.distinct().groupBy(ID).agg(f.count(f.lit(1)).alias("known"), span.alias("span"))


def _misrouted(counted: DataFrame, router: Router) -> DataFrame:
    from pyspark.sql import functions as f

    # Of plain numbers alone: for the maximum of anything else Spark sorts the whole log.
    places = counted.groupBy(ID, PARTITION, KEY).agg(f.max(OFFSET).alias(OFFSET), f.max(TIMESTAMP).alias(TIMESTAMP))
    wrong = f.col(ROUTING) == Routing.WRONG.value
    newest = [f.max(f.when(there, f.col(TIMESTAMP))) for there in (wrong, ~wrong)]
    of_id = with_routing(places, router).groupBy(ID).agg(newest[0].alias("astray"), newest[1].alias("at_home"))
    at_home = f.coalesce(f.col("astray") < f.col("at_home"), f.lit(False))
    return of_id.where(f.col("astray").isNotNull() & ~at_home).select(f.col(ID).alias("id"))


def _unledgered(
    log: DataFrame,
    ledger: DataFrame,
    committed: Mapping[int, int | None],
    begins: Mapping[int, int] | None,
    ignored: Collection[str],
    hold: Hold,
) -> DataFrame:
    """Give the ids of events that the group has passed and the ledger does not know."""
    from pyspark.sql import functions as f

    passed = _telling(log, ignored).where(f.col(OFFSET) < by_partition(committed))
    if begins:
        passed = passed.where(f.col(OFFSET) >= by_partition(begins))
    unknown = passed.select(f.col(ID).alias("id"), PARTITION, OFFSET, EVENT_ID)
    if begins:
        places = ledger.where(f.col("offset").isNotNull()).select(
            f.col("partition").alias("_partition"), f.col("offset").alias("_offset")
        )
        same = (f.col(PARTITION) == f.col("_partition")) & (f.col(OFFSET) == f.col("_offset"))
        # By places nearly all are known, and cheaply: names are long, and may be spelled in several ways.
        unknown = hold(unknown.join(places, same, "left_anti"))
        if unknown.isEmpty():
            return unknown.select("id")
    names = ledger.where(f.col("event_id").isNotNull()).select(f.col("event_id").alias("_event_id"))
    return unknown.join(names, as_spelled(EVENT_ID) == as_spelled("_event_id"), "left_anti").select("id")
