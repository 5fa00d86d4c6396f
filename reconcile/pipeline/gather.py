"""The stage `gather`: one process from the fence to the evidence, which leaves all that the audit needs."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from reconcile.audit import redacted_rows
from reconcile.audit.columns import ID
from reconcile.audit.events import require_analysed
from reconcile.contract.model import Consumer
from reconcile.domain.distribution import SAMPLE, SIDES, Distribution, Side, distribution
from reconcile.domain.redaction import Redactor
from reconcile.errors import ReconcileError, RefusedError, UnreachableError
from reconcile.gather.evidence import parked, plain_parked
from reconcile.gather.fence.fence import Fence, UnreadableLink
from reconcile.gather.fence.opening import OpenFence, open_fence
from reconcile.gather.link_reader import Compared, LinkReader
from reconcile.gather.log.history import History
from reconcile.gather.log.plain_log import KeptLog, NeedsSparkError
from reconcile.gather.log.store import HistoryStore
from reconcile.gather.log.undecided import UndecidedRecords, undecided_records
from reconcile.gather.stores import row_columns
from reconcile.gather.stores.errors import StoreBusyError
from reconcile.gather.stores.link_rows import some_of
from reconcile.gather.stores.postgres_store import PostgresParts
from reconcile.gather.stores.usage import Taken
from reconcile.pipeline import changes, since
from reconcile.pipeline.changes import Looking
from reconcile.pipeline.handoffs import (
    ACCOUNTED,
    CHANGED,
    OUTBOX,
    Gathered,
    GatheredField,
    GatheredLink,
    LogExtent,
    copy_rows,
    ledger,
    parked_records,
    source_rows,
    stash,
)
from reconcile.pipeline.job import Job
from reconcile.pipeline.log_view import cluster_client, cluster_connection, history_up_to, value_schema
from reconcile.pipeline.logs import about, timed
from reconcile.pipeline.redaction import key_mark, redactable_at_once, redactor_of, sensitive_key
from reconcile.pipeline.scope import ChangedIds
from reconcile.spark import local_frames
from reconcile.workspace.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from reconcile.workspace.arrow_tables import TextReader

_LOG = logging.getLogger(__name__)


@dataclass
class _Gathering:
    job: Job
    looking: Looking
    """Which aggregates it looks at, as far as that is known by now."""
    begins: dict[int, int] | None = None
    changed_records: DataFrame | None = None
    """The log's records since the fence of the run that changes are told from; None where all is compared."""
    links: dict[str, GatheredLink] = field(default_factory=dict)
    unread: list[UnreadableLink] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)

    def run(self) -> None:
        job = self.job
        with open_fence(job.contract, job.file, job.settings, job.consumer_names) as opened:
            fence = opened.fence
            self.unread += fence.unread
            job.run.publish(fence, job.inputs(), complete=fence.complete, notes=self._notes())
            took = (fence.closed_at - fence.opened_at).total_seconds()
            for each in fence.topic.hanging:
                _LOG.warning(f"a transaction hangs in {fence.topic.name} {each}: see reconcile fence")
            _LOG.debug(f"fence opened in {took:.1f} s: {len(fence.topic.partitions)} partitions")
            there = [each for each in job.consumers if each.name in opened.consumers]
            history = self._changes(opened, there) if self.looking.basis is not None else None
            there = [each for each in there if job.contract.link(each) not in {lost.link for lost in self.unread}]
            for number, consumer in enumerate(there, 1):
                with about(link=job.contract.link(consumer), part=f"{number} of {len(there)}"):
                    self._stores(opened, consumer)
            opened.require_source_alive()
            opened.release_source()
            self._count(opened.taken())
        history = history or log_history(job, fence)
        self._evidence(history)
        self._publish(history)

    def _changes(self, opened: OpenFence, consumers: Sequence[Consumer]) -> History:
        """Look for what may have changed, while the stores can be read; what cannot be told is not looked for."""
        job, basis, fence = self.job, self.looking.basis, opened.fence
        assert basis is not None
        history = log_history(job, fence)
        begins = since.begins(basis.fence, fence, [each.name for each in job.consumers])
        if problem := since.unusable(basis.run.id, basis.fence, fence, history.index, begins):
            self._compare_all(problem)
            return history
        readers = {}
        for consumer in consumers:
            reader = self._reader(opened, consumer)
            if self._set_aside(opened, reader, history):
                readers[consumer.name] = reader
        if not readers:
            self._compare_all("no copy could be read")
            return history
        records = history.records_from(job.spark, begins)
        with next(iter(readers.values())).reading():
            changed = changes.changed_ids(job, basis, history.ids_from(job.spark, begins), readers)
            if self.looking.scope.kind == "changed":
                self._settle(changed, records, begins)
            if self.looking.scope.kind == "full" and self.looking.scope.after:
                found = job.run.find(CHANGED)
                ids = changed if found is None else job.run.parquet(CHANGED, job.spark)
                self._parquet(ACCOUNTED, changes.accounted(job, self.looking.scope.after, ids))
        return history

    def _settle(self, changed: DataFrame, records: DataFrame, begins: dict[int, int]) -> None:
        """Publish the ids that may have changed, unless they are so many that all are compared."""
        number = self._parquet(CHANGED, changed)
        _LOG.info(f"{number:,} aggregates may have changed since {self.looking.scope.since}")
        if reason := since.too_many(number, self.looking.scope.aggregates):
            self._compare_all(reason)
            return
        self.begins, self.changed_records = begins, records
        self.looking = replace(self.looking, scope=self.looking.scope.model_copy(update={"ids": number}))

    def _compare_all(self, reason: str) -> None:
        if self.looking.scope.kind == "changed":
            _LOG.warning(f"comparing everything: {reason}")
            self.looking = self.looking.full(reason)

    def _set_aside(self, opened: OpenFence, reader: LinkReader, history: History) -> bool:
        """Read what a consumer has put aside, and what waits in the outbox; tell whether that could be read."""
        job, consumer = self.job, reader.consumer
        try:
            with reader.reading():
                if (box := reader.outbox()) is not None and job.run.find(OUTBOX) is None:
                    self._read(reader, OUTBOX, box)
                if (table := reader.stash_table()) is not None:
                    self._read(reader, stash(consumer.name), table)
            self._parked(consumer, history)
        except StoreBusyError:
            raise
        except (UnreachableError, RefusedError) as error:
            opened.require_source_alive()
            self._left_out(consumer, error)
            opened.release(consumer.name)
            return False
        return True

    def _reader(self, opened: OpenFence, consumer: Consumer) -> LinkReader:
        return LinkReader(self.job.spark, self.job.contract, consumer, self.job.settings, opened)

    def _stores(self, opened: OpenFence, consumer: Consumer) -> None:
        """Read what the stores have to give while their snapshots last."""
        link = self.job.contract.link(consumer)
        _LOG.info(f"{link}: reading both stores")
        reader = self._reader(opened, consumer)
        try:
            with timed(_LOG, f"{link}: both stores read"), reader.reading():
                self._tables(reader, consumer, link)
            opened.require_alive(consumer.name)
        except StoreBusyError:
            raise
        except (UnreachableError, RefusedError) as error:
            opened.require_source_alive()
            self._left_out(consumer, error)
        finally:
            opened.release(consumer.name)
            self._count(opened.taken(consumer.name))

    def _tables(self, reader: LinkReader, consumer: Consumer, link: str) -> None:
        job, name = self.job, consumer.name
        compared = self._compared(reader)
        form = reader.rows[1].form.fields
        at_once = redactable_at_once(consumer, form)
        redactor = redactor_of(job, consumer, reader.opened.fence, at_once)
        frames: dict[str, DataFrame | PostgresParts]
        frames = {source_rows(name): compared.source, copy_rows(name): compared.copy}
        if (entries := self._ledger(reader)) is not None:
            frames[ledger(name)] = entries
        if (box := reader.outbox()) is not None and job.run.find(OUTBOX) is None:
            frames[OUTBOX] = box
        if job.run.find(stash(name)) is None and (table := reader.stash_table()) is not None:
            frames[stash(name)] = table
        # A small table keeps one core busy: side by side they keep all.
        with ThreadPoolExecutor(len(frames)) as pool:
            try:
                found = pool.map(lambda table: self._read(reader, table, frames[table], redactor), frames)
                rows = dict(zip(frames, found, strict=True))
            except BaseException as error:
                for each in frames.values():
                    if isinstance(each, PostgresParts):
                        each.stop(error)
                raise
        ours, theirs, differing = rows[source_rows(name)], rows[copy_rows(name)], compared.differing
        self.links[name] = GatheredLink(
            link=link,
            consumer=name,
            source_rows=ours if differing is None else differing.source_rows,
            copy_rows=theirs if differing is None else differing.copy_rows,
            fetched=ours + theirs,
            buckets=None if differing is None else differing.count,
            differing=None if differing is None else len(differing.buckets),
            mode=compared.mode.value if self.looking.scope.kind == "full" else self.looking.scope.kind,
            reasons=tuple(compared.reasons),
            form=tuple(form),
            fields=tuple(
                GatheredField(name=each.name, sensitive=each.sensitive, redacted=each.name in at_once)
                for each in consumer.fields
            ),
            distributions=self._distributions(reader, compared, ours, theirs),
        )
        buckets = "" if differing is None else f", {len(differing.buckets):,} of {differing.count:,} buckets differ"
        _LOG.debug(f"{link}: mode {self.links[name].mode}, {ours:,} and {theirs:,} rows fetched{buckets}")

    def _distributions(
        self, reader: LinkReader, compared: Compared, ours: int, theirs: int
    ) -> dict[Side, Distribution] | None:
        """Look how the values of both sides are distributed: in rows that were read anyway, or in a sample of all."""
        job, consumer, differing = self.job, reader.consumer, compared.differing
        past = job.contract.past_snapshots(consumer)
        if consumer.distributions is None or self.looking.scope.kind != "full" or past:
            return None
        fields = [
            (each.name, to.kind, each.sensitive)
            for each, to in zip(consumer.fields, reader.rows[1].form.fields, strict=True)
        ]
        wanted = list(map(row_columns.field, range(len(fields))))
        if differing is None or (ours, theirs) == (differing.source_rows, differing.copy_rows):
            counts = ours, theirs
            tables = zip((source_rows(consumer.name), copy_rows(consumer.name)), counts, strict=True)
            frames = [some_of(job.run.parquet(name, job.spark), SAMPLE, rows) for name, rows in tables]
            samples = [each.select(*wanted).collect() for each in frames]
        else:
            counts, samples = (differing.source_rows, differing.copy_rows), []
            for side, frame in zip(SIDES, reader.sample(compared, SAMPLE), strict=True):
                with reader.tasks_reading(None, of_source=side == "source") as usage:
                    samples.append(frame.select(*wanted).collect())
                    if usage is not None:
                        usage.add(rows=len(samples[-1]))
        sides = zip(SIDES, counts, samples, strict=True)
        return {side: distribution(rows, sample, fields) for side, rows, sample in sides}

    def _read(
        self, reader: LinkReader, table: str, rows: DataFrame | PostgresParts, redactor: Redactor | None = None
    ) -> int:
        """Publish a table of a store as it is read; the rows that are compared are redacted."""
        job, name = self.job, reader.consumer.name
        statements: int | None
        if isinstance(rows, PostgresParts):
            if job.is_local:
                readers = rows.readers(job.spark.sparkContext.defaultParallelism)
                if redactor is not None and redactor.at_once:
                    readers = [_redacting(each, redactor) for each in readers]
                return job.run.publish_texts(table, rows.columns, readers, job.inputs(), stage="gather").rows
            listed = rows.statements(rows.store.limits.readers)
            statements, frame = len(listed), rows.store.frame(job.spark, listed)
        elif table not in (source_rows(name), copy_rows(name)):
            redactor, statements, frame = None, 1, rows
        elif self.looking.scope.kind == "full":
            return self._parquet(
                table, _redacted(rows, redactor)
            )  # no rows at all, or those of a store that has no limits
        else:
            statements, frame = None, rows  # tasks that send several each
        with reader.tasks_reading(statements, of_source=table in (source_rows(name), OUTBOX)) as usage:
            count = self._parquet(table, _redacted(frame, redactor))
            if usage is not None:
                usage.add(statements=statements or 0, rows=count)
        return count

    def _count(self, taken: Taken | None) -> None:
        if taken is None:
            return
        self.taken.append(taken)
        busy = f", {taken.paused_seconds:.0f} s of waiting while it was busy" if taken.paused_seconds else ""
        _LOG.debug(
            f"{taken.store} ({taken.of}): {taken.statements:,} statements, {taken.rows:,} rows, {taken.bytes:,} bytes"
            f" by COPY, {taken.readers} at a time, snapshot of {taken.snapshot_seconds:.1f} s{busy}"
        )

    def _digest(self, table: Manifest) -> str:
        """Compute what tells a table from others: of one row a bare digest would say what is in it."""
        key = sensitive_key(self.job)
        return hmac.digest(key, table.digest.encode(), "sha256").hex() if key else table.digest

    def _key_mark(self) -> str | None:
        redacted = any(field.redacted for link in self.links.values() for field in link.fields or ())
        return key_mark(self.job.settings) if redacted else None

    def _compared(self, reader: LinkReader) -> Compared:
        """Choose the rows of both sides that are to be compared."""
        job = self.job
        if self.looking.scope.kind == "full":
            return reader.compared(job.mode)
        if self.looking.scope.kind == "changed":
            changed = ChangedIds(job.run)
            listed = changed.listed if job.is_local else None
            return reader.compared_among(changed.frame(job.spark, row_columns.ID), listed)
        ids = job.scope.frame(job.spark, row_columns.ID)
        assert ids is not None
        return reader.compared_among(ids, None)

    def _ledger(self, reader: LinkReader) -> DataFrame | None:
        """Choose the entries of the ledger that are to be read: all of them, or those of the log's new events."""
        if self.looking.scope.kind == "full":
            return reader.ledger()
        events = self.changed_records
        found = None if events is None else reader.ledger_of(events.where(f"{ID} is not null"))
        return None if found is None else found.drop(ID)

    def _evidence(self, history: History) -> None:
        """Read what lies in the failure topics: the log first, then what was parked of it."""
        for consumer in self.job.consumers:
            if consumer.name in self.links and self.job.run.find(parked_records(consumer.name)) is None:
                try:
                    self._parked(consumer, history)
                except (UnreachableError, RefusedError) as error:
                    self._left_out(consumer, error)

    def _parked(self, consumer: Consumer, history: History) -> None:
        job, table = self.job, self.job.run.find(stash(consumer.name))
        frame = parked_of(job, consumer, history, mirrored=table is not None)
        if table is not None:
            frame = frame.unionByName(job.run.parquet(table.name, job.spark))
        self._parquet(parked_records(consumer.name), frame)

    def _left_out(self, consumer: Consumer, error: ReconcileError) -> None:
        self.unread.append(UnreadableLink.because(self.job.contract.link(consumer), consumer.name, error))
        self.links.pop(consumer.name, None)

    def _notes(self) -> list[str]:
        return [f"{each.link}: {each.message}" for each in self.unread]

    def _parquet(self, name: str, frame: DataFrame) -> int:
        return self.job.run.publish_parquet(name, frame, self.job.inputs(), stage="gather").rows

    def _publish(self, history: History) -> None:
        job, index = self.job, history.index
        made_of = [each for each in job.run.manifests() if each.stage == "gather" and each.name != Gathered.ARTIFACT]
        gathered = Gathered(
            contract=str(job.file),
            aggregate=job.contract.aggregate,
            links=tuple(self.links.values()),
            unread=tuple(self.unread),
            taken=tuple(self.taken),
            log=LogExtent(
                folder=history.home.folder,
                generation=index.generation,
                records=sum(segment.rows for segment in index.segments),
                expired=tuple(index.expired),
            ),
            artifacts={each.name: self._digest(each) for each in made_of},
            scope=self.looking.scope,
            begins=self.begins,
            key_mark=self._key_mark(),
        )
        job.run.publish(gathered, job.inputs(), complete=not self.unread, notes=self._notes())


def _redacted(rows: DataFrame, redactor: Redactor | None) -> DataFrame:
    return rows if redactor is None else redacted_rows.rows(rows, redactor)


def _redacting(read: TextReader, redactor: Redactor) -> TextReader:
    """Build a reader that redacts what another one reads."""
    return lambda take: read(lambda table: take(redacted_rows.table(table, redactor)))


def gather(job: Job) -> None:
    """Read the world of a contract into the run; do nothing if that was done.

    Raises ChangedInputsError if it was done of something else.
    """
    if job.run.done(Gathered.ARTIFACT, job.inputs()):
        _LOG.info("gathered already")
        return
    require_analysed(job.spark, job.contract, job.file)
    # What an attempt left that was cut off belongs to instants that are gone.
    job.run.discard("gather")
    _Gathering(job, changes.looking(job)).run()


def log_history(job: Job, fence: Fence) -> History:
    """Read the topic into its history, up to where the fence says that the log is evidence."""
    _LOG.info(f"reading {fence.topic.name} up to its ends")
    history = history_up_to(job, {place.partition: place.log_end for place in fence.topic.partitions})
    keep = job.settings.history.keep
    return history if keep is None else history.prune(fence.opened_at - keep)


def kept_history(job: Job) -> DataFrame:
    """Read the topic's records as far as the fence of the run says that the log is evidence."""
    return log_history(job, job.run.read(Fence)).records(job.spark)


def undecided(job: Job, fence: Fence) -> UndecidedRecords:
    """Read what is behind the transactions that were open when the fence closed."""
    if not fence.topic.open:
        return UndecidedRecords({}, frozenset())
    with cluster_client(job) as cluster:
        found = undecided_records(cluster, job.contract.topic, fence.topic.open, value_schema(job))
    if found.unread:
        partitions = ", ".join(map(str, sorted(found.unread)))
        _LOG.warning(f"too many records are behind open transactions to look at, in partition {partitions}")
    return found


def parked_of(job: Job, consumer: Consumer, history: History, *, mirrored: bool = False) -> DataFrame:
    """Read what lies in the failure topics of a consumer now; `mirrored` if a table of its store has its stash."""
    contract, values = job.contract, value_schema(job)
    connection, store = cluster_connection(job), HistoryStore.of(job.workspace)
    with cluster_client(job) as cluster:
        logs = parked.read(job.spark, contract, consumer, cluster, connection, store, values)
    if sum(segment.rows for log in logs for segment in log.history.index.segments) <= local_frames.MOST:
        with suppress(NeedsSparkError):
            events = KeptLog(contract.topic.name, history.derivation, history.home, history.index)
            topics = plain_parked.of_logs(logs)
            rows = plain_parked.parked(topics, consumer, contract.topic, values, events.at, mirrored=mirrored)
            return local_frames.of_rows(job.spark, rows, parked.SCHEMA)
    return parked.parked(job.spark, logs, consumer, contract.topic, history.records(job.spark), mirrored=mirrored)


def resolved_since(job: Job, consumer: Consumer, records: DataFrame) -> DataFrame:
    """Mark those parked records of a consumer with what was committed past since they were read."""
    with cluster_client(job) as cluster:
        return parked.resolved_since(records, cluster, consumer)
