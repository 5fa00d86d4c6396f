"""The stage `audit`: what was gathered becomes findings, each confirmed by a second reading."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from reconcile.audit import compare, events, latent_candidates, link_facts
from reconcile.audit.cases import SCHEMA, Attributing, Readings, joined, newest
from reconcile.audit.columns import ID, SOURCE_COUNT, SOURCE_FIELDS, SOURCE_VERSION
from reconcile.audit.home_partition import Router
from reconcile.audit.partitioner_inference import infer_from_log
from reconcile.contract.model import Consumer
from reconcile.domain.case import FieldRule, Link
from reconcile.domain.key import rebuilds
from reconcile.domain.plan_rules import Terms
from reconcile.errors import RefusedError, UnreachableError
from reconcile.gather.fence.fence import Unread
from reconcile.gather.fence.opening import OpenFence, open_fence
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.log.history import History
from reconcile.gather.log.history_columns import KEY
from reconcile.gather.log.records import is_origin
from reconcile.gather.stores import row_columns
from reconcile.pipeline import gather as gathering
from reconcile.pipeline.handoffs import (
    FINDINGS,
    Fence,
    Gathered,
    Summary,
    cases,
    copy_rows,
    ledger,
    parked_records,
    source_rows,
)
from reconcile.pipeline.job import Job
from reconcile.pipeline.summary import Counted, summary
from reconcile.workspace.manifest import ChangedInputsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)

_CASES = 5000
"""At most about so many are attributed in one task."""
_KEYS = 100
"""So many keys tell how they are written."""


def audit(job: Job, terms: Mapping[str, Terms], corrections: Collection[tuple[str | None, int, int]] = ()) -> None:
    """Compare, confirm and attribute what was gathered into the run; do nothing if that was done.

    `terms` say for each consumer what would be repaired; `corrections` are the places in the topic, with the ids, where
    those of earlier runs stand.
    """
    if job.run.done(Summary.ARTIFACT, job.inputs([Gathered.ARTIFACT])):
        _LOG.info("audited already")
        return
    if job.run.manifest(Gathered.ARTIFACT).inputs.contract != job.contract.digest:
        # What was gathered is told by the places of its fields.
        raise ChangedInputsError(
            f"the contract was changed since {job.run.id} was gathered: start a new run, or go back to what it was"
        )
    job.run.discard("audit")
    _Auditing(job, terms, corrections).run()


@dataclass(frozen=True)
class _Suspected:
    """The ids of one link that are to be looked at."""

    consumer: Consumer
    rules: tuple[FieldRule, ...]
    rows: DataFrame
    """`id`, `settled_version` and `settled_fields` as the source said, and whether it `differs`."""
    counted: Counted
    facts: Link | None = None
    """What its cases share; None as long as they have not been read."""


class _Auditing:
    def __init__(
        self, job: Job, terms: Mapping[str, Terms], corrections: Collection[tuple[str | None, int, int]]
    ) -> None:
        self.job = job
        self.corrections = corrections
        self.terms = terms
        gathered = job.run.read(Gathered)
        self.inputs = job.inputs([Gathered.ARTIFACT])
        self.before = job.run.read(Fence)
        self.links = {each.consumer: each for each in gathered.links}
        self.unread = {each.link: each for each in gathered.unread}
        self.reaches: dict[str, link_facts.Reach] = {}
        self.held: list[DataFrame] = []

    def run(self) -> None:
        job = self.job
        history = gathering.log_history(job, self.before)
        self.log = history.records(job.spark, job.scope.ids)
        inferred = infer_from_log(history.records(job.spark), history.index, job.contract.topic)
        self.router = Router.of(inferred, history.index.partitions)
        self.shape = latent_candidates.shape(self.log, self.router, job.contract.topic.ignore_types, self._hold)
        suspected = [self._suspected(each) for each in job.consumers if each.name in self.links]
        for frame in self.held:
            frame.unpersist()
        read = self._read_again([each for each in suspected if each.counted.suspects])
        frames = [self._findings(each) for each in read]
        found = reduce(lambda left, right: left.unionByName(right), frames, job.spark.createDataFrame([], SCHEMA))
        complete = not self.unread
        notes = [f"{link}: {each.message}" for link, each in sorted(self.unread.items())]
        found.persist()  # to put them in order Spark looks at them twice
        ordered = found.orderBy("link", "aggregate_id")
        job.run.publish_parquet(FINDINGS, ordered, self.inputs, stage="audit", complete=complete, notes=notes)
        found.unpersist()
        figures = summary(
            job.contract,
            self.before,
            {job.contract.link(each.consumer): each.counted for each in suspected},
            job.run.parquet(FINDINGS, job.spark),
            self.unread,
        )
        job.run.publish(figures, self.inputs, complete=complete, notes=notes)

    def _suspected(self, consumer: Consumer) -> _Suspected:
        """Compare what was gathered, and add what agrees and may break."""
        from pyspark.sql import functions as f

        job, name, link = self.job, consumer.name, self.links[consumer.name]
        _LOG.info(f"{link.link}: comparing")
        rules = link_facts.field_rules(consumer, link.form)
        source = job.run.parquet(source_rows(name), job.spark)
        copy = job.run.parquet(copy_rows(name), job.spark)
        differing = compare.differences(source, copy, rules).select(
            ID,
            f.col(SOURCE_VERSION).alias("settled_version"),
            f.col(SOURCE_FIELDS).alias("settled_fields"),
            f.lit(True).alias("differs"),
            SOURCE_COUNT,
        )
        candidates = self._hold(self._candidates(consumer))
        latent = None if candidates.isEmpty() else _agreeing(candidates, source, copy, rules)
        rows = differing if latent is None else differing.unionByName(latent)
        rows = self._kept(f"suspects.{name}", rows)
        told = rows.agg(
            f.count(f.lit(1)).alias("suspects"),
            f.count_if("differs").alias("differing"),
            f.coalesce(f.sum(SOURCE_COUNT), f.lit(0)).alias("source_rows"),
        ).collect()[0]
        compared = link.source_rows - told["source_rows"] + told["differing"]
        return _Suspected(consumer, rules, rows, Counted(compared, told["suspects"], told["differing"]))

    def _candidates(self, consumer: Consumer) -> DataFrame:
        job = self.job
        if (ids := job.scope.frame(job.spark, ID)) is not None:
            return ids
        entries = self._ledger(consumer)
        self.reaches[consumer.name] = link_facts.ledger_reach(entries, entries, self.log)
        return latent_candidates.candidates(
            self.shape,
            self.log,
            job.run.parquet(parked_records(consumer.name), job.spark),
            entries,
            {place.partition: place.committed_before for place in self.before.consumer(consumer.name).places},
            self.reaches[consumer.name].begins,
            job.contract.topic.ignore_types,
            self._hold,
            is_origin(job.contract.topic.name) if link_facts.ledger_by_position(job.contract, consumer) else None,
        )

    def _read_again(self, suspected: list[_Suspected]) -> list[_Suspected]:
        """Read the suspects again from both stores, after the time that what is in flight may take."""
        job = self.job
        if not suspected:
            return []
        self._wait(suspected)
        _LOG.info(f"reading {sum(each.counted.suspects for each in suspected):,} suspects again")
        names, read = [each.consumer.name for each in suspected], []
        with open_fence(job.contract, job.file, job.settings, names, timeout=timedelta(0)) as opened:
            self.unread |= {each.link: each for each in opened.fence.unread}
            history = gathering.log_history(job, opened.fence)
            for each in suspected:
                if each.consumer.name in opened.consumers:
                    try:
                        found = self._cases(opened, each, history)
                        opened.require_alive(each.consumer.name)
                        read.append(found)
                    except (UnreachableError, RefusedError) as error:
                        opened.require_source_alive()
                        link = job.contract.link(each.consumer)
                        self.unread[link] = Unread.because(link, each.consumer.name, error)
                    finally:
                        opened.release(each.consumer.name)
            opened.require_source_alive()
        return read

    def _cases(self, opened: OpenFence, suspected: _Suspected, history: History) -> _Suspected:
        job, consumer = self.job, suspected.consumer
        contract, name = job.contract, consumer.name
        reader = LinkReader(job.spark, contract, consumer, job.settings, opened)
        asked = suspected.rows.withColumnRenamed(ID, row_columns.ID)
        with reader.reading():
            source, copy = reader.rows
            records = history.records(job.spark, suspected.rows.where(f"{ID} is not null"))
            told = newest(events.event_values(job.spark, records, contract.topic, consumer, copy.form.fields)).persist()
            known = job.run.parquet(parked_records(name), job.spark).join(suspected.rows.select(ID), ID, "left_semi")
            readings = Readings(
                suspects=suspected.rows,
                source=source.among(asked),
                copy=copy.among(asked),
                events=told,
                parked=gathering.resolved_since(job, consumer, known),
                ledger=reader.ledger_of(told),
                outbox=reader.outbox(),
            )
            self._kept(cases(name), joined(readings))
            reach = self.reaches.get(name) or link_facts.ledger_reach(reader.ledger_bounds(), readings.ledger, told)
            told.unpersist()
        facts = link_facts.link_facts(
            contract,
            consumer,
            suspected.rules,
            self.before,
            opened.fence,
            history.index,
            dense_versions=self.shape.dense_versions,
            compacted=opened.fence.topic.compacted,
            reach=reach,
            corrections=self.corrections,
        )
        return replace(suspected, facts=facts)

    @cached_property
    def key_type(self) -> str | None:
        """How ids become keys; None where the log's records show that an id does not tell its key."""
        declared = self.job.contract.topic.key.type
        if declared != "json":
            return declared
        keys = self.log.select(KEY).where(f"{KEY} is not null").limit(_KEYS).collect()
        return declared if all(rebuilds(row[KEY], declared) for row in keys) else None

    def _findings(self, suspected: _Suspected) -> DataFrame:
        job, consumer = self.job, suspected.consumer
        assert suspected.facts is not None
        sensitive = frozenset(field.name for field in consumer.fields if field.sensitive)
        ignored = frozenset(job.contract.topic.ignore_types)
        attributing = Attributing(
            suspected.facts,
            self.router,
            ignored,
            sensitive,
            job.run.id,
            self.key_type,
            self.terms[consumer.name],
            consumer.repair.route == "main",
        )
        # Few bytes and much to think about: the cores are to share them by number, not by size.
        name = cases(consumer.name)
        shares = max(job.spark.sparkContext.defaultParallelism, job.run.manifest(name).rows // _CASES)
        return attributing.findings(job.run.parquet(name, job.spark).repartition(shares, ID))

    def _kept(self, name: str, frame: DataFrame) -> DataFrame:
        """Keep what was read: the stores move on."""
        self.job.run.publish_parquet(name, frame, self.inputs, stage="audit")
        return self.job.run.parquet(name, self.job.spark)

    def _hold(self, frame: DataFrame) -> DataFrame:
        """Keep what is computed of a frame in memory until all links have their suspects."""
        self.held.append(frame.persist())
        return frame

    def _wait(self, suspected: list[_Suspected]) -> None:
        """Give what is in flight the time that the contract grants it."""
        longest = max(each.consumer.settle.confirm_after for each in suspected)
        left = (self.before.closed_at + longest - datetime.now(UTC)).total_seconds()
        if left > 0:
            _LOG.info(f"waiting {left:.0f} s for what is in flight")
            time.sleep(left)

    def _ledger(self, consumer: Consumer) -> DataFrame | None:
        name = ledger(consumer.name)
        return self.job.run.parquet(name, self.job.spark) if self.job.run.find(name) else None


def _agreeing(candidates: DataFrame, source: DataFrame, copy: DataFrame, rules: Sequence[FieldRule]) -> DataFrame:
    """Give those of some ids on which both sides agree, as the source says that they are."""
    from pyspark.sql import functions as f

    asked = candidates.select(f.col(ID).alias(row_columns.ID))
    ours, theirs = (side.join(asked, row_columns.ID, "left_semi") for side in (source, copy))
    settled = compare.named(ours, len(rules), "settled_version", "settled_fields").dropDuplicates([ID])
    agreeing = candidates.join(compare.differences(ours, theirs, rules).select(ID), ID, "left_anti")
    return agreeing.join(settled, ID, "left").withColumns({"differs": f.lit(False), SOURCE_COUNT: f.lit(0)})
