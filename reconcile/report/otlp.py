"""A run's figures as OpenTelemetry's metrics: the JSON of OTLP/HTTP, with the names that Prometheus gets."""

from __future__ import annotations

from typing import Any

from reconcile import __version__
from reconcile.report.model import Report
from reconcile.report.prometheus import Gauge, gauges


def otlp(report: Report) -> dict[str, Any]:
    """Build the request for a collector; all points are of the instant at which the run compared."""
    at = str(int(report.closed_at.timestamp() * 1_000_000_000))
    resource = _attributes({"service.name": "reconcile", "service.version": __version__})
    metrics = [_metric(each, at) for each in gauges(report)]
    scope = {"scope": {"name": "reconcile", "version": __version__}, "metrics": metrics}
    return {"resourceMetrics": [{"resource": {"attributes": resource}, "scopeMetrics": [scope]}]}


def _metric(gauge: Gauge, at: str) -> dict[str, Any]:
    points = [
        {
            "attributes": _attributes(labels),
            "timeUnixNano": at,
            **({"asInt": str(value)} if isinstance(value, int) else {"asDouble": value}),
        }
        for labels, value in gauge.samples
    ]
    return {"name": gauge.name, "description": gauge.about, "gauge": {"dataPoints": points}}


def _attributes(labels: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels.items()]
