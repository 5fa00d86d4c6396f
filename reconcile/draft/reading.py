"""Reads what a draft is guessed from: the source, the topic, and each copy with its group. Nothing is changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any

from reconcile.config.validation import suggestion
from reconcile.config.yamlfile import quoted
from reconcile.domain import dialect
from reconcile.domain.canonical import Kind
from reconcile.draft import events, guessing
from reconcile.draft.samples import (
    CopySample,
    FailureSample,
    Id,
    Record,
    Row,
    Sampled,
    SideTable,
    Table,
    TableSample,
    TopicSample,
    tokens,
)
from reconcile.draft.stores import AT_EACH_END, SampledStore, open_store
from reconcile.errors import RefusedError
from reconcile.kafka.client import ClusterClient, Commits
from reconcile.kafka.reader import place_of, read_newest
from reconcile.settings.connections import ClusterConnection, Registry, Store

_RECORDS = 1000
_FEWEST_OF_PARTITION = 20
_MOST_BYTES = 32 << 20
_OF_FAILURES = 50
_MOST_FAILURE_TOPICS = 20
_MOST_SIDE_TABLES = 3
_OUTBOX = re.compile(r"outbox", re.IGNORECASE)
_LEDGER = re.compile(r"ledger|processed|inbox|idempot|consumed|applied", re.IGNORECASE)
_IDS = (Kind.INTEGER, Kind.UUID, Kind.TEXT, Kind.NUMERIC)


@dataclass(frozen=True)
class Side:
    """A table of a store, as somebody has named it."""

    connection: str
    """The name of the connection."""
    store: Store
    table: str


@dataclass(frozen=True)
class Wanted:
    """What a contract is to be drafted for."""

    source: Side
    cluster: str
    """The name of the connection."""
    kafka: ClusterConnection
    topic: str
    copies: tuple[tuple[Side, str], ...]
    """Each with the group that keeps it."""
    registry: str | None = None
    schemas: Registry | None = None


def sample(wanted: Wanted) -> Sampled:
    """Read the samples; raise RefusedError where what was named is not there, or shows nothing."""
    with ExitStack() as stack:
        stores: dict[str, SampledStore] = {}

        def store_of(side: Side) -> SampledStore:
            if side.connection not in stores:
                stores[side.connection] = stack.enter_context(open_store(side.connection, side.store))
            return stores[side.connection]

        cluster = stack.enter_context(closing(ClusterClient(wanted.cluster, wanted.kafka.resolve())))
        source_store = store_of(wanted.source)
        source = source_store.table(wanted.source.table)
        tables = [store_of(side).table(side.table) for side, _ in wanted.copies]
        topic = _topic(wanted, cluster)
        commits = _committed(wanted, cluster, topic)
        lowest = source_store.ends(source)
        if not lowest:
            raise RefusedError(
                f"the table {source.name} in {wanted.source.connection} holds no row that we see: nothing shows what"
                " agrees; name another, or let the account see its rows"
            )
        topic, id_ = _with_ids(topic, source, source_store, lowest)
        copies = []
        failures = _failures(cluster, wanted, commits)
        for (side, group), table in zip(wanted.copies, tables, strict=True):
            rows = _copy(side, table, store_of(side), source, id_, source_store, topic)
            ledgers = _ledgers(store_of(side), table.name, topic)
            own = len(commits.of_groups[group][wanted.topic])
            copies.append(replace(rows, group=group, ledgers=ledgers, failures=failures, committed=own))
        ids = [*_ids(topic), *(each for copy in copies for each in copy.rows.rows)]
        found = {**_by_id(lowest, id_), **_by_id(source_store.among(source, id_, ids), id_)}
        sampled = TableSample(wanted.source.connection, source, id_, found, source_store.maria)
        return Sampled(sampled, topic, tuple(copies), _side_tables(source_store, _OUTBOX, source.name))


def _topic(wanted: Wanted, cluster: ClusterClient) -> TopicSample:
    described = cluster.topic(wanted.topic)
    each = max(_FEWEST_OF_PARTITION, _RECORDS // len(described.partitions))
    records = _newest(cluster, wanted.topic, described.partitions, each)
    form = events.value_format(records)
    if form is None:
        raise RefusedError(
            f"the values of {wanted.topic} are neither JSON objects nor framed for a schema registry: where they are"
            " Avro by a schema in a file, begin with `reconcile contract example`"
        )
    if form == "registry":
        if wanted.registry is None or wanted.schemas is None:
            raise RefusedError(
                f"the values of {wanted.topic} are written by a schema registry: name its connection, or its URL, with"
                " --registry"
            )
        form, records = _registered(wanted.registry, wanted.schemas, records)
        named = wanted.registry
    else:
        named = None
    return TopicSample(wanted.cluster, wanted.topic, len(described.partitions), records, format=form, registry=named)


def _newest(cluster: ClusterClient, topic: str, partitions: Sequence[int], each: int) -> list[Record]:
    """Read the newest records of each partition, as long as they are not too large together."""
    begins, ends = cluster.begins(topic, partitions), cluster.ends(topic, partitions)
    found: list[Record] = []
    size = 0
    with cluster.reading_records(topic), closing(read_newest(cluster.config, topic, begins, ends, each)) as messages:
        for message in messages:
            partition, offset = place_of(message)
            given: Any = message.headers() or ()
            headers = tuple((name, _bytes(value)) for name, value in given)
            found.append(Record(partition, offset, _bytes(message.key()), _bytes(message.value()), headers))
            size += len(found[-1].value or b"")
            if size > _MOST_BYTES:
                break
    return sorted(found, key=lambda record: (record.partition, record.offset))


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _registered(name: str, connection: Registry, records: Sequence[Record]) -> tuple[str, list[Record]]:
    """Read values by their registry's schemas; the first one's schema tells which kind they are of."""
    from reconcile.gather.log.schema_registry import RegistryAddress, UnknownSchemaError
    from reconcile.gather.log.value_reader import ValueReader

    address = RegistryAddress.of(connection)
    address.check()
    framed = next(each.value for each in records if each.value is not None)
    number = int.from_bytes(framed[1:5], "big")
    try:
        kind = address.schema(number).kind
    except UnknownSchemaError:
        raise RefusedError(
            f"the registry {name} has no schema {number}, which values name: is it the right one?"
        ) from None
    form = {"AVRO": "avro", "JSON": "json-schema", "PROTOBUF": "protobuf"}[kind]
    reader = ValueReader(form, registry=address)
    return form, [each if each.value is None else replace(each, text=reader.read(each.value)) for each in records]


def _committed(wanted: Wanted, cluster: ClusterClient, topic: TopicSample) -> Commits:
    """Query what groups have committed; raise RefusedError for a group that never has, with the nearest one."""
    commits = cluster.commits()
    found = {group: by_topic for group, by_topic in commits.of_groups.items() if by_topic.get(topic.name)}
    for _, group in wanted.copies:
        if group not in found:
            listed = ", ".join(sorted(found)[:20])
            valid = f"; groups that have are {listed}" if found else "; no group has that we may see"
            hint = suggestion(group, found) or valid
            raise RefusedError(f"the group {quoted(group)} has never committed an offset in {topic.name}{hint}")
    return commits


def _with_ids(
    topic: TopicSample, source: Table, store: SampledStore, rows: Sequence[Row]
) -> tuple[TopicSample, tuple[str, ...]]:
    """Find the columns that make up the id, and the type of keys: by the keys that are ids of the source."""
    tried: list[tuple[int, int, TopicSample, tuple[str, ...]]] = []
    candidates = list(_id_candidates(source, rows))
    if not candidates:
        raise RefusedError(
            f"nothing is unique in {source.name}: a contract needs an id, so give it a key, or a `query`"
        )
    if not any(each.key for each in topic.records):
        if topic.records:
            raise RefusedError(f"no sampled record of {topic.name} has a key: a contract needs each under its id")
        return topic, candidates[0]
    for names in candidates:
        for key_type, ids in events.key_readings(topic.records, len(names)):
            newest = _ids(replace(topic, ids=ids))
            there = _by_id(store.among(source, names, newest), names)
            found = sum(each in there for each in newest)
            read = replace(topic, ids=ids, key_type=key_type, known=found, looked_up=len(newest))
            tried.append((found, -len(tried), read, names))
    found, _, read, names = max(tried, key=lambda each: each[:2])
    if not found:
        keys = " or ".join(", ".join(each) for each in candidates)
        raise RefusedError(
            f"none of the {len({each.key for each in topic.records})} sampled keys of {topic.name} is an id"
            f" ({keys}) of {source.name}, read as any type: is it the right topic, and the right table?"
        )
    return read, names


def _id_candidates(table: Table, rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """List what may be the id, the likeliest first: what is declared unique, else what is named like an id and is."""
    declared = [each for each in table.keys if all(table.column(name).kind in _IDS for name in each)]
    yield from declared
    if declared:
        return
    for column in table.columns:
        if column.kind in _IDS and {"id", "uuid", "key", "code", "number"} & set(tokens(column.name)):
            values = [row.get(column.name) for row in rows]
            if None not in values and len(set(values)) == len(values):
                yield (column.name,)


def _ids(topic: TopicSample) -> list[Id]:
    """Choose the ids of the newest records."""
    newest = list(dict.fromkeys(each for each in reversed(topic.ids) if each is not None))
    return newest[: 2 * AT_EACH_END]


def _by_id(rows: Sequence[Row], names: Sequence[str]) -> dict[Id, Row]:
    found: dict[Id, Row] = {}
    for row in rows:
        values = tuple(row.get(name) for name in names)
        if None not in values:
            found.setdefault(tuple(map(str, values)), row)
    return found


def _copy(
    side: Side,
    table: Table,
    store: SampledStore,
    source: Table,
    id_: tuple[str, ...],
    source_store: SampledStore,
    topic: TopicSample,
) -> CopySample:
    """Find the columns of a copy that have the source's ids, and read its rows by them."""
    rows = store.ends(table)
    if not rows:
        raise RefusedError(
            f"the table {table.name} in {side.connection} holds no row that we see: nothing shows what agrees; let its"
            " service run first, or the account see its rows"
        )
    known: dict[str, tuple[int, int]] = {}
    if len(id_) == 1:
        for column in table.columns:
            if column.kind in _IDS:
                values = {(text,) for row in rows if (text := row.get(column.name)) is not None}
                there = _by_id(source_store.among(source, id_, sorted(values)), id_)
                known[column.name] = (sum(each in there for each in values), len(values))
        chosen = guessing.id_column(table, known)
        names: tuple[str, ...] | None = None if chosen is None else (chosen,)
    else:
        own = {each.name for each in table.columns}
        names = id_ if set(id_) <= own else None
        whole = set(_by_id(rows, names)) if names else set()
        there = _by_id(source_store.among(source, id_, sorted(whole)), id_)
        known[", ".join(names or ())] = (sum(each in there for each in whole), len(whole))
    if names is None:
        best = max((found for found, _ in known.values()), default=0)
        what = (
            f"at most {best} of the values of a column are" if len(id_) == 1 else "columns of these names are missing"
        )
        raise RefusedError(
            f"no column of {table.name} has the ids ({', '.join(id_)}) of {source.name}: of {len(rows)} sampled rows"
            f" {what}; is it a copy of it?"
        )
    read = [*rows, *store.among(table, names, _ids(topic))]
    counted = Counter(
        tuple(str(row.get(each)) for each in names) for row in {tuple(r.items()): r for r in read}.values()
    )
    doubled = sum(count > 1 for count in counted.values())
    found, looked_up = known[", ".join(names)]
    sampled = TableSample(side.connection, table, names, _by_id(read, names), store.maria, doubled)
    return CopySample("", sampled, found, looked_up)


def _side_tables(store: SampledStore, named: re.Pattern[str], but: str) -> tuple[SideTable, ...]:
    """Read tables that are named so, the newest rows of each."""
    found = []
    for name, readable in store.tables():
        if readable and named.search(name.rpartition(".")[2]) and name != but and not name.startswith("reconcile."):
            table = store.table(name)
            found.append(SideTable(table, store.any(table)))
            if len(found) == _MOST_SIDE_TABLES:
                break
    return tuple(found)


def _ledgers(store: SampledStore, but: str, topic: TopicSample) -> tuple[SideTable, ...]:
    """Read tables that are named like ledgers: where a key leads to them, the rows of sampled records."""
    told = events.read(topic)
    place = events.places(told)["event_id"].value
    chosen = list(zip(topic.records, told.bodies, strict=True))[:: max(1, len(topic.records) // (2 * AT_EACH_END))]
    found = []
    for ledger in _side_tables(store, _LEDGER, but):
        event_id, partition, offset = guessing.ledger_columns(ledger.table)
        by_key: dict[tuple[str | None, ...], list[Id]] = {
            (partition, offset): [(str(record.partition), str(record.offset)) for record, _ in chosen],
            (event_id,): [
                (text,) for record, body in chosen if (text := events.located(record, body, place)) is not None
            ],
        }
        for key in ledger.table.keys:
            if by_key.get(key):
                rows = store.among(ledger.table, key, by_key[key])
                ledger = replace(ledger, rows=rows, looked_up=len(set(by_key[key])))
                break
        found.append(ledger)
    return tuple(found)


def _failures(cluster: ClusterClient, wanted: Wanted, commits: Commits) -> tuple[FailureSample, ...]:
    """Read the newest records of topics that are named like the topic, or a group, and like failed events."""
    groups = [group for _, group in wanted.copies]
    found: list[FailureSample] = []
    for name in cluster.topics():
        named = name != wanted.topic and (wanted.topic in name or any(group in name for group in groups))
        if not named or guessing.failure_kind(name.replace(wanted.topic, "")) is None:
            continue
        if len(found) == _MOST_FAILURE_TOPICS:
            break
        partitions = cluster.topic(name).partitions
        try:
            records = _newest(cluster, name, partitions, max(1, _OF_FAILURES // len(partitions)))
        except RefusedError:
            records = None
        origins = Counter(
            (origin.dialect, origin.group)
            for each in records or ()
            if (origin := dialect.read([(key, value) for key, value in each.headers])) is not None
        )
        readers = tuple(sorted(group for group, by_topic in commits.of_groups.items() if by_topic.get(name)))
        found.append(FailureSample(name, dict(origins), None if records is None else len(records), readers))
    return tuple(found)
