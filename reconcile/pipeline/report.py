"""The stage `report`: what a run found, for people and for machines, beside its artifacts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from http.client import HTTPException

from reconcile.consumer.webhook import post, reason_of
from reconcile.contract.model import Contract
from reconcile.errors import SecretError
from reconcile.pipeline import datahub, tables
from reconcile.pipeline.handoffs import Gathered, Summary, results_of, snapshots
from reconcile.pipeline.result import report_of
from reconcile.report.csv import csv_of
from reconcile.report.html import report_html
from reconcile.report.json import report_data
from reconcile.report.model import Report
from reconcile.report.otlp import otlp
from reconcile.report.prometheus import prometheus
from reconcile.settings.settings import Settings
from reconcile.workspace.run import Run
from reconcile.workspace.workspace import Workspace

_LOG = logging.getLogger(__name__)
_TO_ANSWER = 10.0

HTML, CSV, JSON, PROMETHEUS = "report.html", "findings.csv", "report.json", "metrics.prom"
FORMATS = {"html": HTML, "csv": CSV, "json": JSON, "prometheus": PROMETHEUS}
"""The name of the file of each format."""


def publish(run: Run, place: Workspace, settings: Settings, contract: Contract | None) -> Report:
    """Write every rendering into the run's folder, each file whole or not at all; those that exist are replaced.

    The rows that the run compared are dropped then, unless the settings keep them.
    """
    report = report_of(run, place, settings, contract)
    for form, name in FORMATS.items():
        run.write_file(name, map(_writable, rendered(form, report, run, place, CSV)))
    if settings.keep != "snapshots":
        _drop_snapshots(run)
    _send_metrics(report, settings)
    datahub.tell(report, results_of(run), settings, contract)
    return report


def _send_metrics(report: Report, settings: Settings) -> None:
    """Send the figures to the collector of the settings, if there is one; a run is what it is if it does not answer."""
    try:
        if (found := settings.metrics.resolve()) is not None:
            url, headers = found
            post(url, otlp(report), _TO_ANSWER, headers)
    except SecretError as error:
        _LOG.warning(f"the metrics of {report.run_id} were not sent: {error}")
    except (OSError, ValueError, HTTPException) as error:
        _LOG.warning(f"the metrics of {report.run_id} were not sent: {reason_of(error)}")


def _drop_snapshots(run: Run) -> None:
    """Remove the rows that a run compared, unless its audit has to be tried again: nothing else needs them."""
    if run.read(Summary).complete:
        for link in run.read(Gathered).links:
            for name in snapshots(link.consumer):
                run.remove(name)


def rendered(form: str, report: Report, run: Run, place: Workspace, csv: str | None = None) -> Iterator[str]:
    """Render a report in one of the formats, piece by piece; `csv` is the address of all findings, seen from it."""
    if form == "html":
        yield from report_html(report, csv)
    elif form == "csv":
        yield from csv_of(tables.findings(run, spark=place.spark))
    elif form == "json":
        yield json.dumps(report_data(report), ensure_ascii=False, allow_nan=False) + "\n"
    else:
        yield prometheus(report)


def _writable(text: str) -> str:
    """Replace what no file could hold: halves of characters, which JSON may name."""
    return text.encode("utf-8", "replace").decode()
