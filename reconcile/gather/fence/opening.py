"""Opening the fence: each instant and offset is read in the order that makes the comparison fair."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import KeyPath, quoted
from reconcile.contract.model import Consumer, Contract
from reconcile.contract.terms import Rows
from reconcile.domain.canonical import Layout
from reconcile.errors import ReconcileError, RefusedError, UnreachableError
from reconcile.gather.fence import nature
from reconcile.gather.fence.databases import Database, open_database
from reconcile.gather.fence.fence import ConsumerFence, Fence, SourceFence, TopicFence, UnreadableLink, is_settled
from reconcile.gather.fence.group_position import PartitionExtent, group_positions
from reconcile.gather.fence.settling import POLL_EVERY, Progress, Settling, lag_logged
from reconcile.gather.stores import contract_check, plugin
from reconcile.gather.stores.contract_check import Mismatches, Part
from reconcile.gather.stores.library_tables import LibraryTables
from reconcile.gather.stores.session import SnapshotSession
from reconcile.gather.stores.usage import Readers, Taken, Usage
from reconcile.kafka.client import ClusterClient, GroupDescription, Offsets, TopicDescription
from reconcile.kafka.errors import ClusterUnreachableError
from reconcile.kafka.transactions import open_transactions
from reconcile.settings.connections import ClusterConnection, Connection, Folder, Lake, LakePlace, PluginUrl, Store
from reconcile.settings.settings import Settings
from reconcile.settings.urls import MariaUrl, PostgresUrl

if TYPE_CHECKING:
    from reconcile.gather.stores.lake import LakeTable

_Address = PostgresUrl | MariaUrl | PluginUrl | LakePlace | None
_LINK_UNREADABLE = (UnreachableError, RefusedError)
"""What keeps one link from being read, and not the others."""


@dataclass(frozen=True)
class OpenFence:
    """A fence, and the sessions that keep its snapshots: they last as long as the block does.

    A store without snapshots has no session.
    """

    fence: Fence
    source: SnapshotSession | None
    consumers: Mapping[str, SnapshotSession | None]

    def taken(self, consumer: str | None = None) -> Taken | None:
        """Build what was taken of the source's database, or of a consumer's; None for one without sessions of ours."""
        session = self.source if consumer is None else self.consumers[consumer]
        return None if session is None else session.usage.taken()

    def require_alive(self, consumer: str) -> None:
        """Raise SnapshotLostError if a snapshot of a link ended early: call it when all of the link has been read."""
        self.require_source_alive()
        if (session := self.consumers[consumer]) is not None:
            session.require_alive()

    def release(self, consumer: str) -> None:
        """Let a consumer's snapshot go, of whose link nothing more is read."""
        if (session := self.consumers[consumer]) is not None:
            session.end_snapshot()

    def release_source(self) -> None:
        """Let the source's snapshot go, once all links were read."""
        if self.source is not None:
            self.source.end_snapshot()

    def require_source_alive(self) -> None:
        """Raise SnapshotLostError if the source's snapshot ended early: no link can be read any more then."""
        if self.source is not None:
            self.source.require_alive()


@contextmanager
def open_fence(
    contract: Contract,
    file: Path,
    settings: Settings,
    only: Sequence[str] = (),
    timeout: timedelta | None = None,
    progress: Progress | None = None,
) -> Iterator[OpenFence]:
    """Open the fence of a contract, of all consumers or `only` some, with its snapshots open during the block.

    Waits for each group as long as the contract says, or for `timeout`. A consumer of which something cannot be
    read stands in `unread`; a source, a topic or a contract that cannot be used raises.
    """
    chosen = _chosen(contract, only)
    with ExitStack() as stack:
        waits = timeout is None or timeout > timedelta(0)
        progress = progress or (lag_logged() if waits else lambda _link, _lag: None)
        yield _Opening(contract, file, settings, stack, progress, timeout).open(chosen)


@dataclass
class _Copy:
    """What is read of one consumer while the fence is being opened."""

    consumer: Consumer
    database: Database | None
    types: Layout[str] | None
    library: LibraryTables | None
    plugin: PluginUrl | None = None
    lake: LakeTable | None = None
    cut: str | None = None
    rows: int | None = None
    before: Mapping[int, int | None] = field(default_factory=dict)
    after: Mapping[int, int | None] = field(default_factory=dict)

    @property
    def session(self) -> SnapshotSession | None:
        """The session that keeps its snapshot; None for a store that has none."""
        return None if self.database is None else self.database.session


@dataclass
class _Opening:
    contract: Contract
    file: Path
    settings: Settings
    stack: ExitStack
    progress: Progress
    timeout: timedelta | None

    def __post_init__(self) -> None:
        self._mismatches = Mismatches(self.file)
        self._unread: list[UnreadableLink] = []
        self._source_lake: LakeTable | None = None
        self._readers: dict[str, Readers] = {}

    def open(self, chosen: Mapping[int, Consumer]) -> OpenFence:
        """Read everything in its order."""
        opened_at = datetime.now(UTC)
        addresses = {index: self._address(("consumers", index, "store"), one) for index, one in chosen.items()}
        source_address = self._address(("source", "store"), self.contract.source)
        cluster = self._cluster()
        topic = self._topic(cluster)
        source, source_types = self._source(source_address)
        copies = [copy for index in chosen if (copy := self._copy(index, addresses[index]))]
        self._mismatches.require_none()

        source_fence = self._source_fence(source, source_types, source_address)  # (a)
        begins = cluster.begins(topic.name, topic.partitions)  # (b)
        ends = cluster.ends(topic.name, topic.partitions)
        links = [_Link(copy, self._settling(copy.consumer, cluster, topic, begins, ends)) for copy in copies]
        reached = self._settle(links)  # (c) and (d)
        closed = self._closed(cluster, topic, ends)  # (e)
        consumers = [found for link in reached if (found := self._consumer_fence(link, closed.partitions))]
        fence = Fence(
            self.contract.digest,
            self.contract.aggregate,
            opened_at,
            datetime.now(UTC),
            source_fence,
            closed,
            tuple(consumers),
            tuple(self._unread),
        )
        sessions = {link.copy.consumer.name: link.copy.session for link in reached}
        of_source = None if source is None else source.session
        return OpenFence(fence, of_source, {each.name: sessions[each.name] for each in consumers})

    def _address(self, path: KeyPath, rows: Rows) -> _Address:
        connection = self._connection(path, rows.store)
        self._require_one_snapshot(path[:-1], rows, connection)
        if isinstance(connection, Lake):
            return connection.resolve()
        if isinstance(connection, Store):
            address = connection.resolve()
            return address if isinstance(address, (PostgresUrl, MariaUrl, PluginUrl)) else None
        if isinstance(connection, Folder):
            return None
        raise self._mismatches.at(path, RefusedError(f"the connection {rows.store} is no database and no folder"))

    def _require_one_snapshot(self, here: KeyPath, rows: Rows, connection: Connection) -> None:
        if isinstance(connection, Lake) and rows.table is None:
            message = f"{rows.store} is a lake, where a query has no single snapshot: name a `table`"
            raise self._mismatches.at((*here, "query"), RefusedError(message))
        if rows.snapshot is not None and not isinstance(connection, Lake):
            message = f"{rows.store} is no lake, and has no past snapshots: take out `snapshot`"
            raise self._mismatches.at((*here, "snapshot"), RefusedError(message))

    def _lake(self, here: KeyPath, rows: Rows, place: LakePlace, parts: Iterable[Part]) -> LakeTable:
        """Open a table of a lake, by the Spark that is there, else by one for as long as the fence is open."""
        from reconcile.gather.stores import lake
        from reconcile.spark.session import session

        settings = self.settings.reading(self.contract.stores)
        spark = self.stack.enter_context(session(settings, f"reconcile {self.contract.aggregate}"))
        table = lake.LakeTable(spark, rows.store, place, str(rows.table))
        lake.check(table, rows.snapshot, here, parts, self._mismatches)
        return table

    def _connection(self, path: KeyPath, name: str) -> Connection:
        try:
            return self.settings.connection(name)
        except ReconcileError as error:
            raise self._mismatches.at(path, error) from None

    def _cluster(self) -> ClusterClient:
        path, name = ("topic", "cluster"), self.contract.topic.cluster
        connection = self._connection(path, name)
        if not isinstance(connection, ClusterConnection):
            raise self._mismatches.at(path, RefusedError(f"the connection {name} is no Kafka cluster"))
        return self.stack.enter_context(closing(ClusterClient(name, connection.resolve())))

    def _topic(self, cluster: ClusterClient) -> TopicDescription:
        try:
            return cluster.topic(self.contract.topic.name)
        except RefusedError as error:
            raise self._mismatches.at(("topic", "name"), error) from None

    def _source(self, address: _Address) -> tuple[Database | None, Layout[str] | None]:
        if isinstance(address, LakePlace):
            parts = chain(*contract_check.source_parts(self.contract))
            self._source_lake = self._lake(("source",), self.contract.source, address, parts)
        if not isinstance(address, (PostgresUrl, MariaUrl)):
            return None, None
        database = self._database(self.contract.source.store, "source", address)
        with database.session.looking_around():
            return database, database.source_types(self.contract, self._mismatches)

    def _database(self, store: str, of: str, address: PostgresUrl | MariaUrl) -> Database:
        """Connect; all who read one store in this run share its `readers`."""
        connection = self.settings.connection(store)
        assert isinstance(connection, Store)
        readers = self._readers.setdefault(store, Readers(connection.readers))
        usage = Usage(store, of, readers)
        return self.stack.enter_context(open_database(store, address, connection.limits, usage))

    def _copy(self, index: int, address: _Address) -> _Copy | None:
        consumer = self.contract.consumers[index]
        if isinstance(address, LakePlace):
            try:
                parts = chain(*contract_check.consumer_parts(self.contract, index))
                lake = self._lake(("consumers", index), consumer, address, parts)
            except _LINK_UNREADABLE as error:
                self._leave_out(consumer, error)
                return None
            return _Copy(consumer, None, None, None, lake=lake)
        if address is None or isinstance(address, PluginUrl):
            return _Copy(consumer, None, None, None, address)
        try:
            database = self._database(consumer.store, consumer.name, address)
            with database.session.looking_around():
                types = database.consumer_types(self.contract, index, self._mismatches)
                library = database.library_tables()
        except _LINK_UNREADABLE as error:
            self._leave_out(consumer, error)
            return None
        return _Copy(consumer, database, types, library)

    def _source_fence(self, database: Database | None, types: Layout[str] | None, address: _Address) -> SourceFence:
        source = self.contract.source
        if database is None:
            cut = plugin.take_cut(source.store, address) if isinstance(address, PluginUrl) else None
            if self._source_lake is not None:
                cut = _snapshot(self._source_lake, source)
            return SourceFence(source.store, None, None, None, None, nature.of_other_store(source.store), cut)
        snapshot = database.session.take_snapshot()
        pending = None if source.outbox is None else database.pending(source.outbox)
        rows = database.estimate(source)
        return SourceFence(source.store, snapshot, types, rows, pending, database.nature(source))

    def _settling(
        self, consumer: Consumer, cluster: ClusterClient, topic: TopicDescription, begins: Offsets, ends: Offsets
    ) -> Settling:
        timeout = (consumer.settle.timeout if self.timeout is None else self.timeout).total_seconds()
        link = self.contract.link(consumer)
        return Settling(cluster, consumer, link, topic, begins, ends, timeout, self.progress)

    def _settle(self, links: list[_Link]) -> list[_Link]:
        reached, waiting = [], links
        while waiting:
            still = []
            for link in waiting:
                try:
                    if link.settling.over():
                        link.cut()
                        reached.append(link)
                    else:
                        still.append(link)
                except _LINK_UNREADABLE as error:
                    self._leave_out(link.copy.consumer, error)
            waiting = still
            if waiting:
                time.sleep(POLL_EVERY)
        return [link for link in links if link in reached]

    def _closed(self, cluster: ClusterClient, topic: TopicDescription, ends: Offsets) -> TopicFence:
        now = self._topic(cluster)
        if now.id != topic.id:
            raise ClusterUnreachableError(f"the topic {topic.name} was made anew while we looked: start again")
        begins = cluster.begins(topic.name, now.partitions)
        # In this order: a record that is written between the two readings is behind no open transaction.
        high_watermarks = cluster.high_watermarks(topic.name, now.partitions)
        log_ends = cluster.ends(topic.name, now.partitions)
        cut_off = [partition for partition, end in ends.items() if log_ends[partition] < end]
        if cut_off:
            raise ClusterUnreachableError(
                f"the topic {topic.name} lost records while we looked, in partition {cut_off[0]}: start again"
            )
        # A partition that came after the source's instant held nothing at it.
        partitions = tuple(
            PartitionExtent(p, begins[p], ends.get(p, 0), log_ends[p], max(log_ends[p], high_watermarks[p]))
            for p in begins
        )
        return TopicFence(
            cluster=self.contract.topic.cluster,
            name=topic.name,
            id=topic.id,
            partitions=partitions,
            compacted=_compacted(cluster, topic.name),
            open=open_transactions(cluster, topic.name, log_ends, high_watermarks, datetime.now(UTC)),
        )

    def _consumer_fence(self, link: _Link, partitions: tuple[PartitionExtent, ...]) -> ConsumerFence | None:
        copy, consumer = link.copy, link.copy.consumer
        try:
            places = group_positions(partitions, copy.before, copy.after, link.settling.next_records(copy.before))
        except _LINK_UNREADABLE as error:
            self._leave_out(consumer, error)
            return None
        return ConsumerFence(
            link.settling.link,
            consumer.name,
            consumer.store,
            copy.session.snapshot if copy.session else None,
            copy.types,
            copy.rows,
            link.group,
            places,
            is_settled(places),
            round(link.settling.waited, 3),
            copy.library,
            copy.cut,
        )

    def _leave_out(self, consumer: Consumer, error: ReconcileError) -> None:
        """List a link that cannot be read, for the others are read all the same; the run is incomplete then."""
        self._unread.append(UnreadableLink.because(self.contract.link(consumer), consumer.name, error))


class _Link:
    """One copy and the group that keeps it."""

    group: GroupDescription

    def __init__(self, copy: _Copy, settling: Settling) -> None:
        self.copy = copy
        self.settling = settling

    def cut(self) -> None:
        """Take the copy's snapshot between two readings of what the group has committed."""
        copy, settling = self.copy, self.settling
        copy.before = settling.committed()
        if copy.session is not None:
            copy.session.take_snapshot()
        elif copy.plugin is not None:
            copy.cut = plugin.take_cut(copy.consumer.store, copy.plugin)
        elif copy.lake is not None:
            copy.cut = _snapshot(copy.lake, copy.consumer)
        copy.after = settling.committed()
        if copy.database is not None:
            copy.rows = copy.database.estimate(copy.consumer)
        self.group = settling.cluster.group(copy.consumer.group, settling.topic.name)


def _snapshot(table: LakeTable, rows: Rows) -> str:
    """Choose the snapshot that a contract names, else query the current one."""
    return table.current_snapshot() if rows.snapshot is None else str(rows.snapshot)


def _compacted(cluster: ClusterClient, topic: str) -> bool:
    try:
        layout = cluster.layouts([topic])[topic]
    except RefusedError:
        return True  # we may not ask: then no record counts as never written because it is not there
    return layout is not None and layout.compacted


def _chosen(contract: Contract, only: Sequence[str]) -> dict[int, Consumer]:
    names = [consumer.name for consumer in contract.consumers]
    for name in only:
        if name not in names:
            valid = suggestion(name, names) or f"; there are {', '.join(names)}"
            raise RefusedError(f"the contract has no consumer {quoted(name)}{valid}")
    return {index: one for index, one in enumerate(contract.consumers) if not only or one.name in only}
