"""The hash of rows, held against the algorithm as its author describes it, byte by byte."""

from __future__ import annotations

import random

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.workspace import row_hashes

ONE, TWO, THREE, FOUR, FIVE = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
ALL = (1 << 64) - 1


def rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & ALL


def xxhash64(data: bytes, seed: int) -> int:
    """Hash bytes, one word after the other."""

    def mixed(lane: int, word: int) -> int:
        return rotated((lane + word * TWO) & ALL, 31) * ONE & ALL

    at = 0
    found = (seed + FIVE) & ALL
    if len(data) >= 32:
        lanes = [(seed + each) & ALL for each in (ONE + TWO, TWO, 0, -ONE)]
        while at + 32 <= len(data):
            words = [int.from_bytes(data[at + 8 * lane : at + 8 * lane + 8], "little") for lane in range(4)]
            lanes = [mixed(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        found = sum(rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & ALL
        for lane in lanes:
            found = ((found ^ mixed(0, lane)) * ONE + FOUR) & ALL
    found = (found + len(data)) & ALL
    while at + 8 <= len(data):
        found = (rotated(found ^ mixed(0, int.from_bytes(data[at : at + 8], "little")), 27) * ONE + FOUR) & ALL
        at += 8
    if at + 4 <= len(data):
        found = (rotated(found ^ int.from_bytes(data[at : at + 4], "little") * ONE & ALL, 23) * TWO + THREE) & ALL
        at += 4
    for byte in data[at:]:
        found = rotated(found ^ byte * FIVE & ALL, 11) * ONE & ALL
    found = (found ^ found >> 33) * TWO & ALL
    found = (found ^ found >> 29) * THREE & ALL
    return found ^ found >> 32


def hashed(row: tuple[str | None, ...]) -> int:
    """Hash a row as Spark does: of each column the text, and whether there is none as four bytes."""
    seed = 42
    for text in row:
        seed = seed if text is None else xxhash64(text.encode(), seed)
        seed = xxhash64((text is None).to_bytes(4, "little"), seed)
    return seed


def table(rows: list[tuple[str | None, ...]]) -> pa.Table:
    return pa.table([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], names=["a", "b"])


def test_the_description_is_right() -> None:
    """Values that its author publishes."""
    assert [0xEF46DB3751D8E999, 0x44BC2CF5AD770999] == [xxhash64(each, 0) for each in (b"", b"abc")]


@given(st.lists(st.tuples(*[st.none() | st.text(max_size=80)] * 2), min_size=1, max_size=40))
def test_each_row_is_hashed_as_described(rows: list[tuple[str | None, ...]]) -> None:
    """NULL is told from the empty text."""
    (batch,) = table(rows).to_batches()
    assert [hashed(row) for row in rows] == row_hashes.row_hashes(batch.columns, len(rows)).tolist()


@pytest.mark.parametrize("longest", [0, 3, 40, 300])
def test_the_sums_are_those_of_both_halves(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of slices, too, and of more rows than are hashed together."""
    monkeypatch.setattr(row_hashes, "_AT_ONCE", 7)
    chosen = random.Random(longest)  # noqa: S311
    rows = [
        tuple(None if chosen.random() < 0.1 else "é" * chosen.randint(0, longest // 2) for _ in range(2))
        for _ in range(100)
    ]
    signed = [number - (number >> 63 << 64) for number in map(hashed, rows[10:])]
    low = [((number & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000 for number in signed]
    assert (sum(number >> 32 for number in signed), sum(low)) == row_hashes.sums(table(rows).slice(10))


def test_a_long_text_is_hashed_beside_short_ones() -> None:
    """Longer than what is counted in two bytes."""
    rows: list[tuple[str | None, ...]] = [("x" * 70_001, "a"), ("", "b" * 33), ("y", None)]
    (batch,) = table(rows).to_batches()
    assert [hashed(row) for row in rows] == row_hashes.row_hashes(batch.columns, 3).tolist()
