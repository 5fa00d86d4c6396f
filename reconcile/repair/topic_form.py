"""How the records of a topic look, learned from its newest ones, so that a correction looks like one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reconcile.contract.model import Topic
from reconcile.domain.canonical import is_whole
from reconcile.domain.key import rebuilds
from reconcile.gather.log.avro import AvroSchema
from reconcile.kafka.client import ClusterClient
from reconcile.kafka.reader import read_newest
from reconcile.repair import json_values
from reconcile.repair.json_values import Path, Types, path_of
from reconcile.repair.value_codec import Codec

if TYPE_CHECKING:
    from confluent_kafka import Message

EACH = 50
"""So many of the newest records of each partition are looked at."""

_HEADER = "header:"
_OURS = "reconcile-"
_CLOUD_EVENT_ID = ("ce_id", "ce-id")
_ENOUGH = 5  # headers that so many records share are taken for the publisher's own


@dataclass(frozen=True)
class Sample:
    """One of the newest records."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class TopicForm:
    """What the records of a topic have in common."""

    codec: Codec
    types: Types = field(default_factory=dict)
    always: frozenset[str] = frozenset()
    """The names that stand in every record that carries a state."""
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
    numbered: bool = True
    """Whether its records' versions are plain numbers; so too where none is seen."""
    rebuilds_keys: bool = True
    """Whether encoding an id gives the bytes that the topic's keys have."""


def newest(client: ClusterClient, topic: str, begins: Mapping[int, int], ends: Mapping[int, int]) -> list[Sample]:
    """Read the newest committed records of a topic, the oldest first in each partition."""
    if not any(end > begins[partition] for partition, end in ends.items()):
        return []
    with client.explaining(f"the records of {topic}"):
        return [sample(record) for record in read_newest(client.config, topic, begins, ends, EACH)]


def sample(record: Message) -> Sample:
    """Take what a record says."""
    headers: Any = record.headers() or ()
    headers = tuple((str(name), _bytes(value)) for name, value in headers)
    return Sample(_bytes(record.key()), _bytes(record.value()), headers)


def learned(
    topic: Topic,
    samples: Sequence[Sample],
    avro: AvroSchema | None,
    paths: Sequence[Path] = (),
    amounts: Sequence[Path] = (),
) -> TopicForm:
    """Learn how records look; a topic that has none shows nothing, and what the contract says holds.

    The usual type is that of the records which carry one of the paths; `amounts` are those of what events add.
    """
    reader = Codec(topic.format, avro)
    samples = [each for each in samples if not any(name.startswith(_OURS) for name, _ in each.headers)] or samples
    bodies = [(each, reader.read(each.value)) for each in samples if each.value is not None]
    states = [(each, body) for each, body in bodies if body is not None]
    like = states[-1][0].value if states else None
    contents = [body for _, body in states]
    alike = [(each, body) for each, body in states if not paths or any(carries(body, path) for path in paths)]
    adding = [(each, body) for each, body in states if any(carries(body, path) for path in amounts)]
    types_of_states, types_of_adding = (
        [found for each, body in some if (found := locate(topic.type, each.headers, body)) not in topic.ignore_types]
        for some in (alike, adding)
    )
    versions = [said for each, body in states if (said := locate(topic.version, each.headers, body)) is not None]
    tombstones = [each for each in samples if each.value is None]
    keys = [each.key for each in samples if each.key is not None]
    headers = {name for each in samples for name, _ in each.headers}
    return TopicForm(
        codec=Codec(topic.format, avro, like),
        types=json_values.types(contents),
        always=frozenset.intersection(*map(frozenset, contents)) if contents else frozenset(),
        headers=_shared(topic, samples),
        cloud_event_id=next((name for name in _CLOUD_EVENT_ID if name in headers), None),
        adding_type=_commonest(types_of_adding),
        usual_type=_commonest(types_of_states),
        deleting_type=_commonest(locate(topic.type, each.headers, None) for each in tombstones),
        numbered=sum(map(is_whole, versions)) * 2 >= len(versions),
        rebuilds_keys=all(rebuilds(key, topic.key.type) for key in keys),
    )


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
        if (name, value) in shared and name not in named and value is not None and not name.startswith(_OURS)
    )


def _commonest(types: Iterable[str | None]) -> str | None:
    counted = Counter(each for each in types if each is not None)
    return counted.most_common(1)[0][0] if counted else None


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
