"""The ids that keys hold, computed by Spark: what `domain.key` does, for a whole column."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column  # noqa: TID253
from pyspark.sql import functions as f  # noqa: TID253

from reconcile.domain import key as domain_key
from reconcile.domain.key import KeyType
from reconcile.errors import RefusedError
from reconcile.gather.log.value_reader import ValueReader


def decoded(key: Column, key_type: str, values: ValueReader | None = None) -> Column:
    """Decode the id in a key; NULL for a null key and for one that cannot be read."""
    kind = KeyType(key_type)
    if kind is KeyType.SCHEMA:
        return _decoded_by_schema(key, values)
    if kind is KeyType.STRING:
        return f.try_validate_utf8(key.cast("string"))
    if kind is KeyType.JSON:
        return _decoded_json(key)
    digits = f.lower(f.hex(key))
    if kind is KeyType.INT64:
        return f.when(f.octet_length(key) == 8, f.conv(digits, 16, -10))
    parts = [f.substring(digits, start, length) for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))]
    return f.when(f.octet_length(key) == 16, f.concat_ws("-", *parts))


def encoded(id_text: Column, key_type: str) -> Column | None:
    """Encode the key's bytes for ids that `decoded` gave; None where different bytes can hold the same id."""
    kind = KeyType(key_type)
    if kind is KeyType.STRING:
        return id_text.cast("binary")
    if kind is KeyType.UUID_BYTES:
        return f.unhex(f.replace(id_text, f.lit("-"), f.lit("")))
    if kind is KeyType.INT64:
        return f.unhex(f.lpad(f.hex(id_text.cast("bigint")), 16, "0"))
    return None


def encoded_here(ids: pa.Array, key_type: str) -> pa.Array | None:
    """Encode the same in this process."""
    kind = KeyType(key_type)
    if kind is KeyType.STRING:
        return ids.cast(pa.binary())
    if kind not in (KeyType.UUID_BYTES, KeyType.INT64):
        return None
    listed = (None if each is None else domain_key.encode(each, kind) for each in ids.to_pylist())
    return pa.array(list(listed), pa.binary())


def _decoded_by_schema(key: Column, values: ValueReader | None) -> Column:
    if values is None:
        raise RefusedError("keys by their schema cannot be read without the registry")

    def decode(data: bytes | None) -> str | None:
        return values.key_id(None if data is None else bytes(data))

    return f.udf(decode, "string", useArrow=True)(key)


def _decoded_json(key: Column) -> Column:
    def decode(data: bytes | None) -> str | None:
        return domain_key.decode(data, KeyType.JSON)

    return f.udf(decode, "string", useArrow=True)(key)
