"""Tests of the contract's `event` expressions: do they say, of ids whose rows agree, what both rows hold?

An expression that does not would be taken for what publishers do: each difference in its field would be their fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reconcile.audit import redacted_rows
from reconcile.audit.columns import TELLS, UNTOLD, VALUES
from reconcile.audit.events import event_values
from reconcile.audit.link_facts import field_rules
from reconcile.config.yamlfile import path_text
from reconcile.contract.model import Consumer, Contract
from reconcile.domain.canonical import CanonicalType, version_number
from reconcile.domain.case import FieldRule
from reconcile.domain.comparison import equal, equivalent
from reconcile.domain.redaction import Redactor
from reconcile.gather.log.history import History
from reconcile.gather.log.history_columns import DELETES, ID, OFFSET, PARTITION, RAW, READABLE, TIMESTAMP, TYPE, VERSION
from reconcile.gather.stores import row_columns
from reconcile.spark import local_frames
from reconcile.workspace import row_hashes

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

SAMPLE = 3000
"""About so many ids are looked at."""
ENOUGH = 10
"""Of fewer records nothing is concluded: as many may come of one fault."""
SHARE = 0.5
"""An expression that matches less is not believed.

A right one matches nearly all, for the copy was made of these records; a wrong one nearly none. Between the two lies a
publisher that told some wrongly, of which the copies were mended since: that is a cause, and has to be found.
"""
_NEWEST = 20
"""So many records of an id are looked at where Spark reads them."""
_MOST = 2 * SAMPLE * _NEWEST
_PLACE = "_place"

Rows = Sequence[Sequence[Any]]
"""Each with an id, a version and the fields."""
Agreed = Mapping[str, tuple[int | None, Sequence[str | None]]]
"""By id, the version and the fields of rows that agree."""


@dataclass(frozen=True)
class EventTest:
    """How often an `event` expression says what the rows hold."""

    link: str
    path: str
    """Where it is in the contract."""
    field: str
    tested: int
    """How many records say anything, or should."""
    matching: int

    @property
    def failed(self) -> bool:
        """Whether it is not to be believed."""
        return self.tested >= ENOUGH and self.matching < self.tested * SHARE

    @property
    def found(self) -> str:
        """Say how it went."""
        return f"matches the source in {self.matching:,} of {self.tested:,}: `{self.path}`"


def sample(rows: pa.Table, of: int) -> Rows:
    """Choose about SAMPLE rows of `of`: of each side, those of the same ids."""
    import numpy as np

    hashes = row_hashes.of_texts(rows[row_columns.ID].combine_chunks())
    return [tuple(row.values()) for row in rows.take(np.flatnonzero(hashes % _step(of) == 0)).to_pylist()]


def sample_by_spark(rows: DataFrame, of: int) -> Rows:
    """Choose the same by Spark."""
    from pyspark.sql import functions as f

    return list(map(tuple, rows.where(f.xxhash64(row_columns.ID) % _step(of) == 0).collect()))


def agreeing(ours: Rows, theirs: Rows, rules: Sequence[FieldRule]) -> Agreed:
    """Choose the ids whose rows agree in all fields, and stand once on each side."""
    once = [Counter(id_text for id_text, *_ in rows) for rows in (ours, theirs)]
    copies = {id_text: values for id_text, _, *values in theirs}
    return {
        id_text: (version_number(version), values)
        for id_text, version, *values in ours
        if id_text is not None
        and once[0][id_text] == once[1][id_text] == 1
        and all(equal(rule, one, other) for rule, one, other in zip(rules, values, copies[id_text], strict=True))
    }


def evaluate(
    spark: SparkSession,
    history: History,
    contract: Contract,
    consumer: Consumer,
    form: Sequence[CanonicalType],
    agreed: Agreed,
    redactor: Redactor | None,
) -> tuple[EventTest, ...]:
    """Test each expression of a consumer on the records of rows that agree; `redactor` redacts as it did the rows.

    Of an id one record counts: that with the version of its row, where both have versions, or else the newest. What is
    added to a field is not tested: several records make its value.
    """
    rules = field_rules(consumer, form)
    wanted = [number for number, rule in enumerate(rules) if rule.carried and not rule.add]
    if not wanted or not agreed:
        return ()
    said = _said(spark, history, contract, consumer, form, agreed)
    if redactor is not None:
        said = redacted_rows.events(said, redactor)
    here = said if local_frames.is_local(said) else local_frames.localized(said, _MOST)
    read = None if here is None else local_frames.plain_rows(here)
    found = [(agreed[row[ID]][1], row) for row in _chosen(read or (), contract, agreed)]
    tests, index = [], contract.consumers.index(consumer)
    for number in wanted:
        told = [
            (values[number], row[VALUES][number])
            for values, row in found
            if row[TELLS][number] and not row[UNTOLD][number]
        ]
        telling = [pair for pair in told if pair != (None, None)]
        matching = sum(equivalent(rules[number], ours, theirs) for ours, theirs in telling)
        path = path_text(("consumers", index, "fields", number, "event"))
        tests.append(EventTest(contract.link(consumer), path, rules[number].name, len(telling), matching))
    return tuple(tests)


def believed(consumer: Consumer, tests: Iterable[EventTest]) -> Consumer:
    """Leave out of a consumer the expressions that are not to be believed: no event says anything of these fields."""
    doubted = {each.field for each in tests if each.failed}
    fields = (each.model_copy(update={"event": None}) if each.name in doubted else each for each in consumer.fields)
    return consumer.model_copy(update={"fields": tuple(fields)}) if doubted else consumer


def _said(
    spark: SparkSession,
    history: History,
    contract: Contract,
    consumer: Consumer,
    form: Sequence[CanonicalType],
    agreed: Agreed,
) -> DataFrame:
    """Build what records of these ids say: of each id one where they are near, else its newest ones."""
    import pyarrow as pa
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    near = history.near([each.name for each in history.index.segments], pa.array(sorted(agreed), pa.string()))
    if near is not None:
        light = near.select([ID, VERSION, TYPE, TIMESTAMP, PARTITION, OFFSET, DELETES, RAW]).to_pylist()
        rows = ({**row, READABLE: row[RAW] is None, _PLACE: place} for place, row in enumerate(light))
        chosen = [row[_PLACE] for row in _chosen(rows, contract, agreed)]
        records = history.of_table(spark, near.take(pa.array(chosen, pa.int64())))
    else:
        newest = Window.partitionBy(ID).orderBy(f.desc(TIMESTAMP), f.desc(PARTITION), f.desc(OFFSET))
        ranked = history.records(spark, sorted(agreed)).withColumn(_PLACE, f.row_number().over(newest))
        records = ranked.where(f.col(_PLACE) <= _NEWEST).drop(_PLACE)
    return event_values(spark, records, contract.topic, consumer, form)


def _chosen(rows: Iterable[Mapping[str, Any]], contract: Contract, agreed: Agreed) -> list[Mapping[str, Any]]:
    """Choose of each id the newest record that tells its row's state, by its version where both have one."""
    versioned = contract.topic.version is not None and contract.source.version is not None
    newest: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row[DELETES] or not row[READABLE] or row[TYPE] in contract.topic.ignore_types:
            continue
        version = agreed[row[ID]][0]
        if versioned and version is not None and version_number(row[VERSION]) != version:
            continue
        if row[ID] not in newest or _at(newest[row[ID]]) < _at(row):
            newest[row[ID]] = row
    return list(newest.values())


def _at(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row[TIMESTAMP], row[PARTITION], row[OFFSET]


def _step(of: int) -> int:
    return max(1, of // SAMPLE)
