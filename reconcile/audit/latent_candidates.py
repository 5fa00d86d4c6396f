"""Which ids may break although they agree: found over the whole log by narrow columns, decided one by one later."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from reconcile.audit.partitioning import Router
from reconcile.audit.routing import ROUTING, with_routing
from reconcile.domain.case import Routing
from reconcile.gather.history_columns import (
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
from reconcile.gather.ledger import as_spelled
from reconcile.gather.offset_columns import by_partition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DENSE = 0.9
"""Versions count as growing by one where so many of all steps do."""


@dataclass(frozen=True)
class Shape:
    """What one pass over the log tells of it."""

    ids: DataFrame
    """For each id that the log knows how many versions are missing, and where its newest record stands."""
    dense_versions: bool


def shape(log: DataFrame, router: Router, ignored: Collection[str]) -> Shape:
    """Look at the log once: per id and partition, then per id."""
    from pyspark.sql import functions as f

    counted = log.where(f.col(ID).isNotNull() & f.col(READABLE))
    if ignored:
        counted = counted.where(~f.coalesce(f.col(TYPE).isin(*ignored), f.lit(False)))
    version = f.when(f.col(VERSION).rlike(r"^\d{1,18}$"), f.col(VERSION).try_cast("bigint"))
    by_place = counted.groupBy(ID, PARTITION).agg(
        f.max(f.struct(TIMESTAMP, OFFSET)).alias("newest"), f.first(KEY).alias(KEY)
    )
    routed = with_routing(
        by_place.select(ID, PARTITION, KEY, f.col(f"newest.{OFFSET}").alias(OFFSET), "newest"), router
    )
    routing = routed.groupBy(ID).agg(f.max_by(ROUTING, "newest").alias("routing"))
    versions = counted.groupBy(ID).agg(
        f.count_distinct(version).alias("known"), (f.max(version) - f.min(version) + 1).alias("span")
    )
    ids = routing.join(versions, ID).withColumn("gaps", f.col("span") - f.col("known")).persist()
    steps = ids.agg(f.sum(f.col("known") - 1).alias("steps"), f.sum(f.col("span") - 1).alias("all")).collect()[0]
    every = steps["all"] or 0
    return Shape(ids, dense_versions=every > 0 and steps["steps"] / every >= DENSE)


def candidates(
    shape: Shape,
    log: DataFrame,
    parked: DataFrame,
    ledger: DataFrame | None,
    committed: Mapping[int, int | None],
    ledger_begins: Mapping[int, int] | None,
    ignored: Collection[str],
    nameless: Column | None = None,
) -> DataFrame:
    """Give the ids to look at, in the column `id`; the ledger cannot know records that are `nameless`."""
    from pyspark.sql import functions as f

    found = [
        parked.where(f.col("resolved").isNull() & f.col("id").isNotNull()).select("id"),
        shape.ids.where(f.col("routing") == Routing.WRONG.value).select(f.col(ID).alias("id")),
    ]
    if shape.dense_versions:
        found.append(shape.ids.where(f.col("gaps") > 0).select(f.col(ID).alias("id")))
    if ledger is not None:
        named = log if nameless is None else log.where(~nameless)
        found.append(_unledgered(named, ledger, committed, ledger_begins, ignored))
    return reduce(lambda left, right: left.unionByName(right), found).distinct()


def _unledgered(
    log: DataFrame,
    ledger: DataFrame,
    committed: Mapping[int, int | None],
    begins: Mapping[int, int] | None,
    ignored: Collection[str],
) -> DataFrame:
    """Give the ids of events that the group has passed and the ledger does not know."""
    from pyspark.sql import functions as f

    passed = log.where(f.col(ID).isNotNull() & (f.col(OFFSET) < by_partition(committed)))
    if begins:
        passed = passed.where(f.col(OFFSET) >= by_partition(begins))
    if ignored:
        passed = passed.where(~f.coalesce(f.col(TYPE).isin(*ignored), f.lit(False)))
    named = ledger.where(f.col("event_id").isNotNull()).select(f.col("event_id").alias("_event_id"))
    places = ledger.where(f.col("offset").isNotNull()).select(
        f.col("partition").alias("_partition"), f.col("offset").alias("_offset")
    )
    narrow = passed.select(f.col(ID).alias("id"), PARTITION, OFFSET, EVENT_ID)
    unnamed = narrow.join(named, as_spelled(EVENT_ID) == as_spelled("_event_id"), "left_anti")
    same = (f.col(PARTITION) == f.col("_partition")) & (f.col(OFFSET) == f.col("_offset"))
    return unnamed.join(places, same, "left_anti").select("id")
