"""What a topic's sampled records show: how they are written, what stands where in them, and what deletes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from reconcile.domain import mapping
from reconcile.domain.canonical import Kind
from reconcile.domain.deletion import as_text, parsed
from reconcile.domain.key import KeyType, decode
from reconcile.domain.partitioner import explained_shares
from reconcile.draft.derivations import comparable
from reconcile.draft.matching import Inputs
from reconcile.draft.samples import Id, Record, Row, TopicSample, is_nameable, tokens

KEY_TYPES = (KeyType.STRING, KeyType.INT64, KeyType.UUID_BYTES, KeyType.JSON)
"""The key types that are tried, the likeliest first."""
TOMBSTONE = "tombstone"

_REGISTRY_FRAME = 5
_MOSTLY, _NEARLY_ALL = 0.9, 0.99
_DEEPEST = 4
_MOST_PATHS = 300
_MOST_TYPES = 30
_WRAPPER = {"schema", "payload"}
_TYPE_NAME = re.compile(r"[A-Za-z][\w.-]{0,60}", re.ASCII)
_ID_NAMES = ("eventid", "messageid", "ceid", "msgid", "changeid", "eventuuid")
_TYPE_NAMES = ("eventtype", "cetype", "messagetype", "typeid", "type", "eventname")
_CORRELATION_NAMES = ("correlationid", "xcorrelationid", "cecorrelationid", "requestid", "xrequestid", "traceid")
_DELETED_NAMES = ("deleted", "isdeleted", "removed", "tombstone")
_OPERATION_NAMES = ("op", "operation", "action", *_TYPE_NAMES)
_DELETES = re.compile(r"delet|remov|^d$", re.IGNORECASE)


@dataclass(frozen=True)
class Guess:
    """What is proposed for a key of the contract, and what speaks for it; nothing is proposed where it is None."""

    value: str | None
    evidence: str


@dataclass(frozen=True)
class Events:
    """A topic's records, read."""

    topic: TopicSample
    bodies: Sequence[Row | None]
    """What stands at each path of each record; None for a tombstone and for what cannot be read."""
    tombstones: int = 0
    unreadable: int = 0
    patch: bool = False
    """Whether events tell only what changed; as it is read, whether most of their paths are in a part of them only."""
    rare: tuple[str, ...] = ()
    """The paths that are in a part of the events only."""
    deletes: tuple[Guess, ...] = ()
    paths: tuple[str, ...] = field(default=())

    @cached_property
    def ids(self) -> frozenset[Id]:
        """The ids that records were read of."""
        return frozenset(each for each in self.topic.ids if each is not None)

    def newest(self, ids: Sequence[Id]) -> list[Row]:
        """Build for each id what its newest records tell; nothing for an id that is deleted, or not in the sample.

        On a topic that tells what changed it is the newest record that has the path; else a path that is not there is
        NULL.
        """
        told: dict[Id, dict[str, str | None]] = {}
        tests = [test for each in self.deletes if each.value and (test := parsed(each.value))]
        for record, id_, body in zip(self.topic.records, self.topic.ids, self.bodies, strict=True):
            if id_ is None:
                continue
            if body is None:
                if record.value is None:
                    told.pop(id_, None)
                continue
            if any(test.holds(_nested(body, test.path)) for test in tests):
                told.pop(id_, None)
                continue
            headers = {f"header:{name}": text for name, text in header_texts(record).items()}
            if self.patch:
                told[id_] = {**told.get(id_, {}), **body, **headers}
            else:
                told[id_] = {**dict.fromkeys(self.paths), **body, **headers}
        return [told.get(each, {}) for each in ids]

    def sums(self, path: str) -> dict[Id, tuple[Decimal, int]]:
        """Compute for each id what stands at a path of all its events together, and how many have it."""
        found: dict[Id, tuple[Decimal, int]] = {}
        for id_, body in zip(self.topic.ids, self.bodies, strict=True):
            number = comparable((body or {}).get(path), Kind.NUMERIC)
            if id_ is not None and isinstance(number, Decimal):
                total, count = found.get(id_, (Decimal(0), 0))
                found[id_] = total + number, count + 1
        return found

    def inputs(self, ids: Sequence[Id]) -> Inputs:
        """Build what values may be derived from: the paths of the events."""
        return Inputs(dict.fromkeys(self.paths), self.newest(ids), connectors=True)


def key_readings(records: Sequence[Record], width: int) -> Iterator[tuple[str, list[Id | None]]]:
    """Read the records' keys as each type that they may have; `width` is the number of columns of the id."""
    for key_type in KEY_TYPES if width == 1 else (KeyType.JSON,):
        yield key_type.value, [_id(decode(each.key, key_type), width) for each in records]


def value_format(records: Iterable[Record]) -> str | None:
    """Choose how values are written: json, debezium-json or `registry`; None where they are none of these.

    A topic without a value counts as json.
    """
    values = [each.value for each in records if each.value is not None]
    bodies = [_object(each) for each in values]
    objects = [each for each in bodies if each is not None]
    if values and len(objects) < len(values) * _MOSTLY:
        framed = sum(value[:1] == b"\0" and len(value) > _REGISTRY_FRAME for value in values)
        return "registry" if framed >= len(values) * _MOSTLY else None
    envelopes = sum(_is_envelope(each) for each in objects)
    return "debezium-json" if objects and envelopes >= len(objects) * _MOSTLY else "json"


def read(topic: TopicSample) -> Events:
    """Read all records of the sample."""
    debezium = topic.format == "debezium-json"
    bodies: list[Row | None] = []
    for record in topic.records:
        text = record.text.encode() if record.text is not None else record.value
        body = None if text is None else _object(text)
        if body is not None and debezium:
            body = _unwrapped(body)
        bodies.append(None if body is None else dict(_leaves(body)))
    there = [each for each in bodies if each is not None]
    counted = Counter(path for each in there for path in each)
    paths = tuple(path for path, _ in counted.most_common(_MOST_PATHS))
    tombstones = sum(each.value is None for each in topic.records)
    rare = [path for path, count in counted.items() if count < len(there) * _MOSTLY]
    return Events(
        topic,
        bodies,
        tombstones,
        unreadable=len(bodies) - len(there) - tombstones,
        patch=len(rare) > len(counted) / 2,
        rare=tuple(rare),
        deletes=tuple(_deletes(there, tombstones, debezium=debezium)),
        paths=paths,
    )


def header_texts(record: Record) -> dict[str, str]:
    """Read the headers that are text; of one that stands twice the last."""
    found = {}
    for name, value in record.headers:
        if not is_nameable(name):
            continue
        try:
            found[name] = (value or b"").decode()
        except UnicodeDecodeError:
            continue
    return found


def located(record: Record, body: Row | None, place: str | None) -> str | None:
    """Look up what stands at a place of a record: a path, or a header."""
    if place is None:
        return None
    if place.startswith("header:"):
        return header_texts(record).get(place.removeprefix("header:"))
    return (body or {}).get(place)


def places(events: Events) -> dict[str, Guess]:
    """Find where records have the event's id, its type and its correlation id."""
    bodies = [
        {**body, **{f"header:{name}": text for name, text in header_texts(record).items()}}
        for record, body in zip(events.topic.records, events.bodies, strict=True)
        if body is not None
    ]
    return {
        "event_id": _place(bodies, _ID_NAMES, _is_unique, "stands in {there} of {all} records, with {values} values"),
        "type": _place(bodies, _TYPE_NAMES, _is_type, "stands in {there} of {all} records, in {values} kinds"),
        "correlation_id": _place(bodies, _CORRELATION_NAMES, _is_there, "stands in {there} of {all} records"),
    }


def partitioner_evidence(topic: TopicSample) -> str:
    """Say which partitioner's partitions the sample has."""
    keyed = {(each.key, each.partition) for each in topic.records if each.key}
    if topic.partitions == 1:
        return "the topic has one partition: all partitioners agree"
    if not keyed:
        return "no record has a key: nothing shows it"
    shares = explained_shares(keyed, topic.partitions)
    said = ", ".join(
        f"{name} {round(share * len(keyed))}" for name, share in sorted(shares.items(), key=lambda each: -each[1])
    )
    return f"of {len(keyed)} sampled keys so many stand where it puts them: {said}"


def _id(text: str | None, width: int) -> Id | None:
    if text is None:
        return None
    if width == 1:
        return (text,)
    try:
        found = json.loads(text, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(found, list) and len(found) == width and all(isinstance(each, str) for each in found)
    return tuple(found) if whole else None


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        # By their digits: 1.50 and a number of 30 digits stay what they are.
        found = json.loads(data, parse_float=_Digits, parse_int=_Digits)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class _Digits(str):
    """A number, as it is written."""

    __slots__ = ()


def _is_envelope(body: Mapping[str, Any]) -> bool:
    inner = body["payload"] if _WRAPPER >= body.keys() and isinstance(body.get("payload"), dict) else body
    return "op" in inner and "source" in inner and bool({"after", "before"} & inner.keys())


def _unwrapped(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """Unwrap Debezium's envelope as the reading of logs does."""
    inner = body["payload"] if isinstance(body.get("payload"), dict) else body
    if inner.get("op") is None:
        return None
    after = inner["after"] if isinstance(inner.get("after"), dict) else {}
    source = {"__source": inner["source"]} if isinstance(inner.get("source"), dict) else {}
    return {**after, **source, "__op": inner["op"]}


def _leaves(body: Mapping[str, Any], path: str = "$", depth: int = 1) -> Iterator[tuple[str, str | None]]:
    for name, value in body.items():
        step = f".{name}" if re.fullmatch(r"\w+", name) else f"['{name}']"
        if depth == 1 and name == "schema" and body.keys() == _WRAPPER:
            continue  # of Connect's converter: it says nothing of the aggregate
        if not is_nameable(name) or not mapping.is_path(path + step):
            continue
        if isinstance(value, Mapping) and depth < _DEEPEST:
            yield from _leaves(value, path + step, depth + 1)
        else:
            yield path + step, _json(value) if isinstance(value, (list, Mapping)) else as_text(value)


def _json(value: Any) -> str:
    """Write a list or an object, whose numbers are kept by their digits."""
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(each)}" for name, each in value.items()) + "}"
    return str(value) if isinstance(value, _Digits) else json.dumps(value, ensure_ascii=False)


def _nested(body: Row, path: tuple[str, ...]) -> Any:
    """Build as much of an event as a test looks at."""
    for name, text in body.items():
        if mapping.steps(name) == path:
            found: Any = text
            for step in reversed(path):
                found = {step: found}
            return found
    return {}


def _deletes(bodies: Sequence[Row], tombstones: int, *, debezium: bool) -> Iterator[Guess]:
    """List the forms of deletions that were seen; Debezium's own, which its format knows, is none."""
    if tombstones:
        yield Guess(TOMBSTONE, f"{tombstones} sampled records have no value")
    if debezium:
        return
    for path in dict.fromkeys(each for body in bodies for each in body):
        name = "".join(tokens(mapping.steps(path)[-1]))
        texts = Counter(body[path] for body in bodies if body.get(path) is not None)
        said = "{count} of {all} sampled events say so"
        if name in _DELETED_NAMES and texts.keys() <= {"true", "false"} and texts["true"]:
            # Connect's unwrapping writes it as text, all others as what it is.
            literal = "'true'" if path.endswith(".__deleted") else "true"
            yield Guess(f"{path} == {literal}", said.format(count=texts["true"], all=len(bodies)))
        elif name in _OPERATION_NAMES and len(texts) <= _MOST_TYPES:
            for text in texts:
                if text and _DELETES.search(text) and _TYPE_NAME.fullmatch(text):
                    yield Guess(f"{path} == '{text}'", said.format(count=texts[text], all=len(bodies)))


_Test = Callable[[Sequence[str], int], bool]


def _place(bodies: Sequence[Row], names: Sequence[str], fits: _Test, evidence: str) -> Guess:
    for wanted in names:
        for path in dict.fromkeys(each for body in bodies for each in body):
            steps = (path.removeprefix("header:"),) if path.startswith("header:") else mapping.steps(path)
            if len(steps) > 2 or not _is_named(steps, wanted):
                continue
            found = [text for body in bodies if (text := body.get(path)) is not None]
            if found and fits(found, len(bodies)):
                said = evidence.format(there=len(found), all=len(bodies), values=len(set(found)))
                return Guess(path, said)
    return Guess(None, "nothing in the records is named like it")


def _is_named(steps: Sequence[str], wanted: str) -> bool:
    """Decide whether a path is called so, also by its last two steps: `$.event.id` is an `event_id`."""
    words = ["".join(tokens(each)).lstrip("_") for each in steps]
    return wanted in (words[-1], "".join(words))


def _is_unique(found: Sequence[str], count: int) -> bool:
    # Some records may stand twice: that is one of the faults that are looked for.
    return len(found) >= count * _NEARLY_ALL and len(set(found)) >= len(found) * _NEARLY_ALL


def _is_type(found: Sequence[str], count: int) -> bool:
    return len(found) >= count * _MOSTLY and len(set(found)) <= _MOST_TYPES


def _is_there(found: Sequence[str], count: int) -> bool:
    return len(found) >= count / 2
