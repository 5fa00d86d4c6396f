"""A topic's values as objects, and objects as values: JSON, what is written by a schema, and Debezium's envelope.

An object is what paths such as `$.email` look into: of Debezium's envelope that is the row, as the log history has it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reconcile.errors import RefusedError
from reconcile.gather.log.avro import AvroType
from reconcile.gather.log.protobuf import MessageType
from reconcile.gather.log.value_reader import FORMATS, TYPE, Decoded, JsonType, ValueReader
from reconcile.repair import json_schema
from reconcile.repair.avro_values import Fitting, write_avro
from reconcile.repair.connect_schema import LeftOut, Schema, completed, fields, requires, schema_at
from reconcile.repair.json_values import ELEMENT, MisfitError, Path, RowMisfitError, dumps, loads, written
from reconcile.repair.message_values import write_message

_BESIDE_ROW = ("__op", "__source")
_PLACES = frozenset({"version", "name", "db", "schema", "table", "keyspace", "collection"})


@dataclass(frozen=True)
class Codec:
    """Reads and writes the values of one topic; `like` is one of its newest values, whose outer form is taken over."""

    form: str
    """The contract's `topic.format`."""
    values: ValueReader | None = None
    like: bytes | None = None
    states: tuple[Mapping[str, Any], ...] = ()
    """What the newest records of its type say; a correction must not take away what they have."""

    def read(self, data: bytes) -> dict[str, Any] | None:
        """Parse a value to an object; None where it cannot be read."""
        if self.by_schema:
            assert self.values is not None
            text = self.values.read(data)
            try:
                found = None if text is None else loads(text)
            except (ValueError, RecursionError):
                return None
        else:
            try:
                found = loads(data)
            except (ValueError, RecursionError):
                return None
        if self.form == "debezium-json":
            found = _row(found)
        return found if isinstance(found, dict) else None

    @property
    def by_schema(self) -> bool:
        """Whether values are written by a schema that stands elsewhere."""
        return self.form in FORMATS

    @cached_property
    def whole(self) -> Mapping[str, Any]:
        """The newest value as it stands in its record; empty where none is known."""
        found = loads(self.like) if self.like and not self.by_schema else {}
        return found if isinstance(found, dict) else {}

    @property
    def wrapped(self) -> bool:
        """Whether values are Connect's JSON with schemas: a schema, and what it is about as payload."""
        alone = self.form != "debezium-json" and self.whole.keys() != {"schema", "payload"}
        return not alone and isinstance(self.whole.get("payload"), dict)

    @property
    def row_path(self) -> Path:
        """The path from an object to the row in it."""
        return ("payload",) if self.wrapped and self.form == "json" else ()

    @cached_property
    def row_schema(self) -> Schema | None:
        """The schema of the row, as it stands beside the newest value."""
        schema = self.whole.get("schema") if self.wrapped else None
        if not isinstance(schema, dict):
            return None
        found = schema_at(schema, ("after",)) if self.form == "debezium-json" else schema
        return found if found is not None and fields(found) else None

    def schema_at(self, path: Path) -> Schema | None:
        """Look up the schema of what stands at a path of an object; None where records bring none."""
        start = len(self.row_path)
        return schema_at(self.row_schema, path[start:]) if path[:start] == self.row_path else None

    def write(
        self,
        body: Mapping[str, Any],
        left_out: LeftOut = LeftOut(),  # noqa: B008 - it is frozen
        own: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Build the value of an object in the form of the topic's own, as a deletion if Debezium's `__op` says so.

        `own` is what the aggregate's last record says. Raises MisfitError where the schema has no place for it,
        requires what is not there, or would fill in something else than records have.
        """
        if self.by_schema:
            return self._by_schema(body, left_out, own)
        if self.form == "debezium-json":
            return dumps(self._envelope(body, left_out)).encode()
        if not self.wrapped:
            return dumps(body).encode()
        outside = sorted(set(body) - self.whole.keys())
        if outside or not isinstance(body.get("payload"), Mapping):
            raise MisfitError(
                "the topic's records are a schema and a payload: write the entries of topic.value as paths such as"
                " $.payload.id"
            )
        if "schema" in body:  # a state of the log brings its own
            own = fields(body["schema"]) if isinstance(body["schema"], dict) else {}
            if own and (unknown := sorted(set(body["payload"]) - own.keys())):
                where = written(("payload", unknown[0]))
                raise RowMisfitError(f"its last record is of a schema that does not have {where}")
            return dumps(body).encode()
        return dumps({**self.whole, "payload": self._completed(body["payload"], left_out)}).encode()

    def _completed(self, row: Mapping[str, Any], left_out: LeftOut) -> Mapping[str, Any]:
        """Fill in what the schema has beside what a row gives."""
        return row if self.row_schema is None else completed(row, self.row_schema, self.row_path, left_out)

    def _by_schema(self, body: Mapping[str, Any], left_out: LeftOut, own: Mapping[str, Any] | None) -> bytes:
        """Write a value with the schema of the newest record, behind its frame."""
        like, found = self.like or b"", self._like
        if found is None:
            raise RefusedError("no record of the topic can be read: nothing shows which schema a correction would name")
        frame = like[: found.start]
        if body.get(TYPE) == found.name:
            body = {name: value for name, value in body.items() if name != TYPE}
        if isinstance(found.type, JsonType):
            text = dumps(body)
            json_schema.require(found.type, text)
            return frame + text.encode()
        filled: Sequence[Path]
        if isinstance(found.type, AvroType):
            fitting = Fitting(found.type.named, left_out)
            data, filled = frame + write_avro(found.type, body, found.name, fitting), fitting.filled
        else:
            assert isinstance(found.type, MessageType)
            message, filled = write_message(found.type, body, left_out)
            data = frame + message
        self._require_kept(data, filled, own)
        return data

    @cached_property
    def _like(self) -> Decoded | None:
        """The newest value, and what reads it; None where it cannot be read."""
        return None if self.values is None else self.values.decoded(self.like or b"")

    @cached_property
    def _carried(self) -> dict[Path, list[Any]]:
        """What the newest records have at the paths that were looked at."""
        return {}

    def _require_kept(self, data: bytes, filled: Iterable[Path], own: Mapping[str, Any] | None) -> None:
        """Raise MisfitError if what was filled in is something else than records of the same type have there."""
        said = self.read(data)
        if said is None:
            raise RowMisfitError("topic.value gives something that the schema has no room for")
        for path in filled:
            ours = _at(said, path)
            if path not in self._carried:
                values = (value for state in self.states for value in _at(state, path))
                self._carried[path] = list({dumps(value): value for value in values}.values())
            left, taken = f"topic.value leaves out {written(path)}", "readers would take that for gone"
            if any(value not in ours for value in self._carried[path]):
                raise MisfitError(f"{left}, which records carry: {taken}")
            if any(value not in ours for value in _at(own, path)):
                raise RowMisfitError(f"{left}, which its last record carries: {taken}")

    def _envelope(self, body: Mapping[str, Any], left_out: LeftOut) -> dict[str, Any]:
        like: Mapping[str, Any] = self.whole["payload"] if self.wrapped else self.whole
        now = time.time_ns()
        times = {"ts_ms": now // 1_000_000, "ts_us": now // 1_000, "ts_ns": now}
        row = self._completed({name: value for name, value in body.items() if name not in _BESIDE_ROW}, left_out)
        gone = body.get("__op") == "d"
        said = {"before": row if gone else None, "after": None if gone else row, "op": "d" if gone else "u"}
        # Nothing but what tells where the row lives: our event has no place in the source's log.
        envelope = self.whole.get("schema") if self.wrapped else None
        schema = schema_at(envelope, ("source",)) if isinstance(envelope, dict) else None
        kept = _PLACES | {name for name, own in fields(schema or {}).items() if requires(own)}
        source: dict[str, Any] = {
            name: "false" if name == "snapshot" else value if name in kept else None
            for name, value in (like.get("source") or {}).items()
        }
        own = {"connector": "reconcile", "ts_ms": times["ts_ms"]}
        source |= own | {name: at for name, at in times.items() if name in source}
        stamped = {name: at for name, at in times.items() if name in like or name == "ts_ms"}
        payload = dict.fromkeys(like) | said | stamped | {"source": source}
        return {**self.whole, "payload": payload} if self.wrapped else payload


def _row(found: Any) -> Any:
    """Unwrap Debezium's envelope as the log history does."""
    payload = found.get("payload") if isinstance(found, dict) else None
    envelope = payload if isinstance(payload, dict) else found
    if not isinstance(envelope, dict) or envelope.get("op") is None:
        return None
    row = envelope.get("after")
    if not isinstance(row, dict | None):
        return None
    beside = dict(zip(_BESIDE_ROW, (envelope["op"], envelope.get("source")), strict=True))
    return {**(row or {}), **beside}


def _at(state: Any, path: Path) -> list[Any]:
    """List what stands at a path, of each element where it leads through arrays."""
    found = [state]
    for step in path:
        if step == ELEMENT:
            found = [inner for each in found if isinstance(each, list) for inner in each]
        else:
            found = [each[step] for each in found if isinstance(each, Mapping) and step in each]
    return found
