"""The topic's log as it is now: its history up to the ends, and how its newest records are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from pyspark.sql import DataFrame  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253

from reconcile.audit.events import with_gone
from reconcile.gather.log.history import History, extend
from reconcile.gather.log.history_columns import ID, OFFSET, PARTITION, TIMESTAMP, TYPE, VALUE
from reconcile.gather.log.store import HistoryStore
from reconcile.gather.log.value_reader import FORMATS, ValueReader, value_reader
from reconcile.gather.log.value_reader import TYPE as TYPE_NAME
from reconcile.kafka.client import ClusterClient
from reconcile.pipeline.job import Job
from reconcile.repair import planning, topic_form
from reconcile.repair.correction_writer import added
from reconcile.repair.logged_aggregates import LoggedAggregate, logged_aggregates
from reconcile.repair.topic_form import TopicForm
from reconcile.settings.connections import ClusterConnection

_MOST_TYPES = 100


def cluster_connection(job: Job) -> ClusterConnection:
    """Look up the connection to the topic's cluster; raise RefusedError if it is one to something else."""
    return job.settings.cluster(job.contract.topic.cluster)


def cluster_client(job: Job) -> closing[ClusterClient]:
    """Connect to the topic's cluster, for a block; raise RefusedError if its connection is one to something else."""
    return closing(ClusterClient(job.contract.topic.cluster, cluster_connection(job).resolve()))


def value_schema(job: Job) -> ValueReader | None:
    """Read the schema of the topic's values; None for a format that needs none."""
    return value_reader(job.contract.topic, job.file.parent, job.settings)


def history_up_to(job: Job, ends: Mapping[int, int]) -> History:
    """Read what the topic has up to these offsets into its history."""
    store = HistoryStore.of(job.workspace)
    return extend(job.spark, job.contract.topic, cluster_connection(job), ends, store, values=value_schema(job))


@dataclass(frozen=True)
class LogView:
    """What a plan is made by, and what the guard looks at again right before records are emitted."""

    job: Job
    history: History
    begins: Mapping[int, int]
    ends: Mapping[int, int]

    @classmethod
    def read(cls, job: Job, cluster: ClusterClient) -> LogView:
        """Read the log up to where it ends now."""
        topic = job.contract.topic.name
        partitions = cluster.topic(topic).partitions
        begins, ends = cluster.begins(topic, partitions), cluster.ends(topic, partitions)
        return cls(job, history_up_to(job, ends), begins, ends)

    def form(self, cluster: ClusterClient) -> TopicForm:
        """Read how the newest records are written."""
        topic, contract = self.job.contract.topic, self.job.contract
        samples = topic_form.newest(cluster, topic.name, self.begins, self.ends)
        values = value_schema(self.job)
        if topic.format in FORMATS:
            for partition, end in self._ends_of_types():
                begins, ends = {partition: self.begins[partition]}, {partition: end}
                samples += topic_form.newest(cluster, topic.name, begins, ends)
        carried, amounts = planning.carried_paths(contract), sorted(added(contract))
        return topic_form.learned(topic, samples, values, carried, amounts)

    def _ends_of_types(self) -> list[tuple[int, int]]:
        """Query where the newest record of each type is, of those types that none of the newest records are of."""
        topic = self.job.contract.topic
        type_ = f.get_json_object(VALUE, f"$.{TYPE_NAME}") if topic.type is None else f.col(TYPE)
        seen = self.records.where(f.col(VALUE).isNotNull() & type_.isNotNull()).groupBy(type_.alias(TYPE))
        place = f.struct(PARTITION, OFFSET)
        found = seen.agg(f.max_by(place, TIMESTAMP).alias("place")).limit(_MOST_TYPES).collect()
        places = [tuple(row["place"]) for row in found if row[TYPE] not in topic.ignore_types]
        return [
            (partition, offset + 1)
            for partition, offset in places
            if self.begins[partition] <= offset < self.ends[partition] - topic_form.EACH
        ]

    @property
    def records(self) -> DataFrame:
        """All records of the history."""
        return self.history.records(self.job.spark)

    def aggregates(self, ids: Iterable[str]) -> dict[str, LoggedAggregate]:
        """Read what the log says of some aggregates, by their ids."""
        wanted = self.job.spark.createDataFrame([(each,) for each in ids], f"{ID} string")
        contract = self.job.contract
        carried, amounts = planning.carried_paths(contract), sorted(added(contract))
        records = with_gone(self.records, contract.topic)
        return logged_aggregates(records, wanted, contract.topic.ignore_types, carried, amounts)
