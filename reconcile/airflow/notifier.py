"""Alerts: to the task's log, and to a webhook where Airflow has a connection for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any
from urllib.error import URLError

from airflow.sdk import BaseNotifier, Connection, Context
from airflow.sdk.exceptions import AirflowNotFoundException

from reconcile.settings.references import from_airflow

CONNECTION = "reconcile_alerts"
"""An HTTP connection; its password, if it has one, is sent as a bearer token."""

_SECONDS = 10
_LONGEST = 1000
_LINES = 10


class AlertNotifier(BaseNotifier):
    """Sends alerts; made without any, it reports the failure of the task that it is called for."""

    def __init__(self, alerts: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__()
        self.alerts = tuple(alerts)

    def notify(self, context: Context) -> None:
        """Log the alerts and send them; one that cannot be sent is in the log all the same."""
        message = message_of(self.alerts, context)
        for each in message["alerts"]:
            self.log.warning("%s: %s", each["kind"], each["message"])
        try:
            _send(message)
        except (URLError, OSError) as error:
            self.log.error("the alert could not be sent to the connection %s: %s", CONNECTION, type(error).__name__)


def tell(figures: Mapping[str, Any], notifiers: Sequence[BaseNotifier], context: Context) -> None:
    """Send the alerts of a run as one incident: to the log and the webhook, and to other notifiers.

    Theirs are templates, in which `incident` is what incident_of builds.
    """
    if not figures["alerts"]:
        return
    AlertNotifier(figures["alerts"])(context)
    incident = incident_of(figures)
    for each in notifiers:
        try:
            copy(each)({**context, "incident": incident})
        except Exception as error:  # noqa: BLE001 - whatever a notifier raises, the run has ended as it has
            logging.getLogger(__name__).error(
                "%s did not take the alert: %s", type(each).__name__, type(error).__name__
            )


def incident_of(figures: Mapping[str, Any]) -> dict[str, str]:
    """Build one incident out of a run's alerts: its `key` is the same each night, so that a pager groups them."""
    kinds = dict.fromkeys(each["kind"] for each in figures["alerts"])
    lines = [each["message"] for each in figures["alerts"]]
    more = [f"and {len(lines) - _LINES} more"] if len(lines) > _LINES else []
    return {
        "key": f"reconcile/{figures['contract']}",
        "title": f"{figures['contract']}: {figures['verdict']}"[:_LONGEST],
        "text": "\n".join([*lines[:_LINES], *more])[:_LONGEST],
        "severity": "warning" if set(kinds) == {"drift"} else "error",
        "kinds": ", ".join(kinds),
        "run_id": figures["run_id"],
    }


def message_of(alerts: Sequence[Mapping[str, str]], context: Mapping[str, Any]) -> dict[str, Any]:
    """Build the message: where it happened, and what."""
    task = context["ti"]
    failure = {"kind": "failed", "message": str(context.get("exception") or "the task failed")[:_LONGEST]}
    return {
        "dag": task.dag_id,
        "dag_run": task.run_id,
        "task": task.task_id,
        "map_index": task.map_index,
        "alerts": [dict(each) for each in alerts] or [failure],
    }


def _send(message: Mapping[str, Any]) -> None:
    try:
        connection = Connection.get(CONNECTION)
    except AirflowNotFoundException:
        return
    url = from_airflow(connection, "url") or ""
    if not url.startswith(("http://", "https://")):
        raise URLError("not an HTTP connection")
    from reconcile.consumer.webhook import post

    token = {"Authorization": f"Bearer {connection.password}"} if connection.password else {}
    post(url, message, _SECONDS, token)
