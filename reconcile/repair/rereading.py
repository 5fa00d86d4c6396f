"""Corrections are read once more as the audit reads events: what they bring has to be what the source says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from reconcile.audit import compare, events
from reconcile.audit.columns import TELLS, VALUES
from reconcile.audit.link_facts import field_rules
from reconcile.domain.correction import Correction
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.log.history_columns import DELETES, ID, OFFSET, READABLE, VERSION
from reconcile.gather.log.records import Derivation
from reconcile.gather.log.value_reader import ValueReader
from reconcile.gather.stores import row_columns
from reconcile.repair.correction_writer import versioned_deletion
from reconcile.repair.topic_form import NULL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RECORDS = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp,"
    " headers array<struct<key: string, value: binary>>"
)


@dataclass(frozen=True)
class Rereading:
    """Reads corrections of one link as events, restatements beside the source's rows that they were made of."""

    reader: LinkReader
    values: ValueReader | None

    def problems(self, restated: Sequence[Correction], deleting: Sequence[Correction]) -> list[str]:
        """Say what corrections would bring that is not what the source says."""
        found = self._of_restatements(restated) if restated else []
        return [*found, *(self._of_deletions(deleting) if deleting else ())]

    def _of_restatements(self, restated: Sequence[Correction]) -> list[str]:
        from pyspark.sql import functions as f

        contract, consumer = self.reader.contract, self.reader.consumer
        source = self.reader.rows[0]
        rules = field_rules(consumer, source.form.fields)
        read = self._read(restated).withColumnRenamed(ID, row_columns.ID)
        with_rows = read.join(source.among(read.select(row_columns.ID)), row_columns.ID)
        wrong = {
            rule.name: f.get(TELLS, f.lit(number))
            & compare.differs(f.col(row_columns.field(number)), f.get(VALUES, f.lit(number)), rule)
            for number, rule in enumerate(rules)
            if not rule.add
        }
        again = {
            rule.name: f.get(TELLS, f.lit(number)) & (f.get(VALUES, f.lit(number)) != "0")
            for number, rule in enumerate(rules)
            if rule.add
        }
        counted = with_rows.agg(
            f.count_if(~f.col(READABLE)),
            f.count_if(f.col(DELETES)),
            f.count_if(f.col(VERSION).isNull() & f.lit(contract.topic.version is not None)),
            *(f.count_if(each) for each in (*wrong.values(), *again.values())),
        )
        with self.reader.reading():
            unreadable, deleting, bare, *counts = (int(each) for each in counted.collect()[0])
        of_all = f"of {len(restated):,} corrections"
        found = []
        if unreadable:
            found.append(f"{unreadable:,} {of_all} could not be read as {contract.topic.format}: see topic.value")
        if deleting:
            found.append(f"{deleting:,} {of_all} would be taken for deletions: topic.value fulfils topic.delete")
        if bare:
            found.append(f"{bare:,} {of_all} would carry no version: see topic.version")
        for name, count in zip(again, counts[len(wrong) :], strict=True):
            if count:
                found.append(f"{count:,} {of_all} would add to {name} once more: see its event")
        for name, count in zip(wrong, counts[: len(wrong)], strict=True):
            if count:
                found.append(
                    f"{count:,} {of_all} would bring another {name} than the source's: topic.value gives something else"
                    " than the field's source, or its event looks elsewhere"
                )
        return found

    def _of_deletions(self, deleting: Sequence[Correction]) -> list[str]:
        from pyspark.sql import functions as f

        contract, consumer = self.reader.contract, self.reader.consumer
        versioned = versioned_deletion(contract.topic)
        adds = [number for number, field in enumerate(consumer.fields) if field.apply == "add"]
        adding = [f.get(TELLS, f.lit(n)) & f.get(VALUES, f.lit(n)).isNotNull() for n in adds]
        tombstones = [number for number, value in enumerate(_values(deleting)) if value in (None, NULL)]
        bare_state = f.col(VERSION).isNull() & ~f.col(OFFSET).isin(tombstones)
        counted = self._read(deleting).agg(
            f.count_if(~(f.col(READABLE) & f.col(DELETES))),
            f.count_if(bare_state & f.lit(versioned)),
            *(f.count_if(each) for each in adding),
        )
        with self.reader.reading():
            kept, bare, *added = (int(each) for each in counted.collect()[0])
        of_all = f"of {len(_values(deleting)):,} deletions"
        found = []
        if kept:
            found.append(f"{kept:,} {of_all} would not be taken for one: see topic.delete")
        if bare:
            found.append(f"{bare:,} {of_all} would carry no version: see topic.version")
        for number, count in zip(adds, added, strict=True):
            if count:
                found.append(f"{count:,} {of_all} would add to {consumer.fields[number].name}: see its event")
        return found

    def _read(self, corrections: Sequence[Correction]) -> DataFrame:
        spark, contract, consumer = self.reader.spark, self.reader.contract, self.reader.consumer
        now = datetime.now(UTC)
        records = [(each, value) for each in corrections for value in each.values]
        rows = [(each.key, value, 0, number, now, list(each.headers)) for number, (each, value) in enumerate(records)]
        derivation = Derivation.of(contract.topic, values=self.values)
        stored = derivation.stored(spark.createDataFrame(rows, _RECORDS))
        read = derivation.shown(stored, contract.topic.name)
        return events.event_values(spark, read, contract.topic, consumer, self.reader.rows[0].form.fields)


def _values(corrections: Sequence[Correction]) -> list[bytes | None]:
    return [value for each in corrections for value in each.values]
