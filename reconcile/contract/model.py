"""The contract: which source, topic and copies belong together, and what their agreement means."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic.json_schema import GenerateJsonSchema

from reconcile.config import durations
from reconcile.config.text import Text
from reconcile.config.validation import Contradiction, Examined, Model, examined, validated
from reconcile.config.yamlfile import KeyPath, quoted, read
from reconcile.contract.consumer import Consumer, DelayedTopic, FailureTopic, Ledger, RepairTopic, StashTable
from reconcile.contract.terms import (
    TOMBSTONE,
    Deletes,
    Locator,
    Name,
    NotEmpty,
    Rows,
    Sql,
    TableName,
    TopicName,
    Version,
    rows_contradictions,
)
from reconcile.domain import deletion
from reconcile.domain.untold import DEBEZIUM
from reconcile.errors import Problem

__all__ = [
    "Consumer",
    "Contract",
    "DelayedTopic",
    "FailureTopic",
    "Incremental",
    "Key",
    "Ledger",
    "Outbox",
    "RepairTopic",
    "Source",
    "SourceVersion",
    "StashTable",
    "Topic",
    "ValueSchema",
    "json_schema",
    "load_contract",
]


class Outbox(Model):
    """The table from which the source's events are published."""

    table: TableName
    """The table, in the source's store."""
    id: Text
    """The column with the aggregate's id."""
    published: Sql
    """SQL that is true where the event has been published."""
    at: Text | None = None
    """The column with the time at which the event was written: since then it waits."""


def _as_written(value: object) -> object:
    """Choose the word of what YAML reads as true or false."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


class SourceVersion(Model):
    """The source's version, and whether a missing one says that an event was never published."""

    column: Text
    """The column with the version."""
    dense: Annotated[Literal["auto", "yes", "no"], BeforeValidator(_as_written)] = "auto"
    """Whether it grows by one with each published event; `auto`: if 99.9 % of the versions are in the log."""


def _version_kind(value: object) -> str:
    return "<kind:density>" if isinstance(value, (dict, SourceVersion)) else "<kind:column>"


ColumnOrVersion = Annotated[
    Annotated[Text, Tag("<kind:column>")] | Annotated[SourceVersion, Tag("<kind:density>")],
    Discriminator(_version_kind),
]


class Source(Rows):
    """Who owns the aggregate."""

    version: ColumnOrVersion | None = None  # type: ignore[assignment] # a copy's has no density
    """The column with the version, which grows with every change of the aggregate; or that and its density."""
    updated_at: Text | None = None
    """The column with the time of the row's last change."""
    deleted: Sql | None = None
    """SQL that is true where the row counts as absent."""
    outbox: Outbox | None = None
    """Events that wait to be published."""

    @property
    def version_column(self) -> str | None:
        """The column with the version, if there is one."""
        return self.version.column if isinstance(self.version, SourceVersion) else self.version

    @property
    def dense_versions(self) -> bool | None:
        """Whether versions grow by one with each published event; None where the log is to tell."""
        declared = self.version.dense if isinstance(self.version, SourceVersion) else "auto"
        return None if declared == "auto" else declared == "yes"

    def contradictions(self) -> Iterator[Contradiction]:
        """List what does not fit together."""
        yield from rows_contradictions(self)


class Key(Model):
    """How an aggregate's id becomes a record's key."""

    type: Literal["string", "uuid-bytes", "int64", "json", "schema"] = "string"
    """`string`: UTF-8. `uuid-bytes`: 16 bytes. `int64`: 8 bytes, big endian. `json`: the id as JSON.

    `schema`: by the registry's schema that the key names, and then as `json`.
    """


class ValueSchema(Model):
    """Where the schema of the topic's values is: a file or a registry."""

    file: Text | None = None
    """The schema's file, seen from the contract's folder."""
    registry: Text | None = None
    """The name of the connection to the schema registry."""

    def contradictions(self) -> Iterator[Contradiction]:
        """List what does not fit together."""
        if (self.file is None) == (self.registry is None):
            which = "neither is there" if self.file is None else "both are there"
            yield (), f"needs either `file` or `registry`; {which}"


class Topic(Model):
    """How the aggregate's changes are published."""

    cluster: Text
    """The name of the connection to the Kafka cluster."""
    name: TopicName
    """The topic's name."""
    format: Literal["json", "avro", "json-schema", "protobuf", "debezium-json"] = "json"
    """How values are written."""
    value_schema: ValueSchema | None = Field(default=None, alias="schema")
    """Where the schema of the values is; needed for `format: avro`, `json-schema` and `protobuf`."""
    key: Key = Key()
    """How an aggregate's id becomes a record's key."""
    partitioner: Literal["infer", "murmur2", "crc32", "fnv1a"] = "infer"
    """How keys are spread over partitions; `infer` finds it out from the topic."""
    state: Literal["full", "patch"] = "full"
    """`full`: an event carries all fields. `patch`: only those that changed."""
    version: Locator | None = None
    """Where an event carries the aggregate's version: a path such as $.version, or header:name."""
    event_id: Locator | None = None
    """Where an event carries its id: a path, or header:name."""
    type: Locator | None = None
    """Where an event carries its type: a path, or header:name."""
    correlation_id: Locator | None = None
    """Where an event carries its correlation id: a path, or header:name."""
    ignore_types: Annotated[tuple[Text, ...], Field(strict=False)] = ()
    """Types of events that say nothing about the aggregate's state."""
    correction_type: Text | None = None
    """The type that corrections carry; left out, that of the aggregate's newest event."""
    delete: Deletes = TOMBSTONE
    """What deletes the aggregate: a tombstone, an event for which a test such as $.deleted == true holds, or both."""
    delete_as: Deletes | None = None
    """How a deletion is written: one of these, or several records one behind the other; left out, as `delete` says."""
    untold: Text = DEBEZIUM
    """What events have in place of a value that they do not tell, as Debezium's for large ones that did not change."""
    value: Annotated[dict[Text, Sql], Field(min_length=1)] | None = None
    """How a value is built from a row of the source, for corrections: JSON fields, and SQL for each."""

    def contradictions(self) -> Iterator[Contradiction]:
        """List what does not fit together."""
        if self.format == "avro" and self.value_schema is None:
            yield ("format",), "avro values need `schema: {file: ...}` or `schema: {registry: ...}`"
        by_registry = self.value_schema is not None and self.value_schema.registry is not None
        if self.key.type == "schema" and not by_registry:
            yield ("key", "type"), "keys by their schema need `schema: {registry: ...}`"
        if self.format in ("json-schema", "protobuf") and not by_registry:
            yield ("format",), f"{self.format} values need `schema: {{registry: ...}}`"
        unknown = [each for each in self.deletions if each != TOMBSTONE and deletion.writable(each) is None]
        if self.delete_as is not None and unknown:
            message = f"{quoted(unknown[0])} says not what to write: write tombstone, or a test `$.path == value`"
            yield ("delete_as",), message

    @property
    def deletes(self) -> tuple[str, ...]:
        """All that `delete` names; a tombstone always deletes."""
        return self.delete if isinstance(self.delete, tuple) else (self.delete,)

    @property
    def delete_tests(self) -> tuple[str, ...]:
        """The tests of `delete`."""
        return tuple(each for each in self.deletes if each != TOMBSTONE)

    @property
    def deletions(self) -> tuple[str, ...]:
        """The records that a deletion is written as, in their order; none where `delete` leaves a choice."""
        if self.delete_as is None:
            return self.deletes if len(self.deletes) == 1 else ()
        return self.delete_as if isinstance(self.delete_as, tuple) else (self.delete_as,)


class Incremental(Model):
    """Runs that look only at what may have changed since the run before."""

    full_every: Annotated[int, Field(ge=1)] = 7
    """Each so many such runs, one compares everything and counts what escaped the others."""


class Contract(Model):
    """Says how a source, its topic and the copies that consumers keep belong together."""

    version: Version
    """The version of this format: 1."""
    aggregate: Name
    """What the source owns and publishes, such as user-account."""
    source: Source
    """Who owns the aggregate."""
    topic: Topic
    """How the aggregate's changes are published."""
    consumers: Annotated[tuple[Consumer, ...], *NotEmpty]
    """Who keeps a copy."""
    incremental: Incremental | None = None
    """Nightly runs look only at what may have changed; left out, they compare everything."""

    def contradictions(self) -> Iterator[Contradiction]:
        """List what does not fit together."""
        if len(self.source.id) > 1 and self.topic.key.type not in ("json", "schema"):
            message = "an id of several columns needs the key type json, or schema"
            yield ("topic", "key", "type"), message
        failure_topics = {topic for consumer in self.consumers for _, topic in consumer.failure.topics()}
        names: set[str] = set()
        for index, consumer in enumerate(self.consumers):
            here: KeyPath = ("consumers", index)
            if consumer.name in names:
                yield (*here, "name"), f"there is already a consumer {consumer.name}"
            names.add(consumer.name)
            if len(consumer.id) != len(self.source.id):
                message = f"has {len(consumer.id)} columns, the source's id has {len(self.source.id)}"
                yield (*here, "id"), message
            for path, topic in consumer.failure.topics():
                if topic == self.topic.name:
                    yield (*here, "failure", *path), "is the main topic; failed events need one of their own"
            route = consumer.repair.route
            if isinstance(route, RepairTopic):
                path = (*here, "repair", "route", "topic")
                if route.topic == self.topic.name:
                    yield path, "is the main topic: write `route: main`"
                elif route.topic in failure_topics:
                    yield path, "is a topic for failed events; corrections need one of their own"
                others = [each.name for each in self.consumers if each is not consumer and each.repair.route == route]
                if consumer.repair.compensate and others:
                    message = f"is the route of {', '.join(others)} too, which would add the differences as well"
                    yield path, message
            if consumer.repair.deletes and not self.topic.deletions:
                message = "`topic.delete` names several forms: say in `topic.delete_as` how a deletion is written"
                yield (*here, "repair", "deletes"), message
            if consumer.repair.compensate and self.topic.format == "debezium-json" and self.topic.event_id is None:
                message = (
                    "needs topic.event_id: corrections have no position in the source, by which a ledger knows events"
                )
                yield (*here, "repair", "compensate"), message

    def consumer(self, name: str) -> Consumer:
        """Choose a consumer by its name; raise KeyError if there is none."""
        return {each.name: each for each in self.consumers}[name]

    @property
    def stores(self) -> frozenset[str]:
        """The names of the connections to the source's store and to those of the copies."""
        return frozenset({self.source.store, *(each.store for each in self.consumers)})

    def past_snapshots(self, consumer: Consumer) -> tuple[tuple[int, str], ...]:
        """Choose the past snapshots that a link compares, each with its table; none where it compares what is."""
        sides: tuple[Rows, ...] = (self.source, consumer)
        return tuple((each.snapshot, str(each.table)) for each in sides if each.snapshot is not None)

    def groups_before(self, consumer: Consumer) -> tuple[str, ...]:
        """Choose the groups that a consumer's copy builds on, also where it names them by their consumers."""
        groups = {each.name: each.group for each in self.consumers}
        return tuple(groups.get(name, name) for name in consumer.depends_on)

    def link(self, consumer: Consumer) -> str:
        """Build the name of the link from the source to a consumer, such as user-account/login."""
        return f"{self.aggregate}/{consumer.name}"

    def warnings(self) -> Iterator[Problem]:
        """List what is so, as the contract says, and does harm."""
        for index, consumer in enumerate(self.consumers):
            if consumer.semantics == "records":
                continue
            here = f"consumers[{index}].failure"
            instead = "choose stash or block, or `semantics: records` where each event adds a row that never changes"
            if consumer.failure.policy == "retry-topics":
                lost = "retry topics lose the order of an aggregate's events, so this copy of state ends up wrong"
                yield Problem(f"{here}.policy", f"{lost}: {instead}; the consumer library refuses to run it")
            elif consumer.failure.dialect == "share-group":
                lost = "a share group has no order, so this copy of state ends up wrong"
                yield Problem(f"{here}.dialect", f"{lost}: use a consumer group, and {instead}")

    @property
    def digest(self) -> str:
        """The SHA-256 of what the contract says, whatever the order and the form in which its file says it."""
        return _digest(self.model_dump(mode="json", by_alias=True))

    @property
    def comparison_digest(self) -> str:
        """The SHA-256 of what decides which rows and events are compared, and how; not of what is done about it."""
        left_out: Any = {
            "incremental": True,
            "topic": {"value", "correction_type", "delete_as"},
            "consumers": {"__all__": {"quality", "distributions", "repair", "settle", "tolerance", "depends_on"}},
        }
        return _digest(self.model_dump(mode="json", by_alias=True, exclude=left_out))


def _digest(said: dict[str, Any]) -> str:
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def load_contract(path: Path) -> Contract:
    """Read a contract; raise InvalidFileError with every problem in it."""
    return validated(Contract, read(path), path)


def examine_contract(path: Path) -> Examined[Contract]:
    """Read a contract for all that is wrong in it; raise InvalidFileError where nothing can be read."""
    return examined(Contract, read(path))


def json_schema() -> dict[str, Any]:
    """Build the JSON Schema of contracts, for editors."""
    schema = Contract.model_json_schema(by_alias=True, schema_generator=_SchemaGenerator)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "reconcile contract"}


class _SchemaGenerator(GenerateJsonSchema):
    def encode_default(self, dft: Any) -> Any:
        """Write defaults as a contract would."""
        if isinstance(dft, timedelta):
            return durations.text(dft)
        return float(dft) if isinstance(dft, Decimal) else super().encode_default(dft)
