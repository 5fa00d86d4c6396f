"""From rows, events and evidence to a case for each suspect, and from cases to findings, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from reconcile.audit import columns, plain_cases
from reconcile.audit.home_partition import Router
from reconcile.contract.model import Consumer, Contract
from reconcile.domain.attribution import attribute
from reconcile.domain.canonical import version_number
from reconcile.domain.case import Case, Event, FieldRule, LedgerEntry, Link, Parked, Row, Undecided
from reconcile.domain.deletion import told_version
from reconcile.domain.finding import Finding, ProposedRepair, to_data
from reconcile.domain.key import encode
from reconcile.domain.plan_rules import PlanTerms, by_finding
from reconcile.domain.redaction import Redactor, fits
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
from reconcile.spark import local_frames

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
    """As `compare.suspects` selects them."""
    source: DataFrame
    copy: DataFrame
    events: DataFrame
    """As `newest` selects them."""
    parked: DataFrame
    ledger: DataFrame | None
    """The entries for these events, with the events' `id`."""
    outbox: DataFrame | None
    undecided: DataFrame | None = None
    """As `UndecidedRecords.frame` has them."""


@dataclass(frozen=True)
class Attributing:
    """What is needed beside the data to make cases and findings."""

    link: Link
    router: Router
    ignored: frozenset[str]
    redactor: Redactor
    key_type: str | None
    """How ids become keys; None where records show that nobody can tell."""
    terms: PlanTerms
    main: bool
    """Whether corrections go to the topic itself."""

    @classmethod
    def of(
        cls,
        contract: Contract,
        consumer: Consumer,
        link: Link,
        router: Router,
        key_type: str | None,
        terms: PlanTerms,
        redactor: Redactor,
    ) -> Attributing:
        """Build it for one link."""
        return cls(
            link=link,
            router=router,
            ignored=frozenset(contract.topic.ignore_types),
            redactor=redactor,
            key_type=key_type,
            terms=terms,
            main=consumer.repair.route == "main",
        )

    def findings(self, cases: DataFrame, run_id: str) -> DataFrame:
        """Compute the findings of a link, one for each case that still differs or will."""
        names = cases.columns

        def attributed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = (dict(zip(names, row, strict=True)) for row in zip(*_listed(batch), strict=True))
                yield self.findings_of(rows, run_id)

        return cases.mapInArrow(attributed, SCHEMA)

    def findings_of(self, cases: Iterable[dict[str, Any]], run_id: str) -> pa.RecordBatch:
        """Compute the findings of some cases, in the columns of SCHEMA."""
        return _arrow(run_id, [found for row in cases if (found := self._finding(row)) is not None])

    def _finding(self, row: dict[str, Any]) -> Finding | None:
        found = attribute(self.case(row))
        return None if found is None else self.redactor.finding(replace(found, repair=self._repair(found, row)))

    def _repair(self, finding: Finding, row: dict[str, Any]) -> ProposedRepair:
        treatment = by_finding(finding, self.terms)
        home = self.router.home(self._key(row)) if treatment.action.writes and self.main else None
        return ProposedRepair(str(treatment.action), home, treatment.reason)

    def case(self, row: dict[str, Any]) -> Case:
        """Build a case of what was joined for one suspect."""
        source = self._row(row[columns.SOURCE])
        listed = tuple(self._event(each, source) for each in row[columns.EVENTS] or ())
        return Case(
            link=self.link,
            id=row[ID],
            source=source,
            copy=self._row(row[columns.COPY]),
            settled_source=self._row(row[columns.SETTLED]),
            settled_absent=row[columns.SETTLED] is None and row[columns.DIFFERS],
            agreed=not row[columns.DIFFERS],
            events=tuple(sorted(listed, key=lambda event: (event.at, event.partition, event.offset))),
            events_cut=max((row[columns.EVENTS_TOTAL] or 0) - len(listed), 0),
            parked=tuple(_parked(each) for each in sorted(row[columns.PARKED] or (), key=_parked_at)),
            ledger=tuple(_entry(each) for each in row[columns.LEDGER] or ()),
            outbox_pending=row[columns.PENDING] or 0,
            outbox_since=None if (since := row.get(columns.PENDING_SINCE)) is None else _instant(since),
            undecided=_undecided(row.get(columns.UNDECIDED)),
            homes=self.router.homes(self._key(row)),
        )

    def _key(self, row: dict[str, Any]) -> bytes | None:
        """Choose the key of an aggregate's records: as one of them has it, else as its id is written."""
        keys = (each[KEY] for each in row[columns.EVENTS] or () if each[KEY] is not None)
        try:
            return next(keys, None) or self._rebuilt(row[ID])
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

    def _event(self, read: dict[str, Any], source: Row | None) -> Event:
        version = told_version(version_number(read[VERSION]), read[DELETES])
        ignored = read[TYPE] in self.ignored
        problem = None
        if not read[READABLE]:
            problem = "its value cannot be read"
        elif self.link.event_versions and version is None and not read[DELETES] and not ignored:
            problem = "it carries no version"
        routing, routed_by = self.router.routing(read[KEY], read[PARTITION], read[OFFSET])
        names = [rule.name for rule in self.link.fields]
        said = dict(zip(names, read[columns.VALUES], strict=True))
        bad = {name for name, unreadable in zip(names, read[columns.BAD], strict=True) if unreadable}
        agreed = {} if source is None else {name: text for name, text in said.items() if source.fields[name] == text}
        unheld = tuple(rule.name for rule in self.link.fields if rule.name in agreed and _is_unheld(rule, agreed, bad))
        unreadable = bad.difference(unheld)
        return Event(
            partition=read[PARTITION],
            offset=read[OFFSET],
            at=_instant(read[TIMESTAMP]),
            event_id=read[EVENT_ID],
            fields={
                name: None if name in unreadable else said[name]
                for name, tells in zip(names, read[columns.TELLS], strict=True)
                if tells
            },
            version=version,
            type=read[TYPE],
            deletes=read[DELETES],
            ignored=ignored,
            problem=problem,
            bad_fields=tuple(name for name in names if name in unreadable),
            unheld=unheld,
            untold=tuple(name for name, left_out in zip(names, read[columns.UNTOLD], strict=True) if left_out),
            routing=routing,
            routed_by=routed_by,
        )


def _is_unheld(rule: FieldRule, values: Mapping[str, str | None], unreadable: Collection[str]) -> bool:
    """Whether no value of the copy's column is what source and event say alike."""
    text = values[rule.name]
    return text is not None and (rule.name in unreadable or not fits(rule.column, text))


def newest(events: DataFrame) -> DataFrame:
    """Select for each id the newest events, as many as are looked at, of those that `event_values` has read."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    of_id = Window.partitionBy(ID)
    first = of_id.orderBy(f.desc(TIMESTAMP), f.desc(PARTITION), f.desc(OFFSET))
    ranked = events.where(f.col(ID).isNotNull()).withColumns(
        {"_rank": f.row_number().over(first), _TOTAL: f.count(f.lit(1)).over(of_id)}
    )
    return ranked.where(f.col("_rank") <= MOST_EVENTS).drop("_rank")


def case_rows(readings: Readings) -> DataFrame:
    """Join all that was read of each suspect into one row. What has no id is one suspect, and has no events."""
    here = plain_cases.case_rows(readings, _TOTAL, 2 * MOST_EVENTS)
    return case_rows_by_spark(readings) if here is None else here


def case_rows_by_spark(readings: Readings) -> DataFrame:
    """Join the same by Spark."""
    from pyspark.sql import functions as f

    suspects = readings.suspects.select(
        ID, columns.DIFFERS, _settled().alias(columns.SETTLED), _key(f.col(ID)).alias(_KEY)
    )
    parts = [
        _rows(readings.source, columns.SOURCE),
        _rows(readings.copy, columns.COPY),
        _together(readings.events),
        _newest(readings.parked, columns.PARKED, f.col("resolved").isNotNull()),
    ]
    if readings.ledger is not None:
        parts.append(_newest(readings.ledger, columns.LEDGER))
    if readings.outbox is not None:
        since = f.unix_micros(columns.PENDING_SINCE).alias(columns.PENDING_SINCE)
        parts.append(readings.outbox.select(_key(f.col(ID)).alias(_KEY), columns.PENDING, since))
    if readings.undecided is not None:
        record = f.struct("partition", "offset", "at").alias(columns.UNDECIDED)
        parts.append(readings.undecided.select(_key(f.col(ID)).alias(_KEY), record))
    joined = reduce(lambda rows, part: rows.join(part, _KEY, "left"), parts, suspects)
    return joined.select(
        ID,
        columns.DIFFERS,
        columns.SETTLED,
        columns.SOURCE,
        columns.COPY,
        columns.EVENTS,
        columns.EVENTS_TOTAL,
        columns.PARKED,
        columns.LEDGER if readings.ledger is not None else f.lit(None).cast("array<string>").alias(columns.LEDGER),
        columns.PENDING if readings.outbox is not None else f.lit(None).cast("int").alias(columns.PENDING),
        columns.PENDING_SINCE
        if readings.outbox is not None
        else f.lit(None).cast("bigint").alias(columns.PENDING_SINCE),
        columns.UNDECIDED
        if readings.undecided is not None
        else f.lit(None).cast("struct<partition: int, offset: bigint, at: bigint>").alias(columns.UNDECIDED),
    )


def kept(cases: DataFrame, ids: DataFrame, redactor: Redactor) -> DataFrame:
    """Select the cases of some ids, one of which may be NULL, as they may stay: redacted."""
    from pyspark.sql import functions as f

    here, wanted = local_frames.plain_rows(cases), local_frames.rows(ids)
    if here is not None and wanted is not None:
        of_ids = {id_text for (id_text,) in wanted}
        rows = [tuple(_redacted(row, redactor).values()) for row in here if row[ID] in of_ids]
        return local_frames.of_rows(cases.sparkSession, rows, cases.schema)
    found = cases.join(f.broadcast(ids.select(f.col(ID).alias(_KEY)).distinct()), f.col(ID).eqNullSafe(f.col(_KEY)))
    some = found.select(*cases.columns)
    return local_frames.mapped(some, lambda case: _redacted(case, redactor)) if redactor.sensitive else some


def _redacted(case: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    sides = (columns.SETTLED, columns.SOURCE, columns.COPY)
    return redactor.case(case, sides, columns.EVENTS, columns.VALUES)


def _settled() -> Column:
    from pyspark.sql import functions as f

    row = f.struct(
        f.col(columns.SETTLED_VERSION).alias("version"),
        f.col(columns.SETTLED_FIELDS).alias("fields"),
        f.lit(1).alias("count"),
    )
    return f.when(f.col(columns.SETTLED_FIELDS).isNotNull(), row)


def _key(id_text: Column) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(f.concat(f.lit("="), id_text), f.lit("-"))


def _rows(rows: DataFrame, name: str) -> DataFrame:
    """Build of each id one row, and how many there are."""
    from pyspark.sql import functions as f

    fields = [row_columns.field(number) for number in range(len(rows.columns) - 2)]  # beside them stand id and version
    one = f.struct(f.col(row_columns.VERSION).alias("version"), f.array(*fields).alias("fields"))
    grouped = rows.groupBy(_key(f.col(row_columns.ID)).alias(_KEY)).agg(
        f.first(one).alias("one"), f.count(f.lit(1)).cast("int").alias("count")
    )
    return grouped.select(_KEY, f.struct("one.version", "one.fields", "count").alias(name))


def _together(events: DataFrame) -> DataFrame:
    """Collect the events of each id, and count how many there are in all."""
    from pyspark.sql import functions as f

    micros = f.unix_micros(TIMESTAMP).alias(TIMESTAMP)
    values = [micros if each == TIMESTAMP else f.col(each) for each in events.columns if each not in (ID, _TOTAL)]
    return events.groupBy(_key(f.col(ID)).alias(_KEY)).agg(
        f.collect_list(f.struct(*values)).alias(columns.EVENTS), f.max(_TOTAL).alias(columns.EVENTS_TOTAL)
    )


def _newest(rows: DataFrame, name: str, *last: Column) -> DataFrame:
    """Collect the newest rows of each id; those for which `last` is true come after all others."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    first = Window.partitionBy(ID).orderBy(*last, f.desc_nulls_last("at"), f.desc("partition"), f.desc("offset"))
    ranked = rows.where(f.col(ID).isNotNull()).withColumn("_rank", f.row_number().over(first))
    values = [f.unix_micros("at").alias("at") if each == "at" else f.col(each) for each in rows.columns if each != ID]
    kept = ranked.where(f.col("_rank") <= 2 * MOST_EVENTS).groupBy(_key(f.col(ID)).alias(_KEY))
    return kept.agg(f.collect_list(f.struct(*values)).alias(name))


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


def _undecided(read: dict[str, Any] | None) -> Undecided | None:
    return None if read is None else Undecided(read["partition"], read["offset"], _instant(read["at"]))


def _entry(read: dict[str, Any]) -> LedgerEntry:
    place = None
    if read["partition"] is not None and read["offset"] is not None:
        place = read["partition"], read["offset"]
    at = None if read["at"] is None else _instant(read["at"])
    return LedgerEntry(read["event_id"], place, at, read.get("unapplied"), read.get("because"))


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
