"""Findings as CSV: which, why and since when, and no values of fields."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator

from reconcile.domain.finding import Finding, time_text

COLUMNS = ("link", "aggregate_id", "difference", "status", "cause", "confidence", "hop", "fields", "since")

_AT_ONCE = 1000


def csv_of(findings: Iterable[Finding]) -> Iterator[str]:
    """Render findings as the text of a CSV file, some lines at a time."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number, each in enumerate(findings, 1):
        kind = (each.difference, each.status, each.cause, each.confidence, each.hop)
        fields = " ".join(field.name for field in each.fields)
        since = None if each.since is None else time_text(each.since)
        writer.writerow([_safe(each.link), _safe(each.aggregate_id), *kind, _safe(fields), since])
        if number % _AT_ONCE == 0:
            yield text.getvalue()
            text.seek(0)
            text.truncate()
    yield text.getvalue()


def _safe(cell: str | None) -> str | None:
    """Keep a spreadsheet from taking a cell for a formula."""
    return f"'{cell}" if cell and cell[0] in "=+-@\t\r" else cell
