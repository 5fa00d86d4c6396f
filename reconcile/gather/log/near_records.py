"""Records of a history whose files are on this machine, read into this process: those of few aggregates, or few.

Spark reads a column of hashes as fast, but takes a job for it, and decodes all other columns before it chooses.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from reconcile.gather.log import history_columns as c
from reconcile.workspace.filesystem import LocalFileSystem

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from reconcile.gather.log.store import Home

_AT_ONCE = 65_536
_MOST_BYTES = 128 * 1024 * 1024
"""So much of what is found is kept in memory."""


def are_near(home: Home) -> bool:
    """Tell whether a history's files are on this machine."""
    return isinstance(home.files, LocalFileSystem)


def read(home: Home, segments: Iterable[str], schema: pa.Schema, ids: pa.Array | None = None) -> pa.Table | None:
    """Read the stored columns of a schema, of the records of some ids or of all.

    None where the files are elsewhere or not to be read, or where that would be more than is kept in memory.
    """
    if ids is not None and not len(ids):
        return schema.empty_table()
    return tables(home, map(home.path, segments), schema, None if ids is None else _Wanted(ids))


def tables(home: Home, folders: Iterable[str], schema: pa.Schema, wanted: _Wanted | None = None) -> pa.Table | None:
    """Read the files of folders likewise."""
    import pyarrow as pa

    if not are_near(home):
        return None
    with suppress(OSError, pa.ArrowException):  # Spark says what is wrong with them
        files = _files(home, folders)
        found = [schema.empty_table()]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for table in pool.map(lambda file: _table(file, schema, wanted), files):
                if table is None or table.nbytes + sum(each.nbytes for each in found) > _MOST_BYTES:
                    pool.shutdown(cancel_futures=True)
                    return None
                found.append(table)
        return pa.concat_tables(found)
    return None


def some_ids(home: Home, segments: Sequence[str], most: int) -> list[str] | None:
    """Read ids of all files alike, about so many; None where the files are elsewhere or not to be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    if not are_near(home):
        return None
    with suppress(OSError, pa.ArrowException):
        files = _files(home, map(home.path, segments))
        found: set[str] = set()
        for file in files:
            with pq.ParquetFile(file) as parquet:
                batch = next(parquet.iter_batches(batch_size=most // len(files) + 1, columns=[c.ID]), None)
                found.update(() if batch is None else batch.column(0).drop_null().to_pylist())
        return sorted(found)
    return None


def _files(home: Home, folders: Iterable[str]) -> list[str]:
    listed = [f"{folder}/{each.name}" for folder in folders for each in home.files.list(folder)]
    return [file for file in listed if file.endswith(".parquet")]


class _Wanted:
    """The ids that are looked for."""

    def __init__(self, ids: pa.Array) -> None:
        import pyarrow as pa

        from reconcile.workspace import row_hashes

        self._ids = ids
        self._hashes = pa.array(row_hashes.of_texts(ids))

    def hashed(self, batch: pa.RecordBatch) -> pa.Array:
        """Tell which records may be theirs, by the hash of the id."""
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        return pc.is_in(batch.column(c.ID_HASH), self._hashes)

    def of(self, batch: pa.RecordBatch, hashed: pa.Array) -> pa.RecordBatch:
        """Choose the records that are theirs."""
        import pyarrow.compute as pc

        near = batch.filter(hashed)
        return near.filter(pc.is_in(near.column(c.ID), self._ids))


def _table(file: str, schema: pa.Schema, wanted: _Wanted | None) -> pa.Table | None:
    """Read what is wanted of a file; None where that is too much."""
    import pyarrow as pa

    found, size = [], 0
    for batch in _chosen(file, schema.names, wanted):
        size += batch.nbytes
        if size > _MOST_BYTES:
            return None
        found.append(batch)
    return pa.Table.from_batches(found).cast(schema) if found else schema.empty_table()


def _chosen(file: str, columns: Sequence[str], wanted: _Wanted | None) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        for group in range(parquet.num_row_groups):
            reading = {"batch_size": _AT_ONCE, "row_groups": [group], "use_threads": False}
            masks = None
            if wanted is not None:
                masks = [wanted.hashed(each) for each in parquet.iter_batches(columns=[c.ID_HASH], **reading)]
                if not any(mask.true_count for mask in masks):
                    continue
            for number, batch in enumerate(parquet.iter_batches(columns=columns, **reading)):
                yield batch if wanted is None or masks is None else wanted.of(batch, masks[number])
