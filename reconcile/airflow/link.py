"""The link from a task to the report of its run."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.configuration import conf

PREFIX = "/reconcile"
"""Where Airflow serves the web app, below the path of its own."""


def address(path: str) -> str:
    """Build the path of a page of the web app, as a browser requests it."""
    ours: str = conf.get("api", "base_url", fallback="") or ""
    return urlsplit(ours).path.rstrip("/") + PREFIX + path


class ReportLink(BaseOperatorLink):
    """Leads from a task to the report of the run that it works on."""

    name = "Reconciliation report"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002
        """Build the address; empty as long as the task does not know its run."""
        scheduled_run = getattr(operator, "scheduled_run", None)
        return address(f"/runs/{quote(scheduled_run['run_id'])}") if isinstance(scheduled_run, dict) else ""
