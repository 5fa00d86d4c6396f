"""What the checks of a topology look at: the contract, the fence, the cluster, and what the log shows of its order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from reconcile.audit.columns import ROUTED_BY, ROUTING
from reconcile.audit.home_partition import Router, with_routing
from reconcile.audit.partitioner_inference import Inference, infer_from_log
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
from reconcile.gather.topology_facts import ClusterFacts
from reconcile.kafka.layout import TopicLayout

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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


def log_facts(records: DataFrame, index: Index, topic: Topic) -> LogFacts:
    """Query them from a log history's records: some six jobs of Spark."""
    inference = infer_from_log(records, index, topic)
    router = Router.of(inference, index.partitions)
    segments = index.segments
    held = sum(end - start for partition in _partitions(index) for start, end in index.held(partition))
    rows = sum(segment.rows for segment in segments)
    missing, dense = _missing_versions(records, topic) if rows and topic.version else (0, False)
    return LogFacts(
        inference=inference,
        records=rows,
        null_keys=sum(segment.null_keys for segment in segments),
        unreadable_keys=sum(segment.unreadable_keys for segment in segments),
        odd_times=sum(segment.odd_times for segment in segments),
        gaps=max(0, held - rows),
        growth=index.partitions,
        types=_types(records, topic, rows) if rows else (),
        deletions=_deletions(records, topic, rows) if rows else DeletionFacts(),
        placement=_placement(records, router) if rows else Placement(),
        inversions=_inversions(records, topic) if rows and topic.version else None,
        version_gaps=missing,
        dense_versions=dense,
    )


def _missing_versions(records: DataFrame, topic: Topic) -> tuple[int, bool]:
    """Query of how many ids versions are missing, and whether the log's versions are dense."""
    from reconcile.audit import latent_candidates

    known = latent_candidates.versions(latent_candidates.of_aggregates(records, topic.ignore_types))
    gapped = latent_candidates.gapped(known).count()
    return gapped, bool(latent_candidates.density(known).collect()[0][0])


def _partitions(index: Index) -> set[int]:
    return {partition for segment in index.segments for partition in segment.partitions}


def _placement(records: DataFrame, router: Router) -> Placement:
    from pyspark.sql import functions as f

    # A home depends on the key alone, and what excuses a record excuses older ones: the newest of each place tells.
    newest = (
        records.where(f.col(ID).isNotNull())
        .groupBy(ID, KEY, PARTITION)
        .agg(f.max(OFFSET).alias(OFFSET), f.max_by(TIMESTAMP, OFFSET).alias(TIMESTAMP))
    )
    routed = with_routing(newest, router)
    wrong = f.col(ROUTING) == Routing.WRONG.value
    each = routed.groupBy(ID).agg(
        (f.count_distinct(PARTITION) > 1).alias("spread"),
        f.max(wrong).alias("stray"),
        f.max(f.col(ROUTING) == Routing.UNKNOWN.value).alias("unknown"),
        f.max_by(wrong, f.struct(TIMESTAMP, OFFSET)).alias("stray_last"),
        f.max(f.when(wrong, f.col(TIMESTAMP))).alias("stray_at"),
    )
    spread, stray = f.col("spread"), f.col("stray")
    row = each.agg(
        f.count(f.lit(1)).alias("ids"),
        f.count_if(spread).alias("spread"),
        f.count_if(spread & ~stray & ~f.col("unknown")).alias("grown"),
        f.count_if(stray).alias("stray"),
        f.count_if("stray_last").alias("stray_last"),
        _instant("stray_at"),
    ).collect()[0]
    routed_by: dict[str, int] = {}
    if row["stray"]:
        stray_records = routed.where(wrong).groupBy(f.coalesce(ROUTED_BY, f.lit("")).alias(ROUTED_BY))
        counted = stray_records.agg(f.count_distinct(ID).alias("ids")).orderBy(f.desc("ids"), ROUTED_BY)
        routed_by = {each[ROUTED_BY]: each["ids"] for each in counted.collect()}
    counts = {name: int(row[name]) for name in ("ids", "spread", "grown", "stray", "stray_last")}
    return Placement(**counts, stray_at=_utc(row["stray_at"]), routed_by=routed_by)


def _inversions(records: DataFrame, topic: Topic) -> Inversions:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    here = Window.partitionBy(ID, PARTITION).orderBy(OFFSET)
    ignored = f.coalesce(f.col(TYPE).isin(*topic.ignore_types), f.lit(False))
    numbered = records.where(f.col(ID).isNotNull() & ~ignored).select(
        ID, PARTITION, OFFSET, TIMESTAMP, f.col(VERSION).try_cast("decimal(38,0)").alias("number"), DELETES
    )
    # An aggregate that is made anew may count from one again.
    lives = numbered.withColumn("life", f.count_if(DELETES).over(here.rowsBetween(Window.unboundedPreceding, -1)))
    before = Window.partitionBy(ID, PARTITION, "life").orderBy(OFFSET).rowsBetween(Window.unboundedPreceding, -1)
    # A deletion by a test may be of a row of which its connector knows the key alone: its version is a filled in 0.
    told = f.col("number") > 0 if topic.delete_tests else f.lit(True)
    row = (
        lives.withColumn("before", f.max("number").over(before))
        .where((f.col("number") < f.col("before")) & told)
        .agg(f.count_distinct(ID).alias("ids"), f.count(f.lit(1)).alias("records"), _instant(TIMESTAMP))
    ).collect()[0]
    return Inversions(row["ids"], row["records"], _utc(row[TIMESTAMP]))


def _types(records: DataFrame, topic: Topic, rows: int) -> tuple[TypeFacts, ...]:
    from pyspark.sql import functions as f

    versioned = f.lit(topic.version is not None) & ~f.coalesce(f.col(TYPE).isin(*topic.ignore_types), f.lit(False))
    counted = (
        records.groupBy(TYPE)
        .agg(
            f.count(f.lit(1)).alias("records"),
            f.count_if(~f.col(READABLE)).alias("unreadable"),
            f.count_if(versioned & f.col(READABLE) & ~f.col(DELETES) & f.col(VERSION).isNull()).alias("unversioned"),
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
    found = {row[TYPE]: [frozenset(shape) for shape in row["shapes"]] for row in shapes.collect()}
    return tuple(
        TypeFacts(
            name=row[TYPE],
            records=row["records"],
            unreadable=row["unreadable"],
            unversioned=row["unversioned"],
            always=frozenset.intersection(*seen) if (seen := found.get(row[TYPE], [])) else frozenset(),
            ever=frozenset().union(*seen),
        )
        for row in counted.collect()
    )


def _deletions(records: DataFrame, topic: Topic, rows: int) -> DeletionFacts:
    from pyspark.sql import functions as f

    from reconcile.audit.events import lenient

    tests = (*_DELETION_FORMS, *topic.delete_tests)
    paths = dict.fromkeys(path for test in tests for path in mapping.paths(test))
    names = {path: f"_path_{number}" for number, path in enumerate(paths)}
    places = {path: "$" + "".join(f"['{step}']" for step in mapping.steps(path)) for path in paths}
    values = {name: f.get_json_object(VALUE, places[path]) for path, name in names.items()}
    sampled = records.where(_sampled(rows)).withColumns(values)
    with lenient(records.sparkSession):
        holds = {test: f.expr(f"coalesce((\n{mapping.with_names(test, names)}\n), false)") for test in tests}
        marked = sampled.select(
            TOMBSTONE, DELETES, *(holds[test].alias(f"_test_{number}") for number, test in enumerate(tests))
        )
    looks = [f.col(f"_test_{number}") for number in range(len(_DELETION_FORMS))]
    read = reduce(or_, (f.col(f"_test_{number}") for number in range(len(looks), len(tests))), f.col(DELETES))
    counted = marked.agg(
        f.count_if(TOMBSTONE), *(f.count_if(each) for each in looks), *(f.count_if(each & ~read) for each in looks)
    )
    tombstones, *numbers = (int(each) for each in counted.collect()[0])
    events, unread = numbers[: len(looks)], numbers[len(looks) :]
    return DeletionFacts(
        tombstones,
        {form: number for form, number in zip(_DELETION_FORMS, events, strict=True) if number},
        {form: number for form, number in zip(_DELETION_FORMS, unread, strict=True) if number},
    )


def _sampled(rows: int) -> Column:
    """Choose some of so many records, spread over the log."""
    from pyspark.sql import functions as f

    return f.pmod(f.xxhash64(PARTITION, OFFSET), f.lit(-(-rows // _SHAPES_FROM))) == 0


def _instant(column: str) -> Column:
    """Build the newest time as microseconds, which no time zone of the driver's changes."""
    from pyspark.sql import functions as f

    return f.unix_micros(f.max(column)).alias(column)


def _utc(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
