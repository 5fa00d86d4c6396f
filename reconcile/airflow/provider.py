"""What Airflow is told of this package where it lists providers; it imports neither Airflow nor Spark."""

from __future__ import annotations

from typing import Any

from reconcile import __version__


def get_provider_info() -> dict[str, Any]:
    """Build what Airflow shows under Providers."""
    return {
        "package-name": "reconcile-kafka",
        "name": "reconcile",
        "description": "Compares a source with its copies behind Kafka, says why they differ, and repairs them.",
        "versions": [__version__],
        "integrations": [{"integration-name": "reconcile", "external-doc-url": _DOCS, "tags": ["service"]}],
        "operators": [{"integration-name": "reconcile", "python-modules": ["reconcile.airflow.operators"]}],
        "notifications": ["reconcile.airflow.notifier.AlertNotifier"],
        "extra-links": ["reconcile.airflow.link.ReportLink"],
    }


_DOCS = "https://pypi.org/project/reconcile-kafka/"
