"""The stage `gather`: one process from the fence to the evidence, which leaves all that the audit needs."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from reconcile.contract.model import Consumer
from reconcile.errors import ReconcileError, RefusedError, UnreachableError
from reconcile.gather.evidence import parked
from reconcile.gather.fence import fence as fences
from reconcile.gather.fence.fence import Fence, Unread
from reconcile.gather.fence.opening import OpenFence, open_fence
from reconcile.gather.fence.settling import Progress
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.log.avro import AvroSchema, avro_schema
from reconcile.gather.log.history import History, extend
from reconcile.gather.log.history_store import HistoryStore
from reconcile.gather.stores import row_columns
from reconcile.kafka.cluster import Cluster
from reconcile.pipeline.job import Job
from reconcile.settings.connections import Cluster as ClusterConnection
from reconcile.settings.connections import Registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)

FENCE = "fence"
GATHERED = "gathered"
OUTBOX = "outbox"


def source_rows(consumer: str) -> str:
    """Name the artifact with the source's rows that are compared with a consumer's."""
    return f"source.{consumer}"


def copy_rows(consumer: str) -> str:
    """Name the artifact with a consumer's rows."""
    return f"copy.{consumer}"


def ledger(consumer: str) -> str:
    """Name the artifact with a consumer's ledger."""
    return f"ledger.{consumer}"


def parked_records(consumer: str) -> str:
    """Name the artifact with what a consumer has put aside."""
    return f"parked.{consumer}"


@dataclass
class _Gathering:
    job: Job
    links: dict[str, dict[str, Any]] = field(default_factory=dict)
    unread: list[Unread] = field(default_factory=list)

    def run(self) -> None:
        job = self.job
        with open_fence(job.contract, job.file, job.settings, job.consumers, progress=_lag_logged()) as opened:
            fence = opened.fence
            self.unread += fence.unread
            told = json.loads(fences.to_json(fence))
            notes = self._notes()
            job.run.publish_json(FENCE, told, job.inputs(), stage="gather", complete=fence.complete, notes=notes)
            for consumer in job.links:
                if consumer.name in opened.consumers:
                    self._stores(opened, consumer)
            opened.require_source_alive()
        history = log_history(job, fence)
        self._evidence(history)
        self._publish(history)

    def _stores(self, opened: OpenFence, consumer: Consumer) -> None:
        """Read what the stores have to give while their snapshots last."""
        job, link = self.job, self.job.contract.link(consumer)
        _LOG.info(f"{link}: reading both stores")
        reader = LinkReader(job.spark, job.contract, consumer, job.settings, opened)
        try:
            with reader.reading():
                self._tables(reader, consumer, link)
            opened.require_alive(consumer.name)
        except (UnreachableError, RefusedError) as error:
            opened.require_source_alive()
            self._left_out(consumer, error)
        finally:
            opened.release(consumer.name)

    def _tables(self, reader: LinkReader, consumer: Consumer, link: str) -> None:
        job, name = self.job, consumer.name
        source, copy, told = self._rows(reader)
        frames = {source_rows(name): source, copy_rows(name): copy}
        if (entries := reader.ledger() if job.ids is None else None) is not None:
            frames[ledger(name)] = entries
        if (box := reader.outbox()) is not None and job.run.find(OUTBOX) is None:
            frames[OUTBOX] = box
        if (table := reader.stash_table()) is not None:
            frames[f"stash.{name}"] = table
        # A small table keeps one core busy: side by side they keep all.
        with ThreadPoolExecutor(len(frames)) as pool:
            rows = dict(zip(frames, pool.map(self._parquet, frames, frames.values()), strict=True))
        ours, theirs = rows[source_rows(name)], rows[copy_rows(name)]
        counts = {
            "source_rows": ours,
            "copy_rows": theirs,
            "fetched": ours + theirs,
            "buckets": None,
            "differing": None,
        }
        form = [{"kind": each.kind, "element": each.element} for each in reader.rows[1].form.fields]
        fields = [{"name": each.name, "sensitive": each.sensitive} for each in consumer.fields]
        self.links[name] = {"link": link, "consumer": name, **counts, **told, "form": form, "fields": fields}

    def _rows(self, reader: LinkReader) -> tuple[DataFrame, DataFrame, dict[str, Any]]:
        """Give the rows of both sides that are to be compared, and how they were chosen."""
        job = self.job
        if job.ids is not None:
            asked = job.spark.createDataFrame([(each,) for each in sorted(set(job.ids))], f"{row_columns.ID} string")
            source, copy = (side.among(asked) for side in reader.rows)
            return source, copy, {"mode": "ids", "reasons": []}
        compared = reader.compared(job.mode)
        told: dict[str, Any] = {"mode": compared.mode.value, "reasons": list(compared.reasons)}
        if (differing := compared.differing) is not None:
            told |= {
                "source_rows": differing.source_rows,
                "copy_rows": differing.copy_rows,
                "buckets": differing.count,
                "differing": len(differing.buckets),
            }
        return compared.source, compared.copy, told

    def _evidence(self, history: History) -> None:
        """Read what lies in the failure topics: the log first, then what was parked of it."""
        job = self.job
        for consumer in job.links:
            if consumer.name in self.links:
                table = job.run.find(f"stash.{consumer.name}")
                try:
                    frame = parked_of(job, consumer, history)
                except (UnreachableError, RefusedError) as error:
                    self._left_out(consumer, error)
                    continue
                if table is not None:
                    frame = frame.unionByName(job.run.parquet(table.name, job.spark))
                self._parquet(parked_records(consumer.name), frame)

    def _left_out(self, consumer: Consumer, error: ReconcileError) -> None:
        self.unread.append(Unread.because(self.job.contract.link(consumer), consumer.name, error))
        self.links.pop(consumer.name, None)

    def _notes(self) -> list[str]:
        return [f"{each.link}: {each.message}" for each in self.unread]

    def _parquet(self, name: str, frame: DataFrame) -> int:
        return self.job.run.publish_parquet(name, frame, self.job.inputs(), stage="gather").rows

    def _publish(self, history: History) -> None:
        job, run = self.job, self.job.run
        made_of = [each for each in run.manifests() if each.stage == "gather" and each.name != GATHERED]
        value = {
            "contract": str(job.file),
            "aggregate": job.contract.aggregate,
            "links": list(self.links.values()),
            "unread": [asdict(each) for each in self.unread],
            "log": {
                "folder": history.home.folder,
                "generation": history.index.generation,
                "records": sum(segment.rows for segment in history.index.segments),
                "expired": [json.loads(lost.model_dump_json()) for lost in history.index.expired],
            },
        }
        run.publish_json(
            GATHERED,
            {**value, "artifacts": {each.name: each.digest for each in made_of}},
            job.inputs(),
            stage="gather",
            complete=not self.unread,
            notes=self._notes(),
        )


def gather(job: Job) -> None:
    """Read the world of a contract into the run; do nothing if that was done.

    Raises ChangedInputsError if it was done of something else.
    """
    if job.run.done(GATHERED, job.inputs()):
        _LOG.info("gathered already")
        return
    # What an attempt left that was cut off belongs to instants that are gone.
    job.run.discard("gather")
    _Gathering(job).run()


def log_history(job: Job, fence: Fence) -> History:
    """Bring the topic's history up to where the fence says that the log is evidence."""
    ends = {place.partition: place.log_end for place in fence.topic.partitions}
    _LOG.info(f"reading {fence.topic.name} up to its ends")
    topic, store = job.contract.topic, HistoryStore.of(job.workspace)
    history = extend(job.spark, topic, cluster_connection(job), ends, store, avro=avro(job))
    keep = job.settings.history.keep
    return history if keep is None else history.prune(fence.opened_at - keep)


def kept_history(job: Job) -> DataFrame:
    """Give the topic's records as far as the fence of the run says that the log is evidence."""
    fence = fences.from_json(json.dumps(job.run.json(FENCE)))
    return log_history(job, fence).records(job.spark)


def parked_of(job: Job, consumer: Consumer, history: History) -> DataFrame:
    """Give what lies in the failure topics of a consumer now."""
    contract = job.contract
    connection = cluster_connection(job)
    with closing(Cluster(contract.topic.cluster, connection.resolve())) as cluster:
        logs = parked.read(
            job.spark, contract, consumer, cluster, connection, HistoryStore.of(job.workspace), avro(job)
        )
    return parked.parked(job.spark, logs, consumer, contract.topic.name, history.records(job.spark))


def resolved_since(job: Job, consumer: Consumer, records: DataFrame) -> DataFrame:
    """Give parked records of a consumer with what was committed past since they were read."""
    with closing(Cluster(job.contract.topic.cluster, cluster_connection(job).resolve())) as cluster:
        return parked.resolved_since(records, cluster, consumer)


def cluster_connection(job: Job) -> ClusterConnection:
    """Give the connection to the topic's cluster."""
    connection = job.settings.connection(job.contract.topic.cluster)
    if not isinstance(connection, ClusterConnection):
        raise RefusedError(f"the connection {job.contract.topic.cluster} is no Kafka cluster")
    return connection


def avro(job: Job) -> AvroSchema | None:
    """Give the schema of the topic's values, None for a format that needs none."""
    schema = job.contract.topic.value_schema
    registry = None
    if schema is not None and schema.registry is not None:
        found = job.settings.connection(schema.registry)
        registry = found if isinstance(found, Registry) else None
    return avro_schema(job.contract.topic, job.file.parent, registry)


def _lag_logged() -> Progress:
    last: dict[str, int] = {}

    def progress(link: str, lag: int) -> None:
        if lag and last.get(link) != lag:
            _LOG.info(f"{link}: waiting, {lag:,} to go")
        last[link] = lag

    return progress
