"""Spark's `xxhash64` of rows whose columns are all text, computed by numpy: each operation for many rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

_ONE, _TWO, _THREE, _FOUR, _FIVE = map(
    np.uint64, (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_SEED = np.uint64(42)
_AT_ONCE = 16_384
"""How many rows are hashed together: enough to keep threads from waiting for each other at each operation."""


def sums(table: pa.Table) -> tuple[int, int]:
    """Compute the sums of both halves of the rows' hashes, as `table_digest.observed` has them of the same rows."""
    high = low = 0
    for batch in table.to_batches(max_chunksize=_AT_ONCE):
        hashes = row_hashes(batch.columns, batch.num_rows).view(np.int64)
        high += int((hashes >> 32).sum())
        low += int(((hashes << 32) >> 32).sum())
    return high, low


def of_texts(texts: pa.Array) -> Any:
    """Compute the hash of each text, as 64 bits with a sign; of NULL it is the seed."""
    hashes = np.full(len(texts), _SEED)
    _add_texts(hashes, texts)
    return hashes.view(np.int64)


def row_hashes(columns: Sequence[pa.Array], rows: int) -> Any:
    """Compute the hash of each row: of each column, and of whether it is NULL."""
    hashes = np.full(rows, _SEED)
    for column in columns:
        _add_texts(hashes, column)
        _add_nulls(hashes, column)
    return hashes


def _add_texts(hashes: Any, column: pa.Array) -> None:
    if column.null_count == len(column):
        return
    _, offsets, content = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    # With eight bytes more, so that a word may be read at each of them.
    data = np.zeros(int(bounds[-1] - bounds[0]) + 8, np.uint8)
    if content is not None:
        data[:-8] = np.frombuffer(content, np.uint8)[bounds[0] : bounds[-1]]
    starts, lengths = bounds[:-1] - bounds[0], np.diff(bounds)
    if not column.null_count:
        hashes[:] = _texts(hashes, starts, lengths, data)
        return
    there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    hashes[there] = _texts(hashes[there], starts[there], lengths[there], data)


def _add_nulls(hashes: Any, column: pa.Array) -> None:
    """Hash a whole number of four bytes: 1 where the column is NULL, else 0."""
    hashes += _FIVE + np.uint64(4)
    if column.null_count:
        hashes ^= column.is_null().to_numpy(zero_copy_only=False) * _ONE
    _rotate(hashes, 23)
    hashes *= _TWO
    hashes += _THREE
    _mix(hashes)


def _texts(seeds: Any, starts: Any, lengths: Any, data: Any) -> Any:
    """Hash texts, each with a seed of its own; the bytes of text `i` are at `starts[i]`."""
    hashes = seeds + _FIVE
    long = np.flatnonzero(lengths >= 32)
    starts, left = starts.copy(), lengths.copy()
    if len(long):
        hashes[long] = _stripes(seeds[long], starts[long], lengths[long], data)
        read = lengths[long] & ~31
        starts[long] += read
        left[long] -= read
    hashes += lengths.astype(np.uint64)
    order = _longest_first(left)
    hashes, starts, left = hashes[order], starts[order], left[order]
    words = _words(data)
    for at in range(0, int(left[0]) & ~7, 8):
        some = hashes[: _count(left, at + 8)]
        word = words[starts[: len(some)] + at]
        word *= _TWO
        _rotate(word, 31)
        word *= _ONE
        some ^= word
        _rotate(some, 27)
        some *= _ONE
        some += _FOUR
    _add_rest(hashes, words[starts + (left & ~7)], left & 7)
    _mix(hashes)
    return _restored(hashes, order)


def _stripes(seeds: Any, starts: Any, lengths: Any, data: Any) -> Any:
    """Hash what texts of 32 bytes and more have of whole stripes of 32 bytes."""
    order = _longest_first(lengths)
    starts, lengths = starts[order], lengths[order]
    words = _words(data)
    with np.errstate(over="ignore"):
        lanes = [seeds[order] + each for each in (_ONE + _TWO, _TWO, np.uint64(0), np.uint64(0) - _ONE)]
    for at in range(0, int(lengths[0]) & ~31, 32):
        count = _count(lengths, at + 32)
        for number, lane in enumerate(lanes):
            word = words[starts[:count] + (at + 8 * number)]
            word *= _TWO
            some = lane[:count]
            some += word
            _rotate(some, 31)
            some *= _ONE
    hashes = np.zeros_like(lanes[0])
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        turned = lane.copy()
        _rotate(turned, bits)
        hashes += turned
    for lane in lanes:
        lane *= _TWO
        _rotate(lane, 31)
        lane *= _ONE
        hashes ^= lane
        hashes *= _ONE
        hashes += _FOUR
    return _restored(hashes, order)


def _add_rest(hashes: Any, words: Any, left: Any) -> None:
    """Hash the last bytes of texts, `left` of each, less than eight: the first ones of its word."""
    some = left >= 4
    if some.any():
        word = words & np.uint64(0xFFFFFFFF)
        word *= _ONE
        word ^= hashes
        _rotate(word, 23)
        word *= _TWO
        word += _THREE
        hashes[:] = np.where(some, word, hashes)
        words >>= (left & 4).astype(np.uint64) << np.uint64(3)
        left = left & 3
    for at in range(3):
        some = left > at
        if not some.any():
            return
        word = words & np.uint64(0xFF)
        words >>= np.uint64(8)
        word *= _FIVE
        word ^= hashes
        _rotate(word, 11)
        word *= _ONE
        hashes[:] = np.where(some, word, hashes)


def _longest_first(lengths: Any) -> Any:
    """Choose an order in which texts that have a further word stand before those that have none."""
    least, most = lengths.min(), lengths.max()
    if least == most:
        return slice(None)
    return np.argsort(lengths.astype(np.uint16) if most < 1 << 16 else lengths, kind="stable")[::-1]


def _restored(hashes: Any, order: Any) -> Any:
    found = np.empty_like(hashes)
    found[order] = hashes
    return found


def _count(lengths: Any, least: int) -> int:
    """Count the lengths that are `least` or more, where the longest are first."""
    return int(np.searchsorted(-lengths, -least, side="right"))


def _words(data: Any) -> Any:
    """View bytes as whole numbers of eight that begin at each of them."""
    return np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))


def _rotate(numbers: Any, bits: int) -> None:
    low = numbers >> np.uint64(64 - bits)
    numbers <<= np.uint64(bits)
    numbers |= low


def _mix(hashes: Any) -> None:
    hashes ^= hashes >> np.uint64(33)
    hashes *= _TWO
    hashes ^= hashes >> np.uint64(29)
    hashes *= _THREE
    hashes ^= hashes >> np.uint64(32)
