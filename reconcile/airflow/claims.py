"""The requests that a run of a DAG takes on: kept first, claimed then, each by one run alone."""

from __future__ import annotations

import logging

from reconcile.airflow.installation import installation
from reconcile.airflow.scheduled_run import ScheduledRun, run_id_of
from reconcile.config.yamlfile import quoted
from reconcile.errors import ReconcileError, RefusedError
from reconcile.pipeline.requests import AIRFLOW_CONNECTION, drain

MOST = 20
"""How many requests one run of the DAG takes on; the next run takes the others."""

_log = logging.getLogger(__name__)


def claim(dag_id: str, dag_run_id: str) -> list[ScheduledRun]:
    """Claim requests for a run of the DAG. The next attempt of that run gets the same ones, and what came since."""
    from reconcile.control.store import open_control

    place = installation()
    found = []
    settings = place.settings()
    with open_control(settings) as control:
        try:
            names = {each.stem for each in place.contract_files()}
            kept = drain(_cluster(), control, _log.warning, settings.requests, names)
            _log.info("%d records of requests were kept", kept)
        except ReconcileError as error:
            _log.warning("%s; what was kept before is run all the same", error)
        for number in range(MOST):
            request = control.requests.claim(f"{dag_id}/{dag_run_id}/{number}")
            if request is None:
                continue  # one of a higher number may be there of an attempt before
            try:
                file = place.contract_file(request.contract)
            except RefusedError as error:
                _log.warning("the request %s is refused: %s", quoted(request.id), error)
                control.requests.finish(request.id, None)
                continue
            run_id = run_id_of(file, dag_id, "request", request.requested_at, request.id)
            found.append(
                ScheduledRun(
                    str(file),
                    run_id,
                    ids=request.ids,
                    mode=request.mode,
                    apply=request.apply,
                    request_id=request.id,
                    requester=request.requester,
                )
            )
    return found


def finish(scheduled_run: ScheduledRun) -> bool:
    """Record that a request is done, unless its run could not read everything: that may be tried again."""
    from reconcile.control.store import open_control

    assert scheduled_run.request_id is not None
    place = installation()
    try:
        with place.run(scheduled_run.run_id) as (_, run, _settings):
            if not run.manifest("summary").complete:
                return False
    except RefusedError:
        return False
    with open_control(place.settings()) as control:
        control.requests.finish(scheduled_run.request_id, scheduled_run.run_id)
    return True


def _cluster() -> dict[str, str]:
    from airflow.sdk import Connection

    extra = Connection.get(AIRFLOW_CONNECTION).extra_dejson
    own = ("group.id", "enable.auto.commit", "auto.offset.reset")
    return {name: str(value) for name, value in extra.items() if name not in own}
