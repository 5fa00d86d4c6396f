"""Findings as CSV: which, why and since when, and no values of fields."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from reconcile.domain.finding import time_text

COLUMNS = ("link", "aggregate_id", "difference", "status", "cause", "confidence", "hop", "fields", "since")

_AT_ONCE = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def csv_of(findings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Give findings as the text of a CSV file, some lines at a time."""
    return _written([*(each[name] for name in COLUMNS[:-2]), _names(each), each["since"]] for each in findings)


def csv_of_rows(rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Render the columns COLUMNS of findings, as they are kept, as the text of a CSV file."""
    return _written([*row[:-2], " ".join(row[-2] or ()), _instant(row[-1])] for row in rows)


def _written(rows: Iterable[Sequence[str | None]]) -> Iterator[str]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number, (link, aggregate_id, *ours, fields, since) in enumerate(rows, 1):
        writer.writerow([_safe(link), _safe(aggregate_id), *ours, _safe(fields), since])
        if number % _AT_ONCE == 0:
            yield _taken(text)
    yield _taken(text)


def _taken(text: io.StringIO) -> str:
    taken = text.getvalue()
    text.seek(0)
    text.truncate()
    return taken


def _names(finding: Mapping[str, Any]) -> str:
    return " ".join(field["name"] for field in finding["fields"])


def _instant(micros: int | None) -> str | None:
    return None if micros is None else time_text(_EPOCH + timedelta(microseconds=micros))


def _safe(cell: str | None) -> str | None:
    """Keep a spreadsheet from taking a cell for a formula."""
    return f"'{cell}" if cell and cell[0] in "=+-@\t\r" else cell
