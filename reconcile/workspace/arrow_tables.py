"""Tables of text that pyarrow writes, beside Spark: with the schema, the row count and the digest that Spark's have."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pydantic import JsonValue

from reconcile.workspace import row_hashes
from reconcile.workspace.artifact import ArtifactContent

TextReader = Callable[[Callable[[pa.Table], None]], None]
"""Reads rows, and calls what it is given with each table of them."""


def write(folder: Path, columns: Sequence[str], readers: Sequence[TextReader]) -> ArtifactContent:
    """Write what readers read into a folder, each in a thread of its own and into a file of its own."""
    schema = pa.schema([(name, pa.string()) for name in columns])
    files = [_TextFile(folder / f"part-{number:05}.parquet", schema) for number in range(len(readers))]

    def written(file: _TextFile, read: TextReader) -> None:
        with closing(file):
            read(file.write)

    with ThreadPoolExecutor(max(len(readers), 1)) as pool:
        list(pool.map(written, files, readers))
    rows, high, low = (sum(counts) for counts in zip((0, 0, 0), *(each.counts for each in files), strict=True))
    described = repr(([f"{name} string" for name in columns], rows, high, low))
    fields: list[JsonValue] = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in columns]
    digest = hashlib.sha256(described.encode()).hexdigest()
    return ArtifactContent("parquet", rows, digest, {"type": "struct", "fields": fields})


class _TextFile:
    """A Parquet file, which appears with its first rows."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.counts = (0, 0, 0)
        """Rows, and the sums of both halves of their hashes."""
        self._path = path
        self._schema = schema
        self._writer: Any = None

    def write(self, table: pa.Table) -> None:
        """Write rows, counted and digested as they are written."""
        rows, high, low = self.counts
        more_high, more_low = row_hashes.sums(table)
        self.counts = rows + table.num_rows, high + more_high, low + more_low
        if self._writer is None:
            # Most texts stand once: a dictionary of them would only take time.
            self._writer = pq.ParquetWriter(self._path, self._schema, use_dictionary=False)
        self._writer.write_table(table)

    def close(self) -> None:
        """End the file, if there is one."""
        if self._writer is not None:
            self._writer.close()
