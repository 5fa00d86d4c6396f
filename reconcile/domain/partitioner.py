"""Which partition a key belongs to, under the partitioners that producers use.

A key is hashed as the BYTES on the wire. Facts about keys that are empty or absent: Java and Sarama hash an empty
key like any other, librdkafka's defaults scatter it (`consistent_random` an empty or a null one, `murmur2_random` a
null one only). So an empty key proves nothing, `explained_shares` leaves it out, and no client hashes a null key.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXPLAINS = 0.99
"""The share of the pairs that a partitioner has to explain."""


class Partitioner(StrEnum):
    """How a producer's client places a keyed record."""

    MURMUR2 = "murmur2"  # Java, Spark's sink, franz-go, kafka-python, aiokafka
    CRC32 = "crc32"  # librdkafka: confluent-kafka, node-rdkafka
    FNV1A = "fnv1a"  # Sarama


def partition_of(key: bytes, partitions: int, partitioner: str) -> int:
    """The partition that the partitioner gives the key; an empty key under crc32 goes where `consistent` puts it."""
    if partitions < 1:
        raise ValueError(f"a topic has one partition or more, not {partitions}")
    return _PLACE[Partitioner(partitioner)](key, partitions)


def explained_shares(pairs: Iterable[tuple[bytes, int]], partitions: int) -> Mapping[Partitioner, float]:
    """Compute for each partitioner the share of the keys that it would have put where they are.

    Pairs come from records written since the last change of the partition count, each pair once: otherwise a hot key
    decides. Empty keys are left out.
    """
    hits = dict.fromkeys(Partitioner, 0)
    total = 0
    for key, partition in pairs:
        if not key:
            continue
        total += 1
        for partitioner in Partitioner:
            hits[partitioner] += partition_of(key, partitions, partitioner) == partition
    return {each: count / total if total else 0.0 for each, count in hits.items()}


def candidates(shares: Mapping[Partitioner, float]) -> tuple[Partitioner, ...]:
    """Choose the partitioners that explain enough; more than one where there are few keys, or one partition."""
    return tuple(each for each, share in shares.items() if share >= EXPLAINS)


def murmur2(key: bytes) -> int:
    """Kafka's murmur2 of the bytes, unsigned."""
    size = len(key)
    whole = size & ~3
    value = (_SEED ^ size) & _U32
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * _M & _U32
        word = (word ^ word >> 24) * _M & _U32
        value = (value * _M & _U32) ^ word
    if size > whole:
        value = (value ^ int.from_bytes(key[whole:], "little")) * _M & _U32
    value = (value ^ value >> 13) * _M & _U32
    return value ^ value >> 15


def murmur2_many(keys: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The murmur2 of each row of an (n, length) array of bytes: many keys of one length at once."""
    import numpy as np

    if keys.ndim != 2 or keys.dtype != np.uint8:
        raise ValueError(f"keys are an (n, length) array of uint8, not {keys.ndim} dimensions of {keys.dtype}")
    count, size = keys.shape
    whole = size & ~3
    multiplier = np.uint32(_M)
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4").astype(np.uint32).reshape(count, whole // 4)
    values = np.full(count, (_SEED ^ size) & _U32, dtype=np.uint32)
    for word in words.T:
        mixed = word * multiplier
        mixed = (mixed ^ mixed >> np.uint32(24)) * multiplier
        values = values * multiplier ^ mixed
    if size > whole:
        for place in range(size - whole):
            values = values ^ keys[:, whole + place].astype(np.uint32) << np.uint32(8 * place)
        values = values * multiplier
    values = (values ^ values >> np.uint32(13)) * multiplier
    hashes: NDArray[np.uint32] = values ^ values >> np.uint32(15)
    return hashes


def crc32(key: bytes) -> int:
    """The CRC-32 of the bytes, as librdkafka's `consistent` takes it."""
    return zlib.crc32(key)


def fnv1a(key: bytes) -> int:
    """The 32-bit FNV-1a of the bytes, unsigned."""
    value = 0x811C9DC5
    for byte in key:
        value = (value ^ byte) * 0x01000193 & _U32
    return value


_U32 = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def _as_java(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def _as_librdkafka(key: bytes, partitions: int) -> int:
    return crc32(key) % partitions


def _as_sarama(key: bytes, partitions: int) -> int:
    value = fnv1a(key)
    signed = value - (1 << 32) if value >> 31 else value
    return abs(signed) % partitions  # Go's remainder keeps the sign, and Sarama negates what is below zero


_PLACE: Mapping[Partitioner, Callable[[bytes, int], int]] = {
    Partitioner.MURMUR2: _as_java,
    Partitioner.CRC32: _as_librdkafka,
    Partitioner.FNV1A: _as_sarama,
}
