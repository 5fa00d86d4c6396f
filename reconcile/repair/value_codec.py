"""A topic's values as objects, and objects as values: JSON, Avro, and Debezium's envelope.

An object is what paths such as `$.email` look into: of Debezium's envelope that is the row, as the log history has it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

from reconcile.gather.log.avro import AvroSchema
from reconcile.repair import avro_values
from reconcile.repair.json_values import MisfitError, dumps, loads

_CONFLUENT, _SINGLE_OBJECT = 5, 10
_BESIDE_ROW = ("__op", "__source")
_PLACES = frozenset({"version", "name", "db", "schema", "table", "keyspace", "collection"})


@dataclass(frozen=True)
class Codec:
    """Reads and writes the values of one topic; `like` is one of its newest values, whose outer form is taken over."""

    form: Literal["json", "avro", "debezium-json"]
    avro: AvroSchema | None = None
    like: bytes | None = None

    def read(self, data: bytes) -> dict[str, Any] | None:
        """Give a value as an object; None where it cannot be read."""
        if self.form == "avro":
            assert self.avro is not None
            text = self.avro.read(data)
            found = None if text is None else loads(text)
        else:
            try:
                found = loads(data)
            except (ValueError, RecursionError):
                return None
        if self.form == "debezium-json":
            found = _row(found)
        return found if isinstance(found, dict) else None

    def write(self, body: Mapping[str, Any]) -> bytes:
        """Give an object as a value, for Debezium as a deletion if `__op` says so.

        Raises MisfitError where the schema has no place for it.
        """
        if self.form == "avro":
            return self._avro(body)
        if self.form == "debezium-json":
            return dumps(self._envelope(body)).encode()
        return dumps(body).encode()

    def _avro(self, body: Mapping[str, Any]) -> bytes:
        from fastavro import schemaless_writer

        prefix, schema = self._framed()
        out = BytesIO()
        out.write(prefix)
        try:
            schemaless_writer(out, schema, avro_values.fitted(body, schema))
        except avro_values.UNREADABLE:
            raise MisfitError("topic.value gives something that the schema has no room for") from None
        return out.getvalue()

    def _framed(self) -> tuple[bytes, Any]:
        """Give what stands before the newest value, and the schema that reads what stands behind that."""
        from fastavro import schemaless_reader

        assert self.avro is not None
        like = self.like or b""
        for length, texts in self._ways(like):
            schema = avro_values.parsed(texts)
            stream = BytesIO(like)
            stream.seek(length)
            try:
                schemaless_reader(stream, schema, None)
            except avro_values.UNREADABLE:
                continue
            if stream.tell() == len(like):
                return like[:length], schema
        raise avro_values.no_example()

    def _ways(self, like: bytes) -> Iterator[tuple[int, tuple[str, ...]]]:
        assert self.avro is not None
        framed = len(like) > _CONFLUENT and like[0] == 0
        if self.avro.registry is not None:
            if framed:
                yield _CONFLUENT, self.avro.registry.schema(int.from_bytes(like[1:_CONFLUENT], "big"))
            return
        assert self.avro.schema is not None
        for length in [*([_CONFLUENT] if framed else []), *([_SINGLE_OBJECT] if like[:2] == b"\xc3\x01" else []), 0]:
            yield length, (self.avro.schema,)

    def _envelope(self, body: Mapping[str, Any]) -> dict[str, Any]:
        whole = loads(self.like) if self.like else {}
        wrapped = isinstance(whole.get("payload"), dict)
        like: Mapping[str, Any] = whole["payload"] if wrapped else whole
        now = int(time.time() * 1000)
        row = {name: value for name, value in body.items() if name not in _BESIDE_ROW}
        gone = body.get("__op") == "d"
        said = {"before": row if gone else None, "after": None if gone else row, "op": "d" if gone else "u"}
        # Nothing but what tells where the row lives: our event has no place in the source's log.
        kept = _PLACES | _required(whole.get("schema"))
        source: dict[str, Any] = {
            name: "false" if name == "snapshot" else value if name in kept else None
            for name, value in (like.get("source") or {}).items()
        }
        source |= {"connector": "reconcile", "ts_ms": now}
        payload = dict.fromkeys(like) | said | {"ts_ms": now, "source": source}
        return {**whole, "payload": payload} if wrapped else payload


def _required(schema: Any) -> frozenset[str]:
    """Give the fields of `source` that must not be null, as the schema beside the payload says."""
    fields = schema.get("fields", ()) if isinstance(schema, dict) else ()
    source: dict[str, Any] = next((each for each in fields if each.get("field") == "source"), {})
    return frozenset(each["field"] for each in source.get("fields", ()) if not each.get("optional"))


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
