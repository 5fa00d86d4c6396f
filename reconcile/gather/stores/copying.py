"""What Postgres sends by COPY, as Arrow tables: the fastest way in which a client gets its rows."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.csv as pc  # type: ignore[import-untyped]

from reconcile.gather.stores.session import StoreSession

_BLOCK = 8 << 20
"""About how many bytes are parsed at a time."""
_DELIMITER = "\x1f"
# NULL is nothing and the empty text is `""`. What begins each row is quoted, for Arrow takes a byte order mark away.
_OPTIONS = "format csv, delimiter E'\\x1f', force_quote ({first})"


def copy(session: StoreSession, statement: str, columns: Sequence[str], take: Callable[[pa.Table], None]) -> None:
    """Read the rows of a statement whose columns are all text; call `take` with some thousands of them at a time."""

    def parsed(rows: bytes) -> None:
        table = _table(rows, columns)
        session.usage.add(rows=table.num_rows, size=len(rows))
        take(table)

    lines = _Lines(parsed)
    try:
        options = _OPTIONS.format(first=columns[0])
        session.copy(f"copy (\n{statement}\n) to stdout ({options})", io.BufferedWriter(lines, _BLOCK))
    except BaseException:
        lines.take = lambda _: None  # for what the buffer still holds when it is thrown away
        raise


class _Lines(io.RawIOBase):
    """A file that hands on what is written to it, in whole lines of CSV."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self.take = take
        self._kept = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._kept += bytes(data)
        # Within a value that holds a line break, an odd number of quotes has come.
        if self._kept.endswith(b"\n") and self._kept.count(b'"') % 2 == 0:
            rows, self._kept = self._kept, b""
            self.take(rows)
        return len(data)


def _table(rows: bytes, columns: Sequence[str]) -> pa.Table:
    return pc.read_csv(
        pa.BufferReader(rows),
        pc.ReadOptions(column_names=list(columns), use_threads=False, block_size=len(rows) + 1),
        pc.ParseOptions(delimiter=_DELIMITER, newlines_in_values=True, ignore_empty_lines=False),
        pc.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(columns, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
