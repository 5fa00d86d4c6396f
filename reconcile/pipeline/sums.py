"""What the sums of copies lack, read at one settled instant: when a plan is made, and again before it is applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconcile.audit import link_facts
from reconcile.contract.model import Consumer, RepairTopic
from reconcile.domain.canonical import version_number
from reconcile.domain.case import FieldRule, Row
from reconcile.gather.link_reader import LinkReader
from reconcile.gather.log.value_reader import key_reader
from reconcile.gather.stores import row_columns
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.reader import read
from reconcile.pipeline.gather import parked_of
from reconcile.pipeline.job import Job
from reconcile.pipeline.log_view import LogView, cluster_client, value_schema
from reconcile.repair.compensation import Instant, Sums, compensable, lacking
from reconcile.repair.logged_aggregates import LoggedAggregate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BATCH = 500


def read_sums(job: Job, consumer: Consumer, reader: LinkReader, ids: Collection[str]) -> dict[str, Sums]:
    """Read what the sums of a copy lack of these aggregates, at the instants of the reader's open stores.

    What the group had consumed was read before its copy, and the log is read after: an event that is in neither, or in
    both, counts on both sides alike.
    """
    if not ids:
        return {}
    rows = both_rows(job, consumer, reader, ids)
    places = reader.opened.fence.consumer(consumer.name).places
    committed = {each.partition: each.committed_before for each in places}
    with cluster_client(job) as cluster:
        log = LogView.read(job, cluster)
        unread = _unread_on_route(cluster, job, consumer)
    logged = log.aggregates(ids)
    parked = _unresolved(job, consumer, reader, log, ids)
    names = list(compensable(consumer))
    found = {}
    for id_text in ids:
        of_log = logged.get(id_text, LoggedAggregate())
        now = Instant(
            rows.sources.get(id_text),
            rows.copies.get(id_text),
            of_log.last,
            of_log.version,
            parked=parked.get(id_text),
            unread=id_text in unread,
            twice=id_text in rows.twice,
        )
        found[id_text] = lacking(now, rows.rules, names, committed)
    return found


@dataclass(frozen=True)
class BothRows:
    """The rows of source and copy by their ids, and by which rules their fields are compared."""

    sources: Mapping[str, Row]
    copies: Mapping[str, Row]
    rules: tuple[FieldRule, ...]
    twice: frozenset[str]
    """The ids that source or copy has more than once; one of their rows stands for all."""


def both_rows(job: Job, consumer: Consumer, reader: LinkReader, ids: Collection[str]) -> BothRows:
    """Read the rows of source and copy, the source's first."""
    with reader.reading():
        wanted = job.spark.createDataFrame([(each,) for each in ids], f"{row_columns.ID} string")
        source, copy = reader.rows
        rules = link_facts.field_rules(consumer, copy.form.fields)
        (sources, many), (copies, more) = (_rows(each.among(wanted), rules) for each in (source, copy))
    return BothRows(sources, copies, rules, many | more)


def _rows(frame: DataFrame, rules: Collection[FieldRule]) -> tuple[dict[str, Row], frozenset[str]]:
    """Read rows by their ids, and which ids have more than one."""
    names, rows = [rule.name for rule in rules], frame.collect()
    found = {
        id_text: Row(dict(zip(names, values, strict=True)), version_number(version))
        for id_text, version, *values in rows
    }
    return found, frozenset(id_text for id_text, many in Counter(id_text for id_text, *_ in rows).items() if many > 1)


def _unread_on_route(cluster: ClusterClient, job: Job, consumer: Consumer) -> set[str]:
    """Read of which aggregates the group has corrections yet to read."""
    route = consumer.repair.route
    assert isinstance(route, RepairTopic)
    name, partitions = route.topic, cluster.topic(route.topic).partitions
    begins, ends = cluster.begins(name, partitions), cluster.ends(name, partitions)
    committed = cluster.committed(consumer.group, name, partitions)
    places = {each: (max(begins[each], committed.get(each) or 0), ends[each]) for each in partitions}
    unread = {each: (start, end) for each, (start, end) in places.items() if start < end}
    if not unread:
        return set()
    with cluster.reading_records(name):
        keys = [record.key() for batch in read(cluster.config, name, unread, size=_BATCH) for record in batch]
    ids = map(key_reader(job.contract.topic, value_schema(job)), keys)
    return {each for each in ids if each is not None}


def _unresolved(
    job: Job, consumer: Consumer, reader: LinkReader, log: LogView, ids: Collection[str]
) -> Mapping[str, str]:
    """Read where an unresolved event of these aggregates lies now."""
    from pyspark.sql import functions as f

    with reader.reading():
        table = reader.stash_table()
    records = parked_of(job, consumer, log.history, mirrored=table is not None)
    records = records if table is None else records.unionByName(table)
    open_ = records.where(f.col("resolved").isNull() & f.col("id").isin(list(ids)))
    return {row["id"]: row["topic"] for row in open_.select("id", "topic").distinct().collect()}
