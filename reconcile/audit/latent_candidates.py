"""Which ids may break although they agree: found over the whole log by narrow columns, decided one by one later."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from reconcile.audit.columns import ID, KNOWN, ROUTING, SPAN
from reconcile.audit.home_partition import Router, astray, astray_here, with_routing
from reconcile.domain.case import Routing
from reconcile.gather.evidence.ledger import as_spelled
from reconcile.gather.log.history_columns import (
    EVENT_ID,
    KEY,
    OFFSET,
    PARTITION,
    READABLE,
    TIMESTAMP,
    TYPE,
    VERSION,
    by_partition,
)
from reconcile.gather.log.state import AggregatePart, Found, Known
from reconcile.spark import local_frames

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

DENSE = 0.999
"""Versions count as growing by one where so many of all steps from an id's lowest to its highest are in the log."""
_STEPS, _STEPS_KNOWN = "steps", "steps_known"
_NUMBER = r"\A[0-9]{1,18}\z"
"""A version that is counted. Java and Arrow read it alike."""


def of_aggregates(log: DataFrame, ignored: Collection[str]) -> DataFrame:
    """Select the records of aggregates, but for those of types that say nothing of them."""
    from pyspark.sql import functions as f

    known = log.where(f.col(ID).isNotNull())
    return known.where(~f.coalesce(f.col(TYPE).isin(*ignored), f.lit(False))) if ignored else known


def versions(records: DataFrame) -> DataFrame:
    """Count for each id how many versions are known, and how many there are from the lowest to the highest."""
    from pyspark.sql import functions as f

    version = f.when(f.col(VERSION).rlike(_NUMBER), f.col(VERSION).try_cast("bigint"))
    # Brought together by id first, both steps stay where they are; `count_distinct` would move everything twice.
    together = records.select(ID, version.alias(VERSION)).where(f.col(VERSION).isNotNull()).repartition(ID)
    span = f.max(VERSION) - f.min(VERSION) + 1
    return together.distinct().groupBy(ID).agg(f.count(f.lit(1)).alias(KNOWN), span.alias(SPAN))


def version_gaps(ignored: Collection[str]) -> AggregatePart:
    """Name the part of the log's state that has the ids of which versions are missing, and sums that tell density."""
    return AggregatePart(
        name="version-gaps",
        rules=sorted(ignored),
        columns=f"{ID} string",
        of=lambda records: versions(of_aggregates(records, ignored).where(READABLE)),
        # Versions may be times in nanoseconds: their spans do not add up in 64 bits.
        sums={_STEPS_KNOWN: f"sum({KNOWN} - 1)", _STEPS: f"sum(cast({SPAN} - 1 as decimal(38,0)))"},
        kept=f"{SPAN} > {KNOWN}",
        here=lambda records: _version_gaps_here(_readable_here(records, ignored)),
    )


def _readable_here(records: pa.Table, ignored: Collection[str]) -> pa.Table:
    """Select of an Arrow table what `of_aggregates` selects, if it can be read."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    known = pc.and_(records.column(READABLE), pc.is_valid(records.column(ID)))
    types = pc.is_in(records.column(TYPE), pa.array(sorted(ignored), pa.string()))
    return records.filter(pc.and_(known, pc.invert(types)))


def _version_gaps_here(records: pa.Table) -> Found:
    import pyarrow as pa
    import pyarrow.compute as pc

    numbered = records.filter(pc.match_substring_regex(records.column(VERSION), _NUMBER))
    version = numbered.column(VERSION).cast(pa.int64())
    pairs = pa.table({ID: numbered.column(ID), VERSION: version}).group_by([ID, VERSION]).aggregate([])
    of_id = pairs.group_by(ID).aggregate([(VERSION, "count"), (VERSION, "min"), (VERSION, "max")])
    known = of_id.column(f"{VERSION}_count")
    steps = pc.subtract(of_id.column(f"{VERSION}_max"), of_id.column(f"{VERSION}_min"))
    sums = {_STEPS_KNOWN: sum(known.to_pylist()) - len(known), _STEPS: sum(steps.to_pylist())}
    return Found(sums, of_id.filter(pc.greater_equal(steps, known)).select([ID]))


def are_dense(gaps: Known) -> bool:
    """Decide whether versions are dense: only then does a missing one mean anything."""
    return gaps.sums[_STEPS] > 0 and gaps.sums[_STEPS_KNOWN] / gaps.sums[_STEPS] >= DENSE


def strays(ignored: Collection[str], router: Router) -> AggregatePart:
    """Name the part of the log's state that has the ids whose newest record stands in a wrong partition."""
    return AggregatePart(
        name="strays",
        rules=[sorted(ignored), router.rules],
        columns=f"{ID} string",
        of=lambda records: misrouted(of_aggregates(records, ignored).where(READABLE), router),
        sums={},
        here=lambda records: _misrouted_here(_readable_here(records, ignored), router),
    )


def misrouted(records: DataFrame, router: Router) -> DataFrame:
    """Select the ids whose newest record stands in a wrong partition."""
    from pyspark.sql import functions as f

    # Hardly any record is astray: where so, only the records of its id are looked at one by one.
    few = local_frames.localized(records.where(astray(router)).select(ID).distinct(), local_frames.MOST)
    if few is not None:
        records = records.join(f.broadcast(few), ID, "left_semi")
    # Of plain numbers alone: for the maximum of anything else Spark sorts the whole log.
    places = records.groupBy(ID, PARTITION, KEY).agg(f.max(OFFSET).alias(OFFSET), f.max(TIMESTAMP).alias(TIMESTAMP))
    wrong = f.col(ROUTING) == Routing.WRONG.value
    newest = [f.max(f.when(there, f.col(TIMESTAMP))) for there in (wrong, ~wrong)]
    of_id = with_routing(places, router).groupBy(ID).agg(newest[0].alias("astray"), newest[1].alias("at_home"))
    at_home = f.coalesce(f.col("astray") < f.col("at_home"), f.lit(False))
    return of_id.where(f.col("astray").isNotNull() & ~at_home).select(ID)


def _misrouted_here(records: pa.Table, router: Router) -> Found:
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [records.column(name).combine_chunks() for name in (KEY, PARTITION, OFFSET)]
    some = records.filter(astray_here(router, *columns)).column(ID).unique()
    near = records.filter(pc.is_in(records.column(ID), some))
    newest = near.group_by([ID, PARTITION, KEY]).aggregate([(OFFSET, "max"), (TIMESTAMP, "max")])
    at: dict[str, dict[bool, int]] = {}
    times = newest.column(f"{TIMESTAMP}_max").cast(pa.int64()).to_pylist()
    places = (newest.column(name).to_pylist() for name in (ID, KEY, PARTITION, f"{OFFSET}_max"))
    for id_text, *place, time in zip(*places, times, strict=True):
        is_astray, known = router.routing(*place)[0] is Routing.WRONG, at.setdefault(id_text, {})
        if time is not None:
            known[is_astray] = max(known.get(is_astray, time), time)
    found = [each for each, newest in at.items() if True in newest and newest[True] >= newest.get(False, newest[True])]
    return Found({}, pa.table({ID: pa.array(found, pa.string())}))


def unresolved(parked: DataFrame) -> DataFrame:
    """Select the ids of what a consumer has put aside, and nobody has resolved."""
    from pyspark.sql import functions as f

    return parked.where(f.col("resolved").isNull() & f.col(ID).isNotNull()).select(ID)


def passed(
    records: DataFrame, committed: Mapping[int, int | None], ledger_begins: Mapping[int, int] | None
) -> DataFrame:
    """Select the events that a group has committed past, from where its ledger begins."""
    from pyspark.sql import functions as f

    found = records.where(f.col(OFFSET) < by_partition(committed))
    if ledger_begins:
        found = found.where(f.col(OFFSET) >= by_partition(ledger_begins))
    return found.select(ID, PARTITION, OFFSET, EVENT_ID)


def without_place(events: DataFrame, ledger: DataFrame) -> DataFrame:
    """Select the events whose places a ledger does not have."""
    from pyspark.sql import functions as f

    places = ledger.where(f.col("offset").isNotNull()).select(
        f.col("partition").alias("_partition"), f.col("offset").alias("_offset")
    )
    same = (f.col(PARTITION) == f.col("_partition")) & (f.col(OFFSET) == f.col("_offset"))
    return events.join(places, same, "left_anti")


def without_name(events: DataFrame, ledger: DataFrame) -> DataFrame:
    """Select the ids of the events whose names a ledger does not have."""
    from pyspark.sql import functions as f

    names = ledger.where(f.col("event_id").isNotNull()).select(f.col("event_id").alias("_event_id"))
    return events.join(names, as_spelled(EVENT_ID) == as_spelled("_event_id"), "left_anti").select(ID)
