"""Runs a DAG to its end and answers what it asks for: python -m tests.e2e.dag_runner DAG ANSWER CONF."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress
from typing import Any

USER = {"id": "tester", "name": "tester"}


def answer_all(answer: str, over: threading.Event) -> None:
    """Answer every question as the API does, once it has waited for two seconds: Airflow fails one that is quicker."""
    from sqlalchemy.exc import OperationalError

    seen: set[Any] = set()
    while not over.wait(2):
        with suppress(OperationalError):  # the database is locked for a moment
            seen = _answered(answer, seen)


def _answered(answer: str, seen: set[Any]) -> set[Any]:
    """Answer what waited before; give what waits now."""
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import handle_event_submit
    from airflow.sdk import timezone
    from airflow.triggers.base import TriggerEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        waiting = select(HITLDetail, TaskInstance).join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
        pending = waiting.where(HITLDetail.responded_at.is_(None), TaskInstance.state == "awaiting_input")
        found = session.execute(pending).all()
        for detail, instance in found:
            if detail.ti_id in seen:
                detail.responded_by, detail.responded_at, detail.chosen_options = USER, timezone.utcnow(), [answer]
                event = TriggerEvent(detail.as_resume_event_payload())  # type: ignore[no-untyped-call]
                handle_event_submit(event, task_instance=instance, session=session)
        return {detail.ti_id for detail, _ in found}


def main(dag_id: str, answer: str, conf: dict[str, Any]) -> None:
    """Run the DAG and print what became of each task."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    over = threading.Event()
    thread = threading.Thread(target=answer_all, args=(answer, over), daemon=True)
    thread.start()
    dag = DagBag().dags[dag_id]
    run = dag.test(run_conf=conf or None)
    over.set()
    thread.join()
    with create_session() as session:
        found = session.scalars(select(TaskInstance).where(TaskInstance.run_id == run.run_id)).all()
        tasks = {
            f"{each.task_id}[{each.map_index}]" if each.map_index >= 0 else each.task_id: str(each.state)
            for each in found
        }
    print(json.dumps({"run_id": run.run_id, "state": str(run.state), "tasks": tasks}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
