"""What the checks of a topology look at: the contract, the fence, the cluster, and what the log shows of its order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from reconcile.audit.columns import ROUTED_BY, ROUTING
from reconcile.audit.home_partition import Router, with_routing
from reconcile.audit.partitioner_inference import Inference, infer_from_log
from reconcile.audit.topology import parts_here
from reconcile.contract.model import Consumer, Contract
from reconcile.domain import mapping
from reconcile.domain.case import Routing
from reconcile.gather.fence.fence import ConsumerFence, Fence
from reconcile.gather.log.history_columns import (
    DELETES,
    ID,
    KEY,
    OFFSET,
    PARTITION,
    READABLE,
    TIMESTAMP,
    TOMBSTONE,
    TYPE,
    VALUE,
    VERSION,
)
from reconcile.gather.log.state import AggregatePart, Known, LogState, RecordPart
from reconcile.gather.topology_facts import ClusterFacts
from reconcile.kafka.layout import TopicLayout
from reconcile.spark import parsed_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from reconcile.audit.event_tests import EventTest
    from reconcile.contract.model import Topic
    from reconcile.gather.log.index import Growth, Index

MOST_TYPES = 100
"""So many types of events are looked at, the most frequent first."""
_SHAPES_FROM = 100_000  # so many records, spread over the log, tell which fields events carry
_DELETION_FORMS = (
    "$.__op == 'd'",
    "$.__deleted == 'true'",
    "$.payload.__deleted == 'true'",
    "$.payload.__op == 'd' and $.payload.__deleted is null",
    "$.op == 'd' and $.source is not null",
    "$.payload.op == 'd' and $.payload.source is not null",
    "$.schema is not null and $.payload is null",
)
"""How Debezium, its unwrapping and Connect's JSON converter write deletions."""


@dataclass(frozen=True)
class TypeFacts:
    """What the log holds of one type of events."""

    name: str | None
    records: int
    unreadable: int = 0
    """Values that cannot be read."""
    unversioned: int = 0
    """Readable ones without the version that the contract asks for."""
    always: frozenset[str] = frozenset()
    """The fields that each of its values has."""
    ever: frozenset[str] = frozenset()
    """The fields that some of its values have."""


@dataclass(frozen=True)
class Placement:
    """Where the ids of a log stand."""

    ids: int = 0
    spread: int = 0
    """Ids whose records stand in several partitions."""
    grown: int = 0
    """Those of them that growth alone explains."""
    stray: int = 0
    """Ids with a record in a wrong partition."""
    stray_last: int = 0
    """Those of them whose newest record is in a wrong partition."""
    stray_at: datetime | None = None
    """The time of the newest record in a wrong partition."""
    routed_by: Mapping[str, int] = field(default_factory=dict)
    """What explains wrong partitions, and for how many ids; '' for what nothing explains."""


@dataclass(frozen=True)
class Inversions:
    """Records whose version is below that of an earlier record of the id in the same partition."""

    ids: int = 0
    records: int = 0
    last_at: datetime | None = None


@dataclass(frozen=True)
class DeletionFacts:
    """How deletions stand in the log, by the forms in which connectors write them."""

    tombstones: int = 0
    events: Mapping[str, int] = field(default_factory=dict)
    """How many records look like deletions, by the test that tells them."""
    unread: Mapping[str, int] = field(default_factory=dict)
    """Those of them that the contract takes for states."""


@dataclass(frozen=True)
class LogFacts:
    """What the log's history shows."""

    inference: Inference
    records: int = 0
    null_keys: int = 0
    unreadable_keys: int = 0
    odd_times: int = 0
    """Records whose times lie beyond what can be held."""
    gaps: int = 0
    """Offsets without a record: markers of transactions, aborted records, compacted ones."""
    growth: tuple[Growth, ...] = ()
    types: tuple[TypeFacts, ...] = ()
    deletions: DeletionFacts = DeletionFacts()
    placement: Placement = Placement()
    inversions: Inversions | None = None
    """None where the topic has no versions."""
    version_gaps: int = 0
    """The ids of which versions are missing between their lowest and their highest."""
    dense_versions: bool = False
    """Whether so few are missing that each counts as an event that was never published."""


@dataclass(frozen=True)
class TopologyFacts:
    """All that checks look at."""

    contract: Contract
    fence: Fence
    cluster: ClusterFacts
    log: LogFacts
    event_tests: Sequence[EventTest] = ()
    """How often the contract's `event` expressions say what rows that agree hold."""
    strange_ids: Mapping[str, int] = field(default_factory=dict)
    """Of the links that have no row of any id of the log: how many of its ids were looked for."""

    @property
    def topic(self) -> str:
        """The main topic's name."""
        return self.contract.topic.name

    @property
    def layout(self) -> TopicLayout | None:
        """How the main topic is laid out; None if that could not be read."""
        return self.cluster.topics.get(self.topic)

    def links(self) -> Iterator[tuple[str, Consumer]]:
        """Yield each link's name and consumer."""
        for consumer in self.contract.consumers:
            yield self.contract.link(consumer), consumer

    def fences(self) -> Iterator[tuple[str, Consumer, ConsumerFence]]:
        """Yield each link whose group could be read."""
        for link, consumer in self.links():
            for each in self.fence.consumers:
                if each.name == consumer.name:
                    yield link, consumer, each


def log_facts(state: LogState, index: Index, topic: Topic) -> LogFacts:
    """Read them from the state of a log's history."""
    from reconcile.audit import latent_candidates

    growth = index.partitions
    inference = infer_from_log(state, growth, topic.partitioner)
    segments, ignored = index.segments, topic.ignore_types
    held = sum(end - start for partition in _partitions(index) for start, end in index.held(partition))
    rows = sum(segment.rows for segment in segments)
    wanted = [placement_part(Router.of(inference, growth))]
    if topic.version:
        wanted += [latent_candidates.version_gaps(ignored), inversions_part(topic)]
    placement, *of_versions = state.read(*wanted)
    gaps, inversions = of_versions or (None, None)
    return LogFacts(
        inference=inference,
        records=rows,
        null_keys=sum(segment.null_keys for segment in segments),
        unreadable_keys=sum(segment.unreadable_keys for segment in segments),
        odd_times=sum(segment.odd_times for segment in segments),
        gaps=max(0, held - rows),
        growth=growth,
        types=_types(state.read_stretches(_types_part(topic))),
        deletions=_deletions(state.read_stretches(_deletions_part(topic))),
        placement=_placement(placement),
        inversions=None if inversions is None else _inversions(inversions),
        version_gaps=0 if gaps is None else gaps.count,
        dense_versions=gaps is not None and latent_candidates.are_dense(gaps),
    )


def _partitions(index: Index) -> set[int]:
    return {partition for segment in index.segments for partition in segment.partitions}


def placement_part(router: Router) -> AggregatePart:
    """Name the part of the log's state that has the ids with a record in a wrong partition."""
    from pyspark.sql import functions as f

    def of(records: DataFrame) -> DataFrame:
        # A home depends on the key alone, and what excuses a record excuses older ones: the newest of each place tells.
        newest = (
            records.where(f.col(ID).isNotNull())
            .groupBy(ID, KEY, PARTITION)
            .agg(f.max(OFFSET).alias(OFFSET), f.max_by(TIMESTAMP, OFFSET).alias(TIMESTAMP))
        )
        wrong = f.col(ROUTING) == Routing.WRONG.value
        return (
            with_routing(newest, router)
            .groupBy(ID)
            .agg(
                (f.count_distinct(PARTITION) > 1).alias("spread"),
                f.max(wrong).alias("stray"),
                f.max(f.col(ROUTING) == Routing.UNKNOWN.value).alias("unknown"),
                f.max_by(wrong, f.struct(TIMESTAMP, OFFSET)).alias("stray_last"),
                f.unix_micros(f.max(f.when(wrong, f.col(TIMESTAMP)))).alias("stray_at"),
                f.collect_set(f.when(wrong, f.coalesce(ROUTED_BY, f.lit("")))).alias(ROUTED_BY),
            )
        )

    columns = f"{ID} string, stray_last boolean, stray_at bigint, {ROUTED_BY} array<string>"
    return AggregatePart(
        name="placement",
        rules=router.rules,
        columns=columns,
        of=of,
        sums={
            "ids": "count(1)",
            "spread": "count_if(spread)",
            "grown": "count_if(spread and not stray and not unknown)",
        },
        kept="stray",
        here=lambda records: parts_here.placement(records, router, columns),
    )


def _placement(known: Known) -> Placement:
    from pyspark.sql import functions as f

    ids, spread, grown = (known.sums[each] for each in ("ids", "spread", "grown"))
    if not known.count:
        return Placement(ids, spread, grown)
    (row,) = known.rows.agg(f.count_if("stray_last").alias("last"), f.max("stray_at").alias("at")).collect()
    counted = known.rows.select(f.explode(ROUTED_BY).alias(ROUTED_BY)).groupBy(ROUTED_BY).count()
    routed_by = {each[ROUTED_BY]: each["count"] for each in counted.orderBy(f.desc("count"), ROUTED_BY).collect()}
    return Placement(ids, spread, grown, known.count, row["last"], _utc(row["at"]), routed_by)


def inversions_part(topic: Topic) -> AggregatePart:
    """Name the part of the log's state that has the ids whose versions go down."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    from reconcile.audit import latent_candidates

    def of(records: DataFrame) -> DataFrame:
        here = Window.partitionBy(ID, PARTITION).orderBy(OFFSET)
        numbered = latent_candidates.of_aggregates(records, topic.ignore_types).select(
            ID, PARTITION, OFFSET, TIMESTAMP, f.col(VERSION).try_cast("decimal(38,0)").alias("number"), DELETES
        )
        # An aggregate that is made anew may count from one again.
        lives = numbered.withColumn("life", f.count_if(DELETES).over(here.rowsBetween(Window.unboundedPreceding, -1)))
        before = Window.partitionBy(ID, PARTITION, "life").orderBy(OFFSET).rowsBetween(Window.unboundedPreceding, -1)
        # A deletion by a test may be of a row of which its connector knows the key alone: its version is a filled in 0.
        told = f.col("number") > 0 if topic.delete_tests else f.lit(True)
        inverted = lives.withColumn("before", f.max("number").over(before)).where(
            (f.col("number") < f.col("before")) & told
        )
        newest = f.unix_micros(f.max(TIMESTAMP)).alias("last_at")
        return inverted.groupBy(ID).agg(f.count(f.lit(1)).alias("records"), newest)

    columns, positive = f"{ID} string, records bigint, last_at bigint", bool(topic.delete_tests)
    return AggregatePart(
        name="inversions",
        rules=[sorted(topic.ignore_types), positive],
        columns=columns,
        of=of,
        sums={"records": "sum(records)"},
        here=lambda records: parts_here.inversions(records, topic.ignore_types, columns, positive=positive),
    )


def _inversions(known: Known) -> Inversions:
    from pyspark.sql import functions as f

    if not known.count:
        return Inversions()
    (row,) = known.rows.agg(f.max("last_at").alias("last_at")).collect()
    return Inversions(known.count, known.sums["records"], _utc(row["last_at"]))


def _types_part(topic: Topic) -> RecordPart:
    """Name the part of the log's state that counts the types of events, and lists the fields that they carry."""
    from pyspark.sql import functions as f

    def of(records: DataFrame, rows: int) -> Any:
        ignored = f.coalesce(f.col(TYPE).isin(*topic.ignore_types), f.lit(False))
        states = f.lit(topic.version is not None) & ~ignored & f.col(READABLE) & ~f.col(DELETES)
        counted = (
            records.groupBy(TYPE)
            .agg(
                f.count(f.lit(1)).alias("records"),
                f.count_if(~f.col(READABLE)).alias("unreadable"),
                f.count_if(states & f.col(VERSION).isNull()).alias("unversioned"),
            )
            .orderBy(f.desc("records"), TYPE)
            .limit(MOST_TYPES)
        )
        fields = f.array_sort(f.json_object_keys(VALUE))
        shapes = (
            records.where(f.col(VALUE).isNotNull() & _sampled(rows))
            .select(TYPE, fields.alias("fields"))
            .groupBy(TYPE)
            .agg(f.collect_set("fields").alias("shapes"))
        )
        found = {row[TYPE]: row["shapes"] for row in shapes.collect()}
        return [[*row, found.get(row[TYPE], [])] for row in counted.collect()]

    return RecordPart("types", [topic.version is not None, sorted(topic.ignore_types)], of)


def _types(stretches: Iterable[Any]) -> tuple[TypeFacts, ...]:
    """Add up what is known of each type of events."""
    found: dict[str | None, list[Any]] = {}
    for name, *counts, shapes in (each for stretch in stretches for each in stretch):
        known = found.setdefault(name, [[0, 0, 0], []])
        known[0] = [one + other for one, other in zip(known[0], counts, strict=True)]
        known[1] += [frozenset(shape) for shape in shapes]
    facts = (
        TypeFacts(
            name,
            records,
            unreadable,
            unversioned,
            always=frozenset.intersection(*shapes) if shapes else frozenset(),
            ever=frozenset().union(*shapes),
        )
        for name, ((records, unreadable, unversioned), shapes) in found.items()
    )
    return tuple(sorted(facts, key=lambda each: (-each.records, each.name or ""))[:MOST_TYPES])


def _deletions_part(topic: Topic) -> RecordPart:
    """Name the part of the log's state that counts deletions, by the forms in which connectors write them."""
    from pyspark.sql import functions as f

    from reconcile.audit.events import lenient

    tests = (*_DELETION_FORMS, *topic.delete_tests)
    paths = dict.fromkeys(path for test in tests for path in mapping.paths(test))
    names = {path: f"_path_{number}" for number, path in enumerate(paths)}
    places = {path: "$" + "".join(f"['{step}']" for step in mapping.steps(path)) for path in paths}

    def of(records: DataFrame, rows: int) -> Any:
        values = {name: f.get_json_object(VALUE, places[path]) for path, name in names.items()}
        sampled = records.where(_sampled(rows)).withColumns(values)
        spark = records.sparkSession
        with lenient(spark):
            holds = [parsed_sql.expression(spark, mapping.with_names(test, names)) for test in tests]
            marked = sampled.select(
                TOMBSTONE,
                DELETES,
                *(f.coalesce(each, f.lit(False)).alias(f"_test_{n}") for n, each in enumerate(holds)),
            )
        looks = [f.col(f"_test_{number}") for number in range(len(_DELETION_FORMS))]
        read = reduce(or_, (f.col(f"_test_{number}") for number in range(len(looks), len(tests))), f.col(DELETES))
        counted = marked.agg(
            f.count_if(TOMBSTONE), *(f.count_if(each) for each in looks), *(f.count_if(each & ~read) for each in looks)
        )
        return [int(each) for each in counted.collect()[0]]

    return RecordPart("deletions", tests, of)


def _deletions(stretches: Sequence[Any]) -> DeletionFacts:
    if not stretches:
        return DeletionFacts()
    tombstones, *numbers = (sum(counts) for counts in zip(*stretches, strict=True))
    events, unread = numbers[: len(_DELETION_FORMS)], numbers[len(_DELETION_FORMS) :]
    return DeletionFacts(
        tombstones,
        {form: number for form, number in zip(_DELETION_FORMS, events, strict=True) if number},
        {form: number for form, number in zip(_DELETION_FORMS, unread, strict=True) if number},
    )


def _sampled(rows: int) -> Column:
    """Choose some of so many records, spread over the log."""
    from pyspark.sql import functions as f

    return f.pmod(f.xxhash64(PARTITION, OFFSET), f.lit(-(-rows // _SHAPES_FROM))) == 0


def _utc(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
