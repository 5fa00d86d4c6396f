"""Whenever a record on the request topic asks: the record is a wake-up, and the control store holds the request."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.providers.apache.kafka.triggers.shared_stream import KafkaSharedStreamTrigger
from airflow.sdk import (
    Asset,
    AssetOrTimeSchedule,
    AssetWatcher,
    CronTriggerTimetable,
    dag,
    get_current_context,
    task,
    task_group,
)
from airflow.sdk.exceptions import AirflowSkipException

from reconcile.airflow.group import DEFAULTS, reconciliation
from reconcile.pipeline.requests import AIRFLOW_CONNECTION, TOPIC

REQUESTS = Asset(
    "reconcile_requests",
    watchers=[
        AssetWatcher(
            name="request_topic",
            trigger=KafkaSharedStreamTrigger(topics=[TOPIC], kafka_config_id=AIRFLOW_CONNECTION),
        )
    ],
)
# The clock finds what no wake-up came through for: a request that was kept is run, sooner or later.
SCHEDULE = AssetOrTimeSchedule(timetable=CronTriggerTimetable("*/5 * * * *", timezone="UTC"), assets=[REQUESTS])


@dag(
    dag_id="on_request",
    schedule=SCHEDULE,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1000,  # one that waits for an approval holds up no other; the pool and the leases limit Spark
    default_args=DEFAULTS,
    tags=["reconcile"],
    doc_md=__doc__,
)
def on_request() -> None:
    """Run every request that waits, each once."""
    answer.expand(scheduled_run=requests())


@task
def requests() -> list[dict[str, Any]]:
    """Keep what is in the topic, and claim what waits."""
    from reconcile.airflow import claims

    run = get_current_context()["dag_run"]
    return [each.data() for each in claims.claim(run.dag_id, run.run_id)]


@task_group
def answer(scheduled_run: Any) -> None:
    """Run one request, and record that it is done."""
    reconciliation(scheduled_run) >> finish(scheduled_run).as_teardown()


@task
def finish(scheduled_run: dict[str, Any]) -> None:
    """Record which run answered a request, if it was answered."""
    from reconcile.airflow import claims
    from reconcile.airflow.scheduled_run import ScheduledRun

    if not claims.finish(ScheduledRun.of(scheduled_run)):
        raise AirflowSkipException("the run failed: the request is kept for this run, and is done once it is cleared")


on_request()
