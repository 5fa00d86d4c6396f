"""What all aggregates of a link share, by the contract, both fences and the log's history."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from reconcile.contract.model import Consumer, Contract
from reconcile.domain import untold
from reconcile.domain.canonical import CanonicalType
from reconcile.domain.case import FieldRule, Link, Place
from reconcile.gather.evidence.ledger import as_spelled
from reconcile.gather.fence.fence import ConsumerFence, Fence
from reconcile.gather.log.history_columns import EVENT_ID, TIMESTAMP
from reconcile.gather.log.index import Index
from reconcile.gather.stores.library_tables import LEDGER, Registration
from reconcile.spark import local_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Reach:
    """From where on a ledger knows what was applied; None where it does not say."""

    begins: dict[int, int] | None
    """The first offset by partition."""
    since: datetime | None


@dataclass(frozen=True)
class KnownLog:
    """What all links of a run share of the topic's log."""

    index: Index
    dense_versions: bool
    """Whether its versions grow by one."""
    corrections: Collection[tuple[str | None, int, int]] = ()
    """Where corrections of earlier runs stand: id, partition, offset."""
    unread: Collection[int] = ()
    """The partitions where too much is behind an open transaction to be looked at."""


def field_rules(consumer: Consumer, form: Sequence[CanonicalType]) -> tuple[FieldRule, ...]:
    """Build how each field is compared."""
    return tuple(
        FieldRule(field.name, to.kind, field.apply == "add", field.tolerance, field.event is not None)
        for field, to in zip(consumer.fields, form, strict=True)
    )


def ledger_by_position(contract: Contract, consumer: Consumer) -> bool:
    """Decide whether a ledger knows events by Debezium's position alone."""
    ledger, topic = consumer.failure.ledger, contract.topic
    return ledger is not None and ledger.offset is None and topic.event_id is None and topic.format == "debezium-json"


def link_facts(
    contract: Contract,
    consumer: Consumer,
    rules: tuple[FieldRule, ...],
    log: KnownLog,
    reach: Reach,
    before: Fence,
    now: Fence,
) -> Link:
    """Put them together; `before` is the fence of the first reading, `now` that of the second."""
    group = now.consumer(consumer.name)
    registration = group.registration(contract.topic.name)
    columns = [None] * len(rules) if group.types is None else group.types.fields
    return Link(
        name=contract.link(consumer),
        topic=contract.topic.name,
        fields=tuple(replace(rule, column=column) for rule, column in zip(rules, columns, strict=True)),
        places=_places(before, before.consumer(consumer.name), now, log),
        patch=contract.topic.state == "patch",
        records=consumer.semantics == "records",
        expires=consumer.expires,
        event_versions=contract.topic.version is not None,
        source_versions=contract.source.version is not None,
        copy_versions=consumer.version is not None,
        dense_versions=log.dense_versions,
        guarded=consumer.guard != "none",
        compacted=now.topic.compacted,
        ledger=consumer.failure.ledger is not None or (registration is not None and registration.ledger),
        ledger_begins=_ledger_begins(consumer, registration, reach, now),
        ledger_since=reach.since,
        untold=untold.in_copies(contract.topic.untold),
        ledger_by_position=ledger_by_position(contract, consumer),
        corrections=log.corrections,
    )


def _ledger_begins(
    consumer: Consumer, registration: Registration | None, reach: Reach, now: Fence
) -> Mapping[int, int] | None:
    """Choose from where on nothing is pruned: the library's ledger may have lost whatever the topic no longer has.

    Its oldest entry does not tell: of what was given up it stays.
    """
    declared = consumer.failure.ledger
    by_library = registration is not None if declared is None else declared.table == LEDGER
    if reach.begins is None or not by_library:
        return reach.begins
    return {each.partition: max(each.begin, reach.begins.get(each.partition, 0)) for each in now.topic.partitions}


def _places(before: Fence, group: ConsumerFence, now: Fence, log: KnownLog) -> dict[int, Place]:
    index = log.index
    settled = {place.partition: place.log_end for place in before.topic.partitions}
    committed = {place.partition: place.committed_before for place in group.places}
    undecided = {each.partition: each.begin for each in now.topic.open}
    places = {}
    for each in now.topic.partitions:
        held, missing = index.held(each.partition), index.missing(each.partition)
        # What is held may have a hole in it: only from its end on nothing is missing.
        begin = missing[-1][1] if missing else held[0][0] if held else each.begin
        places[each.partition] = Place(
            begin=begin,
            settled_end=settled.get(each.partition, 0),
            log_end=each.log_end,
            committed=committed.get(each.partition),
            open=undecided.get(each.partition),
            unread=each.partition in log.unread,
        )
    return places


def ledger_reach(ledger: DataFrame | None, entries: DataFrame | None, events: DataFrame) -> Reach:
    """Query from where on a ledger knows: what stands before its first entry may have been cleaned away.

    `ledger` is the ledger, or its first offset and time by partition. Where it has neither, the oldest of the `events`
    that its `entries` name counts.
    """
    from pyspark.sql import functions as f

    if ledger is None:
        return Reach(None, None)
    bounds = ledger.select("partition", f.col("offset").alias("begin"), f.unix_micros("at").alias("since"))
    rows: Sequence[Any] | None = local_frames.plain_rows(bounds)
    if rows is None:
        rows = bounds.groupBy("partition").agg(f.min("begin").alias("begin"), f.min("since").alias("since")).collect()
    begins: dict[int, int] = {}
    for partition, begin in ((row["partition"], row["begin"]) for row in rows):
        if partition is not None and begin is not None:
            begins[partition] = min(begin, begins.get(partition, begin))
    times = [row["since"] for row in rows if row["since"] is not None]
    if not begins and not times and entries is not None:
        named = entries.select(as_spelled("event_id").alias("_named"))
        known = events.join(named, as_spelled(EVENT_ID) == f.col("_named"), "left_semi")
        oldest = known.agg(f.unix_micros(f.min(TIMESTAMP)).alias("since")).collect()[0]["since"]
        times = [] if oldest is None else [oldest]
    return Reach(begins or None, datetime.fromtimestamp(min(times) / 1_000_000, UTC) if times else None)
