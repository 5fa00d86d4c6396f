"""From rows, events and evidence to a case for each suspect, and from cases to findings, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from reconcile.audit.columns import BAD, TELLS, VALUES
from reconcile.audit.home_partition import Router
from reconcile.domain.attribution import attribute
from reconcile.domain.canonical import version_number
from reconcile.domain.case import Case, Event, LedgerEntry, Link, Parked, Row
from reconcile.domain.finding import Finding, ProposedRepair, redact, to_data
from reconcile.domain.key import encode
from reconcile.domain.plan_rules import Terms, by_finding
from reconcile.gather.log.history_columns import (
    DELETES,
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
from reconcile.gather.stores import row_columns

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import Column, DataFrame

MOST_EVENTS = 1000
"""Of an id that has more, the newest so many are looked at."""
SCHEMA = (
    "link string, aggregate_id string, difference string, status string, cause string, confidence string,"
    " hop string, fields array<string>, since timestamp, finding string"
)
_KEY = "_case"
_TOTAL = "_total"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Readings:
    """What was read of a link's suspects, each a DataFrame."""

    suspects: DataFrame
    """`id`, `settled_version` and `settled_fields` as the source said before, and whether they `differs`."""
    source: DataFrame
    copy: DataFrame
    events: DataFrame
    """As `newest` leaves them."""
    parked: DataFrame
    ledger: DataFrame | None
    """The entries for these events, with the events' `id`."""
    outbox: DataFrame | None


@dataclass(frozen=True)
class Attributing:
    """What is needed beside the data to make cases and findings."""

    link: Link
    router: Router
    ignored: frozenset[str]
    sensitive: frozenset[str]
    run_id: str
    key_type: str | None
    """How ids become keys; None where records show that nobody can tell."""
    terms: Terms
    main: bool
    """Whether corrections go to the topic itself."""

    def findings(self, cases: DataFrame) -> DataFrame:
        """Give the findings of a link, one for each case that still differs or will."""
        columns = cases.columns

        def attributed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = [dict(zip(columns, row, strict=True)) for row in zip(*_listed(batch), strict=True)]
                yield _arrow(self.run_id, [found for row in rows if (found := self._finding(row)) is not None])

        return cases.mapInArrow(attributed, SCHEMA)

    def _finding(self, row: dict[str, Any]) -> Finding | None:
        found = attribute(self.case(row))
        return None if found is None else redact(replace(found, repair=self._repair(found, row)), self.sensitive)

    def _repair(self, finding: Finding, row: dict[str, Any]) -> ProposedRepair:
        treatment = by_finding(finding, self.terms)
        home = self.router.home(self._key(row)) if treatment.action.writes and self.main else None
        return ProposedRepair(str(treatment.action), home, treatment.reason)

    def case(self, row: dict[str, Any]) -> Case:
        """Make a case of what was joined for one suspect."""
        listed = tuple(self._event(each) for each in row["events"] or ())
        return Case(
            link=self.link,
            id=row["id"],
            source=self._row(row["source"]),
            copy=self._row(row["copy"]),
            settled_source=self._row(row["settled"]),
            settled_absent=row["settled"] is None and row["differs"],
            agreed=not row["differs"],
            events=tuple(sorted(listed, key=lambda event: (event.at, event.partition, event.offset))),
            events_cut=max((row["events_total"] or 0) - len(listed), 0),
            parked=tuple(_parked(each) for each in sorted(row["parked"] or (), key=_parked_at)),
            ledger=tuple(_entry(each) for each in row["ledger"] or ()),
            outbox_pending=row["pending"] or 0,
            homes=self.router.homes(self._key(row)),
        )

    def _key(self, row: dict[str, Any]) -> bytes | None:
        """Give the key of an aggregate's records: as one of them has it, else as its id is written."""
        keys = (each[KEY] for each in row["events"] or () if each[KEY] is not None)
        try:
            return next(keys, None) or self._rebuilt(row["id"])
        except ValueError:
            return None

    def _rebuilt(self, id_text: str | None) -> bytes | None:
        return None if id_text is None or self.key_type is None else encode(id_text, self.key_type)

    def _row(self, read: dict[str, Any] | None) -> Row | None:
        if read is None:
            return None
        names = (rule.name for rule in self.link.fields)
        values = read["fields"] or [None] * len(self.link.fields)
        return Row(dict(zip(names, values, strict=True)), version_number(read["version"]), read["count"] or 1)

    def _event(self, read: dict[str, Any]) -> Event:
        version, ignored = version_number(read[VERSION]), read[TYPE] in self.ignored
        problem = None
        if not read[READABLE]:
            problem = "its value cannot be read"
        elif self.link.event_versions and version is None and not read[DELETES] and not ignored:
            problem = "it carries no version"
        routing, routed_by = self.router.routing(read[KEY], read[PARTITION], read[OFFSET])
        names = [rule.name for rule in self.link.fields]
        told = zip(names, read[TELLS], read[VALUES], strict=True)
        bad = zip(names, read[BAD], strict=True)
        return Event(
            partition=read[PARTITION],
            offset=read[OFFSET],
            at=_instant(read[TIMESTAMP]),
            event_id=read[EVENT_ID],
            fields={name: value for name, tells, value in told if tells},
            version=version,
            type=read[TYPE],
            deletes=read[DELETES],
            ignored=ignored,
            problem=problem,
            bad_fields=tuple(name for name, unreadable in bad if unreadable),
            routing=routing,
            routed_by=routed_by,
        )


def newest(events: DataFrame) -> DataFrame:
    """Give the newest of the events that `audit.events.event_values` gives for each id, as many as are looked at."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    of_id = Window.partitionBy(ID)
    first = of_id.orderBy(f.desc(TIMESTAMP), f.desc(PARTITION), f.desc(OFFSET))
    ranked = events.where(f.col(ID).isNotNull()).withColumns(
        {"_rank": f.row_number().over(first), _TOTAL: f.count(f.lit(1)).over(of_id)}
    )
    return ranked.where(f.col("_rank") <= MOST_EVENTS).drop("_rank")


def joined(readings: Readings) -> DataFrame:
    """Give all that was read of each suspect in one line. What has no id is one suspect, and has no events."""
    from pyspark.sql import functions as f

    settled = f.struct(
        f.col("settled_version").alias("version"),
        f.col("settled_fields").alias("fields"),
        f.lit(1).alias("count"),
    )
    whole = readings.suspects.select(
        f.col("id"),
        f.col("differs"),
        f.when(f.col("settled_fields").isNotNull(), settled).alias("settled"),
        _key(f.col("id")).alias(_KEY),
    )
    whole = whole.join(_side(readings.source, "source"), _KEY, "left").join(_side(readings.copy, "copy"), _KEY, "left")
    whole = whole.join(_together(readings.events), _KEY, "left")
    whole = whole.join(_grouped(readings.parked, "parked", f.col("resolved").isNotNull()), _KEY, "left")
    if readings.ledger is None:
        whole = whole.withColumn("ledger", f.lit(None).cast("array<string>"))
    else:
        whole = whole.join(_grouped(readings.ledger, "ledger"), _KEY, "left")
    if readings.outbox is None:
        return whole.withColumn("pending", f.lit(None).cast("int")).drop(_KEY)
    pending = readings.outbox.select(_key(f.col("id")).alias(_KEY), "pending")
    return whole.join(pending, _KEY, "left").drop(_KEY)


def _key(id_text: Column) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(f.concat(f.lit("="), id_text), f.lit("-"))


def _side(rows: DataFrame, name: str) -> DataFrame:
    from pyspark.sql import functions as f

    fields = sorted((each for each in rows.columns if each.startswith("field_")), key=lambda each: int(each[6:]))
    one = f.struct(f.col(row_columns.VERSION).alias("version"), f.array(*fields).alias("fields"))
    grouped = rows.groupBy(_key(f.col(row_columns.ID)).alias(_KEY)).agg(
        f.first(one).alias("one"), f.count(f.lit(1)).cast("int").alias("count")
    )
    return grouped.select(_KEY, f.struct("one.version", "one.fields", "count").alias(name))


def _together(events: DataFrame) -> DataFrame:
    """Give the events of each id as a list, and how many there are in all."""
    from pyspark.sql import functions as f

    micros = f.unix_micros(TIMESTAMP).alias(TIMESTAMP)
    columns = [micros if each == TIMESTAMP else f.col(each) for each in events.columns if each not in (ID, _TOTAL)]
    return events.groupBy(_key(f.col(ID)).alias(_KEY)).agg(
        f.collect_list(f.struct(*columns)).alias("events"), f.max(_TOTAL).alias("events_total")
    )


def _grouped(rows: DataFrame, name: str, *last: Column) -> DataFrame:
    """Give the newest rows of each id as a list; those for which `last` is true after all others."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    newest = Window.partitionBy("id").orderBy(*last, f.desc_nulls_last("at"), f.desc("partition"), f.desc("offset"))
    ranked = rows.where(f.col("id").isNotNull()).withColumn("_rank", f.row_number().over(newest))
    columns = [
        f.unix_micros("at").alias("at") if each == "at" else f.col(each) for each in rows.columns if each != "id"
    ]
    kept = ranked.where(f.col("_rank") <= 2 * MOST_EVENTS).groupBy(_key(f.col("id")).alias(_KEY))
    return kept.agg(f.collect_list(f.struct(*columns)).alias(name))


def _listed(batch: pa.RecordBatch) -> list[list[Any]]:
    return [column.to_pylist() for column in batch.columns]


def _parked_at(read: dict[str, Any]) -> tuple[int, ...]:
    return read["at"] or 0, read["partition"] or 0, read["offset"] or 0


def _parked(read: dict[str, Any]) -> Parked:
    origin = None
    if read["origin_partition"] is not None and read["origin_offset"] is not None:
        origin = read["origin_partition"], read["origin_offset"]
    return Parked(
        kind=read["kind"],
        topic=read["topic"],
        partition=read["partition"],
        offset=read["offset"],
        at=None if read["at"] is None else _instant(read["at"]),
        origin=origin,
        event_id=read["event_id"],
        version=version_number(read["version"]),
        resolved=read["resolved"],
        error=read["error"],
    )


def _entry(read: dict[str, Any]) -> LedgerEntry:
    place = None
    if read["partition"] is not None and read["offset"] is not None:
        place = read["partition"], read["offset"]
    return LedgerEntry(read["event_id"], place, None if read["at"] is None else _instant(read["at"]))


def _instant(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _arrow(run_id: str, findings: Sequence[Finding]) -> pa.RecordBatch:
    import pyarrow as pa

    names = ["link", "aggregate_id", "difference", "status", "cause", "confidence", "hop"]
    arrays = [pa.array([_text(getattr(each, name)) for each in findings], pa.string()) for name in names]
    fields = pa.array([[field.name for field in each.fields] for each in findings], pa.list_(pa.string()))
    since = pa.array([each.since for each in findings], pa.timestamp("us", tz="UTC"))
    lines = [json.dumps(to_data(each, run_id), ensure_ascii=False) for each in findings]
    return pa.RecordBatch.from_arrays(
        [*arrays, fields, since, pa.array(lines, pa.string())], names=[*names, "fields", "since", "finding"]
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)
