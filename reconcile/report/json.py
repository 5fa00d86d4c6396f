"""The report as one JSON object."""

from __future__ import annotations

from typing import Any

from reconcile.domain.finding import SCHEMA_VERSION
from reconcile.report.model import Report
from reconcile.workspace import handoff


def report_data(report: Report) -> dict[str, Any]:
    """Build the object; its findings are those of JSON lines."""
    data = handoff.to_data(report)
    for each in data["shown"]:
        each["finding"] = {"schema_version": SCHEMA_VERSION, "run_id": report.run_id, **each["finding"]}
    return {"schema_version": SCHEMA_VERSION, **data}
