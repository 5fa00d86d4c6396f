"""Redis as a store: one key for each aggregate, which holds a hash or a JSON object.

The contract's `table: profile` reads the keys `profile:ID`. Its `query: "app:profile:*:v2 email, balance"` reads the
keys of a pattern whose `*` stands for the id, and names the columns; without names they are those that a sample of the
keys has. The column `id` holds the id; all columns are text, NULL where a key lacks them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from hashlib import blake2b
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
import redis
from redis.exceptions import AuthorizationError

from reconcile.gather.stores.errors import StoreReadError, StoreRefusedError, StoreUnreachableError

T = TypeVar("T")
ID = "id"
_AT_ONCE = 1000
_SAMPLED = 1000
_PATIENCE = 30.0
_COMMANDS = {"hash": b"HGETALL", "string": b"GET", "none": b"GET"}
"""What reads a key, by the kind of its value; one that has expired is of none."""
_SPECIAL = re.compile(r"([\\?\[\]])")


def open_redis(url: str) -> RedisStore:
    """Open a server by a URL such as `rediss://user:password@host:6379/0`."""
    try:
        return RedisStore(redis.Redis.from_url(url, socket_timeout=_PATIENCE, socket_connect_timeout=_PATIENCE))
    except ValueError:  # whose words may repeat a part of the password
        raise StoreRefusedError(
            "the URL of Redis cannot be used: write rediss://user:password@host:6379/0, with / as %2F, # as %23 and"
            " ? as %3F in the password"
        ) from None


class RedisStore:
    """One database of a Redis server."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def describe(self, relation: str) -> pa.Schema:
        """List the columns that the relation names, else those of a sample of its keys."""
        pattern, names = _read(relation)
        if not names:
            with _explained():
                sample = self._values(islice(self._keys(pattern), _SAMPLED))
                names = tuple(sorted({name for _, value in sample for name in value} - {ID}))
        return pa.schema([(name, pa.string()) for name in (ID, *names)])

    def rows(
        self,
        relation: str,
        schema: pa.Schema,
        id_column: str,
        ids: Sequence[str] | None,
        cut: str | None,  # noqa: ARG002
    ) -> Iterator[pa.RecordBatch]:
        """Read the keys of all aggregates, or those of some."""
        if id_column != ID:
            raise StoreRefusedError(f"the id of a key in Redis is in the column {ID}, not in {id_column}")
        pattern, _ = _read(relation)
        before, _, after = pattern.partition("*")
        keys = self._keys(pattern) if ids is None else ((f"{before}{each}{after}").encode() for each in ids)
        with _explained():
            for some in _batched(self._values(keys)):
                rows = [{**value, ID: _text(key)[len(before) : len(_text(key)) - len(after)]} for key, value in some]
                yield pa.RecordBatch.from_pylist(rows, schema)

    def cut(self) -> None:
        """Read it as it is now: Redis has no past."""

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _keys(self, pattern: str) -> Iterator[bytes]:
        """Read all keys of a pattern, each once: a scan may meet a key twice while its table grows."""
        met: set[bytes] = set()
        for key in self._client.scan_iter(_SPECIAL.sub(r"\\\1", pattern), count=_AT_ONCE):
            digest = blake2b(key, digest_size=16).digest()
            if digest not in met:
                met.add(digest)
                yield key

    def _values(self, keys: Iterable[bytes]) -> Iterator[tuple[bytes, dict[str, str | None]]]:
        """Read what keys hold; one that has expired is no row."""
        for some in _batched(keys):
            kinds = self._each((b"TYPE", key) for key in some)
            if unknown := {_text(each) for each in kinds} - _COMMANDS.keys():
                raise StoreRefusedError(f"Redis: a key holds a {min(unknown)}: choose keys with a hash or a text")
            values = self._each((_COMMANDS[_text(kind)], key) for kind, key in zip(kinds, some, strict=True))
            yield from ((key, _columns(value)) for key, value in zip(some, values, strict=True) if value)

    def _each(self, commands: Iterable[tuple[bytes, bytes]]) -> list[Any]:
        """Send commands in one round trip."""
        pipeline: Any = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return list(pipeline.execute())


def _batched(rows: Iterable[T]) -> Iterator[list[T]]:
    left = iter(rows)
    while some := list(islice(left, _AT_ONCE)):
        yield some


def _read(relation: str) -> tuple[str, tuple[str, ...]]:
    pattern, _, names = relation.strip().partition(" ")
    if "*" not in pattern:
        pattern += ":*"
    if pattern.count("*") > 1:
        raise StoreRefusedError(f"Redis: {pattern} has several *: one stands for the id")
    return pattern, tuple(name for name in re.split(r"[,\s]+", names.strip()) if name and name != ID)


def _columns(value: Any) -> dict[str, str | None]:
    if isinstance(value, Mapping):
        return {_text(name): _text(each) for name, each in value.items()}
    try:
        found = json.loads(value, parse_float=Decimal)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StoreReadError("Redis: the text of a key is no JSON object")
    return {name: _member(each) for name, each in found.items()}


def _member(value: Any) -> str | None:
    """Write a member of a JSON object as text, numbers with all their digits."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()  # half of a character is no text
    if value is None:
        return None
    return str(value) if isinstance(value, Decimal) else json.dumps(value, default=float)


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


@contextmanager
def _explained() -> Iterator[None]:
    """Raise errors of stores: what Redis says may hold a key."""
    try:
        yield
    except (redis.AuthenticationError, AuthorizationError) as error:
        raise StoreRefusedError(f"Redis refuses us: {type(error).__name__}; check user and password") from None
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise StoreUnreachableError(f"Redis does not answer: {type(error).__name__}; see that it is up") from None
    except redis.ResponseError as error:
        raise StoreRefusedError(f"Redis refuses a command: {str(error).partition(' ')[0]}") from None
