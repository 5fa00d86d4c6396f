"""Findings as CSV: which, why and since when, and no values of fields."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

COLUMNS = ("link", "aggregate_id", "difference", "status", "cause", "confidence", "hop", "fields", "since")

_AT_ONCE = 1000


def csv_of(findings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Give findings as the text of a CSV file, some lines at a time."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number, each in enumerate(findings, 1):
        writer.writerow([_safe(cell) for cell in _cells(each)])
        if number % _AT_ONCE == 0:
            yield _taken(text)
    yield _taken(text)


def _taken(text: io.StringIO) -> str:
    taken = text.getvalue()
    text.seek(0)
    text.truncate()
    return taken


def _cells(finding: Mapping[str, Any]) -> Iterator[str]:
    for name in COLUMNS:
        value = finding[name]
        yield " ".join(field["name"] for field in value) if name == "fields" else "" if value is None else str(value)


def _safe(cell: str) -> str:
    """Keep a spreadsheet from taking a cell for a formula."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell
