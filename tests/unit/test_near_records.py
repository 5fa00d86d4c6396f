"""Records of a history that are read from near files into this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyarrow import parquet

from reconcile.gather.log import near_records
from reconcile.gather.log.store import Home
from reconcile.workspace import row_hashes
from reconcile.workspace.filesystem import LocalFileSystem

SCHEMA = pa.schema([("id", pa.string()), ("offset", pa.int64())])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A history of two segments, one of them in two files."""
    found = Home(LocalFileSystem(), str(tmp_path))
    for name, begin, ids in (("one/a", 0, ["x", None]), ("one/b", 2, ["y"]), ("two/a", 3, ["x", "z"])):
        file = tmp_path / "segments" / f"{name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        texts, places = pa.array(ids, pa.string()), pa.array(range(begin, begin + len(ids)), pa.int64())
        hashes = pa.array(row_hashes.of_texts(texts))
        parquet.write_table(pa.table({"id": texts, "id_hash": hashes, "offset": places}), file)
    return found


def offsets(found: Any) -> list[int]:
    """The offsets of the records that were read."""
    assert found is not None
    assert SCHEMA == found.schema
    return sorted(found["offset"].to_pylist())


def test_records_of_ids_and_of_segments_are_read(home: Home) -> None:
    """Those of some ids, of all, and of none."""
    assert [0, 3] == offsets(near_records.read(home, ["one", "two"], SCHEMA, pa.array(["x", "nobody"])))
    assert [0, 1, 2] == offsets(near_records.read(home, ["one"], SCHEMA))
    assert [] == offsets(near_records.read(home, ["one"], SCHEMA, pa.array([], pa.string())))
    assert [] == offsets(near_records.read(home, [], SCHEMA))


def test_some_ids_are_of_all_files(home: Home) -> None:
    """As many of each file, so that a large one is not all that is looked at."""
    assert ["x", "y"] == near_records.some_ids(home, ["one", "two"], 2)
    assert ["x", "y", "z"] == near_records.some_ids(home, ["one", "two"], 100)
    assert [] == near_records.some_ids(home, [], 100)
    assert near_records.some_ids(home, ["gone"], 100) is None


def test_ids_of_one_hash_are_told_apart(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash only says where to look."""
    hashes = row_hashes.of_texts(pa.array(["x", "z"]))
    monkeypatch.setattr(row_hashes, "of_texts", lambda _: hashes)
    assert [4] == offsets(near_records.read(home, ["one", "two"], SCHEMA, pa.array(["z"])))


@pytest.mark.parametrize("segments", [["one"], ["one", "gone"]])
def test_too_much_or_what_is_gone_is_left_to_spark(
    home: Home, monkeypatch: pytest.MonkeyPatch, segments: list[str]
) -> None:
    """None of it is kept in memory then, and Spark says what is wrong with the files."""
    if segments == ["one"]:
        monkeypatch.setattr(near_records, "_MOST_BYTES", 10)
    assert near_records.read(home, segments, SCHEMA) is None
