"""The report as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from reconcile.domain import finding
from reconcile.report.model import Report


def report_data(report: Report) -> dict[str, Any]:
    """Build the object; its findings are those of JSON lines."""
    return {"schema_version": finding.SCHEMA_VERSION, **_plain(report, report.run_id)}


def _plain(value: Any, run_id: str) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, tuple):
        return [_plain(each, run_id) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, finding.Finding):
        return finding.to_data(value, run_id)
    named = value if isinstance(value, Mapping) else vars(value)
    return {name: _plain(each, run_id) for name, each in named.items()}
