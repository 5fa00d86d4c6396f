"""The figures of a run as OpenTelemetry's metrics, and how they get to a collector."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from reconcile.errors import SecretError
from reconcile.pipeline import report as stage
from reconcile.pipeline.result import report_of
from reconcile.report.otlp import otlp
from reconcile.report.prometheus import prometheus
from reconcile.settings.settings import Settings
from tests.unit.report_runs import AT, finding, made_run
from tests.web_service import service


def written(folder: Path, **metrics: str) -> None:
    """Write the report of a run with drift, under settings with a collector."""
    place, run = made_run(folder, (finding(),))
    settings = Settings.model_validate({"workspace": place.root, "metrics": metrics}, context={"folder": folder})
    stage.publish(run, place, settings, None)


def test_each_figure_of_prometheus_is_one_of_otlp(tmp_path: Path) -> None:
    """By the same name, at the instant of the comparison; a whole number stays one."""
    place, run = made_run(tmp_path, (finding(),))
    report = report_of(run, place, Settings(workspace=place.root))
    (resource,) = otlp(report)["resourceMetrics"]
    metrics = {each["name"]: each["gauge"]["dataPoints"] for each in resource["scopeMetrics"][0]["metrics"]}
    named = {line.split()[2] for line in prometheus(report).splitlines() if line.startswith("# TYPE")}
    assert named == metrics.keys()
    assert [
        {
            "attributes": [{"key": "link", "value": {"stringValue": "user-account/login"}}],
            "timeUnixNano": str(int(AT.timestamp()) * 10**9),
            "asInt": "1",
        }
    ] == metrics["reconcile_drifted"]
    assert "asDouble" in metrics["reconcile_run_timestamp_seconds"][0]


def test_a_report_is_sent_to_the_collector(tmp_path: Path) -> None:
    """Once, after its files were written."""
    with service() as (url, posted):
        written(tmp_path, otlp=url)
    (body,) = posted
    assert ["resourceMetrics"] == list(body)


def test_headers_are_written_as_opentelemetry_has_them() -> None:
    """Pairs with escapes, which a reference leads to."""
    metrics = Settings.model_validate({"metrics": {"otlp": "https://c", "headers": "env:OTLP"}}).metrics
    assert ("https://c", {"api-key": "se cret", "other": "x"}) == metrics.resolve(
        {"OTLP": "api-key=se%20cret, other=x"}
    )


@pytest.mark.parametrize("headers", ["api-key=secret", "no pair", "a b=secret", "api-key=sec%0Aret"])
def test_a_collector_that_does_not_take_them_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, headers: str
) -> None:
    """It is logged, without what may be secret, and the report is there."""
    monkeypatch.setenv("OTLP", headers)
    with caplog.at_level(logging.WARNING):
        written(tmp_path, otlp="http://127.0.0.1:9/v1/metrics", headers="env:OTLP")
    assert "the metrics of r1 were not sent" in caplog.text
    assert "secret" not in caplog.text
    assert (tmp_path / "r1" / "report.html").exists()


def test_without_a_collector_nothing_is_asked_for() -> None:
    """Headers alone lead nowhere."""
    assert None is Settings().metrics.resolve()
    with pytest.raises(SecretError):
        Settings.model_validate({"metrics": {"otlp": "env:NOWHERE"}}).metrics.resolve({})
