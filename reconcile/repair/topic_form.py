"""How the records of a topic look, learned from its newest ones, so that a correction looks like one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from reconcile.contract.model import Topic
from reconcile.domain import deletion
from reconcile.domain.canonical import is_whole
from reconcile.domain.deletion import DeletionTest
from reconcile.domain.key_form import KeyForms
from reconcile.domain.key_form import learned as learned_keys
from reconcile.gather.log.value_reader import TYPE, ValueReader
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.reader import read_newest
from reconcile.repair import json_values
from reconcile.repair.json_values import Path, RowMisfitError, Types, path_of
from reconcile.repair.value_codec import Codec

if TYPE_CHECKING:
    from confluent_kafka import Message

EACH = 50
"""So many of the newest records of each partition are looked at."""

_HEADER = "header:"
_OURS = "reconcile-"
_CLOUD_EVENT_ID = ("ce_id", "ce-id")
PLACES_IN_LOG = frozenset(
    {"lsn", "txId", "txid", "sequence", "xmin", "file", "pos", "row", "gtid", "change_lsn", "commit_lsn", "scn"}
)
"""What says where a change stands in its database's log: a correction stands nowhere there."""
_BESIDE_COLUMNS = PLACES_IN_LOG | {
    *("op", "deleted", "source", "connector", "name", "db", "schema", "table", "snapshot", "ts_ms", "ts_us", "ts_ns")
}
"""What Debezium writes beside a row's columns, with `__` or `__source_` before it."""
_ENOUGH = 5  # headers that so many records share are taken for the publisher's own


NULL = b"null"
"""A tombstone of Connect's JSON converter without schemas: a sink may read it where it cannot read no value."""


@dataclass(frozen=True)
class Sample:
    """One of the newest records."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    at: int = 0
    """Its time, in milliseconds."""


@dataclass(frozen=True)
class TopicForm:
    """What the records of a topic have in common."""

    codec: Codec
    types: Types = field(default_factory=dict)
    always: frozenset[str] = frozenset()
    """The names that stand in the row of every record that carries a state."""
    marks: Mapping[str, Any] = field(default_factory=dict)
    """What a connector writes into each row beside its columns, such as `__deleted`; None where records differ."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """Headers that are the same in all records."""
    cloud_event_id: str | None = None
    """The header with CloudEvents' id, where records have one."""
    adding_type: str | None = None
    """The type that most records with an amount have."""
    usual_type: str | None = None
    """The type that most records with a state have."""
    deleting_type: str | None = None
    """The type that most tombstones have."""
    versioned_tombstones: bool = True
    """Whether most tombstones carry a version in a header; so too where none is seen."""
    tombstone: bytes | None = None
    """The value of its tombstones: none, or JSON's null, as Connect's converter without schemas writes them."""
    numbered: bool = True
    """Whether its records' versions are plain numbers; so too where none is seen."""
    keys: KeyForms | None = None
    """How ids become keys; None where the topic's keys have several forms."""
    by_type: Mapping[str | None, Codec] = field(default_factory=dict)
    """Of values that are written by a schema, how those of each type of events are written."""

    def codec_of(self, type_: str | None, name: str | None) -> Codec:
        """Choose how a value of a type is written, `name` being that of its schema's type, if it is known.

        Raises RowMisfitError where no record shows which schema it has.
        """
        of_one = self.codec.values is None or self.codec.values.registry is None
        if not self.codec.by_schema or self.codec.like is None:
            return self.codec
        if type_ in self.by_type:
            return self.by_type[type_]
        names = {state.get(TYPE) for codec in self.by_type.values() for state in codec.states}
        if len(names) == 1 and (name is None or name in names):
            return next(iter(self.by_type.values()))
        if of_one and not names:
            return self.codec
        raise RowMisfitError(
            f"no record that is seen is of the type {name or type_}: nothing shows which schema it has"
        )


def newest(client: ClusterClient, topic: str, begins: Mapping[int, int], ends: Mapping[int, int]) -> list[Sample]:
    """Read the newest committed records of a topic, the oldest first in each partition."""
    if not any(end > begins[partition] for partition, end in ends.items()):
        return []
    with client.reading_records(topic):
        return [_placed(record) for record in read_newest(client.config, topic, begins, ends, EACH)]


def sample(record: Message) -> Sample:
    """Take what a record says."""
    headers: Any = record.headers() or ()
    headers = tuple((str(name), _bytes(value)) for name, value in headers)
    return Sample(_bytes(record.key()), _bytes(record.value()), headers)


def _placed(record: Message) -> Sample:
    return replace(sample(record), at=record.timestamp()[1])


def learned(
    topic: Topic,
    samples: Sequence[Sample],
    values: ValueReader | None,
    paths: Sequence[Path] = (),
    amounts: Sequence[Path] = (),
) -> TopicForm:
    """Learn how records look; a topic that has none shows nothing, and what the contract says holds.

    The usual type is that of the records which carry one of the paths; `amounts` are those of what events add.
    """
    reader = Codec(topic.format, values)
    samples = [each for each in samples if not any(name.startswith(_OURS) for name, _ in each.headers)] or samples
    bodies = [(each, reader.read(each.value)) for each in samples if each.value is not None]
    tests = [test for each in topic.delete_tests if (test := deletion.parsed(each)) is not None]
    readable = [(each, body) for each, body in bodies if body is not None]
    states = [(each, body) for each, body in readable if not _deletes(body, topic, tests)] or readable
    # A connector that wrote without schemas for a while does not make that the topic's form.
    wrapped = [Codec(topic.format, values, each.value).wrapped for each, _ in states]
    usual = 2 * sum(wrapped) >= len(wrapped)
    states = [each for each, is_wrapped in zip(states, wrapped, strict=True) if is_wrapped is usual]
    like = max(states, key=lambda each: each[0].at)[0].value if states else None
    codec = Codec(topic.format, values, like)
    by_type: dict[str | None, Codec] = {}
    for each, body in sorted(states, key=lambda state: state[0].at) if codec.by_schema else ():
        found = type_of(topic, each.headers, body)
        if found in topic.ignore_types:
            continue
        former = by_type[found].states if found in by_type else ()
        by_type[found] = Codec(topic.format, values, each.value, (*former, body))
    contents = [body for _, body in states]
    rows = [row for body in contents if isinstance(row := json_values.at(body, codec.row_path), Mapping)]
    alike = [(each, body) for each, body in states if not paths or any(carries(body, path) for path in paths)]
    adding = [(each, body) for each, body in states if any(carries(body, path) for path in amounts)]
    types_of_states, types_of_adding = (
        [found for each, body in some if (found := locate(topic.type, each.headers, body)) not in topic.ignore_types]
        for some in (alike, adding)
    )
    depth = len(codec.row_path)
    flags = {test.path[depth] for test in tests if test.path[:depth] == codec.row_path and len(test.path) == depth + 1}
    versions = [said for each, body in states if (said := locate(topic.version, each.headers, body)) is not None]
    tombstones = [each for each in samples if each.value is None or (each.value == NULL and not codec.by_schema)]
    stamped = [locate(topic.version, each.headers, None) is not None for each in tombstones]
    keys = [each.key for each in samples if each.key is not None]
    headers = {name for each in samples for name, _ in each.headers}
    return TopicForm(
        codec=replace(codec, states=tuple(contents)) if codec.by_schema else codec,
        types=json_values.types(contents),
        always=(always := (frozenset.intersection(*map(frozenset, rows)) if rows else frozenset()) - {TYPE}),
        marks=_marks(rows, always, flags),
        headers=_shared(topic, samples),
        cloud_event_id=next((name for name in _CLOUD_EVENT_ID if name in headers), None),
        adding_type=_commonest(types_of_adding),
        usual_type=_commonest(types_of_states),
        deleting_type=_commonest(locate(topic.type, each.headers, None) for each in tombstones),
        versioned_tombstones=2 * sum(stamped) >= len(stamped),
        tombstone=max(tombstones, key=lambda each: each.at).value if tombstones else None,
        numbered=sum(map(is_whole, versions)) * 2 >= len(versions),
        keys=learned_keys(keys, topic.key.type),
        by_type=by_type,
    )


def type_of(topic: Topic, headers: Sequence[tuple[str, bytes | None]], body: Mapping[str, Any]) -> str | None:
    """Choose the type of an event with a state: what the contract looks at, or the name of its schema's type."""
    return locate(TYPE if topic.type is None else topic.type, headers, body)


def carries(body: Any, path: Path) -> bool:
    """Decide whether a path is in an object, also where it holds null."""
    above = json_values.at(body, path[:-1])
    return isinstance(above, Mapping) and path[-1] in above


def locate(place: str | None, headers: Sequence[tuple[str, bytes | None]], body: Any) -> str | None:
    """Look up one of the contract's places in a record, as text."""
    if place is None:
        return None
    if (header := header_name(place)) is not None:
        values = [value for name, value in headers if name == header]
        return values[-1].decode(errors="replace") if values and values[-1] is not None else None
    found = json_values.at(body, path_of(place))
    return found if found is None or isinstance(found, str) else json_values.dumps(found)


def header_name(place: str | None) -> str | None:
    """Parse the header that a place names; None for a path."""
    return place.removeprefix(_HEADER) if place is not None and place.startswith(_HEADER) else None


def is_mark(name: str) -> bool:
    """Whether a connector writes it beside a row's columns: a column may be called `__v`, too."""
    return name.startswith("__") and name.removeprefix("__").removeprefix("source_") in _BESIDE_COLUMNS


def _marks(rows: Sequence[Mapping[str, Any]], always: Iterable[str], flags: Collection[str]) -> dict[str, Any]:
    """Choose what stands beside the columns of all rows: a connector's, and what says that a row is not deleted."""
    found = {name: _common(row[name] for row in rows) for name in sorted(always)}
    return {name: common for name, common in found.items() if is_mark(name) or (name in flags and common is not None)}


def _shared(topic: Topic, samples: Sequence[Sample]) -> tuple[tuple[str, bytes], ...]:
    """Find the headers that say the same in all records and that the contract does not name."""
    if len({each.key for each in samples}) < _ENOUGH:
        return ()
    places = (topic.version, topic.event_id, topic.type, topic.correlation_id)
    named = {header_name(each) for each in places} | set(_CLOUD_EVENT_ID)
    shared = frozenset.intersection(*(frozenset(each.headers) for each in samples))
    return tuple(
        (name, value)
        for name, value in samples[-1].headers
        if (name, value) in shared and name not in named and value is not None and not _foreign(name)
    )


def _foreign(header: str) -> bool:
    """Whether a header is of a connector or a correction: `__debezium.context.task`, but not Spring's `__TypeId__`."""
    return header.startswith(_OURS) or (header.startswith("__") and not header.endswith("__"))


def _deletes(body: Mapping[str, Any], topic: Topic, tests: Iterable[DeletionTest]) -> bool:
    gone = topic.format == "debezium-json" and body.get("__op") == "d"
    gone |= body.keys() == {"schema", "payload"} and body["payload"] is None  # Connect's tombstone with a schema
    return gone or any(test.holds(body) for test in tests)


def _common(values: Iterable[Any]) -> Any:
    """Choose what is the same in all records; None if nothing is."""
    first, *others = values
    return first if all(each == first for each in others) else None


def _commonest(types: Iterable[str | None]) -> str | None:
    counted = Counter(each for each in types if each is not None)
    return counted.most_common(1)[0][0] if counted else None


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
